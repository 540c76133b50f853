//! Claims that are not lost on the way.
//!
//! What was claimed and could not be answered is released: where the client went away while
//! the store was asked, or before the answer was written, or the server is shut down.

use crate::app::App;
use crate::listen::Delivery;
use requeue_http::Problem;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{Claim, Claimed, Receipt, Settle, SettleError, Settlement, StoreError};
use std::mem;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// Claims, and waits for something to claim, but no longer than `wait`.
pub(crate) async fn claim(
    app: &App,
    claim: Claim,
    wait: Duration,
    delivery: &Delivery,
) -> Result<Claimed, Problem> {
    let held = claim_now(app, claim.clone()).await?;
    if wait.is_zero() || !held.claimed.jobs.is_empty() || claim.max == 0 {
        return Ok(held.hand_over(delivery));
    }
    let _place = app.wait()?;
    let _waits = app.instrumented().waiting(&claim.worker, &claim.kinds);
    let mut wait = wait;
    if !held.is_empty() {
        // Who is told at once that a kind cannot be asked asks again at once, and so do all.
        let pause = wait.min(WAIT_SLICE);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.shutdown().ordered() => return Ok(held.hand_over(delivery)),
        }
        let held = claim_now(app, claim.clone()).await?;
        if !held.is_empty() {
            return Ok(held.hand_over(delivery));
        }
        wait -= pause;
    }
    tokio::select! {
        held = claim_in_turn(app, &claim) => Ok(held?.hand_over(delivery)),
        () = tokio::time::sleep(wait) => Ok(Claimed::default()),
        () = app.shutdown().ordered() => Ok(Claimed::default()),
    }
}

async fn claim_in_turn(app: &App, claim: &Claim) -> Result<Held, StoreError> {
    loop {
        let turn = app.lines().turn(app.store(), &claim.kinds).await?;
        let held = claim_now(app, claim.clone()).await?;
        if !held.is_empty() {
            return Ok(held);
        }
        turn.in_vain();
    }
}

/// Claims in a task of its own: whoever waits for it may go away meanwhile.
async fn claim_now(app: &App, claim: Claim) -> Result<Held, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let to = app.clone();
    app.tasks().spawn(async move {
        let claimed = to.store().claim(claim).await;
        // Where nobody waits any more it is dropped, and thereby released.
        drop(sender.send(claimed.map(|claimed| Held { app: to, claimed })));
    });
    let panicked = || StoreError::Unknown { reason: "the claim panicked".to_owned() };
    receiver.await.unwrap_or_else(|_| Err(panicked()))
}

/// What was claimed, and is released unless it is handed over.
struct Held {
    app: App,
    claimed: Claimed,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.claimed.jobs.is_empty() && self.claimed.errors.is_empty()
    }

    /// To the answer: from now on it is released unless that gets out.
    fn hand_over(mut self, delivery: &Delivery) -> Claimed {
        let claimed = mem::take(&mut self.claimed);
        let receipts = receipts(&claimed);
        if !receipts.is_empty() {
            let app = self.app.clone();
            delivery.or_else(move || release(app, receipts));
        }
        claimed
    }
}

impl Drop for Held {
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

/// How often it is tried to give something back, with a pause that doubles: for half a minute, as
/// long as most leases are.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Gives back what nobody has received. What cannot be given back comes back when its lease
/// expires, and that counts as an attempt: where the store is in trouble, it is tried again.
fn release(app: App, receipts: Vec<Receipt>) {
    let tasks = app.tasks().clone();
    tasks.spawn(async move {
        let (mut left, mut pause) = (receipts, FIRST_PAUSE);
        for tried in 1.. {
            let error = match release_now(&app, &mut left).await {
                None => return,
                Some(error) => error,
            };
            if tried == TRIES || app.shutdown().is_ordered() {
                let count = left.len();
                return warn!(count, %error, "jobs that nobody received were not released");
            }
            tokio::select! {
                () = app.clock().sleep(pause) => pause *= 2,
                // Once more.
                () = app.shutdown().ordered() => {}
            }
        }
    });
}

/// Tries to give them back, and keeps those that it may not have: answers why.
async fn release_now(app: &App, left: &mut Vec<Receipt>) -> Option<StoreError> {
    let settle =
        |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Settlement::Release };
    let answers = match app.store().settle(left.iter().map(settle).collect()).await {
        Err(error) => return Some(error),
        Ok(answers) => answers,
    };
    let (mut answers, mut why) = (answers.into_iter(), None);
    left.retain(|_| match answers.next() {
        Some(Err(SettleError::Store(error))) => {
            why = Some(error);
            true
        }
        // It is released, or was nobody's any more.
        _ => false,
    });
    why
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

    /// A store that cannot ask a kind, the first so many times, nor change jobs whose id begins with
    /// an x, nor wait for the kind `panic`.
    #[derive(Default)]
    pub(crate) struct Half {
        pub(crate) store: MemoryStore,
        fails: usize,
        claims: AtomicUsize,
    }

