-- What applications may use from SQL: `put`, `reschedule` and `cancel`, and the view `jobs`. These stay as they are in later versions.
--
-- The functions run with the privileges of the owner of the schema: an application needs `usage` on the schema, and nothing on
-- the tables.

-- Whether a text is a duration that is not negative. Numbers need units.
create function requeue._is_duration(duration text) returns boolean language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
begin
  return duration !~ '^[ 0-9.]*$' and isfinite(duration::interval) and duration::interval >= '0';
exception when data_exception then return false;
end $$;

-- Fails if one of the options of a call is unknown, or has a value that it cannot have. A value that is null counts as not given.
create function requeue._check_options(of_call text, options jsonb, known text[]) returns void language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  allowed text;
begin
  if jsonb_typeof(options) <> 'object' then
    raise exception using message = format('%s: options is %s; it must be an object such as {"priority": 5}', of_call, left(options::text, 100)),
      errcode = 'invalid_parameter_value';
  end if;
  for o in select e.key, e.value, jsonb_typeof(e.value) as type, e.value #>> '{}' as text from jsonb_each(options) e where e.value <> 'null' loop
    allowed := case
      when o.key <> all (known) then format('there is no such option: the options are %s', array_to_string(known, ', '))
      when o.key = 'priority' and not (o.type = 'number' and o.text ~ '^[0-9]$') then 'it must be an integer from 0 to 9'
      when o.key = 'mode' and o.value not in ('"replace"', '"earliest"', '"keep"', '"debounce"') then
        'it must be "replace", "earliest", "keep" or "debounce"'
      when o.key in ('if_absent', 'if_new', 'notify') and o.type <> 'boolean' then 'it must be true or false'
      when o.key = 'if_generation' and case when o.type = 'number' and o.text ~ '^[0-9]{1,16}$' then o.text::bigint > 9007199254740991
        else true end then 'it must be an integer from 0 to 9007199254740991'
      when o.key = 'content_type' and (o.type <> 'string' or octet_length(o.text) > 128) then 'it must be a text of at most 128 bytes'
      when o.key = 'max_wait' and not (o.type = 'string' and requeue._is_duration(o.text)) then
        'it must be a duration, such as "90s" or "1 hour 30 minutes"'
      end;
    if allowed is not null then
      raise exception using message = format('%s: option %s is %s; %s', of_call, left(o.key, 100), left(o.value::text, 100), allowed),
        errcode = 'invalid_parameter_value';
    end if;
  end loop;
end $$;

-- Puts one job. `body` has the content type `usual_type`, unless the options contain another one.
create function requeue._put_one(kind text, id text, body bytea, delay interval, due timestamptz, options jsonb, usual_type text)
returns table (outcome text, new_generation bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
  number int;
  r record;
  content_type text := coalesce(options ->> 'content_type', usual_type);
  mode text := coalesce(options ->> 'mode', 'replace');
  max_wait interval;
  condition smallint;
  invalid text := case
    when kind is null or kind !~ '^[A-Za-z0-9._-]{1,128}$' then format('kind %L must have 1 to 128 characters of A-Z a-z 0-9 . _ -', kind)
    when kind ~ '^requeue[.]' then format('kind %L is reserved: it is for the service itself', kind)
    when id is null or id = '' then 'the id must not be empty'
    when octet_length(id) > 512 then format('the id has %s bytes; the limit is 512', octet_length(id))
    when body is null then 'the body must not be null'
    when octet_length(body) > 1048576 then format('the body has %s bytes; the limit is 1048576', octet_length(body))
    when delay is not null and due is not null then 'delay and due exclude each other'
    when delay < '0' then format('the delay is %s; it must not be negative', delay)
    when not isfinite(delay) or not isfinite(due) then 'the delay or due time must not be infinite'
    when (mode = 'debounce') <> (options ->> 'max_wait' is not null) then 'max_wait belongs to the mode debounce, which requires it'
    when cardinality(array_positions(array[options ->> 'if_absent' = 'true', options ->> 'if_new' = 'true',
      options ->> 'if_generation' is not null], true)) > 1 then 'if_absent, if_new and if_generation exclude each other'
    end;
begin
  if options <> '{}' then
    perform requeue._check_options('put', options,
      array['priority', 'mode', 'max_wait', 'if_absent', 'if_new', 'if_generation', 'content_type', 'notify']);
    max_wait := options ->> 'max_wait';
    condition := case when options ->> 'if_absent' = 'true' then 1 when options ->> 'if_new' = 'true' then 2
      when options ->> 'if_generation' is not null then 3 end;
  end if;
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
    array[coalesce((options ->> 'priority')::smallint, 0::smallint)],
    array[(array_position(array['replace', 'earliest', 'keep', 'debounce'], mode) - 1)::smallint],
    array[ceil(extract(epoch from max_wait) * 1000)::bigint],
    array[coalesce(condition, 0::smallint)],
    array[(options ->> 'if_generation')::bigint]) p;
  if r.outcome = 7 then
    raise exception using message = format('put: the numbers of kind %s are used up', kind), errcode = 'program_limit_exceeded';
  elsif r.outcome = 8 then
    raise exception using message = format('put: the delay is %s ms; the limit is 316224000000 (ten years)', r.generation),
      errcode = 'invalid_parameter_value';
  end if;
  if options ->> 'notify' = 'true' and r.outcome < 5 then
    perform pg_notify('SCHEMA_wake', number::text);
  end if;
  outcome := (array['created', 'updated', 'kept', 'coalesced', 'revived', 'exists', 'other_generation'])[r.outcome + 1];
  new_generation := r.generation;
  return next;
