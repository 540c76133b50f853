-- Settlements of leased jobs that are nothing special. The rules settle the others.

-- Acks jobs that have no successor and were not cancelled, of a kind that keeps no done jobs. Returns the ids that are gone.
-- The ids are sorted, and rows are locked in this order. Fails if another transaction has locked one of them for longer than
-- `lock_timeout`.
create function requeue._ack(of_kind int, ids text[], fences bigint[], nonces bigint[]) returns setof text language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
begin
  if (select k.keeps_done from requeue.kind k where k.kind_id = of_kind) then return; end if;
  -- `offset 0` keeps the order of the join: each job is looked up by its key. On an empty table the planner would otherwise
  -- read the whole kind.
  return query
  with c as materialized (
    select l.ctid, r.fence, r.nonce from unnest(ids, fences, nonces) r (id, fence, nonce)
    cross join lateral (select j.ctid from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l),
  gone as (
    delete from requeue.job j using c
    where j.ctid = c.ctid and j.fence = c.fence and j.nonce = c.nonce and j.list between 10 and 19
      and j.next_generation is null and j.cancelled is null
    returning j.id, j.generation),
  counted as (
    insert into requeue.delta (kind_id, leased, generation, removed)
    select of_kind, -count(*), max(g.generation), true from gone g having count(*) > 0)
  select g.id from gone g;
end $$;

-- Extends leases that were not cancelled. Returns the ids, with the new ends. Jobs that another transaction has locked are skipped:
-- their ends are null.
create function requeue._extend(of_test bigint, of_kind int, ids text[], fences bigint[], nonces bigint[], lengths bigint[])
returns table (id text, ends_at bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  usual bigint;
begin
  select k.lease into strict usual from requeue.kind k where k.kind_id = of_kind;
  return query
  with c as materialized (
    select l.ctid, l.id, r.fence, r.nonce, now + coalesce(r.length, usual) as ends
    from unnest(ids, fences, nonces, lengths) r (id, fence, nonce, length)
    cross join lateral (select j.ctid, j.id from requeue.job j where j.kind_id = of_kind and j.id = r.id for update skip locked) l),
  extended as (
    update requeue.job j set at = greatest(j.at, c.ends), updated_at = now from c
    where j.ctid = c.ctid and j.fence = c.fence and j.nonce = c.nonce and j.list between 10 and 19 and j.cancelled is null
    returning j.id, j.at)
  select e.id, e.at from extended e
  union all
  select l.id, null from unnest(ids) r (id)
  cross join lateral (select j.id from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l
  where (select count(*) from c) < cardinality(ids) and l.id not in (select c.id from c);
end $$;
