-- Kinds, for people.

-- A kind as clients see it. Null settings are the default ones.
create function requeue._view(of_test bigint, of_kind int)
returns table (settings text, pending bigint, leased bigint, dead bigint, done bigint, ready bigint, oldest bigint, generation bigint,
  fence bigint, throttled_until bigint, has_schedules boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  k requeue.kind;
  u requeue.rate_use;
  missing bigint;
begin
  select * into k from requeue.kind s where s.kind_id = of_kind;
  if not found then return; end if;
  settings := k.settings::text;
  select t.pending, t.leased, t.dead, t.done, t.generation, t.fence into pending, leased, dead, done, generation, fence from requeue._totals(of_kind) t;
  ready := 0;
  if pending > 0 then
    select count(*), min(r.at) into ready, oldest from (
      select j.at from generate_series(0, 9) l (list)
      cross join lateral (select j.at from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.list and j.at <= now
        order by j.at, j.place limit 10000) j
      limit 10000) r;
  end if;
  if k.rate_jobs is not null then
    select * into u from requeue.rate_use r where r.kind_id = of_kind order by r.number desc limit 1;
    if u.kind_id is not null then
      missing := greatest(u.parts - greatest(now - u.at, 0) * k.rate_jobs, 0) - (k.rate_burst - 1) * k.rate_per;
      if missing > 0 then throttled_until := greatest(u.at, now) + (missing + k.rate_jobs - 1) / k.rate_jobs; end if;
    end if;
  end if;
  has_schedules := exists (select from requeue.schedule s where s.kind_id = of_kind);
  return next;
end $$;
