-- Dead and done jobs that are too many or too old.

-- Deletes up to `most` dead and `most` done jobs of a kind that are too old or too many, and adds up its counts. Returns how
-- many jobs were deleted, and whether a lease has expired.
create function requeue._reap(of_test bigint, of_kind int, most int, lease_mark bigint) returns table (dropped bigint, expired boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  k requeue.kind;
  t record;
  gone bigint; high bigint;
  l record;
  has_expired boolean;
begin
  dropped := 0;
  perform requeue._fold(of_kind);
  select * into strict k from requeue.kind s where s.kind_id = of_kind;
  select * into t from requeue._totals(of_kind);
  for l in values (20, t.dead, k.max_dead, k.max_dead_age), (21, t.done, k.max_done, k.max_done_age) loop
    if l.column2 > 0 then
      with c as materialized (
        select s.ctid from (
          select j.ctid, j.at, row_number() over (order by j.at, j.place) as n from (
            select j.ctid, j.at, j.place from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.column1
            order by j.at, j.place limit most for update skip locked) j) s
        where s.n <= l.column2 - l.column3 or s.at < now - l.column4),
      dropped_jobs as (delete from requeue.job j using c where j.ctid = c.ctid returning j.generation)
      select count(*), max(d.generation) into gone, high from dropped_jobs d;
      if gone > 0 then
        insert into requeue.delta (kind_id, dead, done, generation, removed)
        values (of_kind, case when l.column1 = 20 then -gone else 0 end, case when l.column1 = 21 then -gone else 0 end, high, true);
        dropped := dropped + gone;
      end if;
    end if;
  end loop;
  if k.rate_jobs is not null then
    delete from requeue.rate_use r where r.kind_id = of_kind
      and r.number < (select max(s.number) from requeue.rate_use s where s.kind_id = of_kind);
  end if;
  has_expired := false;
  if t.leased > 0 then
    has_expired := exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + 10 and j.at between lease_mark and now);
    if not has_expired and exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) between of_kind::bigint * 32 + 11 and of_kind::bigint * 32 + 19) then
      for n in 11..19 loop
        has_expired := has_expired or exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + n and j.at <= now);
      end loop;
    end if;
  end if;
  expired := has_expired;
  return next;
end $$;
