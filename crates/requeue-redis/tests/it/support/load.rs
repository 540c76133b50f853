//! Clients that put and ack, and keep what they were answered.

use super::{claim, kind, put, settle};
use requeue_jobs::{Settlement, Store};
use requeue_redis::RedisStore;
use requeue_testkit::servers::until;
use requeue_testkit::{Random, block_on};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What has to be there, and what not. No id is put twice.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answered {
    pub(crate) put: BTreeSet<String>,
    /// Somebody was about to ack these.
    pub(crate) claimed: BTreeSet<String>,
    pub(crate) acked: BTreeSet<String>,
    /// The highest.
    pub(crate) fence: u64,
}

impl Answered {
    /// Those that were put and are not there, though nobody can have acked them.
    pub(crate) fn lost(&self, found: &BTreeSet<String>, claimed: &BTreeSet<String>) -> Vec<String> {
        let missing = self.put.iter().filter(|id| !found.contains(*id) && !claimed.contains(*id));
        missing.cloned().collect()
    }

    /// Those that were acked and are there.
    pub(crate) fn back(&self, found: &BTreeSet<String>) -> Vec<String> {
        self.acked.intersection(found).cloned().collect()
    }
}

/// Clients at work: two that put, and one that acks less than they put.
pub(crate) struct Load {
    answered: Mutex<Answered>,
    is_over: AtomicBool,
}

impl Load {
    /// Lets them work until `meanwhile` returns. What fails is not done again.
    pub(crate) fn run<T>(
        store: &RedisStore,
        seed: u64,
        meanwhile: impl FnOnce(&Load) -> T,
    ) -> (Answered, T) {
        let load = Load { answered: Mutex::default(), is_over: AtomicBool::new(false) };
        let told = thread::scope(|scope| {
            let load = &load;
            for producer in 0..2 {
                scope.spawn(move || load.produce(store, producer, seed));
            }
            scope.spawn(move || load.work(store));
            let ends = End(&load.is_over);
            let told = meanwhile(load);
            drop(ends);
            told
        });
        (load.answered(), told)
    }

    pub(crate) fn answered(&self) -> Answered {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many more were put and acked.
    pub(crate) fn reaches(&self, more: usize) {
        let before = self.answered();
        until("the load goes on", || {
            let now = self.answered();
            now.put.len() >= before.put.len() + more && now.acked.len() > before.acked.len()
        });
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn note(&self, note: impl FnOnce(&mut Answered)) {
        note(&mut self.answered.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn produce(&self, store: &RedisStore, producer: u64, seed: u64) {
        let mut random = Random::new(seed ^ producer);
        let mut number = 0;
        while self.goes_on() {
            let name = |n| format!("{producer}-{n}");
            let ids: Vec<String> = (number..=number + random.below(10)).map(name).collect();
            number += ids.len();
            if let Ok(placed) = block_on(store.put(ids.iter().map(|id| put(id)).collect())) {
                let placed = ids.into_iter().zip(placed).filter(|(_, placed)| placed.is_ok());
                self.note(|answered| answered.put.extend(placed.map(|(id, _)| id)));
            }
        }
    }

    fn work(&self, store: &RedisStore) {
        while self.goes_on() {
            let Ok(claimed) = block_on(store.claim(claim(3, Duration::from_secs(3600)))) else {
                continue;
            };
            for job in claimed.jobs {
                let id = job.id().as_str().to_owned();
                self.note(|answered| {
                    answered.claimed.insert(id.clone());
                    answered.fence = answered.fence.max(job.receipt.fence().0);
                });
                if settle(store, &job, Settlement::Ack).is_ok() {
                    self.note(|answered| answered.acked.extend([id]));
                }
            }
            // A store that is away is not asked all the time.
            if !claimed.errors.is_empty() {
                let _ = block_on(store.wait(vec![kind()], Duration::from_millis(10)));
            }
        }
    }
}

/// Also where the test panics: the clients would go on for ever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
