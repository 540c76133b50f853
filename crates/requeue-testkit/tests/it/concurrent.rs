//! Concurrent clients on the memory store.

use requeue_jobs::{MemoryStore, Store};
use requeue_testkit::{Concurrent, Fault, Faulty, check_seeds};
use std::sync::Arc;

const CLIENTS: usize = 4;

#[test]
fn the_memory_store_keeps_all_invariants() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 3, |seed| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Concurrent::default().check(&vec![store; CLIENTS], seed, || ())
    });
}

#[test]
fn refused_calls_and_lost_replies_violate_no_invariant() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 3, |seed| {
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.by_chance(seed, 20, &[Fault::Refused, Fault::LostReply]);
        let store: Arc<dyn Store> = Arc::new(store);
        Concurrent::default().check(&vec![store; CLIENTS], seed, || ())
    });
}

#[test]
fn faults_are_injected_only_while_clients_work() {
    let memory = Arc::new(MemoryStore::new());
    let stores: Vec<_> = (0..CLIENTS).map(|_| Arc::new(Faulty::new(memory.clone()))).collect();
    let clients: Vec<Arc<dyn Store>> = stores.iter().map(|store| store.clone() as _).collect();
    let (mut times, mut crashed) = (0, 0);
    let crash = || {
        stores[crashed].restart();
        // The first client is needed at the end, and nothing would restart it then.
        (times, crashed) = (times + 1, 1 + times % (CLIENTS - 1));
        stores[crashed].at(1, Fault::CrashAfter);
    };
    let run = Concurrent::default();
    assert_eq!(run.check(&clients, 7, crash), Ok(()));
    assert!((1..CLIENTS * run.operations).contains(&times), "{times}");
}
