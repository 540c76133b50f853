//! One delivery: calls the target, then settles the lease.

use super::state::{Ended, Grant, Verdict};
use super::status::{DeliveryCounts, LastError};
use super::{PushTarget, Shared};
use crate::circuit::{MAX_RETRY_AFTER, Permit, Signal};
use crate::target::{Delivery, DeliveryOutcome};
use requeue::Moment;
use requeue_http::times::show_duration;
use requeue_jobs::limits::MAX_ACK_RESULT_LEN;
use requeue_jobs::{ClaimedJob, Kind, SettleError, Settlement, StoreError};
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The pause before a failed settlement is repeated. It doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How much longer than its timeout a target may take. A target that keeps its timeout ends before, with a
/// better error.
const GRACE: Duration = Duration::from_secs(1);

/// How long the store may take to return the previous failure of a job. It is only for people.
const MAX_READ_TIME: Duration = Duration::from_secs(2);

/// The place of a delivery in the counts. Dropping it frees the place, also if the task is aborted.
pub(super) struct Slot {
    shared: Arc<Shared>,
    kind: Kind,
    target: Arc<str>,
    permit: Permit,
    bytes: usize,
    verdict: Option<Verdict>,
}

impl Slot {
    pub(super) fn new(shared: &Arc<Shared>, grant: &Grant, job: &ClaimedJob) -> Self {
        Slot {
            shared: Arc::clone(shared),
            kind: job.kind().clone(),
            target: Arc::clone(&grant.target),
            permit: grant.permit,
            bytes: job.body().len(),
            verdict: None,
        }
    }

    /// Takes room for the result. Returns `false` if there is none.
    fn hold(&mut self, bytes: usize) -> bool {
        let fits = self.shared.lock().hold(&self.kind, bytes);
        self.bytes += if fits { bytes } else { 0 };
        fits
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (permit, bytes) = (self.permit, self.bytes);
        let ended = Ended { kind: &self.kind, target: &self.target, permit, bytes };
        let now = self.shared.clock().now();
        let notify = self.shared.lock().ended(now, &ended, self.verdict.take());
        notify.iter().for_each(|changed| changed.notify_one());
    }
}

/// Delivers a job and settles its lease.
pub(super) async fn deliver(
    shared: &Arc<Shared>,
    push: &PushTarget,
    mut slot: Slot,
    job: ClaimedJob,
    lease_ends_at: Moment,
) {
    let mut delivery = Delivery::new(job);
    if delivery.job.attempt > 1 {
        delivery.previous_failure = previous_failure(shared, &delivery.job).await;
    }
    let clock = shared.clock();
    let started_at = clock.now();
    let limit = started_at.saturating_add(push.timeout).saturating_add(GRACE);
    let outcome = clock.timeout_at(limit, guarded(push, &delivery)).await.unwrap_or_else(|| {
        let error =
            format!("the target returned no outcome within {}", show_duration(push.timeout));
        DeliveryOutcome::Unreachable { error }
    });
    let took = clock.now().saturating_since(started_at);
    let Judged { mut settlement, error, signal, count } = judge(outcome);
    if let Settlement::AckWith(result) = &settlement
        && !slot.hold(result.len())
    {
        // It may wait for the store for long. Without room for it, the job is done without its result.
        settlement = Settlement::Ack;
    }
    let error = error.map(|error| LastError { at: shared.clock.now(), error });
    slot.verdict = Some(Verdict { signal, took, error, count });
    settle(shared, &delivery.job, settlement, lease_ends_at).await;
    drop(slot);
}

/// What becomes of the job, and what the outcome says about the target.
struct Judged {
    settlement: Settlement,
    /// Why the delivery failed.
    error: Option<String>,
    signal: Signal,
    count: fn(&mut DeliveryCounts),
}

