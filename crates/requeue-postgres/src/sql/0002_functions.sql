-- Functions of the store. Those with the prefix `_` are internal: their arguments may change with each version.
--
-- No name is looked up by the `search_path` of the caller, who may have operators and functions of others in it. PL/pgSQL looks
-- up names when it runs, so these functions set a path. The bodies of SQL functions are `begin atomic`: they are parsed here,
-- under the path of the migration, and can still be inlined.

-- The time in milliseconds: the server's, or that of a test.
create function requeue._now(of_test bigint) returns bigint language sql
return coalesce(of_test, floor(extract(epoch from clock_timestamp()) * 1000)::bigint);

-- A number that is another one after each start of the server and, since Postgres 15, after the crash of one of its processes:
-- that resets the statistics. With `synchronous_commit=off`, it loses the latest transactions, too. Earlier versions would have to
-- wait for the statistics.
create function requeue._start() returns bigint language sql stable
return (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
  + case when current_setting('server_version_num')::int >= 150000
    then coalesce((extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint, 0) else 0 end;

-- Numbers rise even after a failover to a server that lacks the latest transactions, because they are raised to the clock
-- once per server start. This waits only for another session that does the same.
create function requeue._raise_numbers() returns void language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  started bigint := requeue._start();
  clock bigint;
begin
  if (select last_value from requeue.raised_at) = started then return; end if;
  -- The lock ends with this block, because it is rolled back: the transaction may be long. Changes of sequences stay.
  begin
    perform from requeue.raising for update;
    if (select last_value from requeue.raised_at) <> started then
      -- A second ahead: other sessions may be taking numbers at this moment.
      clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint + 1000000;
      if (select last_value from requeue.number) < clock then
        perform setval('requeue.number', clock);
      else
        perform setval('requeue.number', (select last_value from requeue.number) + 1000000);
      end if;
      -- Seconds since 2020: fewer kinds than that are created.
      perform setval('requeue.kind_number', greatest((select last_value from requeue.kind_number) + 1000, clock / 1000000 - 1577836800));
      perform nextval('requeue.raises');
      perform setval('requeue.raised_at', started);
    end if;
    raise exception using errcode = 'RQ001', message = 'done';
  exception when sqlstate 'RQ001' then null;
  end;
end $$;

-- For the first time, so that it is not lost.
select requeue._raise_numbers();

-- Whether numbers were raised since the server has started.
create function requeue._is_raised() returns boolean language sql
return (select last_value from requeue.raised_at) = requeue._start();

-- Returns the number of a kind, and creates the kind if there is none. Null: there are too many kinds.
create function requeue._kind_id(kind text) returns int language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  found_id int;
  made_id int;
  n bigint;
  generations bigint;
  fences bigint;
begin
  loop
    select k.kind_id into found_id from requeue.kind k where k.name = kind for key share;
    if found then return found_id; end if;
    -- Numbers have gaps, so they only tell when to count.
    if (select max(k.kind_id) - min(k.kind_id) from requeue.kind k) >= 9999 and (select count(*) from requeue.kind) >= 10000 then return null; end if;
    perform requeue._raise_numbers();
    n := nextval('requeue.number');
    insert into requeue.kind (kind_id, name, generation_offset)
    select nextval('requeue.kind_number'), kind, -case when r.last_value = 1 then n else c.first_number end
    from requeue.raises r, requeue.cluster c
    on conflict do nothing returning kind.kind_id into made_id;
    if made_id is not null then
      -- Read now: whoever has removed a kind of this name has done so before the insert.
      select g.last_value, f.last_value into generations, fences from requeue.generation_floor g, requeue.fence_floor f;
      if generations > 0 or fences > 0 then
        update requeue.kind k set generation_offset = greatest(k.generation_offset, generations - n), fence_offset = greatest(k.fence_offset, fences - n)
        where k.kind_id = made_id;
      end if;
      -- With the number of the kind: the next one is that of its first put, whose generation is 1.
      insert into requeue.total (kind_id, number, upto, pending, leased, dead, done, generation, fence)
      values (made_id, n, '0'::xid8, 0, 0, 0, 0, 0, 0);
      return made_id;
    end if;
    -- Another transaction has created it. A snapshot that does not show that stays the same.
    if current_setting('transaction_isolation') <> 'read committed' then
      raise exception using message = 'put: another transaction has created the kind', errcode = 'serialization_failure';
    end if;
  end loop;
end $$;

-- Creates kinds for the store, which does not wait for long if an open transaction is creating one of them.
create function requeue._make_kinds(kinds text[]) returns table (kind text, kind_id int) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
begin
  -- In this order, so that no two calls wait for each other.
  for kind in select k from unnest(kinds) k order by k loop
    kind_id := requeue._kind_id(kind);
    return next;
  end loop;
end $$;

-- Locks a kind, for what is done one at a time, until the end of the transaction. Returns its settings. Transactions of
-- applications do not call this.
create function requeue._lock_kind(of_kind int) returns text language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare found_settings text;
begin
  select k.settings::text into strict found_settings from requeue.kind k where k.kind_id = of_kind for no key update;
  return found_settings;
end $$;

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

-- Puts jobs of one kind. The ids are distinct. Arrays that are null have only default values.
--
-- Outcome: 0 created, 1 updated, 2 kept, 3 coalesced, 4 revived; not done: 5 exists, 6 has another generation (that of
-- the job, or null if it is absent), 7 the numbers of the kind are near their limit, 8 due too late (the delay).
create function requeue._put(of_test bigint, of_kind int, ids text[], bodies bytea[], content_types text[],
  delays bigint[], dues bigint[], priorities smallint[],
  -- 0 replace, 1 earliest, 2 keep, 3 debounce
  modes smallint[], max_waits bigint[],
  -- 0 none, 1 if absent, 2 if new, 3 if generation
  conditions smallint[], expected bigint[])
returns table (job_id text, outcome smallint, generation bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off as $$
declare
  now bigint := requeue._now(of_test);
  longest constant bigint := 316224000000;
  k requeue.kind;
  j requeue.job;
  p record;
  made bigint := 0; revived bigint := 0; replaced bigint := 0; highest bigint := 0;
  numbers bigint[];
  began pg_snapshot;
  newest bigint; fresh bigint; base bigint; new_due bigint; new_number bigint; rank smallint;
begin
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  select * into strict k from requeue.kind where kind_id = of_kind for key share;
  if k.is_near_limit then
    return query select u, 7::smallint, 0::bigint from unnest(ids) u;
    return;
  end if;

  -- In the order of the entries. A put that then waits for another transaction may take a later number, below.
  began := pg_current_snapshot();
  numbers := array(select nextval('requeue.number') from generate_series(1, cardinality(ids)));

  -- Most puts create jobs. Rows are locked in the order of ids, here and below, so that no two calls wait for each other.
  insert into requeue.job (kind_id, list, priority, at, place, due, generation, created_at, updated_at, id, content_type, body)
  select of_kind, s.priority, s.priority, s.due, s.number, s.due, k.generation_offset + s.number, now, now, s.id, s.type, s.body
  from (
    select v.id, v.body, v.type, v.number, coalesce(v.priority, 0::smallint) as priority,
      least(case when v.due is null then now + coalesce(v.delay, 0) else greatest(v.due, now) end,
        case when v.mode = 3 then now + v.wait else 9223372036854775807 end) as due
    from unnest(ids, bodies, numbers, content_types, delays, dues, priorities, modes, max_waits, conditions)
      v (id, body, number, type, delay, due, priority, mode, wait, condition)
    where v.condition is distinct from 3 and coalesce(v.delay, 0) <= longest and coalesce(v.due, 0) - now <= longest
    order by v.id
  ) s
  on conflict (kind_id, id) do nothing;
  get diagnostics made = row_count;

  -- While this waited, a job may have been put with a later number, and removed. Then the new jobs get even later ones: no other
  -- put of them can come in between now. Their places stay as they are.
  if made > 0 and requeue._removed_since(of_kind, k.generation_offset + numbers[1], began) then
    for n in 1..cardinality(ids) loop
      new_number := nextval('requeue.number');
      update requeue.job t set generation = k.generation_offset + new_number
      where t.kind_id = of_kind and t.id = ids[n] and t.generation = k.generation_offset + numbers[n];
      if found then numbers[n] := new_number; end if;
    end loop;
  end if;
  if made = cardinality(ids) then
    highest := k.generation_offset + numbers[made];
    return query select u.id, 0::smallint, k.generation_offset + u.number from unnest(ids, numbers) u (id, number);
  end if;

  if made < cardinality(ids) then
    <<each>>
    for p in
      select v.id, v.body, v.number, v.type, coalesce(v.priority, 0::smallint) as priority, coalesce(v.mode, 0) as mode, v.wait,
        coalesce(v.condition, 0) as condition, v.expected,
        case when v.due is null then now + coalesce(v.delay, 0) else greatest(v.due, now) end as due
      from unnest(ids, bodies, numbers, content_types, delays, dues, priorities, modes, max_waits, conditions, _put.expected)
        v (id, body, number, type, delay, due, priority, mode, wait, condition, expected)
      order by v.id
    loop
      if p.due - now > longest then
        return query select p.id::text, 8::smallint, (p.due - now)::bigint;
        continue each;
      end if;
      loop
        select * into j from requeue.job t where t.kind_id = of_kind and t.id = p.id for update;
        -- It was created above.
        if j.generation = k.generation_offset + p.number then
          highest := greatest(highest, j.generation);
          return query select p.id::text, 0::smallint, j.generation;
          continue each;
        end if;
        exit when found;
        if p.condition = 3 then
          return query select p.id::text, 6::smallint, null::bigint;
          continue each;
        end if;
        -- It was removed since the statement above has seen it, perhaps with a later number. To create it could mean to wait for
        -- another put of it, which may wait for a job that this one has locked: a batch begins again.
        if cardinality(ids) > 1 then
          raise exception using message = 'put: a job was removed concurrently', errcode = 'serialization_failure';
        end if;
        new_number := nextval('requeue.number');
        new_due := case when p.mode = 3 then least(p.due, now + p.wait) else p.due end;
        insert into requeue.job (kind_id, list, priority, at, place, due, generation, created_at, updated_at, id, content_type, body)
        values (of_kind, p.priority, p.priority, new_due, new_number, new_due, k.generation_offset + new_number, now, now, p.id, p.type, p.body)
        on conflict do nothing;
        if found then
          made := made + 1;
          highest := greatest(highest, k.generation_offset + new_number);
          return query select p.id::text, 0::smallint, k.generation_offset + new_number;
          continue each;
        end if;
      end loop;

      newest := coalesce(j.next_generation, j.generation);
      if j.list = 21 then
        -- A done job counts as absent, except for the condition "if new".
        if p.condition = 2 then
          return query select p.id::text, 5::smallint, newest;
          continue each;
        elsif p.condition = 3 then
          return query select p.id::text, 6::smallint, null::bigint;
          continue each;
        end if;
      elsif p.condition in (1, 2) then
        return query select p.id::text, 5::smallint, newest;
        continue each;
      elsif p.condition = 3 and p.expected <> newest then
        return query select p.id::text, 6::smallint, newest;
        continue each;
      elsif p.mode = 2 and not (j.list between 10 and 19 and j.next_generation is null) then
        return query select p.id::text, 2::smallint, newest;
        continue each;
      end if;

      -- Generations of a job rise: another transaction may have put it since the numbers were taken.
      new_number := p.number;
      if k.generation_offset + new_number <= newest or requeue._removed_since(of_kind, k.generation_offset + new_number, began) then
        new_number := nextval('requeue.number');
      end if;
      fresh := k.generation_offset + new_number;
      highest := greatest(highest, fresh);
      base := case when j.first_put_at is null then j.created_at when j.first_put_at = 0 then now else j.first_put_at end;
      if j.list = 21 then
        new_due := case when p.mode = 3 then least(p.due, now + p.wait) else p.due end;
        update requeue.job t set list = p.priority, priority = p.priority, at = new_due, place = new_number, due = new_due,
          generation = fresh, created_at = now, updated_at = now, attempts = 0, deaths = 0, floor = null, first_put_at = null,
          claimed_at = null, worker = null, content_type = p.type, failures = null, body = p.body, result = null
        where t.kind_id = of_kind and t.id = p.id;
        replaced := replaced + 1;
        return query select p.id::text, 0::smallint, fresh;
      elsif j.list = 20 then
        new_due := case when p.mode = 3 then least(p.due, now + p.wait) else p.due end;
        update requeue.job t set list = p.priority, priority = p.priority, at = new_due, place = new_number, due = new_due,
          generation = fresh, updated_at = now, attempts = 0, floor = null, first_put_at = now, content_type = p.type, body = p.body
        where t.kind_id = of_kind and t.id = p.id;
        revived := revived + 1;
        return query select p.id::text, 4::smallint, fresh;
      elsif j.list >= 10 then
        -- A put after a cancel is a new job, with its own count for debounce.
        new_due := case p.mode
          when 1 then least(j.next_due, p.due)
          when 3 then least(p.due, greatest(case when j.cancelled then coalesce(j.next_put_at, now) else base end + p.wait, now))
          else p.due end;
        rank := case when p.mode = 1 then greatest(j.next_priority, p.priority) else p.priority end;
        update requeue.job t set next_generation = fresh, next_due = new_due, next_put_at = coalesce(j.next_put_at, now),
          next_priority = rank, next_content_type = p.type, next_body = p.body, updated_at = now,
          first_put_at = case when j.first_put_at = 0 and j.cancelled is null then now else j.first_put_at end
        where t.kind_id = of_kind and t.id = p.id;
        return query select p.id::text, 3::smallint, fresh;
      else
        new_due := case p.mode
          when 1 then least(j.due, p.due)
          when 3 then least(p.due, greatest(base + p.wait, now))
          else p.due end;
        new_due := greatest(new_due, j.floor);
        -- A ready job that is put due now keeps its place.
        if new_due = j.due or (new_due <= now and j.due <= now) then
          new_due := j.due;
          new_number := j.place;
        else
          new_due := greatest(new_due, now);
        end if;
        rank := case when p.mode = 1 then greatest(j.priority, p.priority) else p.priority end;
        update requeue.job t set list = rank, priority = rank, at = new_due, place = new_number, due = new_due,
          generation = fresh, updated_at = now, first_put_at = case when j.first_put_at = 0 then now else j.first_put_at end,
          content_type = p.type, body = p.body
        where t.kind_id = of_kind and t.id = p.id;
        return query select p.id::text, 1::smallint, fresh;
      end if;
    end loop;
  end if;

  if made + revived + replaced > 0 or highest > 0 then
    insert into requeue.delta (kind_id, pending, dead, done, generation)
    values (of_kind, made + revived + replaced, -revived, -replaced, greatest(highest, 0));
  end if;
end $$;

-- Reschedules one job, in the transaction of the caller: what is null stays as it is. The id and the content type are escaped.
--
-- The outcome is updated, coalesced or revived, and `number` the new generation; or nothing was changed: absent; done;
-- other_generation (that of the job); too_late (the delay); used_up: the numbers of the kind are near their limit.
create function requeue._reschedule(of_test bigint, kind_name text, job_id text, new_body bytea, new_type text, delay bigint,
  due_at bigint, new_priority smallint, expected bigint)
returns table (outcome text, number bigint, of_kind int) language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off as $$
declare
  k requeue.kind;
  j requeue.job;
  now bigint;
  asked bigint; new_due bigint; new_number bigint; new_place bigint; fresh bigint; rank smallint;
begin
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  select * into k from requeue.kind t where t.name = kind_name;
  of_kind := k.kind_id;
  select * into j from requeue.job t where t.kind_id = k.kind_id and t.id = job_id for update;
  outcome := case
    when not found or (j.cancelled and j.next_generation is null) then 'absent'
    when j.list = 21 then 'done'
    end;
  if outcome is not null then return next; return; end if;

  -- After the lock, for which this may have waited.
  now := requeue._now(of_test);
  asked := case when delay is not null then now + delay when due_at is not null then greatest(due_at, now) end;
  if asked - now > 316224000000 then
    return query select 'too_late', asked - now, k.kind_id;
    return;
  elsif k.is_near_limit then
    return query select 'used_up', null::bigint, k.kind_id;
    return;
  elsif expected <> coalesce(j.next_generation, j.generation) then
    return query select 'other_generation', coalesce(j.next_generation, j.generation), k.kind_id;
    return;
  end if;

  -- The job is locked: all numbers that it has had are lower.
  new_number := nextval('requeue.number');
  fresh := k.generation_offset + new_number;
  rank := coalesce(new_priority, j.next_priority, j.priority);
  if j.list between 10 and 19 then
    outcome := 'coalesced';
    update requeue.job t set next_generation = fresh, next_due = coalesce(asked, t.next_due, now),
      next_put_at = coalesce(t.next_put_at, now), next_priority = rank, updated_at = now,
      first_put_at = case when t.first_put_at = 0 and t.cancelled is null then now else t.first_put_at end,
      next_content_type = case when new_body is not null then new_type when t.next_generation is not null then t.next_content_type
        else t.content_type end,
      next_body = coalesce(new_body, t.next_body, t.body)
    where t.kind_id = k.kind_id and t.id = job_id;
  elsif j.list = 20 and asked is null then
    outcome := 'updated';
    update requeue.job t set generation = fresh, updated_at = now, priority = rank,
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body)
    where t.kind_id = k.kind_id and t.id = job_id;
  elsif j.list = 20 then
    outcome := 'revived';
    update requeue.job t set list = rank, priority = rank, at = asked, place = new_number, due = asked, generation = fresh,
      updated_at = now, attempts = 0, floor = null, first_put_at = now,
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body)
    where t.kind_id = k.kind_id and t.id = job_id;
  else
    outcome := 'updated';
    new_due := greatest(coalesce(asked, j.due), j.floor);
    -- A ready job that stays ready keeps its place.
    if new_due = j.due or (new_due <= now and j.due <= now) then
      new_due := j.due;
      new_place := j.place;
    else
      new_place := new_number;
    end if;
    update requeue.job t set list = rank, priority = rank, at = new_due, place = new_place, due = new_due, generation = fresh,
      updated_at = now, first_put_at = case when t.first_put_at = 0 then now else t.first_put_at end,
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body)
    where t.kind_id = k.kind_id and t.id = job_id;
  end if;
  insert into requeue.delta (kind_id, pending, dead, generation)
  values (k.kind_id, (outcome = 'revived')::int, -(outcome = 'revived')::int, fresh);
  number := fresh;
  return next;
