-- Lists of jobs.

-- The first jobs of a kind by id, of some lists and times. Never sorts: the limit is small. Ends with the job that exceeds
-- `max_bytes`: bodies of further ones are not read.
create function requeue._page(of_kind int, from_id text, to_id text, is_after boolean, first_list int, last_list int, first_at bigint,
  last_at bigint, most int, max_bytes bigint) returns setof requeue.job language sql stable
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
begin atomic
  select j.* from (
    select f.tid, f.id, sum(f.length) over (order by f.id rows unbounded preceding) - f.length as before from (
      select j.ctid as tid, j.id,
        octet_length(j.body) + coalesce(j.heads_len, 0) + coalesce(octet_length(j.next_body), 0) + coalesce(octet_length(j.result), 0) as length
      from requeue.job j
      where j.kind_id = of_kind and j.id >= from_id and (not is_after or j.id > from_id) and (to_id is null or j.id < to_id)
        and j.list between first_list and last_list and j.at between first_at and last_at
      order by j.kind_id, j.id limit most) f) p
  join requeue.job j on j.ctid = p.tid
  where p.before <= max_bytes order by p.id;
end;

-- The first `most` jobs of some lists, by time, between two places; the last ones, backwards, if it is descending. Ends with
-- the job that exceeds `max_bytes`.
create function requeue._page_by_time(of_kind int, first_list int, last_list int, from_at bigint, from_place bigint, to_at bigint,
  to_place bigint, is_descending boolean, most int, max_bytes bigint) returns setof requeue.job language sql stable
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
begin atomic
  select j.* from (
    select f.tid, f.n, sum(f.length) over (order by f.n rows unbounded preceding) - f.length as before from (
      select t.tid, row_number() over (order by case when is_descending then -t.at else t.at end,
          case when is_descending then -t.place else t.place end) as n,
        octet_length(t.body) + coalesce(t.heads_len, 0) + coalesce(octet_length(t.next_body), 0) + coalesce(octet_length(t.result), 0) as length
      from generate_series(first_list, last_list) l (number) cross join lateral (
        (select j.ctid as tid, j.* from requeue.job j where not is_descending and (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.number
          and (j.at, j.place) >= (from_at, from_place) and (j.at, j.place) <= (to_at, to_place) order by j.at, j.place limit most)
        union all
        (select j.ctid as tid, j.* from requeue.job j where is_descending and (j.kind_id::bigint * 32 + j.list) = of_kind::bigint * 32 + l.number
          and (j.at, j.place) >= (from_at, from_place) and (j.at, j.place) <= (to_at, to_place)
          order by j.at desc, j.place desc limit most)) t
      order by n limit most) f) p
  join requeue.job j on j.ctid = p.tid
  where p.before <= max_bytes order by p.n;
end;

-- The number of pending jobs that fall due in each span of time between two times. Spans without jobs are left out.
create function requeue._upcoming(of_kind int, from_at bigint, length bigint, to_at bigint)
returns table (span bigint, jobs bigint) language sql stable
begin atomic
  select (j.at - from_at) / length, count(*) from generate_series(0, 9) l (list) cross join lateral (
    select t.at from requeue.job t where (t.kind_id::bigint * 32 + t.list) = of_kind::bigint * 32 + l.list and t.at >= from_at and t.at < to_at) j
  group by 1;
end;
