-- Tables of the store. docs/postgres.md describes them for operators. `requeue` stands for the name of the schema.
--
-- Times are milliseconds since 1970, by the clock of the server. Texts that may contain a NUL character, which
-- Postgres cannot store, are escaped: U+0000 is U+0001 U+0001, and U+0001 is U+0001 U+0002. This keeps their order.

-- One row. A program refuses a version that is not its own, and features that it does not know. A feature is added when it is
-- first used.
create table requeue.format (
  version int not null,
  features text[] not null default '{}'
);
insert into requeue.format (version) values (1);

-- The cluster of servers that the tables are in. If it changes, because a dump was restored elsewhere, counts are made anew:
-- transaction ids of another cluster mean nothing here.
create table requeue.cluster (
  system_identifier bigint not null,
  -- Lower than every number that is taken below.
  first_number bigint not null default floor(extract(epoch from clock_timestamp()) * 1000000)::bigint
);
insert into requeue.cluster (system_identifier) select system_identifier from pg_control_system();

-- Numbers for everything that has to rise: generations, fences, and the order of jobs of the same millisecond. It is set
-- to the clock in microseconds whenever a server starts, so that it rises even if a failover has lost the latest
-- transactions. `nextval` waits for no other transaction.
create sequence requeue.number;
-- The start of the server at which `number` was set: see `_start`. A sequence, because a change of it is visible immediately.
create sequence requeue.raised_at minvalue 0 start 0;

-- How often `number` was set. Only as long as it is 1, no kind can have been lost.
create sequence requeue.raises;

-- One row, which `_raise_numbers` locks. It is never changed.
create table requeue.raising (n int primary key);
insert into requeue.raising values (1);

-- The highest generation and fence of the kinds that were removed: a new kind gets higher ones. Sequences, because every transaction
-- reads their latest value.
create sequence requeue.generation_floor minvalue 0 start 0;
create sequence requeue.fence_floor minvalue 0 start 0;

-- Numbers of kinds. A kind that a failover has lost has a number that no other kind gets: processes may still use it.
create sequence requeue.kind_number as int;

-- A kind without jobs, settings and schedules is removed if there are many kinds: see `_forget`. Whatever adds a job to a kind
-- locks its row `for key share`, so that it is not removed meanwhile. No other call waits for that.
--
-- A put, claim or ack only reads kinds. What has to be done one at a time for a kind, such as claims of a kind with a limit and
-- changes of its settings, locks its row: no other role can do that.
create table requeue.kind (
  kind_id int primary key,
  name text collate "C" not null unique,
  -- The generation of a put is this plus its number. A new kind begins with 1, if it is certain that it is new: a failover may
  -- have lost a kind of this name, whose generations were used. An import raises the offsets, and so do kinds that were removed.
  generation_offset bigint not null,
  fence_offset bigint not null default 0,
  -- Only after an import of very high numbers: generations and fences are then counted one by one.
  is_near_limit boolean not null default false,
  -- All settings; null if they are the default ones. The columns below repeat what the functions need.
  settings json,
  paused boolean not null default false,
  lease bigint not null default 30000,
  concurrency bigint,
  rate_jobs bigint,
  rate_per bigint,
  -- How many tokens a full bucket has: the burst, or its default.
  rate_burst bigint,
  keeps_done boolean not null default false,
  max_dead bigint not null default 100000,
  max_dead_age bigint not null default 604800000,
  max_done bigint not null default 0,
  max_done_age bigint not null default 0,
  max_attempts bigint not null default 20,
  -- In nanoseconds, and percent.
  backoff_base bigint not null default 1000000000,
  backoff_max bigint not null default 3600000000000,
  backoff_jitter int not null default 20
);

