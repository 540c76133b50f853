//! What a handler and its callbacks receive.

use crate::claim::ClaimedJob;
use requeue::worker::{Cause, Next};
use requeue::{Clock, Moment};
use std::time::Duration;

/// One attempt at a job: what a [`JobWorker`](super::JobWorker) passes to its handler.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobRun {
    /// The job, as it was claimed.
    pub job: ClaimedJob,
    /// The number of this attempt: 1 for the first. The same as
    /// [`job.attempt`](ClaimedJob::attempt).
    pub attempt: u32,
    deadline: Option<Deadline>,
}

#[derive(Debug, Clone)]
struct Deadline {
    clock: Clock,
    at: Moment,
}

impl JobRun {
    /// Returns an attempt at `job` without a deadline. Use it to test a handler.
    ///
    /// ```
    /// use requeue_jobs::{
    ///     Body, BoxError, ClaimedJob, Fence, JobId, JobRun, Kind, Outcome, Receipt,
    /// };
    ///
    /// async fn close(run: JobRun) -> Result<Outcome, BoxError> {
    ///     match run.job.body().bytes() {
    ///         b"unpaid" => Ok(Outcome::Done),
    ///         _ => Ok(Outcome::give_up("not an order")),
    ///     }
    /// }
    ///
    /// let receipt = Receipt::new(Kind::new("order.close")?, JobId::new("order-7")?, Fence(1), 1);
    /// let job = ClaimedJob::new(receipt, Body::octets(*b"unpaid")?);
    /// let outcome = requeue_testkit::block_on(close(JobRun::new(job)))?;
    /// assert_eq!(outcome, Outcome::Done);
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn new(job: ClaimedJob) -> Self {
        let attempt = job.attempt;
        JobRun { job, attempt, deadline: None }
    }

    /// Sets a deadline, as [`JobWorker::timeout`](super::JobWorker::timeout) does:
    /// [`remaining`](Self::remaining) then counts down to `at` on this clock.
    #[must_use]
    pub fn until(mut self, clock: &Clock, at: Moment) -> Self {
        self.deadline = Some(Deadline { clock: clock.clone(), at });
        self
    }

    /// Returns the time left until the attempt times out, or `None` if the worker has no
    /// [`timeout`](super::JobWorker::timeout).
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline.as_ref()?;
        Some(deadline.at.saturating_since(deadline.clock.now()))
    }
}

/// A failed attempt at a job: what [`JobWorker::on_failure`](super::JobWorker::on_failure) and
/// [`JobWorker::on_dead`](super::JobWorker::on_dead) pass to their callback.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct JobFailure<'a> {
    /// The job, as it was claimed.
    pub job: &'a ClaimedJob,
    /// The number of the attempt that failed: 1 for the first.
    pub attempt: u32,
    /// How long the handler ran.
    pub took: Duration,
    /// Why the attempt failed.
    pub cause: Cause<'a>,
    /// What happens to the job: [`RetryIn`](Next::RetryIn) or [`Dead`](Next::Dead). It is
    /// [`Dropped`](Next::Dropped) if the job was cancelled meanwhile, or if the store never
    /// reported what it did.
    pub next: Next,
}

impl<'a> JobFailure<'a> {
    /// Returns the failure of a job's current attempt. Use it to test a callback.
    pub fn new(job: &'a ClaimedJob, took: Duration, cause: Cause<'a>, next: Next) -> Self {
        JobFailure { job, attempt: job.attempt, took, cause, next }
    }
}
