//! The rules of delayed adds, without lock or clock.

use super::interval::Interval;
use crate::clock::Moment;
use crate::failures::OldestFailures;
use crate::keys::Keys;
use crate::limiter::RateLimiter;
use crate::metrics::{QueueMetrics, Tens};
use crate::options::{FailureBounds, Merge};
use crate::snapshot::{Added, WaitingKey};
use crate::wheel::{Node, Nodes, Packed, Wheel};
use crate::work_queue::{Key, StopMode};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// In [`Timer::tally`]: the key waits.
const WAITS: u32 = 1 << 31;
/// In [`Timer::tally`]: the key ran, and its interval may not have passed yet. The other bits
/// count its failures.
const RAN: u32 = 1 << 30;
const MAX_FAILURES: u32 = RAN - 1;

/// A key that waits, has failed, or ran recently. 28 bytes, and 48 with an `Arc<str>`.
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

    pub(super) fn ran(&self) -> bool {
        self.tally & RAN != 0
    }

    pub(super) fn set_ran(&mut self) {
        self.tally |= RAN;
    }

    pub(super) fn due(&self) -> Moment {
        Moment::from_nanos(self.node.due())
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
    /// Keys that wait, have failed, or ran recently. Invariant: `wheel` contains exactly those
    /// that wait.
    pub(super) keys: Keys<K, Timer>,
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
    /// Present if the queue has a minimum interval. Invariant: knows exactly the keys that ran
    /// recently; none of them is due before the end of its interval.
    pub(super) interval: Option<Interval>,
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

    fn unchanged(added: Added) -> Self {
        Outcome { added, due: false, arm: Moment::END }
    }
}

impl<K> State<K> {
    /// Creates the state. `min_interval` is the minimum time between two runs of a key.
    /// `records`: whether the queue has a name.
    pub(super) fn new(min_interval: Duration, records: bool) -> Self {
        State {
            keys: Keys::default(),
            wheel: Wheel::default(),
            phase: Phase::Open,
            armed: None,
            retries: 0,
            dropped: 0,
            lateness: records.then(Box::default),
            limiter: None,
            counts: false,
            stalest: None,
            interval: Interval::new(min_interval),
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
                self.wheel.next_wake(&mut self.keys, now.as_nanos()).map(Moment::from_nanos)
            }
            Phase::Draining | Phase::Ending | Phase::Down => None,
        };
        self.armed
    }

    /// Returns when the next key falls due.
    pub(super) fn next_due(&mut self) -> Option<Moment> {
        match self.phase {
            Phase::Open => self.wheel.next_due(&mut self.keys).map(Moment::from_nanos),
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
        let waiting = self.keys.iter().filter(|(_, _, timer)| timer.waits());
        let waiting: Vec<u32> = waiting.map(|(slot, ..)| slot).collect();
        waiting.into_iter().filter_map(|slot| self.stop_waiting(slot)).collect()
    }

    /// Handles a key that left the wheel: removes and returns it, unless it is needed for its
    /// failures or its run.
    fn stop_waiting(&mut self, slot: u32) -> Option<K> {
        self.keys[slot].tally &= !WAITS;
        self.remove_idle(slot)
    }

    /// Removes and returns a key that neither waits, nor has failed, nor ran recently.
    fn remove_idle(&mut self, slot: u32) -> Option<K> {
        if self.keys[slot].tally == 0 { self.keys.remove(slot) } else { None }
    }

    /// Resets the failures of a key. Removes and returns it, unless it waits or ran recently.
    fn forget_slot(&mut self, slot: u32) -> Option<K> {
        if let Some(stalest) = &mut self.stalest {
            stalest.forget(slot);
        }
        self.keys[slot].tally &= !MAX_FAILURES;
        self.remove_idle(slot)
    }

    /// Forgets the run of a key. Removes and returns it, unless it waits or has failed.
    pub(super) fn forget_run(&mut self, slot: u32) -> Option<K> {
        self.keys[slot].tally &= !RAN;
        self.remove_idle(slot)
    }

    /// Whether failures or runs expire with time.
    pub(super) fn forgets_by_time(&self) -> bool {
        self.stalest.is_some()
    }

    /// Forgets failures and runs that are too old or too many. Appends removed keys to
    /// `dropped`.
    #[inline]
    pub(super) fn forget_stale(&mut self, now: Moment, dropped: &mut Vec<K>) {
        while let Some(slot) = self.stalest.as_mut().and_then(|stalest| stalest.pop(now)) {
            dropped.extend(self.forget_slot(slot));
        }
        self.forget_runs(now, dropped);
    }
}

