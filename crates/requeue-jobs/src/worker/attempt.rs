//! One attempt at a job: calls the handler, then settles the lease.

use super::fault::Fault;
use super::lease::{Lease, LeaseEnd};
use super::metrics::ActiveRun;
use super::outcome::JobOutcome;
use super::run::{JobFailure, JobRun};
use super::slots::JobSlot;
use super::trace::Span;
use super::{Callback, JobWorker};
use crate::claim::{ClaimedJob, Settled, Settlement};
use crate::error::SettleError;
use crate::limits::MAX_DELAY;
use crate::panics::guarded;
use crate::rules::check_result;
use requeue::Moment;
use requeue::worker::{BoxError, Next, Outcome, RunEnd, RunResult};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How a call of the handler ended.
enum Ended {
    Returned(JobOutcome),
    Failed(Fault),
    /// The lease ended, and the handler's future was dropped.
    Stopped(LeaseEnd),
    /// The worker was stopped, and the handler's future was dropped.
    ShutDown,
}

/// An attempt whose handler has ended.
struct Attempt<'a> {
    job: &'a ClaimedJob,
    lease: Lease,
    took: Duration,
    span: &'a Span,
}

/// What the end of a handler means for the job.
enum Verdict {
    Succeeded(RunResult),
    Failed(Fault),
    Cancelled,
}

impl Ended {
    /// Returns how to settle the lease, or an error if it is lost.
    fn decide(self) -> Result<(Settlement, Verdict), SettleError> {
        let success = |action| (action, Verdict::Succeeded(RunResult::Success));
        let retry = |fault: Fault, delay| {
            (Settlement::Retry { delay, error: fault.text() }, Verdict::Failed(fault))
        };
        Ok(match self {
            Ended::Returned(JobOutcome::DoneWith(result)) => match check_result(&result) {
                Ok(()) => success(Settlement::AckWith(result)),
                Err(invalid) => retry(Fault::Error(invalid.into()), None),
            },
            Ended::Returned(JobOutcome::RetryAfter { delay, error }) => {
                retry(Fault::Error(error.into()), Some(delay.min(MAX_DELAY)))
            }
            Ended::Returned(JobOutcome::Plain(Outcome::Done)) => success(Settlement::Ack),
            Ended::Returned(JobOutcome::Plain(Outcome::RequeueAfter(delay))) => {
                let action = Settlement::RequeueAfter(delay.min(MAX_DELAY));
                (action, Verdict::Succeeded(RunResult::RequeueAfter))
            }
            Ended::Returned(JobOutcome::Plain(Outcome::GiveUp { reason })) => {
                let fault = Fault::GaveUp(reason);
                (Settlement::Bury { error: fault.text() }, Verdict::Failed(fault))
            }
            // `Retry`, and any outcome that a later version of the core adds.
            Ended::Returned(JobOutcome::Plain(_)) => retry(Fault::RetryRequested, None),
            Ended::Failed(fault) => retry(fault, None),
            Ended::ShutDown => {
                retry(Fault::Error("the worker was shut down".into()), Some(Duration::ZERO))
            }
            // Removes the job immediately instead of when its lease expires.
            Ended::Stopped(LeaseEnd::Cancelled) => (Settlement::Ack, Verdict::Cancelled),
            Ended::Stopped(LeaseEnd::Lost(error)) => return Err(error),
        })
    }
}

/// Calls the handler for a job and settles the lease. The slot is free when all that is done.
pub(super) async fn work<F, Fut, T>(
    worker: Arc<JobWorker>,
    slot: JobSlot,
    job: ClaimedJob,
    lease: Lease,
    handler: Arc<F>,
) where
    F: Fn(JobRun) -> Fut,
    Fut: Future<Output = Result<T, BoxError>>,
    T: Into<JobOutcome>,
{
    let may_start = slot.start();
    if lease.is_over(worker.jobs.clock()) || !may_start {
        // The executor was busy for too long, or the worker was stopped.
        return worker.release(&job, Some(&slot)).await;
    }
    let active = ActiveRun::start(worker.recorder.as_deref());
    let started_at = worker.jobs.clock().now();
    let timeout = worker.timeout_of(job.kind());
    let limit = timeout.map(|timeout| started_at.saturating_add(timeout));
    let mut run = JobRun::new(job.clone());
    if let Some(at) = limit {
        run = run.until(worker.jobs.clock(), at);
    }
    let span = (worker.span)(&job);
    let ended = match span.enter(|| handler(run)) {
        Ok(future) => worker.run_handler(future, &job, &slot, lease, limit, &span).await,
        Err(message) => Ended::Failed(Fault::Panicked(message)),
    };
    let took = worker.jobs.clock().now().saturating_since(started_at);
    if let Ended::ShutDown = ended {
        slot.record_stopped();
    }
    let attempt = Attempt { job: &job, lease, took, span: &span };
    let end = match ended.decide() {
        Ok((action, verdict)) => {
            let settled = worker.settle(&job.receipt, action, Some(&slot)).await;
            worker.conclude(&attempt, verdict, settled)
        }
        Err(error) => worker.conclude(&attempt, Verdict::Cancelled, Err(error)),
    };
    active.end(end, took);
    span.close();
    drop(slot);
}

