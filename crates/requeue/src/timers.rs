//! The timers of a queue, and the time for which its clock is armed.

use crate::clock::Moment;
use crate::shell::Rules;
use crate::wheel::{Nodes, Wheel};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

/// The number of keys that are added or made ready under one lock. Between two batches, other
/// callers get the lock, and the timer thread serves other queues.
pub(crate) const BATCH: usize = 64;

/// The rules of a queue with timers and failure counts.
pub(crate) trait TimedRules: Rules {
    /// Makes up to [`BATCH`] due keys ready. Returns how many became ready.
    fn fire(&mut self, now: Moment, stamp: Moment) -> usize;

    /// Returns the time for which to arm the clock next, after it fired.
    fn rearm(&mut self, now: Moment) -> Option<Moment>;

    /// Returns when the next key falls due.
    fn next_due(&mut self) -> Option<Moment>;

    /// Returns the number of keys that wait.
    fn waiting(&self) -> usize;

    /// Returns the slot of a key.
    fn find<B>(&self, hash: u32, key: &B) -> Option<u32>
    where
        Self::Key: Borrow<B>,
        B: ?Sized + Hash + Eq;

    /// Returns the slot of a held key, or `None` if `token` identifies no hold.
    fn held_slot(&self, token: u64) -> Option<u32>;

    /// Returns how often the key in `slot` has failed.
    fn failures(&self, slot: u32) -> u32;

    /// Whether failures expire with time.
    fn forgets_by_time(&self) -> bool;

    /// Resets the failures of the key in `slot`. Removes and returns the key if nothing else
    /// needs it.
    fn forget(&mut self, slot: u32) -> Option<Self::Key>;

    /// Counts failures from now on, even if the limiter does not use the count.
    fn count_failures(&mut self);

    /// Counts a failure of a held key and calls the limiter. The count comes first, so that it
    /// also happens if the limiter panics.
    fn fail(&mut self, slot: u32, key: &Self::Key, now: Moment) -> Duration;
}

#[derive(Default)]
pub(crate) struct Timers {
    pub(crate) wheel: Wheel,
    /// The earliest time for which the clock is armed. Invariant, while the queue is open: not
    /// after the earliest timer.
    armed: Option<Moment>,
}

impl Timers {
    /// Returns the time for which to arm the clock because a timer was set to `due`, or
    /// [`Moment::END`] if it is armed early enough.
    #[inline]
    pub(crate) fn arm(&mut self, due: Moment) -> Moment {
        if self.armed.is_some_and(|armed| armed <= due) {
            return Moment::END;
        }
        self.armed = Some(due);
        due
    }

    /// Returns the time for which to arm the clock next, after it fired.
    pub(crate) fn rearm<N: Nodes>(&mut self, nodes: &mut N, now: Moment) -> Option<Moment> {
        self.armed = self.wheel.next_wake(nodes, now.as_nanos()).map(Moment::from_nanos);
        self.armed
    }

    /// Returns the time of the earliest timer.
    pub(crate) fn next_due<N: Nodes>(&mut self, nodes: &mut N) -> Option<Moment> {
        self.wheel.next_due(nodes).map(Moment::from_nanos)
    }

    /// Removes all timers.
    pub(crate) fn clear(&mut self) {
        *self = Timers::default();
    }

    /// Checks all invariants. `dues` are the times of the keys that wait.
    #[cfg(test)]
    pub(crate) fn check<N: Nodes>(
        &self,
        nodes: &N,
        dues: impl Iterator<Item = Moment>,
        is_open: bool,
    ) {
        self.wheel.check(nodes);
        let dues: Vec<Moment> = dues.collect();
        assert_eq!(dues.len(), self.wheel.len());
        let next = dues.into_iter().min().filter(|&due| is_open && due < Moment::END);
        assert!(next.is_none_or(|next| self.armed.is_some_and(|armed| armed <= next)));
    }
}
