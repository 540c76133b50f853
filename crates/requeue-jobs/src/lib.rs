//! Durable jobs: put a job, and it is done — when it is due, by one worker at a time, again
//! when that fails, and never lost in between.
//!
//! A job has a *kind*, an *id*, a *body* and a *due* time. There is one per (kind, id):
//! putting it again changes it. `docs/jobs.md` is the contract, in words; [`Store`] is what
//! every store does, and [`MemoryStore`] does it in memory.
//!
//! ```text
//!              put                  due              claim
//!   absent ---------> waiting ----------> ready ----------> leased -- ack --> absent
//!                        ^                  ^                 |  | put: kept as its successor
//!                        |  retry, expiry    | release         |  +-- ack, and that --> waiting or ready
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
//! jobs.cancel("order.close", "order-42").await?; // paid meanwhile
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Jobs`] | the handle: puts, changes, claims and settles jobs, and joins concurrent calls into batches |
//! | [`JobWorker`] | runs a handler over jobs: leases, outcomes, timeout, panics, shutdown |
//! | [`Store`] | where jobs live |
//! | [`MemoryStore`] | a store in memory |
//! | [`rules`] | the contract in code, for those who write another |
//! | [`Settings`] | what is set per kind: lease, backoff, attempts, concurrency, retention |
//!
//! # Features
//!
//! None by default; each adds methods and changes none.
//!
//! | feature | adds |
//! |---|---|
//! | `serde` | `Jobs::put_json`, `ClaimedJob::json`: bodies in JSON; `transfer`: a whole store as JSON Lines, and back |
//! | `tokio` | `JobWorker::spawn`: a worker on tokio |

mod change_notifier;
mod claim;
mod client;
mod cron;
mod error;
mod job;
mod layered;
pub mod limits;
mod memory;
mod names;
mod panics;
mod put;
mod query;
mod receipt;
mod restore;
pub mod rules;
mod settings;
mod store;
mod time;
#[cfg(feature = "serde")]
pub mod transfer;
mod worker;

pub use claim::{
    Change, ChangeKind, Changed, Claim, Claimed, ClaimedJob, ExpiredLease, Reaped, Settle, Settled,
    Settlement,
};
pub use client::{ClaimJobs, Jobs, Placing, PutJob};
pub use cron::{Missed, Schedule, Ticked};
pub use error::{ChangeError, Invalid, PutError, SettleError, StoreError};
pub use job::{Body, FailedAttempt, JobState, JobView, LeaseView, NextView, kept_error};
pub use layered::{Layered, StoreMethod};
pub use memory::MemoryStore;
pub use names::{JobId, Kind, WorkerName};
pub use put::{Condition, Mode, Placed, Put, PutOutcome, check_batch};
pub use query::{Counts, KindView, Page, Query, Spans};
pub use receipt::{Fence, Generation, Receipt};
pub use restore::{Arrival, Restore, Restored};
pub use settings::{Backoff, Retention, Settings, check_lease};
pub use store::{BatchResults, Store, StoreFuture, Tick};
pub use time::{Due, Timestamp, WallClock};
pub use worker::{JobWorker, RunningJob, RunningJobs};
