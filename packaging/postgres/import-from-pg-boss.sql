-- Moves the pending jobs of pg-boss (https://github.com/timgit/pg-boss) to requeue, in one transaction.
--
--   psql DATABASE -f import-from-pg-boss.sql                dry run: reports what would be moved, and changes nothing
--   psql DATABASE -v apply=1 -f import-from-pg-boss.sql     moves the jobs
--
-- Variables: `schema`, that of pg-boss (pgboss); `requeue`, the schema of requeue (requeue).
--
-- A job becomes the job with the same id, of the kind with the name of its queue, with its data as a JSON body, due at its
-- `start_after`. Retry counts, singleton keys, dead letter queues and schedules are not carried over. Queues whose name begins
-- with `__pgboss__` are internal and stay, and so do jobs that are active or finished. Tested with pg-boss 10.4 (schema version 24).
\set ON_ERROR_STOP on
\set QUIET on
\if :{?schema} \else \set schema pgboss \endif
\ir import-begin.sql

\echo 'Jobs in pg-boss:'
select state, count(*) as jobs,
  case when state in ('created', 'retry') then 'are moved'
    when state = 'active' then 'stay: a worker has them'
    else 'stay' end as action
from :"schema".job where not starts_with(name, '__pgboss__') group by state order by state;

insert into import_job (source_id, kind, id, body, due, priority)
with locked as materialized (
  select * from :"schema".job where state in ('created', 'retry') and not starts_with(name, '__pgboss__') for update skip locked)
select id::text, name, id::text, coalesce(data, 'null')::text, start_after,
  -- The highest is the most urgent.
  dense_rank() over (partition by name order by priority) - 1
from locked;

\ir import-put.sql

delete from :"schema".job j using import_job i where j.name = i.source_kind and j.id = i.source_id::uuid and i.outcome = 'created';

\ir import-end.sql
