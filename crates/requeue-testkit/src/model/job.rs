//! One job of the model.

use requeue_jobs::limits::KEPT_ATTEMPTS;
use requeue_jobs::{
    Backoff, Body, ClaimedJob, Content, DoneView, ExpiredLease, FailedAttempt, Generation, JobId,
    JobState, JobView, Kind, LeaseView, Mode, Priority, Put, PutOutcome, Receipt, Reschedule,
    Timestamp, Version, WorkerName,
};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The view of the job, except that a pending job is always `Waiting` here.
    pub(super) view: JobView,
    pub(super) receipt: Option<Receipt>,
    /// Its position: of two jobs with the same time, the one with the lower position is first.
    place: u64,
    /// The end of the backoff: no put makes the job due before it.
    pub(super) floor: Timestamp,
    /// The first put since it was created or last acked.
    pub(super) first_put_at: Option<Timestamp>,
    /// The first put of its successor.
    pub(super) next_put_at: Option<Timestamp>,
}

impl Job {
    /// Creates a job that was first put at `put_at`.
    pub(super) fn new(mut view: JobView, place: u64, put_at: Timestamp, now: Timestamp) -> Self {
        (view.created_at, view.updated_at) = (put_at, now);
        let (first_put_at, floor) = (Some(put_at), Timestamp::default());
        Job { view, receipt: None, place, floor, first_put_at, next_put_at: None }
    }

    pub(super) fn is(&self, kind: &Kind, id: &JobId) -> bool {
        self.view.kind == *kind && self.view.id == *id
    }

    pub(super) fn view(&self, now: Timestamp) -> JobView {
        let mut view = self.view.clone();
        if self.is_pending() && view.version.due <= now {
            view.state = JobState::Ready;
        }
        view
    }

    pub(super) fn is_pending(&self) -> bool {
        self.view.state == JobState::Waiting
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.view.lease.as_ref().is_some_and(|lease| lease.cancelled)
    }

    pub(super) fn lease_ends_at(&self) -> Option<Timestamp> {
        self.view.lease.as_ref().map(|lease| lease.ends_at)
    }

    /// Returns what a claim or a reap reports of its lease if that has expired.
    pub(super) fn expired_lease(&self) -> ExpiredLease {
        let JobView { kind, id, attempts, lease, .. } = &self.view;
        let worker = lease.as_ref().expect("only a leased job expires").worker.clone();
        ExpiredLease::new(kind.clone(), id.clone(), worker, attempts + 1)
    }

    /// Returns its position among the jobs that can be claimed: by due time, or by the end of its
    /// lease.
    pub(super) fn position(&self) -> Option<(Timestamp, u64)> {
        let at = self.lease_ends_at().or(self.is_pending().then_some(self.view.version.due))?;
        Some((at, self.place))
    }

    /// Returns the time of its death and its position.
    pub(super) fn death(&self) -> Option<(Timestamp, u64)> {
        Some((self.view.died_at?, self.place))
    }

    /// Returns the time when it was done and its position.
    pub(super) fn completion(&self) -> Option<(Timestamp, u64)> {
        Some((self.view.done.as_ref()?.done_at, self.place))
    }

    /// Ends the lease of a job that is done and kept.
    pub(super) fn finish(&mut self, result: Option<Body>, place: u64, now: Timestamp) {
        let lease = self.view.lease.clone().expect("only a leased job is done");
        self.unlease();
        self.view.state = JobState::Done;
        let (worker, started_at) = (lease.worker, lease.claimed_at);
        self.view.done = Some(DoneView { worker, started_at, done_at: now, result });
        (self.view.version.content, self.view.failures) = (Content::default(), Vec::new());
        self.place = place;
    }

    /// Returns the generation that a put with `keep` does not change.
    pub(super) fn kept_generation(&self) -> Option<Generation> {
        match self.view.state {
            JobState::Leased => self.view.next.as_ref().map(|next| next.generation),
            _ => Some(self.view.version.generation),
        }
    }

