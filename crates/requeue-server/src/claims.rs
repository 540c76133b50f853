//! Claims with long polling. No claimed job is lost with its response.
//!
//! If a client does not get the response to its claim, the claimed jobs are released: because the
//! client disconnected while the store worked or before the response was written, because its token
//! was revoked meanwhile, or because the server shuts down.

use crate::app::App;
use crate::auth::Caller;
use crate::listen::Delivery;
use crate::response_memory::{self, ResponseRoom};
use requeue_http::Problem;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{Claim, Claimed, Receipt, Settle, SettleError, Settlement, StoreError};
use std::mem;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

/// The result of the first store call of a claim.
pub(crate) enum FirstClaim {
    /// The response contains this.
    Claimed(Claimed),
    /// There are no jobs, and the claim waits: see [`wait`]. With errors, if a kind failed.
    Waits(Option<Box<UndeliveredClaim>>),
}

/// Claims jobs. If there are none, and the claim specifies a time to wait, it has to wait.
///
/// A call of the store that has begun is awaited to its end, even if the time is over or the server
/// shuts down: a response without jobs means that no job was leased for this claim, and none will be.
pub(crate) async fn claim(
    app: &App,
    caller: &Caller,
    claim: &Claim,
    wait: Duration,
    delivery: &Delivery,
) -> Result<FirstClaim, Problem> {
    let undelivered = claim_now(app, caller, claim.clone()).await?;
    if wait.is_zero() || !undelivered.claimed.jobs.is_empty() || claim.max == 0 {
        return Ok(FirstClaim::Claimed(undelivered.deliver_with(delivery)));
    }
    let failed = (!undelivered.is_empty()).then(|| Box::new(undelivered));
    Ok(FirstClaim::Waits(failed))
}

/// Waits for jobs and claims them, at most for `wait`. `failed` is the result of the first call if
/// a kind failed.
///
/// Ten thousand of these may wait. What is rare or short is boxed, so that it takes no memory while
/// the claim waits.
pub(crate) async fn wait(
    app: &App,
    caller: &Caller,
    claim: Claim,
    wait: Duration,
    failed: Option<Box<UndeliveredClaim>>,
    delivery: &Delivery,
) -> Result<Claimed, Problem> {
    let _slot = app.wait_slot(caller, claim.kinds.len())?;
    let _waiting = app.instrumented().waiting(&claim.worker, &claim.kinds);
    let mut revoked = pin!(caller.revoked());
    let end = Instant::now() + wait;
    if let Some(undelivered) = failed
        && let Some(undelivered) =
            Box::pin(claim_again(app, caller, &claim, wait, *undelivered)).await?
    {
        return Ok(undelivered.deliver_with(delivery));
    }
    let queue = app.claim_queues().of(&claim.kinds);
    loop {
        let turn = tokio::select! {
            biased;
            () = app.shutdown().requested() => return Ok(Claimed::default()),
            problem = &mut revoked => return Err(problem),
            () = tokio::time::sleep_until(end) => return Ok(Claimed::default()),
            turn = queue.turn(&**app.store()) => turn?,
        };
        let undelivered = Box::pin(claim_now(app, caller, claim.clone())).await?;
        if undelivered.is_empty() {
            turn.got_nothing();
            continue;
        }
        if !undelivered.claimed.jobs.is_empty() {
            turn.got_jobs();
        }
        return Ok(undelivered.deliver_with(delivery));
    }
}

/// Claims again after a pause, because a kind failed. Returns `None` if there is nothing to report.
async fn claim_again(
    app: &App,
    caller: &Caller,
    claim: &Claim,
    wait: Duration,
    undelivered: UndeliveredClaim,
) -> Result<Option<UndeliveredClaim>, Problem> {
    // An immediate response would make all clients retry immediately.
    let shuts_down = tokio::select! {
        () = tokio::time::sleep(wait.min(WAIT_SLICE)) => false,
        () = app.shutdown().requested() => true,
        problem = caller.revoked() => return Err(problem),
    };
    // If the outcome is unknown, jobs may be leased to this worker. Another claim would hide that
    // from the client.
    if shuts_down || undelivered.is_unknown() {
        return Ok(Some(undelivered));
    }
    let undelivered = claim_now(app, caller, claim.clone()).await?;
    Ok((!undelivered.is_empty()).then_some(undelivered))
}

