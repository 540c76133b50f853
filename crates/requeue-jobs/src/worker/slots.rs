//! The slots of a worker: which jobs are running, and how many may.

use crate::change_notifier::ChangeNotifier;
use crate::claim::ClaimedJob;
use requeue::{Clock, Moment};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::kind_slots::{ClaimGroup, KindSlots};
use super::running::RunningJob;

pub(super) struct Slots {
    pub(super) clock: Clock,
    state: Mutex<SlotState>,
    /// Notified at every change of the state.
    changes: ChangeNotifier,
    /// Whether running handlers are stopped. Not in the state, because every poll of a handler that
    /// is pending reads it.
    stops_handlers: AtomicBool,
    /// Notified once, when running handlers are stopped.
    stops: ChangeNotifier,
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
    /// The slots of each kind. `None` if no kind has a limit of its own.
    kinds: Option<KindSlots>,
    /// The jobs whose handlers were stopped, by the number of their slot.
    stopped_jobs: BTreeMap<u64, RunningJob>,
}

struct Current {
    job: ClaimedJob,
    started_at: Moment,
    stage: Stage,
}

impl Current {
    fn running(&self, now: Moment) -> RunningJob {
        let running_for = now.saturating_since(self.started_at);
        RunningJob { job: self.job.clone(), running_for }
    }
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
    pub(super) fn new(clock: Clock, concurrency: usize, kinds: Option<KindSlots>) -> Arc<Self> {
        let state = SlotState {
            concurrency,
            stopped: false,
            claiming: false,
            running: BTreeMap::new(),
            numbered: 0,
            stages: [0; STAGES],
            gathering: false,
            wanted: 0,
            kinds,
            stopped_jobs: BTreeMap::new(),
        };
        Arc::new(Slots {
            clock,
            state: Mutex::new(state),
            changes: ChangeNotifier::default(),
            stops_handlers: AtomicBool::new(false),
            stops: ChangeNotifier::default(),
        })
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

    /// Returns how many jobs may run concurrently.
    pub(super) fn concurrency(&self) -> usize {
        self.lock().concurrency
    }

    pub(super) fn set_concurrency(&self, jobs: usize) {
        self.change(|state| state.concurrency = jobs);
    }

    /// Lets no more jobs start.
    pub(super) fn shut_down(&self) {
        self.change(|state| state.stopped = true);
    }

    pub(super) fn running(&self) -> Vec<RunningJob> {
        let now = self.clock.now();
        self.lock().running.values().map(|current| current.running(now)).collect()
    }

    /// Stops the handlers that run.
    pub(super) fn stop_handlers(&self) {
        self.stops_handlers.store(true, Ordering::Release);
        self.stops.notify();
    }

    /// Returns the jobs whose handlers were stopped, and those that are still running.
    pub(super) fn stopped(&self) -> Vec<RunningJob> {
        let now = self.clock.now();
        let state = self.lock();
        let mut jobs = state.stopped_jobs.clone();
        for (number, current) in &state.running {
            jobs.entry(*number).or_insert_with(|| current.running(now));
        }
        jobs.into_values().collect()
    }

    /// Waits until the claiming task has ended and no job is running.
    pub(super) async fn ended(&self) {
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

    /// Returns what to claim, and expects that this is done; `None` if the claim has to wait.
    fn claim(&mut self) -> Option<FreeSlots> {
        let count = self.claimable();
        if count == 0 {
            return None;
        }
        let groups = self.kinds.as_mut().map(|kinds| kinds.groups(count));
        if groups.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        if self.count(Stage::Settling) > 0 {
            for current in self.running.values_mut().filter(|it| it.stage == Stage::Settling) {
                current.stage = Stage::Replaced;
            }
            self.stages[Stage::Replaced as usize] +=
                mem::take(&mut self.stages[Stage::Settling as usize]);
        }
        Some(FreeSlots { count, groups })
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
        claims || self.running.is_empty() || self.has_freed_kind()
    }

    /// Whether there is a kind that may be claimed and that the last claim did not contain.
    fn has_freed_kind(&self) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| kinds.freed)
    }
}

/// What the claiming task may claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FreeSlots {
    /// How many jobs of all kinds together.
    pub(super) count: usize,
    /// The claims to make. `None` is one claim of all kinds.
    pub(super) groups: Option<Vec<ClaimGroup>>,
}

/// The claiming task's handle to the slots. Dropping it reports that the task has ended.
pub(super) struct Claims(Arc<Slots>);

impl Claims {
    /// Waits until there are slots to claim jobs for, and returns them. Returns `None` if the worker was
    /// shut down.
    pub(super) async fn free_slots(&self) -> Option<FreeSlots> {
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

    /// Waits until there is no free slot, or a kind that the last claim did not contain may be claimed.
    pub(super) async fn changed(&self) {
        let has_changed = || {
            let state = self.0.lock();
            (state.free() == 0 || state.has_freed_kind()).then_some(())
        };
        self.0.changes.until(has_changed).await;
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
        if let Some(kinds) = &mut state.kinds {
            kinds.take(job.kind());
        }
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

    /// Waits until the handlers are stopped.
    pub(super) async fn until_stop(&self) {
        let mut listener = self.slots.stops.listener();
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            if !registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                listener.listen(cx.waker());
                registered = Some(cx.waker().clone());
            }
            match self.slots.stops_handlers.load(Ordering::Acquire) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Records that the handler was stopped.
    pub(super) fn record_stopped(&self) {
        let now = self.slots.clock.now();
        let mut state = self.slots.lock();
        if let Some(current) = state.running.get(&self.number) {
            let job = current.running(now);
            state.stopped_jobs.insert(self.number, job);
        }
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
        if let Some(current) = &current {
            state.leave(current.stage);
            if let Some(kinds) = &mut state.kinds {
                kinds.free(current.job.kind());
            }
        }
        self.notify_if(state);
        drop(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{JobId, Kind};
    use crate::receipt::{Fence, Receipt};
    use crate::version::Version;

    fn taken(slots: &Arc<Slots>, count: usize) -> Vec<JobSlot> {
        let (kind, id) = (Kind::new("k").expect("valid"), JobId::new("i").expect("valid"));
        let receipt = Receipt::new(kind, id, Fence(1), 1);
        let job = ClaimedJob::new(receipt, Version::default());
        let claims = slots.claims();
        (0..count).map(|_| claims.slot(&job).expect("a free slot")).collect()
    }

    fn claim(slots: &Slots) -> Option<usize> {
        slots.lock().claim().map(|free| free.count)
    }

    #[test]
    fn a_claim_is_for_the_free_slots_and_for_those_of_settlements_that_were_sent() {
        let slots = Slots::new(Clock::system(), 4, None);
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
        let slots = Slots::new(Clock::system(), 3, None);
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
        let slots = Slots::new(Clock::system(), 4, None);
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
