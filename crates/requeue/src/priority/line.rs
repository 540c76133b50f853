//! Who is next among the ready keys.
//!
//! By priority, then first in, first out. With ageing a key counts as one priority
//! higher for every `step` that it has been ready. Since all keys age at the same
//! pace, who is ahead of whom does not change as time goes by, and the line is
//! sorted once, by
//!
//! ```text
//!   ready since − priority × step
//! ```
//!
//! No timer moves keys up, and taking one reads no clock. A key of priority `p` is
//! overtaken only by keys of a priority `q > p` that become ready less than
//! `(q − p) × step` after it.

use crate::clock::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) struct Line {
    places: BTreeSet<Place>,
    /// Nanoseconds. `None`: keys do not age.
    step: Option<u64>,
}

/// Where a ready key stands. Smaller is sooner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    rank: i128,
    number: u64,
    slot: u32,
}

impl Line {
    pub(super) fn new(step: Option<Duration>) -> Self {
        let nanos = |step: Duration| u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        Line { places: BTreeSet::new(), step: step.map(nanos) }
    }

    #[inline]
    pub(super) fn place(&self, priority: i32, since: Moment, number: u64, slot: u32) -> Place {
        let priority = i128::from(priority);
        let rank = match self.step {
            None => -priority,
            Some(step) => i128::from(since.as_nanos()) - priority * i128::from(step),
        };
        Place { rank, number, slot }
    }

    #[inline]
    pub(super) fn insert(&mut self, place: Place) {
        self.places.insert(place);
    }

    pub(super) fn remove(&mut self, place: Place) {
        let removed = self.places.remove(&place);
        debug_assert!(removed, "it stood in line");
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        Some(self.places.first()?.slot)
    }

    #[inline]
    pub(super) fn pop_first(&mut self) {
        self.places.pop_first();
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|place| place.slot)
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    #[cfg(test)]
    pub(super) fn contains(&self, place: Place) -> bool {
        self.places.contains(&place)
    }
}