-- How many bytes of a head count: those that the envelope has without base64. Anything else counts as it is written here, which is
-- never less.
create function requeue._head_len(head jsonb) returns int language sql immutable
return case when head is null then 0 else octet_length((head - 'envelope')::text) - 2
  + coalesce(octet_length(head #>> '{envelope,type}'), 0)
  + coalesce(octet_length(head #>> '{envelope,base64}') / 4 * 3 - (head #>> '{envelope,base64}' like '%=')::int
    - (head #>> '{envelope,base64}' like '%==')::int, 0) end;

-- The same for those of a job and its successor. Null if there are none.
create function requeue._heads_len(head jsonb, next_head jsonb) returns int language sql immutable
return case when coalesce(head, next_head) is not null then requeue._head_len(head) + requeue._head_len(next_head) end;

-- A column that is null takes no space, and most jobs are waiting for their first attempt: what is usually equal to another column
-- or zero is null then. Wide columns come first, so that there are no gaps.
create table requeue.job (
  -- The place in its list: the due time, the end of the lease, or when the job died or was done; then `place`.
  at bigint not null,
  place bigint not null,
  generation bigint not null,
  created_at bigint not null,
  -- Null means `at`. Of jobs that are not pending it never is.
  due bigint,
  -- Null means `created_at`.
  updated_at bigint,
  -- The earliest due time that a put can set, while a backoff runs.
  floor bigint,
  -- When debounce began to count: null means `created_at`, 0 means that the next put begins.
  first_put_at bigint,
  -- The lease. A job without one has no fence.
  fence bigint,
  nonce bigint,
  claimed_at bigint,
  -- The successor: a put that was made while the job was leased.
  next_generation bigint,
  next_due bigint,
  next_put_at bigint,
  kind_id int not null,
  -- Null means 0, as in the columns up to `next_priority`.
  attempts int,
  deaths int,
  -- 0 to 9: pending, by priority. 10 to 19: leased, by priority. 20: dead. 21: done.
  list smallint not null,
  priority smallint,
  next_priority smallint,
  cancelled boolean,
  id text collate "C" not null,
  -- Who holds the lease, or has done the job.
  worker text,
  -- Null means application/octet-stream. Of a done job: the type of its result.
  content_type text,
  next_content_type text,
  -- The latest failed attempts, as JSON.
  failures text,
  body bytea not null,
  next_body bytea,
  result bytea,
  -- The optional fields of the content, as exports have them, with escaped texts. Null if there are none.
  head jsonb,
  next_head jsonb,
  -- How many bytes of both count, so that claims and pages need not read them for that: see `_heads_len`. Null if there are none. It is
  -- not a generated column, because that makes every put and claim slower.
  heads_len int,
  -- Almost no two entries of the indexes are equal: looking for some to merge would be in vain.
  primary key (kind_id, id) with (deduplicate_items = off)
) with (
  -- By number of changes instead of by share of the table: with millions of waiting jobs, a share is reached too late.
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 100000
);
-- Every list of a kind is a range of this index. If it began with `kind_id`, the planner could take it for a lookup by `kind_id`
-- and `id`, and does so on a table without statistics: it would then read all jobs of the kind.
create index job_list on requeue.job ((kind_id::bigint * 32 + list), at, place) with (deduplicate_items = off);

-- Changes of the numbers of jobs, one row per statement. Nothing waits for anything here: there is no row that two
-- transactions update. Rows of transactions that have all ended are added up in `total`.
create table requeue.delta (
  kind_id int not null,
  xid xid8 not null default pg_current_xact_id(),
  pending bigint not null default 0,
  leased bigint not null default 0,
  dead bigint not null default 0,
  done bigint not null default 0,
  -- The highest that were assigned, or that removed jobs had.
  generation bigint not null default 0,
  fence bigint not null default 0,
  -- Whether a job, or a successor, was removed.
  removed boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index delta_kind on requeue.delta (kind_id, xid);

-- The sum of all deltas of transactions before `upto`, except those in `running`, which had not ended then. The row with the
-- highest number counts, and is locked while deltas are added up. Each kind has one from the beginning.
create table requeue.total (
  kind_id int not null,
  number bigint not null default nextval('requeue.number'),
  upto xid8 not null,
  running xid8[] not null default '{}',
  pending bigint not null,
  leased bigint not null,
  dead bigint not null,
  done bigint not null,
  generation bigint not null,
  fence bigint not null,
  primary key (kind_id, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The used part of rate limits. The row with the highest number counts.
create table requeue.rate_use (
  kind_id int not null,
  number bigint not null default nextval('requeue.number'),
  parts bigint not null,
  at bigint not null,
  primary key (kind_id, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table requeue.schedule (
  kind_id int not null,
  id text collate "C" not null,
  rule text not null,
  time_zone text not null,
  content_type text,
  body bytea not null,
  head jsonb,
  -- 0: one run, 1: none, 2: all.
  missed smallint not null,
  next bigint not null,
  primary key (kind_id, id)
);
