//! What time it is, and who is to be told when it comes.
//!
//! The system's time is told by one thread for the whole process ([`system`]), a
//! manual clock's by whoever moves it ([`manual`]). Both keep a [`Timetable`] of
//! targets and never call one with their lock held.

mod manual;
mod stopwatch;
mod system;
mod timetable;

pub use manual::ManualClock;
pub(crate) use stopwatch::Stopwatch;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use timetable::Target;

/// A point on a clock, in nanoseconds since that clock began.
///
/// A clock ends after 2⁶⁴ ns, some 584 years. What is due at its end or later is
/// never due: [`Moment::END`] is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The end of the clock, which it never reaches.
    pub const END: Moment = Moment(u64::MAX);

    /// So many nanoseconds after the clock began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Nanoseconds since the clock began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Later by `duration`, or the end of the clock.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }

    /// How much later than `earlier` this is; zero if it is not.
    #[must_use]
    pub fn saturating_since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The system's clock or a manual one. Clones tell the same time.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Manual(ManualClock),
}

impl Clock {
    /// The system's monotonic clock; it began when the process first asked.
    pub fn system() -> Self {
        Clock(Source::System)
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system::now(),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// Waits on this clock: `.await` it, on any runtime.
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
    /// Where it is awaited, if the system refuses to start the process's timer thread.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep(Alarm::new(self, self.now().saturating_add(duration)))
    }

    /// A cheap way to measure durations, for metrics.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        match &self.0 {
            Source::System => Stopwatch::counter(),
            Source::Manual(clock) => Stopwatch::Manual(clock.clone()),
        }
    }

    /// Calls `queue` whenever it is armed for a time that has come, until the answer is dropped.
    ///
    /// # Panics
    ///
    /// If the system refuses to start the timer thread.
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

/// Something with timers of its own.
pub(crate) trait Fire: Send + Sync {
    /// Does some of what is due by `now`, and answers when to be called again, at
    /// the latest when the next thing falls due. At once, if there is more to do.
    fn fire(&self, now: Moment) -> Option<Moment>;

    /// When the next thing falls due.
    fn next_due(&self) -> Option<Moment>;
}

/// A place in a clock's timetable; dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Registration {
    clock: Clock,
    id: u64,
}

impl Registration {
    /// Asks to be called at `at`, or sooner if that was asked for already.
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

/// Waits until some time has passed. Dropping it only stops waiting.
#[derive(Debug)]
#[must_use = "await it"]
pub struct Sleep(Alarm);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// Wakes a task once a time has come.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Clock,
    at: Moment,
    /// With the waker that it calls.
    set: Option<(Registration, Waker)>,
}

impl Alarm {
    pub(crate) fn new(clock: &Clock, at: Moment) -> Self {
        Alarm { clock: clock.clone(), at, set: None }
    }

    /// Ready once the time has come; otherwise `waker` is woken then.
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
