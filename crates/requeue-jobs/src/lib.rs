//! Durable jobs: a job that you put runs when it is due, on one worker at a time, is retried when
//! it fails, and is never lost.
//!
//! A job has a *kind* (a queue), an *id*, a *body* and a *due time*. There is at most one job per
//! kind and id: putting it again replaces it. `docs/jobs.md` is the contract, and
//! `docs/glossary.md` lists the words of other systems. [`Store`] is the interface of all stores.
//! [`MemoryStore`] is the one in this crate; `requeue-disk`, `requeue-redis` and `requeue-http`
//! have others.
//!
//! ```text
//!              put                  due              claim
//!   absent ---------> waiting ----------> ready ----------> leased -- ack --> absent
//!                        ^                  ^                 |  | put: kept as its successor
//!                        |  retry, expiry   | release         |  +-- ack --> waiting or ready
//!                        +------------------+-----------------+
//!                              attempts used up --> dead -- revive, put --> waiting
//! ```
//!
//! ```
//! use requeue_jobs::{Jobs, MemoryStore};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! # requeue_testkit::block_on(async {
//! let jobs = Jobs::new(Arc::new(MemoryStore::new()));
//! jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
//! jobs.cancel("order.close", "order-42").await?; // the customer has paid
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Jobs`] | the handle: puts, changes, claims and settles jobs, and batches concurrent calls |
//! | [`JobWorker`] | calls a handler for each job, and takes care of leases, timeouts, panics and shutdown |
//! | `Task`, `Router` | typed jobs: a type per kind, and a handler per type (feature `serde`) |
//! | [`ScheduleSpec`] | a recurring job: a cron expression or a period |
//! | [`Store`] | the interface of all stores |
//! | [`MemoryStore`] | a store in memory |
//! | [`Layered`] | a store that wraps another store |
//! | [`rules`] | the contract in code, for authors of stores |
//! | [`Settings`] | the settings of a kind: lease, backoff, attempts, concurrency, rate, retention |
//!
//! # Features
//!
//! None is enabled by default. Each feature only adds items.
//!
//! | feature | adds |
//! |---|---|
//! | `cron` | `Jobs::set_schedule` and other methods for recurring jobs; `JobWorker` starts their runs; `CronTimes` and `ScheduleTicker` |
//! | `prometheus` | the module `prometheus` (exports the metrics of workers) |
//! | `serde` | `Task`, `Jobs::put_task` and `Router` (typed jobs); `Jobs::put_json` and `ClaimedJob::json` (JSON bodies), `JobOutcome::done_with_json` and `DoneView::result_json` (JSON results); `transfer` (export and import of a store as JSON Lines) |
//! | `tokio` | `JobWorker::spawn` (a worker on tokio), `RunningJobs::run_until_signal` (SIGTERM) |
//! | `tracing` | `JobWorker::traced` (a span per attempt) |

mod change_notifier;
mod claim;
mod client;
mod content;
mod cron;
mod error;
mod job;
#[cfg(feature = "serde")]
pub mod json;
mod layered;
pub mod limits;
mod memory;
mod names;
mod panics;
mod priority;
mod push;
mod put;
mod query;
mod reaper;
mod receipt;
mod restore;
#[cfg(feature = "serde")]
mod router;
pub mod rules;
mod settings;
mod status;
mod store;
#[cfg(feature = "serde")]
mod task;
mod time;
#[cfg(feature = "serde")]
pub mod transfer;
mod version;
mod worker;

pub use claim::{
    Change, ChangeKind, Changed, Claim, Claimed, ClaimedJob, ExpiredLease, Reaped, Reschedule,
    Settle, Settled, Settlement, check_changes,
};
pub use client::{ClaimJobs, Jobs, ListJobs, PutFuture, PutJob, RescheduleJob};
pub use content::{Content, Envelope, Head, HeadError, HeadFields};
#[cfg(feature = "cron")]
pub use cron::{
    CronTimes, CronTimesError, SCHEDULE_TIMERS, ScheduleError, ScheduleTicker, ScheduleView,
};
pub use cron::{
    Missed, RuleError, Schedule, ScheduleCondition, ScheduleSpec, ScheduleTimes, Tick, TickJob,
    Ticked,
};
pub use error::{ChangeError, Invalid, PutAllError, PutError, SettleError, StoreError};
pub use job::{Body, DoneView, FailedAttempt, JobState, JobView, LeaseView, kept_error};
pub use layered::{Layered, StoreMethod};
pub use memory::MemoryStore;
pub use names::{JobId, Kind, WorkerName};
pub use priority::{Priorities, Priority};
pub use push::{PushSetting, SecretText};
pub use put::{Condition, Mode, Placed, Put, PutOutcome, check_batch};
pub use query::{Counts, KindView, Page, Query, Spans, TimeCursor, TimePage, TimeQuery};
pub use reaper::PeriodicReap;
pub use receipt::{Fence, Generation, Receipt};
pub use restore::{Arrival, Restore, Restored};
#[cfg(feature = "serde")]
pub use router::{NextHandler, Router, RouterError, TaskContext, TaskHandler, TaskResult};
pub use settings::{Backoff, Rate, Retention, Settings, check_lease};
pub use status::{StoreMetric, StoreMetricKind, StoreProblem, StoreStatus};
pub use store::{BatchResults, Store, StoreFuture};
#[cfg(feature = "serde")]
pub use task::Task;
pub use time::{Due, Timestamp, WallClock};
pub use version::Version;
pub use worker::{JobFailure, JobOutcome, JobRun, JobWorker, RunningJob, RunningJobs};

// What handlers, callbacks and tests need of the core, so that this crate is the only dependency.
#[cfg(feature = "prometheus")]
#[doc(inline)]
pub use requeue::prometheus;
#[doc(inline)]
pub use requeue::worker::{BoxError, Cause, Next, Outcome, RunnerFuture};
#[doc(inline)]
pub use requeue::{Clock, ManualClock, Metrics, Moment, NameError, WorkerMetrics};
