//! The background task that ends expired leases and drops old dead and done jobs.

use crate::health::{Health, REAPER_FAILED};
use crate::listen::Shutdown;
use requeue::Clock;
use requeue_jobs::{PeriodicReap, Store, StoreError, WallClock};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Ends expired leases that no claim has ended, and drops dead and done jobs whose retention is over.
///
/// It runs once a second, on every node; the nodes need no coordination. While the store fails, it
/// retries with growing pauses of up to 30 seconds. It logs the first failure, and the recovery.
pub struct Reaper {
    store: Arc<dyn Store>,
    clock: Clock,
    reap: PeriodicReap,
    /// Where to report that it fails; otherwise it logs it itself.
    health: Option<Arc<Health>>,
}

impl Reaper {
    /// Creates a reaper for `store`. The clock of `wall_clock` measures its pauses.
    pub fn new(store: Arc<dyn Store>, wall_clock: &WallClock) -> Self {
        let (clock, reap) = (wall_clock.clock().clone(), PeriodicReap::every(INTERVAL));
        Reaper { store, clock, reap, health: None }
    }

    /// Reports failures to the health of the server.
    pub(crate) fn with_health(self, health: Arc<Health>) -> Self {
        Reaper { health: Some(health), ..self }
    }

    fn failed(&self, error: &StoreError) {
        let message = "expired leases are not ended until the store recovers, unless by a claim";
        match &self.health {
            Some(health) => health.begin(REAPER_FAILED, format!("{message}: {error}")),
            None => tracing::warn!(%error, "the reaper failed: {message}"),
        }
    }

    fn recovered(&self, failures: u32) {
        match &self.health {
            Some(health) => health.end(REAPER_FAILED),
            None => tracing::info!(failures, "the reaper works again"),
        }
    }

    /// Runs until `stop` is requested. A call in flight is abandoned.
    pub async fn run(mut self, stop: Shutdown) {
        let work = async {
            loop {
                let pause = self.step().await;
                self.clock.sleep(pause).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = work => {}
        }
    }

    /// Reaps, reports the first failure and the recovery, and returns the pause until the next step.
    async fn step(&mut self) -> Duration {
        let failures = self.reap.failures();
        match self.reap.step(&*self.store).await {
            Ok(()) if failures > 0 => self.recovered(failures),
            Err(error) if failures == 0 => self.failed(&error),
            Ok(()) | Err(_) => {}
        }
        self.reap.pause()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::ManualClock;
    use requeue_jobs::{Body, Claim, JobId, Kind, MemoryStore, Put, Timestamp, WorkerName};
    use requeue_testkit::{Fault, Faulty, block_on};
    use std::pin::pin;
    use std::task::{Context, Waker};

    const LEASE: Duration = Duration::from_secs(30);

    struct ReaperFixture {
        clock: ManualClock,
        store: Arc<Faulty>,
        reaper: Reaper,
    }

    /// Creates a store with this many leased jobs.
    fn fixture(jobs: usize) -> ReaperFixture {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(0));
        let store = Arc::new(Faulty::new(Arc::new(MemoryStore::with(wall_clock.clone()))));
        let kind = Kind::new("mail").expect("a valid kind");
        for n in 0..jobs {
            let id = JobId::new(n.to_string()).expect("a valid id");
            drop(block_on(store.put(vec![Put::new(kind.clone(), id, Body::default())])));
        }
        let worker = WorkerName::new("w").expect("a valid name");
        let claim = Claim { kinds: vec![kind], max: 1000, lease: Some(LEASE), worker, nonce: 1 };
        while block_on(store.claim(claim.clone())).is_ok_and(|claimed| !claimed.jobs.is_empty()) {}
        let reaper = Reaper::new(store.clone(), &wall_clock);
        ReaperFixture { clock, store, reaper }
    }

    fn leased(store: &Faulty) -> u64 {
        block_on(store.kinds()).expect("the store works")[0].counts.leased
    }

    #[test]
    fn full_batches_follow_without_a_pause_up_to_a_limit() {
        let mut fixture = fixture(20_001);
        assert_eq!(block_on(fixture.reaper.step()), INTERVAL);
        assert_eq!(leased(&fixture.store), 20_001, "the leases have not expired");
        fixture.clock.advance(LEASE);
        assert_eq!(block_on(fixture.reaper.step()), INTERVAL);
        assert_eq!(leased(&fixture.store), 1);
        assert_eq!(block_on(fixture.reaper.step()), INTERVAL);
        assert_eq!(leased(&fixture.store), 0);
    }

    #[test]
    fn pauses_grow_while_the_store_fails() {
        let mut fixture = fixture(1);
        fixture.clock.advance(LEASE);
        // The eighth step finds a lease, so it makes two calls.
        for n in (1..=7).chain([11, 12]) {
            fixture.store.at(n, Fault::Refused);
        }
        let pauses: Vec<u64> = (0..11).map(|_| block_on(fixture.reaper.step()).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 1, 1, 1, 2]);
        assert_eq!(leased(&fixture.store), 0);
    }

    #[test]
    fn a_failure_is_a_problem_of_the_node_until_it_works_again() {
        let mut fixture = fixture(1);
        let health = Arc::new(Health::new(WallClock::system()));
        fixture.reaper = fixture.reaper.with_health(Arc::clone(&health));
        let problems = |store: &Faulty| health.check(store).problems;
        fixture.store.at(1, Fault::Refused);
        block_on(fixture.reaper.step());
        assert_eq!(problems(&fixture.store).first().map(|one| one.name), Some(REAPER_FAILED));
        block_on(fixture.reaper.step());
        assert_eq!(problems(&fixture.store), []);
    }

    #[test]
    fn it_reaps_every_second_until_the_shutdown() {
        let ReaperFixture { clock, store, reaper } = fixture(1);
        let stop = Shutdown::new();
        let mut run = pin!(reaper.run(stop.clone()));
        let mut context = Context::from_waker(Waker::noop());
        clock.advance(LEASE - Duration::from_millis(1));
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(leased(&store), 1);
        clock.advance(INTERVAL);
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(leased(&store), 0);
        stop.request();
        assert!(run.as_mut().poll(&mut context).is_ready());
    }
}
