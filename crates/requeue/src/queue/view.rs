//! What the queue reports about its keys, and what is left of them at the end of a drain.

use super::holds::Holds;
use super::state::{Entry, HELD, READY, RERUN, State};
use crate::clock::Moment;
use crate::metrics::QueueMetrics;
use crate::shell::View;
use crate::snapshot::{HeldKey, KeyStatus, ReadyKey, Snapshot};
use crate::work_queue::Key;
use std::borrow::Borrow;
use std::hash::Hash;

impl<K: Key, E: Entry> View for State<K, E> {
    type Key = K;

    fn status<B>(&self, hash: u32, key: &B, _: Moment) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let flags = self.keys.find(hash, key).map_or(0, |slot| self.keys[slot].flags());
        KeyStatus {
            ready: flags & READY != 0,
            held: flags & HELD != 0,
            rerun: flags & RERUN != 0,
            ..KeyStatus::default()
        }
    }

    fn snapshot(&self, _: Moment, stamp: Moment) -> Snapshot<K> {
        let recorder = self.recorder.as_ref();
        let ready =
            self.ready_slots().filter_map(|slot| Some((slot, self.keys.key(slot)?.clone())));
        let ready = ready.map(|(slot, key)| {
            let added_for = recorder.map(|recorder| recorder.since_added(slot, stamp));
            ReadyKey { key, added_for, priority: 0 }
        });
        let held = self.holds.slots(&self.keys).filter_map(|slot| {
            Some(HeldKey {
                key: self.keys.key(slot)?.clone(),
                held_for: recorder.map(|recorder| recorder.since_taken(slot, stamp)),
                rerun: self.keys[slot].flags() & RERUN != 0,
                priority: 0,
            })
        });
        Snapshot { ready: ready.collect(), waiting: Vec::new(), held: held.collect() }
    }

    fn metrics(&self, stamp: Moment) -> Option<QueueMetrics> {
        let recorder = self.recorder.as_ref()?;
        let mut metrics = recorder.counts();
        for slot in self.ready_slots() {
            metrics.depth += 1;
            let age = recorder.since_added(slot, stamp);
            metrics.oldest_ready = metrics.oldest_ready.max(Some(age));
        }
        for slot in self.holds.slots(&self.keys) {
            metrics.depth += u64::from(self.keys[slot].flags() & RERUN != 0);
            let age = recorder.since_taken(slot, stamp);
            metrics.unfinished_work += age;
            metrics.longest_running = metrics.longest_running.max(age);
        }
        Some(metrics)
    }
}

/// The keys that are left at the end of a drain, as far as they must be cloned.
pub(crate) struct Remaining<K> {
    pub(crate) held: Vec<K>,
    /// Held keys that would have run again.
    reruns: Vec<K>,
    /// The ready slots, with the keys whose entries stay.
    ready: Vec<(u32, Option<K>)>,
}

impl<K: Key, E: Entry> State<K, E> {
    /// Clones the keys that [`take_ready`](Self::take_ready) cannot remove. Cloning may panic,
    /// so this happens before anything changes.
    pub(crate) fn remaining(&self) -> Remaining<K> {
        let key = |slot| self.keys.key(slot).cloned();
        let reruns =
            self.holds.slots(&self.keys).filter(|&slot| self.keys[slot].flags() & RERUN != 0);
        let stays = |slot| if self.keys[slot].is_needed() { key(slot) } else { None };
        Remaining {
            reruns: reruns.filter_map(key).collect(),
            held: self.holds.slots(&self.keys).filter_map(key).collect(),
            ready: self.ready_slots().map(|slot| (slot, stays(slot))).collect(),
        }
    }

    /// Removes and returns the ready keys. Held keys stay but do not run again.
    pub(crate) fn take_ready(&mut self, remaining: &mut Remaining<K>) -> Vec<K> {
        let mut ready = Vec::with_capacity(remaining.ready.len());
        for (slot, key) in remaining.ready.drain(..) {
            self.leave_ready(slot);
            ready.extend(self.remove_idle(slot).or(key));
        }
        self.compact();
        ready.append(&mut self.kept);
        ready.append(&mut remaining.reruns);
        let held: Vec<u32> = self.holds.slots(&self.keys).collect();
        for slot in held {
            self.keys[slot].set_flags(HELD);
        }
        ready
    }
}
