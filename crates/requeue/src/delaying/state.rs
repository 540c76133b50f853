//! The rules of delayed adds, without lock or clock.
//!
//! A key has one entry for its timer, for its failures and for the queue below, which needs no
//! lookup to make a due key ready or to retry a held one.

use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::ending::{Ending, Load, Stop};
use crate::keys::Keys;
use crate::metrics::Recorder;
use crate::options::Merge;
use crate::order::Ready;
use crate::queue::holds::HoldList;
use crate::queue::state::{self as queue, Entry};
use crate::shell::{Finished, Rules};
use crate::snapshot::{Added, Cancelled, Remains};
use crate::timers::{BATCH, TimedRules, Timers};
use crate::wheel::{Node, Nodes, Packed};
use crate::work_queue::{Key, StopMode, Taken};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// In [`Timer::tally`]: the key waits.
const WAITS: u32 = 1 << 31;
/// In [`Timer::tally`]: the position of the three flags of the queue. The bits below count the
/// failures of the key.
const FLAGS_AT: u32 = 28;
const FLAGS: u32 = 7 << FLAGS_AT;
const MAX_FAILURES: u32 = (1 << FLAGS_AT) - 1;

/// The entry of a key that waits, has failed, is ready, or is held. 28 bytes, and
/// 48 with an `Arc<str>`.
pub(crate) struct Timer {
    node: Node,
    /// When the key began to wait.
    since: Packed,
    tally: u32,
}

impl Default for Timer {
    fn default() -> Self {
        Timer { node: Node::new(0), since: Packed::default(), tally: 0 }
    }
}

impl Timer {
    pub(super) fn waits(&self) -> bool {
        self.tally & WAITS != 0
    }

    pub(super) fn failures(&self) -> u32 {
        self.tally & MAX_FAILURES
    }

    pub(super) fn due(&self) -> Moment {
        Moment::from_nanos(self.node.due())
    }
}

impl Entry for Timer {
    type Holds = HoldList;

    #[inline(always)]
    fn flags(&self) -> u8 {
        (self.tally >> FLAGS_AT) as u8 & 7
    }

    #[inline(always)]
    fn set_flags(&mut self, flags: u8) {
        self.tally = (self.tally & !FLAGS) | (u32::from(flags) << FLAGS_AT);
    }

    #[inline(always)]
    fn is_needed(&self) -> bool {
        self.tally & !FLAGS != 0
    }
}

impl<K> Nodes for Keys<K, Timer> {
    #[inline]
    fn node(&self, index: u32) -> Option<&Node> {
        self.get(index).map(|timer| &timer.node)
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self[index].node
    }
}

pub(crate) struct State<K> {
    /// All keys, and which of them are ready or held. Under a [`QueueAdapter`](super::QueueAdapter),
    /// no key is.
    pub(super) queue: queue::State<K, Timer>,
    /// Invariant: exactly the keys that wait.
    timers: Timers,
    /// The number of delayed and rate-limited adds.
    pub(super) retries: u64,
    /// Present if the queue has a limiter.
    backoff: Option<Backoff<K>>,
}

/// A key that is added. If the state does not take it, it stays here, for the queue to pass on
/// or to drop once the lock is released. A key that left the state is put here too.
///
/// Passed by reference: copying it took a twentieth of the time of an add.
pub(super) struct Offer<K> {
    pub(super) hash: u32,
    pub(super) key: Option<K>,
    pub(super) left: Option<K>,
}

impl<K> Offer<K> {
    pub(super) fn new(hash: u32, key: K) -> Self {
        Offer { hash, key: Some(key), left: None }
    }
}

/// What the queue must do after an add.
pub(super) struct Outcome {
    pub(super) added: Added,
    /// The key is due now: make it ready.
    pub(super) due: bool,
    /// Arm the clock for this time, unless it is the end.
    pub(super) arm: Moment,
}

impl Outcome {
    pub(super) const DUE: Outcome = Outcome { added: Added::Queued, due: true, arm: Moment::END };
    pub(super) const REFUSED: Outcome = Outcome::unchanged(Added::Refused);