end $$;

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
returns table (id text, due bigint, generation bigint, attempts int, created_at bigint, fence bigint, content_type text, body bytea, place bigint)
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
    return query select a, null::bigint, null::bigint, null::int, null::bigint, null::bigint, null::text, null::bytea, null::bigint
    from requeue._ack(of_kind, acked, acked_fences, acked_nonces) a;
  end if;
  select * into strict k from requeue.kind t where t.kind_id = of_kind;
  ends := now + coalesce(of_lease, k.lease);
  if k.paused then
    return query select null::text, now, ends, 1, null::bigint, null::bigint, null::text, null::bytea, null::bigint;
    return;
  end if;
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  if k.is_near_limit or k.concurrency is not null or k.rate_jobs is not null then
    return query select null::text, now, ends, 3, null::bigint, null::bigint, null::text, null::bytea, null::bigint;
    return;
  end if;
  if exists (select from requeue.job j where j.kind_list between of_kind::bigint * 32 + 1 and of_kind::bigint * 32 + 9)
    or exists (select from requeue.job j where j.kind_list = of_kind::bigint * 32 + 10 and j.at between lease_mark and now)
    or exists (select from requeue.job j where j.kind_list between of_kind::bigint * 32 + 11 and of_kind::bigint * 32 + 19)
  then
    return query select null::text, now, ends, 2, null::bigint, null::bigint, null::text, null::bytea, null::bigint;
    return;
  end if;
  loop
    return query
    with c as materialized (
      select j.ctid, octet_length(j.body) as length from requeue.job j
      where j.kind_list = of_kind::bigint * 32 + 0 and j.at <= now and (j.at, j.place) > (mark_at, mark_place)
      order by j.at, j.place limit most for update skip locked)
    -- Numbers are taken after the rows are locked: fences of a job rise.
    update requeue.job j set list = 10, at = ends, fence = k.fence_offset + nextval('requeue.number'), nonce = of_nonce,
      claimed_at = now, updated_at = now, worker = of_worker
    from (select c.ctid, sum(c.length) over (rows unbounded preceding) as sum from c) f where j.ctid = f.ctid and f.sum <= max_bytes
    returning j.id, j.due, j.generation, j.attempts, j.created_at, j.fence, j.content_type, j.body, j.place;
    get diagnostics claimed = row_count;
    exit when claimed > 0 or mark_at = 0 or not rescans;
    mark_at := 0;
  end loop;
  if claimed > 0 then
    insert into requeue.delta (kind_id, pending, leased, fence)
    values (of_kind, -claimed, claimed, k.fence_offset + (select last_value from requeue.number));
  end if;
  if claimed < most then
    select j.at into next from requeue.job j where j.kind_list = of_kind::bigint * 32 + 0 and j.at > now order by j.at limit 1;
  end if;
  return query select null::text, now, ends, 0, next, (extract(epoch from clock_timestamp() - began) * 1000000)::bigint, null::text,
    null::bytea, null::bigint;
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

