//! Claims with long polling. No claimed job is lost with its response.
//!
//! If a client does not get the response to its claim, the claimed jobs are released: because the
//! client disconnected while the store worked or before the response was written, or because the
//! server shuts down.

use crate::app::App;
use crate::listen::Delivery;
use requeue_http::Problem;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{Claim, Claimed, Receipt, Settle, SettleError, Settlement, StoreError};
use std::mem;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// Claims jobs. If there are none, waits for some, at most for `wait`.
pub(crate) async fn claim(
    app: &App,
    claim: Claim,
    wait: Duration,
    delivery: &Delivery,
) -> Result<Claimed, Problem> {
    let undelivered = claim_now(app, claim.clone()).await?;
    if wait.is_zero() || !undelivered.claimed.jobs.is_empty() || claim.max == 0 {
        return Ok(undelivered.deliver_with(delivery));
    }
    let _slot = app.wait_slot()?;
    let _waiting = app.instrumented().waiting(&claim.worker, &claim.kinds);
    let mut wait = wait;
    if !undelivered.is_empty() {
        // If one kind fails, an immediate response would make all clients retry immediately.
        let pause = wait.min(WAIT_SLICE);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.shutdown().requested() => return Ok(undelivered.deliver_with(delivery)),
        }
        let undelivered = claim_now(app, claim.clone()).await?;
        if !undelivered.is_empty() {
            return Ok(undelivered.deliver_with(delivery));
        }
        wait -= pause;
    }
    tokio::select! {
        undelivered = claim_in_turn(app, &claim) => Ok(undelivered?.deliver_with(delivery)),
        () = tokio::time::sleep(wait) => Ok(Claimed::default()),
        () = app.shutdown().requested() => Ok(Claimed::default()),
    }
}

/// Waits in the queue of claims, and claims until there are jobs.
async fn claim_in_turn(app: &App, claim: &Claim) -> Result<UndeliveredClaim, StoreError> {
    loop {
        let turn = app.claim_queues().turn(app.store(), &claim.kinds).await?;
        let undelivered = claim_now(app, claim.clone()).await?;
        if !undelivered.is_empty() {
            return Ok(undelivered);
        }
        turn.got_nothing();
    }
}

/// Claims in a separate task, because the client may disconnect in the meantime.
async fn claim_now(app: &App, claim: Claim) -> Result<UndeliveredClaim, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let to = app.clone();
    app.tasks().spawn(async move {
        let claimed = to.store().claim(claim).await;
        // If the receiver is gone, the claim is dropped, which releases its jobs.
        drop(sender.send(claimed.map(|claimed| UndeliveredClaim { app: to, claimed })));
    });
    let panicked = || StoreError::Unknown { reason: "the claim panicked".to_owned() };
    receiver.await.unwrap_or_else(|_| Err(panicked()))
}

/// Claimed jobs that are released on drop unless they are passed to a response.
struct UndeliveredClaim {
    app: App,
    claimed: Claimed,
}

impl UndeliveredClaim {
    fn is_empty(&self) -> bool {
        self.claimed.jobs.is_empty() && self.claimed.errors.is_empty()
    }

    /// Returns the jobs for the response. From now on they are released if the response is lost.
    fn deliver_with(mut self, delivery: &Delivery) -> Claimed {
        let claimed = mem::take(&mut self.claimed);
        let receipts = receipts(&claimed);
        if !receipts.is_empty() {
            let app = self.app.clone();
            delivery.on_lost(move || release(app, receipts));
        }
        claimed
    }
}

impl Drop for UndeliveredClaim {
    fn drop(&mut self) {
        let receipts = receipts(&self.claimed);
        if !receipts.is_empty() {
            release(self.app.clone(), receipts);
        }
    }
}

fn receipts(claimed: &Claimed) -> Vec<Receipt> {
    claimed.jobs.iter().map(|job| job.receipt.clone()).collect()
}

/// Number of attempts to release jobs. The pauses double: together half a minute, as long as most
/// leases.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Releases jobs whose response was lost. If that fails, the job becomes ready again when its lease
/// expires, which counts as a failed attempt; therefore a failed release is retried.
fn release(app: App, receipts: Vec<Receipt>) {
    let tasks = app.tasks().clone();
    tasks.spawn(async move {
        let (mut left, mut pause) = (receipts, FIRST_PAUSE);
        for tried in 1.. {
            let error = match release_now(&app, &mut left).await {
                None => return,
                Some(error) => error,
            };
            if tried == TRIES || app.shutdown().is_requested() {
                let count = left.len();
                return warn!(count, %error, "could not release jobs of a lost response: their leases must expire");
            }
            tokio::select! {
                () = app.clock().sleep(pause) => pause *= 2,
                // Try a last time.
                () = app.shutdown().requested() => {}
            }
        }
    });
}