    const fn unchanged(added: Added) -> Self {
        Outcome { added, due: false, arm: Moment::END }
    }
}

impl<K: Key> Rules for State<K> {
    #[inline(always)]
    fn load(&self) -> Load {
        self.queue.load()
    }

    #[inline(always)]
    fn ending(&self) -> &Ending {
        self.queue.ending()
    }

    #[inline(always)]
    fn ending_mut(&mut self) -> &mut Ending {
        self.queue.ending_mut()
    }

    #[inline(always)]
    fn add(&mut self, hash: u32, key: K, stamp: Moment) -> (Added, Option<K>) {
        self.queue.add(hash, key, stamp)
    }

    #[inline(always)]
    fn take(&mut self, stamp: Moment) -> Option<Taken<K>> {
        self.queue.take(stamp)
    }

    #[inline(always)]
    fn finish(&mut self, token: u64, stamp: Moment) -> Finished<K> {
        self.queue.finish(token, stamp)
    }

    #[inline(always)]
    fn finish_and_add(&mut self, token: u64, key: &mut Option<K>, stamp: Moment) -> Finished<K> {
        self.queue.finish_and_add(token, key, stamp)
    }

    fn stop_waiting(&mut self, mode: StopMode) -> Vec<K> {
        if mode == StopMode::WorkOff || !self.ending().is_open() {
            return Vec::new();
        }
        if let Some(recorder) = &mut self.queue.recorder {
            recorder.dropped(self.timers.wheel.len());
        }
        self.timers.clear();
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let waiting: Vec<u32> = waiting.map(|(slot, ..)| slot).collect();
        waiting.into_iter().filter_map(|slot| self.left_wheel(slot)).collect()
    }

    fn take_remaining(&mut self, now: Moment) -> (Remains<K>, Vec<K>) {
        // Both clone keys, which may panic, before they change anything; so the clones of the
        // second come before the changes of the first.
        let stay = self.waiting_that_stay();
        let (mut remains, dropped) = self.queue.take_remaining(now);
        remains.waiting = self.take_waiting(now, stay);
        (remains, dropped)
    }

    #[inline]
    fn forget_stale(&mut self, now: Moment, dropped: &mut Vec<K>) {
        while let Some(slot) = self.backoff.as_mut().and_then(|backoff| backoff.pop_stale(now)) {
            dropped.extend(self.forget(slot));
        }
    }

    /// The failures of the key stay.
    fn cancel<B>(&mut self, hash: u32, key: &B) -> (Cancelled, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let waiting = self.find(hash, key).filter(|&slot| self.queue.keys[slot].waits());
        let removed = waiting.and_then(|slot| {
            self.timers.wheel.remove(&mut self.queue.keys, slot);
            self.left_wheel(slot)
        });
        let (mut cancelled, ready) = self.queue.cancel(hash, key);
        cancelled.waiting = waiting.is_some();
        (cancelled, removed.or(ready))
    }
}

impl<K: Key> TimedRules for State<K> {
    fn fire(&mut self, now: Moment, stamp: Moment) -> usize {
        let mut fired = 0;
        for _ in 0..BATCH {
            let Some(slot) = self.pop(now) else { break };
            fired += usize::from(self.queue.add_slot(slot, stamp) == Added::Queued);
        }
        fired
    }

    fn rearm(&mut self, now: Moment) -> Option<Moment> {
        if self.ending().is_open() { self.timers.rearm(&mut self.queue.keys, now) } else { None }
    }

    fn next_due(&mut self) -> Option<Moment> {
        if self.ending().is_open() { self.timers.next_due(&mut self.queue.keys) } else { None }
    }

    fn waiting(&self) -> usize {
        self.timers.wheel.len()
    }

