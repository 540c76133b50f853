//! The order of the ready keys.
//!
//! Keys are sorted by priority, then first in, first out. With ageing, the priority of a key
//! counts as one higher for every `step` that it has been ready. All keys age at the same rate,
//! so their order does not change over time, and the list is sorted once, by
//!
//! ```text
//!   ready since − priority × step
//! ```
//!
//! No timer raises keys. A key of priority `p` is overtaken only by keys of a priority `q > p` that
//! become ready less than `(q − p) × step` after it.

use super::levels::PriorityLevels;
use crate::clock::Moment;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) enum ReadyList {
    ByPriority(PriorityLevels),
    Ageing {
        /// (rank, number, slot)
        entries: BTreeSet<(i128, u64, u32)>,
        /// In nanoseconds.
        step: u64,
    },
}

/// The sort criteria of a ready key.
#[derive(Clone, Copy)]
pub(super) struct ReadyEntry {
    pub(super) priority: i32,
    /// When the key became ready.
    pub(super) since: Moment,
    /// If the other criteria are equal, the lower number is first.
    pub(super) number: u64,
    pub(super) slot: u32,
}

impl ReadyEntry {
    fn aged(self, step: u64) -> (i128, u64, u32) {
        let head_start = i128::from(self.priority) * i128::from(step);
        (i128::from(self.since.as_nanos()) - head_start, self.number, self.slot)
    }
}

impl ReadyList {
    pub(super) fn new(step: Option<Duration>) -> Self {
        match step {
            None => ReadyList::ByPriority(PriorityLevels::default()),
            Some(step) => ReadyList::Ageing {
                entries: BTreeSet::new(),
                step: u64::try_from(step.as_nanos()).unwrap_or(u64::MAX),
            },
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, entry: ReadyEntry) {
        match self {
            ReadyList::ByPriority(levels) => {
                levels.insert(entry.priority, entry.number, entry.slot)
            }
            ReadyList::Ageing { entries, step } => drop(entries.insert(entry.aged(*step))),
        }
    }

    pub(super) fn remove(&mut self, entry: ReadyEntry) {
        match self {
            ReadyList::ByPriority(levels) => {
                levels.remove(entry.priority, entry.number, entry.slot)
            }
            ReadyList::Ageing { entries, step } => drop(entries.remove(&entry.aged(*step))),
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        match self {
            ReadyList::ByPriority(levels) => levels.first(),
            ReadyList::Ageing { entries, .. } => entries.first().map(|&(.., slot)| slot),
        }
    }

    #[inline]
    pub(super) fn pop_first(&mut self) {
        match self {
            ReadyList::ByPriority(levels) => levels.pop_first(),
            ReadyList::Ageing { entries, .. } => drop(entries.pop_first()),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            ReadyList::ByPriority(levels) => levels.len(),
            ReadyList::Ageing { entries, .. } => entries.len(),
        }
    }

    /// Returns the slots in order.
    pub(super) fn slots(&self) -> Vec<u32> {
        match self {
            ReadyList::ByPriority(levels) => levels.iter().collect(),
            ReadyList::Ageing { entries, .. } => entries.iter().map(|&(.., slot)| slot).collect(),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            ReadyList::ByPriority(levels) => *levels = PriorityLevels::default(),
            ReadyList::Ageing { entries, .. } => entries.clear(),
        }
    }
}
