-- When the next claim may find something.

-- When a claim may next return a job of each kind: milliseconds from now, null for not before something else happens, or -1 if
-- the kind is gone. Marks
-- as for `_claim`. An expired lease counts; when the next one expires is not looked up, because under an old snapshot that would
-- read the entries of all leases that have ended early: the caller asks again soon.
create function requeue._peek(of_test bigint, kinds int[], marks_at bigint[], marks_place bigint[], lease_marks bigint[])
returns table (kind int, next bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  k requeue.kind;
  m record;
  first bigint; other bigint; busy bigint; u requeue.rate_use; missing bigint; has_others boolean;
begin
  for m in select * from unnest(kinds, marks_at, marks_place, lease_marks) v (kind_id, at, place, lease) loop
    select * into k from requeue.kind t where t.kind_id = m.kind_id;
    first := null;
    if k.kind_id is null or k.paused then
      return query select m.kind_id, case when k.kind_id is null then -1::bigint end;
      continue;
    end if;
    -- Other priorities. Most kinds use none.
    has_others := exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) between m.kind_id::bigint * 32 + 1 and m.kind_id::bigint * 32 + 9)
      or exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) between m.kind_id::bigint * 32 + 11 and m.kind_id::bigint * 32 + 19);
    select j.at into first from requeue.job j where (j.kind_id::bigint * 32 + j.list) = m.kind_id::bigint * 32 + 10 and j.at between m.lease and now
      order by j.at limit 1;
    if first is null and has_others then
      for l in 11..19 loop
        select j.at into other from requeue.job j where (j.kind_id::bigint * 32 + j.list) = m.kind_id::bigint * 32 + l and j.at <= now order by j.at limit 1;
        first := least(first, other);
      end loop;
    end if;
    busy := 0;
    if first is null and k.concurrency is not null then
      select t.leased into busy from requeue._totals(m.kind_id) t;
    end if;
    if first is null and (k.concurrency is null or busy < k.concurrency) then
      select j.at into first from requeue.job j where (j.kind_id::bigint * 32 + j.list) = m.kind_id::bigint * 32 + 0 and (j.at, j.place) > (m.at, m.place)
        order by j.at, j.place limit 1;
      if has_others then
        for l in 1..9 loop
          select j.at into other from requeue.job j where (j.kind_id::bigint * 32 + j.list) = m.kind_id::bigint * 32 + l order by j.at, j.place limit 1;
          first := least(first, other);
        end loop;
      end if;
    end if;
    if first is not null and k.rate_jobs is not null then
      select * into u from requeue.rate_use r where r.kind_id = m.kind_id order by r.number desc limit 1;
      if u.kind_id is not null then
        missing := greatest(u.parts - greatest(now - u.at, 0) * k.rate_jobs, 0) - (k.rate_burst - 1) * k.rate_per;
        if missing > 0 then
          first := greatest(first, greatest(u.at, now) + (missing + k.rate_jobs - 1) / k.rate_jobs);
        end if;
      end if;
    end if;
    -- `greatest` ignores nulls.
    return query select m.kind_id, case when first is not null then greatest(first - now, 0) end;
  end loop;
end $$;
