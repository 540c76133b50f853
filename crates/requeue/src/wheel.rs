//! A timing wheel: keeps times in order, exact to the nanosecond, at a cost that does not grow
//! with their number.
//!
//! Time is divided into ticks of 2²⁰ ns, about a millisecond. A tick number is read as digits
//! of six bits. A timer is stored in the level of the highest digit in which its tick differs
//! from `elapsed`, in the slot with the number of this digit:
//!
//! ```text
//!   level 0   64 slots of one tick       elapsed = … 3 · 17 · 5
//!   level 1   64 slots of 64 ticks       tick    = … 3 · 17 · 9   level 0, slot 9
//!   level 2   64 slots of 64² ticks      tick    = … 3 · 20 · 2   level 1, slot 20
//!   …                                    tick    = … 4 ·  0 · 0   level 2, slot 4
//! ```
//!
//! When `elapsed` enters a slot of a higher level, its timers move to lower levels: each moves
//! at most once per level. When it enters a tick, its timers move to `near`, a small heap that
//! sorts them exactly. Timers before `elapsed` go there immediately.
//!
//! Three facts keep this short. In every level, the occupied slots are ahead of `elapsed`, so
//! the first is the lowest bit. Lower levels come before higher ones. The position of a timer
//! follows from its time and `elapsed`, so it is not stored.
//!
//! Timers with the same time stay in the order in which they were set: lists are appended to
//! and moved front to back, and the heap numbers its entries.

use crate::keys::NIL;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds in a tick, as a power of two.
const TICK_BITS: u32 = 20;
/// Slots in a level, as a power of two.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The number of stale heap entries that are tolerated, so that a small heap is never rebuilt.
const STALE_ALLOWED: usize = 64;
/// How many ticks ahead [`Wheel::next_wake`] looks, so that several successive timers are
/// sorted together.
const LOOK_AHEAD: u64 = 32;

/// A `u64` aligned to four bytes, so that it packs with `u32`s.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packed {
    low: u32,
    high: u32,
}

impl Packed {
    #[inline]
    pub(crate) fn get(self) -> u64 {
        (u64::from(self.high) << 32) | u64::from(self.low)
    }
}

impl From<u64> for Packed {
    #[inline]
    fn from(n: u64) -> Self {
        Packed { low: n as u32, high: (n >> 32) as u32 }
    }
}

/// The data that the wheel keeps with each timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The due time in nanoseconds.
    due: Packed,
    /// The neighbours in the slot's list. In the heap: the halves of its number there.
    prev: u32,
    next: u32,
}

impl Node {
    pub(crate) fn new(due: u64) -> Self {
        Node { due: due.into(), prev: NIL, next: NIL }
    }

    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.due.get()
    }

    fn number(&self) -> u64 {
        (u64::from(self.prev) << 32) | u64::from(self.next)
    }

    fn set_number(&mut self, number: u64) {
        (self.prev, self.next) = ((number >> 32) as u32, number as u32);
    }
}

/// Access to the nodes, which the wheel does not own.
pub(crate) trait Nodes {
    /// Returns `None` if the node no longer exists.
    fn node(&self, index: u32) -> Option<&Node>;
    fn node_mut(&mut self, index: u32) -> &mut Node;
}

#[derive(Default)]
pub(crate) struct Wheel {
    /// As many levels as were needed so far.
    levels: Vec<Level>,
    /// In ticks. Invariant: `near` contains exactly the timers of earlier ticks.
    elapsed: u64,
    /// Earliest first, then in the order of insertion. May contain stale entries.
    near: BinaryHeap<Reverse<Near>>,
    /// The number of entries in `near` that are not stale.
    near_live: usize,
    /// The number of entries ever inserted into `near`.
    numbered: u64,
    len: usize,
    /// The number of moves of timers between lists and heap so far: the cost of the wheel.
    #[cfg(test)]
    moves: u64,
}

