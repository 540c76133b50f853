//! The slots of a worker: which jobs are running, and how many may.

use crate::change_notifier::ChangeNotifier;
use crate::claim::ClaimedJob;
use requeue::{Clock, Moment};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
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
    /// How many of the running jobs have not been polled yet.
    starting: usize,
    /// How many of the running jobs the next claim waits for: they were being settled when it could
    /// have been sent. `None` if no claim waits.
    awaited: Option<usize>,
}

struct Current {
    job: ClaimedJob,
    started_at: Moment,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Running,
    /// Being settled: the slot is free when the store responds.
    Settling,
    /// Being settled, and counted in `awaited`.
    Awaited,
}

impl Slots {
    pub(super) fn new(clock: Clock, concurrency: usize) -> Arc<Self> {
        let state = SlotState {
            concurrency,
            stopped: false,
            claiming: false,
            running: BTreeMap::new(),
            numbered: 0,
            starting: 0,
            awaited: None,
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

    /// Returns how many jobs to claim now, or `None` if the claim has to wait. If a slot is free, it
    /// waits for the settlements that are in progress, and for no later ones: a claim of one job
    /// costs as much as a claim of ten, and the store is about to respond.
    fn claimable(&mut self) -> Option<usize> {
        let free = self.free();
        if free == 0 {
            return None;
        }
        let awaited = *self.awaited.get_or_insert_with(|| {
            let settling = self.running.values_mut().filter(|it| it.stage == Stage::Settling);
            settling.map(|current| current.stage = Stage::Awaited).count()
        });
        (awaited == 0).then(|| {
            self.awaited = None;
            free
        })
    }

    fn set_stage(&mut self, number: u64, stage: Stage) {
        if let Some(current) = self.running.get_mut(&number) {
            let before = mem::replace(&mut current.stage, stage);
            self.leave(before);
        }
    }

    /// Takes a job out of the count of its stage.
    fn leave(&mut self, stage: Stage) {
        match stage {
            Stage::Starting => self.starting -= 1,
            Stage::Awaited => self.awaited = self.awaited.map(|awaited| awaited - 1),
            Stage::Running | Stage::Settling => {}
        }
    }
}

/// The claiming task's handle to the slots. Dropping it reports that the task has ended.
pub(super) struct Claims(Arc<Slots>);

impl Claims {
    /// Waits until there are free slots to claim jobs for, and returns their number. Returns `None` if
    /// the worker was shut down.
    pub(super) async fn free_slots(&self) -> Option<usize> {
        let free = || {
            let mut state = self.0.lock();
            if state.stopped {
                return Some(None);
            }
            state.claimable().map(Some)
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
        let current = Current { job: job.clone(), started_at, stage: Stage::Starting };
        state.running.insert(number, current);
        state.starting += 1;
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
    /// Records that the job's task runs. Returns `false` if the worker was shut down, so that no more
    /// jobs may start.
    pub(super) fn start(&self) -> bool {
        let mut state = self.slots.lock();
        state.set_stage(self.number, Stage::Running);
        !state.stopped
    }

    /// Records that the job is being settled. Returns `true` if other jobs are about to start, which
    /// may be settled as soon.
    pub(super) fn begin_settling(&self) -> bool {
        let mut state = self.slots.lock();
        state.set_stage(self.number, Stage::Settling);
        state.starting > 0
    }

    /// Records that it is not known when the job will be settled.
    pub(super) fn delay_settling(&self) {
        self.slots.change(|state| state.set_stage(self.number, Stage::Running));
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        let current = state.running.remove(&self.number);
        current.iter().for_each(|current| state.leave(current.stage));
        // The claiming task is not woken while it has to wait for more.
        let notifies = state.awaited.is_none_or(|awaited| awaited == 0) || state.running.is_empty();
        drop(state);
        drop(current);
        if notifies {
            self.slots.changes.notify();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Body;
    use crate::names::{JobId, Kind};
    use crate::receipt::{Fence, Generation, Receipt};

    fn taken(slots: &Arc<Slots>, count: usize) -> Vec<JobSlot> {
        let (kind, id) = (Kind::new("k").expect("valid"), JobId::new("i").expect("valid"));
        let receipt = Receipt::new(kind, id, Fence(1), 1);
        let job = ClaimedJob::new(receipt, Body::default(), Generation(1));
        let claims = slots.claims();
        (0..count).map(|_| claims.slot(&job).expect("a free slot")).collect()
    }

    #[test]
    fn a_claim_waits_for_the_settlements_in_progress_but_not_for_later_ones() {
        let slots = Slots::new(Clock::system(), 4);
        let mut jobs = taken(&slots, 4);
        assert!(jobs.iter().all(JobSlot::start));
        assert_eq!(slots.lock().claimable(), None, "no slot is free");
        jobs[0].begin_settling();
        jobs[1].begin_settling();
        drop(jobs.remove(0));
        assert_eq!(slots.lock().claimable(), None);
        jobs[1].begin_settling();
        drop(jobs.remove(0));
        assert_eq!(slots.lock().claimable(), Some(2));
        assert_eq!(slots.lock().claimable(), None, "the third is being settled now");
        drop(jobs);
        assert_eq!(slots.lock().claimable(), Some(4));
    }

    #[test]
    fn a_claim_does_not_wait_for_a_settlement_that_is_repeated_later() {
        let slots = Slots::new(Clock::system(), 2);
        let mut jobs = taken(&slots, 2);
        for job in &jobs {
            job.begin_settling();
        }
        drop(jobs.pop());
        assert_eq!(slots.lock().claimable(), None);
        jobs[0].delay_settling();
        assert_eq!(slots.lock().claimable(), Some(1));
    }

    #[test]
    fn a_settlement_gathers_others_only_while_jobs_are_about_to_start() {
        let slots = Slots::new(Clock::system(), 3);
        let jobs = taken(&slots, 3);
        assert!(jobs[0].start() && jobs[1].start());
        assert!(jobs[0].begin_settling());
        assert!(jobs[2].start());
        assert!(!jobs[2].begin_settling());
    }
}
