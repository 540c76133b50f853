//! Who works on which job, and how many may.

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
    /// Rung at every change of the state.
    changes: ChangeNotifier,
}

struct SlotState {
    /// How many jobs may be worked on at once.
    wanted: usize,
    /// No more jobs are claimed.
    stopped: bool,
    /// Whether somebody claims jobs.
    claims: bool,
    /// What is worked on.
    running: BTreeMap<u64, Current>,
    numbered: u64,
}

struct Current {
    job: ClaimedJob,
    started_at: Moment,
}

impl Slots {
    pub(super) fn new(clock: Clock, wanted: usize) -> Arc<Self> {
        let state = SlotState {
            wanted,
            stopped: false,
            claims: false,
            running: BTreeMap::new(),
            numbered: 0,
        };
        Arc::new(Slots { clock, state: Mutex::new(state), changes: ChangeNotifier::default() })
    }

    /// For the one who claims jobs.
    pub(super) fn claims(self: &Arc<Self>) -> Claims {
        self.lock().claims = true;
        Claims(Arc::clone(self))
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells all who wait for it.
    fn change<T>(&self, change: impl FnOnce(&mut SlotState) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changes.notify();
        answer
    }

    fn running(&self) -> Vec<RunningJob> {
        let now = self.clock.now();
        let running = |current: &Current| RunningJob {
            job: current.job.clone(),
            running_for: now.saturating_since(current.started_at),
        };
        self.lock().running.values().map(running).collect()
    }

    /// Waits until no job is claimed or worked on any more.
    async fn ended(&self) {
        let ended = || {
            let state = self.lock();
            (!state.claims && state.running.is_empty()).then_some(())
        };
        self.changes.until(ended).await;
    }
}

impl SlotState {
    fn room(&self) -> usize {
        if self.stopped { 0 } else { self.wanted.saturating_sub(self.running.len()) }
    }
}

/// The right to claim jobs, given up when dropped.
pub(super) struct Claims(Arc<Slots>);

impl Claims {
    /// Waits until there is room for so many jobs. `None`: there never will be.
    pub(super) async fn room(&self) -> Option<usize> {
        let room = || {
            let state = self.0.lock();
            if state.stopped {
                return Some(None);
            }
            (state.room() > 0).then(|| Some(state.room()))
        };
        self.0.changes.until(room).await
    }

    /// Waits until there is no room.
    pub(super) async fn no_room(&self) {
        self.0.changes.until(|| (self.0.lock().room() == 0).then_some(())).await;
    }

    /// A slot for a job, if there is room.
    pub(super) fn slot(&self, job: &ClaimedJob) -> Option<JobSlot> {
        let started_at = self.0.clock.now();
        let mut state = self.0.lock();
        if state.room() == 0 {
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
        self.0.change(|state| state.claims = false);
    }
}

/// A job that is worked on, until this is dropped.
pub(super) struct JobSlot {
    slots: Arc<Slots>,
    number: u64,
}

impl JobSlot {
    /// Whether no more jobs are to be begun.
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

/// A worker that runs. Clones are handles to the same one.
///
/// It runs until it is [shut down](Self::shut_down), or its executor ends. Dropping this neither
/// stops it nor waits for it.
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
/// assert_eq!(left[0].job.id().as_str(), "order-7"); // still at it
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

    /// How many jobs may be worked on at once.
    pub fn concurrency(&self) -> usize {
        self.slots.lock().wanted
    }

    /// Works on so many jobs at once from now on. Of 0, none: it pauses. Those that are worked on
    /// are finished.
    pub fn set_concurrency(&self, jobs: usize) {
        self.slots.change(|state| state.wanted = jobs);
    }

    /// What is worked on.
    pub fn jobs(&self) -> Vec<RunningJob> {
        self.slots.running()
    }

    /// Waits until the worker has ended. Dropping it only stops waiting.
    pub fn join(&self) -> impl Future<Output = ()> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        async move { slots.ended().await }
    }

    /// Claims no more jobs, gives back those that are not begun, and waits for those that are
    /// worked on, for at most `limit`. Answers what is then still worked on: it goes on, and its
    /// leases are extended, for as long as the executor lives.
    ///
    /// Begun by this call, not by the first poll. Dropping the answer only stops waiting.
    pub fn shut_down(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Vec<RunningJob>> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        let end = slots.clock.now().saturating_add(limit);
        slots.change(|state| state.stopped = true);
        async move {
            // Whether it ended or time is up, what is left is told.
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

/// A job that is worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningJob {
    /// The job, as it was claimed.
    pub job: ClaimedJob,
    /// How long this attempt has taken so far.
    pub running_for: Duration,
}
