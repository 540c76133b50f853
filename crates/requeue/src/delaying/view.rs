//! What the delaying queue reports about its keys.

use super::state::State;
use crate::clock::Moment;
use crate::metrics::QueueMetrics;
use crate::shell::View;
use crate::snapshot::{KeyStatus, Snapshot, WaitingKey};
use crate::timers::TimedRules;
use crate::work_queue::Key;
use std::borrow::Borrow;
use std::hash::Hash;

impl<K: Key> View for State<K> {
    type Key = K;

    fn status<B>(&self, hash: u32, key: &B, now: Moment) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let mut status = self.queue.status(hash, key, now);
        if let Some(slot) = self.find(hash, key) {
            let timer = &self.queue.keys[slot];
            status.due_in = timer.waits().then(|| timer.due().saturating_since(now));
            status.failures = timer.failures();
        }
        status
    }

    fn snapshot(&self, now: Moment, stamp: Moment) -> Snapshot<K> {
        let mut snapshot = self.queue.snapshot(now, stamp);
        let waiting = self.queue.keys.iter().filter(|(_, _, timer)| timer.waits());
        let waiting = waiting.map(|(_, key, timer)| WaitingKey {
            key: key.clone(),
            due_in: timer.due().saturating_since(now),
            priority: 0,
        });
        snapshot.waiting = waiting.collect();
        snapshot.waiting.sort_by_key(|waiting| waiting.due_in);
        snapshot
    }

    fn metrics(&self, stamp: Moment) -> Option<QueueMetrics> {
        let mut metrics = self.queue.metrics(stamp)?;
        metrics.retries = self.retries;
        metrics.waiting = self.waiting() as u64;
        Some(metrics)
    }
}
