-- Moves the pending messages of one pgmq queue (https://github.com/pgmq/pgmq) to requeue, in one transaction.
--
--   psql DATABASE -v queue=NAME -f import-from-pgmq.sql                dry run: reports what would be moved, and changes nothing
--   psql DATABASE -v queue=NAME -v apply=1 -f import-from-pgmq.sql     moves the messages
--
-- Variables: `queue`, the name of the queue; `kind`, the kind of the jobs (the name of the queue); `requeue`, the schema
-- of requeue (requeue).
--
-- A message becomes the job `pgmq-MSG_ID`, with the message as a JSON body, due when the message becomes visible. Read counts,
-- headers and the archive are not carried over. A message that was read and is invisible is being processed, and stays. Tested with
-- pgmq 1.13.
\set ON_ERROR_STOP on
\set QUIET on
\if :{?queue} \else
  do 'begin raise exception ''set the queue: psql -v queue=NAME''; end';
\endif
\if :{?kind} \else \set kind :queue \endif
\ir import-begin.sql
select 'q_' || lower(:'queue') as source_table \gset

\echo 'Messages in pgmq:'
select state, count(*) as jobs, count(headers) as with_headers,
  case state when 'read' then 'stay: a worker has them' else 'are moved' end as action
from (
  select headers, case when vt <= clock_timestamp() then 'visible' when read_ct > 0 then 'read' else 'delayed' end as state
  from pgmq.:"source_table") m
group by state order by state;

insert into import_job (source_id, kind, id, body, due, priority)
select m.msg_id::text, :'kind', 'pgmq-' || m.msg_id, coalesce(m.message, 'null')::text, m.vt, 0
from pgmq.:"source_table" m where m.vt <= clock_timestamp() or m.read_ct = 0 for update skip locked;

\ir import-put.sql

select count(*) as deleted
from pgmq.delete(:'queue', array(select source_id::bigint from import_job where outcome = 'created')) \gset

\ir import-end.sql
