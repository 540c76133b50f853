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

-- Ends leases of jobs that have no successor and were not cancelled, without reading their bodies. The ids are sorted, and rows
-- are locked in this order. Returns where the jobs are now; what it does not return is left to the rules: the last attempt, a
-- dead job for which another one has to go, and what counts one by one. Fails if another transaction has locked one of them for
-- longer than `lock_timeout`.
create function requeue._settle(of_test bigint, of_kind int, ids text[], all_fences bigint[], all_nonces bigint[],
  -- 0 retry, 1 bury, 2 release, 3 requeue
  actions smallint[],
  -- Of a retry or requeue. Null: the backoff of the kind, of which this share of the jitter is subtracted, in units of 1/2^16.
  delays bigint[], jitters int[],
  -- As JSON.
  errors text[])
returns table (id text, at bigint, place bigint, is_pending boolean, settled_at bigint, is_limited boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  k requeue.kind;
  buries bigint;
  may_bury boolean := true;
begin
  if current_setting('SCHEMA.raised', true) is distinct from 'y' then perform requeue._raise_numbers(); end if;
  select * into strict k from requeue.kind s where s.kind_id = of_kind;
  buries := cardinality(array_positions(actions, 1::smallint));
  if buries > 0 then
    may_bury := (select t.dead from requeue._totals(of_kind) t) + buries <= k.max_dead and not exists (
      select from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + 20 and j.at < now - k.max_dead_age);
  end if;
  return query
  with c as materialized (
    -- The backoff is in nanoseconds: whole milliseconds, rounded up, less the jitter.
    select l.ctid, l.attempts, r.*, now + coalesce(r.delay, (b.ns + 999999) / 1000000 - b.ns / 1000000 * (k.backoff_jitter * r.jitter) / 6553600) as until
    from unnest(ids, all_fences, all_nonces, actions, delays, jitters, errors) r (id, fence, nonce, action, delay, jitter, error)
    cross join lateral (select j.ctid, coalesce(j.attempts, 0) as attempts from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l
    cross join lateral (select case when l.attempts < 32 and k.backoff_base <= k.backoff_max >> l.attempts
      then k.backoff_base << l.attempts else k.backoff_max end as ns) b),
  settled as (
    update requeue.job j set
      list = case c.action when 1 then 20 else coalesce(j.priority, 0) end,
      at = case c.action when 1 then now when 2 then j.due else c.until end,
      due = case c.action when 1 then j.due end,
      place = case c.action when 2 then j.place else nextval('requeue.number') end,
      generation = case c.action when 3 then k.generation_offset + nextval('requeue.number') else j.generation end,
      created_at = case c.action when 3 then now else j.created_at end,
      updated_at = now,
      attempts = case c.action when 2 then j.attempts when 3 then null else c.attempts + 1 end,
      deaths = case c.action when 1 then coalesce(j.deaths, 0) + 1 when 3 then null else j.deaths end,
      floor = case c.action when 0 then c.until when 3 then null else j.floor end,
      first_put_at = case c.action when 3 then 0 else j.first_put_at end,
      fence = null, nonce = null, claimed_at = null, worker = null,
      failures = case c.action when 2 then j.failures when 3 then null else
        -- The last four, and this one.
        '[' || coalesce((select string_agg(e.value::text, ',' order by e.n) from json_array_elements(j.failures::json) with ordinality e (value, n)
          where e.n > json_array_length(j.failures::json) - 4) || ',', '')
        || '{"worker":' || to_json(j.worker) || ',"started_at":' || j.claimed_at || ',"ended_at":' || now || ',"error":' || c.error || '}]' end
    from c
    where j.ctid = c.ctid and j.fence = c.fence and j.nonce = c.nonce and j.list between 10 and 19
      and j.next_generation is null and j.cancelled is null
      -- Others are escaped.
      and strpos(j.worker, chr(1)) = 0
      and case c.action when 0 then c.attempts + 1 < k.max_attempts when 1 then may_bury when 2 then k.rate_jobs is null
        else not k.is_near_limit end
    returning j.id, j.at, j.place, j.list, c.action, j.generation),
  counted as (
    insert into requeue.delta (kind_id, leased, pending, dead, generation)
    select of_kind, -count(*), count(*) filter (where s.list < 10), count(*) filter (where s.list = 20),
      coalesce(max(s.generation) filter (where s.action = 3), 0)
    from settled s having count(*) > 0)
  select s.id, s.at, s.place, s.list < 10, now, k.concurrency is not null from settled s;
end $$;