struct Level {
    /// One bit per slot; set if the slot has timers.
    occupied: u64,
    lists: [List; SLOTS],
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NIL, last: NIL };

/// Stale once its node has another time or another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Near {
    due: u64,
    number: u64,
    index: u32,
}

fn tick(due: u64) -> u64 {
    due >> TICK_BITS
}

impl Wheel {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns level and slot of a tick that is not before `elapsed`.
    #[inline]
    fn place(&self, tick: u64) -> (usize, usize) {
        debug_assert!(tick >= self.elapsed);
        let highest = (self.elapsed ^ tick).checked_ilog2().unwrap_or(0);
        let level = highest / SLOT_BITS;
        (level as usize, (tick >> (level * SLOT_BITS)) as usize % SLOTS)
    }

    /// Sets the timer of node `index` to its `due` time.
    #[inline]
    pub(crate) fn insert<N: Nodes>(&mut self, nodes: &mut N, index: u32, now: u64) {
        if self.len == 0 {
            // The wheel is empty, so `elapsed` can move freely.
            self.elapsed = tick(now);
            self.near.clear();
        }
        self.len += 1;
        self.put(nodes, index);
    }

    #[inline]
    fn put<N: Nodes>(&mut self, nodes: &mut N, index: u32) {
        let due = nodes.node_mut(index).due();
        if tick(due) < self.elapsed {
            self.push_near(nodes, index);
        } else {
            self.append(nodes, index, tick(due));
        }
    }

