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
//!                        |  retry, lapse    | release         |  +-- ack, and that --> waiting or ready
//!                        +------------------+-----------------+
//!                              attempts used up --> dead -- revive, put --> waiting
//! ```

mod bell;
mod claim;
mod client;
mod cron;
mod error;
mod job;
pub mod limits;
mod memory;
mod names;
mod panics;
mod put;
mod query;
mod receipt;
mod settings;
mod store;
mod time;
mod worker;

pub use claim::{Change, Changed, Claim, Claimed, ClaimedJob, How, Settle, Settled, What};
pub use client::{ClaimJobs, Jobs, Placing, PutJob};
pub use cron::{Missed, Schedule, Ticked};
pub use error::{ChangeError, Invalid, PutError, SettleError, StoreError};
pub use job::{Body, FailedAttempt, JobState, JobView, LeaseView, NextView, kept_error};
pub use memory::MemoryStore;
pub use names::{JobId, Kind, WorkerName};
pub use put::{Condition, Mode, Placed, Put, PutOutcome, check_batch};
pub use query::{Counts, KindView, Page, Query, Spans};
pub use receipt::{Fence, Generation, Receipt};
pub use settings::{Backoff, Retention, Settings, check_lease};
pub use store::{Answer, Each, Store, Tick};
pub use time::{Calendar, Due, Timestamp};
pub use worker::{JobWorker, RunningJob, RunningJobs};
