//! Importing jobs from another store.

use crate::error::Invalid;
use crate::job::{JobState, JobView, kept_error};
use crate::limits::{
    KEPT_ATTEMPTS, MAX_BATCH, MAX_BATCH_BYTES, MAX_COUNTER, MAX_DELAY, MAX_RESTORED,
};
use crate::names::Kind;
use crate::receipt::{Fence, Generation};
use crate::rules::check_result;
use crate::time::Timestamp;
use std::time::Duration;

/// Jobs of one kind to import from another store: the argument of
/// [`Store::restore`](crate::Store::restore). The other store returned them from
/// [`Store::list`](crate::Store::list).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// The kind of all jobs.
    pub kind: Kind,
    /// The latest generation that the other store assigned. This store then assigns higher ones.
    pub generation: Generation,
    /// The latest fence that the other store assigned. This store then assigns higher ones.
    pub fence: Fence,
    /// The jobs.
    pub jobs: Vec<JobView>,
}

impl Restore {
    /// Fails if the batch is too large or a counter is above [`MAX_RESTORED`]. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        check_restored("the kind's generation", self.generation.0)?;
        check_restored("the kind's fence", self.fence.0)?;
        let (what, count) = ("entries in a batch", self.jobs.len());
        if count > MAX_BATCH {
            return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
        }
        let len = self.jobs.iter().map(JobView::content_bytes).sum();
        if len > MAX_BATCH_BYTES {
            let field = "the bodies of a batch";
            return Err(Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES });
        }
        Ok(())
    }
}

/// The result of restoring one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Restored {
    /// The job was imported.
    Created,
    /// The job already exists here and was not changed.
    Kept,
    /// The job was leased and cancelled, with no successor. There is nothing to import.
    Ended,
}

/// A job as it is after the import: pending or dead. Implements the rules of
/// [`Store::restore`](crate::Store::restore), for stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The job, without lease and successor.
    pub job: JobView,
    /// The earliest due time that a put can set. Only *run now* makes the job due earlier.
    pub floor: Timestamp,
}

impl Arrival {
    /// Returns the job as it is after the import, or `None` if it was cancelled and has no
    /// successor. Fails if the view is inconsistent or exceeds a limit.
    ///
    /// ```
    /// use requeue_jobs::{Arrival, Fence, JobId, JobState, JobView, Kind, LeaseView};
    /// use requeue_jobs::{Timestamp, Version, WorkerName};
    ///
    /// let at = Timestamp::from_millis;
    /// let (kind, id) = (Kind::new("mail")?, JobId::new("a")?);
    /// let mut job = JobView::new(kind, id, Version { due: at(1000), ..Version::default() });
    /// job.state = JobState::Leased;
    /// let worker = WorkerName::new("w")?;
    /// let (claimed_at, ends_at) = (at(2000), at(32_000));
    /// let (cancelled, fence) = (false, Fence::default());
    /// job.lease = Some(LeaseView { worker, claimed_at, ends_at, cancelled, fence });
    ///
    /// let arrival = Arrival::of(job, at(5000))?.expect("it was not cancelled");
    /// assert_eq!((arrival.job.state, arrival.job.version.due), (JobState::Waiting, at(32_000)));
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn of(mut job: JobView, now: Timestamp) -> Result<Option<Arrival>, Invalid> {
        check(&job, now)?;
        for failure in &mut job.failures {
            failure.error = failure.error.as_deref().map(kept_error);
        }
        let mut floor = Timestamp::default();
        // A view does not contain the end of the backoff. The due time is never before it.
        if job.attempts > 0 && !matches!(job.state, JobState::Dead | JobState::Done) {
            floor = job.version.due;
        }
        if let Some(lease) = job.lease.take() {
            match job.next.take() {
                None if lease.cancelled => return Ok(None),
                None => {}
                Some(next) => {
                    if lease.cancelled {
                        // A new job, created when it was put.
                        let updated_at = job.updated_at;
                        job = JobView::new(job.kind, job.id, next);
                        (job.created_at, job.updated_at) = (updated_at, updated_at);
                    } else {
                        job.version = next;
                    }
                }
            }
            // Its worker may still be running, and this store cannot know.
            floor = lease.ends_at;
            job.version.due = job.version.due.max(floor);
        }
        if !matches!(job.state, JobState::Dead | JobState::Done) {
            job.state = if job.version.due <= now { JobState::Ready } else { JobState::Waiting };
        }
        Ok(Some(Arrival { job, floor }))
    }
}

fn check(job: &JobView, now: Timestamp) -> Result<(), Invalid> {
    let (leased, dead) = (job.state == JobState::Leased, job.state == JobState::Dead);
    let reason = if leased != job.lease.is_some() {
        "a leased job has a lease, and no other has"
    } else if job.next.is_some() && !leased {
        "only a leased job has a successor"
    } else if dead != job.died_at.is_some() {
        "a dead job has a time of death, and no other has"
    } else if (job.state == JobState::Done) != job.done.is_some() {
        "a done job was done by a worker at some time, and no other was"
    } else if job.done.is_some() && !(job.version.content.is_empty() && job.failures.is_empty()) {
        "a done job has no body and no failures"
    } else {
        ""
    };
    if !reason.is_empty() {
        return Err(Invalid::InconsistentJob { id: job.id.clone(), reason });
    }
    check_restored("the generation", job.newest_generation().0.max(job.version.generation.0))?;
    let (what, count) = ("failed attempts of a job", job.failures.len());
    if count > KEPT_ATTEMPTS {
        return Err(Invalid::TooMany { what, count, limit: KEPT_ATTEMPTS });
    }
    if let Some(result) = job.done.as_ref().and_then(|done| done.result.as_ref()) {
        check_result(result)?;
    }
    for version in [Some(&job.version), job.next.as_ref()].into_iter().flatten() {
        version.content.check()?;
    }
    check_times(job, now)
}

/// The limit for delays applies to all times: a later one is probably a mistake.
fn check_times(job: &JobView, now: Timestamp) -> Result<(), Invalid> {
    let lease = job.lease.iter().flat_map(|lease| {
        [("the start of the lease", lease.claimed_at), ("the end of the lease", lease.ends_at)]
    });
    let failures = job.failures.iter().flat_map(|failure| {
        [("the start of an attempt", failure.started_at), ("its end", failure.ended_at)]
    });
    let done = job.done.iter().flat_map(|done| {
        [("the start of the attempt", done.started_at), ("the time when it was done", done.done_at)]
    });
    let next = job.next.iter().map(|next| ("the successor's due time", next.due));
    let times = [
        ("the due time", job.version.due),
        ("the time of creation", job.created_at),
        ("the time of the last change", job.updated_at),
        ("the time of death", job.died_at.unwrap_or_default()),
    ];
    for (field, at) in times.into_iter().chain(lease).chain(failures).chain(done).chain(next) {
        let (value, min, max) = (at.saturating_since(now), Duration::ZERO, MAX_DELAY);
        if value > max {
            return Err(Invalid::OutOfRange { field, value, min, max });
        }
    }
    Ok(())
}

fn check_restored(field: &'static str, value: u64) -> Result<(), Invalid> {
    let limit = MAX_RESTORED;
    if value > limit { Err(Invalid::TooHigh { field, value, limit }) } else { Ok(()) }
}

pub(crate) fn check_counter(field: &'static str, value: u64) -> Result<(), Invalid> {
    let limit = MAX_COUNTER;
    if value > limit { Err(Invalid::TooHigh { field, value, limit }) } else { Ok(()) }
}
