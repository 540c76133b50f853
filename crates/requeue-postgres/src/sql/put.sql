-- Puts.

-- The rows of jobs that are put for the first time, in the order of ids: without those whose condition needs a job, or that are due
-- too late.
create function requeue._new_jobs(of_kind int, generation_offset bigint, now bigint, longest bigint, ids text[], bodies bytea[],
  numbers bigint[], content_types text[], delays bigint[], dues bigint[], priorities smallint[], modes smallint[], max_waits bigint[],
  conditions smallint[], heads jsonb[])
returns table (kind_id int, list smallint, priority smallint, at bigint, place bigint, generation bigint, created_at bigint, id text,
  content_type text, body bytea, head jsonb, heads_len int) language sql stable
begin atomic
  select of_kind, coalesce(v.priority, 0::smallint), nullif(v.priority, 0::smallint),
    least(case when v.due is null then now + coalesce(v.delay, 0) else greatest(v.due, now) end,
      case when v.mode = 3 then now + v.wait else 9223372036854775807 end),
    v.number, generation_offset + v.number, now, v.id, v.type, v.body, v.head, requeue._heads_len(v.head, null)
  from unnest(ids, bodies, numbers, content_types, delays, dues, priorities, modes, max_waits, conditions, heads)
    v (id, body, number, type, delay, due, priority, mode, wait, condition, head)
  where v.condition is distinct from 3 and coalesce(v.delay, 0) <= longest and coalesce(v.due, 0) - now <= longest
  order by v.id collate "C";
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
  conditions smallint[], expected bigint[], heads jsonb[] default null,
  -- Whether the jobs are probably new.
  optimistic boolean default false)
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
  if current_setting('SCHEMA.raised', true) is distinct from 'y' then perform requeue._raise_numbers(); end if;
  select * into strict k from requeue.kind where kind_id = of_kind for key share;
  if k.is_near_limit then
    return query select u, 7::smallint, 0::bigint from unnest(ids) u;
    return;
  end if;

  -- In the order of the entries. A put that then waits for another transaction may take a later number, below.
  began := pg_current_snapshot();
  numbers := array(select nextval('requeue.number') from generate_series(1, cardinality(ids)));

  -- Most puts create jobs. Rows are locked in the order of ids, here and below, so that no two calls wait for each other:
  -- that of the bytes, in which the client sorts those of other calls.
  if optimistic then
    -- `on conflict` costs a third of the insert. Without it, a job that exists undoes the others.
    begin
      insert into requeue.job (kind_id, list, priority, at, place, generation, created_at, id, content_type, body, head, heads_len)
      select s.* from requeue._new_jobs(of_kind, k.generation_offset, now, longest, ids, bodies, numbers, content_types, delays, dues,
        priorities, modes, max_waits, conditions, heads) s;
      get diagnostics made = row_count;
    exception when unique_violation then optimistic := false;
    end;
  end if;
  if not optimistic then
    insert into requeue.job (kind_id, list, priority, at, place, generation, created_at, id, content_type, body, head, heads_len)
    select s.* from requeue._new_jobs(of_kind, k.generation_offset, now, longest, ids, bodies, numbers, content_types, delays, dues,
      priorities, modes, max_waits, conditions, heads) s
    on conflict (kind_id, id) do nothing;
    get diagnostics made = row_count;
  end if;

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
      select v.id, v.body, v.head, v.number, v.type, coalesce(v.priority, 0::smallint) as priority, coalesce(v.mode, 0) as mode, v.wait,
        coalesce(v.condition, 0) as condition, v.expected,
        case when v.due is null then now + coalesce(v.delay, 0) else greatest(v.due, now) end as due
      from unnest(ids, bodies, numbers, content_types, delays, dues, priorities, modes, max_waits, conditions, _put.expected,
        heads) v (id, body, number, type, delay, due, priority, mode, wait, condition, expected, head)
      order by v.id collate "C"
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
        insert into requeue.job (kind_id, list, priority, at, place, generation, created_at, id, content_type, body, head, heads_len)
        values (of_kind, p.priority, nullif(p.priority, 0), new_due, new_number, k.generation_offset + new_number, now, p.id, p.type, p.body,
          p.head, requeue._heads_len(p.head, null))
        on conflict do nothing;
        if found then
          made := made + 1;
          highest := greatest(highest, k.generation_offset + new_number);
          return query select p.id::text, 0::smallint, k.generation_offset + new_number;
          continue each;
        end if;
      end loop;

      newest := coalesce(j.next_generation, j.generation);
      j.due := coalesce(j.due, j.at);
      j.priority := coalesce(j.priority, 0);
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
        update requeue.job t set list = p.priority, priority = nullif(p.priority, 0), at = new_due, place = new_number, due = null,
          generation = fresh, created_at = now, updated_at = null, attempts = null, deaths = null, floor = null, first_put_at = null,
          claimed_at = null, worker = null, content_type = p.type, failures = null, body = p.body,
          head = p.head, heads_len = requeue._heads_len(p.head, null), result = null
        where t.kind_id = of_kind and t.id = p.id;
        replaced := replaced + 1;
        return query select p.id::text, 0::smallint, fresh;
      elsif j.list = 20 then
        new_due := case when p.mode = 3 then least(p.due, now + p.wait) else p.due end;
        update requeue.job t set list = p.priority, priority = nullif(p.priority, 0), at = new_due, place = new_number, due = null,
          generation = fresh, updated_at = now, attempts = null, floor = null, first_put_at = now, content_type = p.type, body = p.body,
          head = p.head, heads_len = requeue._heads_len(p.head, null)
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
          next_priority = rank, next_content_type = p.type, next_body = p.body, next_head = p.head,
          heads_len = requeue._heads_len(t.head, p.head), updated_at = now,
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
        update requeue.job t set list = rank, priority = nullif(rank, 0), at = new_due, place = new_number, due = null,
          generation = fresh, updated_at = now, first_put_at = case when j.first_put_at = 0 then now else j.first_put_at end,
          content_type = p.type, body = p.body, head = p.head, heads_len = requeue._heads_len(p.head, null)
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