/// Claims in a separate task, because the client may disconnect in the meantime. Fails if its token is
/// revoked in the meantime: then the jobs are released.
async fn claim_now(app: &App, caller: &Caller, claim: Claim) -> Result<UndeliveredClaim, Problem> {
    let mut room = app.response_memory().for_claim(claim.max).await?;
    let (sender, receiver) = oneshot::channel();
    let to = app.clone();
    app.tasks().spawn(async move {
        if sender.is_closed() {
            // The client has disconnected already.
            return;
        }
        let claimed = to.store().claim(claim).await;
        // If the receiver is gone, the claim is dropped, which releases its jobs.
        drop(sender.send(claimed.map(|claimed| {
            room.keep(response_memory::weight(&claimed.jobs));
            UndeliveredClaim { app: to, claimed, room: Some(room) }
        })));
    });
    let panicked = || StoreError::Unknown { reason: "the claim panicked".to_owned() };
    let undelivered = receiver.await.unwrap_or_else(|_| Err(panicked()))?;
    caller.check_current()?;
    Ok(undelivered)
}

/// Claimed jobs that are released on drop unless they are passed to a response.
pub(crate) struct UndeliveredClaim {
    app: App,
    claimed: Claimed,
    /// The memory that the jobs take.
    room: Option<ResponseRoom>,
}

impl UndeliveredClaim {
    fn is_empty(&self) -> bool {
        self.claimed.jobs.is_empty() && self.claimed.errors.is_empty()
    }

    /// Returns whether the claim may have leased jobs that it does not contain.
    fn is_unknown(&self) -> bool {
        self.claimed.errors.iter().any(|(_, error)| matches!(error, StoreError::Unknown { .. }))
    }

