-- The numbers of jobs of a kind: statements only add rows to `delta`, and the reaper adds them up.

-- Whether a transaction that `before` does not show has removed a job with a later generation than this.
create function requeue._removed_since(of_kind int, than bigint, before pg_snapshot) returns boolean language sql
set jit = off set enable_seqscan = off set enable_bitmapscan = off
begin atomic
  select exists (select from requeue.delta d where d.kind_id = of_kind and d.xid >= pg_snapshot_xmax(before) and d.removed and d.generation > than)
    or exists (select from pg_snapshot_xip(before) r (xid) cross join lateral (
      select from requeue.delta d where d.kind_id = of_kind and d.xid = r.xid and d.removed and d.generation > than) d)
    -- They may have been added up since.
    or coalesce((select t.upto from requeue.total t where t.kind_id = of_kind order by t.number desc limit 1) > pg_snapshot_xmax(before), false);
end;

-- The latest totals of a kind, exact for the snapshot of the statement.
create function requeue._totals(of_kind int)
returns table (pending bigint, leased bigint, dead bigint, done bigint, generation bigint, fence bigint) language sql stable
begin atomic
  with latest as materialized (
    select * from requeue.total t where t.kind_id = of_kind order by t.number desc limit 1),
  rest as (
    select d.* from requeue.delta d
    where d.kind_id = of_kind and d.xid >= coalesce((select upto from latest), '0'::xid8)
    union all
    select d.* from latest l cross join unnest(l.running) r (xid) cross join lateral (
      select * from requeue.delta d where d.kind_id = of_kind and d.xid = r.xid offset 0) d),
  sums as (
    select sum(d.pending)::bigint as pending, sum(d.leased)::bigint as leased, sum(d.dead)::bigint as dead, sum(d.done)::bigint as done,
      max(d.generation) as generation, max(d.fence) as fence
    from rest d)
  select coalesce(l.pending, 0) + coalesce(r.pending, 0), coalesce(l.leased, 0) + coalesce(r.leased, 0),
    coalesce(l.dead, 0) + coalesce(r.dead, 0), coalesce(l.done, 0) + coalesce(r.done, 0),
    greatest(l.generation, r.generation, 0), greatest(l.fence, r.fence, 0)
  from sums r left join latest l on true;
end;

-- Adds up the deltas of transactions that have ended, also of those that began after one that has not: it may run for hours.
-- Returns whether there were any.
create function requeue._fold(of_kind int) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  newest bigint;
  latest requeue.total;
  of_now pg_snapshot;
  until xid8;
  unfinished xid8[];
  sums record;
begin
  -- One at a time per kind. If it is gone when it is locked, others have just added up.
  select t.number into newest from requeue.total t where t.kind_id = of_kind order by t.number desc limit 1;
  select * into latest from requeue.total t where t.kind_id = of_kind and t.number = newest for update skip locked;
  if not found then return false; end if;
  -- What these transactions have written is visible to the statements below, whose snapshots are later.
  of_now := pg_current_snapshot();
  until := pg_snapshot_xmax(of_now);
  unfinished := array(select pg_snapshot_xip(of_now));
  with gone as (
    delete from requeue.delta d where d.kind_id = of_kind and d.xid >= coalesce(latest.upto, '0'::xid8) and d.xid < until
      and d.xid <> all (unfinished)
    returning d.*),
  gone_late as (
    delete from requeue.delta d using unnest(latest.running) r (xid)
    where d.kind_id = of_kind and d.xid = r.xid and d.xid <> all (unfinished)
    returning d.*)
  select sum(d.pending) as pending, sum(d.leased) as leased, sum(d.dead) as dead, sum(d.done) as done, max(d.generation) as generation,
    max(d.fence) as fence, count(*) as rows
  into sums from (select * from gone union all select * from gone_late) d;
  if sums.rows = 0 then return false; end if;
  insert into requeue.total (kind_id, upto, running, pending, leased, dead, done, generation, fence)
  select of_kind, until, unfinished, coalesce(latest.pending, 0) + sums.pending, coalesce(latest.leased, 0) + sums.leased,
    coalesce(latest.dead, 0) + sums.dead, coalesce(latest.done, 0) + sums.done,
    greatest(latest.generation, sums.generation), greatest(latest.fence, sums.fence);
  delete from requeue.total t where t.kind_id = of_kind and t.number <= latest.number;
  return true;
end $$;

-- Counts all jobs, and replaces the counts. Puts, claims and acks wait until it is done.
create function requeue._recount() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  lock table requeue.job in share row exclusive mode;
  create temporary table recounted on commit drop as
  select k.kind_id, t.generation as old_generation, t.fence as old_fence, c.*
  from requeue.kind k
  cross join lateral requeue._totals(k.kind_id) t
  cross join lateral (
    select count(*) filter (where j.list < 10) as pending, count(*) filter (where j.list between 10 and 19) as leased,
      count(*) filter (where j.list = 20) as dead, count(*) filter (where j.list = 21) as done,
      max(greatest(j.generation, j.next_generation)) as generation, max(j.fence) as fence
    from requeue.job j where j.kind_id = k.kind_id) c;
  delete from requeue.delta;
  delete from requeue.total;
  insert into requeue.total (kind_id, upto, pending, leased, dead, done, generation, fence)
  select r.kind_id, '0'::xid8, r.pending, r.leased, r.dead, r.done, greatest(r.old_generation, r.generation, 0), greatest(r.old_fence, r.fence, 0)
  from pg_temp.recounted r;
  update requeue.cluster set system_identifier = (select c.system_identifier from pg_control_system() c);
end $$;

-- Counts all jobs if the tables come from another cluster of servers, by a dump for example. Clusters that were copied from one
-- have the same identifier; but then transaction ids may be there that this cluster has not used yet.
create function requeue._recount_if_moved() returns void language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  if (select c.system_identifier <> s.system_identifier
      or exists (select from requeue.total t where t.upto > pg_snapshot_xmax(pg_current_snapshot()))
      or exists (select from requeue.delta d where d.xid >= pg_snapshot_xmax(pg_current_snapshot()))
    from requeue.cluster c, pg_control_system() s)
  then
    perform requeue._recount();
  end if;
end $$;
