//! Many concurrent clients in real time, and a check of what they observed.
//!
//! ```text
//!   client 0 ──┤ put ├────┤ claim  ├──┤ ack ├────▶
//!   client 1 ─────┤ claim ├─────┤ put ├──────────▶   then one client alone, until no job is
//!   client 2 ──┤  ack  ├───────────┤ cancel ├────▶   left; then the checks
//!                     ▲ meanwhile: connections are cut, servers are killed
//! ```
//!
//! The order of calls that overlap is unknown: a call takes effect at some time between its start
//! and its result. A call with an unknown outcome may take effect later, or never. So each check
//! finds only what is wrong in every possible order. The seed makes the choices of the clients; how
//! their calls overlap depends on the machine.
//!
//! The checks refer to the invariants by number: see [`checks`]. The invariants of the order of
//! jobs, of counts and of pages are checked by the simulator, where calls do not overlap.

mod checks;
mod client;
mod job_history;
mod log;

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

/// The number of operations between two faults.
const BETWEEN_FAULTS: usize = 40;
/// The time between two attempts of a call that failed.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Runs concurrent clients on a store, and checks what they observed.
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
    /// The number of operations of each client.
    pub operations: usize,
    /// The largest difference between the clock of the store and the one of this process. It must be
    /// more than a millisecond, since both are read in milliseconds.
    pub skew: Duration,
    /// The time in which all jobs must be done after the clients have stopped. It must be longer than
    /// the store takes to recover from the last fault.
    pub patience: Duration,
}

impl Default for Concurrent {
    /// Runs for a second or two, on a store of the same machine.
    fn default() -> Self {
        let (skew, patience) = (Duration::from_millis(2), Duration::from_secs(30));
        Concurrent { operations: 500, skew, patience }
    }
}

impl Concurrent {
    /// Runs one client on each of `stores`, which are handles of one empty store. The error contains
    /// the invariants that are violated.
    ///
    /// While the clients work, `meanwhile` is called from time to time on this thread, to inject a
    /// fault: calls may then fail with [`Unavailable`](requeue_jobs::StoreError::Unavailable) and
    /// [`Unknown`](requeue_jobs::StoreError::Unknown). The store must recover from the fault without
    /// another call of `meanwhile`: it is not called after the clients have stopped.
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
        self.run_clients(stores, seed, &log, meanwhile);
        let left = self.finish(&*stores[0], &log)?;
        checks::check(&log.events(), &left, self.skew)
    }

    /// Sets short times, so that leases expire and jobs die during the run.
    fn set_up(&self, store: &dyn Store) -> Result<(), String> {
        for kind in kinds() {
            let mut settings = Settings::default();
            settings.max_attempts = checks::MAX_ATTEMPTS;
            settings.lease = Duration::from_millis(60);
            let (base, max) = (Duration::from_millis(10), Duration::from_millis(40));
            settings.backoff = Backoff { base, max, jitter_percent: 20 };
            self.retry(|| block_on(store.set(kind.clone(), settings.clone())))?;
        }
        Ok(())
    }

    fn run_clients(
        &self,
        stores: &[Arc<dyn Store>],
        seed: u64,
        log: &Log,
        mut meanwhile: impl FnMut(),
    ) {
        let (sender, done) = mpsc::channel();
        thread::scope(|scope| {
            for (number, store) in stores.iter().enumerate() {
                let mut client = Client::new(number, seed, &**store, log);
                let sender = sender.clone();
                scope.spawn(move || {
                    for _ in 0..self.operations {
                        client.step();
                        // Sending fails if `meanwhile` has panicked.
                        let _ = sender.send(());
                    }
                });
            }
            drop(sender);
            let count = |count: usize| done.iter().take(count).count() == count;
            while count(BETWEEN_FAULTS) {
                meanwhile();
                // Operations during the fault do not count.
                while done.try_recv().is_ok() {}
            }
        });
    }

    /// Does all jobs, and returns those that are left: the dead ones, and those that are not done in
    /// time.
    fn finish(&self, store: &dyn Store, log: &Log) -> Result<Vec<JobView>, String> {
        let began = Instant::now();
        let is_left = |view: &KindView| view.counts.pending + view.counts.leased > 0;
        while self.work(store, log) || self.retry(|| block_on(store.kinds()))?.iter().any(is_left) {
            if began.elapsed() > self.patience {
                break;
            }
        }
        let mut all = Vec::new();
        for kind in kinds() {
            let query = Query { limit: 1000, ..Query::new(kind) };
            all.extend(self.retry(|| block_on(store.list(query.clone())))?.jobs);
        }
        Ok(all)
    }

    /// Claims and acks jobs, or waits for them. Returns whether there were any.
    fn work(&self, store: &dyn Store, log: &Log) -> bool {
        let lease = Some(Duration::from_secs(1));
        let worker = WorkerName::new("last").expect("a valid name");
        let claim = Claim { kinds: kinds(), max: 100, lease, worker, nonce: 1 };
        let claimed = log.claim(store, claim);
        if claimed.is_empty() {
            if block_on(store.wait(kinds(), RETRY_DELAY)).is_err() {
                thread::sleep(RETRY_DELAY);
            }
            return false;
        }
        let ack =
            |job: &ClaimedJob| Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
        // A job whose ack fails is delivered again.
        drop(log.settle(store, claimed.iter().map(ack).collect()));
        true
    }

    /// Repeats a call until it succeeds: the store may not have recovered yet.
    fn retry<T, E: ToString>(&self, mut call: impl FnMut() -> Result<T, E>) -> Result<T, String> {
        let began = Instant::now();
        loop {
            match call() {
                Ok(result) => return Ok(result),
                Err(error) if began.elapsed() > self.patience => return Err(error.to_string()),
                Err(_) => thread::sleep(RETRY_DELAY),
            }
        }
    }
}
