//! The rules of delayed adds, without lock or clock.

use crate::clock::Moment;
use crate::keys::Keys;
use crate::options::Merge;
use crate::snapshot::{Added, WaitingKey};
use crate::wheel::{Node, Nodes, Wheel};
use crate::work_queue::{Key, StopMode};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

/// A key that waits.
pub(super) struct Timer {
    node: Node,
    /// When it began to wait.
    since: Moment,
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
    /// Nothing falls due any more; holders may still put keys off, for the drain's answer.
    Draining,
    Down,
}

/// Who adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Anyone,
    /// The guard of the key.
    Holder,
}

pub(super) struct State<K> {
    /// Invariant: every key here has a timer in `wheel`, and `wheel` has no other.
    keys: Keys<K, Timer>,
    wheel: Wheel,
    phase: Phase,
    /// The soonest time that the clock was asked for and has not come back from.
    /// Invariant, while open: not after the soonest timer.
    armed: Option<Moment>,
}

/// What an add asks of the shell around the state.
pub(super) struct Outcome<K> {
    pub(super) added: Added,
    /// The clock must be asked to come back at this time.
    pub(super) arm: Option<Moment>,
    /// The key is due now: for the queue underneath.
    pub(super) due: Option<K>,
    /// Not needed; to be dropped once the lock is released.
    pub(super) unused: Option<K>,
}

impl<K> Outcome<K> {
    fn unchanged(added: Added, key: K) -> Self {
        Outcome { added, arm: None, due: None, unused: Some(key) }
    }
}

impl<K> Default for State<K> {
    fn default() -> Self {
        State { keys: Keys::default(), wheel: Wheel::default(), phase: Phase::Open, armed: None }
    }
}

impl<K> State<K> {
    pub(super) fn waiting(&self) -> usize {
        self.wheel.len()
    }

    /// Takes out the soonest key that is due by `now`, with its hash.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(u32, K)> {
        if self.phase != Phase::Open {
            return None;
        }
        let slot = self.wheel.pop(&mut self.keys, now.as_nanos())?;
        let hash = self.keys.hash_of(slot);
        Some((hash, self.keys.remove(slot)?))
    }

    /// When the clock should come back, now that it has come.
    pub(super) fn rearm(&mut self, now: Moment) -> Option<Moment> {
        self.armed = match self.phase {
            Phase::Open => {
                self.wheel.next_wake(&mut self.keys, now.as_nanos()).map(Moment::from_nanos)
            }
            Phase::Draining | Phase::Down => None,
        };
        self.armed
    }

    /// When the next key falls due.
    pub(super) fn next_due(&mut self) -> Option<Moment> {
        match self.phase {
            Phase::Open => self.wheel.next_due(&mut self.keys).map(Moment::from_nanos),
            Phase::Draining | Phase::Down => None,
        }
    }

    /// Answers the keys that no longer wait, to be dropped once the lock is released.
    pub(super) fn shut_down(&mut self, mode: StopMode) -> Option<Keys<K, Timer>> {
        match (mode, self.phase) {
            (StopMode::WorkOff, Phase::Open) => self.phase = Phase::Draining,
            // The drain that goes on, or that this ends, will answer them.
            (_, Phase::Draining) => {}
            (StopMode::WorkOff, Phase::Down) => {}
            (StopMode::Now | StopMode::WithDrain, _) => {
                self.phase = Phase::Down;
                self.wheel = Wheel::default();
                return Some(std::mem::take(&mut self.keys));
            }
        }
        None
    }
}

