//! The rules of delayed adds, without lock or clock.
//!
//! A key has one entry for its timer, for its failures and for the queue below, which needs no
//! lookup to make a due key ready or to retry a held one.

use crate::clock::Moment;
use crate::ending::{Ending, Load};
use crate::failures::OldestFailures;
use crate::keys::Keys;
use crate::limiter::RateLimiter;
use crate::metrics::{QueueMetrics, Recorder, Tens};
use crate::options::{FailureBounds, Merge};
use crate::order::Ready;
use crate::queue::holds::HoldList;
use crate::queue::state::{self as queue, Entry};
use crate::shell::{AddRules, Finished, Rules};
use crate::snapshot::{Added, WaitingKey};
use crate::wheel::{Node, Nodes, Packed, Wheel};
use crate::work_queue::{Key, StopMode, Taken};
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
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
pub(super) struct Timer {
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

    fn failures(&self) -> u32 {
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    /// Nothing falls due any more. Holders may still delay keys, which the drain returns.
    Draining,
    /// Shut down during a drain. The drain returns the waiting keys.
    Ending,
    Down,
}

/// Who adds the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Anyone,
    /// The holder of the key, through its guard.
    Holder,
}

/// The circumstances of an add.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) by: By,
    /// The inner queue was shut down by another owner.
    pub(super) closed_below: bool,
}

pub(super) struct State<K> {
    /// All keys, and which of them are ready or held. Over an injected queue, no key is.
    pub(super) queue: queue::State<K, Timer>,
    /// Invariant: exactly the keys that wait.
    pub(super) wheel: Wheel,
    phase: Phase,
    /// The earliest time for which the clock is armed. Invariant, while open: not after the
    /// earliest timer.
    armed: Option<Moment>,
    /// The number of delayed and rate-limited adds.
    retries: u64,
    /// The number of adds refused here, and of waiting keys that a shutdown dropped.
    dropped: u64,
    /// How long after their due time keys left. Present if the queue has a name.
    lateness: Option<Box<Tens>>,
    limiter: Option<Box<dyn RateLimiter<K>>>,
    /// Whether failures are counted even if the limiter does not use the count.
    counts: bool,
    /// Invariant: contains exactly the keys that have failed.
    stalest: Option<OldestFailures>,
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
    /// The key is due now: add it to the inner queue.
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
    type Key = K;

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
    fn take(&mut self, now: Moment) -> Option<Taken<K>> {
        self.queue.take(now)
    }

    #[inline(always)]
    fn finish(&mut self, token: u64, now: Moment) -> Finished<K> {
        self.queue.finish(token, now)
    }
}

impl<K: Key> AddRules for State<K> {
    #[inline(always)]
    fn add(&mut self, hash: u32, key: K, now: Moment) -> (Added, Option<K>) {
        self.queue.add(hash, key, now)
    }

    #[inline(always)]
    fn finish_and_add(&mut self, token: u64, key: &mut Option<K>, now: Moment) -> Finished<K> {
        self.queue.finish_and_add(token, key, now)
    }
}

impl<K: Key> State<K> {
    /// Creates the state. `records`: whether the queue has a name.
    pub(super) fn new(records: bool) -> Self {
        let recorder = records.then(Box::<Recorder>::default);
        State {
            queue: queue::State::new(Ready::Fifo(VecDeque::new()), recorder),
            wheel: Wheel::default(),
            phase: Phase::Open,
            armed: None,
            retries: 0,
            dropped: 0,
            lateness: records.then(Box::default),
            limiter: None,
            counts: false,
            stalest: None,
        }
    }

    /// Sets the limiter. Returns `false` if there is one already.
    pub(super) fn limit(
        &mut self,
        limiter: Box<dyn RateLimiter<K>>,
        bounds: FailureBounds,
    ) -> bool {
        if self.limiter.is_some() {
            return false;
        }
        self.stalest = OldestFailures::new(bounds);
        self.limiter = Some(limiter);
        true
    }

    pub(super) fn count_failures(&mut self) {
        self.counts = true;
    }

    /// Adds the counts of this layer to the metrics of the inner queue.
    pub(super) fn report(&self, metrics: &mut QueueMetrics) {
        metrics.retries = self.retries;
        metrics.waiting = self.waiting() as u64;
        metrics.dropped += self.dropped;
        metrics.lateness = self.lateness.as_ref().map_or_else(Default::default, |l| l.read());
    }

