//! What is kept of one job.

use crate::job::{Body, FailedAttempt, JobState, JobView, LeaseView, NextView};
use crate::limits::KEPT_ATTEMPTS;
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct Record {
    pub(super) body: Body,
    pub(super) generation: Generation,
    /// When it is due; while it is leased, when it was.
    pub(super) due: Timestamp,
    /// Of two that are due at once, the lower is first.
    pub(super) seq: u64,
    /// Failures since that was last reset.
    pub(super) attempts: u32,
    /// No put makes it due before this: the end of its backoff.
    pub(super) floor: Timestamp,
    /// The first put since it was created or last acked.
    pub(super) first_put_at: Option<Timestamp>,
    pub(super) status: Status,
    pub(super) failures: VecDeque<FailedAttempt>,
    pub(super) deaths: u32,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

pub(super) enum Status {
    Pending,
    Leased(Lease),
    Dead { died_at: Timestamp },
}

pub(super) struct Lease {
    pub(super) fence: Fence,
    pub(super) nonce: u64,
    pub(super) worker: WorkerName,
    pub(super) claimed_at: Timestamp,
    pub(super) ends_at: Timestamp,
    pub(super) cancelled: bool,
    pub(super) next: Option<Next>,
}

/// What was put while the job was leased.
pub(super) struct Next {
    pub(super) body: Body,
    pub(super) due: Timestamp,
    pub(super) generation: Generation,
    /// When the first of the puts that make it up came.
    pub(super) put_at: Timestamp,
}

impl Record {
    /// A job that is put for the first time, at `now`.
    pub(super) fn new(
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
            failures: VecDeque::new(),
            deaths: 0,
            created_at: now,
            updated_at: now,
        }
    }

    pub(super) fn newest_generation(&self) -> Generation {
        match &self.status {
            Status::Leased(Lease { next: Some(next), .. }) => next.generation,
            _ => self.generation,
        }
    }

    /// Counts a failed attempt under `lease`.
    pub(super) fn fail(&mut self, lease: &Lease, ended_at: Timestamp, error: Option<Arc<str>>) {
        self.attempts = self.attempts.saturating_add(1);
        if self.failures.len() == KEPT_ATTEMPTS {
            self.failures.pop_front();
        }
        let (worker, started_at) = (lease.worker.clone(), lease.claimed_at);
        self.failures.push_back(FailedAttempt { worker, started_at, ended_at, error });
    }

    /// Lets it start again.
    pub(super) fn reset(&mut self) {
        (self.attempts, self.floor) = (0, Timestamp::default());
    }

    pub(super) fn view(&self, kind: &Kind, id: &JobId, now: Timestamp) -> JobView {
        let mut view =
            JobView::new(kind.clone(), id.clone(), self.body.clone(), self.due, self.generation);
        view.attempts = self.attempts;
        view.failures = self.failures.iter().cloned().collect();
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
                view.next = lease.next.as_ref().map(|next| NextView {
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
