//! A simple implementation for comparison: std's heap and map, with lazy deletion.
//!
//! A timer that is moved or cancelled leaves its old entry in the heap, where it is
//! recognised by a time that differs from the map. The queue behind it is that of client-go,
//! with std's collections. Neither has a lock.

use super::wheel::Timers;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// The number of stale entries that are tolerated, so that a small heap is not rebuilt all the time.
const STALE_ALLOWED: usize = 64;

#[derive(Default)]
pub(super) struct StdHeap {
    now: u64,
    /// Time and key, soonest first. May contain stale entries.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    due: HashMap<u64, u64>,
    ready: Ready,
}

/// Keys that are due.
#[derive(Default)]
struct Ready {
    /// Invariant: as a set, exactly `dirty` minus `processing`.
    order: VecDeque<u64>,
    dirty: HashSet<u64>,
    processing: HashSet<u64>,
}

impl Ready {
    fn add(&mut self, key: u64) {
        if self.dirty.insert(key) && !self.processing.contains(&key) {
            self.order.push_back(key);
        }
    }

    fn get(&mut self) -> Option<u64> {
        let key = self.order.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key);
        Some(key)
    }

    fn done(&mut self, key: u64) {
        self.processing.remove(&key);
        if self.dirty.contains(&key) {
            self.order.push_back(key);
        }
    }
}

impl StdHeap {
    fn set(&mut self, key: u64, due: u64) {
        self.due.insert(key, due);
        self.heap.push(Reverse((due, key)));
        self.sweep();
    }

    /// Removes stale entries. Otherwise a timer that is moved all the time would fill the memory.
    fn sweep(&mut self) {
        if self.heap.len() > 2 * self.due.len() + STALE_ALLOWED {
            let due = &self.due;
            self.heap.retain(|Reverse((at, key))| due.get(key) == Some(at));
        }
    }
}

impl Timers for StdHeap {
    fn add(&mut self, key: u64, delay: u64) {
        let due = self.now + delay;
        // The sooner time wins.
        if self.due.get(&key).is_none_or(|&old| due < old) {
            self.set(key, due);
        }
    }

    fn reschedule(&mut self, key: u64, delay: u64) {
        self.set(key, self.now + delay);
    }

    fn cancel(&mut self, key: u64) {
        self.due.remove(&key);
        self.sweep();
    }

    fn advance(&mut self, by: u64) -> usize {
        self.now += by;
        while let Some(&Reverse((due, key))) = self.heap.peek()
            && due <= self.now
        {
            self.heap.pop();
            if self.due.get(&key) == Some(&due) {
                self.due.remove(&key);
                self.ready.add(key);
            }
        }
        let mut fired = 0;
        while let Some(key) = self.ready.get() {
            self.ready.done(key);
            fired += 1;
        }
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_timer_fires_once_at_its_new_time() {
        let mut timers = StdHeap::default();
        timers.add(1, 10);
        timers.add(1, 20); // later: the sooner time stays
        timers.reschedule(1, 30);
        timers.add(2, 15);
        timers.cancel(2);
        assert_eq!(timers.advance(29), 0);
        assert_eq!(timers.advance(1), 1);
        assert_eq!(timers.advance(100), 0);
    }
}