-- Locks and returns jobs by id, in the order of the ids.
create function requeue._lock(of_kind int, ids text[]) returns setof requeue.job language sql
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
begin atomic
  select j.* from unnest(ids) r (id)
  cross join lateral (select * from requeue.job j where j.kind_id = of_kind and j.id = r.id for update) j;
end;

-- The same. Fails if another transaction has locked one of them for longer than `lock_timeout`.
create function requeue._lock_soon(of_kind int, ids text[]) returns setof requeue.job language sql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set lock_timeout = '1s' as $$
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

-- Locks and returns the first jobs of each list that are due or whose lease has expired, `most` per list, and bodies of up
-- to `max_bytes` per list. Skips jobs that other transactions have locked.
create function requeue._lock_claimable(of_test bigint, of_kind int, from_list int, most_pending int, most_leased int, max_bytes bigint)
returns setof requeue.job language sql
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
begin atomic
  with c as materialized (
    select l.list, j.ctid as tid, octet_length(j.body) + coalesce(octet_length(j.next_body), 0) as length, j.at, j.place
    from generate_series(from_list, 19) l (list)
    cross join lateral (
      select j.ctid, j.* from requeue.job j
      where j.kind_list = of_kind::bigint * 32 + l.list and j.at <= (select requeue._now(of_test))
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
    select * from requeue.job j where j.kind_list = of_kind::bigint * 32 + l.list
      and (l.count >= l.most or j.at < requeue._now(of_test) - l.age)
    order by j.at, j.place limit 1 for update skip locked) j
  where k.kind_id = of_kind;
end;

-- Raises the numbers of a kind to those that an import has brought.
create function requeue._raise_offsets(of_kind int, generation bigint, fence bigint) returns void language sql
begin atomic
  update requeue.kind k set
    generation_offset = greatest(k.generation_offset, generation - (select last_value from requeue.number)),
    fence_offset = greatest(k.fence_offset, fence - (select last_value from requeue.number)),
    is_near_limit = k.is_near_limit or greatest(generation, fence) > 9007199254740991 - 1099511627776
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
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
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
    cross join lateral (select from requeue.job j where j.kind_list = of_kind::bigint * 32 + l.list and j.at <= _context.now) j;
  end if;
  numbers := array(select nextval('requeue.number') from generate_series(1, _context.count));
  return next;
end $$;

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
    has_others := exists (select from requeue.job j where j.kind_list between m.kind_id::bigint * 32 + 1 and m.kind_id::bigint * 32 + 9)
      or exists (select from requeue.job j where j.kind_list between m.kind_id::bigint * 32 + 11 and m.kind_id::bigint * 32 + 19);
    select j.at into first from requeue.job j where j.kind_list = m.kind_id::bigint * 32 + 10 and j.at between m.lease and now
      order by j.at limit 1;
    if first is null and has_others then
      for l in 11..19 loop
        select j.at into other from requeue.job j where j.kind_list = m.kind_id::bigint * 32 + l and j.at <= now order by j.at limit 1;
        first := least(first, other);
      end loop;
    end if;
    busy := 0;
    if first is null and k.concurrency is not null then
      select t.leased into busy from requeue._totals(m.kind_id) t;
    end if;
    if first is null and (k.concurrency is null or busy < k.concurrency) then
      select j.at into first from requeue.job j where j.kind_list = m.kind_id::bigint * 32 + 0 and (j.at, j.place) > (m.at, m.place)
        order by j.at, j.place limit 1;
      if has_others then
        for l in 1..9 loop
          select j.at into other from requeue.job j where j.kind_list = m.kind_id::bigint * 32 + l order by j.at, j.place limit 1;
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

-- Returns up to `most` kinds that seem to have no jobs, settings and schedules.
create function requeue._idle_kinds(most int) returns setof int language sql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
  select k.kind_id from requeue.kind k
  cross join lateral (select count(*) as count from (select from requeue.job j where j.kind_id = k.kind_id limit 1) j offset 0) j
  cross join lateral (select count(*) as count from (select from requeue.schedule s where s.kind_id = k.kind_id limit 1) s offset 0) s
  where k.settings is null and j.count = 0 and s.count = 0 limit most
$$;

-- Removes a kind that has no jobs, settings and schedules, and returns whether it has done so. Its numbers raise those of all kinds
-- that are created from now on.
create function requeue._forget(of_kind int) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare sums record;
begin
  -- No open transaction puts a job of it, then. Statements below see all jobs that were put.
  perform from requeue.kind k where k.kind_id = of_kind and k.settings is null for update skip locked;
  if not found then return false; end if;
  if exists (select from requeue.job j where j.kind_id = of_kind) or exists (select from requeue.schedule s where s.kind_id = of_kind) then
    return false;
  end if;
  -- One at a time.
  perform from requeue.raising for update skip locked;
  if not found then return false; end if;
  select * into sums from requeue._totals(of_kind);
  perform setval('requeue.generation_floor', greatest(g.last_value, sums.generation)) from requeue.generation_floor g;
  perform setval('requeue.fence_floor', greatest(f.last_value, sums.fence)) from requeue.fence_floor f;
  delete from requeue.delta d where d.kind_id = of_kind;
  delete from requeue.total t where t.kind_id = of_kind;
  delete from requeue.rate_use r where r.kind_id = of_kind;
  delete from requeue.kind k where k.kind_id = of_kind;
  return true;
end $$;

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
            select j.ctid, j.at, j.place from requeue.job j where j.kind_list = of_kind::bigint * 32 + l.column1
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
    has_expired := exists (select from requeue.job j where j.kind_list = of_kind::bigint * 32 + 10 and j.at between lease_mark and now);
    if not has_expired and exists (select from requeue.job j where j.kind_list between of_kind::bigint * 32 + 11 and of_kind::bigint * 32 + 19) then
      for n in 11..19 loop
        has_expired := has_expired or exists (select from requeue.job j where j.kind_list = of_kind::bigint * 32 + n and j.at <= now);
      end loop;
    end if;
  end if;
  expired := has_expired;
  return next;
end $$;

-- Writes what became of locked jobs: deletes some, changes others and adds new ones. A body that is null stays as it is.
-- Returns false if a new job exists already; the caller then rolls back and begins again.
create function requeue._write(of_kind int, deleted text[], ids text[], are_new boolean[], lists smallint[], priorities smallint[],
  ats bigint[], places bigint[], dues bigint[], generations bigint[], created_ats bigint[], updated_ats bigint[],
  all_attempts int[], all_deaths int[], floors bigint[], first_put_ats bigint[], fences bigint[], nonces bigint[],
  claimed_ats bigint[], all_cancelled boolean[], next_generations bigint[], next_dues bigint[], next_put_ats bigint[],
  next_priorities smallint[], workers text[], content_types text[], next_content_types text[], all_failures text[],
  bodies bytea[], next_bodies bytea[], results bytea[])
returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
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
      select l.ctid as tid, r.* from unnest(ids, are_new, lists, priorities, ats, places, dues, generations, created_ats, updated_ats, all_attempts,
        all_deaths, floors, first_put_ats, fences, nonces, claimed_ats, all_cancelled, next_generations, next_dues, next_put_ats,
        next_priorities, workers, content_types, next_content_types, all_failures, bodies, next_bodies, results)
        r (id, is_new, list, priority, at, place, due, generation, created_at, updated_at, attempts, deaths, floor, first_put_at,
        fence, nonce, claimed_at, cancelled, next_generation, next_due, next_put_at, next_priority, worker, content_type,
        next_content_type, failures, body, next_body, result)
      cross join lateral (select j.ctid from requeue.job j where j.kind_id = of_kind and j.id = r.id offset 0) l
      where not r.is_new)
    update requeue.job j set list = u.list, priority = u.priority, at = u.at, place = u.place, due = u.due, generation = u.generation,
      created_at = u.created_at, updated_at = u.updated_at, attempts = u.attempts, deaths = u.deaths, floor = u.floor,
      first_put_at = u.first_put_at, fence = u.fence, nonce = u.nonce, claimed_at = u.claimed_at, cancelled = u.cancelled,
      next_generation = u.next_generation, next_due = u.next_due, next_put_at = u.next_put_at, next_priority = u.next_priority,
      worker = u.worker, content_type = u.content_type, next_content_type = u.next_content_type, failures = u.failures::json,
      body = coalesce(u.body, j.body), next_body = u.next_body, result = u.result
    from u where j.ctid = u.tid;
  end if;
  if are_new && array[true] then
    insert into requeue.job (kind_id, list, priority, at, place, due, generation, created_at, updated_at, attempts, deaths, floor,
      first_put_at, fence, nonce, claimed_at, cancelled, next_generation, next_due, next_put_at, next_priority, id, worker, content_type,
      next_content_type, failures, body, next_body, result)
    select of_kind, r.list, r.priority, r.at, r.place, r.due, r.generation, r.created_at, r.updated_at, r.attempts, r.deaths, r.floor,
      r.first_put_at, r.fence, r.nonce, r.claimed_at, r.cancelled, r.next_generation, r.next_due, r.next_put_at, r.next_priority, r.id,
      r.worker, r.content_type, r.next_content_type, r.failures::json, r.body, r.next_body, r.result
    from unnest(ids, are_new, lists, priorities, ats, places, dues, generations, created_ats, updated_ats, all_attempts,
      all_deaths, floors, first_put_ats, fences, nonces, claimed_ats, all_cancelled, next_generations, next_dues, next_put_ats,
      next_priorities, workers, content_types, next_content_types, all_failures, bodies, next_bodies, results)
      r (id, is_new, list, priority, at, place, due, generation, created_at, updated_at, attempts, deaths, floor, first_put_at,
      fence, nonce, claimed_at, cancelled, next_generation, next_due, next_put_at, next_priority, worker, content_type,
      next_content_type, failures, body, next_body, result)
    where r.is_new
    on conflict do nothing;
    get diagnostics added = row_count;
  end if;
  return added = (select count(*) from unnest(are_new) n where n);