    /// Returns the jobs for the response. From now on they are released if the response is lost.
    fn deliver_with(mut self, delivery: &Delivery) -> Claimed {
        let claimed = mem::take(&mut self.claimed);
        let receipts = receipts(&claimed);
        if !receipts.is_empty() {
            let app = self.app.clone();
            delivery.on_lost(move || release(app, receipts));
            if let Some(room) = self.room.take() {
                delivery.hold(room);
            }
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

    /// Claims jobs, and waits for some.
    async fn claim(
        app: &App,
        claim: Claim,
        wait: Duration,
        delivery: &Delivery,
    ) -> Result<Claimed, Problem> {
        let caller = Caller::of_test();
        match super::claim(app, &caller, &claim, wait, delivery).await? {
            FirstClaim::Claimed(claimed) => Ok(claimed),
            FirstClaim::Waits(failed) => {
                super::wait(app, &caller, claim, wait, failed, delivery).await
            }
        }
    }

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
    async fn a_waiting_claim_takes_little_memory() {
        let app = App::new(Arc::new(MemoryStore::new()), WallClock::system(), Limits::default());
        let (caller, delivery) = (Caller::of_test(), Delivery::new());
        let waiting = wait(&app, &caller, request(), Duration::from_secs(1), None, &delivery);
        let bytes = size_of_val(&waiting);
        assert!(bytes <= 800, "{bytes}");
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

    fn mail() -> Kind {
        Kind::new("mail").expect("a valid kind")
    }

    async fn put(store: &dyn Store, id: &str) -> PutOutcome {
        let put = Put::new(mail(), JobId::new(id).expect("an id"), Body::default());
        let placed = store.put(vec![put]).await.expect("the store works").remove(0);
        placed.expect("the put has no condition").outcome
    }

    async fn job(store: &dyn Store, id: &str) -> JobView {
        let job = store.get(mail(), JobId::new(id).expect("an id")).await;
        job.expect("the store works").expect("the job exists")
    }

    fn request() -> Claim {
        let worker = WorkerName::new("w").expect("a valid name");
        Claim { kinds: vec![mail()], max: 1, lease: None, worker, nonce: 1 }
    }

    /// A store that loses the result of its first claim, as Redis does if the connection breaks.
    #[derive(Default)]
    struct LosesFirstClaim {
        store: MemoryStore,
        claims: AtomicUsize,
    }

    impl Layered for LosesFirstClaim {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
            Box::pin(async move {
                let kind = claim.kinds[0].clone();
                let claimed = self.store.claim(claim).await?;
                if self.claims.fetch_add(1, Ordering::Relaxed) > 0 {
                    return Ok(claimed);
                }
                let error = StoreError::Unknown { reason: "the connection broke".to_owned() };
                Ok(Claimed { errors: vec![(kind, error)], ..Claimed::default() })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_claim_with_an_unknown_outcome_is_reported_and_not_repeated() {
        let store = Arc::new(LosesFirstClaim::default());
        for id in ["a", "b"] {
            put(&*store, id).await;
        }
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        let (wait, delivery) = (Duration::from_secs(20), Delivery::new());
        let claimed = claim(&app, request(), wait, &delivery).await.expect("the store works");
        delivery.delivered();
        let is_unknown = |error: &StoreError| matches!(error, StoreError::Unknown { .. });
        assert!(
            matches!(&claimed.errors[..], [(kind, error)] if *kind == mail() && is_unknown(error)),
            "{claimed:?}"
        );
        assert_eq!((claimed.jobs.len(), store.claims.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(job(&*store, "b").await.state, JobState::Ready);
    }

    /// A store whose claims, after the first, wait at a gate before they lease anything.
    struct GatedStore {
        store: MemoryStore,
        gate: tokio::sync::Semaphore,
        begun: AtomicUsize,
        /// The number of jobs leased so far.
        leased: AtomicUsize,
    }

    impl GatedStore {
        fn new() -> Arc<Self> {
            let gate = tokio::sync::Semaphore::new(1);
            let (begun, leased) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Arc::new(GatedStore { store: MemoryStore::new(), gate, begun, leased })
        }

        fn count(count: &AtomicUsize) -> usize {
            count.load(Ordering::Relaxed)
        }
    }

    impl Layered for GatedStore {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
            Box::pin(async move {
                self.begun.fetch_add(1, Ordering::Relaxed);
                self.gate.acquire().await.expect("it is not closed").forget();
                let claimed = self.store.claim(claim).await?;
                self.leased.fetch_add(claimed.jobs.len(), Ordering::Relaxed);
                Ok(claimed)
            })
        }
    }

    /// Lets all tasks run until this holds. The time does not advance meanwhile.
    async fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if holds() {
                return;
            }
            yield_now().await;
        }
        panic!("it never holds: {what}");
    }

    /// Begins a claim that waits for ten seconds. Returns it when its second store call is at the
    /// gate.
    async fn claim_at_the_gate(
        app: &App,
        store: &GatedStore,
        delivery: &Delivery,
    ) -> tokio::task::JoinHandle<Claimed> {
        let (claiming, delivery) = (app.clone(), delivery.clone());
        let claimed = tokio::spawn(async move {
            let wait = Duration::from_secs(10);
            claim(&claiming, request(), wait, &delivery).await.expect("the store works")
        });
        until("the claim waits", || app.waiting() == 1).await;
        put(store, "a").await;
        until("the claim is at the gate", || GatedStore::count(&store.begun) == 2).await;
        claimed
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_jobs_leaves_no_claim_at_the_store() {
        // Either the time is over or the server shuts down while the store works.
        for shuts_down in [false, true] {
            let store = GatedStore::new();
            let app = App::new(store.clone(), WallClock::system(), Limits::default());
            let delivery = Delivery::new();
            let claimed = claim_at_the_gate(&app, &store, &delivery).await;
            if shuts_down {
                app.shutdown().request();
            }
            // The time of the claim is over, and the store has not returned yet.
            tokio::time::sleep(Duration::from_secs(20)).await;
            store.gate.add_permits(1000);
            let claimed = claimed.await.expect("it has not panicked");
            delivery.delivered();
            until("all store calls have returned", || app.tasks().is_empty()).await;
            assert_eq!(claimed.jobs.len(), GatedStore::count(&store.leased), "{claimed:?}");
            if claimed.jobs.is_empty() {
                assert_eq!(put(&*store, "a").await, PutOutcome::Updated);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_store_call_begins_for_a_client_that_has_left() {
        let store = GatedStore::new();
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        let delivery = Delivery::new();
        let (claiming, delivering) = (app.clone(), delivery.clone());
        let claimed = tokio::spawn(async move {
            let wait = Duration::from_secs(10);
            claim(&claiming, request(), wait, &delivering).await.map(drop)
        });
        until("the claim waits", || app.waiting() == 1).await;
        claimed.abort();
        drop(claimed.await);
        put(&*store, "a").await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(GatedStore::count(&store.begun), 1);
        assert_eq!(job(&*store, "a").await.state, JobState::Ready);

        // Or it leaves after the call was prepared, but before it has begun.
        let caller = Caller::of_test();
        let mut calling = Box::pin(claim_now(&app, &caller, request()));
        assert!(futures_util::poll!(calling.as_mut()).is_pending());
        drop(calling);
        until("all tasks have ended", || app.tasks().is_empty()).await;
        assert_eq!(GatedStore::count(&store.begun), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_claimed_for_a_client_that_leaves_meanwhile_are_released() {
        let store = GatedStore::new();
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        let delivery = Delivery::new();
        let claimed = claim_at_the_gate(&app, &store, &delivery).await;
        claimed.abort();
        drop(claimed.await);
        store.gate.add_permits(1);
        until("the job is leased", || GatedStore::count(&store.leased) == 1).await;
        until("all tasks have ended", || app.tasks().is_empty()).await;
        let job = job(&*store, "a").await;
        assert_eq!((job.state, job.attempts), (JobState::Ready, 0));
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
