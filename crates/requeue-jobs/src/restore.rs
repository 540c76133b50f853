//! Jobs of another store, kept as they were.

use crate::error::Invalid;
use crate::job::{JobState, JobView, kept_error};
use crate::limits::{KEPT_ATTEMPTS, MAX_BATCH, MAX_BATCH_BYTES, MAX_COUNTER, MAX_DELAY};
use crate::names::Kind;
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
use std::time::Duration;

/// Jobs of one kind that another store had, and told by [`list`](crate::Store::list).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// Of which kind all of them are.
    pub kind: Kind,
    /// The latest that the other store gave out: this one gives out higher ones.
    pub generation: Generation,
    /// The same of leases.
    pub fence: Fence,
    /// The jobs.
    pub jobs: Vec<JobView>,
}

impl Restore {
    /// Whether the batch is not too large; for stores.
    pub fn check(&self) -> Result<(), Invalid> {
        check_counter("the kind's generation", self.generation.0)?;
        check_counter("the kind's fence", self.fence.0)?;
        let (what, count) = ("entries in a batch", self.jobs.len());
        if count > MAX_BATCH {
            return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
        }
        let len = self.jobs.iter().map(bodies_len).sum();
        if len > MAX_BATCH_BYTES {
            let field = "the bodies of a batch";
            return Err(Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES });
        }
        Ok(())
    }
}

/// Bytes of the bodies of a job and of its successor.
pub(crate) fn bodies_len(job: &JobView) -> usize {
    job.body.len() + job.next.as_ref().map_or(0, |next| next.body.len())
}

/// What became of a job that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Restored {
    /// It is here now.
    Created,
    /// There is such a job already, and it was not touched.
    Kept,
    /// It was cancelled, and only its lease was left of it: that ended with the other store.
    Ended,
}

/// How a job of another store arrives: pending or dead. The rule of
/// [`restore`](crate::Store::restore), for stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The job, without lease and successor.
    pub job: JobView,
    /// No put makes it due before this.
    pub floor: Timestamp,
}

impl Arrival {
    /// How this job arrives. `None`: it was cancelled, and does not.
    ///
    /// ```
    /// use requeue_jobs::{Arrival, Body, Generation, JobId, JobState, JobView, Kind, LeaseView};
    /// use requeue_jobs::{Timestamp, WorkerName};
    ///
    /// let at = Timestamp::from_millis;
    /// let (kind, id) = (Kind::new("mail")?, JobId::new("a")?);
    /// let mut job = JobView::new(kind, id, Body::default(), at(1000), Generation(1));
    /// job.state = JobState::Leased;
    /// let worker = WorkerName::new("w")?;
    /// let (claimed_at, ends_at) = (at(2000), at(32_000));
    /// job.lease = Some(LeaseView { worker, claimed_at, ends_at, cancelled: false });
    ///
    /// let arrival = Arrival::of(job, at(5000))?.expect("it was not cancelled");
    /// assert_eq!((arrival.job.state, arrival.job.due), (JobState::Waiting, at(32_000)));
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn of(mut job: JobView, now: Timestamp) -> Result<Option<Arrival>, Invalid> {
        check(&job, now)?;
        for failure in &mut job.failures {
            failure.error = failure.error.as_deref().map(kept_error);
        }
        let mut floor = Timestamp::default();
        // Views do not tell how long the backoff is; until it is due is long enough.
        if job.attempts > 0 && job.state != JobState::Dead {
            floor = job.due;
        }
        if let Some(lease) = job.lease.take() {
            match job.next.take() {
                None if lease.cancelled => return Ok(None),
                None => {}
                Some(next) => {
                    if lease.cancelled {
                        // Another job, that began when it was put.
                        let updated_at = job.updated_at;
                        job = JobView::new(job.kind, job.id, next.body, next.due, next.generation);
                        (job.created_at, job.updated_at) = (updated_at, updated_at);
                    } else {
                        (job.body, job.due, job.generation) =
                            (next.body, next.due, next.generation);
                    }
                }
            }
            // Its worker may still be at it, and cannot be asked from here.
            (floor, job.due) = (lease.ends_at, job.due.max(lease.ends_at));
        }
        if job.state != JobState::Dead {
            job.state = if job.due <= now { JobState::Ready } else { JobState::Waiting };
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
    } else {
        ""
    };
    if !reason.is_empty() {
        return Err(Invalid::NoSuchJob { id: job.id.clone(), reason });
    }
    check_counter("the generation", job.newest_generation().0.max(job.generation.0))?;
    let (what, count) = ("failed attempts of a job", job.failures.len());
    if count > KEPT_ATTEMPTS {
        return Err(Invalid::TooMany { what, count, limit: KEPT_ATTEMPTS });
    }
    check_times(job, now)
}

/// As for delays, so for all times: what is further ahead was not meant.
fn check_times(job: &JobView, now: Timestamp) -> Result<(), Invalid> {
    let lease = job.lease.iter().flat_map(|lease| {
        [("the start of the lease", lease.claimed_at), ("the end of the lease", lease.ends_at)]
    });
    let failures = job.failures.iter().flat_map(|failure| {
        [("the start of an attempt", failure.started_at), ("its end", failure.ended_at)]
    });
    let next = job.next.iter().map(|next| ("the successor's due time", next.due));
    let times = [
        ("the due time", job.due),
        ("the time of creation", job.created_at),
        ("the time of the last change", job.updated_at),
        ("the time of death", job.died_at.unwrap_or_default()),
    ];
    for (field, at) in times.into_iter().chain(lease).chain(failures).chain(next) {
        let (value, min, max) = (at.saturating_since(now), Duration::ZERO, MAX_DELAY);
        if value > max {
            return Err(Invalid::OutOfRange { field, value, min, max });
        }
    }
    Ok(())
}

fn check_counter(field: &'static str, value: u64) -> Result<(), Invalid> {
    let limit = MAX_COUNTER;
    if value > limit { Err(Invalid::TooHigh { field, value, limit }) } else { Ok(()) }
}
