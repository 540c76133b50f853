//! The minimum interval between two runs of a key.
//!
//! ```text
//!          taken at t
//!   ready ------------> held, and t is noted
//!     ^                   |
//!     | at t + interval   | add, requeue, retry: before t + interval
//!     +----- waiting <----+
//! ```
//!
//! A run begins when its key is taken. From then on, an add is delayed until the interval has
//! passed, and so is a key that already waits. A run is recorded shortly after the key was
//! taken: the inner queue hands a key out under its own lock and wakes waiters, for which the
//! lock of this layer must not be held. An add in between finds no recorded run and makes the
//! key ready too early. Therefore every key is checked again when it is taken, and is delayed
//! if it is too early.

use super::DelayingQueue;
use super::state::{By, Caller, Offer, Outcome, State};
use crate::clock::Moment;
use crate::keys::KEPT_CAPACITY;
use crate::options::Merge;
use crate::snapshot::Added;
use crate::waiters::Waiter;
use crate::work_queue::{Key, Taken, WorkQueue};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The number of records that one call checks for expiry. More than a call adds, so that their
/// number shrinks; and few, so that no single call pays for a burst.
const FORGET_AT_ONCE: usize = 16;

/// When keys were last taken.
pub(super) struct Interval {
    length: Duration,
    /// Sorted by time, except for takes that overtook each other. A record is outdated once its
    /// slot has another time.
    notes: VecDeque<(Moment, u32)>,
    /// By slot: when its key was taken, if that is recorded.
    last: Vec<Moment>,
}

impl Interval {
    /// Returns `None` if `length` is zero: then there is no minimum interval.
    pub(super) fn new(length: Duration) -> Option<Self> {
        let interval = Interval { length, notes: VecDeque::new(), last: Vec::new() };
        (!length.is_zero()).then_some(interval)
    }

    /// Records a run. Invariant: a key has at most one record for each time, because it cannot
    /// be taken again within the same nanosecond.
    fn note(&mut self, slot: u32, now: Moment) {
        let index = slot as usize;
        if index >= self.last.len() {
            self.last.resize((index + 1).next_power_of_two(), Moment::default());
        }
        self.last[index] = now;
        self.notes.push_back((now, slot));
    }

    /// Returns when the key in `slot`, which has a record, may run again.
    fn end(&self, slot: u32) -> Moment {
        self.last[slot as usize].saturating_add(self.length)
    }

    /// Removes a record that is too old. Returns its slot, unless the record is outdated.
    fn pop(&mut self, now: Moment) -> Option<Option<u32>> {
        let &(at, slot) = self.notes.front()?;
        if at.saturating_add(self.length) > now {
            return None;
        }
        self.notes.pop_front();
        let current = self.last[slot as usize] == at;
        if self.notes.is_empty() && self.last.len() > KEPT_CAPACITY {
            (self.notes, self.last) = (VecDeque::new(), Vec::new());
        }
        Some(current.then_some(slot))
    }
}

impl<K: Key> State<K> {
    /// Returns the earliest time at which the key in slot `found` may run again.
    #[inline]
    pub(super) fn floor(&self, found: Option<u32>) -> Moment {
        match (&self.interval, found) {
            (Some(interval), Some(slot)) if self.queue.keys[slot].ran() => interval.end(slot),
            _ => Moment::default(),
        }
    }

    /// Forgets some of the runs whose interval has passed.
    #[inline]
    pub(super) fn forget_runs(&mut self, now: Moment, dropped: &mut Vec<K>) {
        for _ in 0..FORGET_AT_ONCE {
            let Some(interval) = &mut self.interval else { return };
            match interval.pop(now) {
                Some(Some(slot)) => dropped.extend(self.forget_run(slot)),
                Some(None) => {}
                None => return,
            }
        }
    }
}

impl<K: Key> State<K> {
    /// Makes a key wait if it ran recently.
    fn add(
        &mut self,
        found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        caller: Caller,
    ) -> Outcome {
        self.schedule(found, offer, now, Duration::ZERO, Merge::Earliest, caller)
    }

    /// Decides whether a key that was taken may run now: it may if an add would make it ready
    /// now. If so, its run begins and the outcome is due; otherwise the key waits.
    ///
    /// If waiting is no longer possible because of a shutdown or drain, the key runs.
    fn begin(&mut self, hash: u32, key: &K, now: Moment, caller: Caller) -> Outcome {
        if !self.accepts(caller) {
            return Outcome::DUE;
        }
        let found = self.queue.keys.find(hash, key);
        let mut known = Offer { hash, key: None, left: None };
        let outcome =
            self.schedule(found, &mut known, now, Duration::ZERO, Merge::Earliest, caller);
        if outcome.due {
            let insert = || self.queue.keys.insert(hash, key.clone(), Default::default());
            let slot = found.unwrap_or_else(insert);
            self.note(slot, now);
        }
        outcome
    }

