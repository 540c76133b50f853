-- Part of the import scripts: puts the listed jobs, and reports what became of them.

-- Names of kinds have fewer characters here.
update import_job set source_kind = kind, kind = left(regexp_replace(kind, '[^A-Za-z0-9._-]', '_', 'g'), 128), priority = least(priority, 9);
update import_job set outcome = case
  when octet_length(body) > 1048576 then 'stays: longer than 1 MiB'
  when octet_length(id) > 512 then 'stays: its id is longer than 512 bytes'
  when due > now() + interval '3659 days' then 'stays: due in more than ten years'
  end;
create temporary table import_result on commit drop as
select j.source_id, j.source_kind, p.outcome
from (select * from import_job where outcome is null order by kind, due, length(source_id), source_id) j
cross join lateral :"requeue".put(j.kind, j.id, j.body, due => j.due,
  options => jsonb_build_object('priority', j.priority::int, 'if_new', true, 'content_type', 'application/json')) p;
-- `exists`: there is a job with this id already.
update import_job j set outcome = r.outcome from import_result r where r.source_id = j.source_id and r.source_kind = j.source_kind;

\echo 'Result:'
select source_kind as name, kind, case outcome when 'created' then 'moved' when 'exists' then 'stays: a job with its id exists' else outcome end as outcome,
  count(*) as jobs, min(due) as first_due, max(due) as last_due
from import_job group by 1, 2, 3 order by 1, 2, 3;
