//! Ready keys by priority, first in, first out within one priority.
//!
//! Nearly all keys are appended to their level. The few others (a key that keeps the number of
//! the add that made it wait, or that found it held) are sorted separately. So a cycle costs no
//! more than in a queue without priorities, whatever the order of the keys and the number of
//! priorities.

use crate::keys::{KEPT_CAPACITY, NIL};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The number of empty levels that are kept, so that a few priorities are not created and
/// removed all the time. Also the number of removed entries that a level may keep.
const EMPTY_ALLOWED: usize = 16;

#[derive(Default)]
pub(super) struct PriorityLevels {
    levels: BTreeMap<Reverse<i32>, PriorityLevel>,
    /// The number of levels without keys.
    empty: usize,
    len: usize,
}

/// The keys of one priority, sorted by number.
#[derive(Default)]
struct PriorityLevel {
    /// Ascending numbers, each with its slot, or with `NIL` if the entry was removed.
    /// Invariant: the first entry has a slot.
    in_order: VecDeque<(u64, u32)>,
    /// The number of removed entries in `in_order`.
    removed_entries: usize,
    /// Entries whose number was not the highest when they were added.
    out_of_order: BTreeSet<(u64, u32)>,
}

impl PriorityLevels {
    #[inline]
    pub(super) fn insert(&mut self, priority: i32, number: u64, slot: u32) {
        let empty = &mut self.empty;
        let level = self.levels.entry(Reverse(priority)).or_insert_with(|| {
            *empty += 1;
            PriorityLevel::default()
        });
        *empty -= usize::from(level.is_empty());
        level.insert(number, slot);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, priority: i32, number: u64, slot: u32) {
        if let Some(level) = self.levels.get_mut(&Reverse(priority)) {
            let removed = level.remove(number, slot);
            level.shrink();
            debug_assert!(removed, "the entry is in this level");
            self.len -= usize::from(removed);
            self.empty += usize::from(removed && level.is_empty());
            self.drop_empty_levels();
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.levels.values().find_map(PriorityLevel::first)
    }

    #[inline]
    pub(super) fn pop_first(&mut self) {
        if let Some(level) = self.levels.values_mut().find(|level| !level.is_empty()) {
            level.pop_first();
            self.len -= 1;
            if level.is_empty() {
                level.shrink();
                self.empty += 1;
                self.drop_empty_levels();
            }
        }
    }

    fn drop_empty_levels(&mut self) {
        if self.empty > EMPTY_ALLOWED {
            self.levels.retain(|_, level| !level.is_empty());
            self.empty = 0;
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slots in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.levels.values().flat_map(|level| {
            let in_order = level.in_order.iter().copied().filter(|&(_, slot)| slot != NIL);
            let mut entries: Vec<(u64, u32)> =
                in_order.chain(level.out_of_order.iter().copied()).collect();
            entries.sort_unstable();
            entries.into_iter().map(|(_, slot)| slot)
        })
    }
}

impl PriorityLevel {
    /// Frees memory, so that a burst of keys does not occupy it forever.
    #[inline]
    fn shrink(&mut self) {
        if self.in_order.is_empty() && self.in_order.capacity() > KEPT_CAPACITY {
            self.in_order = VecDeque::new();
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.out_of_order.is_empty()
    }

    #[inline]
    fn insert(&mut self, number: u64, slot: u32) {
        if self.in_order.back().is_none_or(|&(last, _)| last < number) {
            self.in_order.push_back((number, slot));
        } else {
            self.out_of_order.insert((number, slot));
        }
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        let (in_order, other) = (self.in_order.front(), self.out_of_order.first());
        let first =
            if other.is_none() { in_order } else { in_order.into_iter().chain(other).min() };
        first.map(|&(_, slot)| slot)
    }

    #[inline]
    fn pop_first(&mut self) {
        let out_of_order_is_first = match (self.in_order.front(), self.out_of_order.first()) {
            (_, None) => false,
            (in_order, other) => in_order.is_none_or(|in_order| other < Some(in_order)),
        };
        if out_of_order_is_first {
            self.out_of_order.pop_first();
        } else {
            self.in_order.pop_front();
            self.skip_removed();
        }
    }

    fn remove(&mut self, number: u64, slot: u32) -> bool {
        let found = self.in_order.binary_search_by_key(&number, |&(number, _)| number);
        let Some(entry) = found.ok().map(|index| &mut self.in_order[index]) else {
            return self.out_of_order.remove(&(number, slot));
        };
        if entry.1 != slot {
            return false;
        }
        entry.1 = NIL;
        self.removed_entries += 1;
        self.skip_removed();
        // Only once they are the majority of the level: a removal costs O(log n) on average.
        if self.removed_entries > EMPTY_ALLOWED && self.removed_entries > self.in_order.len() / 2 {
            self.in_order.retain(|&(_, slot)| slot != NIL);
            self.removed_entries = 0;
        }
        true
    }

    #[inline]
    fn skip_removed(&mut self) {
        while self.removed_entries > 0
            && self.in_order.front().is_some_and(|&(_, slot)| slot == NIL)
        {
            self.in_order.pop_front();
            self.removed_entries -= 1;
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl PriorityLevels {
        fn check(&self) {
            assert_eq!(self.empty, self.levels.values().filter(|level| level.is_empty()).count());
            assert!(self.empty <= EMPTY_ALLOWED);
            for level in self.levels.values() {
                assert!(level.in_order.iter().is_sorted_by_key(|&(number, _)| number));
                assert!(level.in_order.front().is_none_or(|&(_, slot)| slot != NIL));
                let removed_entries =
                    level.in_order.iter().filter(|&&(_, slot)| slot == NIL).count();
                assert_eq!(removed_entries, level.removed_entries);
                assert!(removed_entries <= EMPTY_ALLOWED.max(level.in_order.len() / 2));
            }
        }
    }

    #[test]
    fn memory_of_a_storm_is_given_back_when_the_last_key_leaves() {
        let mut levels = PriorityLevels::default();
        (0..100_000).for_each(|n| levels.insert(0, u64::from(n), n));
        (0..100_000).for_each(|_| levels.pop_first());
        assert!(levels.levels.values().all(|level| level.in_order.capacity() <= KEPT_CAPACITY));
    }

    #[derive(Debug, Clone)]
    enum Op {
        /// Adds at the end, or `before` positions before it.
        Join {
            priority: i32,
            before: u64,
        },
        Pop,
        Remove(usize),
    }

    fn op(priorities: i32) -> impl Strategy<Value = Op> {
        let before = prop_oneof![3 => Just(0), 1 => 0..2000u64];
        prop_oneof![
            5 => (0..priorities, before).prop_map(|(priority, before)| Op::Join { priority, before }),
            2 => Just(Op::Pop),
            2 => any::<usize>().prop_map(Op::Remove),
        ]
    }

    fn compare(ops: Vec<Op>) {
        let mut levels = PriorityLevels::default();
        let mut expected: Vec<(Reverse<i32>, u64, u32)> = Vec::new();
        for (op, slot) in ops.into_iter().zip(0..) {
            match op {
                Op::Join { priority, before } => {
                    // Each number once.
                    let number = (u64::from(slot) * 1000 + 1).saturating_sub(before * 1000 + 1);
                    let number = number + u64::from(slot % 1000);
                    if expected.iter().all(|&(_, other, _)| other != number) {
                        levels.insert(priority, number, slot);
                        expected.push((Reverse(priority), number, slot));
                        expected.sort_unstable();
                    }
                }
                Op::Pop => {
                    levels.pop_first();
                    expected.drain(..expected.len().min(1));
                }
                Op::Remove(n) if !expected.is_empty() => {
                    let (Reverse(priority), number, slot) = expected.remove(n % expected.len());
                    levels.remove(priority, number, slot);
                }
                Op::Remove(_) => {}
            }
            levels.check();
            assert_eq!(levels.len(), expected.len());
            assert_eq!(levels.first(), expected.first().map(|&(.., slot)| slot));
            assert!(levels.iter().eq(expected.iter().map(|&(.., slot)| slot)));
        }
    }

    proptest! {
        #[test]
        fn levels_are_a_sorted_list(ops in prop::collection::vec(op(2), 1..200)) {
            compare(ops);
        }

        #[test]
        fn many_levels_are_a_sorted_list(ops in prop::collection::vec(op(100), 1..200)) {
            compare(ops);
        }
    }
}
