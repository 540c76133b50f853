-- A keyed table that is not updated, a ring of four tables for the order of jobs that are due, and a table of leases.
-- A table of the ring that is used up is truncated, which leaves no dead rows, even under an old snapshot.
create sequence number;
create table job (
  kind_id int not null, due bigint not null, generation bigint not null, created_at bigint not null, id text collate "C" not null,
  content_type text, body bytea not null, primary key (kind_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
create table ready (slot int not null, kind_id int not null, at bigint not null, place bigint not null, id text collate "C" not null)
  partition by list (slot);
create table ready0 partition of ready for values in (0);
create table ready1 partition of ready for values in (1);
create table ready2 partition of ready for values in (2);
create table ready3 partition of ready for values in (3);
create index on ready (kind_id, at, place);
create table lease (kind_id int not null, id text collate "C" not null, fence bigint not null, nonce bigint, ends_at bigint not null,
  worker text, primary key (kind_id, id));
create index on lease (kind_id, ends_at);
-- The slot that is written, and the slot that is read.
create table ring (put int not null, take int not null, changed bigint not null);
insert into ring values (0, 0, 0);

create function put(ids text[], due bigint, now bigint) returns void language plpgsql as $$
declare s int; d bigint = due;
begin
  select r.put into s from ring r;
  with made as (
    insert into job (kind_id, due, generation, created_at, id, body)
    select 1, d, nextval('number'), now, u.id, decode(repeat('ab', 100), 'hex') from unnest(ids) u(id)
    on conflict do nothing returning job.id, generation)
  insert into ready select s, 1, d, made.generation, made.id from made;
end $$;

create function claim(most int, now bigint, mark_at bigint, mark_place bigint, lease_mark bigint)
returns table (id text, fence bigint, body bytea, at bigint, place bigint) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare r ring; s int;
begin
  select * into r from ring;
  for n in 0..3 loop
    s := (r.take + n) % 4;
    return query
    with c as materialized (
      select q.ctid from ready q where q.slot = s and q.kind_id = 1 and q.at <= now order by q.at, q.place limit most
      for update skip locked),
    d as (delete from ready q using c where q.slot = s and q.ctid = c.ctid returning q.id, q.at, q.place),
    l as (insert into lease as e select 1, d.id, nextval('number'), 7, now + 30000, 'worker-1' from d returning e.id, e.fence)
    select l.id, l.fence, j.body, d.at, d.place from l join d on l.id = d.id join job j on j.kind_id = 1 and j.id = l.id;
    if found or s = r.put then return; end if;
  end loop;
end $$;

create function ack(ids text[], fences bigint[]) returns bigint language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
  with gone as (delete from lease l using unnest(ids, fences) r(id, fence)
    where l.kind_id = 1 and l.id = r.id and l.fence = r.fence returning l.id),
  jobs as (delete from job j using gone where j.kind_id = 1 and j.id = gone.id returning 1)
  select count(*) from jobs
$$;
-- Rotates every two seconds: the next table is written, and tables that are used up are truncated.
create function upkeep(now bigint) returns void language plpgsql as $$
declare r ring;
begin
  select * into r from ring;
  if now - r.changed < 2000 or (r.put + 1) % 4 = r.take then
    if now - r.changed < 2000 then return; end if;
  else
    update ring set put = (r.put + 1) % 4, changed = now;
  end if;
  if r.take <> r.put then
    if not exists (select from ready where slot = r.take) then
      execute format('truncate ready%s', r.take);
      update ring set take = (r.take + 1) % 4;
    end if;
  end if;
end $$;
