//! The runners of one worker, and what each of them is doing.
//!
//! Runners are numbered from 0, and each has a slot. A runner continues while its number is below
//! the wanted number of runners:
//!
//! - If more are wanted, the vacant slots are filled.
//! - If fewer are wanted, the runners with the higher numbers end: immediately if they are idle, else
//!   after their key.
//! - If a runner that should end is wanted again before it has ended, it continues.
//!
//! For each key, a runner locks only its own slot. Nobody else locks that slot, except to list the
//! running keys. The slots as a whole are locked when a runner starts or ends.

use crate::clock::{Clock, Moment};
use crate::guarded::guarded;
use crate::metrics::WorkerRecorder;
use crate::shell::wake_all;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::waiters::{Notice, Waiter, WaiterKind, Waiters};
use crate::worker::running::RunningKey;
use std::io;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

/// The maximum number of runners of a worker. A higher concurrency, such as `usize::MAX`, is reduced
/// to it. Each runner uses memory, even while it waits for a key.
pub const MAX_CONCURRENCY: usize = 1 << 16;

pub(super) struct Runners<K> {
    clock: Clock,
    /// The wanted number of runners. It changes only under the lock of `slots`.
    wanted: AtomicUsize,
    slots: Mutex<RunnerSlots<K>>,
    /// Weak, so that a runner that is just ending does not keep the name of the worker in use.
    recorder: Weak<WorkerRecorder>,
}

/// Starts a runner. If that fails, it calls [`Runner::not_started`] and returns the error.
pub(super) type StartRunner<K> = Arc<dyn Fn(Runner<K>) -> io::Result<()> + Send + Sync>;

struct RunnerSlots<K> {
    /// By the number of the runner. `None` is a vacant slot.
    by_number: Vec<Option<Arc<RunnerSlot<K>>>>,
    /// The number of runners that have not ended, with a slot or without.
    runners: usize,
    /// No runner is started any more: the worker was stopped, or the queue or the executor has ended.
    closed: bool,
    /// Callers that wait until the worker has ended. They are also notified when a runner starts a
    /// key, because a shutdown whose limit has passed waits for that.
    joins: Waiters,
}

struct RunnerSlot<K>(Mutex<Activity<K>>);

/// What a runner is doing.
enum Activity<K> {
    /// It may take a key before it next checks whether it is dismissed.
    Taking,
    /// It checks whether it is dismissed before it takes a key. If it is waiting, the waker wakes it.
    Idle(Option<Waker>),
    /// It is processing a key.
    Running(Current<K>),
}

struct Current<K> {
    key: K,
    attempt: u32,
    started_at: Moment,
}

