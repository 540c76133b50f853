//! Extending and settling a lease.

use super::JobWorker;
use super::slots::JobSlot;
use crate::claim::{ClaimedJob, Settled, Settlement};
#[cfg(feature = "cron")]
use crate::cron::ScheduleError;
#[cfg(feature = "cron")]
use crate::error::Invalid;
use crate::error::{SettleError, StoreError};
use crate::panics::guarded;
use crate::receipt::Receipt;
use crate::time::Timestamp;
use requeue::{Clock, Moment};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The pause before a failed settlement is repeated. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long, and for how many polls, a settlement waits for those of other jobs. Handlers that end
/// immediately have ended by then, unless another one blocks the executor.
const MAX_GATHERING: Duration = Duration::from_micros(200);
const MAX_GATHERING_POLLS: u32 = 1000;

/// The time until which a lease is certainly valid. It is measured on this machine's clock, from
/// before the request was sent, so it never ends later than the store's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    requested_at: Moment,
    until: Moment,
}

impl Lease {
    pub(super) fn from_now(clock: &Clock, length: Duration) -> Self {
        let requested_at = clock.now();
        Lease { requested_at, until: requested_at.saturating_add(length) }
    }

    /// Returns when a third of a lease of this length has passed: it should be extended then.
    pub(super) fn third(&self, length: Duration) -> Moment {
        self.requested_at.saturating_add(length / 3)
    }

    pub(super) fn is_over(&self, clock: &Clock) -> bool {
        clock.now() >= self.until
    }
}

/// How a lease ended while the handler was running.
pub(super) enum LeaseEnd {
    Lost(SettleError),
    Cancelled,
}

impl JobWorker {
    /// Extends a lease whenever a third of it has passed. Returns when that is no longer possible.
    pub(super) async fn keep(&self, receipt: &Receipt, mut lease: Lease) -> LeaseEnd {
        let clock = self.jobs.clock();
        let third = |lease: Lease| lease.third(self.lease).saturating_since(clock.now());
        let mut pause = third(lease);
        loop {
            clock.sleep(pause).await;
            let extended = Lease::from_now(clock, self.lease);
            let extend = self.jobs.extend(receipt, self.lease);
            match clock.timeout_at(lease.until, extend).await.unwrap_or_else(no_response) {
                Ok(Settled::Cancelled) => return LeaseEnd::Cancelled,
                Ok(_) => (lease, pause) = (extended, third(extended)),
                Err(SettleError::Store(error)) if !lease.is_over(clock) => {
                    self.report_store_error(&error);
                    let left = lease.until.saturating_since(clock.now());
                    pause = (self.lease / 10).min(left);
                }
                Err(error) => return LeaseEnd::Lost(error),
            }
        }
    }

    /// Settles a lease. Repeats the call on errors, for the length of a lease. `slot` is that of the
    /// job, if it was started.
    ///
    /// Returns `None` if the lease is settled but the result is not known: an earlier try has most
    /// likely succeeded, and the store reports a lost lease to the next.
    pub(super) async fn settle(
        &self,
        receipt: &Receipt,
        action: Settlement,
        slot: Option<&JobSlot>,
    ) -> Result<Option<Settled>, SettleError> {
        let clock = self.jobs.clock();
        let end = clock.now().saturating_add(self.lease);
        let (mut pause, mut maybe_settled, mut is_first) = (FIRST_PAUSE, false, true);
        slot.inspect(|slot| slot.begin_settling());
        loop {
            let settle = self.settle_once(receipt, action.clone(), slot.filter(|_| is_first));
            is_first = false;
            let settled = clock.timeout_at(end, settle).await;
            slot.inspect(|slot| slot.end_settling());
            match settled.unwrap_or_else(no_response) {
                Ok(settled) => return Ok(Some(settled)),
                Err(SettleError::LeaseLost { .. }) if maybe_settled => return Ok(None),
                Err(SettleError::Store(error)) if is_temporary(&error) && clock.now() < end => {
                    maybe_settled |= matches!(error, StoreError::Unknown { .. });
                    slot.inspect(|slot| slot.delay_settling());
                    self.report_store_error(&error);
                    clock.sleep(pause.min(end.saturating_since(clock.now()))).await;
                    pause = pause.saturating_mul(2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Settles a lease. If the job has a slot, together with others that end now, and with the next claim.
    async fn settle_once(
        &self,
        receipt: &Receipt,
        action: Settlement,
        slot: Option<&JobSlot>,
    ) -> Result<Settled, SettleError> {
        let Some(slot) = slot else {
            return self.jobs.settle(receipt, action).await;
        };
        let clock = self.jobs.clock();
        let (mut polls, until) = (0, clock.now().saturating_add(MAX_GATHERING));
        let expects_others = || {
            polls += 1;
            slot.expects_others(polls <= MAX_GATHERING_POLLS && clock.now() < until)
        };
        let mut settling = pin!(self.jobs.settle_gathering(receipt, action, expects_others));
        poll_fn(|cx| {
            let settled = settling.as_mut().poll(cx);
            if settled.is_pending() {
                slot.sent_if_not_gathering();
            }
            settled
        })
        .await
    }

    pub(super) fn report_store_error(&self, error: &StoreError) {
        if let Some(callback) = &self.on_store_error {
            drop(guarded(|| callback(error)));
        }
    }

    /// Reports an error of the store, or a schedule that cannot run.
    #[cfg(feature = "cron")]
    pub(super) fn report_schedule_error(&self, error: &ScheduleError) {
        let error = match error {
            ScheduleError::Store(error) => error.clone(),
            other => Invalid::Refused { reason: other.to_string() }.into(),
        };
        self.report_store_error(&error);
    }

    /// Returns the time until `at`, which is on the store's clock. The claim, which is known on both
    /// clocks, relates them.
    pub(super) fn until(&self, at: Timestamp, job: &ClaimedJob, lease: Lease) -> Duration {
        let left = at.saturating_since(job.lease_ends_at).saturating_add(self.lease);
        let early = job.lease_ends_at.saturating_since(at);
        let passed = self.jobs.clock().now().saturating_since(lease.requested_at);
        left.saturating_sub(early).saturating_sub(passed)
    }
}

/// Whether repeating the call may help.
fn is_temporary(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
}

fn no_response<T>() -> Result<T, SettleError> {
    let reason = "the store did not respond before the lease ended".to_owned();
    Err(StoreError::Unknown { reason }.into())
}

/// Waits until one of the two futures is ready.
pub(super) async fn first(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
        true => Poll::Ready(()),
        false => Poll::Pending,
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
