//! The clocks, and the timers that they call.
//!
//! One thread per process ([`system`]) calls the timers of the system clock. The thread that
//! advances a manual clock calls that clock's timers ([`manual`]). Both keep a [`timetable`] of
//! targets and never call a target while they hold their lock.

mod manual;
mod stopwatch;
mod system;
mod timetable;

pub use manual::ManualClock;
pub(crate) use stopwatch::Stopwatch;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use timetable::Target;

/// A point in time on a clock, in nanoseconds since the clock started.
///
/// A clock ends after 2⁶⁴ ns, about 584 years. It never reaches [`Moment::END`], so a key that
/// is due then or later never becomes ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The end of the clock. The clock never reaches it.
    pub const END: Moment = Moment(u64::MAX);

    /// Returns the moment `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Returns the nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `duration` later, at most [`Moment::END`].
    #[must_use]
    #[inline]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    #[inline]
    pub fn saturating_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The system clock or a [`ManualClock`]. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Manual(ManualClock),
}

impl Clock {
    /// Returns the monotonic system clock. It starts at 0 when the process first reads it.
    pub fn system() -> Self {
        Clock(Source::System)
    }

    /// Returns the current time of this clock.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system::now(),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// Waits until `duration` has passed on this clock. Works on any async runtime.
    ///
    /// ```
    /// use requeue::{Clock, ManualClock};
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Waker};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let mut sleep = pin!(Clock::from(&clock).sleep(Duration::from_secs(60)));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(sleep.as_mut().poll(&mut context).is_pending());
    /// clock.advance(Duration::from_secs(60));
    /// assert!(sleep.poll(&mut context).is_ready());
    /// ```
    ///
    /// # Panics
    ///
    /// Awaiting it panics if the operating system refuses to start the process's timer thread.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep(Alarm::new(self, self.now().saturating_add(duration)))
    }

    /// Returns the output of `future`, or drops it and returns `None` if it is not ready at `at` on this
    /// clock. Works on any async runtime.
    ///
    /// ```
    /// use requeue::{Clock, ManualClock};
    /// use std::future::{Future, pending, ready};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use std::time::Duration;
    ///
    /// let manual = ManualClock::new();
    /// let clock = Clock::from(&manual);
    /// let at = clock.now().saturating_add(Duration::from_secs(60));
    /// let mut context = Context::from_waker(Waker::noop());
    /// let mut late = pin!(clock.timeout_at(at, pending::<()>()));
    /// assert!(late.as_mut().poll(&mut context).is_pending());
    /// manual.advance(Duration::from_secs(60));
    /// assert_eq!(late.poll(&mut context), Poll::Ready(None));
    ///
    /// let in_time = pin!(clock.timeout_at(at, ready(7)));
    /// assert_eq!(in_time.poll(&mut context), Poll::Ready(Some(7)));
    /// ```
    ///
    /// # Panics
    ///
    /// Awaiting it panics if the operating system refuses to start the process's timer thread.
    pub async fn timeout_at<F: Future>(&self, at: Moment, future: F) -> Option<F::Output> {
        let (mut future, mut alarm) = (pin!(future), Alarm::new(self, at));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => alarm.poll(cx.waker()).map(|()| None),
        })
        .await
    }

    /// Returns a cheaper clock that only measures durations, for metrics.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        match &self.0 {
            Source::System => Stopwatch::counter(),
            Source::Manual(clock) => Stopwatch::Manual(clock.clone()),
        }
    }

    /// Calls `queue` whenever a time for which it is armed has come, until the returned value
    /// is dropped.
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses to start the timer thread.
    pub(crate) fn register(&self, queue: Weak<dyn Fire>) -> Registration {
        self.register_target(Target::Queue(queue))
    }

    fn register_target(&self, target: Target) -> Registration {
        let id = match &self.0 {
            Source::System => system::register(target),
            Source::Manual(clock) => clock.register(target),
        };
        Registration { clock: self.clone(), id }
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        Clock(Source::Manual(clock.clone()))
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Clock(Source::Manual(clock))
    }
}

/// A queue with timers.
pub(crate) trait Fire: Send + Sync {
    /// Processes some of what is due by `now`. Returns when to call again: at the latest when
    /// the next key falls due, or immediately if more is due now.
    fn fire(&self, now: Moment) -> Option<Moment>;

    /// Returns when the next key falls due.
    fn next_due(&self) -> Option<Moment>;
}

/// A registration with a clock. Dropping it removes the registration.
#[derive(Debug)]
pub(crate) struct Registration {
    clock: Clock,
    id: u64,
}

impl Registration {
    /// Requests a call at `at`. If an earlier call is already requested, that one stays.
    #[inline]
    pub(crate) fn arm(&self, at: Moment) {
        match &self.clock.0 {
            Source::System => system::arm(self.id, at),
            Source::Manual(clock) => clock.arm(self.id, at),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let target = match &self.clock.0 {
            Source::System => system::remove(self.id),
            Source::Manual(clock) => clock.remove(self.id),
        };
        drop(target);
    }
}

/// Waits until a duration has passed on a clock. Dropping it only stops the wait.
#[derive(Debug)]
#[must_use = "await it"]
pub struct Sleep(Alarm);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// Wakes a task at a given time.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    at: Moment,
    /// The registration, and the waker that it calls.
    set: Option<(Registration, Waker)>,
}

impl Alarm {
    pub(crate) fn new(clock: &Clock, at: Moment) -> Self {
        Alarm { clock: clock.clone(), at, set: None }
    }

    /// Returns `Ready` once the time has come. Until then, registers `waker`.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        if self.set.as_ref().is_none_or(|(_, set)| !set.will_wake(waker)) {
            self.set = None;
            let registration = self.clock.register_target(Target::Waker(Arc::new(waker.clone())));
            registration.arm(self.at);
            self.set = Some((registration, waker.clone()));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_end_instead_of_overflowing() {
        let late = Moment::from_nanos(u64::MAX - 5);
        assert_eq!(late.saturating_add(Duration::from_nanos(5)), Moment::END);
        assert_eq!(late.saturating_add(Duration::MAX), Moment::END);
        assert_eq!(Moment::default().saturating_since(late), Duration::ZERO);
        let century = Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(
            Moment::default().saturating_add(century).saturating_since(Moment::default()),
            century
        );
    }
}