impl JobWorker {
    /// Polls the handler's future until it completes, times out, loses its lease or is stopped. Drops
    /// it.
    async fn run_handler<Fut, T>(
        &self,
        future: Fut,
        job: &ClaimedJob,
        slot: &JobSlot,
        lease: Lease,
        limit: Option<Moment>,
        span: &Span,
    ) -> Ended
    where
        Fut: Future<Output = Result<T, BoxError>>,
        T: Into<JobOutcome>,
    {
        let clock = self.jobs.clock();
        let is_late = || limit.is_some_and(|limit| clock.now() >= limit);
        let mut future = pin!(Some(future));
        let mut alarm = pin!(limit.map(|limit| clock.sleep(limit.saturating_since(clock.now()))));
        let mut keep = pin!(self.keep(&job.receipt, lease));
        let mut stop = pin!(slot.until_stop());
        let mut has_started = false;
        let ended = poll_fn(|cx| {
            if is_late() {
                return Poll::Ready(Ended::Failed(Fault::TimedOut));
            }
            let future = future.as_mut().as_pin_mut().expect("dropped below");
            match span.enter(|| future.poll(cx).map_ok(Into::into)) {
                Err(message) => return Poll::Ready(Ended::Failed(Fault::Panicked(message))),
                Ok(Poll::Ready(_)) if is_late() => {
                    return Poll::Ready(Ended::Failed(Fault::TimedOut));
                }
                Ok(Poll::Ready(Ok(outcome))) => return Poll::Ready(Ended::Returned(outcome)),
                Ok(Poll::Ready(Err(error))) => {
                    return Poll::Ready(Ended::Failed(Fault::Error(error)));
                }
                Ok(Poll::Pending) if !has_started => {
                    has_started = true;
                    slot.run();
                }
                Ok(Poll::Pending) => {}
            }
            if let Poll::Ready(end) = keep.as_mut().poll(cx) {
                return Poll::Ready(Ended::Stopped(end));
            }
            if stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ended::ShutDown);
            }
            match alarm.as_mut().as_pin_mut().map(|alarm| alarm.poll(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(Ended::Failed(Fault::TimedOut)),
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await;
        match (span.enter(|| future.set(None)), ended) {
            (Err(message), Ended::Returned(_) | Ended::Failed(_)) => {
                Ended::Failed(Fault::Panicked(message))
            }
            (_, ended) => ended,
        }
    }

    /// Reports an attempt that was settled, or whose lease was lost. Returns what metrics count: `None` if
    /// the handler was stopped because its lease ended.
    fn conclude(
        &self,
        attempt: &Attempt<'_>,
        verdict: Verdict,
        settled: Result<Option<Settled>, SettleError>,
    ) -> Option<RunEnd> {
        let span = attempt.span;
        let settled = settled.inspect_err(|error| {
            span.outcome("lost");
            self.report_lost(attempt.job, error);
        });
        match (verdict, settled) {
            (Verdict::Succeeded(result), settled) => {
                if settled.is_ok() {
                    let is_requeued = result == RunResult::RequeueAfter;
                    span.outcome(if is_requeued { "requeue after" } else { "done" });
                }
                Some(RunEnd::of(result))
            }
            (Verdict::Failed(fault), settled) => {
                let next = settled.ok().map(|settled| self.next(attempt, settled));
                next.inspect(|next| self.report_failure(attempt, &fault, *next));
                let end = fault.run_end(next == Some(Next::Dead));
                drop(guarded(|| drop(fault)));
                Some(end)
            }
            (Verdict::Cancelled, settled) => {
                if settled.is_ok() {
                    span.outcome("cancelled");
                }
                None
            }
        }
    }

    /// Returns what happens to the job of a failed attempt.
    fn next(&self, attempt: &Attempt<'_>, settled: Option<Settled>) -> Next {
        match settled {
            Some(Settled::RetryAt(at)) => Next::RetryIn(self.until(at, attempt.job, attempt.lease)),
            Some(Settled::Dead) => Next::Dead,
            // Cancelled, or settled by an earlier try whose result was lost.
            _ => Next::Dropped,
        }
    }

    fn report_failure(&self, attempt: &Attempt<'_>, fault: &Fault, next: Next) {
        attempt.span.failed(fault.cause(), next);
        let failed = JobFailure::new(attempt.job, attempt.took, fault.cause(), next);
        let call = |callback: &Option<Callback>| {
            if let Some(callback) = callback {
                drop(attempt.span.enter(|| callback(&failed)));
            }
        };
        call(&self.on_failure);
        if next == Next::Dead {
            call(&self.on_dead);
        }
    }

    /// Returns a job that was not started; `slot` is that of the job, if it has one.
    pub(super) async fn release(&self, job: &ClaimedJob, slot: Option<&JobSlot>) {
        if let Err(error) = self.settle(&job.receipt, Settlement::Release, slot).await {
            self.report_lost(job, &error);
        }
    }

    fn report_lost(&self, job: &ClaimedJob, error: &SettleError) {
        if let Some(callback) = &self.on_lost {
            drop(guarded(|| callback(job, error)));
        }
    }
}
