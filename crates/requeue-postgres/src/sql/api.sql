-- What applications may use from SQL: `put`, `reschedule` and `cancel`, and the view `jobs`. These stay as they are in later versions.
--
-- The functions run with the privileges of the owner of the schema: an application needs `usage` on the schema, and nothing on
-- the tables.

-- Puts one job. `body` has the content type `content_type`.
create function requeue._put_one(kind text, id text, body bytea, delay interval, due timestamptz, priority int, mode text,
  max_wait interval, condition text, generation bigint, content_type text, notify boolean)
returns table (outcome text, new_generation bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
  number int;
  r record;
  invalid text := case
    when kind is null or kind !~ '^[A-Za-z0-9._-]{1,128}$' then format('kind %L must have 1 to 128 characters of A-Z a-z 0-9 . _ -', kind)
    when kind ~ '^requeue[.]' then format('kind %L is reserved: it is for the service itself', kind)
    when id is null or id = '' then 'the id must not be empty'
    when octet_length(id) > 512 then format('the id has %s bytes; the limit is 512', octet_length(id))
    when body is null then 'the body must not be null'
    when octet_length(body) > 1048576 then format('the body has %s bytes; the limit is 1048576', octet_length(body))
    when octet_length(content_type) > 128 then format('the content type has %s bytes; the limit is 128', octet_length(content_type))
    when delay is not null and due is not null then 'delay and due exclude each other'
    when delay < '0' then format('the delay is %s; it must not be negative', delay)
    when not isfinite(delay) or not isfinite(due) then 'the delay or due time must not be infinite'
    when priority is null or priority not between 0 and 9 then format('the priority is %s; the range is 0 to 9', priority)
    when mode is null or mode not in ('replace', 'earliest', 'keep', 'debounce') then
      format('mode %L must be replace, earliest, keep or debounce', mode)
    when (mode = 'debounce') <> (max_wait is not null) then 'max_wait belongs to the mode debounce, which requires it'
    when max_wait < '0' or not isfinite(max_wait) then format('max_wait is %s; it must not be negative or infinite', max_wait)
    when condition not in ('if_absent', 'if_new', 'if_generation') then
      format('condition %L must be if_absent, if_new or if_generation', condition)
    when (condition is not distinct from 'if_generation') <> (generation is not null) then
      'generation belongs to the condition if_generation, which requires it'
    end;
begin
  if invalid is not null then
    raise exception using message = 'put: ' || invalid, errcode = 'invalid_parameter_value';
  end if;
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  number := requeue._kind_id(kind);
  if number is null then
    raise exception using message = 'put: 10000 kinds are the limit', errcode = 'invalid_parameter_value';
  end if;
  select * into r from requeue._put(null, number, array[replace(_put_one.id, chr(1), chr(1) || chr(2))], array[body],
    case when content_type is not null then array[replace(content_type, chr(1), chr(1) || chr(2))] end,
    case when delay is not null then array[ceil(extract(epoch from delay) * 1000)::bigint] end,
    case when due is not null then array[ceil(extract(epoch from due) * 1000)::bigint] end,
    array[priority::smallint],
    array[(array_position(array['replace', 'earliest', 'keep', 'debounce'], mode) - 1)::smallint],
    array[ceil(extract(epoch from max_wait) * 1000)::bigint],
    array[coalesce(array_position(array['if_absent', 'if_new', 'if_generation'], condition), 0)::smallint],
    array[generation]) p;
  if r.outcome = 7 then
    raise exception using message = format('put: the numbers of kind %s are used up', kind), errcode = 'program_limit_exceeded';
  elsif r.outcome = 8 then
    raise exception using message = format('put: the delay is %s ms; the limit is 316224000000 (ten years)', r.generation),
      errcode = 'invalid_parameter_value';
  end if;
  if notify and r.outcome < 5 then
    perform pg_notify('SCHEMA_wake', number::text);
  end if;
  outcome := (array['created', 'updated', 'kept', 'coalesced', 'revived', 'exists', 'other_generation'])[r.outcome + 1];
  new_generation := r.generation;
  return next;
end $$;

-- Puts a job, in the transaction of the caller. Returns what happened to it: created, updated, kept, coalesced, revived, or that
-- a condition does not hold: exists, other_generation.
create function requeue.put(kind text, id text, body text default '', delay interval default null, due timestamptz default null,
  priority int default 0, mode text default 'replace', max_wait interval default null, condition text default null,
  generation bigint default null, content_type text default 'text/plain', notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, convert_to(body, 'UTF8'), delay, due, priority, mode, max_wait, condition, generation,
    content_type, notify);
end;

create function requeue.put(kind text, id text, body jsonb, delay interval default null, due timestamptz default null,
  priority int default 0, mode text default 'replace', max_wait interval default null, condition text default null,
  generation bigint default null, content_type text default 'application/json', notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, convert_to(body::text, 'UTF8'), delay, due, priority, mode, max_wait, condition, generation,
    content_type, notify);
end;

create function requeue.put(kind text, id text, body bytea, delay interval default null, due timestamptz default null,
  priority int default 0, mode text default 'replace', max_wait interval default null, condition text default null,
  generation bigint default null, content_type text default null, notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, body, delay, due, priority, mode, max_wait, condition, generation, content_type, notify);
end;

-- Reschedules one job: what is null stays as it is. The new body has the content type `content_type`.
create function requeue._reschedule_one(kind text, id text, body bytea, delay interval, due timestamptz, priority int,
  if_generation bigint, content_type text, notify boolean)
returns table (outcome text, new_generation bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
  r record;
  invalid text := case
    when kind is null or kind !~ '^[A-Za-z0-9._-]{1,128}$' then format('kind %L must have 1 to 128 characters of A-Z a-z 0-9 . _ -', kind)
    when kind ~ '^requeue[.]' then format('kind %L is reserved: it is for the service itself', kind)
    when id is null or id = '' then 'the id must not be empty'
    when octet_length(id) > 512 then format('the id has %s bytes; the limit is 512', octet_length(id))
    when body is null and delay is null and due is null and priority is null then
      'nothing to change: set delay, due, priority or body'
    when octet_length(body) > 1048576 then format('the body has %s bytes; the limit is 1048576', octet_length(body))
    when octet_length(content_type) > 128 then format('the content type has %s bytes; the limit is 128', octet_length(content_type))
    when content_type is not null and body is null then 'content_type belongs to the body, and requires it'
    when delay is not null and due is not null then 'delay and due exclude each other'
    when delay < '0' then format('the delay is %s; it must not be negative', delay)
    when not isfinite(delay) or not isfinite(due) then 'the delay or due time must not be infinite'
    when priority not between 0 and 9 then format('the priority is %s; the range is 0 to 9', priority)
    end;
begin
  if invalid is not null then
    raise exception using message = 'reschedule: ' || invalid, errcode = 'invalid_parameter_value';
  end if;
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  select * into r from requeue._reschedule(null, kind, replace(_reschedule_one.id, chr(1), chr(1) || chr(2)), body,
    replace(content_type, chr(1), chr(1) || chr(2)), ceil(extract(epoch from delay) * 1000)::bigint,
    ceil(extract(epoch from due) * 1000)::bigint, priority::smallint, if_generation) p;
  if r.outcome = 'used_up' then
    raise exception using message = format('reschedule: the numbers of kind %s are used up', kind), errcode = 'program_limit_exceeded';
  elsif r.outcome = 'too_late' then
    raise exception using message = format('reschedule: the delay is %s ms; the limit is 316224000000 (ten years)', r.number),
      errcode = 'invalid_parameter_value';
  end if;
  if notify and r.outcome in ('updated', 'coalesced', 'revived') then
    perform pg_notify('SCHEMA_wake', r.of_kind::text);
  end if;
  outcome := r.outcome;
  new_generation := r.number;
  return next;
end $$;

-- Changes the due time, the priority or the body of a job, in the transaction of the caller, and nothing else. Returns what
-- happened to it: updated, coalesced, revived; or why nothing was changed: absent, done, other_generation.
create function requeue.reschedule(kind text, id text, body text default null, delay interval default null,
  due timestamptz default null, priority int default null, if_generation bigint default null, content_type text default null,
  notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, convert_to(body, 'UTF8'), delay, due, priority, if_generation,
    coalesce(content_type, case when body is not null then 'text/plain' end), notify);
end;

create function requeue.reschedule(kind text, id text, body jsonb, delay interval default null,
  due timestamptz default null, priority int default null, if_generation bigint default null, content_type text default null,
  notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, convert_to(body::text, 'UTF8'), delay, due, priority, if_generation,
    coalesce(content_type, case when body is not null then 'application/json' end), notify);
end;

create function requeue.reschedule(kind text, id text, body bytea, delay interval default null,
  due timestamptz default null, priority int default null, if_generation bigint default null, content_type text default null,
  notify boolean default false)
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, body, delay, due, priority, if_generation, content_type, notify);
end;

-- Cancels a job, in the transaction of the caller. Returns `removed`; `ending` if a worker holds it, then it is removed when the
-- lease ends; or `absent`.
create function requeue.cancel(kind text, id text) returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
  number int;
  l smallint;
  g bigint;
  successor bigint;
begin
  if kind ~ '^requeue[.]' then
    raise exception using message = format('cancel: kind %L is reserved: it is for the service itself', kind),
      errcode = 'invalid_parameter_value';
  end if;
  select k.kind_id into number from requeue.kind k where k.name = kind;
  select j.list, j.generation, j.next_generation into l, g, successor from requeue.job j
  where j.kind_id = number and j.id = replace(cancel.id, chr(1), chr(1) || chr(2)) for update;
  if not found then return 'absent'; end if;
  if l between 10 and 19 then
    update requeue.job j set cancelled = true, updated_at = requeue._now(null), next_generation = null, next_due = null, next_put_at = null,
      next_priority = null, next_content_type = null, next_body = null
    where j.kind_id = number and j.id = replace(cancel.id, chr(1), chr(1) || chr(2));
    if successor is not null then
      insert into requeue.delta (kind_id, generation, removed) values (number, successor, true);
    end if;
    return 'ending';
  end if;
  delete from requeue.job j where j.kind_id = number and j.id = replace(cancel.id, chr(1), chr(1) || chr(2));
  insert into requeue.delta (kind_id, generation, removed, pending, dead, done)
  values (number, g, true, case when l < 10 then -1 else 0 end, case when l = 20 then -1 else 0 end, case when l = 21 then -1 else 0 end);
  return 'removed';
end $$;

-- All jobs, for people.
create view requeue.jobs as
select k.name as kind, replace(replace(j.id, chr(1) || chr(1), '\0'), chr(1) || chr(2), chr(1)) as id,
  case when j.list < 10 and j.at > requeue._now(null) then 'waiting' when j.list < 10 then 'ready' when j.list < 20 then 'leased'
    when j.list = 20 then 'dead' else 'done' end as state,
  to_timestamp(coalesce(j.due, j.at) / 1000.0) as due, coalesce(j.priority, 0) as priority, coalesce(j.attempts, 0) as attempts, j.generation, to_timestamp(j.created_at / 1000.0) as created_at,
  to_timestamp(coalesce(j.updated_at, j.created_at) / 1000.0) as updated_at, j.worker,
  case when j.list between 10 and 19 then to_timestamp(j.at / 1000.0) end as lease_ends_at,
  coalesce(j.content_type, 'application/octet-stream') as content_type, j.body, j.failures::json as failures
from requeue.job j join requeue.kind k using (kind_id);
