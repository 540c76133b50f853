//! Claims jobs, as many as there is room for, and starts them.

use super::JobWorker;
use super::lease::{Lease, first, yield_now};
use super::slots::{Claims, JobSlot};
use crate::claim::{Claim, ClaimedJob, Settlement};
use crate::client::nonce;
use crate::error::StoreError;
use crate::limits::MAX_BATCH;
use crate::panics::{guarded, guarded_call};
use std::sync::Arc;
use std::time::Duration;

/// After an error of the store, before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// For how long it waits without a claim. The store looks meanwhile, so it may be long.
const WAIT: Duration = Duration::from_secs(60);

pub(super) async fn dispatch(
    worker: Arc<JobWorker>,
    claims: Claims,
    start: impl Fn(JobSlot, ClaimedJob, Lease),
) {
    while let Some(room) = claims.room().await {
        // A claim is awaited to its end, also if the worker is told to stop: what it got would
        // otherwise be held by nobody.
        let found = worker.claim(&claims, room, &start).await;
        let pause = async {
            match found {
                // With a store that never waits, others would not have their turn.
                Ok(true) => yield_now().await,
                Ok(false) => {
                    let store = worker.jobs.store();
                    let wait = guarded_call(|| store.wait(worker.kinds.clone(), WAIT));
                    if let Err(error) = wait.await {
                        worker.pause(&error).await;
                    }
                }
                Err(error) => worker.pause(&error).await,
            }
        };
        first(pause, claims.no_room()).await;
    }
}

impl JobWorker {
    /// Claims jobs and starts them. Answers whether there were any.
    async fn claim(
        &self,
        claims: &Claims,
        room: usize,
        start: &impl Fn(JobSlot, ClaimedJob, Lease),
    ) -> Result<bool, StoreError> {
        let lease = Lease::from_now(self.jobs.clock(), self.lease);
        let claim = Claim {
            kinds: self.kinds.clone(),
            max: room.min(MAX_BATCH),
            lease: Some(self.lease),
            worker: self.name.clone(),
            nonce: nonce(),
        };
        let claimed = guarded_call(|| self.jobs.store().claim(claim)).await?;
        let found = !claimed.jobs.is_empty();
        let mut not_begun = Vec::new();
        for job in claimed.jobs {
            match claims.slot(&job) {
                Some(slot) => {
                    if let Err(message) = guarded(|| start(slot, job, lease)) {
                        // The job comes back when its lease expires.
                        let reason = format!("the executor panicked: {message}");
                        self.tell_of(&StoreError::Unavailable { reason });
                    }
                }
                None => not_begun.push(job),
            }
        }
        // Each is tried again where that may help: an expiry would count as a failure.
        for job in not_begun {
            self.settle_or_report(&job, Settlement::Release).await;
        }
        let mut errors = claimed.errors.into_iter().map(|(_, error)| error);
        // With nothing found, the last one is told with the pause.
        let last = if found { None } else { errors.next_back() };
        errors.for_each(|error| self.tell_of(&error));
        last.map_or(Ok(found), Err)
    }

    async fn pause(&self, error: &StoreError) {
        self.tell_of(error);
        self.jobs.clock().sleep(PAUSE).await;
    }
}