    /// Counts a retry without delay, which goes directly to the inner queue.
    pub(super) fn count_retry(&mut self) {
        self.retries += u64::from(self.phase == Phase::Open);
    }

    pub(super) fn waiting(&self) -> usize {
        self.wheel.len()
    }

    /// Returns the time for which to arm the clock next, after it fired.
    pub(super) fn rearm(&mut self, now: Moment) -> Option<Moment> {
        self.armed = match self.phase {
            Phase::Open => {
                self.wheel.next_wake(&mut self.queue.keys, now.as_nanos()).map(Moment::from_nanos)
            }
            Phase::Draining | Phase::Ending | Phase::Down => None,
        };
        self.armed
    }

    /// Returns when the next key falls due.
    pub(super) fn next_due(&mut self) -> Option<Moment> {
        match self.phase {
            Phase::Open => self.wheel.next_due(&mut self.queue.keys).map(Moment::from_nanos),
            Phase::Draining | Phase::Ending | Phase::Down => None,
        }
    }

    /// Returns the keys that no longer wait, to be dropped once the lock is released.
    pub(super) fn shut_down(&mut self, mode: StopMode) -> Vec<K> {
        match (mode, self.phase) {
            (StopMode::WorkOff, Phase::Open) => self.phase = Phase::Draining,
            (StopMode::Now, Phase::Draining) => self.phase = Phase::Ending,
            (StopMode::Now | StopMode::WithDrain, Phase::Open) => {
                self.phase = Phase::Down;
                return self.remove_waiting();
            }
            _ => {}
        }
        Vec::new()
    }

    fn remove_waiting(&mut self) -> Vec<K> {
        self.dropped += self.wheel.len() as u64;
        self.wheel = Wheel::default();
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let waiting: Vec<u32> = waiting.map(|(slot, ..)| slot).collect();
        waiting.into_iter().filter_map(|slot| self.stop_waiting(slot)).collect()
    }

    /// Handles a key that left the wheel: removes and returns it, unless it is needed for its
    /// failures.
    fn stop_waiting(&mut self, slot: u32) -> Option<K> {
        self.queue.keys[slot].tally &= !WAITS;
        self.queue.remove_idle(slot)
    }

    /// Resets the failures of a key. Removes and returns it, unless it waits.
    #[inline]
    fn forget_slot(&mut self, slot: u32) -> Option<K> {
        if let Some(stalest) = &mut self.stalest {
            stalest.forget(slot);
        }
        self.queue.keys[slot].tally &= !MAX_FAILURES;
        self.queue.remove_idle(slot)
    }

    /// Whether failures expire with time.
    pub(super) fn forgets_by_time(&self) -> bool {
        self.stalest.is_some()
    }

    /// Forgets failures that are too old or too many. Appends removed keys to `dropped`.
    #[inline]
    pub(super) fn forget_stale(&mut self, now: Moment, dropped: &mut Vec<K>) {
        while let Some(slot) = self.stalest.as_mut().and_then(|stalest| stalest.pop(now)) {
            dropped.extend(self.forget_slot(slot));
        }
    }
}

impl<K: Key> State<K> {
    /// Returns the slot of the earliest key that is due by `now`, which no longer waits.
    fn pop(&mut self, now: Moment) -> Option<u32> {
        if self.phase != Phase::Open {
            return None;
        }
        let slot = self.wheel.pop(&mut self.queue.keys, now.as_nanos())?;
        let timer = &mut self.queue.keys[slot];
        if let Some(lateness) = &mut self.lateness {
            lateness.observe(now.as_nanos().saturating_sub(timer.node.due()));
        }
        timer.tally &= !WAITS;
        Some(slot)
    }

    /// Makes the earliest key that is due by `now` ready. Returns the result, and a refused key
    /// to be dropped once the lock is released.
    #[inline]
    pub(super) fn fire(&mut self, now: Moment, stamp: Moment) -> Option<(Added, Option<K>)> {
        let slot = self.pop(now)?;
        let added = self.queue.add_slot(slot, stamp);
        let refused = if added == Added::Refused { self.queue.remove_idle(slot) } else { None };
        Some((added, refused))
    }

