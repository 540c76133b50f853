-- As pgmq does: a number instead of a key, one index by time. A read updates the time; an ack deletes the row.
create table job (
  number bigint generated always as identity primary key,
  at bigint not null,
  reads int not null default 0,
  body bytea
) with (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
create index on job (at);

create function put(ids text[], due bigint, now bigint) returns void language sql as $$
  insert into job (at, body) select due, decode(repeat('ab', 100), 'hex') from unnest(ids)
$$;

create function claim(most int, now bigint, mark_at bigint, mark_place bigint, lease_mark bigint)
returns table (id text, fence bigint, body bytea, at bigint, place bigint) language plpgsql as $$
begin
  return query
  with c as materialized (
    select j.number from job j where j.at <= now order by j.at limit most for update skip locked)
  update job j set at = now + 30000, reads = j.reads + 1 from c where j.number = c.number
  returning j.number::text, 0::bigint, j.body, 0::bigint, j.number;
end $$;

create function ack(ids text[], fences bigint[]) returns bigint language sql as $$
  with gone as (delete from job where number = any(ids::bigint[]) returning 1) select count(*) from gone
$$;
create function upkeep(now bigint) returns void language sql as 'select';