impl<K> Runners<K> {
    /// Returns the state of a worker without runners.
    pub(super) fn new(clock: Clock, recorder: Option<&Arc<WorkerRecorder>>) -> Arc<Self> {
        let joins = Waiters::new(WaiterKind::WorkOffs);
        let slots =
            Mutex::new(RunnerSlots { by_number: Vec::new(), runners: 0, closed: false, joins });
        let recorder = recorder.map_or_else(Weak::new, Arc::downgrade);
        Arc::new(Runners { clock, wanted: AtomicUsize::new(0), slots, recorder })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn concurrency(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Sets the wanted number of runners, and starts those that are missing. Has no effect once the
    /// slots are closed.
    pub(super) fn set_concurrency(
        self: &Arc<Self>,
        wanted: usize,
        start: &StartRunner<K>,
    ) -> io::Result<()> {
        let wanted = wanted.min(MAX_CONCURRENCY);
        let slots = self.slots.lock();
        if slots.closed {
            return Ok(());
        }
        let surplus = self.want(wanted, &slots);
        drop(slots);
        wake_idle(surplus);
        // One by one, without the lock, because an executor that has ended drops a runner immediately,
        // and that locks the slots.
        for number in 0..wanted {
            if let Some(runner) = self.fill_slot(number) {
                start(runner).inspect_err(|_| self.want_at_most(number))?;
            }
        }
        Ok(())
    }

    /// Sets the wanted number of runners, and returns the slots of the surplus ones.
    fn want(&self, wanted: usize, slots: &RunnerSlots<K>) -> Vec<Arc<RunnerSlot<K>>> {
        self.wanted.store(wanted, Ordering::Release);
        if let Some(recorder) = self.recorder.upgrade() {
            recorder.set_concurrency(wanted);
        }
        slots.by_number.iter().skip(wanted).flatten().cloned().collect()
    }

    /// Reduces the wanted number of runners, because the next one could not be started.
    fn want_at_most(&self, runners: usize) {
        let slots = self.slots.lock();
        if self.concurrency() > runners {
            let surplus = self.want(runners, &slots);
            drop(slots);
            wake_idle(surplus);
        }
    }

    /// Returns a runner with this number, if one is wanted and the slot is vacant.
    fn fill_slot(self: &Arc<Self>, number: usize) -> Option<Runner<K>> {
        let mut slots = self.slots.lock();
        if slots.closed || number >= self.concurrency() {
            return None;
        }
        if number >= slots.by_number.len() {
            slots.by_number.resize_with(number + 1, || None);
        }
        let vacant = slots.by_number[number].is_none();
        let slot = vacant.then(|| Arc::new(RunnerSlot(Mutex::new(Activity::Idle(None)))))?;
        slots.by_number[number] = Some(Arc::clone(&slot));
        slots.runners += 1;
        Some(Runner { runners: Arc::clone(self), slot, number })
    }

    /// Dismisses all runners. No runner is started any more.
    pub(super) fn stop(&self) {
        let mut slots = self.slots.lock();
        slots.closed = true;
        let surplus = self.want(0, &slots);
        let notices = slots.notices();
        drop(slots);
        wake_idle(surplus);
        wake_all(notices);
    }

    /// Returns `Ready` once the slots are closed and every runner has ended.
    pub(super) fn poll_ended(&self, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        let mut slots = self.slots.lock();
        let (old, ended) = match slots.has_ended() {
            true => (slots.joins.leave(waiter), Poll::Ready(())),
            false => (slots.joins.register(waiter, waker), Poll::Pending),
        };
        drop(slots);
        drop(old);
        ended
    }

    pub(super) fn leave_joins(&self, waiter: &mut Waiter) {
        let old = self.slots.lock().joins.leave(waiter);
        drop(old);
    }
}

impl<K: Clone> Runners<K> {
    pub(super) fn running(&self) -> Vec<RunningKey<K>> {
        self.activities().0
    }

    /// Returns the keys that are still being processed after [`stop`](Self::stop). Returns `None` while
    /// a runner may be taking a key. When that runner has started a key or ended, those who wait for
    /// the end are notified.
    pub(super) fn left(&self) -> Option<Vec<RunningKey<K>>> {
        let (running, taking) = self.activities();
        (!taking).then_some(running)
    }

    /// Returns the keys that are being processed, and whether a runner may be taking a key.
    fn activities(&self) -> (Vec<RunningKey<K>>, bool) {
        let slots = self.slots.lock().by_number.clone();
        let now = self.clock.now();
        let (mut running, mut taking) = (Vec::new(), false);
        for (runner, slot) in slots.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            match &*slot.0.lock() {
                Activity::Taking => taking = true,
                Activity::Idle(_) => {}
                Activity::Running(current) => running.push(RunningKey {
                    runner,
                    key: current.key.clone(),
                    attempt: current.attempt,
                    running_for: now.saturating_since(current.started_at),
                }),
            }
        }
        (running, taking)
    }
}

impl<K> RunnerSlots<K> {
    fn has_ended(&self) -> bool {
        self.closed && self.runners == 0
    }

    /// Vacates the slot of a runner. Returns `false` if it had already left its slot.
    fn vacate(&mut self, runner: &Runner<K>) -> bool {
        let slot = &mut self.by_number[runner.number];
        // Another runner may have the slot by now.
        let mine = slot.as_ref().is_some_and(|slot| Arc::ptr_eq(slot, &runner.slot));
        if mine {
            *slot = None;
        }
        mine
    }

    /// Returns the notifications for those who wait for the end, if the worker is stopping. Called
    /// when a runner has ended or started a key.
    fn notices(&mut self) -> Vec<Notice> {
        if self.closed { self.joins.notify_all() } else { Vec::new() }
    }
}

/// Wakes the idle runners among these. The others check by themselves after their key.
fn wake_idle<K>(slots: Vec<Arc<RunnerSlot<K>>>) {
    for slot in slots {
        let mut activity = slot.0.lock();
        if let Activity::Idle(waker) = &mut *activity
            && let Some(waker) = waker.take()
        {
            drop(activity);
            drop(guarded(|| waker.wake()));
        }
    }
}

/// A runner. It has a slot until it is dismissed.
///
/// If it is dropped while it has its slot, it closes the slots, because then the queue or the executor
/// has ended.
pub(super) struct Runner<K> {
    runners: Arc<Runners<K>>,
    slot: Arc<RunnerSlot<K>>,
    number: usize,
}

impl<K> Runner<K> {
    /// Returns `true` if the runner has to end. It has then left its slot.
    pub(super) fn is_dismissed(&self) -> bool {
        if self.number < self.runners.concurrency() {
            return false;
        }
        let mut slots = self.runners.slots.lock();
        // Checked again under the lock, because the runner may be wanted again meanwhile.
        let dismissed = self.number >= self.runners.concurrency();
        if dismissed {
            slots.vacate(self);
        }
        dismissed
    }