    /// Returns the earliest key that is due by `now`, for an injected queue.
    pub(super) fn pop_key(&mut self, now: Moment) -> Option<K> {
        let slot = self.pop(now)?;
        if self.queue.keys[slot].is_needed() {
            // It has failed, so its entry stays and keeps its key.
            return self.queue.keys.key(slot).cloned();
        }
        self.queue.remove_idle(slot)
    }

    /// Makes a key wait until `delay` after `now`. Its slot is `found` if it has one.
    #[inline]
    pub(super) fn add_after(
        &mut self,
        found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        delay: Duration,
        merge: Merge,
        caller: Caller,
    ) -> Outcome {
        let outcome = self.schedule(found, offer, now, delay, merge, caller);
        self.retries += u64::from(outcome.added != Added::Refused);
        outcome
    }

    #[inline]
    pub(super) fn find(&self, offer: &Offer<K>) -> Option<u32> {
        self.queue.keys.find(offer.hash, offer.key.as_ref()?)
    }

    /// Counts a failure, calls the limiter and makes a key wait for the returned delay. Its slot
    /// is `found` if it has one.
    #[inline]
    pub(super) fn add_rate_limited(
        &mut self,
        mut found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        caller: Caller,
        delay: &mut Duration,
    ) -> Outcome {
        if let Some(key) = &offer.key {
            // Also if the key is refused: client-go's limiter does not know about shutdowns.
            *delay = self.fail(&mut found, offer.hash, key, now);
        }
        let outcome = self.schedule(found, offer, now, *delay, Merge::Earliest, caller);
        self.retries += u64::from(outcome.added != Added::Refused);
        outcome
    }

    /// Counts a failure of a key, whose slot is `found` if it has one, and calls the limiter.
    /// The count comes first, so that it also happens if the limiter panics.
    #[inline]
    pub(super) fn fail(
        &mut self,
        found: &mut Option<u32>,
        hash: u32,
        key: &K,
        now: Moment,
    ) -> Duration {
        let Some(limiter) = &self.limiter else { return Duration::ZERO };
        let failures = found.map_or(0, |slot| self.queue.keys[slot].failures());
        if limiter.counts() || self.counts {
            let insert = || self.queue.keys.insert(hash, key.clone(), Timer::default());
            let slot = found.unwrap_or_else(insert);
            *found = Some(slot);
            self.count_failure(slot, now);
        }
        self.limiter.as_mut().map_or(Duration::ZERO, |limiter| limiter.when(key, failures, now))
    }

    fn count_failure(&mut self, slot: u32, now: Moment) {
        let timer = &mut self.queue.keys[slot];
        timer.tally += u32::from(timer.failures() < MAX_FAILURES);
        if let Some(stalest) = &mut self.stalest {
            stalest.failed(slot, now);
        }
    }

    fn accepts(&self, caller: Caller) -> bool {
        match self.phase {
            Phase::Open => !caller.closed_below,
            Phase::Draining => caller.by == By::Holder,
            Phase::Ending | Phase::Down => false,
        }
    }

    /// Makes a key wait. Its slot is `found` if it has one.
    #[inline]
    fn schedule(
        &mut self,
        found: Option<u32>,
        offer: &mut Offer<K>,
        now: Moment,
        delay: Duration,
        merge: Merge,
        caller: Caller,
    ) -> Outcome {
        if !self.accepts(caller) {
            self.dropped += 1;
            return Outcome::unchanged(Added::Refused);
        }
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

    #[inline]
    fn start_waiting(&mut self, slot: u32, now: Moment, due: Moment) -> Outcome {
        let timer = &mut self.queue.keys[slot];
        timer.node = Node::new(due.as_nanos());
        timer.since = Packed::from(now.as_nanos());
        timer.tally |= WAITS;
        self.wheel.insert(&mut self.queue.keys, slot, now.as_nanos());
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
            let open = self.phase == Phase::Open;
            return Outcome::unchanged(if open { Added::Coalesced } else { Added::Kept });
        }
        if due <= now {
            self.wheel.remove(&mut self.queue.keys, slot);
            offer.left = self.stop_waiting(slot);
            return Outcome::DUE;
        }
        self.wheel.reset(&mut self.queue.keys, slot, due.as_nanos());
        self.waits_until(due)
    }

