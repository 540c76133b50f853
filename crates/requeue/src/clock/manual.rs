//! A clock for tests.

use super::Moment;
use super::timetable::{Target, Timetable};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

/// The latest time of a manual clock: one nanosecond before the end, so that what is due at
/// [`Moment::END`] never becomes due.
const LAST: u64 = u64::MAX - 1;

/// A clock for tests: its time passes only when the test advances it. Clones share one time.
///
/// ```
/// use requeue::{DelayingQueue, ManualClock, Options};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = DelayingQueue::with(Options::new().clock(&clock));
/// queue.add_after("order-7", Duration::from_secs(300));
/// clock.advance(Duration::from_nanos(299_999_999_999));
/// assert_eq!(queue.len(), 0);
/// clock.advance(Duration::from_nanos(1));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Clone)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

struct Shared {
    now: AtomicU64,
    timetable: Mutex<Timetable>,
}

impl ManualClock {
    /// Creates a clock that shows 0.
    pub fn new() -> Self {
        let shared = Shared { now: AtomicU64::new(0), timetable: Mutex::new(Timetable::new()) };
        ManualClock { shared: Arc::new(shared) }
    }

    /// Returns the current time of this clock.
    pub fn now(&self) -> Moment {
        Moment::from_nanos(self.shared.now.load(Ordering::Acquire))
    }

    /// Advances the clock by `by`. The clock goes from due time to due time: whatever is due on
    /// the way happens at its own instant, in order, on this thread, before this method
    /// returns.
    ///
    /// The clock stops one nanosecond before its [end](Moment::END). If two threads advance it
    /// concurrently, their steps may overlap instead of adding up.
    ///
    /// # Panics
    ///
    /// Panics if an inner queue or an order of your own panicked while a key fell due. Everything else that
    /// was due has happened by then.
    pub fn advance(&self, by: Duration) {
        self.advance_to(self.now().saturating_add(by));
    }

    /// Advances the clock to the next due time and returns by how much. Returns `None`, without
    /// advancing, if nothing waits.
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`advance`](Self::advance).
    pub fn advance_to_next(&self) -> Option<Duration> {
        let now = self.now();
        let targets: Vec<_> = self.shared.timetable.lock().targets().cloned().collect();
        let due = targets.into_iter().filter_map(|(target, armed)| match target {
            Target::Queue(queue) => queue.upgrade()?.next_due(),
            Target::Waker(_) => armed,
        });
        let next = due.min().filter(|&due| due < Moment::END)?;
        self.advance_to(next);
        Some(next.saturating_since(now))
    }

    fn advance_to(&self, end: Moment) {
        let end = end.min(Moment::from_nanos(LAST));
        let mut panic = None;
        loop {
            let mut timetable = self.shared.timetable.lock();
            // Another thread may have advanced further meanwhile, and found no armed target
            // while this thread was calling one. Then this thread calls it.
            let end = end.max(self.now());
            let Some((at, id, target)) = timetable.pop(end) else {
                self.move_to(end);
                break;
            };
            self.move_to(at);
            drop(timetable);
            match target.call(self.now()) {
                Ok(None) => {}
                Ok(Some(again)) => self.shared.timetable.lock().arm(id, again),
                // It may have more to do, so it is called again.
                Err(cause) => {
                    panic.get_or_insert(cause);
                    self.shared.timetable.lock().arm(id, at);
                }
            }
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Never back: another thread may have moved further. Called under the lock.
    fn move_to(&self, at: Moment) {
        let now = self.now().max(at);
        self.shared.now.store(now.as_nanos(), Ordering::Release);
    }

    pub(super) fn register(&self, target: Target) -> u64 {
        self.shared.timetable.lock().register(target)
    }

    pub(super) fn remove(&self, id: u64) -> Option<Target> {
        self.shared.timetable.lock().remove(id)
    }

    pub(super) fn arm(&self, id: u64, at: Moment) {
        self.shared.timetable.lock().arm(id, at);
        // Another thread moved time past `at` meanwhile: no other thread would call the target.
        let now = self.now();
        if at <= now {
            self.advance_to(now);
        }
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use crate::{DelayingQueue, Options};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    /// Advances the clock on another thread while it is being advanced.
    struct Mover(ManualClock);

    impl Wake for Mover {
        fn wake(self: Arc<Self>) {
            let mover = std::thread::spawn(move || self.0.advance(Duration::from_secs(15)));
            mover.join().expect("it does not panic");
        }
    }

    /// Regression test: the second thread found no target to call, and the first stopped too early.
    #[test]
    fn what_falls_due_while_two_move_the_clock_has_happened_when_both_are_done() {
        let clock = ManualClock::new();
        let queue = DelayingQueue::with(Options::new().clock(&clock));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("b", Duration::from_secs(15));
        let waker = Waker::from(Arc::new(Mover(clock.clone())));
        let mut get = pin!(queue.get());
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        clock.advance(Duration::from_secs(10));
        assert_eq!((queue.len(), queue.waiting()), (2, 0));
    }
}
