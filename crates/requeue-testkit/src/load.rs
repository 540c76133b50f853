//! Clients that put and ack jobs of the kind `mail`, and record the confirmed calls.

use crate::fixture::block_on;
use crate::random::Random;
use crate::servers::until;
use requeue_jobs::{Body, Claim, JobId, Kind, Put, Settle, Settlement, Store, WorkerName};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The confirmed calls. No id is put twice.
#[derive(Debug, Default, Clone)]
pub struct Confirmed {
    /// The ids of jobs that were put.
    pub put: BTreeSet<String>,
    /// Claimed jobs, whose acks may or may not have run.
    pub claimed: BTreeSet<String>,
    /// The ids of jobs that were acked.
    pub acked: BTreeSet<String>,
    /// The highest fence.
    pub fence: u64,
    /// The highest generation.
    pub generation: u64,
}

impl Confirmed {
    /// Returns the jobs that were put and are missing, although they cannot have been acked.
    pub fn lost(&self, found: &BTreeSet<String>, claimed: &BTreeSet<String>) -> Vec<String> {
        let missing = self.put.iter().filter(|id| !found.contains(*id) && !claimed.contains(*id));
        missing.cloned().collect()
    }

    /// Returns the jobs that were acked and still exist.
    pub fn back(&self, found: &BTreeSet<String>) -> Vec<String> {
        self.acked.intersection(found).cloned().collect()
    }
}

/// Running clients: two that put, and one that acks less than they put.
pub struct Load {
    confirmed: Mutex<Confirmed>,
    is_over: AtomicBool,
}

/// The kind of all jobs.
fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

fn put(id: &str) -> Put {
    let body = Body::octets(*b"hello").expect("small");
    Put::new(kind(), JobId::new(id).expect("a valid id"), body)
}

fn claim() -> Claim {
    let worker = WorkerName::new("worker").expect("a valid name");
    let (lease, nonce) = (Duration::from_secs(3600), RandomState::new().hash_one(()));
    Claim { kinds: vec![kind()], max: 3, lease: Some(lease), worker, nonce }
}

impl Load {
    /// Runs the clients until `meanwhile` returns. Failed calls are not repeated.
    pub fn run<T>(
        store: &dyn Store,
        seed: u64,
        meanwhile: impl FnOnce(&Load) -> T,
    ) -> (Confirmed, T) {
        let load = Load { confirmed: Mutex::default(), is_over: AtomicBool::new(false) };
        let result = thread::scope(|scope| {
            let load = &load;
            for producer in 0..2 {
                scope.spawn(move || load.produce(store, producer, seed));
            }
            scope.spawn(move || load.work(store));
            let ends = End(&load.is_over);
            let result = meanwhile(load);
            drop(ends);
            result
        });
        (load.confirmed(), result)
    }

    /// Returns what is confirmed so far.
    pub fn confirmed(&self) -> Confirmed {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `more` further puts, and at least one further ack, are confirmed.
    pub fn reaches(&self, more: usize) {
        let before = self.confirmed();
        until("the clients make progress", || {
            let now = self.confirmed();
            now.put.len() >= before.put.len() + more && now.acked.len() > before.acked.len()
        });
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn record(&self, record: impl FnOnce(&mut Confirmed)) {
        record(&mut self.confirmed.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn produce(&self, store: &dyn Store, producer: u64, seed: u64) {
        let mut random = Random::new(seed ^ producer);
        let mut number = 0;
        while self.is_running() {
            let name = |n| format!("{producer}-{n}");
            let ids: Vec<String> = (number..=number + random.below(10)).map(name).collect();
            number += ids.len();
            if let Ok(placed) = block_on(store.put(ids.iter().map(|id| put(id)).collect())) {
                let placed = ids.into_iter().zip(placed);
                let placed =
                    placed.filter_map(|(id, placed)| Some((id, placed.ok()?.generation.0)));
                self.record(|confirmed| {
                    for (id, generation) in placed {
                        confirmed.put.insert(id);
                        confirmed.generation = confirmed.generation.max(generation);
                    }
                });
            }
        }
    }

    fn work(&self, store: &dyn Store) {
        while self.is_running() {
            let Ok(claimed) = block_on(store.claim(claim())) else {
                continue;
            };
            for job in claimed.jobs {
                let id = job.id().as_str().to_owned();
                self.record(|confirmed| {
                    confirmed.claimed.insert(id.clone());
                    confirmed.fence = confirmed.fence.max(job.receipt.fence().0);
                });
                let ack = Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
                let acked = block_on(store.settle(vec![ack]));
                if acked.is_ok_and(|results| results.iter().all(Result::is_ok)) {
                    self.record(|confirmed| confirmed.acked.extend([id]));
                }
            }
            // Pauses while the store is not available.
            if !claimed.errors.is_empty() {
                let _ = block_on(store.wait(vec![kind()], Duration::from_millis(10)));
            }
        }
    }
}

/// Stops the clients on drop, also if the test panics. Otherwise they would run forever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