    fn down() -> StoreError {
        StoreError::Unavailable { reason: "half of it is down".to_owned() }
    }

    impl Store for Half {
        fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
            if self.claims.fetch_add(1, Ordering::Relaxed) >= self.fails {
                return self.store.claim(claim);
            }
            let errors = vec![(claim.kinds[0].clone(), down())];
            Box::pin(async { Ok(Claimed { jobs: Vec::new(), errors }) })
        }

        fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
            assert!(kinds.iter().all(|kind| kind.as_str() != "panic"), "on purpose");
            self.store.wait(kinds, limit)
        }

        fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
            self.store.put(puts)
        }

        fn settle(
            &self,
            settlements: Vec<Settle>,
        ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
            self.store.settle(settlements)
        }

        fn change(
            &self,
            changes: Vec<Change>,
        ) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
            let is_down = |change: &Change| change.id.as_str().starts_with('x');
            let downs: Vec<bool> = changes.iter().map(is_down).collect();
            let up = changes.into_iter().filter(|change| !is_down(change)).collect();
            Box::pin(async move {
                let mut done = self.store.change(up).await?.into_iter();
                let answer = |is_down| match is_down {
                    true => Err(down().into()),
                    false => done.next().expect("one for each"),
                };
                Ok(downs.into_iter().map(answer).collect())
            })
        }

        fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
            self.store.restore(restore)
        }

        fn reap(&self, max: usize) -> StoreFuture<'_, usize> {
            self.store.reap(max)
        }

        fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
            self.store.get(kind, id)
        }

        fn list(&self, query: Query) -> StoreFuture<'_, Page> {
            self.store.list(query)
        }

        fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
            self.store.kinds()
        }

        fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
            self.store.upcoming(kind, spans)
        }

        fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
            self.store.settings(kind)
        }

        fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
            self.store.set(kind, settings)
        }

        fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
            self.store.set_schedule(kind, schedule)
        }

        fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
            self.store.remove_schedule(kind, id)
        }

        fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
            self.store.schedules(kind)
        }

        fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
            self.store.tick(tick)
        }
    }

    /// What a claim gets that waits for so many milliseconds, and how often the store was asked.
    async fn claimed(fails: usize, wait: u64) -> (Claimed, usize) {
        let store = MemoryStore::new();
        let kind = Kind::new("mail").expect("a valid kind");
        let put = Put::new(kind.clone(), JobId::new("a").expect("an id"), Body::default());
        store.put(vec![put]).await.expect("it is answered");
        let half = Arc::new(Half { store, fails, claims: AtomicUsize::new(0) });
        let app = App::new(half.clone(), WallClock::system(), Limits::default());
        let worker = WorkerName::new("w").expect("a valid name");
        let wish = Claim { kinds: vec![kind], max: 1, lease: None, worker, nonce: 1 };
        let (wait, delivery) = (Duration::from_millis(wait), Delivery::new());
        let claimed = claim(&app, wish, wait, &delivery).await.expect("it is answered");
        delivery.delivered();
        (claimed, half.claims.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_kind_that_cannot_be_asked_is_not_told_before_a_pause() {
        let (told, claims) = claimed(usize::MAX, 0).await;
        assert_eq!((told.errors.len(), claims), (1, 1), "it does not want to wait");
        let (told, claims) = claimed(usize::MAX, 2).await;
        assert_eq!((told.errors.len(), claims), (1, 2));
        let (told, claims) = claimed(1, 2).await;
        assert_eq!((told.jobs.len(), told.errors.len(), claims), (1, 0, 2));
    }

    #[tokio::test]
    async fn what_nobody_received_is_released_when_the_store_is_well_again() {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(0));
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::with(wall_clock.clone()))));
        let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
        let put = Put::new(kind.clone(), id.clone(), Body::default());
        Store::put(&*faulty, vec![put]).await.expect("it is answered");
        let app = App::new(faulty.clone(), wall_clock, Limits::default());
        let worker = WorkerName::new("w").expect("a valid name");
        let wish = Claim { kinds: vec![kind.clone()], max: 1, lease: None, worker, nonce: 1 };
        let delivery = Delivery::new();
        claim(&app, wish, Duration::ZERO, &delivery).await.expect("it is answered");
        // It is asked to release it, and then how the job is.
        faulty.at(1, Fault::Refused);
        delivery.lost();
        for _ in 0..10 {
            yield_now().await;
        }
        let state = async || {
            let job =
                Store::get(&*faulty, kind.clone(), id.clone()).await.expect("the store is well");
            job.expect("it is there").state
        };
        assert_eq!(state().await, JobState::Leased);
        clock.advance(FIRST_PAUSE);
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(state().await, JobState::Ready);
    }
}