    #[inline]
    fn waits_until(&mut self, due: Moment) -> Outcome {
        if self.phase != Phase::Open {
            return Outcome::unchanged(Added::Kept);
        }
        if self.armed.is_some_and(|armed| armed <= due) {
            return Outcome::unchanged(Added::Waiting);
        }
        self.armed = Some(due);
        Outcome { added: Added::Waiting, due: false, arm: due }
    }

    /// Returns how often the key in slot `found` has failed.
    #[inline]
    pub(super) fn failures(&self, found: Option<u32>) -> u32 {
        found.map_or(0, |slot| self.queue.keys[slot].failures())
    }

    /// Resets the failures of the key in slot `found`.
    #[inline]
    pub(super) fn forget(&mut self, found: Option<u32>) -> Option<K> {
        self.forget_slot(found?)
    }

    /// Ends the wait of `key`, if it waits. Its failures stay.
    pub(super) fn cancel<B>(&mut self, hash: u32, key: &B) -> (bool, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        match self.queue.keys.find(hash, key) {
            Some(slot) if self.queue.keys[slot].waits() => {
                self.wheel.remove(&mut self.queue.keys, slot);
                (true, self.stop_waiting(slot))
            }
            _ => (false, None),
        }
    }

    /// Returns how long `key` still waits.
    pub(super) fn due_in<B>(&self, hash: u32, key: &B, now: Moment) -> Option<Duration>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let timer = &self.queue.keys[self.queue.keys.find(hash, key)?];
        timer.waits().then(|| timer.due().saturating_since(now))
    }

    /// Returns all waiting keys, earliest first.
    pub(super) fn snapshot(&self, now: Moment) -> Vec<WaitingKey<K>> {
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let waiting = waiting.map(|(_, key, timer)| WaitingKey {
            key: key.clone(),
            due_in: timer.due().saturating_since(now),
            priority: 0,
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|waiting| waiting.due_in);
        waiting
    }

    /// Removes and returns all keys that still wait at the end of a drain, earliest first.
    pub(super) fn take_remaining(&mut self, now: Moment) -> Vec<(K, Duration)> {
        // Keys whose entries stay for other reasons are cloned before anything changes: cloning
        // may panic.
        let stay = self.queue.keys.iter().filter(|(_, _, t)| t.waits() && t.tally != WAITS);
        let mut stay: HashMap<u32, K> = stay.map(|(slot, key, _)| (slot, key.clone())).collect();
        self.phase = Phase::Down;
        self.armed = None;
        let mut remaining = Vec::with_capacity(self.wheel.len());
        while let Some(slot) = self.wheel.pop(&mut self.queue.keys, u64::MAX) {
            let due_in = self.queue.keys[slot].due().saturating_since(now);
            let key = self.stop_waiting(slot).or_else(|| stay.remove(&slot));
            remaining.extend(key.map(|key| (key, due_in)));
        }
        remaining
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.queue.check();
        self.wheel.check(&self.queue.keys);
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let dues: Vec<Moment> = waiting.map(|(_, _, timer)| timer.due()).collect();
        assert_eq!(dues.len(), self.wheel.len());
        if let (Phase::Open, Some(next)) = (self.phase, dues.iter().min()) {
            assert!(self.armed.is_some_and(|armed| armed <= *next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_as_late_as_the_time_between_its_due_time_and_its_leaving() {
        let at = Moment::from_nanos;
        let mut state = State::new(true);
        for (key, delay) in [("a", 100), ("b", 90)] {
            let (mut offer, delay) = (Offer::new(0, key), Duration::from_nanos(delay));
            let caller = Caller { by: By::Anyone, closed_below: false };
            state.add_after(None, &mut offer, at(0), delay, Merge::Earliest, caller);
        }
        assert_eq!(state.pop_key(at(90)), Some("b"));
        assert_eq!(state.pop_key(at(107)), Some("a"));
        let mut metrics = QueueMetrics::default();
        state.report(&mut metrics);
        assert_eq!((metrics.lateness.count(), metrics.lateness.sum().as_nanos()), (2, 7));
    }
}