    pub(super) fn put(
        &mut self,
        put: &Put,
        due: Timestamp,
        generation: Generation,
        place: u64,
        now: Timestamp,
    ) -> PutOutcome {
        self.view.updated_at = now;
        match self.view.state {
            JobState::Leased => {
                self.put_next(put, due, generation, now);
                PutOutcome::Coalesced
            }
            JobState::Dead => {
                self.first_put_at = Some(now);
                self.revive(merged(put.mode, due, None, now, now), place, now);
                (self.view.version.content, self.view.version.generation) =
                    (put.content.clone(), generation);
                self.view.version.priority = put.priority;
                PutOutcome::Revived
            }
            JobState::Done => unreachable!("a done job is absent for puts"),
            JobState::Waiting | JobState::Ready => {
                let first = *self.first_put_at.get_or_insert(now);
                let due = merged(put.mode, due, Some(self.view.version.due), first, now);
                self.view.version.priority = higher(put, Some(self.view.version.priority));
                self.replace(put.content.clone(), due, generation, place, now);
                PutOutcome::Updated
            }
        }
    }

    fn put_next(&mut self, put: &Put, due: Timestamp, generation: Generation, now: Timestamp) {
        let put_at = *self.next_put_at.get_or_insert(now);
        // A put after a cancel is another job, whose debounce starts with it.
        let first =
            if self.is_cancelled() { put_at } else { *self.first_put_at.get_or_insert(now) };
        let old = self.view.next.as_ref().map(|next| next.due);
        let due = merged(put.mode, due, old, first, now);
        let priority = higher(put, self.view.next.as_ref().map(|next| next.priority));
        let content = put.content.clone();
        self.view.next = Some(Version { content, due, priority, generation });
    }

    pub(super) fn reschedule(
        &mut self,
        set: &Reschedule,
        due: Option<Timestamp>,
        generation: Generation,
        place: u64,
        now: Timestamp,
    ) -> PutOutcome {
        self.view.updated_at = now;
        if self.view.state == JobState::Leased {
            self.next_put_at.get_or_insert(now);
            if !self.is_cancelled() {
                self.first_put_at.get_or_insert(now);
            }
            let current = Version { due: now, ..self.view.version.clone() };
            let next = self.view.next.get_or_insert(current);
            if let Some(body) = &set.body {
                next.content.body = body.clone();
                next.content.head.change(|head| head.envelope = None);
            }
            next.priority = set.priority.unwrap_or(next.priority);
            (next.due, next.generation) = (due.unwrap_or(next.due), generation);
            return PutOutcome::Coalesced;
        }
        self.view.version.priority = set.priority.unwrap_or(self.view.version.priority);
        let mut content = self.view.version.content.clone();
        if let Some(body) = &set.body {
            content.body = body.clone();
            content.head.change(|head| head.envelope = None);
        }
        match (self.view.state, due) {
            (JobState::Dead, Some(due)) => {
                self.first_put_at = Some(now);
                self.revive(due, place, now);
                (self.view.version.content, self.view.version.generation) = (content, generation);
                PutOutcome::Revived
            }
            (JobState::Dead, None) => {
                (self.view.version.content, self.view.version.generation) = (content, generation);
                PutOutcome::Updated
            }
            (_, due) => {
                self.first_put_at.get_or_insert(now);
                self.replace(content, due.unwrap_or(self.view.version.due), generation, place, now);
                PutOutcome::Updated
            }
        }
    }

    /// Replaces the content and due time of a pending job. A job that stays ready keeps its position.
    pub(super) fn replace(
        &mut self,
        content: Content,
        due: Timestamp,
        generation: Generation,
        place: u64,
        now: Timestamp,
    ) {
        (self.view.version.content, self.view.version.generation) = (content, generation);
        let due = due.max(self.floor);
        let stays_ready = due <= now && self.view.version.due <= now;
        if !stays_ready && due != self.view.version.due {
            self.move_to(due, place);
        }
    }

    pub(super) fn move_to(&mut self, due: Timestamp, place: u64) {
        (self.view.version.due, self.place) = (due, place);
    }

