//! The rules of the queue, without lock, clock or waiters.

use crate::clock::Moment;
use crate::ending::{Ending, Load, Stop};
use crate::guarded::guarded;
use crate::keys::Keys;
use crate::metrics::{QueueMetrics, Recorder};
use crate::order::{Ready, Slot};
use crate::shell::{Finished, Rules};
use crate::snapshot::{Added, Cancelled, HeldKey, KeyStatus, ReadyKey, Snapshot};
use crate::work_queue::{Key, Taken};
use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The key is ready and in the order once.
const READY: u8 = 1;
/// The key was added while held and becomes ready when the hold ends.
const RERUN: u8 = 2;
/// The key was handed out and is not done.
const HELD: u8 = 4;
/// The key was cancelled. Its slot is still in the order, without a key, and is skipped.
const CANCELLED: u8 = 8;

/// The number of cancelled slots that the order may contain before it is compacted, so that
/// small queues are never compacted.
const GONE_ALLOWED: usize = 32;

/// The state of a key. Invariant: `READY`, or `HELD`, or `HELD | RERUN`, or `CANCELLED`; no flag in
/// a free slot.
#[derive(Clone, Copy)]
struct Work {
    flags: u8,
    /// The number of the current hold, if the key is held.
    hold: u32,
}

pub(super) struct State<K> {
    keys: Keys<K, Work>,
    /// Invariant: exactly the slots that are `READY` or `CANCELLED`.
    order: Ready<K>,
    /// The number of `READY` keys.
    ready: usize,
    /// The number of `HELD` keys.
    held: usize,
    /// The number of `CANCELLED` slots. Always 0 under a custom order.
    cancelled_slots: usize,
    /// The number of holds so far. Wraps around.
    holds: u32,
    /// Keys that their holders requeued during a drain.
    kept: Vec<K>,
    ending: Ending,
    /// Present if the queue has a name.
    recorder: Option<Box<Recorder>>,
}

impl<K: Key> Rules for State<K> {
    type Key = K;

    #[inline]
    fn load(&self) -> Load {
        Load { ready: self.ready, held: self.held }
    }

    #[inline]
    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }

    #[inline(always)]
    fn take(&mut self, now: Moment) -> Option<Taken<K>> {
        if self.ready == 0 {
            return None;
        }
        let slot = self.next_slot()?;
        let hold = self.holds.wrapping_add(1);
        let (key, hash, work) = self.keys.entry(slot)?;
        // If `clone` panics, nothing has changed.
        let key = match &mut self.order {
            Ready::Fifo(slots) => {
                let key = key.clone();
                slots.pop_front();
                key
            }
            Ready::Given(order) => match catch_unwind(AssertUnwindSafe(|| key.clone())) {
                Ok(key) => key,
                Err(panic) => {
                    order.push(key, Slot(slot));
                    resume_unwind(panic)
                }
            },
        };
        *work = Work { flags: HELD, hold };
        self.holds = hold;
        self.ready -= 1;
        self.held += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.taken(slot, now);
        }
        Some(Taken { key, token: (u64::from(hold) << 32) | u64::from(slot), hash, priority: 0 })
    }

    #[inline(always)]
    fn finish(&mut self, token: u64, now: Moment) -> Finished<K> {
        self.end_hold(token, false, now)
    }
}

impl<K: Key> State<K> {
    pub(super) fn new(order: Ready<K>, recorder: Option<Box<Recorder>>) -> Self {
        State {
            keys: Keys::default(),
            order,
            ready: 0,
            held: 0,
            cancelled_slots: 0,
            holds: 0,
            kept: Vec::new(),
            ending: Ending::new(),
            recorder,
        }
    }

    /// If a custom order panics, the key of that call is lost until it is added again.
    #[inline]
    fn make_ready(&mut self, slot: u32) {
        self.keys[slot].flags = 0;
        if let Some(key) = self.keys.key(slot) {
            self.order.push(key, slot);
            self.keys[slot].flags = READY;
            self.ready += 1;
        }
    }

