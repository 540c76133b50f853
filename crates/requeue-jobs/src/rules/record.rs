//! The record of one job.

use super::job_table::{List, Position};
use crate::job::{Body, DoneView, FailedAttempt, JobState, JobView, LeaseView};
use crate::limits::KEPT_ATTEMPTS;
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::{Fence, Generation, Receipt};
use crate::time::Timestamp;
use crate::version::Version;
use std::sync::Arc;

/// A job as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What the put that the job comes from has set.
    pub version: Version,
    /// Orders jobs that are due in the same millisecond: the lower one is first. No two jobs of a
    /// kind have the same.
    pub seq: u64,
    /// The number of failures since the count was last reset.
    pub attempts: u32,
    /// How often the job has become dead.
    pub deaths: u32,
    /// The earliest due time that a put can set: the end of the backoff.
    pub floor: Timestamp,
    /// The time of the first put since the job was created or last acked, for debounce. `None` if
    /// the next put starts the count.
    pub first_put_at: Option<Timestamp>,
    /// Whether the job is pending, leased, dead or done.
    pub status: Status,
    /// The latest failed attempts, at most [`KEPT_ATTEMPTS`], the most recent last.
    pub failures: Vec<FailedAttempt>,
    /// When the job was first put.
    pub created_at: Timestamp,
    /// When the job was last changed, by any operation.
    pub updated_at: Timestamp,
}

/// Whether a job is pending, leased, dead or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The job is waiting or ready, depending on the current time.
    Pending,
    /// A worker has claimed the job. The lease is boxed because few jobs are leased, and the others
    /// need not pay for its size.
    Leased(Box<Lease>),
    /// The attempts of the job are used up, or a worker has buried it.
    Dead {
        /// When the job became dead.
        died_at: Timestamp,
    },
    /// The job is done, and its kind keeps done jobs.
    Done(Box<DoneView>),
}

/// The lease of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token.
    pub fence: Fence,
    /// The random number of the claim, which is part of the receipt.
    pub nonce: u64,
    /// The name of the worker.
    pub worker: WorkerName,
    /// When the worker claimed the job.
    pub claimed_at: Timestamp,
    /// When the lease ends, unless it is extended.
    pub ends_at: Timestamp,
    /// Whether the job was cancelled. It is then removed when the lease ends.
    pub cancelled: bool,
    /// The successor, if something was put since the claim.
    pub next: Option<Successor>,
}

impl Lease {
    /// Returns `true` if `receipt` is the receipt of this lease.
    pub(super) fn is_of(&self, receipt: &Receipt) -> bool {
        self.fence == receipt.fence() && self.nonce == receipt.nonce()
    }
}

/// The successor of a leased job: the put that was made while the job was leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// What the latest put has set.
    pub version: Version,
    /// The time of the first put since the job was leased.
    pub put_at: Timestamp,
}

impl Record {
    /// Returns the record of a job that is put for the first time, at `now`.
    pub fn new(version: Version, seq: u64, now: Timestamp) -> Self {
        Record {
            version,
            seq,
            attempts: 0,
            floor: Timestamp::default(),
            first_put_at: Some(now),
            status: Status::Pending,
            failures: Vec::new(),
            deaths: 0,
            created_at: now,
            updated_at: now,
        }
    }

    /// Returns the list of its kind that the job is in, and its position in that list. Pending jobs
    /// are ordered by due time, leased jobs by the end of the lease, dead and done jobs by the time when
    /// they became that.
    pub fn position(&self) -> (List, Position) {
        let (list, at) = match &self.status {
            Status::Pending => (List::Pending(self.version.priority), self.version.due),
            Status::Leased(lease) => (List::Leased(self.version.priority), lease.ends_at),
            Status::Dead { died_at } => (List::Dead, *died_at),
            Status::Done(done) => (List::Done, done.done_at),
        };
        (list, Position { at, seq: self.seq })
    }

    /// Returns the newest version: that of the successor if there is one, else the job's own.
    pub fn newest(&self) -> &Version {
        match &self.status {
            Status::Leased(lease) => {
                lease.next.as_ref().map_or(&self.version, |next| &next.version)
            }
            Status::Pending | Status::Dead { .. } | Status::Done(_) => &self.version,
        }
    }

    /// Returns the generation of the newest version.
    pub fn newest_generation(&self) -> Generation {
        self.newest().generation
    }

    /// Returns `true` if the job is done.
    pub fn is_done(&self) -> bool {
        matches!(self.status, Status::Done(_))
    }

    /// Returns the number of bytes in the content of the job, in that of its successor and in its
    /// result.
    pub fn content_bytes(&self) -> usize {
        let other = match &self.status {
            Status::Leased(lease) => {
                lease.next.as_ref().map_or(0, |next| next.version.content.len())
            }
            Status::Done(done) => done.result.as_ref().map_or(0, Body::len),
            Status::Pending | Status::Dead { .. } => 0,
        };
        self.version.content.len() + other
    }

    /// Counts a failed attempt under `lease`.
    pub(super) fn fail(&mut self, lease: &Lease, ended_at: Timestamp, error: Option<Arc<str>>) {
        self.attempts = self.attempts.saturating_add(1);
        if self.failures.len() == KEPT_ATTEMPTS {
            self.failures.remove(0);
        }
        let (worker, started_at) = (lease.worker.clone(), lease.claimed_at);
        self.failures.push(FailedAttempt { worker, started_at, ended_at, error });
    }

    /// Resets the number of failures and the end of the backoff.
    pub(super) fn reset(&mut self) {
        (self.attempts, self.floor) = (0, Timestamp::default());
    }

    /// Returns the job as clients see it at `now`. The view does not contain the receipt.
    pub fn view(&self, kind: &Kind, id: &JobId, now: Timestamp) -> JobView {
        let mut view = JobView::new(kind.clone(), id.clone(), self.version.clone());
        view.attempts = self.attempts;
        view.failures = self.failures.clone();
        view.deaths = self.deaths;
        (view.created_at, view.updated_at) = (self.created_at, self.updated_at);
        match &self.status {
            Status::Pending if self.version.due <= now => view.state = JobState::Ready,
            Status::Pending => {}
            Status::Leased(lease) => {
                view.state = JobState::Leased;
                view.lease = Some(LeaseView {
                    worker: lease.worker.clone(),
                    claimed_at: lease.claimed_at,
                    ends_at: lease.ends_at,
                    cancelled: lease.cancelled,
                    fence: lease.fence,
                });
                view.next = lease.next.as_ref().map(|next| next.version.clone());
            }
            Status::Dead { died_at } => {
                view.state = JobState::Dead;
                view.died_at = Some(*died_at);
            }
            Status::Done(done) => {
                view.state = JobState::Done;
                view.done = Some((**done).clone());
            }
        }
        view
    }
}
