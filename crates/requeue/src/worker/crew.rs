//! The runners of one worker, and what each of them is doing.
//!
//! Runners are numbered from 0, each has a seat, and it stays while its number is below
//! how many are wanted. So nothing is counted up or down: more are wanted, and vacant seats
//! are filled; fewer, and those with the higher numbers leave, at once or after their key; and
//! who was to leave and is wanted again before it has left just stays.
//!
//! Per key a runner locks its own seat, which nobody else wants unless somebody asks what it
//! does. The roster is locked when runners come and go.

use crate::clock::{Clock, Moment};
use crate::guarded::guarded;
use crate::metrics::WorkerRecorder;
use crate::shell::wake_all;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::waiters::{Line, Notice, Waiter, Waiters};
use crate::worker::running::RunningKey;
use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

pub(super) struct Crew<K> {
    clock: Clock,
    /// Changed under the roster's lock.
    wanted: AtomicUsize,
    roster: Mutex<Roster<K>>,
    recorder: Option<Arc<WorkerRecorder>>,
    hire: Hire<K>,
}

/// Starts a runner, or [refuses](Runner::refuse) to.
pub(super) type Hire<K> = Box<dyn Fn(Runner<K>) -> io::Result<()> + Send + Sync>;

struct Roster<K> {
    /// By number; `None` is vacant.
    seats: Vec<Option<Arc<Seat<K>>>>,
    /// Nobody is hired any more: the worker was told to stop, or the queue has ended.
    closed: bool,
    /// Those who wait until it is closed and every seat vacant.
    joins: Waiters,
}

struct Seat<K>(Mutex<Doing<K>>);

/// What a runner is doing.
enum Doing<K> {
    /// It is between two keys.
    Idle,
    /// It waits for a key, and is to be woken when it must leave.
    Waiting(Waker),
    Running(Current<K>),
}

struct Current<K> {
    key: K,
    attempt: u32,
    started_at: Moment,
}

impl<K> Crew<K> {
    /// Nobody yet.
    pub(super) fn new(
        clock: Clock,
        recorder: Option<Arc<WorkerRecorder>>,
        hire: Hire<K>,
    ) -> Arc<Self> {
        let roster =
            Roster { seats: Vec::new(), closed: false, joins: Waiters::new(Line::WorkOffs) };
        let roster = Mutex::new(roster);
        Arc::new(Crew { clock, wanted: AtomicUsize::new(0), roster, recorder, hire })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn concurrency(&self) -> usize {
        self.wanted.load(Ordering::Acquire)
    }

    /// Without effect once closed.
    pub(super) fn set_concurrency(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        let roster = self.roster.lock();
        if roster.closed {
            return Ok(());
        }
        let surplus = self.want(wanted, &roster);
        drop(roster);
        wake_idle(surplus);
        // One by one, without the lock: an executor that has ended drops a runner at once.
        (0..wanted)
            .filter_map(|number| self.seat(number))
            .try_for_each(|runner| (self.hire)(runner))
    }

    /// Answers those that are too many.
    fn want(&self, wanted: usize, roster: &Roster<K>) -> Vec<Arc<Seat<K>>> {
        self.wanted.store(wanted, Ordering::Release);
        if let Some(recorder) = &self.recorder {
            recorder.set_concurrency(wanted);
        }
        roster.seats.iter().skip(wanted).flatten().cloned().collect()
    }

    /// A runner for this number, if one is wanted and the seat is vacant.
    fn seat(self: &Arc<Self>, number: usize) -> Option<Runner<K>> {
        let mut roster = self.roster.lock();
        if roster.closed || number >= self.concurrency() {
            return None;
        }
        if number >= roster.seats.len() {
            roster.seats.resize_with(number + 1, || None);
        }
        let vacant = roster.seats[number].is_none();
        let seat = vacant.then(|| Arc::new(Seat(Mutex::new(Doing::Idle))))?;
        roster.seats[number] = Some(Arc::clone(&seat));
        Some(Runner { crew: Arc::clone(self), seat, number })
    }

    /// All are to leave, and nobody is hired any more.
    pub(super) fn stop(&self) {
        let mut roster = self.roster.lock();
        roster.closed = true;
        let surplus = self.want(0, &roster);
        let notices = roster.notices();
        drop(roster);
        wake_idle(surplus);
        wake_all(notices);
    }

    /// Ready once it is closed and all have left.
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

    /// Whether the runner has left its seat.
    fn vacate(&self, runner: &Runner<K>, why: Why) -> bool {
        let mut roster = self.roster.lock();
        // Only under the lock is it certain that nobody wants it again meanwhile.
        if why == Why::Surplus && runner.number < self.concurrency() {
            return false;
        }
        let seat = &mut roster.seats[runner.number];
        let mine = seat.as_ref().is_some_and(|seat| Arc::ptr_eq(seat, &runner.seat));
        if !mine {
            return true;
        }
        *seat = None;
        roster.closed |= why == Why::Ended;
        let notices = roster.notices();
        drop(roster);
        wake_all(notices);
        true
    }
}

impl<K: Clone> Crew<K> {
    pub(super) fn running(&self) -> Vec<RunningKey<K>> {
        let seats = self.roster.lock().seats.clone();
        let now = self.clock.now();
        let key = |(runner, seat): (usize, Option<Arc<Seat<K>>>)| match &*seat?.0.lock() {
            Doing::Running(current) => Some(RunningKey {
                runner,
                key: current.key.clone(),
                attempt: current.attempt,
                running_for: now.saturating_since(current.started_at),
            }),
            Doing::Idle | Doing::Waiting(_) => None,
        };
        seats.into_iter().enumerate().filter_map(key).collect()
    }
}

impl<K> Roster<K> {
    fn has_ended(&self) -> bool {
        self.closed && self.seats.iter().all(Option::is_none)
    }