end $$;

-- The first jobs of a kind by id, of some lists and times. Never sorts: the limit is small. Ends with the job that exceeds
-- `max_bytes`: bodies of further ones are not read.
create function requeue._page(of_kind int, from_id text, to_id text, is_after boolean, first_list int, last_list int, first_at bigint,
  last_at bigint, most int, max_bytes bigint) returns setof requeue.job language sql stable
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
begin atomic
  select j.* from (
    select f.tid, f.id, sum(f.length) over (order by f.id rows unbounded preceding) - f.length as before from (
      select j.ctid as tid, j.id,
        octet_length(j.body) + coalesce(octet_length(j.next_body), 0) + coalesce(octet_length(j.result), 0) as length
      from requeue.job j
      where j.kind_id = of_kind and j.id >= from_id and (not is_after or j.id > from_id) and (to_id is null or j.id < to_id)
        and j.list between first_list and last_list and j.at between first_at and last_at
      order by j.kind_id, j.id limit most) f) p
  join requeue.job j on j.ctid = p.tid
  where p.before <= max_bytes order by p.id;
end;

-- The first `most` jobs of some lists, by time, between two places; the last ones, backwards, if it is descending. Ends with
-- the job that exceeds `max_bytes`.
create function requeue._page_by_time(of_kind int, first_list int, last_list int, from_at bigint, from_place bigint, to_at bigint,
  to_place bigint, is_descending boolean, most int, max_bytes bigint) returns setof requeue.job language sql stable
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
begin atomic
  select j.* from (
    select f.tid, f.n, sum(f.length) over (order by f.n rows unbounded preceding) - f.length as before from (
      select t.tid, row_number() over (order by case when is_descending then -t.at else t.at end,
          case when is_descending then -t.place else t.place end) as n,
        octet_length(t.body) + coalesce(octet_length(t.next_body), 0) + coalesce(octet_length(t.result), 0) as length
      from generate_series(first_list, last_list) l (number) cross join lateral (
        (select j.ctid as tid, j.* from requeue.job j where not is_descending and j.kind_list = of_kind::bigint * 32 + l.number
          and (j.at, j.place) >= (from_at, from_place) and (j.at, j.place) <= (to_at, to_place) order by j.at, j.place limit most)
        union all
        (select j.ctid as tid, j.* from requeue.job j where is_descending and j.kind_list = of_kind::bigint * 32 + l.number
          and (j.at, j.place) >= (from_at, from_place) and (j.at, j.place) <= (to_at, to_place)
          order by j.at desc, j.place desc limit most)) t
      order by n limit most) f) p
  join requeue.job j on j.ctid = p.tid
  where p.before <= max_bytes order by p.n;
end;

-- The number of pending jobs that fall due in each span of time between two times. Spans without jobs are left out.
create function requeue._upcoming(of_kind int, from_at bigint, length bigint, to_at bigint)
returns table (span bigint, jobs bigint) language sql stable
begin atomic
  select (j.at - from_at) / length, count(*) from generate_series(0, 9) l (list) cross join lateral (
    select t.at from requeue.job t where t.kind_list = of_kind::bigint * 32 + l.list and t.at >= from_at and t.at < to_at) j
  group by 1;
end;

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
      cross join lateral (select j.at from requeue.job j where j.kind_list = of_kind::bigint * 32 + l.list and j.at <= now
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
