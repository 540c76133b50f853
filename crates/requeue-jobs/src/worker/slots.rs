//! The slots of a worker: which jobs are running, and how many may.

use crate::change_notifier::ChangeNotifier;
use crate::claim::ClaimedJob;
use requeue::{Clock, Moment};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lease::by;

pub(super) struct Slots {
    clock: Clock,
    state: Mutex<SlotState>,
    /// Notified at every change of the state.
    changes: ChangeNotifier,
}

struct SlotState {
    /// How many jobs may run concurrently.
    concurrency: usize,
    /// Whether the worker was shut down: no more jobs are claimed.
    stopped: bool,
    /// Whether the claiming task is running.
    claiming: bool,
    /// The running jobs, by the number of their slot.
    running: BTreeMap<u64, Current>,
    numbered: u64,
}

struct Current {
    job: ClaimedJob,
    started_at: Moment,
}

impl Slots {
    pub(super) fn new(clock: Clock, concurrency: usize) -> Arc<Self> {
        let state = SlotState {
            concurrency,
            stopped: false,
            claiming: false,
            running: BTreeMap::new(),
            numbered: 0,
        };
        Arc::new(Slots { clock, state: Mutex::new(state), changes: ChangeNotifier::default() })
    }

    /// Returns the handle for the claiming task.
    pub(super) fn claims(self: &Arc<Self>) -> Claims {
        self.lock().claiming = true;
        Claims(Arc::clone(self))
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies all that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut SlotState) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.notify();
        result
    }

    fn running(&self) -> Vec<RunningJob> {
        let now = self.clock.now();
        let running = |current: &Current| RunningJob {
            job: current.job.clone(),
            running_for: now.saturating_since(current.started_at),
        };
        self.lock().running.values().map(running).collect()
    }

    /// Waits until the claiming task has ended and no job is running.
    async fn ended(&self) {
        let ended = || {
            let state = self.lock();
            (!state.claiming && state.running.is_empty()).then_some(())
        };
        self.changes.until(ended).await;
    }
}

impl SlotState {
    fn free(&self) -> usize {
        if self.stopped { 0 } else { self.concurrency.saturating_sub(self.running.len()) }
    }
}

/// The claiming task's handle to the slots. Dropping it reports that the task has ended.
pub(super) struct Claims(Arc<Slots>);

impl Claims {
    /// Waits until there are free slots, and returns their number. Returns `None` if the worker was
    /// shut down.
    pub(super) async fn free_slots(&self) -> Option<usize> {
        let free = || {
            let state = self.0.lock();
            if state.stopped {
                return Some(None);
            }
            (state.free() > 0).then(|| Some(state.free()))
        };
        self.0.changes.until(free).await
    }

    /// Waits until there is no free slot.
    pub(super) async fn full(&self) {
        self.0.changes.until(|| (self.0.lock().free() == 0).then_some(())).await;
    }

    /// Returns a slot for a job, or `None` if all are taken.
    pub(super) fn slot(&self, job: &ClaimedJob) -> Option<JobSlot> {
        let started_at = self.0.clock.now();
        let mut state = self.0.lock();
        if state.free() == 0 {
            return None;
        }
        state.numbered += 1;
        let number = state.numbered;
        state.running.insert(number, Current { job: job.clone(), started_at });
        Some(JobSlot { slots: Arc::clone(&self.0), number })
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.0.change(|state| state.claiming = false);
    }
}

/// The slot of a running job. Dropping it frees the slot.
pub(super) struct JobSlot {
    slots: Arc<Slots>,
    number: u64,
}

impl JobSlot {
    /// Returns `true` if the worker was shut down, so that no more jobs may start.
    pub(super) fn is_stopped(&self) -> bool {
        self.slots.lock().stopped
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        let current = self.slots.change(|state| state.running.remove(&self.number));
        drop(current);
    }
}

/// A handle to a running worker. Clones are handles to the same worker.
///
/// The worker runs until it is [shut down](Self::shut_down) or its executor ends. Dropping the
/// handle neither stops the worker nor waits for it.
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue_jobs::{JobWorker, Jobs, MemoryStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// jobs.put("order.close", "order-7", "").await?;
/// let paused = JobWorker::new(&jobs, ["order.close"], "worker-1")?.concurrency(0);
/// let running = paused.spawn(|_run| std::future::pending::<Result<(), _>>()); // the bank hangs
/// running.set_concurrency(8);
/// while running.jobs().is_empty() {
///     tokio::task::yield_now().await;
/// }
/// let left = running.shut_down(Duration::ZERO).await; // claims no more jobs
/// assert_eq!(left[0].job.id().as_str(), "order-7"); // still running
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap() }
/// ```
#[derive(Clone)]
pub struct RunningJobs {
    slots: Arc<Slots>,
}

impl RunningJobs {
    pub(super) fn new(slots: Arc<Slots>) -> Self {
        RunningJobs { slots }
    }

    /// Returns how many jobs may run concurrently.
    pub fn concurrency(&self) -> usize {
        self.slots.lock().concurrency
    }

    /// Sets how many jobs may run concurrently. 0 pauses the worker. Running jobs are not stopped.
    pub fn set_concurrency(&self, jobs: usize) {
        self.slots.change(|state| state.concurrency = jobs);
    }

    /// Returns the running jobs.
    pub fn jobs(&self) -> Vec<RunningJob> {
        self.slots.running()
    }

    /// Waits until the worker has ended. Dropping the future only stops waiting.
    pub fn join(&self) -> impl Future<Output = ()> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        async move { slots.ended().await }
    }

    /// Stops the worker: claims no more jobs, releases those that have not started, and waits at
    /// most `limit` for the running ones. Returns the jobs that are still running then. They
    /// continue, and their leases are extended, as long as the executor runs.
    ///
    /// The shutdown begins with the call, not with the first poll. Dropping the future only stops
    /// waiting.
    pub fn shut_down(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Vec<RunningJob>> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        let end = slots.clock.now().saturating_add(limit);
        slots.change(|state| state.stopped = true);
        async move {
            // Whether the worker has ended or not, the running jobs are returned.
            let _ = by(&slots.clock, end, slots.ended()).await;
            slots.running()
        }
    }
}

impl fmt::Debug for RunningJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningJobs")
            .field("concurrency", &self.concurrency())
            .field("jobs", &self.jobs())
            .finish()
    }
}

/// A job whose handler is running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningJob {
    /// The job, as it was claimed.
    pub job: ClaimedJob,
    /// How long the handler has been running.
    pub running_for: Duration,
}
