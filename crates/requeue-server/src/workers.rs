//! Who has claimed jobs through this node lately, and what they hold.
//!
//! This is what **this node** has instrumented, and no more. A worker that claims through another node
//! is not here; one whose lease was settled through another node seems to hold it until it ends;
//! and after a restart everybody is new. Who holds a given job, the store says.
//!
//! It is bounded: [`MAX_WORKERS`] workers and [`MAX_LEASES`] leases are remembered.

mod book;
mod lease;

pub(crate) use book::Book;

use crate::events::{text, time};
use book::State;
use requeue_jobs::{ClaimedJob, Kind, Timestamp, WallClock, WorkerName};
use serde::Serialize;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use utoipa::ToSchema;

/// Workers that are remembered. When there are more, those that were not seen for longest are
/// forgotten first.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// Leases that are remembered: some tens of megabytes. Those beyond are not known to be held.
pub(crate) const MAX_LEASES: usize = 200_000;

/// Kinds that are remembered of a worker's last claim.
pub(crate) const MAX_KINDS_SHOWN: usize = 100;

/// A worker that was not seen for so long, and holds nothing, is forgotten.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Who has claimed through this node lately.
pub struct Workers {
    wall_clock: WallClock,
    state: Mutex<State>,
}

impl Workers {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Workers { wall_clock, state: Mutex::default() }
    }

    /// Those that are remembered, by name.
    pub fn seen(&self) -> Vec<Worker> {
        let now = self.wall_clock.now();
        self.lock().seen(now)
    }

    /// A worker waits for jobs of these kinds, until the answer is dropped.
    pub(crate) fn waiting(self: &Arc<Self>, worker: &WorkerName, kinds: &[Kind]) -> Waiting {
        let now = self.wall_clock.now();
        self.lock().worker(worker, kinds, now).waiting += 1;
        Waiting { workers: self.clone(), worker: worker.clone() }
    }

    /// A worker claimed, and got these jobs. Answers the kinds of those whose lease of before
    /// expired for certain, each as often as that happened.
    pub(crate) fn claimed(
        &self,
        worker: &WorkerName,
        kinds: &[Kind],
        jobs: &[ClaimedJob],
    ) -> Vec<Kind> {
        let now = self.wall_clock.now();
        self.lock().claimed(worker, kinds, jobs, now)
    }

    /// For a batch of settlements.
    pub(crate) fn book(&self) -> Book<'_> {
        Book { now: self.wall_clock.now(), state: self.lock() }
    }

    /// What panicked under the lock has at worst forgotten something.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

/// A worker waits for jobs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    workers: Arc<Workers>,
    worker: WorkerName,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let now = self.workers.wall_clock.now();
        self.workers.lock().waited(&self.worker, now);
    }
}

/// A worker, as this node has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Worker {
    /// What it calls itself. Several may share a name: they are one here.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String)]
    pub name: WorkerName,
    /// Of which kinds it last asked for jobs, the first hundred.
    pub kinds: Vec<String>,
    /// When it first claimed, or waited to.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub first_seen: Timestamp,
    /// When it last claimed, waited, or settled or extended a lease.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub last_seen: Timestamp,
    /// Its claims that wait for jobs now.
    pub waiting: u32,
    /// Jobs that it was given.
    pub claimed: u64,
    /// Those that it acked, or requeued.
    pub acked: u64,
    /// Those that it retried, for the last time or not, or buried.
    pub failed: u64,
    /// Leases that it has not settled, and that have not ended.
    pub held: u64,
}