    /// Vacates the slot of a runner that could not be started. The slots stay open.
    pub(super) fn not_started(self) {
        self.runners.slots.lock().vacate(&self);
    }

    /// From now on the runner may take a key, unless it is [dismissed](Self::is_dismissed).
    ///
    /// The runner calls this first, and then checks whether it is dismissed. So if it is dismissed and
    /// then seen idle, it will notice the dismissal before it takes a key.
    pub(super) fn set_taking(&self) {
        drop(self.set_activity(Activity::Taking));
    }

    /// The runner takes no key before it calls [`set_taking`](Self::set_taking). `waker` wakes it if it
    /// is dismissed.
    pub(super) fn set_idle(&self, waker: Option<&Waker>) {
        drop(self.set_activity(Activity::Idle(waker.cloned())));
    }

    /// Adds the key to the running keys.
    pub(super) fn start_running(&self, key: K, attempt: u32, started_at: Moment) {
        drop(self.set_activity(Activity::Running(Current { key, attempt, started_at })));
        if self.number >= self.runners.concurrency() {
            let notices = self.runners.slots.lock().notices();
            wake_all(notices);
        }
    }

    /// Removes the key from the running keys and returns it. The runner may then take another.
    pub(super) fn stop_running(&self) -> Option<K> {
        match self.set_activity(Activity::Taking) {
            Activity::Running(current) => Some(current.key),
            Activity::Taking | Activity::Idle(_) => None,
        }
    }

    /// Returns the previous activity, so that the caller drops it without the lock.
    fn set_activity(&self, activity: Activity<K>) -> Activity<K> {
        mem::replace(&mut *self.slot.0.lock(), activity)
    }
}

impl<K> Drop for Runner<K> {
    fn drop(&mut self) {
        let mut slots = self.runners.slots.lock();
        slots.closed |= slots.vacate(self);
        slots.runners -= 1;
        if slots.has_ended() {
            self.runners.want(0, &slots);
        }
        let notices = slots.notices();
        drop(slots);
        wake_all(notices);
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;

    type Started = Arc<Mutex<Vec<Runner<u32>>>>;

    /// A system that has at most this many threads, and the runners that it has started.
    fn runners(threads: usize) -> (Arc<Runners<u32>>, StartRunner<u32>, Started) {
        let started = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&started);
        let start = move |runner: Runner<u32>| {
            let mut started = shared.lock();
            if started.len() == threads {
                runner.not_started();
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            started.push(runner);
            Ok(())
        };
        (Runners::new(Clock::default(), None), Arc::new(start), started)
    }

    fn has_ended(runners: &Runners<u32>) -> bool {
        runners.poll_ended(&mut Waiter::for_task(), Waker::noop()).is_ready()
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_an_error_and_does_not_end_the_worker() {
        let (runners, start, started) = runners(2);
        assert!(runners.set_concurrency(3, &start).is_err());
        assert_eq!((started.lock().len(), runners.concurrency()), (2, 2));
        assert!(runners.set_concurrency(2, &start).is_ok());
        runners.set_concurrency(0, &start).expect("no runner is started");
        let dismissed = mem::take(&mut *started.lock());
        assert!(dismissed.iter().all(Runner::is_dismissed));
        drop(dismissed);
        assert!(!has_ended(&runners));
        runners.set_concurrency(2, &start).expect("two runners are started");
        assert_eq!(started.lock().len(), 2);
    }

    #[test]
    fn if_a_runner_ends_by_itself_no_other_is_started_and_the_worker_ends_after_the_last() {
        let (runners, start, started) = runners(2);
        runners.set_concurrency(2, &start).expect("two runners are started");
        let last = started.lock().pop();
        let first = started.lock().pop();
        drop(first);
        assert!(!has_ended(&runners));
        runners.set_concurrency(2, &start).expect("no runner is started");
        assert!(started.lock().is_empty());
        drop(last);
        assert!(has_ended(&runners));
    }

    #[test]
    fn a_runner_that_has_left_its_slot_does_not_vacate_it_again() {
        let (runners, start, started) = runners(9);
        runners.set_concurrency(1, &start).expect("one runner is started");
        let first = started.lock().pop();
        runners.set_concurrency(0, &start).expect("no runner is started");
        assert!(first.as_ref().is_some_and(Runner::is_dismissed));
        runners.set_concurrency(1, &start).expect("one runner is started");
        drop(first);
        runners.set_concurrency(1, &start).expect("the runner exists");
        assert_eq!(started.lock().len(), 1);
    }
}