    #[inline]
    fn find<B>(&self, hash: u32, key: &B) -> Option<u32>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.queue.keys.find(hash, key)
    }

    #[inline]
    fn held_slot(&self, token: u64) -> Option<u32> {
        self.queue.held_slot(token)
    }

    #[inline]
    fn failures(&self, slot: u32) -> u32 {
        self.queue.keys[slot].failures()
    }

    fn forgets_by_time(&self) -> bool {
        self.backoff.as_ref().is_some_and(Backoff::is_bounded)
    }

    #[inline]
    fn forget(&mut self, slot: u32) -> Option<K> {
        if let Some(backoff) = &mut self.backoff {
            backoff.forget(slot);
        }
        self.queue.keys[slot].tally &= !MAX_FAILURES;
        self.queue.remove_idle(slot)
    }

    fn count_failures(&mut self) {
        if let Some(backoff) = &mut self.backoff {
            backoff.count_always();
        }
    }

    fn fail(&mut self, slot: u32, key: &K, now: Moment) -> Duration {
        self.fail_found(&mut Some(slot), 0, key, now)
    }
}

impl<K: Key> State<K> {
    /// Creates the state. `records`: whether the queue has a name.
    pub(super) fn new(order: Ready<K>, backoff: Option<Backoff<K>>, records: bool) -> Self {
        let recorder = records.then(Box::<Recorder>::default);
        let queue = queue::State::new(order, recorder);
        State { queue, timers: Timers::default(), retries: 0, backoff }
    }

    pub(super) fn is_down(&self) -> bool {
        self.ending().stop() == Stop::Down
    }

    /// Counts a retry without delay.
    pub(super) fn count_retry(&mut self) {
        self.retries += u64::from(self.ending().is_open());
    }

    /// Handles a key that left the wheel: removes and returns it, unless it is needed for
    /// something else.
    fn left_wheel(&mut self, slot: u32) -> Option<K> {
        self.queue.keys[slot].tally &= !WAITS;
        self.queue.remove_idle(slot)
    }

    /// Returns the slot of the earliest key that is due by `now`, which no longer waits.
    fn pop(&mut self, now: Moment) -> Option<u32> {
        if !self.ending().is_open() {
            return None;
        }
        let slot = self.timers.wheel.pop(&mut self.queue.keys, now.as_nanos())?;
        let timer = &mut self.queue.keys[slot];
        if let Some(recorder) = &mut self.queue.recorder {
            recorder.late(timer.due(), now);
        }
        timer.tally &= !WAITS;
        Some(slot)
    }

    /// Returns the earliest key that is due by `now`, for an adapter.
    pub(super) fn pop_key(&mut self, now: Moment) -> Option<K> {
        let slot = self.pop(now)?;
        if self.queue.keys[slot].is_needed() {
            // It has failed, so its entry stays and keeps its key.
            return self.queue.keys.key(slot).cloned();
        }
        self.queue.remove_idle(slot)
    }

    #[inline]
    pub(super) fn find_offer(&self, offer: &Offer<K>) -> Option<u32> {
        self.find(offer.hash, offer.key.as_ref()?)
    }

    /// Makes a key wait until `delay` after `now`. Its slot is `found` if it has one. `accepts`:
    /// whether the queue accepts the key. During a drain, it does from the key's holder.
    #[inline]
    pub(super) fn add_after(
        &mut self,
        found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        delay: Duration,
        merge: Merge,
        accepts: bool,
    ) -> Outcome {
        if !accepts {
            self.queue.record_refused();
            return Outcome::REFUSED;
        }
        self.retries += 1;
        let requested = now.saturating_add(delay);
        let slot = match found {
            Some(slot) if self.queue.keys[slot].waits() => {
                return self.merge(slot, offer, now, requested, merge);
            }
            _ if requested <= now => return Outcome::DUE,
            Some(slot) => slot,
            None => {
                let key = offer.key.take().expect("an offer has a key");
                self.queue.keys.insert(offer.hash, key, Timer::default())
            }
        };
        self.start_waiting(slot, now, requested)
    }

    /// Counts a failure, calls the limiter and makes a key wait for the returned delay. Its slot
    /// is `found` if it has one.
    #[inline]
    pub(super) fn add_rate_limited(
        &mut self,
        mut found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        delay: &mut Duration,
        accepts: bool,
    ) -> Outcome {
        if let Some(key) = &offer.key {
            // Also if the key is refused: client-go's limiter does not know about shutdowns.
            *delay = self.fail_found(&mut found, offer.hash, key, now);
        }
        self.add_after(found, offer, now, *delay, Merge::Earliest, accepts)
    }

