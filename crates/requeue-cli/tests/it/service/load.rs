//! Clients that put, claim and ack concurrently, and record the results.

use super::node::{KIND, LONG, block_on, read};
use crate::support::until;
use requeue_http::HttpStore;
use requeue_http::client::CallError;
use requeue_jobs::{
    Body, ClaimedJob, JobId, JobState, JobView, Kind, Put, Query, Receipt, Settle, SettleError,
    Settled, Settlement, Store, StoreError,
};
use requeue_testkit::Random;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The recorded results. No id is put twice.
#[derive(Debug, Default)]
struct Records {
    put: BTreeSet<String>,
    /// Claimed and not acked yet.
    held: BTreeMap<String, Receipt>,
    /// Ack without a response: they may or may not be acked.
    unclear: BTreeMap<String, Receipt>,
    /// Each with the number of jobs that were acked before it.
    acked: BTreeMap<String, usize>,
    /// The fence of every lease that a client got.
    fences: BTreeSet<u64>,
    /// Violations of the contract.
    violations: Vec<String>,
}

/// A load of concurrent clients, with leases of this length.
pub(crate) struct Load {
    lease: Duration,
    notes: Mutex<Records>,
    is_over: AtomicBool,
    next: AtomicU64,
}

impl Load {
    pub(crate) fn new(lease: Duration) -> Self {
        let (notes, is_over, next) = (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
        Load { lease, notes, is_over, next }
    }

    /// Runs two producers and four workers on each store until `meanwhile` returns. A client that
    /// gets an error stops.
    pub(crate) fn run(&self, stores: &[&HttpStore], seed: u64, meanwhile: impl FnOnce()) {
        self.is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            for (number, &store) in stores.iter().enumerate() {
                let seed = seed.wrapping_mul(31).wrapping_add(number as u64);
                scope.spawn(move || self.produce(store, Random::new(seed)));
                scope.spawn(move || self.produce(store, Random::new(!seed)));
                for worker in 0..4 {
                    scope.spawn(move || self.work(store, Random::new(seed ^ worker)));
                }
            }
            // Also stops the clients if the test panics: otherwise they would run for ever.
            let _stop = StopClients(&self.is_over);
            meanwhile();
        });
    }

    /// Waits until `more` jobs were put since the call, and some acked.
    pub(crate) fn reaches(&self, more: usize) {
        let count = || self.note(|notes| (notes.put.len(), notes.acked.len()));
        let (put, acked) = count();
        until("the load", || {
            let now = count();
            (now.0 >= put + more && now.1 > acked).then_some(())
        });
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn note<T>(&self, note: impl FnOnce(&mut Records) -> T) -> T {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn produce(&self, store: &HttpStore, mut random: Random) {
        while self.is_running() {
            let id = |_| self.next.fetch_add(1, Ordering::Relaxed).to_string();
            let ids: Vec<String> = (0..=random.below(5)).map(id).collect();
            let put = |id: &String| {
                let (id, body) = (JobId::new(id.as_str()), Body::octets(id.as_bytes()));
                Put::new(kind(), id.expect("a valid id"), body.expect("a small body"))
            };
            let Ok(placed) = block_on(store.put(ids.iter().map(put).collect())) else { return };
            let placed = ids.into_iter().zip(placed).filter(|(_, placed)| placed.is_ok());
            self.note(|notes| notes.put.extend(placed.map(|(id, _)| id)));
        }
    }

    fn work(&self, store: &HttpStore, mut random: Random) {
        while self.is_running() {
            let Ok(jobs) = self.claim(store, "1s") else { return };
            for job in jobs {
                // Some jobs stay claimed for long.
                if !random.chance(10) && self.ack(store, &job.receipt).is_err() {
                    return;
                }
            }
        }
    }

    fn claim(&self, store: &HttpStore, wait: &str) -> Result<Vec<ClaimedJob>, CallError> {
        let lease = format!("{}s", self.lease.as_secs());
        let request =
            json!({ "kinds": [KIND], "worker": "w", "max": 3, "lease": lease, "wait": wait });
        let acked = self.note(|notes| notes.acked.len());
        let jobs = read(block_on(store.call("POST", "/v1/claim", Some(&request)))?);
        self.note(|notes| {
            for job in &jobs {
                let id = job.id().as_str();
                if notes.acked.get(id).is_some_and(|&before| before < acked) {
                    notes.violations.push(format!("{id} was acked, and then claimed"));
                }
                let fence = job.receipt.fence().0;
                if !notes.fences.insert(fence) {
                    notes.violations.push(format!("{id} has the fence {fence} of another lease"));
                }
                let taken = notes.held.insert(id.to_owned(), job.receipt.clone()).is_some();
                if self.lease == LONG && (taken || notes.unclear.contains_key(id)) {
                    notes.violations.push(format!("{id} was claimed twice"));
                }
                if self.lease == LONG && job.attempt != 1 {
                    notes.violations.push(format!("{id} is in attempt {}", job.attempt));
                }
            }
        });
        Ok(jobs)
    }

    fn ack(&self, store: &HttpStore, receipt: &Receipt) -> Result<(), StoreError> {
        let id = receipt.id().as_str().to_owned();
        let settle = Settle { receipt: receipt.clone(), action: Settlement::Ack };
        let settled = block_on(store.settle(vec![settle])).map(|mut settled| settled.remove(0));
        self.note(|notes| {
            let held = notes.held.get(&id) == Some(receipt);
            match settled {
                Ok(Ok(Settled::Done)) => {
                    notes.acked.insert(id.clone(), notes.acked.len());
                    notes.unclear.remove(&id);
                    notes.held.remove(&id);
                }
                // The lease expired: another worker has the job, or will.
                Ok(Err(SettleError::LeaseLost { .. })) if self.lease != LONG => {
                    if held {
                        notes.held.remove(&id);
                    }
                }
                // The first ack may have been done.
                Ok(Err(SettleError::LeaseLost { .. })) if notes.unclear.contains_key(&id) => {}
                Ok(Ok(other)) => notes.violations.push(format!("{id} was acked, and is {other:?}")),
                Ok(Err(SettleError::Store(error))) | Err(error) => {
                    notes.held.remove(&id);
                    notes.unclear.insert(id, receipt.clone());
                    return Err(error);
                }
                Ok(Err(error)) => notes.violations.push(format!("{id} was held, and {error}")),
            }
            Ok(())
        })
    }

    /// Checks that every leased job was delivered to a client, and that every client can still ack
    /// its jobs.
    pub(crate) fn holders_are_known(&self, store: &HttpStore) {
        let leased = list(store).into_iter().filter(|job| job.state == JobState::Leased);
        let leased: BTreeSet<String> = leased.map(|job| job.id.as_str().to_owned()).collect();
        let (held, unclear) = self.note(|notes| (notes.held.clone(), notes.unclear.clone()));
        let released: Vec<_> = held.keys().filter(|id| !leased.contains(*id)).collect();
        assert_eq!(released, Vec::<&String>::new(), "held by a client, but not leased");
        let known = |id: &&String| held.contains_key(*id) || unclear.contains_key(*id);
        let unknown: Vec<_> = leased.iter().filter(|id| !known(id)).collect();
        assert_eq!(unknown, Vec::<&String>::new(), "leased, but not delivered to a client");
        for receipt in held.values().chain(unclear.values()) {
            self.ack(store, receipt).expect("it answers");
        }
    }

    /// Works until no job is left, and checks that all jobs that were put have been acked.
    pub(crate) fn ends_well(self, store: &HttpStore) {
        until("the end of all jobs", || {
            let jobs = self.claim(store, "0s").expect("it answers");
            for job in &jobs {
                self.ack(store, &job.receipt).expect("it answers");
            }
            (jobs.is_empty() && list(store).is_empty()).then_some(())
        });
        let notes = self.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (put, acked, unclear) = (notes.put.len(), notes.acked.len(), notes.unclear.len());
        println!("{put} put, {acked} acked, {unclear} unclear");
        assert_eq!(notes.violations, Vec::<String>::new());
        let done = |id: &&String| notes.acked.contains_key(*id) || notes.unclear.contains_key(*id);
        let lost: Vec<_> = notes.put.iter().filter(|id| !done(id)).collect();
        assert_eq!(lost, Vec::<&String>::new(), "put, but lost");
    }
}

/// Stops the clients on drop.
struct StopClients<'a>(&'a AtomicBool);

impl Drop for StopClients<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kind() -> Kind {
    Kind::new(KIND).expect("a valid kind")
}

/// All jobs of the kind.
pub(crate) fn list(store: &HttpStore) -> Vec<JobView> {
    let mut query = Query { limit: 1000, ..Query::new(kind()) };
    let mut jobs = Vec::new();
    loop {
        let page = block_on(store.list(query.clone())).expect("it answers");
        jobs.extend(page.jobs);
        match page.cursor {
            None => return jobs,
            cursor => query.after = cursor,
        }
    }
}