impl<K: Key> State<K> {
    /// Removes and returns the earliest key that is due by `now`, with its hash.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(u32, K)> {
        if self.phase != Phase::Open {
            return None;
        }
        let slot = self.wheel.pop(&mut self.keys, now.as_nanos())?;
        let (key, hash, timer) = self.keys.entry(slot)?;
        if let Some(lateness) = &mut self.lateness {
            lateness.observe(now.as_nanos().saturating_sub(timer.node.due()));
        }
        timer.tally &= !WAITS;
        if timer.tally != 0 {
            // It has failed or ran recently, so its entry stays and keeps its key.
            return Some((hash, key.clone()));
        }
        Some((hash, self.keys.remove(slot)?))
    }

    /// Makes a key wait until `delay` after `now`.
    #[inline]
    pub(super) fn add_after(
        &mut self,
        offer: &mut Offer<K>,
        now: Moment,
        delay: Duration,
        merge: Merge,
        caller: Caller,
    ) -> Outcome {
        let found = self.find(offer);
        let outcome = self.schedule(found, offer, now, delay, merge, caller);
        self.retries += u64::from(outcome.added != Added::Refused);
        outcome
    }

    #[inline]
    pub(super) fn find(&self, offer: &Offer<K>) -> Option<u32> {
        self.keys.find(offer.hash, offer.key.as_ref()?)
    }

    /// Counts a failure, calls the limiter and makes a key wait for the returned delay.
    #[inline]
    pub(super) fn add_rate_limited(
        &mut self,
        offer: &mut Offer<K>,
        now: Moment,
        caller: Caller,
        delay: &mut Duration,
    ) -> Outcome {
        let mut found = self.find(offer);
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
        let failures = found.map_or(0, |slot| self.keys[slot].failures());
        if limiter.counts() || self.counts {
            let insert = || self.keys.insert(hash, key.clone(), Timer::default());
            let slot = found.unwrap_or_else(insert);
            *found = Some(slot);
            self.count_failure(slot, now);
        }
        self.limiter.as_mut().map_or(Duration::ZERO, |limiter| limiter.when(key, failures, now))
    }

    fn count_failure(&mut self, slot: u32, now: Moment) {
        let timer = &mut self.keys[slot];
        timer.tally += u32::from(timer.failures() < MAX_FAILURES);
        if let Some(stalest) = &mut self.stalest {
            stalest.failed(slot, now);
        }
    }

    pub(super) fn accepts(&self, caller: Caller) -> bool {
        match self.phase {
            Phase::Open => !caller.closed_below,
            Phase::Draining => caller.by == By::Holder,
            Phase::Ending | Phase::Down => false,
        }
    }

    /// Makes a key wait. Its slot is `found` if it has one.
    #[inline]
    pub(super) fn schedule(
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
        let requested = now.saturating_add(delay).max(self.floor(found));
        let slot = match found {
            Some(slot) if self.keys[slot].waits() => {
                return self.merge(slot, offer, now, requested, merge);
            }
            _ if requested <= now => return Outcome::DUE,
            Some(slot) => slot,
            None => {
                let key = offer.key.take().expect("an offer has a key");
                self.keys.insert(offer.hash, key, Timer::default())
            }
        };
        self.start_waiting(slot, now, requested)
    }

    #[inline]
    fn start_waiting(&mut self, slot: u32, now: Moment, due: Moment) -> Outcome {
        let timer = &mut self.keys[slot];
        timer.node = Node::new(due.as_nanos());
        timer.since = Packed::from(now.as_nanos());
        timer.tally |= WAITS;
        self.wheel.insert(&mut self.keys, slot, now.as_nanos());
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
        let timer = &self.keys[slot];
        let old = timer.due();
        let due = match merge {
            Merge::Earliest if requested <= now => return Outcome::DUE,
            Merge::Earliest => requested.min(old),
            Merge::Latest => requested.max(old),
            Merge::Replace => requested,
            Merge::Debounce { max_wait } => {
                let latest = Moment::from_nanos(timer.since.get()).saturating_add(max_wait);
                requested.min(latest.max(self.floor(Some(slot))))
            }
        };
        if due == old {
            // For a holder during a drain: the drain would have returned the key anyway.
            let open = self.phase == Phase::Open;
            return Outcome::unchanged(if open { Added::Coalesced } else { Added::Kept });
        }
        if due <= now {
            self.wheel.remove(&mut self.keys, slot);
            offer.left = self.stop_waiting(slot);
            return Outcome::DUE;
        }
        self.wheel.reset(&mut self.keys, slot, due.as_nanos());
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

    /// Returns how often `key` has failed.
    pub(super) fn failures<B>(&self, hash: u32, key: &B) -> u32
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.keys.find(hash, key).map_or(0, |slot| self.keys[slot].failures())
    }

    /// Resets the failures of `key`.
    pub(super) fn forget<B>(&mut self, hash: u32, key: &B) -> Option<K>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let slot = self.keys.find(hash, key)?;
        self.forget_slot(slot)
    }

    /// Ends the wait of `key`, if it waits. Its failures stay.
    pub(super) fn cancel<B>(&mut self, hash: u32, key: &B) -> (bool, Option<K>)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        match self.keys.find(hash, key) {
            Some(slot) if self.keys[slot].waits() => {
                self.wheel.remove(&mut self.keys, slot);
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
        let timer = &self.keys[self.keys.find(hash, key)?];
        timer.waits().then(|| timer.due().saturating_since(now))
    }

    /// Returns all waiting keys, earliest first.
    pub(super) fn snapshot(&self, now: Moment) -> Vec<WaitingKey<K>> {
        let waiting = self.keys.iter().filter(|(_, _, timer)| timer.waits());
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
        let stay = self.keys.iter().filter(|(_, _, t)| t.waits() && t.tally != WAITS);
        let mut stay: HashMap<u32, K> = stay.map(|(slot, key, _)| (slot, key.clone())).collect();
        self.phase = Phase::Down;
        self.armed = None;
        let mut remaining = Vec::with_capacity(self.wheel.len());
        while let Some(slot) = self.wheel.pop(&mut self.keys, u64::MAX) {
            let due_in = self.keys[slot].due().saturating_since(now);
            let key = self.stop_waiting(slot).or_else(|| stay.remove(&slot));
            remaining.extend(key.map(|key| (key, due_in)));
        }
        remaining
    }

    /// Checks all invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.keys.check();
        self.wheel.check(&self.keys);
        let waiting = self.keys.iter().filter(|(_, _, timer)| timer.waits());
        let dues: Vec<Moment> = waiting.map(|(_, _, timer)| timer.due()).collect();
        assert_eq!(dues.len(), self.wheel.len());
        assert!(
            self.keys.iter().all(|(_, _, timer)| timer.tally != 0),
            "a key has a reason to be here"
        );
        if let (Phase::Open, Some(next)) = (self.phase, dues.iter().min()) {
            assert!(self.armed.is_some_and(|armed| armed <= *next));
        }
        self.check_interval();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_as_late_as_the_time_between_its_due_time_and_its_leaving() {
        let at = Moment::from_nanos;
        let mut state = State::new(Duration::ZERO, true);
        for (key, delay) in [("a", 100), ("b", 90)] {
            let (mut offer, delay) = (Offer::new(0, key), Duration::from_nanos(delay));
            let caller = Caller { by: By::Anyone, closed_below: false };
            state.add_after(&mut offer, at(0), delay, Merge::Earliest, caller);
        }
        assert_eq!(state.pop(at(90)), Some((0, "b")));
        assert_eq!(state.pop(at(107)), Some((0, "a")));
        let mut metrics = QueueMetrics::default();
        state.report(&mut metrics);
        assert_eq!((metrics.lateness.count(), metrics.lateness.sum().as_nanos()), (2, 7));
    }
}
