-- Claims of kinds that are nothing special. The rules claim from the others.

-- Leases ready jobs of one kind, if nothing is special about it: no priorities, no limits, no expired leases.
--
-- The scan begins after the mark: a place before which the caller has recently seen no job. Behind an old snapshot, rows of
-- jobs that are done cannot be removed from the index, and a scan from the start would read all of them. With `rescans`, a scan
-- that has found nothing is repeated from the start.
--
-- One row has no id: its `due` is the time, `generation` the end of the leases, `created_at` when the next job is due if
-- fewer than `most` were claimed, `fence` the microseconds that this took, and `attempts` one of 0 done, 1 the kind is paused, 2 something is special, 3 the same, and
-- claims of the kind have to be one at a time.
--
-- First acks jobs, as `_ack` does: a worker that has finished jobs wants others, and this is one commit instead of two. Their
-- rows have an id and no place. Fails if another transaction has locked one of them for longer than `lock_timeout`.
create function requeue._claim(of_test bigint, of_kind int, most int, of_lease bigint, of_nonce bigint, of_worker text, max_bytes bigint,
  mark_at bigint, mark_place bigint, lease_mark bigint, rescans boolean, acked text[], acked_fences bigint[], acked_nonces bigint[])
returns table (id text, due bigint, generation bigint, attempts int, created_at bigint, fence bigint, content_type text, body bytea, place bigint, head jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
declare
  now bigint := requeue._now(of_test);
  k requeue.kind;
  ends bigint;
  claimed bigint := 0;
  next bigint;
  began timestamptz := clock_timestamp();
begin
  if acked is not null then
    return query select a, null::bigint, null::bigint, null::int, null::bigint, null::bigint, null::text, null::bytea, null::bigint, null::jsonb
    from requeue._ack(of_kind, acked, acked_fences, acked_nonces) a;
  end if;
  select * into strict k from requeue.kind t where t.kind_id = of_kind;
  ends := now + coalesce(of_lease, k.lease);
  if k.paused then
    return query select null::text, now, ends, 1, null::bigint, null::bigint, null::text, null::bytea, null::bigint, null::jsonb;
    return;
  end if;
  if current_setting('SCHEMA.raised', true) is distinct from 'y' then perform requeue._raise_numbers(); end if;
  if k.is_near_limit or k.concurrency is not null or k.rate_jobs is not null then
    return query select null::text, now, ends, 3, null::bigint, null::bigint, null::text, null::bytea, null::bigint, null::jsonb;
    return;
  end if;
  if exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) between of_kind::bigint * 32 + 1 and of_kind::bigint * 32 + 9)
    or exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + 10 and j.at between lease_mark and now)
    or exists (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) between of_kind::bigint * 32 + 11 and of_kind::bigint * 32 + 19)
  then
    return query select null::text, now, ends, 2, null::bigint, null::bigint, null::text, null::bytea, null::bigint, null::jsonb;
    return;
  end if;
  loop
    return query
    with c as materialized (
      select j.ctid, octet_length(j.body) + coalesce(j.heads_len, 0) as length from requeue.job j
      where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + 0 and j.at <= now and (j.at, j.place) > (mark_at, mark_place)
      order by j.at, j.place limit most for update skip locked)
    -- Numbers are taken after the rows are locked: fences of a job rise.
    update requeue.job j set list = 10, at = ends, due = j.at, fence = k.fence_offset + nextval('requeue.number'), nonce = of_nonce,
      claimed_at = now, updated_at = now, worker = of_worker
    from (select c.ctid, sum(c.length) over (rows unbounded preceding) as sum from c) f where j.ctid = f.ctid and f.sum <= max_bytes
    returning j.id, j.due, j.generation, coalesce(j.attempts, 0), j.created_at, j.fence, j.content_type, j.body, j.place, j.head;
    get diagnostics claimed = row_count;
    exit when claimed > 0 or mark_at = 0 or not rescans;
    mark_at := 0;
  end loop;
  if claimed > 0 then
    insert into requeue.delta (kind_id, pending, leased, fence)
    values (of_kind, -claimed, claimed, k.fence_offset + (select last_value from requeue.number));
  end if;
  if claimed < most then
    select j.at into next from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + 0 and j.at > now order by j.at limit 1;
  end if;
  return query select null::text, now, ends, 0, next, (extract(epoch from clock_timestamp() - began) * 1000000)::bigint, null::text,
    null::bytea, null::bigint, null::jsonb;
end $$;
