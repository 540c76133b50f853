//! What a handler returns.

use crate::job::Body;
use requeue::worker::Outcome;
use std::time::Duration;

/// What the handler of a [`JobWorker`](super::JobWorker) returns: an [`Outcome`], that the job is
/// done with a result, or that it should be retried after a certain delay.
///
/// A handler returns `Result<T, BoxError>`, where `T` is a `JobOutcome`, an [`Outcome`] or `()`. The
/// latter two, which handlers of in-memory queues return, too, convert to a `JobOutcome`.
///
/// ```
/// use requeue_jobs::{Body, BoxError, JobOutcome, JobRun, Outcome};
///
/// async fn remind(run: JobRun) -> Result<JobOutcome, BoxError> {
///     if run.job.body().is_empty() {
///         return Ok(Outcome::give_up("not an order").into());
///     }
///     let result = Body::new(*b"{\"sent\":1}", "application/json")?;
///     Ok(JobOutcome::DoneWith(result))
/// }
///
/// assert_eq!(JobOutcome::from(()), JobOutcome::Plain(Outcome::Done));
/// # use requeue_jobs::{ClaimedJob, Fence, JobId, Kind, Receipt};
/// # let receipt = Receipt::new(Kind::new("order.remind")?, JobId::new("order-7")?, Fence(1), 1);
/// # let job = ClaimedJob::new(receipt, Body::octets(*b"unpaid")?);
/// # let outcome = requeue_testkit::block_on(remind(JobRun::new(job)))?;
/// # assert!(matches!(outcome, JobOutcome::DoneWith(_)));
/// # Ok::<(), BoxError>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobOutcome {
    /// The attempt succeeded with this result, of at most
    /// [`MAX_ACK_RESULT_LEN`](crate::limits::MAX_ACK_RESULT_LEN) bytes. The result is kept with the
    /// done job if its kind [keeps done jobs](crate::Settings::keep_done), and otherwise discarded.
    ///
    /// A longer result is a failed attempt: the job is tried again.
    DoneWith(Body),
    /// The attempt failed, and the next one follows after this delay instead of the kind's
    /// [backoff](crate::Settings::backoff), for example because a service returned `Retry-After`. The job is
    /// dead if its attempts are used up.
    ///
    /// A delay of more than [`MAX_DELAY`](crate::limits::MAX_DELAY) is reduced to that.
    RetryAfter {
        /// How long to wait before the next attempt.
        delay: Duration,
        /// Why the attempt failed. It is kept with the job.
        error: String,
    },
    /// An outcome without a result.
    Plain(Outcome),
}

impl JobOutcome {
    /// Returns [`JobOutcome::RetryAfter`] with this error.
    ///
    /// ```
    /// use requeue_jobs::{BoxError, JobOutcome, JobRun};
    /// use std::time::Duration;
    ///
    /// async fn send(_run: JobRun) -> Result<JobOutcome, BoxError> {
    ///     Ok(JobOutcome::retry_after(Duration::from_secs(30), "the gateway is busy"))
    /// }
    /// # let outcome = JobOutcome::retry_after(Duration::from_secs(30), "the gateway is busy");
    /// # assert!(matches!(outcome, JobOutcome::RetryAfter { .. }));
    /// ```
    pub fn retry_after(delay: Duration, error: impl Into<String>) -> Self {
        JobOutcome::RetryAfter { delay, error: error.into() }
    }
}

impl<T: Into<Outcome>> From<T> for JobOutcome {
    /// Returns [`JobOutcome::Plain`], so that a handler may end with `Ok(())` or an [`Outcome`].
    fn from(outcome: T) -> Self {
        JobOutcome::Plain(outcome.into())
    }
}