    fn note(&mut self, slot: u32, now: Moment) {
        let Some(interval) = &mut self.interval else { return };
        interval.note(slot, now);
        let end = interval.end(slot);
        let timer = &mut self.queue.keys[slot];
        timer.set_ran();
        if timer.waits() && timer.due() < end {
            self.wheel.reset(&mut self.queue.keys, slot, end.as_nanos());
        }
    }

    /// Checks the invariants of the interval.
    #[cfg(test)]
    pub(super) fn check_interval(&self) {
        let ran = self.queue.keys.iter().filter(|(_, _, timer)| timer.ran());
        let noted = self.interval.as_ref().map_or(0, |interval| {
            let current = |&&(at, slot): &&(Moment, u32)| interval.last[slot as usize] == at;
            interval.notes.iter().filter(current).count()
        });
        assert_eq!(ran.count(), noted);
        for (slot, _, timer) in self.queue.keys.iter() {
            assert!(!timer.waits() || timer.due() >= self.floor(Some(slot)));
        }
    }
}

/// The operations of a queue with a minimum interval.
impl<K: Key> DelayingQueue<K> {
    pub(super) fn add_paced(&self, key: K) -> Added {
        let mut offer = Offer::new(self.shared.hasher.hash(&key), key);
        let outcome = self.update(By::Anyone, |state, caller, now| {
            state.add(state.find(&offer), &mut offer, now, caller)
        });
        let due = offer.key.filter(|_| outcome.due);
        due.map_or(outcome.added, |key| self.add_ready(key))
    }

    pub(super) fn requeue_paced(&self, taken: Taken<K>) -> Added {
        self.put_back(taken, |state, found, offer, caller, now| {
            state.add(found, offer, now, caller)
        })
    }

    pub(super) fn poll_take_paced(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<K>>> {
        loop {
            match self.poll_take_ready(waiter, waker) {
                Poll::Ready(Some(taken)) => {
                    if let Some(taken) = self.begin(taken) {
                        return Poll::Ready(Some(taken));
                    }
                }
                nothing => return nothing,
            }
        }
    }

    pub(super) fn take_paced(&self) -> Option<Taken<K>> {
        match self.poll_take_paced(&mut Waiter::for_task(), None) {
            Poll::Ready(taken) => taken,
            Poll::Pending => None,
        }
    }

    pub(super) fn take_ready_paced(&self, max: usize, out: &mut Vec<Taken<K>>) {
        let before = out.len();
        while out.len() - before < max {
            match catch_unwind(AssertUnwindSafe(|| self.take_paced())) {
                Ok(Some(taken)) => out.push(taken),
                Ok(None) => return,
                // Keys taken before the panic are not lost. The next caller gets the panic.
                Err(_) if out.len() > before => return,
                Err(panic) => resume_unwind(panic),
            }
        }
    }

    /// Returns a taken key if it may run now. If `Eq` or `Hash` of the key panics, it stays
    /// ready.
    fn begin(&self, taken: Taken<K>) -> Option<Taken<K>> {
        let updated = catch_unwind(AssertUnwindSafe(|| {
            let hash = self.hash_of_held(taken.hash, &taken.key);
            self.update(By::Holder, |state, caller, now| state.begin(hash, &taken.key, now, caller))
        }));
        match updated {
            Ok(outcome) if outcome.due => Some(taken),
            Ok(_) => {
                self.done(taken.token);
                None
            }
            Err(panic) => {
                self.requeue_ready(taken);
                resume_unwind(panic)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(nanos: u64) -> Interval {
        Interval::new(Duration::from_nanos(nanos)).expect("not zero")
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn a_run_is_forgotten_when_its_interval_has_passed() {
        let mut interval = interval(10);
        interval.note(0, at(5));
        interval.note(7, at(6));
        assert_eq!(interval.pop(at(14)), None);
        assert_eq!(interval.pop(at(15)), Some(Some(0)));
        assert_eq!(interval.pop(at(15)), None);
        assert_eq!(interval.pop(at(16)), Some(Some(7)));
        assert_eq!(interval.pop(Moment::END), None);
    }

    #[test]
    fn an_older_run_of_a_key_does_not_end_the_interval_of_a_newer_one() {
        let mut interval = interval(10);
        interval.note(3, at(5));
        interval.note(3, at(20));
        assert_eq!(interval.pop(at(20)), Some(None));
        assert_eq!(interval.pop(at(29)), None);
        assert_eq!(interval.end(3), at(30));
        assert_eq!(interval.pop(at(30)), Some(Some(3)));
    }

    #[test]
    fn memory_of_a_storm_is_given_back_when_the_last_run_is_forgotten() {
        let mut interval = interval(10);
        for slot in 0..100_000 {
            interval.note(slot, at(5));
        }
        for slot in 0..100_000 {
            assert_eq!(interval.pop(at(15)), Some(Some(slot)));
        }
        assert_eq!((interval.notes.capacity(), interval.last.capacity()), (0, 0));
    }
}
