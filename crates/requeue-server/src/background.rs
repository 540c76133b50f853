//! What is done without being asked: the reaper.

use crate::listen::Shutdown;
use requeue::Clock;
use requeue_jobs::{Store, WallClock};
use std::sync::Arc;
use std::time::Duration;

/// How often leases that expired are looked for.
const EVERY: Duration = Duration::from_secs(1);

/// At most so many of a kind at once: others want the store too.
const AT_ONCE: usize = 1000;

/// So many full batches follow each other at once. Then the store has a second's rest.
const BATCHES: usize = 20;

/// The longest pause between attempts while the store fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Ends leases that expired and that no claim has met, and drops dead jobs that are not to be
/// kept: once a second, on every node, for whoever is first does it.
///
/// A store that fails is asked again, ever more rarely, at the least every half minute. That it
/// fails is logged once, and once that it does no longer.
pub struct Reaper {
    store: Arc<dyn Store>,
    clock: Clock,
    /// How often in a row it has failed.
    failures: u32,
}

impl Reaper {
    /// A reaper of this store, that waits on this wall_clock's clock.
    pub fn new(store: Arc<dyn Store>, wall_clock: &WallClock) -> Self {
        Reaper { store, clock: wall_clock.clock().clone(), failures: 0 }
    }

    /// Reaps until `stop`. A reap that is under way then is not waited for.
    pub async fn run(mut self, stop: Shutdown) {
        let work = async {
            loop {
                let pause = self.step().await;
                self.clock.sleep(pause).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.ordered() => {}
            () = work => {}
        }
    }

    /// Reaps what there is, up to a bound, and answers how long to wait until the next time.
    async fn step(&mut self) -> Duration {
        for _ in 0..BATCHES {
            match self.store.reap(AT_ONCE).await {
                Ok(reaped) => {
                    if self.failures > 0 {
                        tracing::info!(failures = self.failures, "the store reaps again");
                    }
                    self.failures = 0;
                    if reaped.count < AT_ONCE {
                        break;
                    }
                }
                Err(error) => {
                    if self.failures == 0 {
                        tracing::warn!(%error, "leases that expired cannot be ended");
                    }
                    self.failures = self.failures.saturating_add(1);
                    let times = 2u32.saturating_pow(self.failures - 1);
                    return EVERY.saturating_mul(times).min(LONGEST_PAUSE);
                }
            }
        }
        EVERY
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

    struct World {
        clock: ManualClock,
        store: Arc<Faulty>,
        reaper: Reaper,
    }

    /// With so many leased jobs.
    fn world(jobs: usize) -> World {
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
        World { clock, store, reaper }
    }

    fn leased(store: &Faulty) -> u64 {
        block_on(store.kinds()).expect("the store is well")[0].counts.leased
    }

    #[test]
    fn full_batches_follow_each_other_at_once_up_to_a_bound() {
        let mut world = world(AT_ONCE * BATCHES + 1);
        assert_eq!(block_on(world.reaper.step()), EVERY);
        assert_eq!(leased(&world.store), 20_001, "they have not expired");
        world.clock.advance(LEASE);
        assert_eq!(block_on(world.reaper.step()), EVERY);
        assert_eq!(leased(&world.store), 1);
        assert_eq!(block_on(world.reaper.step()), EVERY);
        assert_eq!(leased(&world.store), 0);
    }

    #[test]
    fn a_store_that_fails_is_asked_ever_more_rarely_until_it_does_not() {
        let mut world = world(1);
        world.clock.advance(LEASE);
        for n in (1..=7).chain([10, 11]) {
            world.store.at(n, Fault::Refused);
        }
        let pauses: Vec<u64> = (0..11).map(|_| block_on(world.reaper.step()).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 1, 1, 1, 2]);
        assert_eq!(leased(&world.store), 0);
        world.reaper.failures = u32::MAX;
        world.store.at(1, Fault::Refused);
        assert_eq!(block_on(world.reaper.step()), LONGEST_PAUSE);
    }

    #[test]
    fn it_reaps_every_second_until_it_is_stopped() {
        let World { clock, store, reaper } = world(1);
        let stop = Shutdown::new();
        let mut run = pin!(reaper.run(stop.clone()));
        let mut context = Context::from_waker(Waker::noop());
        clock.advance(LEASE - Duration::from_millis(1));
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(leased(&store), 1);
        clock.advance(EVERY);
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(leased(&store), 0);
        stop.order();
        assert!(run.as_mut().poll(&mut context).is_ready());
    }
}
