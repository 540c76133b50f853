//! Queues whose failed keys come back.

use crate::clock::Clock;
use crate::snapshot::{Added, Limited};
use crate::work_queue::{Taken, WorkQueue};
use std::time::Duration;

/// A queue that brings a key back later, and counts its failures:
/// [`RateLimitingQueue`](crate::RateLimitingQueue) and
/// [`PriorityQueue`](crate::PriorityQueue).
///
/// Sealed. Its verbs are methods of the guard: [`Held::retry`](crate::Held::retry),
/// [`requeue_after`](crate::Held::requeue_after), [`forget`](crate::Held::forget),
/// [`num_requeues`](crate::Held::num_requeues).
pub trait Retry: WorkQueue + Clone + sealed::Sealed {
    /// Adds the key for later and ends its hold. Should that panic, the key is ready again.
    #[doc(hidden)]
    fn requeue_after(&self, taken: Taken<Self::Key>, delay: Duration) -> Added;

    /// Adds the key for when the limiter answers, and ends its hold, also in a panic.
    #[doc(hidden)]
    fn retry(&self, taken: Taken<Self::Key>) -> Limited;

    /// Counts a failure of a held key, whose guard carries its hash, also if the limiter
    /// panics; answers how long that wants it to stay away.
    #[doc(hidden)]
    fn fail_held(&self, hash: u32, key: &Self::Key) -> Duration;

    /// Forgets the failures of a held key.
    #[doc(hidden)]
    fn forget_held(&self, hash: u32, key: &Self::Key);

    /// How often a held key has failed.
    #[doc(hidden)]
    fn num_requeues_held(&self, hash: u32, key: &Self::Key) -> u32;

    /// Counts failures also under a limiter that has no use for the count.
    #[doc(hidden)]
    fn count_failures(&self);

    /// The clock that delays are measured on.
    #[doc(hidden)]
    fn clock(&self) -> &Clock;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}
