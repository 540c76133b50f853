-- Reschedules.

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
  asked bigint; new_due bigint; new_number bigint; new_place bigint; fresh bigint; rank smallint; new_head jsonb;
begin
  if current_setting('SCHEMA.raised', true) is distinct from 'y' then perform requeue._raise_numbers(); end if;
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
  rank := coalesce(new_priority, j.next_priority, j.priority, 0);
  j.due := coalesce(j.due, j.at);
  new_head := case when j.next_generation is not null then j.next_head else j.head end;
  -- The envelope belongs to the body.
  if new_body is not null then new_head := nullif(new_head - 'envelope', '{}'); end if;
  if j.list between 10 and 19 then
    outcome := 'coalesced';
    update requeue.job t set next_generation = fresh, next_due = coalesce(asked, t.next_due, now),
      next_put_at = coalesce(t.next_put_at, now), next_priority = rank, updated_at = now,
      first_put_at = case when t.first_put_at = 0 and t.cancelled is null then now else t.first_put_at end,
      next_content_type = case when new_body is not null then new_type when t.next_generation is not null then t.next_content_type
        else t.content_type end,
      next_body = coalesce(new_body, t.next_body, t.body), next_head = new_head,
      heads_len = requeue._heads_len(t.head, new_head)
    where t.kind_id = k.kind_id and t.id = job_id;
  elsif j.list = 20 and asked is null then
    outcome := 'updated';
    update requeue.job t set generation = fresh, updated_at = now, priority = nullif(rank, 0),
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body), head = new_head,
      heads_len = requeue._heads_len(new_head, null)
    where t.kind_id = k.kind_id and t.id = job_id;
  elsif j.list = 20 then
    outcome := 'revived';
    update requeue.job t set list = rank, priority = nullif(rank, 0), at = asked, place = new_number, due = null, generation = fresh,
      updated_at = now, attempts = null, floor = null, first_put_at = now,
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body), head = new_head,
      heads_len = requeue._heads_len(new_head, null)
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
    update requeue.job t set list = rank, priority = nullif(rank, 0), at = new_due, place = new_place, due = null, generation = fresh,
      updated_at = now, first_put_at = case when t.first_put_at = 0 then now else t.first_put_at end,
      content_type = case when new_body is not null then new_type else t.content_type end, body = coalesce(new_body, t.body), head = new_head,
      heads_len = requeue._heads_len(new_head, null)
    where t.kind_id = k.kind_id and t.id = job_id;
  end if;
  insert into requeue.delta (kind_id, pending, dead, generation)
  values (k.kind_id, (outcome = 'revived')::int, -(outcome = 'revived')::int, fresh);
  number := fresh;
  return next;
end $$;
