//! The leases that were claimed through this node.
//!
//! A receipt names neither its worker nor the end of its lease, so this table does. An entry is
//! removed when its lease is settled or lost, and at the latest some time after the lease ends:
//! what other nodes do to a lease cannot leave an entry behind for ever.

use super::MAX_LEASES;
use requeue_jobs::{ClaimedJob, Fence, Generation, JobId, Kind, Receipt, Timestamp, WorkerName};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How long an entry is kept after the end of its lease: until a claim or a reap ends an expired
/// lease, the store may still accept its settlement. Every node reaps once a second.
const KEPT_AFTER_END: Duration = Duration::from_secs(60);

/// Minimum number of entries at which the table is swept.
const SWEEP_AT: usize = 1024;

/// Minimum time between two sweeps of a full table.
const PAUSE: Duration = Duration::from_secs(10);

/// A lease of which no settlement was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrackedLease {
    pub(crate) worker: WorkerName,
    pub(crate) generation: Generation,
    pub(crate) attempt: u32,
    fence: Fence,
    ends_at: Timestamp,
}

/// The latest lease of each job that was claimed through this node and not settled.
#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    /// By the hash of kind and id, which takes less memory than the names. If two jobs have the
    /// same hash, the earlier of their leases is not tracked. Invariant: at most [`MAX_LEASES`]
    /// entries.
    by_job: HashMap<u64, TrackedLease>,
    hasher: RandomState,
    /// The number of entries at which the table is swept next.
    sweep_at: usize,
    swept_at: Timestamp,
}

impl LeaseTable {
    /// Adds the lease of a claimed job. If the table is full, the lease is not tracked.
    pub(super) fn add(&mut self, job: &ClaimedJob, worker: &WorkerName, now: Timestamp) {
        let lease = TrackedLease {
            worker: worker.clone(),
            generation: job.version.generation,
            attempt: job.attempt,
            fence: job.receipt.fence(),
            ends_at: job.lease_ends_at,
        };
        let key = self.key(job.kind(), job.id());
        if let Some(before) = self.by_job.get_mut(&key) {
            *before = lease;
            return;
        }
        self.sweep(now);
        if self.by_job.len() < MAX_LEASES {
            self.by_job.insert(key, lease);
        }
    }

    /// Removes a lease that was settled or lost, and returns it.
    pub(super) fn remove(&mut self, receipt: &Receipt) -> Option<TrackedLease> {
        let key = self.key(receipt.kind(), receipt.id());
        let is_it = self.by_job.get(&key).is_some_and(|lease| lease.fence == receipt.fence());
        if is_it { self.by_job.remove(&key) } else { None }
    }

    /// Records the new end of a lease, and returns the lease.
    pub(super) fn extend(&mut self, receipt: &Receipt, ends_at: Timestamp) -> Option<TrackedLease> {
        let key = self.key(receipt.kind(), receipt.id());
        let lease = self.by_job.get_mut(&key)?;
        if lease.fence != receipt.fence() {
            return None;
        }
        lease.ends_at = ends_at;
        Some(lease.clone())
    }

    /// Returns the holder of each lease that has not expired.
    pub(super) fn holders(&self, now: Timestamp) -> impl Iterator<Item = &WorkerName> {
        let held = move |lease: &&TrackedLease| lease.ends_at > now;
        self.by_job.values().filter(held).map(|lease| &lease.worker)
    }

    fn key(&self, kind: &Kind, id: &JobId) -> u64 {
        self.hasher.hash_one((kind, id))
    }

    /// Removes entries of leases that ended. A sweep is a pass over the table: it happens only when
    /// the table has grown by half since the last one, so that it costs little per lease.
    fn sweep(&mut self, now: Timestamp) {
        if self.by_job.len() < self.sweep_at.clamp(SWEEP_AT, MAX_LEASES) {
            return;
        }
        if self.by_job.len() >= MAX_LEASES && now < self.swept_at.saturating_add(PAUSE) {
            return;
        }
        self.by_job.retain(|_, lease| lease.ends_at.saturating_add(KEPT_AFTER_END) > now);
        if self.by_job.len() >= MAX_LEASES {
            self.by_job.retain(|_, lease| lease.ends_at > now);
        }
        (self.sweep_at, self.swept_at) = (self.by_job.len() + self.by_job.len() / 2, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Version;

    fn job(n: usize, fence: u64, ends_at: u64) -> ClaimedJob {
        let kind = Kind::new("mail").expect("a valid kind");
        let id = JobId::new(n.to_string()).expect("a valid id");
        let receipt = Receipt::new(kind, id, Fence(fence), 0);
        let mut job = ClaimedJob::new(receipt, Version::default());
        job.lease_ends_at = Timestamp::from_millis(ends_at);
        job
    }

    fn worker() -> WorkerName {
        WorkerName::new("w").expect("a valid name")
    }

    fn held(leases: &LeaseTable, now: u64) -> usize {
        leases.holders(Timestamp::from_millis(now)).count()
    }

    #[test]
    fn a_lease_is_held_until_it_ends_or_is_removed() {
        let now = Timestamp::from_millis(0);
        let (mut leases, first) = (LeaseTable::default(), job(1, 1, 30));
        leases.add(&first, &worker(), now);
        assert_eq!((held(&leases, 29), held(&leases, 30)), (1, 0));
        assert!(leases.extend(&first.receipt, Timestamp::from_millis(60)).is_some());
        assert_eq!((held(&leases, 59), held(&leases, 60)), (1, 0));
        assert!(leases.remove(&first.receipt).is_some());
        assert_eq!((held(&leases, 29), leases.remove(&first.receipt)), (0, None));
    }

    #[test]
    fn a_receipt_of_an_earlier_lease_does_not_affect_the_current_one() {
        let now = Timestamp::from_millis(0);
        let (mut leases, first) = (LeaseTable::default(), job(1, 1, 30));
        leases.add(&first, &worker(), now);
        leases.add(&job(1, 2, 60), &worker(), now);
        assert_eq!(leases.extend(&first.receipt, Timestamp::from_millis(90)), None);
        assert_eq!(leases.remove(&first.receipt), None);
        assert_eq!((held(&leases, 59), held(&leases, 60)), (1, 0));
    }

    #[test]
    fn leases_that_ended_some_time_ago_are_removed() {
        let mut leases = LeaseTable::default();
        for n in 0..SWEEP_AT {
            leases.add(&job(n, 1, 30), &worker(), Timestamp::from_millis(0));
        }
        let later = Timestamp::from_millis(30).saturating_add(KEPT_AFTER_END);
        leases.add(&job(SWEEP_AT, 1, u64::MAX), &worker(), later);
        assert_eq!(leases.by_job.len(), 1);
    }

    #[test]
    fn a_full_table_drops_only_leases_that_ended() {
        let mut leases = LeaseTable::default();
        let at = Timestamp::from_millis;
        for n in 0..=MAX_LEASES {
            leases.add(&job(n, 1, 30 + n as u64), &worker(), at(0));
        }
        assert_eq!(leases.by_job.len(), MAX_LEASES);
        let later = at(50_030);
        leases.add(&job(MAX_LEASES, 1, u64::MAX), &worker(), later);
        assert_eq!(leases.by_job.len(), MAX_LEASES - 50_000);
        assert_eq!(held(&leases, later.as_millis()), leases.by_job.len());
    }
}
