//! Many clients at once, in real time, and a check of what they saw.
//!
//! ```text
//!   client 0 ──┤ put ├────┤ claim  ├──┤ ack ├────▶
//!   client 1 ─────┤ claim ├─────┤ put ├──────────▶   then one client alone, until nothing is
//!   client 2 ──┤  ack  ├───────────┤ cancel ├────▶   left; then the checks
//!                     ▲ meanwhile: connections are cut, servers killed
//! ```
//!
//! Nobody can say in which order things happened that overlap: an operation took effect at some
//! time between its call and its answer, and one whose outcome is unknown maybe, and maybe later.
//! So each check tells only of what is wrong whatever the order was. The seed makes the choices;
//! how they meet is up to the machine.
//!
//! Which invariants are seen here, [`checks`] says by number. Those of a store's order, of its
//! counts and of pages are for the simulator, where one thing happens at a time.

mod checks;
mod client;
mod log;
mod story;

use crate::fixture::block_on;
use client::{Client, kinds};
use log::Log;
use requeue_jobs::{
    Backoff, Claim, ClaimedJob, JobView, KindView, Query, Settings, Settle, Settlement, Store,
    WorkerName,
};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// After so many operations something may go wrong once more.
const BETWEEN_FAULTS: usize = 40;
/// Who tries again what failed waits so long.
const BREATH: Duration = Duration::from_millis(10);

/// How clients are let loose on a store.
///
/// ```
/// use requeue_jobs::{MemoryStore, Store};
/// use requeue_testkit::Concurrent;
/// use std::sync::Arc;
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let run = Concurrent { operations: 50, ..Concurrent::default() };
/// assert_eq!(run.check(&[store.clone(), store], 7, || ()), Ok(()));
/// ```
#[derive(Debug, Clone)]
pub struct Concurrent {
    /// Of each client.
    pub operations: usize,
    /// How far the store's clock and ours are apart at most; more than a millisecond, since
    /// both are read in whole ones.
    pub skew: Duration,
    /// In so long all must be done once the clients have stopped. It must be longer than it
    /// takes the store to recover from the last fault.
    pub patience: Duration,
}

impl Default for Concurrent {
    /// A second or two, on a store and a clock of the same machine.
    fn default() -> Self {
        let (skew, patience) = (Duration::from_millis(2), Duration::from_secs(30));
        Concurrent { operations: 500, skew, patience }
    }
}

impl Concurrent {
    /// Lets a client loose on each of these handles of one store, which must be empty, and
    /// answers what cannot have happened.
    ///
    /// `meanwhile` is called now and then while they work, on this thread, to let something go
    /// wrong: the store may then answer [`Unavailable`](requeue_jobs::StoreError::Unavailable)
    /// and [`Unknown`](requeue_jobs::StoreError::Unknown). When it returns, what it did must mend
    /// by itself: it is not called again once they have stopped.
    ///
    /// # Panics
    ///
    /// If there is no handle, or the store panics.
    pub fn check(
        &self,
        stores: &[Arc<dyn Store>],
        seed: u64,
        meanwhile: impl FnMut(),
    ) -> Result<(), String> {
        let log = Log::new();
        self.set_up(&*stores[0])?;
        self.let_loose(stores, seed, &log, meanwhile);
        let left = self.finish(&*stores[0], &log)?;
        checks::check(&log.events(), &left, self.skew)
    }

    /// Short times, so that leases expire and jobs die within the run.
    fn set_up(&self, store: &dyn Store) -> Result<(), String> {
        for kind in kinds() {
            let mut settings = Settings::default();
            settings.max_attempts = checks::MAX_ATTEMPTS;
            settings.lease = Duration::from_millis(60);
            let (base, max) = (Duration::from_millis(10), Duration::from_millis(40));
            settings.backoff = Backoff { base, max, jitter_percent: 20 };
            self.insist(|| block_on(store.set(kind.clone(), settings.clone())))?;
        }
        Ok(())
    }

    fn let_loose(
        &self,
        stores: &[Arc<dyn Store>],
        seed: u64,
        log: &Log,
        mut meanwhile: impl FnMut(),
    ) {
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for (number, store) in stores.iter().enumerate() {
                let (mut client, tell) = (Client::new(number, seed, &**store, log), tell.clone());
                scope.spawn(move || {
                    for _ in 0..self.operations {
                        client.step();
                        // Nobody hears it if `meanwhile` panicked.
                        let _ = tell.send(());
                    }
                });
            }
            drop(tell);
            let count = |count: usize| told.iter().take(count).count() == count;
            while count(BETWEEN_FAULTS) {
                meanwhile();
                // What was done during it does not count.
                while told.try_recv().is_ok() {}
            }
        });
    }

    /// Works off all that is there, and answers what is left then: the dead, or what is not done
    /// after so long.
    fn finish(&self, store: &dyn Store, log: &Log) -> Result<Vec<JobView>, String> {
        let began = Instant::now();
        let left = |view: &KindView| view.counts.pending + view.counts.leased > 0;
        while self.work(store, log) || self.insist(|| block_on(store.kinds()))?.iter().any(left) {
            if began.elapsed() > self.patience {
                break;
            }
        }
        let mut all = Vec::new();
        for kind in kinds() {
            let query = Query { limit: 1000, ..Query::new(kind) };
            all.extend(self.insist(|| block_on(store.list(query.clone())))?.jobs);
        }
        Ok(all)
    }

    /// Does what there is to do, or waits for it. Answers whether there was anything.
    fn work(&self, store: &dyn Store, log: &Log) -> bool {
        let lease = Some(Duration::from_secs(1));
        let worker = WorkerName::new("last").expect("a valid name");
        let claim = Claim { kinds: kinds(), max: 100, lease, worker, nonce: 1 };
        let claimed = log.claim(store, claim);
        if claimed.is_empty() {
            if block_on(store.wait(kinds(), BREATH)).is_err() {
                thread::sleep(BREATH);
            }
            return false;
        }
        let ack =
            |job: &ClaimedJob| Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
        // What does not succeed comes back.
        drop(log.settle(store, claimed.iter().map(ack).collect()));
        true
    }

    /// Tries until it is done: faults may not have mended yet.
    fn insist<T, E: ToString>(&self, mut call: impl FnMut() -> Result<T, E>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            match call() {
                Ok(answer) => return Ok(answer),
                Err(error) if began.elapsed() > self.patience => return Err(error.to_string()),
                Err(_) => thread::sleep(BREATH),
            }
        }
    }
}
