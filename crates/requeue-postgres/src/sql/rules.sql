-- What a call needs that runs the rules in the client: it locks jobs, reads the kind, and writes what became of them.

-- Locks and returns jobs by id, in the order of the ids. Fails if another transaction has locked one of them for longer than
-- `lock_timeout`.
create function requeue._lock(of_kind int, ids text[]) returns setof requeue.job language sql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set lock_timeout = '100ms' as $$
  select j.* from unnest(ids) r (id)
  cross join lateral (select * from requeue.job j where j.kind_id = of_kind and j.id = r.id for update) j
$$;

-- Returns those of these jobs that other transactions have locked.
create function requeue._locked(of_kind int, ids text[]) returns setof text language sql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
  with free as materialized (
    select j.id from unnest(ids) r (id)
    cross join lateral (select j.id from requeue.job j where j.kind_id = of_kind and j.id = r.id for update skip locked) j)
  select j.id from unnest(ids) r (id)
  cross join lateral (select j.id from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) j
  where j.id not in (select f.id from free f)
$$;

-- Locks and returns the first jobs of each list that are due or whose lease has expired, `most` per list, and contents of up
-- to `max_bytes` per list. Skips jobs that other transactions have locked.
create function requeue._lock_claimable(of_test bigint, of_kind int, from_list int, most_pending int, most_leased int, max_bytes bigint)
returns setof requeue.job language sql
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
begin atomic
  with c as materialized (
    select l.list, j.ctid as tid, octet_length(j.body) + coalesce(j.heads_len, 0) + coalesce(octet_length(j.next_body), 0) as length, j.at, j.place
    from generate_series(from_list, 19) l (list)
    cross join lateral (
      select j.ctid, j.* from requeue.job j
      where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.list and j.at <= (select requeue._now(of_test))
      order by j.at, j.place limit case when l.list < 10 then most_pending else most_leased end for update skip locked) j),
  f as materialized (
    select s.tid from (
      select c.tid, sum(c.length) over w as sum, row_number() over w as n from c
      window w as (partition by c.list order by c.at, c.place rows unbounded preceding)) s
    where s.sum <= max_bytes or s.n = 1)
  select j.* from f join requeue.job j on j.ctid = f.tid;
end;

-- Locks and returns the oldest dead and the oldest done job, if the kind should not keep it when one more comes.
create function requeue._lock_oldest(of_test bigint, of_kind int) returns setof requeue.job language sql
set jit = off set enable_seqscan = off set enable_bitmapscan = off
begin atomic
  select j.* from requeue.kind k
  cross join lateral requeue._totals(of_kind) t
  cross join lateral (values (20, t.dead, k.max_dead, k.max_dead_age), (21, t.done, k.max_done, k.max_done_age)) l (list, count, most, age)
  cross join lateral (
    select * from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.list
      and (l.count >= l.most or j.at < requeue._now(of_test) - l.age)
    order by j.at, j.place limit 1 for update skip locked) j
  where k.kind_id = of_kind;
end;

-- What the rules need to know of a kind, and `count` new numbers. Called after the jobs are locked.
create function requeue._context(of_test bigint, of_kind int, count int)
returns table (now bigint, generation_offset bigint, fence_offset bigint, is_near_limit boolean, settings text, pending bigint, leased bigint,
  dead bigint, done bigint, generation bigint, fence bigint, rate_parts bigint, rate_at bigint, expired bigint, numbers bigint[])
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
  k requeue.kind;
begin
  if current_setting('SCHEMA.raised', true) is distinct from 'y' then perform requeue._raise_numbers(); end if;
  select * into strict k from requeue.kind s where s.kind_id = of_kind for key share;
  now := requeue._now(of_test);
  generation_offset := k.generation_offset; fence_offset := k.fence_offset;
  is_near_limit := k.is_near_limit; settings := k.settings::text;
  select t.pending, t.leased, t.dead, t.done, t.generation, t.fence into pending, leased, dead, done, generation, fence from requeue._totals(of_kind) t;
  if k.rate_jobs is not null then
    select r.parts, r.at into rate_parts, rate_at from requeue.rate_use r where r.kind_id = of_kind order by r.number desc limit 1;
  end if;
  if k.concurrency is not null then
    select count(*) into expired from generate_series(10, 19) l (list)
    cross join lateral (select from requeue.job j where (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.list and j.at <= _context.now) j;
  end if;
  numbers := array(select nextval('requeue.number') from generate_series(1, _context.count));
  return next;
end $$;

-- Writes what became of locked jobs: deletes some, changes others and adds new ones. If a body is null, it stays as it is, with its
-- head.
-- Returns false if a new job exists already; the caller then rolls back and begins again. Fails if an open transaction is creating
-- one of the new jobs, for longer than `lock_timeout`.
create function requeue._write(of_kind int, deleted text[], are_new boolean[], JOB_ARGUMENTS) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
declare
  added bigint := 0;
begin
  if cardinality(deleted) > 0 then
    with c as materialized (
      select l.ctid from unnest(deleted) r (id)
      cross join lateral (select j.ctid from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l)
    delete from requeue.job j using c where j.ctid = c.ctid;
  end if;
  if not are_new <@ array[true] then
    with u as materialized (
      select l.ctid as tid, r.* from unnest(are_new, JOB_ARRAYS) r (is_new, JOB_COLUMNS)
      cross join lateral (select j.ctid from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l
      where not r.is_new)
    update requeue.job j set JOB_CHANGES,
      heads_len = requeue._heads_len(case when u.body is null then j.head else u.head end, u.next_head)
    from u where j.ctid = u.tid;
  end if;
  if are_new && array[true] then
    insert into requeue.job (kind_id, heads_len, JOB_COLUMNS)
    select of_kind, requeue._heads_len(r.head, r.next_head), JOB_VALUES from unnest(are_new, JOB_ARRAYS) r (is_new, JOB_COLUMNS) where r.is_new
    on conflict do nothing;
    get diagnostics added = row_count;
  end if;
  return added = (select count(*) from unnest(are_new) n where n);
end $$;
