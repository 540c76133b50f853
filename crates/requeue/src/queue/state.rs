//! The rules of the queue, without lock, clock or waiters.
//!
//! A delaying queue keeps its timers in the same entries. An entry then stays while it is needed
//! there, also if its key is neither ready nor held.

use super::holds::{Holds, HoldsInEntries};
use crate::clock::Moment;
use crate::ending::{Ending, Load, Stop};
use crate::guarded::guarded;
use crate::keys::Keys;
use crate::metrics::Recorder;
use crate::order::{Ready, Slot};
use crate::shell::{Finished, Rules};
use crate::snapshot::{Added, Cancelled, Remains};
use crate::work_queue::{Key, Taken};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The key is ready and in the order once.
pub(super) const READY: u8 = 1;
/// The key was added while held and becomes ready when the hold ends.
pub(super) const RERUN: u8 = 2;
/// The key was handed out and is not done.
pub(super) const HELD: u8 = 4;

/// The number of cancelled slots that the order may contain before it is compacted, so that
/// small queues are never compacted.
const GONE_ALLOWED: usize = 32;

/// What a queue stores with each key.
pub(crate) trait Entry: Default + Send + 'static {
    type Holds: Holds<Self>;

    /// The state of the key, three bits. Invariant: `READY`, or `HELD`, or `HELD | RERUN`, or 0
    /// if the key is neither ready nor held.
    fn flags(&self) -> u8;

    fn set_flags(&mut self, flags: u8);

    /// Whether the entry is needed even if the key is neither ready nor held.
    fn is_needed(&self) -> bool;
}

/// The entry of a plain queue.
#[derive(Default)]
pub(crate) struct Work {
    flags: u8,
    /// The number of the current hold, if the key is held.
    pub(super) hold: u32,
}

impl Entry for Work {
    type Holds = HoldsInEntries;

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    fn set_flags(&mut self, flags: u8) {
        self.flags = flags;
    }

    #[inline(always)]
    fn is_needed(&self) -> bool {
        false
    }
}

pub(crate) struct State<K, E: Entry = Work> {
    pub(crate) keys: Keys<K, E>,
    /// Invariant: every `READY` slot once. In a FIFO, before that, each slot in `cancelled` as
    /// often as it is counted there.
    order: Ready<K>,
    /// The number of `READY` keys.
    ready: usize,
    /// The number of `HELD` keys.
    held: usize,
    /// Invariant: exactly the `HELD` keys.
    pub(super) holds: E::Holds,
    /// The slots in the FIFO whose keys were cancelled, and how often each. They are skipped.
    cancelled: HashMap<u32, u32>,
    /// The sum of the counts in `cancelled`.
    cancelled_slots: usize,
    /// Keys that their holders requeued during a drain.
    pub(super) kept: Vec<K>,
    ending: Ending,
    /// Present if the queue has a name.
    pub(crate) recorder: Option<Box<Recorder>>,
}

impl<K: Key, E: Entry> Rules for State<K, E> {
    #[inline]
    fn load(&self) -> Load {
        Load { ready: self.ready, held: self.held }
    }

    #[inline]
    fn ending(&self) -> &Ending {
        &self.ending
    }

    #[inline]
    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }

    #[inline(always)]
    fn take(&mut self, now: Moment) -> Option<Taken<K>> {
        if self.ready == 0 {
            return None;
        }
        let slot = self.next_slot()?;
        let (key, entry) = self.keys.entry(slot)?;
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
        entry.set_flags(HELD);
        let token = self.holds.begin(slot, entry);
        self.ready -= 1;
        self.held += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.taken(slot, now);
        }
        Some(Taken { key, token, priority: 0 })
    }

    #[inline(always)]
    fn finish(&mut self, token: u64, now: Moment) -> Finished<K> {
        self.end_hold(token, false, now)
    }

    #[inline(always)]
    fn add(&mut self, hash: u32, key: K, now: Moment) -> (Added, Option<K>) {
        if !self.ending.is_open() {
            self.record_refused();
            return (Added::Refused, Some(key));
        }
        let Some(slot) = self.keys.find(hash, &key) else {
            self.add_new(hash, key, now);
            return (Added::Queued, None);
        };
        (self.add_again(slot, now), Some(key))
    }

    #[inline]
    fn finish_and_add(&mut self, token: u64, key: &mut Option<K>, now: Moment) -> Finished<K> {
        let finished = self.end_hold(token, true, now);
        if finished.added == Added::Kept {
            self.kept.extend(key.take());
        }
        finished
    }

    fn take_remaining(&mut self, _: Moment) -> (Remains<K>, Vec<K>) {
        let mut remaining = self.remaining();
        let ready = self.take_ready(&mut remaining);
        (Remains { ready, waiting: Vec::new(), held: remaining.held }, Vec::new())
    }

    fn cancel<B>(&mut self, hash: u32, key: &B) -> (Cancelled, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let mut cancelled = Cancelled::default();
        let Some(slot) = self.keys.find(hash, key) else {
            return (cancelled, None);
        };
        let flags = self.keys[slot].flags();
        if flags & HELD != 0 {
            cancelled.rerun = flags & RERUN != 0;
            self.keys[slot].set_flags(HELD);
            return (cancelled, None);
        }
        // Without flags: a custom order panicked for this key, or it is needed for its timer.
        if flags & READY != 0 {
            cancelled.ready = true;
            self.leave_ready(slot);
        }
        let key = self.remove_idle(slot);
        self.compact();
        (cancelled, key)
    }
}

