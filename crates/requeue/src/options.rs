//! Settings of a queue.

use crate::clock::Clock;
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
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub(crate) clock: Clock,
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
