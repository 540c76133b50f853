//! The limits of the contract, with the reason for each. A call that exceeds one fails with
//! [`Invalid`](crate::Invalid) and changes nothing.

use std::time::Duration;

/// The longest kind, in bytes. It is part of every key on disk and in Redis.
pub const MAX_KIND_LEN: usize = 128;

/// The longest id, in bytes. It is part of keys, and long enough for a URL or for two UUIDs with
/// names.
pub const MAX_ID_LEN: usize = 512;

/// The longest [cursor](crate::TimeCursor) of a list by time, in bytes: enough for an id, a time and a
/// separator.
pub const MAX_CURSOR_LEN: usize = MAX_ID_LEN + 32;

/// The largest body, in bytes. Store larger data elsewhere and put a reference into the body.
pub const MAX_BODY_LEN: usize = 1 << 20;

/// The largest body with its head, in bytes: the largest body, and room for what a protocol attaches to it. A
/// message of SQS has at most 1 MiB with its attributes.
pub const MAX_CONTENT_LEN: usize = MAX_BODY_LEN + (16 << 10);

/// The deepest nesting of arrays and objects in a body that is written as JSON. A parser of a response
/// sees up to four levels more, and by default that of .NET reads 64 levels, that of Ruby 100 and that
/// of Rust 128. A deeper body is written as text.
pub const MAX_JSON_DEPTH: usize = 60;

/// The longest number in a body that is written as JSON, in characters. By default, Jackson (Java)
/// reads 1000 and Python an integer of 4300. A body with a longer one is written as text.
pub const MAX_JSON_NUMBER_LEN: usize = 100;

/// The longest content type, and the longest type of an envelope, in bytes.
pub const MAX_CONTENT_TYPE_LEN: usize = 128;

/// The longest name of a worker, in bytes.
pub const MAX_WORKER_LEN: usize = 128;

/// The longest error of a failed attempt, in bytes. Longer ones are truncated.
pub const MAX_ERROR_LEN: usize = 2 << 10;

/// The largest number of entries in a batch. A store applies them under one lock or in one script.
pub const MAX_BATCH: usize = 1000;

/// The largest total size of the contents of puts, or of the results of acks, in a batch, in bytes.
pub const MAX_BATCH_BYTES: usize = 16 << 20;

/// The largest total size of the contents that one claim, or one page of a list, returns, in bytes.
/// The contents of successors count too. The result ends before the job that would exceed it; one job
/// is always returned.
pub const MAX_RESULT_BYTES: usize = 16 << 20;

/// The longest delay: ten years. A later due time is probably a mistake.
pub const MAX_DELAY: Duration = Duration::from_secs(10 * 366 * 86_400);

/// The longest lease: a day. A worker that dies blocks its job until the lease ends, so extend
/// shorter leases instead.
pub const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// The shortest lease. A shorter one could expire before the worker receives the job.
pub const MIN_LEASE: Duration = Duration::from_millis(10);

/// The highest jitter of a backoff, in percent: the whole delay.
pub const MAX_JITTER_PERCENT: u8 = 100;

/// The lowest limit of concurrent leases of a kind. To lease no jobs, pause the kind.
pub const MIN_CONCURRENCY: u32 = 1;

/// The largest result that a job can be acked with: 64 KiB.
pub const MAX_ACK_RESULT_LEN: usize = 64 * 1024;

/// The highest priority of a job.
pub const MAX_PRIORITY: u8 = 9;

/// The highest number of jobs per period, and the largest burst, of a rate limit.
pub const MAX_RATE_JOBS: u32 = 1_000_000;

/// The longest period of a rate limit: 31 days. The shortest is a millisecond.
pub const MAX_RATE_PERIOD: Duration = Duration::from_secs(31 * 86_400);

/// The largest number of kinds in a store. Each has settings and counters in memory.
pub const MAX_KINDS: usize = 10_000;

/// The largest number of schedules of a kind.
pub const MAX_SCHEDULES: usize = 10_000;

/// The largest total size of the bodies of a kind's schedules, in bytes: a list returns all of them, and
/// the disk store keeps them in memory. Only a body of more than a kilobyte can exceed it.
pub const MAX_SCHEDULES_BYTES: usize = 16 << 20;

/// The longest [rule](crate::Schedule::when) of a schedule, and the longest name of its time zone, in
/// bytes.
pub const MAX_SCHEDULE_LEN: usize = 1024;

/// The shortest period of a schedule. Work that recurs more often is better done by one job that
/// requeues itself.
pub const MIN_SCHEDULE_PERIOD: Duration = Duration::from_secs(1);

/// The longest jitter of a schedule: a day. Its runs would otherwise belong to another day.
pub const MAX_SCHEDULE_JITTER: Duration = Duration::from_secs(86_400);

/// The longest configuration of a [push target](crate::PushSetting), and of its secrets, in bytes.
pub const MAX_PUSH_LEN: usize = 8 << 10;

/// The number of failed attempts that are kept per job. Older ones are dropped.
pub const KEPT_ATTEMPTS: usize = 5;

/// The highest generation and fence: the largest integer that Redis scripts and most JSON parsers
/// represent exactly, 2⁵³ − 1. No store assigns a higher one. A million puts per second reach it
/// after 285 years.
pub const MAX_COUNTER: u64 = (1 << 53) - 1;

/// The highest generation and fence that a restore can bring: 2⁵², half of [`MAX_COUNTER`]. It
/// leaves enough numbers for a million puts per second for 142 years, so that no import makes a kind
/// unusable. Numbers that a store has assigned are below: generations count puts, and fences are at
/// most the time in microseconds, which is 2⁵² in the year 2112.
pub const MAX_RESTORED: u64 = 1 << 52;

/// Ready jobs are counted only up to this number, because counting them can be expensive.
pub const READY_COUNT_CAP: u64 = 10_000;

/// The largest number of time spans in one call of
/// [`Store::upcoming`](crate::Store::upcoming).
pub const MAX_SPANS: usize = 1000;

/// The longest time that [`Store::wait`](crate::Store::wait) waits before it looks again. A lost
/// notification delays a job by no more than this.
pub const WAIT_SLICE: Duration = Duration::from_secs(1);
