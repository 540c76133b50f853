//! The options of a queue.

use crate::clock::Clock;
use crate::metrics::{Metrics, Name, NameError};
use std::time::Duration;

/// Options of a queue: clock, name, and settings of single queue types.
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
}

/// Bounds on failure counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FailureBounds {
    pub(crate) idle: Option<Duration>,
    pub(crate) keys: Option<usize>,
}

impl Options {
    /// Creates the default options: the system clock, no name, no bounds.
    pub fn new() -> Self {
        Options::default()
    }

    /// Sets the clock that measures delays and drain limits.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Sets the name under which the queue reports its metrics. The name is reserved from now
    /// until the queue, or these options, are dropped.
    ///
    /// Fails with [`NameError`] if the name is already in use.
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

    /// Resets the failure count of a key once this long has passed since its last failure. This
    /// bounds memory if a caller never calls `forget`. Default: failure counts do not expire,
    /// as in client-go.
    ///
    /// Applies to [`RateLimitingQueue`](crate::RateLimitingQueue) and
    /// [`PriorityQueue`](crate::PriorityQueue).
    #[must_use]
    pub fn forget_failures_after(mut self, idle: Duration) -> Self {
        self.failures.idle = Some(idle);
        self
    }

    /// Counts the failures of at most `keys` keys. Beyond that, the key that failed longest ago
    /// is forgotten. With 0, no failures are counted. Default: no limit, as in client-go.
    ///
    /// Applies to [`RateLimitingQueue`](crate::RateLimitingQueue) and
    /// [`PriorityQueue`](crate::PriorityQueue).
    #[must_use]
    pub fn max_failing_keys(mut self, keys: usize) -> Self {
        self.failures.keys = Some(keys);
        self
    }

    /// Raises the effective priority of a ready key by one for every `step` that it has been
    /// ready, so that no key starves. A key is overtaken only by keys of a higher priority that
    /// became ready less than `step` times the difference in priority after it. With a step of
    /// zero, the queue is first in, first out and ignores priorities. Default: keys do not age.
    ///
    /// Applies to [`PriorityQueue`](crate::PriorityQueue).
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
    /// assert_eq!(*queue.try_get()?.key(), "old"); // ready for 3 s: its priority counts as 3
    /// # Ok::<(), requeue::TryGetError>(())
    /// ```
    #[must_use]
    pub fn ageing(mut self, step: Duration) -> Self {
        self.ageing = Some(step);
        self
    }
}

/// What a delayed add does if the same key already waits. It never affects a key that is ready
/// or held.
///
/// An add without a delay is due immediately under the same rule:
///
/// - `Earliest`: the key becomes ready, and the waiting add stays (client-go).
/// - `Latest`: the waiting add is later, so nothing happens.
/// - `Replace` and `Debounce`: the key becomes ready and no longer waits.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merge {
    /// The earlier time wins. This is client-go's rule.
    #[default]
    Earliest,
    /// The later time wins.
    Latest,
    /// The time of the new add wins.
    Replace,
    /// The time of the new add wins, but is at most `max_wait` after the key began to wait. A
    /// key that is added all the time is therefore not postponed forever.
    Debounce {
        /// The longest wait, counted from the add that made the key wait.
        max_wait: Duration,
    },
}