    /// Removes the timer of node `index`.
    #[inline]
    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, index: u32) {
        self.len -= 1;
        let node = *nodes.node_mut(index);
        if tick(node.due()) < self.elapsed {
            self.near_live -= 1;
            *nodes.node_mut(index) = Node::new(node.due());
            return;
        }
        let (level, slot) = self.place(tick(node.due()));
        let Level { occupied, lists } = &mut self.levels[level];
        let list = &mut lists[slot];
        match node.prev {
            NIL => list.first = node.next,
            prev => nodes.node_mut(prev).next = node.next,
        }
        match node.next {
            NIL => list.last = node.prev,
            next => nodes.node_mut(next).prev = node.prev,
        }
        if list.first == NIL {
            *occupied &= !(1 << slot);
        }
    }

    /// Moves the timer of node `index` to `due`, behind other timers of that time.
    #[inline]
    pub(crate) fn reset<N: Nodes>(&mut self, nodes: &mut N, index: u32, due: u64) {
        self.remove(nodes, index);
        nodes.node_mut(index).due = due.into();
        self.len += 1;
        self.put(nodes, index);
    }

    /// Removes and returns the earliest timer that is due by `now`.
    #[inline]
    pub(crate) fn pop<N: Nodes>(&mut self, nodes: &mut N, now: u64) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        loop {
            if let Some(near) = self.peek_near(nodes) {
                if near.due > now {
                    return None;
                }
                self.near.pop();
                self.near_live -= 1;
                self.len -= 1;
                *nodes.node_mut(near.index) = Node::new(near.due);
                return Some(near.index);
            }
            let (level, slot, start) = self.first_slot()?;
            if start > tick(now) {
                // No slot begins before `now`, so none is entered.
                self.elapsed = self.elapsed.max(tick(now));
                return None;
            }
            self.enter(nodes, level, slot, start);
        }
    }

    /// Returns a time to call [`pop`](Self::pop) again: not after the earliest timer, and
    /// exactly its time if it is near.
    pub(crate) fn next_wake<N: Nodes>(&mut self, nodes: &mut N, now: u64) -> Option<u64> {
        self.next_from(nodes, tick(now) + LOOK_AHEAD)
    }

    /// Returns the time of the earliest timer.
    pub(crate) fn next_due<N: Nodes>(&mut self, nodes: &mut N) -> Option<u64> {
        self.next_from(nodes, u64::MAX)
    }

    /// Returns the time of the earliest timer if its slot begins by tick `last`, otherwise the
    /// start of that slot.
    fn next_from<N: Nodes>(&mut self, nodes: &mut N, last: u64) -> Option<u64> {
        loop {
            if let Some(near) = self.peek_near(nodes) {
                return Some(near.due);
            }
            let (level, slot, start) = self.first_slot()?;
            if start > last {
                return Some(start << TICK_BITS);
            }
            self.enter(nodes, level, slot, start);
        }
    }

    /// Returns the first slot that has timers, and its first tick.
    #[inline]
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let (level, found) = self.levels.iter().enumerate().find(|(_, l)| l.occupied != 0)?;
        let slot = found.occupied.trailing_zeros() as usize;
        let shift = level as u32 * SLOT_BITS;
        let above = (self.elapsed >> shift) & !(SLOTS as u64 - 1);
        Some((level, slot, (above | slot as u64) << shift))
    }

    /// Moves `elapsed` into the first slot that has timers.
    fn enter<N: Nodes>(&mut self, nodes: &mut N, level: usize, slot: usize, start: u64) {
        debug_assert!(start >= self.elapsed);
        if level > 0 {
            self.elapsed = start;
            self.empty(nodes, level, slot);
            return;
        }
        self.elapsed = start + 1;
        self.empty(nodes, 0, slot);
        // The next tick may begin a slot of a higher level, but of one level only: the lower
        // levels are behind it and empty.
        let level = (self.elapsed.trailing_zeros() / SLOT_BITS) as usize;
        if level > 0 && level < self.levels.len() {
            let slot = (self.elapsed >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
            self.empty(nodes, level, slot);
        }
    }

    /// Moves the timers of a slot, first to last, to their new positions.
    fn empty<N: Nodes>(&mut self, nodes: &mut N, level: usize, slot: usize) {
        let Level { occupied, lists } = &mut self.levels[level];
        *occupied &= !(1 << slot);
        let mut index = std::mem::replace(&mut lists[slot], EMPTY).first;
        while index != NIL {
            let next = nodes.node_mut(index).next;
            self.put(nodes, index);
            index = next;
        }
    }

    #[inline]
    fn append<N: Nodes>(&mut self, nodes: &mut N, index: u32, tick: u64) {
        #[cfg(test)]
        (self.moves += 1);
        let (level, slot) = self.place(tick);
        while self.levels.len() <= level {
            self.levels.push(Level { occupied: 0, lists: [EMPTY; SLOTS] });
        }
        let Level { occupied, lists } = &mut self.levels[level];
        *occupied |= 1 << slot;
        let list = &mut lists[slot];
        let last = std::mem::replace(&mut list.last, index);
        let node = nodes.node_mut(index);
        (node.prev, node.next) = (last, NIL);
        match last {
            NIL => list.first = index,
            last => nodes.node_mut(last).next = index,
        }
    }

    fn push_near<N: Nodes>(&mut self, nodes: &mut N, index: u32) {
        #[cfg(test)]
        (self.moves += 1);
        let number = self.numbered;
        self.numbered += 1;
        let node = nodes.node_mut(index);
        node.set_number(number);
        let due = node.due();
        self.near.push(Reverse(Near { due, number, index }));
        self.near_live += 1;
        if self.near.len() > 2 * self.near_live + STALE_ALLOWED {
            self.near.retain(|Reverse(near)| near.is_live(nodes));
        }
    }

    /// Returns the earliest entry of `near`, after removing the stale ones before it.
    #[inline]
    fn peek_near<N: Nodes>(&mut self, nodes: &N) -> Option<Near> {
        loop {
            let &Reverse(near) = self.near.peek()?;
            if near.is_live(nodes) {
                return Some(near);
            }
            self.near.pop();
        }
    }
}