impl<K: Key, E: Entry> State<K, E> {
    pub(crate) fn new(order: Ready<K>, recorder: Option<Box<Recorder>>) -> Self {
        State {
            keys: Keys::default(),
            order,
            ready: 0,
            held: 0,
            holds: E::Holds::default(),
            cancelled: HashMap::new(),
            cancelled_slots: 0,
            kept: Vec::new(),
            ending: Ending::new(),
            recorder,
        }
    }

    /// If a custom order panics, the key of that call is lost until it is added again.
    #[inline]
    fn make_ready(&mut self, slot: u32) {
        self.keys[slot].set_flags(0);
        if let Some(key) = self.keys.key(slot) {
            self.order.push(key, slot);
            self.keys[slot].set_flags(READY);
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
    pub(crate) fn record_refused(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(1);
        }
    }

    /// Returns the slot of a held key, or `None` if `token` identifies no hold.
    #[inline]
    pub(crate) fn held_slot(&self, token: u64) -> Option<u32> {
        self.holds.slot(token, &self.keys)
    }

    /// Removes and returns a key that is neither ready nor held, unless its entry is needed.
    #[inline(always)]
    pub(crate) fn remove_idle(&mut self, slot: u32) -> Option<K> {
        let entry = &self.keys[slot];
        if entry.flags() != 0 || entry.is_needed() {
            return None;
        }
        if self.cancelled_slots > 0 && self.cancelled.contains_key(&slot) {
            // The slot is not reused before it has left the order.
            return self.keys.detach(slot);
        }
        self.keys.remove(slot)
    }

    #[inline(always)]
    fn end_hold(&mut self, token: u64, again: bool, now: Moment) -> Finished<K> {
        // Accepting a token that identifies no hold would put a ready key into the order twice,
        // and two workers would hold it.
        let Some(slot) = self.held_slot(token) else {
            return Finished { added: Added::Refused, came_back: false, key: None };
        };
        self.holds.end(token);
        self.held -= 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.done(slot, now);
        }
        let entry = &mut self.keys[slot];
        let flags = entry.flags();
        if flags == HELD && !again {
            entry.set_flags(0);
            let key = self.remove_idle(slot);
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
            if self.keys[slot].flags() == READY {
                return Finished { added, came_back: true, key: None };
            }
        }
        self.keys[slot].set_flags(0);
        let key = self.remove_idle(slot);
        Finished { added, came_back: false, key }
    }

    #[inline]
    fn add_new(&mut self, hash: u32, key: K, now: Moment) {
        let mut entry = E::default();
        entry.set_flags(READY);
        let slot = self.keys.insert(hash, key, entry);
        match &mut self.order {
            Ready::Fifo(slots) => {
                slots.push_back(slot);
                self.ready += 1;
            }
            Ready::Given(_) => self.make_ready(slot),
        }
        self.record_add(slot, now);
    }

