//! Settings of a queue.

use crate::clock::Clock;
use crate::metrics::{Metrics, Name, NameError};
use std::time::Duration;

/// Settings common to all queues.
///
/// ```
/// use requeue::{ManualClock, Options, Queue};
///
/// let clock = ManualClock::new();
/// let queue = Queue::<String>::with(Options::new().clock(&clock));
/// assert!(queue.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Options {
    pub(crate) clock: Clock,
    pub(crate) name: Option<Name>,
    pub(crate) failures: FailureBounds,
    pub(crate) ageing: Option<Duration>,
    pub(crate) min_interval: Duration,
}

/// How long, and how many, failure counts are kept.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FailureBounds {
    pub(crate) idle: Option<Duration>,
    pub(crate) keys: Option<usize>,
}

impl Options {
    /// The system clock.
    pub fn new() -> Self {
        Options::default()
    }

    /// The clock that delays and drain limits are measured on.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// A name to report under. The name is held from now until the queue, or these
    /// options, are dropped; one that is held already is an error.
    ///
    /// ```
    /// use requeue::{Metrics, Options};
    ///
    /// let metrics = Metrics::new();
    /// let _orders = Options::new().metrics(&metrics, "orders")?;
    /// let error = Options::new().metrics(&metrics, "orders").unwrap_err();
    /// assert_eq!(error.to_string(), r#"a queue named "orders" already reports to these metrics"#);
    /// # Ok::<(), requeue::NameError>(())
    /// ```
    pub fn metrics(
        mut self,
        registry: &Metrics,
        name: impl Into<String>,
    ) -> Result<Self, NameError> {
        self.name = Some(registry.reserve(name.into())?);
        Ok(self)
    }

    /// Forgets how often a key failed once this long has passed since it last did, so
    /// that a forgotten `forget` is not a leak. Default: never, as in client-go.
    ///
    /// For [`RateLimitingQueue`](crate::RateLimitingQueue) and
    /// [`PriorityQueue`](crate::PriorityQueue).
    #[must_use]
    pub fn forget_failures_after(mut self, idle: Duration) -> Self {
        self.failures.idle = Some(idle);
        self
    }

    /// Counts the failures of at most so many keys, forgetting those that failed longest
    /// ago; of 0 keys, none. Default: of all, as in client-go.
    ///
    /// For [`RateLimitingQueue`](crate::RateLimitingQueue) and
    /// [`PriorityQueue`](crate::PriorityQueue).
    #[must_use]
    pub fn max_failing_keys(mut self, keys: usize) -> Self {
        self.failures.keys = Some(keys);
        self
    }

    /// Lets a ready key count as one priority higher for every `step` that it has been
    /// ready, so that none starves: a key is overtaken only by keys of a higher priority
    /// that became ready less than `step` times the difference after it. With a step of
    /// zero, first in, first out, whatever the priority. Default: keys do not age.
    ///
    /// For [`PriorityQueue`](crate::PriorityQueue).
    ///
    /// ```
    /// use requeue::limiter::default_item_based;
    /// use requeue::{AddOptions, ManualClock, Options, PriorityQueue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let options = Options::new().clock(&clock).ageing(Duration::from_secs(1));
    /// let queue = PriorityQueue::with(default_item_based(), options);
    /// queue.add("old");
    /// clock.advance(Duration::from_secs(3));
    /// queue.add_with("new", AddOptions::new().priority(2));
    /// assert_eq!(*queue.try_get()?.key(), "old"); // ready for 3 s: it counts as 3
    /// # Ok::<(), requeue::TryGetError>(())
    /// ```
    #[must_use]
    pub fn ageing(mut self, step: Duration) -> Self {
        self.ageing = Some(step);
        self
    }

    /// Lets a key run at most once per `interval`, and loses none of its adds. Default, and
    /// the meaning of zero: as often as it is added.
    ///
    /// A run begins when the key is handed out. For `interval` from then on, whatever would
    /// make it ready sooner (an add of any kind, also while it is held, or its guard's
    /// `requeue` or `retry`) makes it wait until the interval has passed
    /// ([`Added::Waiting`](crate::Added::Waiting)): as a delayed add, which merges with
    /// others, can be cancelled, and is listed where those that wait are. If the key is
    /// still held by then, it runs once more afterwards, as ever.
    ///
    /// A key that is ready has its interval behind it, and so is handed out also after a
    /// shutdown, and worked off by a drain. One that waits is dropped by a shutdown, and
    /// answered by a drain with the delay that it still had.
    ///
    /// What is remembered of a run is forgotten after `interval`, a little with every later
    /// call. The first add panics as a first
    /// [delayed add](crate::DelayingQueue::add_after) does if there can be no timer thread.
    ///
    /// Over an inner queue of your own, keys that others add to it are put off as they are
    /// taken from the delaying queue; what others take from it is not known here, and does not
    /// count.
    ///
    /// For [`DelayingQueue`](crate::DelayingQueue) and
    /// [`RateLimitingQueue`](crate::RateLimitingQueue).
    ///
    /// ```
    /// use requeue::{DelayingQueue, ManualClock, Options};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let interval = Duration::from_secs(10);
    /// let queue = DelayingQueue::with(Options::new().clock(&clock).min_interval(interval));
    /// queue.add("node-1");
    /// queue.try_get()?.done();
    /// for _event in 0..1000 {
    ///     queue.add("node-1"); // it ran just now
    /// }
    /// assert_eq!((queue.len(), queue.waiting()), (0, 1));
    /// clock.advance(interval);
    /// queue.try_get()?.done();
    /// # Ok::<(), requeue::TryGetError>(())
    /// ```
    #[must_use]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }
}

/// What a delayed add does to a delayed add of the same key that still waits.
/// It never touches a key that is ready or held.
///
/// An add without delay falls due at once under the same rule: under `Earliest`
/// the key becomes ready and what waits keeps waiting (client-go), under
/// `Latest` what waits is later and so nothing happens, under `Replace` and
/// `Debounce` the key becomes ready and no longer waits.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// The sooner time wins: client-go's rule.
    #[default]
    Earliest,
    /// The later time wins.
    Latest,
    /// This call's time wins.
    Replace,
    /// This call's time wins, but never past `max_wait` after the key began to
    /// wait: a key added all the time is not put off for ever.
    Debounce {
        /// Counted from the add that made the key wait.
        max_wait: Duration,
    },
}