    /// Replaces the job with its successor.
    pub(super) fn take_over(&mut self, next: Version, due: Timestamp, place: u64) {
        let old = mem::replace(&mut self.view.version, next).due;
        self.view.version.due = old;
        if due != old {
            self.move_to(due, place);
        }
    }

    pub(super) fn lease(
        &mut self,
        receipt: Receipt,
        worker: WorkerName,
        ends_at: Timestamp,
        now: Timestamp,
    ) -> ClaimedJob {
        self.view.state = JobState::Leased;
        self.view.updated_at = now;
        self.view.lease = Some(LeaseView {
            worker,
            claimed_at: now,
            ends_at,
            cancelled: false,
            fence: receipt.fence(),
        });
        self.receipt = Some(receipt.clone());
        let mut job = ClaimedJob::new(receipt, self.view.version.clone());
        job.attempt = self.view.attempts + 1;
        job.lease_ends_at = ends_at;
        job.created_at = self.view.created_at;
        job
    }

    /// Ends the lease, so that the job is pending. Returns its successor.
    pub(super) fn unlease(&mut self) -> Option<Version> {
        self.view.state = JobState::Waiting;
        (self.view.lease, self.receipt, self.next_put_at) = (None, None, None);
        self.view.next.take()
    }

    /// Ends the lease with a failure.
    pub(super) fn fail(
        &mut self,
        ended_at: Timestamp,
        error: Option<Arc<str>>,
        now: Timestamp,
    ) -> Option<Version> {
        let lease = self.view.lease.clone().expect("only a leased job fails");
        let (worker, started_at) = (lease.worker, lease.claimed_at);
        self.view.failures.push(FailedAttempt { worker, started_at, ended_at, error });
        if self.view.failures.len() > KEPT_ATTEMPTS {
            self.view.failures.remove(0);
        }
        self.view.attempts += 1;
        self.view.updated_at = now;
        self.unlease()
    }

    pub(super) fn die(&mut self, place: u64, now: Timestamp) {
        self.view.state = JobState::Dead;
        self.view.died_at = Some(now);
        self.view.deaths += 1;
        self.place = place;
    }

    pub(super) fn revive(&mut self, due: Timestamp, place: u64, now: Timestamp) {
        self.view.state = JobState::Waiting;
        self.view.died_at = None;
        self.view.attempts = 0;
        self.view.updated_at = now;
        self.floor = Timestamp::default();
        self.move_to(due, place);
    }

    pub(super) fn extend(&mut self, wanted: Timestamp) -> Timestamp {
        let lease = self.view.lease.as_mut().expect("only a leased job is extended");
        lease.ends_at = lease.ends_at.max(wanted);
        lease.ends_at
    }

    pub(super) fn cancel(&mut self, now: Timestamp) {
        let lease = self.view.lease.as_mut().expect("only a leased job is marked");
        lease.cancelled = true;
        (self.view.next, self.next_put_at) = (None, None);
        self.view.updated_at = now;
    }
}

/// Returns the priority of a put, given the priority that it replaces.
fn higher(put: &Put, old: Option<Priority>) -> Priority {
    match (put.mode, old) {
        (Mode::Earliest, Some(old)) => put.priority.max(old),
        _ => put.priority,
    }
}

/// Returns the due time of a put, given the due time that it replaces.
pub(super) fn merged(
    mode: Mode,
    due: Timestamp,
    old: Option<Timestamp>,
    first_put_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match (mode, old) {
        (Mode::Earliest, Some(old)) => due.min(old),
        (Mode::Debounce { max_wait }, _) => due.min(first_put_at.saturating_add(max_wait).max(now)),
        _ => due,
    }
}

/// Returns the shortest and the longest delay after this many failures.
pub(super) fn backoff(backoff: &Backoff, failures: u32) -> (Duration, Duration) {
    let mut longest = backoff.base.min(backoff.max);
    for _ in 1..failures {
        longest = (longest * 2).min(backoff.max);
    }
    let percent = 100 - u32::from(backoff.jitter_percent.min(100));
    (longest * percent / 100, longest)
}