impl<K: Key> State<K> {
    /// Lets `key` wait until `delay` after `now`.
    #[inline]
    pub(super) fn add_after(
        &mut self,
        hash: u32,
        key: K,
        now: Moment,
        delay: Duration,
        merge: Merge,
        by: By,
    ) -> Outcome<K> {
        match (self.phase, by) {
            (Phase::Open, _) | (Phase::Draining, By::Holder) => {}
            _ => return Outcome::unchanged(Added::Refused, key),
        }
        let due = now.saturating_add(delay);
        let Some(slot) = self.keys.find(hash, &key) else {
            if delay.is_zero() {
                return Outcome { added: Added::Queued, arm: None, due: Some(key), unused: None };
            }
            let timer = Timer { node: Node::new(due.as_nanos()), since: now };
            let slot = self.keys.insert(hash, key, timer);
            self.wheel.insert(&mut self.keys, slot, now.as_nanos());
            return Outcome { added: self.waits(), arm: self.arm(due), due: None, unused: None };
        };
        let Timer { node, since } = &self.keys[slot];
        let (old, since) = (Moment::from_nanos(node.due()), *since);
        let due = match merge {
            Merge::Earliest if delay.is_zero() => {
                return Outcome { added: Added::Queued, arm: None, due: Some(key), unused: None };
            }
            Merge::Earliest => due.min(old),
            Merge::Latest => due.max(old),
            Merge::Replace => due,
            Merge::Debounce { max_wait } => due.min(since.saturating_add(max_wait)),
        };
        if due <= now && due != old {
            self.wheel.remove(&mut self.keys, slot);
            let unused = self.keys.remove(slot);
            return Outcome { added: Added::Queued, arm: None, due: Some(key), unused };
        }
        if due == old {
            return Outcome::unchanged(Added::Coalesced, key);
        }
        self.wheel.reset(&mut self.keys, slot, due.as_nanos());
        Outcome { added: self.waits(), arm: self.arm(due), due: None, unused: Some(key) }
    }

    fn waits(&self) -> Added {
        if self.phase == Phase::Open { Added::Waiting } else { Added::Kept }
    }

    fn arm(&mut self, due: Moment) -> Option<Moment> {
        if self.phase != Phase::Open || self.armed.is_some_and(|armed| armed <= due) {
            return None;
        }
        self.armed = Some(due);
        Some(due)
    }

    /// Ends the wait of `key`.
    pub(super) fn cancel<B>(&mut self, hash: u32, key: &B) -> Option<K>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let slot = self.keys.find(hash, key)?;
        self.wheel.remove(&mut self.keys, slot);
        self.keys.remove(slot)
    }

    /// How long `key` still waits.
    pub(super) fn due_in<B>(&self, hash: u32, key: &B, now: Moment) -> Option<Duration>
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let slot = self.keys.find(hash, key)?;
        Some(Moment::from_nanos(self.keys[slot].node.due()).saturating_since(now))
    }

    /// All that wait, soonest first.
    pub(super) fn snapshot(&self, now: Moment) -> Vec<WaitingKey<K>> {
        let due_in = |timer: &Timer| Moment::from_nanos(timer.node.due()).saturating_since(now);
        let waiting = self.keys.iter();
        let waiting =
            waiting.map(|(_, key, timer)| WaitingKey { key: key.clone(), due_in: due_in(timer) });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|waiting| waiting.due_in);
        waiting
    }

    /// Takes out all that still wait at the end of a drain, soonest first.
    pub(super) fn take_remaining(&mut self, now: Moment) -> Vec<(K, Duration)> {
        self.phase = Phase::Down;
        self.armed = None;
        let mut remaining = Vec::with_capacity(self.wheel.len());
        while let Some(slot) = self.wheel.pop(&mut self.keys, u64::MAX) {
            let due = Moment::from_nanos(self.keys[slot].node.due());
            let key = self.keys.remove(slot);
            remaining.extend(key.map(|key| (key, due.saturating_since(now))));
        }
        remaining
    }

    /// Checks everything that the fields promise.
    #[cfg(test)]
    pub(super) fn check(&mut self) {
        self.keys.check();
        assert_eq!(self.keys.len(), self.wheel.len());
        self.wheel.check(&self.keys);
        if let (Phase::Open, Some(next)) =
            (self.phase, self.keys.iter().map(|(_, _, t)| t.node.due()).min())
        {
            assert!(self.armed.is_some_and(|armed| armed.as_nanos() <= next));
        }
    }
}