#[cfg(test)]
impl Wheel {
    /// Checks all invariants.
    pub(crate) fn check<N: Nodes>(&self, nodes: &N) {
        let mut listed = 0;
        for (number, level) in self.levels.iter().enumerate() {
            for (slot, list) in level.lists.iter().enumerate() {
                assert_eq!(level.occupied & (1 << slot) != 0, list.first != NIL);
                let (mut prev, mut index) = (NIL, list.first);
                while index != NIL {
                    let node = nodes.node(index).expect("a listed node exists");
                    assert_eq!(node.prev, prev);
                    assert_eq!(self.place(tick(node.due())), (number, slot));
                    (prev, index) = (index, node.next);
                    listed += 1;
                }
                assert_eq!(list.last, prev);
            }
        }
        let near: Vec<_> = self.near.iter().filter(|Reverse(near)| near.is_live(nodes)).collect();
        assert_eq!(near.len(), self.near_live);
        assert!(near.iter().all(|Reverse(near)| tick(near.due) < self.elapsed));
        assert_eq!(listed + self.near_live, self.len);
    }
}

impl Near {
    #[inline]
    fn is_live<N: Nodes>(&self, nodes: &N) -> bool {
        nodes.node(self.index).is_some_and(|n| n.due() == self.due && n.number() == self.number)
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: u64 = 1 << TICK_BITS;
    const CENTURY: u64 = 100 * 365 * 86_400 * 1_000_000_000;

    impl Nodes for Vec<Node> {
        fn node(&self, index: u32) -> Option<&Node> {
            self.get(index as usize)
        }
        fn node_mut(&mut self, index: u32) -> &mut Node {
            &mut self[index as usize]
        }
    }

    fn wheel_of(dues: impl IntoIterator<Item = u64>) -> (Wheel, Vec<Node>) {
        let mut wheel = Wheel::default();
        let mut nodes = Vec::new();
        for (index, due) in (0..).zip(dues) {
            nodes.push(Node::new(due));
            wheel.insert(&mut nodes, index, 0);
        }
        (wheel, nodes)
    }

    /// Goes from wake-up to wake-up like a clock. Returns (time, index) of all timers.
    fn run_down(wheel: &mut Wheel, nodes: &mut Vec<Node>) -> Vec<(u64, u32)> {
        let mut fired = Vec::new();
        let mut now = 0;
        while let Some(wake) = wheel.next_wake(nodes, now) {
            now = wake;
            fired.extend(std::iter::from_fn(|| wheel.pop(nodes, now)).map(|index| (now, index)));
        }
        fired
    }

    #[test]
    fn every_delay_from_a_nanosecond_to_centuries_fires_at_its_own_instant() {
        let mut dues: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
        dues.extend([CENTURY - 1, CENTURY, CENTURY + 1, u64::MAX - 1]);
        let (mut wheel, mut nodes) = wheel_of(dues.clone());
        wheel.check(&nodes);
        dues.sort_unstable();
        let times: Vec<u64> = run_down(&mut wheel, &mut nodes).iter().map(|&(at, _)| at).collect();
        assert_eq!(times, dues);
    }

    #[test]
    fn a_million_timers_of_one_instant_fire_in_the_order_they_were_set() {
        let due = 12_345 * TICK + 6_789;
        let (mut wheel, mut nodes) = wheel_of(std::iter::repeat_n(due, 1_000_000));
        assert_eq!(wheel.pop(&mut nodes, due - 1), None);
        for index in 0..1_000_000 {
            assert_eq!(wheel.pop(&mut nodes, due), Some(index));
        }
        assert_eq!((wheel.pop(&mut nodes, due), wheel.len()), (None, 0));
    }

    /// Returns the moves per timer from insertion to firing, over an hour.
    fn moves_per_timer(timers: u64) -> f64 {
        let hour = 3_600_000_000_000;
        let step = hour / timers;
        let (mut wheel, mut nodes) = wheel_of((0..timers).map(|n| 60_000_000_000 + n * step));
        let inserted = wheel.moves;
        assert_eq!(inserted, timers, "an insertion is one move");
        assert_eq!(run_down(&mut wheel, &mut nodes).len() as u64, timers);
        wheel.moves as f64 / timers as f64
    }

    #[test]
    fn the_work_per_timer_does_not_grow_with_their_number() {
        let few = moves_per_timer(1_000);
        for timers in [10_000, 100_000, 1_000_000] {
            let many = moves_per_timer(timers);
            // An hour is four levels: at most one move each, and one into the heap.
            assert!(many <= 5.0 && many <= few * 1.1, "{timers}: {many} moves, 1000: {few}");
        }
    }

    #[test]
    fn resetting_a_near_timer_for_ever_does_not_fill_the_heap() {
        let (mut wheel, mut nodes) = wheel_of([5 * TICK]);
        assert_eq!(wheel.next_wake(&mut nodes, 0), Some(5 * TICK));
        for n in 0..100_000 {
            wheel.reset(&mut nodes, 0, 5 * TICK - n % 7);
        }
        assert!(wheel.near.len() <= 2 * STALE_ALLOWED, "{}", wheel.near.len());
        wheel.check(&nodes);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Set(u32, u64),
        Remove(u32),
        Advance(u64),
        NextWake,
        NextDue,
    }

    /// Any number of nanoseconds, small and large ones, often at the edges of slots.
    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0..62u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1)),
            (0..43u32, 0..70u64, 0..3u64).prop_map(|(bits, n, near)| {
                (n << bits).saturating_mul(TICK).saturating_add(near).saturating_sub(1)
            }),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        let timer = 0..20u32;
        prop_oneof![
            6 => (timer.clone(), span()).prop_map(|(index, after)| Op::Set(index, after)),
            2 => timer.prop_map(Op::Remove),
            3 => span().prop_map(Op::Advance),
            1 => Just(Op::NextWake),
            1 => Just(Op::NextDue),
        ]
    }

    proptest! {
        #[test]
        fn the_wheel_behaves_like_a_sorted_list(ops in prop::collection::vec(op(), 1..200)) {
            let mut wheel = Wheel::default();
            let mut nodes = vec![Node::new(0); 20];
            // (due, order of setting, index)
            let mut naive: Vec<(u64, usize, u32)> = Vec::new();
            let mut now = 0u64;
            for (step, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Set(index, after) => {
                        let due = now.saturating_add(after);
                        let old = naive.iter().position(|&(_, _, i)| i == index);
                        if let Some(old) = old {
                            naive.remove(old);
                            wheel.reset(&mut nodes, index, due);
                        } else {
                            nodes[index as usize] = Node::new(due);
                            wheel.insert(&mut nodes, index, now);
                        }
                        naive.push((due, step, index));
                        naive.sort_unstable();
                    }
                    Op::Remove(index) => {
                        if let Some(old) = naive.iter().position(|&(_, _, i)| i == index) {
                            naive.remove(old);
                            wheel.remove(&mut nodes, index);
                        }
                    }
                    Op::Advance(by) => {
                        now = now.saturating_add(by);
                        while naive.first().is_some_and(|&(due, ..)| due <= now) {
                            prop_assert_eq!(wheel.pop(&mut nodes, now), Some(naive.remove(0).2));
                            wheel.check(&nodes);
                        }
                        prop_assert_eq!(wheel.pop(&mut nodes, now), None);
                    }
                    Op::NextWake => {
                        let wake = wheel.next_wake(&mut nodes, now);
                        prop_assert_eq!(wake.is_some(), !naive.is_empty());
                        prop_assert!(wake.is_none_or(|wake| wake <= naive[0].0));
                        let soon = naive.first().filter(|&&(due, ..)| tick(due) <= tick(now) + LOOK_AHEAD);
                        prop_assert!(soon.is_none_or(|&(due, ..)| wake == Some(due)));
                    }
                    Op::NextDue => {
                        prop_assert_eq!(wheel.next_due(&mut nodes), naive.first().map(|&(due, ..)| due));
                    }
                }
                wheel.check(&nodes);
                prop_assert_eq!(wheel.len(), naive.len());
            }
        }
    }
}
