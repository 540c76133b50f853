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
    /// How many of the running jobs are in each stage.
    stages: [usize; STAGES],
    /// Whether settlements wait for others that are expected.
    /// Invariant: if so, at least one job is settling.
    gathering: bool,
    /// For how many claimed jobs the claiming task needs slots.
    wanted: usize,
}

struct Current {
    job: ClaimedJob,
    started_at: Moment,
    stage: Stage,
}

/// ```text
///   New --> Starting --> Running <--------------+ the settlement failed, and is repeated later
///               |           |                   |
///               +-----------+--> Settling --> Replaced --> Settled
///                                   |      a job is claimed     ^
///                                   +---------------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its task was not polled yet.
    New,
    /// Its handler's future is polled for the first time.
    Starting,
    Running,
    Settling,
    /// Settling, and another job was claimed for its slot.
    Replaced,
    /// Settled: the slot is about to become free.
    Settled,
}

const STAGES: usize = 6;

impl Slots {
    pub(super) fn new(clock: Clock, concurrency: usize) -> Arc<Self> {
        let state = SlotState {
            concurrency,
            stopped: false,
            claiming: false,
            running: BTreeMap::new(),
            numbered: 0,
            stages: [0; STAGES],
            gathering: false,
            wanted: 0,
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

    fn count(&self, stage: Stage) -> usize {
        self.stages[stage as usize]
    }

    /// Returns how many jobs to claim now: one for each free slot, and for each that becomes free when
    /// the store responds. 0 as long as jobs have to start first, or settlements are gathered: the claim
    /// and the settlements are then sent together, and a claim of one job costs as much as one of ten.
    fn claimable(&self) -> usize {
        if self.stopped || self.gathering || self.count(Stage::New) > 0 {
            return 0;
        }
        let staying = self.running.len() - self.count(Stage::Settling);
        self.concurrency.saturating_sub(staying)
    }

    /// Returns how many jobs to claim, and expects that this is done; `None` if the claim has to wait.
    fn claim(&mut self) -> Option<usize> {
        let count = self.claimable();
        if count > 0 && self.count(Stage::Settling) > 0 {
            for current in self.running.values_mut().filter(|it| it.stage == Stage::Settling) {
                current.stage = Stage::Replaced;
            }
            self.stages[Stage::Replaced as usize] +=
                mem::take(&mut self.stages[Stage::Settling as usize]);
        }
        (count > 0).then_some(count)
    }

    /// Whether the claiming task need not wait longer for `wanted` slots: they are free, or no more
    /// slots will be free soon.
    fn has_room(&self) -> bool {
        let free = self.free();
        let settles = self.count(Stage::Replaced) > 0;
        let is_last = free > 0 || self.count(Stage::Settled) == 0;
        self.stopped || free >= self.wanted || !settles && is_last
    }

    fn set_stage(&mut self, number: u64, stage: Stage) {
        if let Some(current) = self.running.get_mut(&number) {
            let before = mem::replace(&mut current.stage, stage);
            self.stages[stage as usize] += 1;
            self.leave(before);
        }
    }

    /// Takes a job out of the count of its stage.
    fn leave(&mut self, stage: Stage) {
        self.stages[stage as usize] -= 1;
        if self.count(Stage::Settling) == 0 {
            self.gathering = false;
        }
    }

    /// Whether the claiming task, or a caller that waits for the end, has something to do.
    fn is_notable(&self) -> bool {
        let claims = if self.wanted > 0 { self.has_room() } else { self.claimable() > 0 };
        claims || self.running.is_empty()
    }
}

/// The claiming task's handle to the slots. Dropping it reports that the task has ended.
pub(super) struct Claims(Arc<Slots>);

impl Claims {
    /// Waits until there are slots to claim jobs for, and returns their number. Returns `None` if the
    /// worker was shut down.
    pub(super) async fn free_slots(&self) -> Option<usize> {
        let free = || {
            let mut state = self.0.lock();
            // If the claiming task has given up waiting for slots, it needs none any more.
            state.wanted = 0;
            if state.stopped {
                return Some(None);
            }
            state.claim().map(Some)
        };
        self.0.changes.until(free).await
    }

    /// Waits until there are slots for `jobs` jobs, or no more slots become free soon.
    pub(super) async fn room(&self, jobs: usize) {
        let has_room = || {
            let mut state = self.0.lock();
            state.wanted = jobs;
            state.has_room().then(|| state.wanted = 0)
        };
        self.0.changes.until(has_room).await;
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
        let current = Current { job: job.clone(), started_at, stage: Stage::New };
        state.running.insert(number, current);
        state.stages[Stage::New as usize] += 1;
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
        state.set_stage(self.number, Stage::Starting);
        !state.stopped
    }

    /// Records that the handler did not end when it was polled for the first time.
    pub(super) fn run(&self) {
        self.set_stage(Stage::Running);
    }

    /// Records that the job is about to be settled.
    pub(super) fn begin_settling(&self) {
        self.slots.lock().set_stage(self.number, Stage::Settling);
    }

    /// Returns whether other jobs may be settled together with this one: those that have not started,
    /// and those whose handlers may end immediately. `waits` is whether this one would wait for them.
    pub(super) fn expects_others(&self, waits: bool) -> bool {
        let mut state = self.slots.lock();
        let others = state.count(Stage::New) + state.count(Stage::Starting);
        state.gathering = waits && others > 0;
        state.gathering
    }

    /// Lets the next claim be sent, without waiting for the response to the settlement, unless that is
    /// gathering others and was not sent yet.
    pub(super) fn sent_if_not_gathering(&self) {
        self.notify_if(self.slots.lock());
    }

    /// Records that it is not known when the job will be settled.
    pub(super) fn delay_settling(&self) {
        self.set_stage(Stage::Running);
    }

    /// Records that the job is settled.
    pub(super) fn end_settling(&self) {
        self.slots.lock().set_stage(self.number, Stage::Settled);
    }

    fn set_stage(&self, stage: Stage) {
        let mut state = self.slots.lock();
        state.set_stage(self.number, stage);
        self.notify_if(state);
    }

    /// Notifies those that wait, unless they would have to wait on.
    fn notify_if(&self, state: MutexGuard<'_, SlotState>) {
        let is_notable = state.is_notable();
        drop(state);
        if is_notable {
            self.slots.changes.notify();
        }
    }
}

impl Drop for JobSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        let current = state.running.remove(&self.number);
        current.iter().for_each(|current| state.leave(current.stage));
        self.notify_if(state);
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

    fn claim(slots: &Slots) -> Option<usize> {
        slots.lock().claim()
    }

    #[test]
    fn a_claim_is_for_the_free_slots_and_for_those_of_settlements_that_were_sent() {
        let slots = Slots::new(Clock::system(), 4);
        assert_eq!(claim(&slots), Some(4));
        let mut jobs = taken(&slots, 3);
        assert_eq!(claim(&slots), None, "they have not started");
        assert!(jobs.iter().all(JobSlot::start));
        assert_eq!(claim(&slots), Some(1));
        jobs.push(taken(&slots, 1).remove(0));
        assert!(jobs[3].start());
        jobs.iter().for_each(JobSlot::run);
        assert_eq!(claim(&slots), None);
        jobs[0].begin_settling();
        jobs[1].begin_settling();
        assert_eq!(claim(&slots), Some(2));
        assert_eq!(claim(&slots), None, "they are replaced already");
        jobs[2].begin_settling();
        assert_eq!(claim(&slots), Some(1));
        slots.lock().concurrency = 2;
        jobs[3].begin_settling();
        assert_eq!(claim(&slots), None);
    }

    #[test]
    fn claimed_jobs_wait_for_the_slots_of_settlements_in_progress_and_for_no_others() {
        let slots = Slots::new(Clock::system(), 3);
        let mut jobs = taken(&slots, 3);
        jobs.iter().for_each(|job| assert!(job.start()));
        jobs.iter().for_each(JobSlot::begin_settling);
        assert_eq!(claim(&slots), Some(3));
        slots.lock().wanted = 3;
        assert!(!slots.lock().has_room());
        jobs[0].delay_settling();
        jobs[1].end_settling();
        drop(jobs.remove(1));
        assert!(!slots.lock().has_room(), "one is still being settled");
        jobs[1].end_settling();
        assert!(slots.lock().has_room(), "a slot is free, and no settlement is in progress");
        let job = taken(&slots, 1);
        slots.lock().wanted = 2;
        assert!(!slots.lock().has_room(), "another slot is about to become free");
        drop((jobs.remove(1), job));
        assert!(slots.lock().has_room());
    }

    #[test]
    fn settlements_are_gathered_while_jobs_are_about_to_start_and_no_claim_is_made_meanwhile() {
        let slots = Slots::new(Clock::system(), 4);
        let mut jobs = taken(&slots, 3);
        assert!(jobs[0].start() && jobs[1].start());
        jobs[0].begin_settling();
        assert!(jobs[0].expects_others(true));
        assert!(jobs[2].start());
        assert!(jobs[0].expects_others(true), "the first polls have not ended");
        assert_eq!(claim(&slots), None);
        jobs[1].run();
        assert!(!jobs[0].expects_others(false), "it does not wait any longer");
        assert_eq!(claim(&slots), Some(2));
        jobs[1].begin_settling();
        assert!(jobs[1].expects_others(true));
        drop(jobs.remove(1));
        assert_eq!(claim(&slots), Some(2), "nobody gathers any more");
        jobs[1].begin_settling();
        assert!(!jobs[1].expects_others(true));
    }
}
