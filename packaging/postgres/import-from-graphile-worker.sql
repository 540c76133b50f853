-- Moves the pending jobs of graphile-worker (https://worker.graphile.org) to requeue, in one transaction.
--
--   psql DATABASE -f import-from-graphile-worker.sql                dry run: reports what would be moved, and changes nothing
--   psql DATABASE -v apply=1 -f import-from-graphile-worker.sql     moves the jobs
--
-- Variables: `schema`, that of graphile-worker (graphile_worker); `requeue`, the schema of requeue (requeue).
--
-- A job becomes a job of the kind with the name of its task, with its payload as a JSON body, due at its `run_at`. Its id is
-- its job key, or `graphile-ID` if it has none. Attempts, errors, queue names, flags and cron tasks are not carried over: jobs of
-- one queue then run concurrently, unless you set `concurrency` of the kind to 1. Jobs that are locked by a worker, or have failed
-- for the last time, stay. Tested with graphile-worker 0.17.
\set ON_ERROR_STOP on
\set QUIET on
\if :{?schema} \else \set schema graphile_worker \endif
\ir import-begin.sql

\echo 'Jobs in graphile-worker:'
select state, count(*) as jobs, count(job_queue_id) as with_queue_name,
  case state when 'pending' then 'are moved' when 'locked' then 'stay: a worker has them' else 'stay' end as action
from (
  select job_queue_id,
    case when locked_at is not null then 'locked' when attempts >= max_attempts then 'failed' else 'pending' end as state
  from :"schema"._private_jobs) j
group by state order by state;

insert into import_job (source_id, kind, id, body, due, priority)
with locked as materialized (
  select * from :"schema"._private_jobs where locked_at is null and attempts < max_attempts for update skip locked)
select j.id::text, t.identifier, coalesce(j.key, 'graphile-' || j.id), j.payload::text, j.run_at,
  -- The lowest is the most urgent.
  dense_rank() over (partition by t.identifier order by j.priority desc) - 1
from locked j join :"schema"._private_tasks t on t.id = j.task_id;

\ir import-put.sql

-- Deletes them.
select count(*) as completed
from :"schema".complete_jobs(array(select source_id::bigint from import_job where outcome = 'created')) \gset

\ir import-end.sql
