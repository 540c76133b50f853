//! Claims jobs, as many as there is room for, and starts them.

use super::JobWorker;
use super::crew::{Claims, Seat};
use super::lease::{Lease, first, yield_now};
use crate::claim::{Claim, ClaimedJob, How, Settle};
use crate::client::nonce;
use crate::error::StoreError;
use crate::limits::{MAX_BATCH, WAIT_SLICE};
use std::sync::Arc;
use std::time::Duration;

/// After an error of the store, before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn dispatch(
    worker: Arc<JobWorker>,
    claims: Claims,
    start: impl Fn(Seat, ClaimedJob, Lease),
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
                    let wait = worker.jobs.store().wait(worker.kinds.clone(), WAIT_SLICE).await;
                    if let Err(error) = wait {
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
        start: &impl Fn(Seat, ClaimedJob, Lease),
    ) -> Result<bool, StoreError> {
        let lease = Lease::from_now(self.jobs.clock(), self.lease);
        let claim = Claim {
            kinds: self.kinds.clone(),
            max: room.min(MAX_BATCH),
            lease: Some(self.lease),
            worker: self.name.clone(),
            nonce: nonce(),
        };
        let claimed = self.jobs.store().claim(claim).await?;
        let found = !claimed.jobs.is_empty();
        let mut not_begun = Vec::new();
        for job in claimed.jobs {
            match claims.seat(&job) {
                Some(seat) => start(seat, job, lease),
                None => not_begun.push(Settle { receipt: job.receipt, how: How::Release }),
            }
        }
        // What is not released comes back when its lease lapses.
        if !not_begun.is_empty()
            && let Err(error) = self.jobs.store().settle(not_begun).await
        {
            self.tell_of(&error);
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
