-- Part of the import scripts: begins the transaction, and creates the list of jobs.
\if :{?requeue} \else \set requeue requeue \endif
begin;
set local client_min_messages = warning;
-- Operators and functions that others have created in `public` are not used.
set local search_path = pg_catalog, pg_temp;
create temporary table import_job (
  -- What identifies the job in the other queue.
  source_id text not null,
  kind text not null,
  id text not null,
  body text not null,
  due timestamptz not null,
  -- From 0, the least urgent of its kind.
  priority bigint not null,
  -- The kind under its old name.
  source_kind text,
  outcome text
) on commit drop;