/// Tries to release the jobs. Keeps in `left` those that may not be released, and returns the
/// error.
async fn release_now(app: &App, left: &mut Vec<Receipt>) -> Option<StoreError> {
    let settle =
        |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Settlement::Release };
    let results = match app.store().settle(left.iter().map(settle).collect()).await {
        Err(error) => return Some(error),
        Ok(results) => results,
    };
    let (mut results, mut failure) = (results.into_iter(), None);
    left.retain(|_| match results.next() {
        Some(Err(SettleError::Store(error))) => {
            failure = Some(error);
            true
        }
        // It is released, or the lease was lost before.
        _ => false,
    });
    failure
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::app::Limits;
    use requeue::ManualClock;
    use requeue_jobs::*;
    use requeue_testkit::{Fault, Faulty};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    /// A store that reports an error for the first claimed kind in its first `failing_claims`
    /// claims, does not change jobs whose id begins with an x, and panics when waiting for the kind
    /// `panic`.
    #[derive(Default)]
    pub(crate) struct PartlyFailingStore {
        pub(crate) store: MemoryStore,
        failing_claims: usize,
        claims: AtomicUsize,
    }

    fn down() -> StoreError {
        StoreError::Unavailable { reason: "half of it is down".to_owned() }
    }

    impl Layered for PartlyFailingStore {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
            if self.claims.fetch_add(1, Ordering::Relaxed) >= self.failing_claims {
                return self.store.claim(claim);
            }
            let errors = vec![(claim.kinds[0].clone(), down())];
            Box::pin(async { Ok(Claimed { errors, ..Claimed::default() }) })
        }

        fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
            assert!(kinds.iter().all(|kind| kind.as_str() != "panic"), "on purpose");
            self.store.wait(kinds, limit)
        }

        fn change(
            &self,
            changes: Vec<Change>,
        ) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
            let is_down = |change: &Change| change.id.as_str().starts_with('x');
            let downs: Vec<bool> = changes.iter().map(is_down).collect();
            let up = changes.into_iter().filter(|change| !is_down(change)).collect();
            Box::pin(async move {
                let mut results = self.store.change(up).await?.into_iter();
                let result = |is_down| match is_down {
                    true => Err(down().into()),
                    false => results.next().expect("one result for each change"),
                };
                Ok(downs.into_iter().map(result).collect())
            })
        }
    }

    /// Returns the result of a claim that waits for `wait` milliseconds, and how many claims the
    /// store got.
    async fn claimed(failing_claims: usize, wait: u64) -> (Claimed, usize) {
        let store = MemoryStore::new();
        let kind = Kind::new("mail").expect("a valid kind");
        let put = Put::new(kind.clone(), JobId::new("a").expect("an id"), Body::default());
        store.put(vec![put]).await.expect("the store works");
        let store =
            Arc::new(PartlyFailingStore { store, failing_claims, claims: AtomicUsize::new(0) });
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        let worker = WorkerName::new("w").expect("a valid name");
        let request = Claim { kinds: vec![kind], max: 1, lease: None, worker, nonce: 1 };
        let (wait, delivery) = (Duration::from_millis(wait), Delivery::new());
        let claimed = claim(&app, request, wait, &delivery).await.expect("the store works");
        delivery.delivered();
        (claimed, store.claims.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn an_error_of_one_kind_is_reported_after_a_pause() {
        let (claimed_now, claims) = claimed(usize::MAX, 0).await;
        assert_eq!((claimed_now.errors.len(), claims), (1, 1), "without a wait there is no pause");
        let (claimed_now, claims) = claimed(usize::MAX, 2).await;
        assert_eq!((claimed_now.errors.len(), claims), (1, 2));
        let (claimed_now, claims) = claimed(1, 2).await;
        assert_eq!((claimed_now.jobs.len(), claimed_now.errors.len(), claims), (1, 0, 2));
    }

    #[tokio::test]
    async fn jobs_of_a_lost_response_are_released_when_the_store_recovers() {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(0));
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::with(wall_clock.clone()))));
        let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
        let put = Put::new(kind.clone(), id.clone(), Body::default());
        Store::put(&*faulty, vec![put]).await.expect("the store works");
        let app = App::new(faulty.clone(), wall_clock, Limits::default());
        let worker = WorkerName::new("w").expect("a valid name");
        let request = Claim { kinds: vec![kind.clone()], max: 1, lease: None, worker, nonce: 1 };
        let delivery = Delivery::new();
        claim(&app, request, Duration::ZERO, &delivery).await.expect("the store works");
        // The first attempt to release the job fails.
        faulty.at(1, Fault::Refused);
        delivery.lost();
        for _ in 0..10 {
            yield_now().await;
        }
        let state = async || {
            let job =
                Store::get(&*faulty, kind.clone(), id.clone()).await.expect("the store works");
            job.expect("the job exists").state
        };
        assert_eq!(state().await, JobState::Leased);
        clock.advance(FIRST_PAUSE);
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(state().await, JobState::Ready);
    }
}