end $$;

-- Puts a job, in the transaction of the caller. Returns what happened to it: created, updated, kept, coalesced, revived, or that
-- a condition does not hold: exists, other_generation.
--
-- The options are `priority`, `mode`, `max_wait`, `if_absent`, `if_new`, `if_generation`, `content_type` and `notify`. New ones are
-- added there, so that these arguments stay.
create function requeue.put(kind text, id text, body text default '', delay interval default null, due timestamptz default null,
  options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, convert_to(body, 'UTF8'), delay, due, options, 'text/plain');
end;

create function requeue.put(kind text, id text, body jsonb, delay interval default null, due timestamptz default null,
  options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, convert_to(body::text, 'UTF8'), delay, due, options, 'application/json');
end;

create function requeue.put(kind text, id text, body bytea, delay interval default null, due timestamptz default null,
  options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._put_one(kind, id, body, delay, due, options, null);
end;

-- Reschedules one job: what is null stays as it is. A new body has the content type `usual_type`, unless the options contain
-- another one.
create function requeue._reschedule_one(kind text, id text, body bytea, delay interval, due timestamptz, options jsonb, usual_type text)
returns table (outcome text, new_generation bigint) language plpgsql security definer
set search_path = pg_catalog, pg_temp as $$
declare
  r record;
  content_type text := coalesce(options ->> 'content_type', case when body is not null then usual_type end);
  invalid text := case
    when kind is null or kind !~ '^[A-Za-z0-9._-]{1,128}$' then format('kind %L must have 1 to 128 characters of A-Z a-z 0-9 . _ -', kind)
    when kind ~ '^requeue[.]' then format('kind %L is reserved: it is for the service itself', kind)
    when id is null or id = '' then 'the id must not be empty'
    when octet_length(id) > 512 then format('the id has %s bytes; the limit is 512', octet_length(id))
    when body is null and delay is null and due is null and options ->> 'priority' is null then
      'nothing to change: set delay, due, priority or body'
    when octet_length(body) > 1048576 then format('the body has %s bytes; the limit is 1048576', octet_length(body))
    when content_type is not null and body is null then 'content_type belongs to the body, and requires it'
    when delay is not null and due is not null then 'delay and due exclude each other'
    when delay < '0' then format('the delay is %s; it must not be negative', delay)
    when not isfinite(delay) or not isfinite(due) then 'the delay or due time must not be infinite'
    end;
begin
  if options <> '{}' then
    perform requeue._check_options('reschedule', options, array['priority', 'if_generation', 'content_type', 'notify']);
  end if;
  if invalid is not null then
    raise exception using message = 'reschedule: ' || invalid, errcode = 'invalid_parameter_value';
  end if;
  if not requeue._is_raised() then perform requeue._raise_numbers(); end if;
  select * into r from requeue._reschedule(null, kind, replace(_reschedule_one.id, chr(1), chr(1) || chr(2)), body,
    replace(content_type, chr(1), chr(1) || chr(2)), ceil(extract(epoch from delay) * 1000)::bigint,
    ceil(extract(epoch from due) * 1000)::bigint, (options ->> 'priority')::smallint, (options ->> 'if_generation')::bigint) p;
  if r.outcome = 'used_up' then
    raise exception using message = format('reschedule: the numbers of kind %s are used up', kind), errcode = 'program_limit_exceeded';
  elsif r.outcome = 'too_late' then
    raise exception using message = format('reschedule: the delay is %s ms; the limit is 316224000000 (ten years)', r.number),
      errcode = 'invalid_parameter_value';
  end if;
  if options ->> 'notify' = 'true' and r.outcome in ('updated', 'coalesced', 'revived') then
    perform pg_notify('SCHEMA_wake', r.of_kind::text);
  end if;
  outcome := r.outcome;
  new_generation := r.number;
  return next;
end $$;

-- Changes the due time, the priority or the body of a job, in the transaction of the caller, and nothing else. Returns what
-- happened to it: updated, coalesced, revived; or why nothing was changed: absent, done, other_generation. The options are
-- `priority`, `if_generation`, `content_type` and `notify`.
create function requeue.reschedule(kind text, id text, body text default null, delay interval default null,
  due timestamptz default null, options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, convert_to(body, 'UTF8'), delay, due, options, 'text/plain');
end;

create function requeue.reschedule(kind text, id text, body jsonb, delay interval default null,
  due timestamptz default null, options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, convert_to(body::text, 'UTF8'), delay, due, options, 'application/json');
end;

create function requeue.reschedule(kind text, id text, body bytea, delay interval default null,
  due timestamptz default null, options jsonb default '{}')
returns table (outcome text, new_generation bigint) language sql
begin atomic
  select * from requeue._reschedule_one(kind, id, body, delay, due, options, null);
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
      next_priority = null, next_content_type = null, next_body = null, next_head = null,
      heads_len = requeue._heads_len(j.head, null)
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
