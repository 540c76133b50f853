//! A limit on everything, and why it is what it is.

use std::time::Duration;

/// Bytes of a kind: it is part of every key on disk and in Redis.
pub const MAX_KIND_LEN: usize = 128;

/// Bytes of an id: enough for a URL or two UUIDs and their names, and it is part of keys.
pub const MAX_ID_LEN: usize = 512;

/// Bytes of a body. What is larger belongs elsewhere, with a reference here.
pub const MAX_BODY_LEN: usize = 1 << 20;

/// Bytes of a content type.
pub const MAX_CONTENT_TYPE_LEN: usize = 128;

/// Bytes of a worker's name.
pub const MAX_WORKER_LEN: usize = 128;

/// Bytes of what is kept of an error; longer ones are cut.
pub const MAX_ERROR_LEN: usize = 2 << 10;

/// Entries of a batch: a store does them under one lock, or in one script.
pub const MAX_BATCH: usize = 1000;

/// Bytes of all bodies of a batch.
pub const MAX_BATCH_BYTES: usize = 16 << 20;

/// The longest delay: ten years. What is due later was probably not meant.
pub const MAX_DELAY: Duration = Duration::from_secs(10 * 366 * 86_400);

/// The longest lease. Extend it instead: a worker that died holds its job for that long.
pub const MAX_LEASE: Duration = Duration::from_secs(86_400);

/// The shortest lease: below, it is over before the answer has arrived.
pub const MIN_LEASE: Duration = Duration::from_millis(10);

/// Kinds of a store: each has settings, counters and a place in memory.
pub const MAX_KINDS: usize = 10_000;

/// Schedules of a kind: each is looked at whenever its time comes.
pub const MAX_SCHEDULES: usize = 10_000;

/// Bytes of when a schedule is, and of its time zone.
pub const MAX_SCHEDULE_LEN: usize = 256;

/// Attempts that are kept of a job, the latest.
pub const KEPT_ATTEMPTS: usize = 5;

/// Generations and fences that are restored: half of what Redis' scripts, and most who read JSON,
/// count exactly, so that as many can follow. A fence is at least the time in microseconds, and
/// reaches it in 2112.
pub const MAX_COUNTER: u64 = 1 << 52;

/// Ready jobs are counted up to here: they are derived, and counting them may be dear.
pub const READY_COUNT_CAP: u64 = 10_000;

/// Spans of time in one answer of upcoming load.
pub const MAX_SPANS: usize = 1000;

/// The longest that a wait for work lasts until somebody looks: a signal that was lost costs no
/// more.
pub const WAIT_SLICE: Duration = Duration::from_secs(1);
