//! What is kept of one job.

use super::job_table::{List, Place};
use crate::job::{Body, FailedAttempt, JobState, JobView, LeaseView, SuccessorView};
use crate::limits::KEPT_ATTEMPTS;
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::{Fence, Generation, Receipt};
use crate::time::Timestamp;
use std::sync::Arc;

/// A job, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it carries.
    pub body: Body,
    /// Which put it is of.
    pub generation: Generation,
    /// When it is due; while it is leased, when it was.
    pub due: Timestamp,
    /// Of two that are due at once, the lower is first. No two of a kind have the same.
    pub seq: u64,
    /// Failures since that was last reset.
    pub attempts: u32,
    /// How often it has died.
    pub deaths: u32,
    /// No put makes it due before this: the end of its backoff.
    pub floor: Timestamp,
    /// The first put since it was created or last acked.
    pub first_put_at: Option<Timestamp>,
    /// Whether it waits, is leased or dead.
    pub status: Status,
    /// The latest failed attempts, the latest last: at most [`KEPT_ATTEMPTS`].
    pub failures: Vec<FailedAttempt>,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it was last changed, by whomever.
    pub updated_at: Timestamp,
}

/// Whether a job waits, is leased or dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It waits or is ready: that depends on the time.
    Pending,
    /// Somebody has claimed it. Few jobs are leased: the others do not pay for it.
    Leased(Box<Lease>),
    /// Its attempts are used up.
    Dead {
        /// Since when.
        died_at: Timestamp,
    },
}

/// Who has a job, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which lease of its kind.
    pub fence: Fence,
    /// What the holder made up when it claimed.
    pub nonce: u64,
    /// Who has it.
    pub worker: WorkerName,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Until when, unless it is extended.
    pub ends_at: Timestamp,
    /// The job was cancelled: it ends with its lease.
    pub cancelled: bool,
    /// Its successor.
    pub next: Option<Next>,
}

impl Lease {
    /// Whether this is what `receipt` proves.
    pub(super) fn is_of(&self, receipt: &Receipt) -> bool {
        self.fence == receipt.fence() && self.nonce == receipt.nonce()
    }
}

/// What was put while the job was leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// What it carries.
    pub body: Body,
    /// When it is due, at the soonest.
    pub due: Timestamp,
    /// Which put it is of.
    pub generation: Generation,
    /// When the first of the puts that make it up came.
    pub put_at: Timestamp,
}

impl Record {
    /// A job that is put for the first time, at `now`.
    pub fn new(
        body: Body,
        due: Timestamp,
        generation: Generation,
        seq: u64,
        now: Timestamp,
    ) -> Self {
        Record {
            body,
            generation,
            due,
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

    /// In which list of its kind it is, and where: pending by due time, leased by the end of
    /// the lease, dead by the time of death.
    pub fn place(&self) -> (List, Place) {
        let (list, at) = match &self.status {
            Status::Pending => (List::Pending, self.due),
            Status::Leased(lease) => (List::Leased, lease.ends_at),
            Status::Dead { died_at } => (List::Dead, *died_at),
        };
        (list, Place { at, seq: self.seq })
    }

    /// The newest generation: the successor's, where there is one.
    pub fn newest_generation(&self) -> Generation {
        match &self.status {
            Status::Leased(lease) => {
                lease.next.as_ref().map_or(self.generation, |next| next.generation)
            }
            Status::Pending | Status::Dead { .. } => self.generation,
        }
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

    /// Lets it start again.
    pub(super) fn reset(&mut self) {
        (self.attempts, self.floor) = (0, Timestamp::default());
    }

    /// What others may know of it.
    pub fn view(&self, kind: &Kind, id: &JobId, now: Timestamp) -> JobView {
        let mut view =
            JobView::new(kind.clone(), id.clone(), self.body.clone(), self.due, self.generation);
        view.attempts = self.attempts;
        view.failures = self.failures.clone();
        view.deaths = self.deaths;
        (view.created_at, view.updated_at) = (self.created_at, self.updated_at);
        match &self.status {
            Status::Pending if self.due <= now => view.state = JobState::Ready,
            Status::Pending => {}
            Status::Leased(lease) => {
                view.state = JobState::Leased;
                view.lease = Some(LeaseView {
                    worker: lease.worker.clone(),
                    claimed_at: lease.claimed_at,
                    ends_at: lease.ends_at,
                    cancelled: lease.cancelled,
                });
                view.next = lease.next.as_ref().map(|next| SuccessorView {
                    body: next.body.clone(),
                    due: next.due,
                    generation: next.generation,
                });
            }
            Status::Dead { died_at } => {
                view.state = JobState::Dead;
                view.died_at = Some(*died_at);
            }
        }
        view
    }
}