    fn notices(&mut self) -> Vec<Notice> {
        if self.has_ended() { self.joins.notify_all() } else { Vec::new() }
    }
}

/// Those who work come by themselves.
fn wake_idle<K>(seats: Vec<Arc<Seat<K>>>) {
    for seat in seats {
        let mut doing = seat.0.lock();
        if matches!(*doing, Doing::Waiting(_))
            && let Doing::Waiting(waker) = mem::replace(&mut *doing, Doing::Idle)
        {
            drop(doing);
            drop(guarded(|| waker.wake()));
        }
    }
}

/// Why a seat is vacated.
#[derive(PartialEq)]
enum Why {
    /// Fewer are wanted.
    Surplus,
    /// The runner could not be started.
    Refused,
    /// The queue or the executor has ended, and no runner is of use any more.
    Ended,
}

/// A seat, vacated when this is dropped.
///
/// Dropped by a runner that is still wanted, it closes the roster: the queue or the
/// executor has ended then.
pub(super) struct Runner<K> {
    crew: Arc<Crew<K>>,
    seat: Arc<Seat<K>>,
    number: usize,
}

impl<K> Runner<K> {
    /// Whether it has to go, and has left its seat.
    pub(super) fn is_dismissed(&self) -> bool {
        self.number >= self.crew.concurrency() && self.crew.vacate(self, Why::Surplus)
    }

    /// It could not be started.
    pub(super) fn refuse(self) {
        self.crew.vacate(&self, Why::Refused);
    }

    /// It waits for a key; `waker` tells it that it may be dismissed.
    pub(super) fn waits(&self, waker: &Waker) {
        let waiting = Doing::Waiting(waker.clone());
        drop(self.turns_to(waiting));
    }

    pub(super) fn begins(&self, key: K, attempt: u32, started_at: Moment) {
        drop(self.turns_to(Doing::Running(Current { key, attempt, started_at })));
    }

    /// Answers the key that it worked on.
    pub(super) fn ends(&self) -> Option<K> {
        match self.turns_to(Doing::Idle) {
            Doing::Running(current) => Some(current.key),
            Doing::Idle | Doing::Waiting(_) => None,
        }
    }

    /// Answers what it did, to be dropped without the lock.
    fn turns_to(&self, doing: Doing<K>) -> Doing<K> {
        mem::replace(&mut *self.seat.0.lock(), doing)
    }
}

impl<K> Drop for Runner<K> {
    fn drop(&mut self) {
        self.crew.vacate(self, Why::Ended);
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;

    type Given = Arc<Mutex<Vec<Runner<u32>>>>;

    /// A system that gives so many threads, and what it has given.
    fn crew(threads: usize) -> (Arc<Crew<u32>>, Given) {
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
        (Crew::new(Clock::default(), None, Box::new(hire)), given)
    }

    fn has_ended(crew: &Crew<u32>) -> bool {
        crew.poll_ended(&mut Waiter::for_task(), Waker::noop()).is_ready()
    }

    #[test]
    fn a_thread_that_is_refused_is_an_error_and_not_the_end() {
        let (crew, given) = crew(2);
        assert!(crew.set_concurrency(3).is_err());
        assert_eq!(given.lock().len(), 2);
        assert!(crew.set_concurrency(2).is_ok());
        crew.set_concurrency(0).expect("nobody is hired");
        let runners = mem::take(&mut *given.lock());
        assert!(runners.iter().all(Runner::is_dismissed));
        drop(runners);
        assert!(!has_ended(&crew));
        crew.set_concurrency(2).expect("two are given");
        assert_eq!(given.lock().len(), 2);
    }

    #[test]
    fn a_runner_that_goes_by_itself_is_the_beginning_of_the_end() {
        let (crew, given) = crew(2);
        crew.set_concurrency(2).expect("two are given");
        let last = given.lock().pop();
        let first = given.lock().pop();
        drop(first);
        assert!(!has_ended(&crew));
        crew.set_concurrency(2).expect("nobody is hired");
        assert!(given.lock().is_empty());
        drop(last);
        assert!(has_ended(&crew));
    }

    /// A runner that has left does not vacate the seat of who came after it.
    #[test]
    fn a_seat_is_given_up_once() {
        let (crew, given) = crew(9);
        crew.set_concurrency(1).expect("one is given");
        let first = given.lock().pop();
        crew.set_concurrency(0).expect("nobody is hired");
        assert!(first.as_ref().is_some_and(Runner::is_dismissed));
        crew.set_concurrency(1).expect("one is given");
        drop(first);
        crew.set_concurrency(1).expect("it is there");
        assert_eq!(given.lock().len(), 1);
    }
}
