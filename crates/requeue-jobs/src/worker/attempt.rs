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
#[derive(Clone, Copy)]
struct Attempt<'a> {
    job: &'a ClaimedJob,
    slot: &'a JobSlot,
    lease: Lease,
    took: Duration,
    span: &'a Span,
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
        worker.settle_or_report(&job, Settlement::Release, Some(&slot)).await;
        return;
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
    let attempt = Attempt { job: &job, slot: &slot, lease, took, span: &span };
    let end = worker.settle_attempt(attempt, ended).await;
    active.end(end, took);
    span.close();
    drop(slot);
}

impl JobWorker {
    /// Settles the lease as the end of the handler requires. Returns how the attempt ended, or `None`
    /// if its handler was stopped because the lease ended.
    async fn settle_attempt(&self, attempt: Attempt<'_>, ended: Ended) -> Option<RunEnd> {
        let end = match ended {
            Ended::Returned(JobOutcome::DoneWith(result)) => match check_result(&result) {
                Ok(()) => self.succeed(attempt, Settlement::AckWith(result)).await,
                Err(invalid) => self.retry(attempt, &Fault::Error(invalid.into()), None).await,
            },
            Ended::Returned(JobOutcome::RetryAfter { delay, error }) => {
                let delay = delay.min(MAX_DELAY);
                self.retry(attempt, &Fault::Error(error.into()), Some(delay)).await
            }
            Ended::Returned(JobOutcome::Plain(Outcome::Done)) => {
                self.succeed(attempt, Settlement::Ack).await
            }
            Ended::Returned(JobOutcome::Plain(Outcome::RequeueAfter(delay))) => {
                self.succeed(attempt, Settlement::RequeueAfter(delay.min(MAX_DELAY))).await
            }
            Ended::Returned(JobOutcome::Plain(Outcome::GiveUp { reason })) => {
                let fault = Fault::GaveUp(reason);
                self.fail(attempt, &fault, Settlement::Bury { error: fault.text() }).await
            }
            // `Retry`, and any outcome that a later version of the core adds.
            Ended::Returned(JobOutcome::Plain(_)) => {
                self.retry(attempt, &Fault::RetryRequested, None).await
            }
            Ended::Failed(fault) => {
                let end = self.retry(attempt, &fault, None).await;
                drop(guarded(|| drop(fault)));
                end
            }
            Ended::ShutDown => {
                attempt.slot.record_stopped();
                let fault = Fault::Error("the worker was shut down".into());
                self.retry(attempt, &fault, Some(Duration::ZERO)).await
            }
            Ended::Stopped(LeaseEnd::Lost(error)) => {
                attempt.span.outcome("lost");
                self.report_lost(attempt.job, &error);
                return None;
            }
            // Removes the job immediately instead of when its lease expires.
            Ended::Stopped(LeaseEnd::Cancelled) => {
                attempt.span.outcome("cancelled");
                self.settle_or_report(attempt.job, Settlement::Ack, Some(attempt.slot)).await;
                return None;
            }
        };
        Some(end)
    }

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

    /// Settles a lease; `slot` is that of the job, if it was started. Returns `false` if the lease was
    /// lost or could not be settled.
    pub(super) async fn settle_or_report(
        &self,
        job: &ClaimedJob,
        action: Settlement,
        slot: Option<&JobSlot>,
    ) -> bool {
        let settled = self.settle(&job.receipt, action, slot).await;
        settled.inspect_err(|error| self.report_lost(job, error)).is_ok()
    }

    async fn succeed(&self, attempt: Attempt<'_>, action: Settlement) -> RunEnd {
        let (result, outcome) = match action {
            Settlement::RequeueAfter(_) => (RunResult::RequeueAfter, "requeue after"),
            _ => (RunResult::Success, "done"),
        };
        let is_settled = self.settle_or_report(attempt.job, action, Some(attempt.slot)).await;
        attempt.span.outcome(if is_settled { outcome } else { "lost" });
        RunEnd::of(result)
    }

    /// Retries the job after `delay`, or after the backoff of its kind.
    async fn retry(&self, attempt: Attempt<'_>, fault: &Fault, delay: Option<Duration>) -> RunEnd {
        let action = Settlement::Retry { delay, error: fault.text() };
        self.fail(attempt, fault, action).await
    }

    async fn fail(&self, attempt: Attempt<'_>, fault: &Fault, action: Settlement) -> RunEnd {
        let Attempt { job, slot, lease, took, span } = attempt;
        let next = match self.settle(&job.receipt, action, Some(slot)).await {
            Ok(Some(Settled::RetryAt(at))) => Next::RetryIn(self.until(at, job, lease)),
            Ok(Some(Settled::Dead)) => Next::Dead,
            // Cancelled, or settled by an earlier try whose result was lost.
            Ok(_) => Next::Dropped,
            Err(error) => {
                span.outcome("lost");
                self.report_lost(job, &error);
                return fault.run_end(false);
            }
        };
        span.failed(fault.cause(), next);
        let failed = JobFailure::new(job, took, fault.cause(), next);
        let call = |callback: &Option<Callback>| {
            if let Some(callback) = callback {
                drop(span.enter(|| callback(&failed)));
            }
        };
        call(&self.on_failure);
        if next == Next::Dead {
            call(&self.on_dead);
        }
        fault.run_end(next == Next::Dead)
    }

    fn report_lost(&self, job: &ClaimedJob, error: &SettleError) {
        if let Some(callback) = &self.on_lost {
            drop(guarded(|| callback(job, error)));
        }
    }
}
