//! The workers that recently claimed jobs through this node, and how many leases each holds.
//!
//! This is the view of **this node** only. A worker that claims through another node is missing
//! here. If a lease is settled through another node, it counts as held here until it expires. After
//! a restart the list is empty. The store reports who holds a given job.
//!
//! Memory is bounded: at most [`MAX_WORKERS`] workers and [`MAX_LEASES`] leases are tracked.

mod leases;
mod state;

pub(crate) use state::SettlementRecorder;

use crate::events::{text, time};
use crate::response_memory::Weighed;
use requeue_jobs::limits::MAX_KIND_LEN;
use requeue_jobs::{ClaimedJob, ExpiredLease, Kind, Timestamp, WallClock, WorkerName};
use serde::Serialize;
use state::State;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use utoipa::ToSchema;

/// Maximum number of tracked workers. Beyond it, the workers that were not seen for longest are
/// removed.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// Maximum number of tracked leases: about 15 MB. Leases beyond it do not count as held.
pub(crate) const MAX_LEASES: usize = 200_000;

/// Maximum number of kinds shown of a worker's last claim: 20 MB for all workers.
pub(crate) const MAX_KINDS_SHOWN: usize = 16;

/// Bytes of a worker besides its kinds, at most.
const WORKER_BYTES: usize = 512;

/// Bytes of a list of workers, at most.
pub(crate) const MAX_LIST_BYTES: usize =
    MAX_WORKERS * (WORKER_BYTES + MAX_KINDS_SHOWN * (MAX_KIND_LEN + size_of::<String>()));

/// A worker that was not seen for this long and holds no lease is removed.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The workers that recently claimed through this node.
pub struct Workers {
    wall_clock: WallClock,
    state: Mutex<State>,
}

impl Workers {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Workers { wall_clock, state: Mutex::default() }
    }

    /// Returns the tracked workers, sorted by name.
    pub fn list(&self) -> Vec<WorkerInfo> {
        let now = self.wall_clock.now();
        self.lock().list(now)
    }

    /// Records that a claim of this worker waits, until the returned guard is dropped.
    pub(crate) fn waiting(self: &Arc<Self>, worker: &WorkerName, kinds: &[Kind]) -> WaitingWorker {
        let now = self.wall_clock.now();
        self.lock().worker(worker, kinds, now).waiting += 1;
        WaitingWorker { workers: self.clone(), worker: worker.clone() }
    }

    /// Records the jobs that a worker claimed.
    pub(crate) fn claimed(&self, worker: &WorkerName, kinds: &[Kind], jobs: &[ClaimedJob]) {
        let now = self.wall_clock.now();
        self.lock().claimed(worker, kinds, jobs, now);
    }

    /// Records leases that this node has ended because they had expired.
    pub(crate) fn expired(&self, leases: &[ExpiredLease]) {
        if !leases.is_empty() {
            self.lock().expired(leases);
        }
    }

    /// Returns the workers of which at least this many leases have expired since they last settled
    /// one, and how many.
    pub(crate) fn unsettled(&self, at_least: u64) -> Vec<(WorkerName, u64)> {
        self.lock().unsettled(self.wall_clock.now(), at_least)
    }

    /// Locks the table to record a batch of settlements.
    pub(crate) fn record(&self) -> SettlementRecorder<'_> {
        SettlementRecorder { now: self.wall_clock.now(), state: self.lock() }
    }

    /// After a panic under the lock, at worst some records are missing: the table stays usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

/// A guard that counts a waiting claim of a worker until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingWorker {
    workers: Arc<Workers>,
    worker: WorkerName,
}

impl Drop for WaitingWorker {
    fn drop(&mut self) {
        let now = self.workers.wall_clock.now();
        self.workers.lock().stop_waiting(&self.worker, now);
    }
}

impl Weighed for WorkerInfo {
    fn weight(&self) -> usize {
        let kind = |kind: &String| kind.len() + size_of::<String>();
        WORKER_BYTES + self.kinds.iter().map(kind).sum::<usize>()
    }
}

/// A worker, as this node has seen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WorkerInfo {
    /// The name that the worker gives in its claims. Workers that share a name appear as one.
    #[serde(serialize_with = "text")]
    #[schema(value_type = String)]
    pub name: WorkerName,
    /// The kinds of its last claim, at most the first 16.
    pub kinds: Vec<String>,
    /// When it first claimed or began to wait.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub first_seen: Timestamp,
    /// When it last claimed, waited, or settled or extended a lease.
    #[serde(serialize_with = "time")]
    #[schema(value_type = String, format = DateTime)]
    pub last_seen: Timestamp,
    /// The number of its claims that wait for jobs now.
    pub waiting: u32,
    /// The number of jobs that it has claimed.
    pub claimed: u64,
    /// The number of jobs that it has acked or requeued.
    pub acked: u64,
    /// The number of jobs that it has retried or buried, including retries that made the job dead.
    pub failed: u64,
    /// The number of leases that it has neither settled nor let expire.
    pub held: u64,
    /// The number of its leases that expired before it settled them, as far as this node has ended
    /// them.
    pub expired: u64,
    /// How many of those have expired since it last settled a lease.
    pub expired_in_a_row: u64,
}