    /// Adds a key that has an entry.
    #[inline]
    fn add_again(&mut self, slot: u32, now: Moment) -> Added {
        let entry = &mut self.keys[slot];
        let added = match entry.flags() {
            READY => {
                if let Ready::Given(order) = &mut self.order
                    && let Some(key) = self.keys.key(slot)
                {
                    order.touch(key, Slot(slot));
                }
                Added::Coalesced
            }
            HELD => {
                entry.set_flags(HELD | RERUN);
                Added::Rerun
            }
            flags if flags & RERUN != 0 => Added::Coalesced,
            // It is neither ready nor held, or a custom order panicked in `push`.
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

    /// Adds a key that has an entry. A refused key stays where it is.
    #[inline]
    pub(crate) fn add_slot(&mut self, slot: u32, now: Moment) -> Added {
        if !self.ending.is_open() {
            self.record_refused();
            return Added::Refused;
        }
        self.add_again(slot, now)
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
                (self.keys.get(slot)?.flags() == READY).then_some(slot)
            }
        }
    }

    #[cold]
    fn skip_cancelled(&mut self) -> Option<u32> {
        loop {
            let Ready::Fifo(slots) = &mut self.order else { return None };
            let slot = *slots.front()?;
            if !leave_order(&mut self.cancelled, &mut self.keys, slot) {
                return Some(slot);
            }
            slots.pop_front();
            self.cancelled_slots -= 1;
        }
    }

    /// Makes a ready key neither ready nor held.
    pub(super) fn leave_ready(&mut self, slot: u32) {
        self.ready -= 1;
        self.keys[slot].set_flags(0);
        match &mut self.order {
            Ready::Fifo(_) => {
                *self.cancelled.entry(slot).or_insert(0) += 1;
                self.cancelled_slots += 1;
            }
            Ready::Given(order) => {
                if let Some(key) = self.keys.key(slot) {
                    order.remove(key, Slot(slot));
                }
            }
        }
    }

    /// Removes cancelled slots from the order once they are the majority: a cancel costs O(1)
    /// on average, and cancelled keys do not accumulate.
    pub(super) fn compact(&mut self) {
        if self.cancelled_slots <= GONE_ALLOWED || self.cancelled_slots <= self.ready {
            return;
        }
        let Ready::Fifo(slots) = &mut self.order else { return };
        let (keys, cancelled) = (&mut self.keys, &mut self.cancelled);
        slots.retain(|&slot| !leave_order(cancelled, keys, slot));
        self.cancelled_slots = 0;
        self.cancelled = HashMap::new();
    }

    /// Returns the ready slots, in order unless the order is a custom one.
    pub(super) fn ready_slots(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match &self.order {
            Ready::Fifo(slots) => {
                let mut cancelled = self.cancelled.clone();
                Box::new(slots.iter().copied().filter(move |slot| match cancelled.get_mut(slot) {
                    Some(times) if *times > 0 => {
                        *times -= 1;
                        false
                    }
                    _ => true,
                }))
            }
            Ready::Given(_) => {
                let all = self.keys.iter();
                Box::new(all.filter(|(.., entry)| entry.flags() == READY).map(|(slot, ..)| slot))
            }
        }
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.keys.check();
        let count = |flag| self.keys.iter().filter(|(.., entry)| entry.flags() & flag != 0).count();
        assert_eq!((count(READY), count(HELD)), (self.ready, self.held));
        assert!(self.holds.slots(&self.keys).all(|slot| self.keys[slot].flags() & HELD != 0));
        for (_, _, entry) in self.keys.iter() {
            let flags = entry.flags();
            assert!(matches!(flags, READY | HELD) || flags == HELD | RERUN || entry.is_needed());
        }
        if let Ready::Fifo(slots) = &self.order {
            let mut times = self.cancelled.clone();
            assert_eq!(times.values().sum::<u32>() as usize, self.cancelled_slots);
            for (slot, _, entry) in self.keys.iter().filter(|(.., e)| e.flags() == READY) {
                assert_eq!(entry.flags(), READY);
                *times.entry(slot).or_insert(0) += 1;
            }
            for slot in slots {
                *times.get_mut(slot).expect("a slot in the order is ready or cancelled") -= 1;
            }
            assert!(times.values().all(|&times| times == 0));
        }
    }
}

/// Returns `true` if the next occurrence of `slot` in the FIFO was cancelled, and frees the slot
/// with its last one.
fn leave_order<K, E: Entry>(
    cancelled: &mut HashMap<u32, u32>,
    keys: &mut Keys<K, E>,
    slot: u32,
) -> bool {
    let Some(times) = cancelled.get_mut(&slot) else { return false };
    *times -= 1;
    if *times == 0 {
        cancelled.remove(&slot);
        if keys.key(slot).is_none() {
            keys.release(slot);
        }
    }
    true
}
