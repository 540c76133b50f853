//! Leases that this node gave out, by job.

use super::MAX_LEASES;
use requeue_jobs::{ClaimedJob, Fence, Generation, JobId, Kind, Receipt, Timestamp, WorkerName};
use std::collections::HashMap;
use std::time::Duration;

/// A lease is remembered so long after its end, for its job may be leased again.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Leases are looked through after so many new ones, at the least.
const SWEEP_AT: usize = 1024;

/// How long nobody looks through them again, when there are as many as there may be.
const PAUSE: Duration = Duration::from_secs(10);

/// A lease that no settlement was seen of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) worker: WorkerName,
    pub(crate) generation: Generation,
    pub(crate) attempt: u32,
    fence: Fence,
    ends_at: Timestamp,
    /// The store has said that it is over.
    lost: bool,
}

/// The latest lease of every job that this node gave out, and has not seen settled.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Invariant: at most [`MAX_LEASES`].
    by_job: HashMap<(Kind, JobId), Lease>,
    /// When there are so many, those that ended long ago are forgotten.
    sweep_at: usize,
    swept_at: Timestamp,
}

impl Leases {
    /// A job was leased. Answers whether its lease of before expired, for certain: it was not seen
    /// settled, and the job is out again as the next attempt, due when that lease ended. One that
    /// was retried, through another node, is due when its backoff ends.
    pub(super) fn given(&mut self, job: &ClaimedJob, worker: &WorkerName, now: Timestamp) -> bool {
        let lease = Lease {
            worker: worker.clone(),
            generation: job.generation,
            attempt: job.attempt,
            fence: job.receipt.fence(),
            ends_at: job.lease_ends_at,
            lost: false,
        };
        let name = (job.kind().clone(), job.id().clone());
        if let Some(before) = self.by_job.get_mut(&name) {
            let expired =
                before.attempt.checked_add(1) == Some(job.attempt) && before.ends_at == job.due;
            *before = lease;
            return expired;
        }
        self.sweep(now);
        if self.by_job.len() < MAX_LEASES {
            self.by_job.insert(name, lease);
        }
        false
    }

    /// A lease was settled.
    pub(super) fn take(&mut self, receipt: &Receipt) -> Option<Lease> {
        let name = (receipt.kind().clone(), receipt.id().clone());
        let is_it = self.by_job.get(&name).is_some_and(|lease| lease.fence == receipt.fence());
        if is_it { self.by_job.remove(&name) } else { None }
    }

    /// A lease ends later.
    pub(super) fn extend(&mut self, receipt: &Receipt, ends_at: Timestamp) -> Option<Lease> {
        let lease = self.find(receipt)?;
        lease.ends_at = ends_at;
        Some(lease.clone())
    }

    /// A lease is over, and not by a settlement that was seen. It may have expired: that is told
    /// when the job is leased again.
    pub(super) fn lose(&mut self, receipt: &Receipt) {
        if let Some(lease) = self.find(receipt) {
            lease.lost = true;
        }
    }

    /// Who holds something, once for each lease.
    pub(super) fn holders(&self, now: Timestamp) -> impl Iterator<Item = &WorkerName> {
        let held = move |lease: &&Lease| !lease.lost && lease.ends_at > now;
        self.by_job.values().filter(held).map(|lease| &lease.worker)
    }

    fn find(&mut self, receipt: &Receipt) -> Option<&mut Lease> {
        let name = (receipt.kind().clone(), receipt.id().clone());
        self.by_job.get_mut(&name).filter(|lease| lease.fence == receipt.fence())
    }

    /// Looks through all only when half as many again have come: little for each. Where there is no
    /// room for more, only those that are held are remembered.
    fn sweep(&mut self, now: Timestamp) {
        if self.by_job.len() < self.sweep_at.clamp(SWEEP_AT, MAX_LEASES) {
            return;
        }
        if self.by_job.len() >= MAX_LEASES && now < self.swept_at.saturating_add(PAUSE) {
            return;
        }
        self.by_job.retain(|_, lease| lease.ends_at.saturating_add(REMEMBERED) > now);
        if self.by_job.len() >= MAX_LEASES {
            self.by_job.retain(|_, lease| !lease.lost && lease.ends_at > now);
        }
        (self.sweep_at, self.swept_at) = (self.by_job.len() + self.by_job.len() / 2, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Body;

    fn job(n: usize, fence: u64, attempt: u32, due: u64, ends_at: u64) -> ClaimedJob {
        let kind = Kind::new("mail").expect("a valid kind");
        let id = JobId::new(n.to_string()).expect("a valid id");
        let receipt = Receipt::new(kind, id, Fence(fence), 0);
        let mut job = ClaimedJob::new(receipt, Body::default(), Generation(1));
        (job.attempt, job.due) = (attempt, Timestamp::from_millis(due));
        job.lease_ends_at = Timestamp::from_millis(ends_at);
        job
    }

    fn held(leases: &Leases, now: u64) -> usize {
        leases.holders(Timestamp::from_millis(now)).count()
    }

    #[test]
    fn only_what_is_due_when_its_lease_ended_as_the_next_attempt_has_expired() {
        let worker = WorkerName::new("w").expect("a valid name");
        let now = Timestamp::from_millis(0);
        for (attempt, due, expired) in [(2, 30, true), (2, 31, false), (1, 30, false)] {
            let mut leases = Leases::default();
            assert!(!leases.given(&job(1, 1, 1, 0, 30), &worker, now));
            assert_eq!(leases.given(&job(1, 2, attempt, due, 60), &worker, now), expired);
        }
    }

    #[test]
    fn a_lease_that_was_lost_is_not_held_and_may_yet_be_known_to_have_expired() {
        let worker = WorkerName::new("w").expect("a valid name");
        let now = Timestamp::from_millis(0);
        let (mut leases, first) = (Leases::default(), job(1, 1, 1, 0, 30));
        leases.given(&first, &worker, now);
        assert_eq!((held(&leases, 29), held(&leases, 30)), (1, 0));
        leases.lose(&first.receipt);
        assert_eq!(held(&leases, 29), 0);
        assert!(leases.given(&job(1, 2, 2, 30, 60), &worker, now));
        assert_eq!(leases.take(&first.receipt), None, "it is another lease now");
        assert_eq!(held(&leases, 29), 1);
    }

    #[test]
    fn leases_that_ended_long_ago_are_forgotten() {
        let worker = WorkerName::new("w").expect("a valid name");
        let mut leases = Leases::default();
        for n in 0..SWEEP_AT {
            leases.given(&job(n, 1, 1, 0, 30), &worker, Timestamp::from_millis(0));
        }
        let later = Timestamp::from_millis(30).saturating_add(REMEMBERED);
        leases.given(&job(SWEEP_AT, 1, 1, 0, u64::MAX), &worker, later);
        assert_eq!(leases.by_job.len(), 1);
    }

    #[test]
    fn when_there_is_no_room_those_that_ended_make_some_and_no_others() {
        let worker = WorkerName::new("w").expect("a valid name");
        let mut leases = Leases::default();
        let at = Timestamp::from_millis;
        for n in 0..=MAX_LEASES {
            leases.given(&job(n, 1, 1, 0, 30 + n as u64), &worker, at(0));
        }
        assert_eq!(leases.by_job.len(), MAX_LEASES);
        let later = at(50_030);
        leases.given(&job(MAX_LEASES, 1, 1, 0, u64::MAX), &worker, later);
        assert_eq!(leases.by_job.len(), MAX_LEASES - 50_000);
        assert_eq!(held(&leases, later.as_millis()), leases.by_job.len());
    }
}