-- The same for the store, which has other things to do: fails if another transaction has locked one of the jobs for longer than
-- `lock_timeout`.
create function requeue._put_soon(of_test bigint, of_kind int, ids text[], bodies bytea[], content_types text[], delays bigint[],
  dues bigint[], priorities smallint[], modes smallint[], max_waits bigint[], conditions smallint[], expected bigint[], heads jsonb[],
  optimistic boolean)
returns table (job_id text, outcome smallint, generation bigint) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
begin
  return query select * from requeue._put(of_test, of_kind, ids, bodies, content_types, delays, dues, priorities, modes, max_waits,
    conditions, expected, heads, optimistic);
end $$;

-- The same, but jobs that other transactions have locked are left out: their outcome is 9. Each job is put on its own.
create function requeue._put_unlocked(of_test bigint, of_kind int, ids text[], bodies bytea[], content_types text[], delays bigint[],
  dues bigint[], priorities smallint[], modes smallint[], max_waits bigint[], conditions smallint[], expected bigint[], heads jsonb[])
returns table (job_id text, outcome smallint, generation bigint) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '2ms' as $$
declare
  ends timestamptz := clock_timestamp() + interval '500 milliseconds';
  n int;
begin
  for n in select u.n from unnest(ids) with ordinality u (id, n) order by u.id collate "C" loop
    begin
      return query select * from requeue._put(of_test, of_kind, ids[n:n], bodies[n:n], content_types[n:n], delays[n:n], dues[n:n],
        priorities[n:n], modes[n:n], max_waits[n:n], conditions[n:n], expected[n:n], heads[n:n]);
    exception when lock_not_available then
      if clock_timestamp() > ends then perform set_config('lock_timeout', '1ms', true); end if;
      return query select ids[n], 9::smallint, null::bigint;
    end;
  end loop;
end $$;
