//! The runners of one worker, and what each of them is doing.
//!
//! Runners are numbered from 0, each has a slot, and it stays while its number is below
//! how many are wanted. So nothing is counted up or down: more are wanted, and vacant slots
//! are filled; fewer, and those with the higher numbers leave, at once or after their key; and
//! who was to leave and is wanted again before it has left just stays.
//!
//! Per key a runner locks its own slot, which nobody else wants unless somebody asks what it
//! does. The roster is locked when runners come and go.

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

/// A worker has no more runners than this: each costs memory also while it waits, and
/// `usize::MAX`, for "as many as you like", must mean something.
pub const MAX_CONCURRENCY: usize = 1 << 16;

pub(super) struct Runners<K> {
    clock: Clock,
    /// Changed under the roster's lock.
    wanted: AtomicUsize,
    roster: Mutex<Roster<K>>,
    /// Not held: a runner that leaves keeps no name from being used again.
    recorder: Weak<WorkerRecorder>,
}

/// Starts a runner, or [refuses](Runner::refuse) to.
pub(super) type Hire<K> = Arc<dyn Fn(Runner<K>) -> io::Result<()> + Send + Sync>;

struct Roster<K> {
    /// By number; `None` is vacant.
    slots: Vec<Option<Arc<RunnerSlot<K>>>>,
    /// How many have not gone, with a slot or without.
    runners: usize,
    /// Nobody is hired any more: the worker was told to stop, or the queue has ended.
    closed: bool,
    /// Those who wait until it is closed and everybody gone, or busy with a key.
    joins: Waiters,
}

struct RunnerSlot<K>(Mutex<Doing<K>>);

/// What a runner is doing.
enum Doing<K> {
    /// It may take a key before it looks again whether it is wanted.
    Taking,
    /// It looks before it takes a key. The waker, where it waits, tells it to.
    Resting(Option<Waker>),
    Running(Current<K>),
}

struct Current<K> {
    key: K,
    attempt: u32,
    started_at: Moment,
}

