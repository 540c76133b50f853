-- Moves the pending jobs of River (https://riverqueue.com) to requeue, in one transaction.
--
--   psql DATABASE -f import-from-river.sql                dry run: reports what would be moved, and changes nothing
--   psql DATABASE -v apply=1 -f import-from-river.sql     moves the jobs
--
-- Variables: `schema`, that of River's tables (public); `requeue`, the schema of requeue (requeue).
--
-- A River job becomes the job `river-ID` of the kind with the same name, with its arguments as a JSON body, due at its
-- `scheduled_at`. Attempts, errors, tags, queues and unique keys are not carried over. Jobs that are running stay, and so
-- do jobs in the state `pending`, which are not to run yet, and all that are finished. Tested with River 0.51.
\set ON_ERROR_STOP on
\set QUIET on
\if :{?schema} \else \set schema public \endif
\ir import-begin.sql

\echo 'Jobs in River:'
select state, count(*) as jobs,
  case when state in ('available', 'scheduled', 'retryable') then 'are moved'
    when state = 'running' then 'stay: a worker has them'
    else 'stay' end as action
from :"schema".river_job group by state order by state;

insert into import_job (source_id, kind, id, body, due, priority)
with locked as materialized (
  select * from :"schema".river_job where state in ('available', 'scheduled', 'retryable') for update skip locked)
select id::text, kind, 'river-' || id, args::text, scheduled_at,
  -- 1 is the most urgent.
  dense_rank() over (partition by kind order by priority desc) - 1
from locked;

\ir import-put.sql

delete from :"schema".river_job r using import_job i where r.id = i.source_id::bigint and i.outcome = 'created';

\ir import-end.sql
