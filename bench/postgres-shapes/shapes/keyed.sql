-- One keyed table, changed in place. Every list of jobs (pending, leased, dead) is a range of one index. A claim begins
-- at a mark: the place before which this client has seen no claimable job. A mark of (0, 0) reads from the start.
create sequence number;
create table job (
  kind_id int not null,
  list smallint not null,
  attempts int not null default 0,
  at bigint not null,
  place bigint not null,
  due bigint not null,
  generation bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  fence bigint,
  nonce bigint,
  claimed_at bigint,
  id text collate "C" not null,
  worker text,
  content_type text,
  body bytea not null,
  next_generation bigint,
  cancelled boolean,
  failures bytea,
  kind_list int not null generated always as (kind_id * 32 + list) stored,
  primary key (kind_id, id) with (deduplicate_items = off)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
create index job_list on job (kind_list, at, place) with (deduplicate_items = off);
create table delta (kind_id int not null, xid xid8 not null, pending bigint not null, leased bigint not null, generation bigint, fence bigint);
create index on delta (kind_id, xid);

create function put(ids text[], due bigint, now bigint) returns void language plpgsql as $$
declare created int;
begin
  insert into job (kind_id, list, at, place, due, generation, created_at, updated_at, id, body)
  select 1, 0, $2, n, $2, n, $3, $3, u.id, u.body
  from (select u.id, nextval('number') n, decode(repeat('ab', 100), 'hex') body from unnest(ids) u(id)) u
  on conflict (kind_id, id) do nothing;
  get diagnostics created = row_count;
  insert into delta values (1, pg_current_xact_id(), created, 0, 1, null);
end $$;

create function claim(most int, now bigint, mark_at bigint, mark_place bigint, lease_mark bigint)
returns table (id text, fence bigint, body bytea, at bigint, place bigint) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare claimed bigint;
begin
  -- Are there expired leases?
  perform 1 from job j where j.kind_list = 42 and j.at >= lease_mark and j.at <= now limit 1;
  if found then raise 'expired'; end if;
  return query
  with c as materialized (
    select j.ctid, j.at, j.place from job j
    where j.kind_list = 32 and j.at <= now and (j.at, j.place) > (mark_at, mark_place)
    order by j.at, j.place limit most for update skip locked)
  update job j set list = 10, at = now + 30000, fence = nextval('number'), nonce = 7, claimed_at = now, updated_at = now, worker = 'worker-1'
  from c where j.ctid = c.ctid
  returning j.id, j.fence, j.body, c.at, c.place;
  get diagnostics claimed = row_count;
  insert into delta values (1, pg_current_xact_id(), -claimed, claimed, null, 1);
end $$;

create function ack(ids text[], fences bigint[]) returns bigint language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare gone bigint;
begin
  -- `offset 0` keeps the order of the join: each job is looked up by its key. On an empty table the planner would
  -- rather read the whole kind.
  with c as materialized (
    select l.ctid, r.fence from unnest(ids, fences) r(id, fence)
    cross join lateral (select j.ctid from job j where j.kind_id = 1 and j.id = r.id offset 0) l)
  delete from job j using c
  where j.ctid = c.ctid and j.fence = c.fence and j.next_generation is null and j.cancelled is null;
  get diagnostics gone = row_count;
  insert into delta values (1, pg_current_xact_id(), 0, -gone, null, null);
  return gone;
end $$;
create function upkeep(now bigint) returns void language sql as $$
  delete from delta where xid < pg_snapshot_xmin(pg_current_snapshot())
$$;