    /// Counts a failure of a key, whose slot is `found` if it has one, and calls the limiter.
    #[inline]
    pub(super) fn fail_found(
        &mut self,
        found: &mut Option<u32>,
        hash: u32,
        key: &K,
        now: Moment,
    ) -> Duration {
        let Some(backoff) = &mut self.backoff else { return Duration::ZERO };
        let failures = found.map_or(0, |slot| self.queue.keys[slot].failures());
        if backoff.counts() {
            let insert = || self.queue.keys.insert(hash, key.clone(), Timer::default());
            let slot = *found.get_or_insert_with(insert);
            self.queue.keys[slot].tally += u32::from(failures < MAX_FAILURES);
            backoff.failed(slot, now);
        }
        backoff.when(key, failures, now)
    }

    #[inline]
    fn start_waiting(&mut self, slot: u32, now: Moment, due: Moment) -> Outcome {
        let timer = &mut self.queue.keys[slot];
        timer.node = Node::new(due.as_nanos());
        timer.since = Packed::from(now.as_nanos());
        timer.tally |= WAITS;
        self.timers.wheel.insert(&mut self.queue.keys, slot, now.as_nanos());
        self.waits_until(due)
    }

    /// Merges another time into a key that already waits.
    #[inline]
    fn merge(
        &mut self,
        slot: u32,
        offer: &mut Offer<K>,
        now: Moment,
        requested: Moment,
        merge: Merge,
    ) -> Outcome {
        let timer = &self.queue.keys[slot];
        let old = timer.due();
        let due = match merge {
            Merge::Earliest if requested <= now => return Outcome::DUE,
            Merge::Earliest => requested.min(old),
            Merge::Latest => requested.max(old),
            Merge::Replace => requested,
            Merge::Debounce { max_wait } => {
                let latest = Moment::from_nanos(timer.since.get()).saturating_add(max_wait);
                requested.min(latest)
            }
        };
        if due == old {
            // For a holder during a drain: the drain would have returned the key anyway.
            let open = self.ending().is_open();
            return Outcome::unchanged(if open { Added::Coalesced } else { Added::Kept });
        }
        if due <= now {
            self.timers.wheel.remove(&mut self.queue.keys, slot);
            offer.left = self.left_wheel(slot);
            return Outcome::DUE;
        }
        self.timers.wheel.reset(&mut self.queue.keys, slot, due.as_nanos());
        self.waits_until(due)
    }

    #[inline]
    fn waits_until(&mut self, due: Moment) -> Outcome {
        if !self.ending().is_open() {
            return Outcome::unchanged(Added::Kept);
        }
        Outcome { added: Added::Waiting, due: false, arm: self.timers.arm(due) }
    }

    /// Clones the waiting keys whose entries stay when they no longer wait. Cloning may panic.
    fn waiting_that_stay(&self) -> HashMap<u32, K> {
        let stay = self.queue.keys.iter().filter(|(_, _, t)| t.waits() && t.tally != WAITS);
        stay.map(|(slot, key, _)| (slot, key.clone())).collect()
    }

    /// Removes and returns all keys that still wait at the end of a drain, earliest first.
    fn take_waiting(&mut self, now: Moment, mut stay: HashMap<u32, K>) -> Vec<(K, Duration)> {
        let mut remaining = Vec::with_capacity(self.waiting());
        while let Some(slot) = self.timers.wheel.pop(&mut self.queue.keys, u64::MAX) {
            let due_in = self.queue.keys[slot].due().saturating_since(now);
            let key = self.left_wheel(slot).or_else(|| stay.remove(&slot));
            remaining.extend(key.map(|key| (key, due_in)));
        }
        self.timers.clear();
        remaining
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.queue.check();
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let dues = waiting.map(|(_, _, timer)| timer.due());
        self.timers.check(&self.queue.keys, dues, self.ending().is_open());
    }
}
