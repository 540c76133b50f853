//! What the priority queue reports about its keys.

use super::item::{HELD, READY, WAITS};
use super::state::State;
use crate::clock::Moment;
use crate::metrics::QueueMetrics;
use crate::shell::View;
use crate::snapshot::{HeldKey, KeyStatus, ReadyKey, Snapshot, WaitingKey};
use crate::timers::TimedRules;
use crate::work_queue::Key;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;

impl<K: Key> View for State<K> {
    type Key = K;

    fn status<B>(&self, hash: u32, key: &B, now: Moment) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let Some(slot) = self.keys.find(hash, key) else {
            return KeyStatus::default();
        };
        let item = &self.keys[slot];
        KeyStatus {
            ready: item.flags == READY,
            held: item.is(HELD),
            rerun: item.flags == HELD | READY,
            due_in: item.is(WAITS).then(|| item.time().saturating_since(now)),
            failures: item.failures,
            priority: if item.is(READY | WAITS) { item.priority } else { item.held_priority },
        }
    }

    fn snapshot(&self, now: Moment, stamp: Moment) -> Snapshot<K> {
        let recorder = self.recorder.as_ref();
        let ready = self.ready_list.slots().into_iter().filter_map(|slot| {
            Some(ReadyKey {
                key: self.keys.key(slot)?.clone(),
                added_for: recorder.map(|recorder| recorder.since_added(slot, stamp)),
                priority: self.keys[slot].priority,
            })
        });
        let held = self.keys.iter().filter(|(.., item)| item.is(HELD));
        let held = held.map(|(slot, key, item)| HeldKey {
            key: key.clone(),
            held_for: recorder.map(|recorder| recorder.since_taken(slot, stamp)),
            rerun: item.is(READY),
            priority: item.held_priority,
        });
        Snapshot { ready: ready.collect(), waiting: self.waiting_keys(now), held: held.collect() }
    }

    fn metrics(&self, stamp: Moment) -> Option<QueueMetrics> {
        let recorder = self.recorder.as_ref()?;
        let mut metrics = recorder.counts();
        let mut depths = BTreeMap::<i32, u64>::new();
        for (slot, _, item) in self.keys.iter() {
            if item.is(READY) {
                *depths.entry(item.priority).or_default() += 1;
            }
            if item.flags == READY {
                let age = recorder.since_added(slot, stamp);
                metrics.oldest_ready = metrics.oldest_ready.max(Some(age));
            }
            if item.is(HELD) {
                let age = recorder.since_taken(slot, stamp);
                metrics.unfinished_work += age;
                metrics.longest_running = metrics.longest_running.max(age);
            }
        }
        metrics.depth = self.ready as u64;
        metrics.depth_by_priority = depths.into_iter().collect();
        metrics.waiting = self.waiting() as u64;
        metrics.retries = self.retries;
        Some(metrics)
    }
}

impl<K: Key> State<K> {
    /// Returns the waiting keys, earliest first.
    pub(super) fn waiting_keys(&self, now: Moment) -> Vec<WaitingKey<K>> {
        let waiting = self.keys.iter().filter(|(.., item)| item.is(WAITS));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|(.., item)| (item.time(), item.number));
        let waiting = waiting.into_iter().map(|(_, key, item)| WaitingKey {
            key: key.clone(),
            due_in: item.time().saturating_since(now),
            priority: item.priority,
        });
        waiting.collect()
    }
}