impl<K> Runners<K> {
    /// Nobody yet.
    pub(super) fn new(clock: Clock, recorder: Option<&Arc<WorkerRecorder>>) -> Arc<Self> {
        let joins = Waiters::new(WaiterKind::WorkOffs);
        let roster = Mutex::new(Roster { slots: Vec::new(), runners: 0, closed: false, joins });
        let recorder = recorder.map_or_else(Weak::new, Arc::downgrade);
        Arc::new(Runners { clock, wanted: AtomicUsize::new(0), roster, recorder })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn concurrency(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Without effect once closed.
    pub(super) fn set_concurrency(
        self: &Arc<Self>,
        wanted: usize,
        hire: &Hire<K>,
    ) -> io::Result<()> {
        let wanted = wanted.min(MAX_CONCURRENCY);
        let roster = self.roster.lock();
        if roster.closed {
            return Ok(());
        }
        let surplus = self.want(wanted, &roster);
        drop(roster);
        wake_resting(surplus);
        // One by one, without the lock: an executor that has ended drops a runner at once.
        for number in 0..wanted {
            if let Some(runner) = self.slot(number) {
                hire(runner).inspect_err(|_| self.want_no_more_than(number))?;
            }
        }
        Ok(())
    }

    /// Answers those that are too many.
    fn want(&self, wanted: usize, roster: &Roster<K>) -> Vec<Arc<RunnerSlot<K>>> {
        self.wanted.store(wanted, Ordering::Release);
        if let Some(recorder) = self.recorder.upgrade() {
            recorder.set_concurrency(wanted);
        }
        roster.slots.iter().skip(wanted).flatten().cloned().collect()
    }

    /// Those with lower numbers are there, and the next could not be hired.
    fn want_no_more_than(&self, runners: usize) {
        let roster = self.roster.lock();
        if self.concurrency() > runners {
            let surplus = self.want(runners, &roster);
            drop(roster);
            wake_resting(surplus);
        }
    }

    /// A runner for this number, if one is wanted and the slot is vacant.
    fn slot(self: &Arc<Self>, number: usize) -> Option<Runner<K>> {
        let mut roster = self.roster.lock();
        if roster.closed || number >= self.concurrency() {
            return None;
        }
        if number >= roster.slots.len() {
            roster.slots.resize_with(number + 1, || None);
        }
        let vacant = roster.slots[number].is_none();
        let slot = vacant.then(|| Arc::new(RunnerSlot(Mutex::new(Doing::Resting(None)))))?;
        roster.slots[number] = Some(Arc::clone(&slot));
        roster.runners += 1;
        Some(Runner { runners: Arc::clone(self), slot, number })
    }

    /// All are to leave, and nobody is hired any more.
    pub(super) fn stop(&self) {
        let mut roster = self.roster.lock();
        roster.closed = true;
        let surplus = self.want(0, &roster);
        let notices = roster.notices();
        drop(roster);
        wake_resting(surplus);
        wake_all(notices);
    }

    /// Ready once it is closed and all have gone.
    pub(super) fn poll_ended(&self, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        let mut roster = self.roster.lock();
        let (old, ended) = match roster.has_ended() {
            true => (roster.joins.leave(waiter), Poll::Ready(())),
            false => (roster.joins.register(waiter, waker), Poll::Pending),
        };
        drop(roster);
        drop(old);
        ended
    }

    pub(super) fn leave_joins(&self, waiter: &mut Waiter) {
        let old = self.roster.lock().joins.leave(waiter);
        drop(old);
    }
}

impl<K: Clone> Runners<K> {
    pub(super) fn running(&self) -> Vec<RunningKey<K>> {
        self.look().0
    }

    /// What is still worked on of a runners that was told to stop. `None` while a runner is
    /// taking a key, or finds that it may not: who waits for the end is told then.
    pub(super) fn left(&self) -> Option<Vec<RunningKey<K>>> {
        let (running, taking) = self.look();
        (!taking).then_some(running)
    }

    /// What is worked on, and whether a runner is taking a key.
    fn look(&self) -> (Vec<RunningKey<K>>, bool) {
        let slots = self.roster.lock().slots.clone();
        let now = self.clock.now();
        let (mut running, mut taking) = (Vec::new(), false);
        for (runner, slot) in slots.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            match &*slot.0.lock() {
                Doing::Taking => taking = true,
                Doing::Resting(_) => {}
                Doing::Running(current) => running.push(RunningKey {
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

impl<K> Roster<K> {
    fn has_ended(&self) -> bool {
        self.closed && self.runners == 0
    }

    /// Whether the runner had a slot.
    fn vacate(&mut self, runner: &Runner<K>) -> bool {
        let slot = &mut self.slots[runner.number];
        // Who came after it may sit there.
        let mine = slot.as_ref().is_some_and(|slot| Arc::ptr_eq(slot, &runner.slot));
        if mine {
            *slot = None;
        }
        mine
    }

    /// Whom to tell that a runner of a runners that stops is gone, or busy.
    fn notices(&mut self) -> Vec<Notice> {
        if self.closed { self.joins.notify_all() } else { Vec::new() }
    }
}

/// Those who work come by themselves.
fn wake_resting<K>(slots: Vec<Arc<RunnerSlot<K>>>) {
    for slot in slots {
        let mut doing = slot.0.lock();
        if let Doing::Resting(waker) = &mut *doing
            && let Some(waker) = waker.take()
        {
            drop(doing);
            drop(guarded(|| waker.wake()));
        }
    }
}

/// One who has a slot, or had one until it was dismissed.
///
/// Dropped with its slot, it closes the roster: the queue or the executor has ended then.
pub(super) struct Runner<K> {
    runners: Arc<Runners<K>>,
    slot: Arc<RunnerSlot<K>>,
    number: usize,
}

impl<K> Runner<K> {
    /// Whether it has to go, and has left its slot.
    pub(super) fn is_dismissed(&self) -> bool {
        if self.number < self.runners.concurrency() {
            return false;
        }
        let mut roster = self.runners.roster.lock();
        // Only under the lock is it certain that nobody wants it again meanwhile.
        let dismissed = self.number >= self.runners.concurrency();
        if dismissed {
            roster.vacate(self);
        }
        dismissed
    }

    /// It could not be started.
    pub(super) fn refuse(self) {
        self.runners.roster.lock().vacate(&self);
    }

    /// From now on it may take a key, if it is not [dismissed](Self::is_dismissed).
    ///
    /// In this order: whoever dismisses it, and then sees it rest, knows that it will find
    /// out before it takes one.
    pub(super) fn looks(&self) {
        drop(self.turns_to(Doing::Taking));
    }

    /// It takes no key before it [looks](Self::looks); `waker` tells it to.
    pub(super) fn rests(&self, waker: Option<&Waker>) {
        drop(self.turns_to(Doing::Resting(waker.cloned())));
    }

    pub(super) fn begins(&self, key: K, attempt: u32, started_at: Moment) {
        drop(self.turns_to(Doing::Running(Current { key, attempt, started_at })));
        if self.number >= self.runners.concurrency() {
            let notices = self.runners.roster.lock().notices();
            wake_all(notices);
        }
    }

    /// Answers the key that it worked on. It may take another.
    pub(super) fn ends(&self) -> Option<K> {
        match self.turns_to(Doing::Taking) {
            Doing::Running(current) => Some(current.key),
            Doing::Taking | Doing::Resting(_) => None,
        }
    }

    /// Answers what it did, to be dropped without the lock.
    fn turns_to(&self, doing: Doing<K>) -> Doing<K> {
        mem::replace(&mut *self.slot.0.lock(), doing)
    }
}

impl<K> Drop for Runner<K> {
    fn drop(&mut self) {
        let mut roster = self.runners.roster.lock();
        roster.closed |= roster.vacate(self);
        roster.runners -= 1;
        if roster.has_ended() {
            self.runners.want(0, &roster);
        }
        let notices = roster.notices();
        drop(roster);
        wake_all(notices);
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;

    type Given = Arc<Mutex<Vec<Runner<u32>>>>;

    /// A system that gives so many threads, and what it has given.
    fn runners(threads: usize) -> (Arc<Runners<u32>>, Hire<u32>, Given) {
        let given = Arc::new(Mutex::new(Vec::new()));
        let giver = Arc::clone(&given);
        let hire = move |runner: Runner<u32>| {
            let mut given = giver.lock();
            if given.len() == threads {
                runner.refuse();
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            given.push(runner);
            Ok(())
        };
        (Runners::new(Clock::default(), None), Arc::new(hire), given)
    }

    fn has_ended(runners: &Runners<u32>) -> bool {
        runners.poll_ended(&mut Waiter::for_task(), Waker::noop()).is_ready()
    }

    #[test]
    fn a_thread_that_is_refused_is_an_error_and_not_the_end() {
        let (runners, hire, given) = runners(2);
        assert!(runners.set_concurrency(3, &hire).is_err());
        assert_eq!((given.lock().len(), runners.concurrency()), (2, 2));
        assert!(runners.set_concurrency(2, &hire).is_ok());
        runners.set_concurrency(0, &hire).expect("nobody is hired");
        let dismissed = mem::take(&mut *given.lock());
        assert!(dismissed.iter().all(Runner::is_dismissed));
        drop(dismissed);
        assert!(!has_ended(&runners));
        runners.set_concurrency(2, &hire).expect("two are given");
        assert_eq!(given.lock().len(), 2);
    }

    #[test]
    fn a_runner_that_goes_by_itself_is_the_beginning_of_the_end() {
        let (runners, hire, given) = runners(2);
        runners.set_concurrency(2, &hire).expect("two are given");
        let last = given.lock().pop();
        let first = given.lock().pop();
        drop(first);
        assert!(!has_ended(&runners));
        runners.set_concurrency(2, &hire).expect("nobody is hired");
        assert!(given.lock().is_empty());
        drop(last);
        assert!(has_ended(&runners));
    }

    /// A runner that has left does not vacate the slot of who came after it.
    #[test]
    fn a_slot_is_vacated_once() {
        let (runners, hire, given) = runners(9);
        runners.set_concurrency(1, &hire).expect("one is given");
        let first = given.lock().pop();
        runners.set_concurrency(0, &hire).expect("nobody is hired");
        assert!(first.as_ref().is_some_and(Runner::is_dismissed));
        runners.set_concurrency(1, &hire).expect("one is given");
        drop(first);
        runners.set_concurrency(1, &hire).expect("it is there");
        assert_eq!(given.lock().len(), 1);
    }
}
