//! Keeping a lease, and letting it go.

use super::JobWorker;
use crate::claim::{ClaimedJob, Settled, Settlement};
use crate::error::{SettleError, StoreError};
use crate::panics::guarded;
use crate::receipt::Receipt;
use crate::time::Timestamp;
use requeue::{Clock, Moment};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Before a settlement that failed is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// When a lease was asked for, and until when it is ours at least. Measured here from before
/// it was asked for, so that no store's clock can be ahead of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    asked_at: Moment,
    until: Moment,
}

impl Lease {
    pub(super) fn from_now(clock: &Clock, length: Duration) -> Self {
        let asked_at = clock.now();
        Lease { asked_at, until: asked_at.saturating_add(length) }
    }

    pub(super) fn is_over(&self, clock: &Clock) -> bool {
        clock.now() >= self.until
    }
}

/// How a lease ended while its job was worked on.
pub(super) enum Gone {
    Lost(SettleError),
    Cancelled,
}

impl JobWorker {
    /// Extends a lease whenever a third of it is over, for as long as that is possible.
    pub(super) async fn keep(&self, receipt: &Receipt, mut lease: Lease) -> Gone {
        let clock = self.jobs.clock();
        let third = |lease: Lease| {
            let next = lease.asked_at.saturating_add(self.lease / 3);
            next.saturating_since(clock.now())
        };
        let mut pause = third(lease);
        loop {
            clock.sleep(pause).await;
            let asked = Lease::from_now(clock, self.lease);
            let extend = self.jobs.extend(receipt, self.lease);
            match by(clock, lease.until, extend).await.unwrap_or_else(no_answer) {
                Ok(Settled::Cancelled) => return Gone::Cancelled,
                Ok(_) => (lease, pause) = (asked, third(asked)),
                Err(SettleError::Store(error)) if !lease.is_over(clock) => {
                    self.tell_of(&error);
                    let left = lease.until.saturating_since(clock.now());
                    pause = (self.lease / 10).min(left);
                }
                Err(error) => return Gone::Lost(error),
            }
        }
    }

    /// Settles a lease, and tries again for as long as one lasts.
    ///
    /// `None`: it is not known how, but it is settled. An earlier try was, most likely, what
    /// lost the lease.
    pub(super) async fn settle(
        &self,
        receipt: &Receipt,
        action: Settlement,
    ) -> Result<Option<Settled>, SettleError> {
        let clock = self.jobs.clock();
        let end = clock.now().saturating_add(self.lease);
        let (mut pause, mut maybe_settled) = (FIRST_PAUSE, false);
        loop {
            let settle = self.jobs.settle(receipt, action.clone());
            match by(clock, end, settle).await.unwrap_or_else(no_answer) {
                Ok(settled) => return Ok(Some(settled)),
                Err(SettleError::LeaseLost { .. }) if maybe_settled => return Ok(None),
                Err(SettleError::Store(error)) if may_pass(&error) && clock.now() < end => {
                    maybe_settled |= matches!(error, StoreError::Unknown { .. });
                    self.tell_of(&error);
                    clock.sleep(pause.min(end.saturating_since(clock.now()))).await;
                    pause = pause.saturating_mul(2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn tell_of(&self, error: &StoreError) {
        if let Some(callback) = &self.on_store_error {
            drop(guarded(|| callback(error)));
        }
    }

    /// How long it is until `at` on the store's clock, by when the job was claimed on both.
    pub(super) fn until(&self, at: Timestamp, job: &ClaimedJob, lease: Lease) -> Duration {
        let left = at.saturating_since(job.lease_ends_at).saturating_add(self.lease);
        let early = job.lease_ends_at.saturating_since(at);
        let passed = self.jobs.clock().now().saturating_since(lease.asked_at);
        left.saturating_sub(early).saturating_sub(passed)
    }
}

/// Whether it may go away by itself.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
}

fn no_answer<T>() -> Result<T, SettleError> {
    let reason = "the store did not answer before the lease ended".to_owned();
    Err(StoreError::Unknown { reason }.into())
}

/// What `future` answers before `at`. `None`: nothing, and it is dropped.
pub(super) async fn by<F: Future>(clock: &Clock, at: Moment, future: F) -> Option<F::Output> {
    let end = clock.sleep(at.saturating_since(clock.now()));
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Waits for whichever is ready first.
pub(super) async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await;
}

pub(super) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
