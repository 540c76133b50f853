//! Ready keys by priority, and first in, first out within one.
//!
//! Nearly all keys join their lane at its end. Those that do not (a key keeps its place from
//! the add that made it wait, or that found it held) are few, and sorted apart: so a
//! cycle costs no more than in a queue without priorities, whatever the order in which
//! keys come, and however many priorities there are.

use crate::keys::{KEPT_CAPACITY, NIL};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Lanes without keys that are kept, so that a few priorities do not come and go all the
/// time; and places without keys that a lane may carry along.
const EMPTY_ALLOWED: usize = 16;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Reverse<i32>, Lane>,
    /// How many of them have no key.
    empty: usize,
    len: usize,
}

/// The keys of one priority, by their number.
#[derive(Default)]
struct Lane {
    /// Rising numbers, each with a slot; or with `NIL`, once that was removed.
    /// Invariant: the first has a slot.
    joined: VecDeque<(u64, u32)>,
    /// How many of `joined` have none.
    gone: usize,
    /// Those whose number was not the highest when they came.
    strays: BTreeSet<(u64, u32)>,
}

impl Lanes {
    #[inline]
    pub(super) fn insert(&mut self, priority: i32, number: u64, slot: u32) {
        let empty = &mut self.empty;
        let lane = self.lanes.entry(Reverse(priority)).or_insert_with(|| {
            *empty += 1;
            Lane::default()
        });
        *empty -= usize::from(lane.is_empty());
        lane.insert(number, slot);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, priority: i32, number: u64, slot: u32) {
        if let Some(lane) = self.lanes.get_mut(&Reverse(priority)) {
            let removed = lane.remove(number, slot);
            lane.give_back();
            debug_assert!(removed, "it stood in this lane");
            self.len -= usize::from(removed);
            self.empty += usize::from(removed && lane.is_empty());
            self.tidy();
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.lanes.values().find_map(Lane::first)
    }

    #[inline]
    pub(super) fn pop_first(&mut self) {
        if let Some(lane) = self.lanes.values_mut().find(|lane| !lane.is_empty()) {
            lane.pop_first();
            self.len -= 1;
            if lane.is_empty() {
                lane.give_back();
                self.empty += 1;
                self.tidy();
            }
        }
    }

    fn tidy(&mut self) {
        if self.empty > EMPTY_ALLOWED {
            self.lanes.retain(|_, lane| !lane.is_empty());
            self.empty = 0;
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.lanes.values().flat_map(|lane| {
            let joined = lane.joined.iter().copied().filter(|&(_, slot)| slot != NIL);
            let mut places: Vec<(u64, u32)> = joined.chain(lane.strays.iter().copied()).collect();
            places.sort_unstable();
            places.into_iter().map(|(_, slot)| slot)
        })
    }
}

impl Lane {
    /// A storm does not hold its memory for ever.
    #[inline]
    fn give_back(&mut self) {
        if self.joined.is_empty() && self.joined.capacity() > KEPT_CAPACITY {
            self.joined = VecDeque::new();
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.strays.is_empty()
    }

    #[inline]
    fn insert(&mut self, number: u64, slot: u32) {
        if self.joined.back().is_none_or(|&(last, _)| last < number) {
            self.joined.push_back((number, slot));
        } else {
            self.strays.insert((number, slot));
        }
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        let (joined, stray) = (self.joined.front(), self.strays.first());
        let first = if stray.is_none() { joined } else { joined.into_iter().chain(stray).min() };
        first.map(|&(_, slot)| slot)
    }

    #[inline]
    fn pop_first(&mut self) {
        let stray_is_first = match (self.joined.front(), self.strays.first()) {
            (_, None) => false,
            (joined, stray) => joined.is_none_or(|joined| stray < Some(joined)),
        };
        if stray_is_first {
            self.strays.pop_first();
        } else {
            self.joined.pop_front();
            self.pass_over_gone();
        }
    }

    fn remove(&mut self, number: u64, slot: u32) -> bool {
        let found = self.joined.binary_search_by_key(&number, |&(number, _)| number);
        let Some(place) = found.ok().map(|index| &mut self.joined[index]) else {
            return self.strays.remove(&(number, slot));
        };
        if place.1 != slot {
            return false;
        }
        place.1 = NIL;
        self.gone += 1;
        self.pass_over_gone();
        // Once they are the most of the lane: a removal costs O(log n) on average.
        if self.gone > EMPTY_ALLOWED && self.gone > self.joined.len() / 2 {
            self.joined.retain(|&(_, slot)| slot != NIL);
            self.gone = 0;
        }
        true
    }

    #[inline]
    fn pass_over_gone(&mut self) {
        while self.gone > 0 && self.joined.front().is_some_and(|&(_, slot)| slot == NIL) {
            self.joined.pop_front();
            self.gone -= 1;
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Lanes {
        fn check(&self) {
            assert_eq!(self.empty, self.lanes.values().filter(|lane| lane.is_empty()).count());
            assert!(self.empty <= EMPTY_ALLOWED);
            for lane in self.lanes.values() {
                assert!(lane.joined.iter().is_sorted_by_key(|&(number, _)| number));
                assert!(lane.joined.front().is_none_or(|&(_, slot)| slot != NIL));
                let gone = lane.joined.iter().filter(|&&(_, slot)| slot == NIL).count();
                assert_eq!(gone, lane.gone);
                assert!(gone <= EMPTY_ALLOWED.max(lane.joined.len() / 2));
            }
        }
    }

    #[test]
    fn memory_of_a_storm_is_given_back_when_the_last_key_leaves() {
        let mut lanes = Lanes::default();
        (0..100_000).for_each(|n| lanes.insert(0, u64::from(n), n));
        (0..100_000).for_each(|_| lanes.pop_first());
        assert!(lanes.lanes.values().all(|lane| lane.joined.capacity() <= KEPT_CAPACITY));
    }

    #[derive(Debug, Clone)]
    enum Op {
        /// Joins at the end, or as far before it as it says.
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
        let mut lanes = Lanes::default();
        let mut naive: Vec<(Reverse<i32>, u64, u32)> = Vec::new();
        for (op, slot) in ops.into_iter().zip(0..) {
            match op {
                Op::Join { priority, before } => {
                    // Each number once.
                    let number = (u64::from(slot) * 1000 + 1).saturating_sub(before * 1000 + 1);
                    let number = number + u64::from(slot % 1000);
                    if naive.iter().all(|&(_, other, _)| other != number) {
                        lanes.insert(priority, number, slot);
                        naive.push((Reverse(priority), number, slot));
                        naive.sort_unstable();
                    }
                }
                Op::Pop => {
                    lanes.pop_first();
                    naive.drain(..naive.len().min(1));
                }
                Op::Remove(n) if !naive.is_empty() => {
                    let (Reverse(priority), number, slot) = naive.remove(n % naive.len());
                    lanes.remove(priority, number, slot);
                }
                Op::Remove(_) => {}
            }
            lanes.check();
            assert_eq!(lanes.len(), naive.len());
            assert_eq!(lanes.first(), naive.first().map(|&(.., slot)| slot));
            assert!(lanes.iter().eq(naive.iter().map(|&(.., slot)| slot)));
        }
    }

    proptest! {
        #[test]
        fn lanes_are_a_sorted_list(ops in prop::collection::vec(op(2), 1..200)) {
            compare(ops);
        }

        #[test]
        fn however_many_there_are(ops in prop::collection::vec(op(100), 1..200)) {
            compare(ops);
        }
    }
}
