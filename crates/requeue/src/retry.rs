//! Queues that retry failed keys.

use crate::clock::Clock;
use crate::snapshot::{Added, Limited};
use crate::work_queue::{Taken, WorkQueue};
use std::time::Duration;

/// A queue that can delay a held key and that counts failures:
/// [`RateLimitingQueue`](crate::RateLimitingQueue), [`PriorityQueue`](crate::PriorityQueue) and
/// [`QueueAdapter`](crate::QueueAdapter).
///
/// This trait is sealed. Its operations are methods of the guard:
/// [`Held::retry`](crate::Held::retry), [`requeue_after`](crate::Held::requeue_after),
/// [`forget`](crate::Held::forget) and [`num_requeues`](crate::Held::num_requeues).
pub trait Retry: WorkQueue + Clone + sealed::Sealed {
    /// Adds the key with a delay and ends its hold. If that panics, the key is ready again.
    #[doc(hidden)]
    fn requeue_after(&self, taken: Taken<Self::Key>, delay: Duration) -> Added;

    /// Adds the key with the limiter's delay and ends its hold, also in a panic.
    #[doc(hidden)]
    fn retry(&self, taken: Taken<Self::Key>) -> Limited;

    /// Counts a failure of a held key, also if the limiter panics. Returns the limiter's delay.
    #[doc(hidden)]
    fn fail_held(&self, token: u64, key: &Self::Key) -> Duration;

    /// Resets the failure count of a held key.
    #[doc(hidden)]
    fn forget_held(&self, token: u64, key: &Self::Key);

    /// Returns how often a held key has failed.
    #[doc(hidden)]
    fn num_requeues_held(&self, token: u64, key: &Self::Key) -> u32;

    /// Counts failures from now on, even if the limiter does not use the count.
    #[doc(hidden)]
    fn count_failures(&self);

    /// Returns the clock that measures delays.
    #[doc(hidden)]
    fn clock(&self) -> &Clock;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}