    #[inline]
    fn record_add(&mut self, slot: u32, now: Moment) {
        if let Some(recorder) = &mut self.recorder {
            recorder.added(slot, now);
        }
    }

    #[cold]
    fn record_refused(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(1);
        }
    }

    /// Ends a hold as if the key had been added just before.
    pub(super) fn finish_and_add(&mut self, token: u64, now: Moment) -> Finished<K> {
        self.end_hold(token, true, now)
    }

    #[inline(always)]
    fn end_hold(&mut self, token: u64, again: bool, now: Moment) -> Finished<K> {
        let (slot, hold) = (token as u32, (token >> 32) as u32);
        // A token that identifies no hold is stale or forged. Accepting it would put a ready
        // key into the order twice, and two workers would hold it.
        let flags = match self.keys.get(slot) {
            Some(work) if work.flags & HELD != 0 && work.hold == hold => work.flags,
            _ => return Finished { added: Added::Refused, came_back: false, key: None },
        };
        self.held -= 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.done(slot, now);
        }
        if flags == HELD && !again {
            self.keys[slot].flags = 0;
            let key = self.keys.remove(slot);
            return Finished { added: Added::Refused, came_back: false, key };
        }
        self.finish_again(slot, flags & RERUN != 0, again, now)
    }

    #[inline(never)]
    fn finish_again(&mut self, slot: u32, rerun: bool, again: bool, now: Moment) -> Finished<K> {
        let added = match self.ending.stop() {
            Stop::Open | Stop::WorkingOff if again && rerun => Added::Coalesced,
            Stop::Open if again => Added::Queued,
            Stop::WorkingOff if again => Added::Kept,
            _ => Added::Refused,
        };
        if again && added == Added::Refused {
            self.record_refused();
        }
        if rerun || added == Added::Queued {
            if !rerun {
                self.record_add(slot, now);
            }
            // This runs while a guard is dropped. If a custom order panics, the key is lost,
            // and only the panic hook reports the panic.
            drop(guarded(|| self.make_ready(slot)));
            if self.keys[slot].flags == READY {
                return Finished { added, came_back: true, key: None };
            }
        }
        self.keys[slot].flags = 0;
        let mut key = self.keys.remove(slot);
        if added == Added::Kept {
            self.kept.extend(key.take());
        }
        Finished { added, came_back: false, key }
    }

    /// Adds a key. If the key was not needed, returns it, to be dropped once the lock is
    /// released.
    #[inline(always)]
    pub(super) fn add(&mut self, hash: u32, key: K, now: Moment) -> (Added, Option<K>) {
        if !self.ending.is_open() {
            self.record_refused();
            return (Added::Refused, Some(key));
        }
        let Some(slot) = self.keys.find(hash, &key) else {
            self.add_new(hash, key, now);
            return (Added::Queued, None);
        };
        (self.add_again(slot, &key, now), Some(key))
    }

    #[inline]
    fn add_new(&mut self, hash: u32, key: K, now: Moment) {
        let slot = self.keys.insert(hash, key, Work { flags: READY, hold: 0 });
        match &mut self.order {
            Ready::Fifo(slots) => {
                slots.push_back(slot);
                self.ready += 1;
            }
            Ready::Given(_) => self.make_ready(slot),
        }
        self.record_add(slot, now);
    }

    /// Adds a key that is ready or held.
    #[inline]
    fn add_again(&mut self, slot: u32, key: &K, now: Moment) -> Added {
        let work = &mut self.keys[slot];
        let added = match work.flags {
            READY => {
                if let Ready::Given(order) = &mut self.order {
                    order.touch(key, Slot(slot));
                }
                Added::Coalesced
            }
            HELD => {
                work.flags |= RERUN;
                Added::Rerun
            }
            flags if flags & RERUN != 0 => Added::Coalesced,
            // A custom order panicked in `push`.
            _ => {
                self.make_ready(slot);
                Added::Queued
            }
        };
        match &mut self.recorder {
            Some(recorder) if added == Added::Coalesced => recorder.coalesced(),
            Some(recorder) => recorder.added(slot, now),
            None => {}
        }
        added
    }

    /// Returns the next ready slot. A custom order removes it; FIFO does not.
    #[inline]
    fn next_slot(&mut self) -> Option<u32> {
        match &mut self.order {
            Ready::Fifo(slots) => {
                let slot = *slots.front()?;
                if self.cancelled_slots > 0 { self.skip_cancelled() } else { Some(slot) }
            }
            Ready::Given(order) => {
                let slot = order.pop()?.0;
                // A custom order may return any slot.
                (self.keys.get(slot)?.flags == READY).then_some(slot)
            }
        }
    }

    #[cold]
    fn skip_cancelled(&mut self) -> Option<u32> {
        let Ready::Fifo(slots) = &mut self.order else { return None };
        loop {
            let slot = *slots.front()?;
            if self.keys.key(slot).is_some() {
                return Some(slot);
            }
            slots.pop_front();
            self.cancelled_slots -= 1;
            self.keys[slot].flags = 0;
            self.keys.release(slot);
        }
    }

    /// Removes a key that is ready. A held key no longer runs again.
    pub(super) fn cancel<B>(&mut self, hash: u32, key: &B) -> (Cancelled, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let mut cancelled = Cancelled::default();
        let Some(slot) = self.keys.find(hash, key) else {
            return (cancelled, None);
        };
        let work = &mut self.keys[slot];
        if work.flags == 0 {
            // A custom order panicked for this key.
            return (cancelled, self.keys.remove(slot));
        }
        if work.flags & READY == 0 {
            cancelled.rerun = work.flags & RERUN != 0;
            work.flags &= !RERUN;
            return (cancelled, None);
        }
        cancelled.ready = true;
        let key = self.remove_ready(slot);
        self.compact();
        (cancelled, key)
    }

    fn remove_ready(&mut self, slot: u32) -> Option<K> {
        self.ready -= 1;
        match &mut self.order {
            Ready::Fifo(_) => {
                self.keys[slot].flags = CANCELLED;
                self.cancelled_slots += 1;
                self.keys.detach(slot)
            }
            Ready::Given(order) => {
                self.keys[slot].flags = 0;
                if let Some(key) = self.keys.key(slot) {
                    order.remove(key, Slot(slot));
                }
                self.keys.remove(slot)
            }
        }
    }

    /// Removes cancelled slots from the order once they are the majority: a cancel costs O(1)
    /// on average, and cancelled keys do not accumulate.
    fn compact(&mut self) {
        let Ready::Fifo(slots) = &mut self.order else { return };
        if self.cancelled_slots <= GONE_ALLOWED || self.cancelled_slots <= self.ready {
            return;
        }
        let keys = &mut self.keys;
        slots.retain(|&slot| {
            let live = keys.key(slot).is_some();
            if !live {
                keys[slot].flags = 0;
                keys.release(slot);
            }
            live
        });
        self.cancelled_slots = 0;
    }

    pub(super) fn status<B>(&self, hash: u32, key: &B) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let flags = self.keys.find(hash, key).map_or(0, |slot| self.keys[slot].flags);
        KeyStatus {
            ready: flags & READY != 0,
            held: flags & HELD != 0,
            rerun: flags & RERUN != 0,
            ..KeyStatus::default()
        }
    }

    pub(super) fn snapshot(&self, now: Moment) -> Snapshot<K> {
        let recorder = self.recorder.as_ref();
        let ready =
            self.ready_slots().filter_map(|slot| Some((slot, self.keys.key(slot)?.clone())));
        let ready = ready.map(|(slot, key)| {
            let added_for = recorder.map(|recorder| recorder.since_added(slot, now));
            ReadyKey { key, added_for, priority: 0 }
        });
        let held = self.keys.iter().filter(|(_, _, work)| work.flags & HELD != 0);
        let held = held.map(|(slot, key, work)| HeldKey {
            key: key.clone(),
            held_for: recorder.map(|recorder| recorder.since_taken(slot, now)),
            rerun: work.flags & RERUN != 0,
            priority: 0,
        });
        Snapshot { ready: ready.collect(), waiting: Vec::new(), held: held.collect() }
    }

    /// Returns `None` if the queue has no name.
    pub(super) fn metrics(&self, now: Moment) -> Option<QueueMetrics> {
        let recorder = self.recorder.as_ref()?;
        let mut metrics = recorder.counts();
        for (slot, _, work) in self.keys.iter() {
            if work.flags & (READY | RERUN) != 0 {
                metrics.depth += 1;
            }
            if work.flags & READY != 0 {
                let age = recorder.since_added(slot, now);
                metrics.oldest_ready = metrics.oldest_ready.max(Some(age));
            }
            if work.flags & HELD != 0 {
                let age = recorder.since_taken(slot, now);
                metrics.unfinished_work += age;
                metrics.longest_running = metrics.longest_running.max(age);
            }
        }
        Some(metrics)
    }

    /// Returns the ready slots, in order unless the order is a custom one.
    fn ready_slots(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match &self.order {
            Ready::Fifo(slots) => {
                Box::new(slots.iter().copied().filter(|&slot| self.keys.key(slot).is_some()))
            }
            Ready::Given(_) => {
                let all = self.keys.iter();
                Box::new(all.filter(|(_, _, work)| work.flags == READY).map(|(slot, ..)| slot))
            }
        }
    }

    /// Returns the held keys, and those of them that run again.
    pub(super) fn held_keys(&self) -> (Vec<K>, Vec<K>) {
        let held = self.keys.iter().filter(|(_, _, work)| work.flags & HELD != 0);
        let held: Vec<(&K, &Work)> = held.map(|(_, key, work)| (key, work)).collect();
        let reruns = held.iter().filter(|(_, work)| work.flags & RERUN != 0);
        let reruns = reruns.map(|&(key, _)| key.clone()).collect();
        (held.into_iter().map(|(key, _)| key.clone()).collect(), reruns)
    }

    /// Removes and returns the ready keys. Held keys stay but do not run again.
    pub(super) fn take_ready(&mut self) -> Vec<K> {
        let slots: Vec<u32> = self.ready_slots().collect();
        let mut ready: Vec<K> =
            slots.into_iter().filter_map(|slot| self.remove_ready(slot)).collect();
        self.compact();
        ready.append(&mut self.kept);
        let slots: Vec<u32> = self.keys.iter().map(|(slot, ..)| slot).collect();
        for slot in slots {
            self.keys[slot].flags &= !RERUN;
        }
        ready
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.keys.check();
        let count = |flag| self.keys.iter().filter(|(_, _, work)| work.flags & flag != 0).count();
        assert_eq!((count(READY), count(HELD)), (self.ready, self.held));
        for (_, _, work) in self.keys.iter() {
            assert!(matches!(work.flags, READY | HELD) || work.flags == HELD | RERUN);
        }
        if let Ready::Fifo(slots) = &self.order {
            let mut ready: Vec<u32> = slots.iter().copied().collect();
            ready.sort_unstable();
            ready.dedup();
            assert_eq!(ready.len(), slots.len(), "a slot is in the order once");
            let (live, cancelled_slots): (Vec<u32>, Vec<u32>) =
                ready.into_iter().partition(|&slot| self.keys.key(slot).is_some());
            assert!(live.iter().all(|&slot| self.keys[slot].flags == READY));
            assert!(cancelled_slots.iter().all(|&slot| self.keys[slot].flags == CANCELLED));
            assert_eq!((live.len(), cancelled_slots.len()), (self.ready, self.cancelled_slots));
        }
    }
}