fn judge(outcome: DeliveryOutcome) -> Judged {
    let cap = |after: Option<Duration>| after.map(|after| after.min(MAX_RETRY_AFTER));
    match outcome {
        DeliveryOutcome::Done { result } => Judged {
            settlement: match result.filter(|result| result.len() <= MAX_ACK_RESULT_LEN) {
                Some(result) => Settlement::AckWith(result),
                None => Settlement::Ack,
            },
            error: None,
            signal: Signal::Success,
            count: |counts| counts.done += 1,
        },
        DeliveryOutcome::Retry { error, after } => Judged {
            settlement: Settlement::Retry { delay: cap(after), error: error.clone() },
            error: Some(error),
            signal: Signal::Responded,
            count: |counts| counts.retried += 1,
        },
        DeliveryOutcome::SlowDown { error, after } => Judged {
            settlement: Settlement::Retry { delay: cap(after), error: error.clone() },
            error: Some(error),
            signal: Signal::SlowDown(cap(after)),
            count: |counts| counts.slowed += 1,
        },
        DeliveryOutcome::Overloaded { error } => Judged {
            settlement: Settlement::Release,
            error: Some(error),
            signal: Signal::SlowDown(None),
            count: |counts| counts.slowed += 1,
        },
        DeliveryOutcome::Unreachable { error } => Judged {
            settlement: Settlement::Retry { delay: None, error: error.clone() },
            error: Some(error),
            signal: Signal::Unreachable,
            count: |counts| counts.unreachable += 1,
        },
        DeliveryOutcome::Unavailable { error } => Judged {
            settlement: Settlement::Release,
            error: Some(error),
            signal: Signal::Unreachable,
            count: |counts| counts.unreachable += 1,
        },
        DeliveryOutcome::Bury { error } => Judged {
            settlement: Settlement::Bury { error: error.clone() },
            error: Some(error),
            signal: Signal::Responded,
            count: |counts| counts.buried += 1,
        },
    }
}

/// Calls the target. A panic is a failed attempt.
async fn guarded(push: &PushTarget, delivery: &Delivery) -> DeliveryOutcome {
    let panicked = |payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let error = format!("the target panicked: {}", text.unwrap_or("without a message"));
        DeliveryOutcome::Retry { error, after: None }
    };
    let mut future = match catch_unwind(AssertUnwindSafe(|| push.target.deliver(delivery))) {
        Ok(future) => future,
        Err(payload) => return panicked(payload),
    };
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll,
        Err(payload) => Poll::Ready(panicked(payload)),
    })
    .await
}

/// Reads why the previous attempt at a job failed.
async fn previous_failure(shared: &Shared, job: &ClaimedJob) -> Option<Arc<str>> {
    let clock = shared.clock();
    let read = async {
        let _permit = shared.reads.acquire().await.ok()?;
        let view = shared.jobs.get(job.kind().as_str(), job.id().as_str()).await.ok()??;
        let failure = view.failures.into_iter().next_back()?;
        Some(failure.error.unwrap_or_else(|| Arc::from("the lease expired")))
    };
    clock.timeout_at(clock.now().saturating_add(MAX_READ_TIME), read).await.flatten()
}

/// Settles a lease. Repeats the call while the store is unavailable, until the lease ends.
pub(super) async fn settle(
    shared: &Shared,
    job: &ClaimedJob,
    settlement: Settlement,
    lease_ends_at: Moment,
) {
    let clock = shared.clock();
    let (mut pause, mut maybe_settled) = (FIRST_PAUSE, false);
    loop {
        let settle = shared.jobs.settle(&job.receipt, settlement.clone());
        let error = match clock.timeout_at(lease_ends_at, settle).await {
            Some(Ok(_)) => return,
            // An earlier call, whose outcome was unknown, has most likely settled the lease.
            Some(Err(SettleError::LeaseLost { .. })) if maybe_settled => return,
            Some(Err(SettleError::Store(error))) if is_temporary(&error) => error,
            None => {
                let reason = "the store did not respond before the lease ended".to_owned();
                StoreError::Unknown { reason }
            }
            Some(Err(SettleError::Store(error))) => {
                shared.report(job.kind(), &error);
                return shared.lock().count_unsettled(job.kind());
            }
            Some(Err(_)) => return shared.lock().count_unsettled(job.kind()),
        };
        maybe_settled |= matches!(error, StoreError::Unknown { .. });
        shared.report(job.kind(), &error);
        let left = lease_ends_at.saturating_since(clock.now());
        if left.is_zero() {
            return shared.lock().count_unsettled(job.kind());
        }
        clock.sleep(pause.min(left)).await;
        pause = pause.saturating_mul(2).min(MAX_PAUSE);
    }
}

/// Whether repeating the call may help.
fn is_temporary(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
}
