//! Batches about the same jobs in different orders never wait for each other in a circle.

use crate::support::{LONG, claim, clients, id, is_whole, kind, put};
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Put, PutError, Settle, SettleError, Settlement, Store,
    StoreError,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, until};
use requeue_testkit::{Random, block_on, check_seeds};
use std::thread;
use std::time::Duration;

const CLIENTS: u64 = 6;
const BATCHES: usize = 150;
/// So few that batches overlap, and that jobs are removed and created again all the time.
const JOBS: usize = 10;

fn names(random: &mut Random) -> Vec<String> {
    (0..JOBS).map(|_| format!("job-{}", random.below(JOBS))).collect()
}

fn distinct(random: &mut Random) -> Vec<String> {
    let mut names = names(random);
    names.sort_by_cached_key(|_| random.number());
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// A call waits at most a second for jobs that others have locked. On a busy machine, others may need longer.
fn is_locked(error: &StoreError) -> bool {
    error.to_string().contains("another transaction has locked job")
}

/// Puts, claims, settles and changes jobs in batches. No call may fail, unless its job is locked for long.
fn work(store: &PostgresStore, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..BATCHES {
        match random.below(5) {
            0 | 1 => {
                let puts: Vec<Put> = distinct(&mut random).iter().map(|name| put(name)).collect();
                for placed in block_on(store.put(puts)).expect("the server is up") {
                    let is_fine = match &placed {
                        Ok(_) => true,
                        Err(PutError::Store(error)) => is_locked(error),
                        Err(_) => false,
                    };
                    assert!(is_fine, "{placed:?}");
                }
            }
            2 => {
                let action = random.pick(&[ChangeKind::Cancel, ChangeKind::RunNow]).clone();
                let change =
                    |name: String| Change { kind: kind(), id: id(&name), action: action.clone() };
                let changes = names(&mut random).into_iter().map(change).collect();
                for changed in block_on(store.change(changes)).expect("the server is up") {
                    let failed =
                        matches!(&changed, Err(ChangeError::Store(error)) if !is_locked(error));
                    assert!(!failed, "{changed:?}");
                }
            }
            _ => {
                let lease = Duration::from_millis(20);
                let lease = if random.chance(30) { lease } else { LONG };
                let claimed = block_on(store.claim(claim(JOBS, lease))).expect("the server is up");
                assert_eq!(claimed.errors, []);
                let mut settlements: Vec<Settle> = claimed
                    .jobs
                    .into_iter()
                    .map(|job| {
                        let retry =
                            Settlement::Retry { delay: Some(Duration::ZERO), error: String::new() };
                        let action = random
                            .pick(&[
                                Settlement::Ack,
                                Settlement::Ack,
                                Settlement::Extend(None),
                                Settlement::Release,
                                retry,
                            ])
                            .clone();
                        Settle { receipt: job.receipt, action }
                    })
                    .collect();
                settlements.sort_by_cached_key(|_| random.number());
                // An extension does not wait for others.
                let may_fail = |settle: &Settle| settle.action == Settlement::Extend(None);
                let may_fail: Vec<bool> = settlements.iter().map(may_fail).collect();
                if !settlements.is_empty() {
                    let settled = block_on(store.settle(settlements)).expect("the server is up");
                    for (settled, may_fail) in settled.iter().zip(may_fail) {
                        let failed =
                            matches!(settled, Err(SettleError::Store(error)) if !is_locked(error));
                        assert!(may_fail || !failed, "{settled:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn batches_about_the_same_jobs_in_different_orders_do_not_deadlock() {
    check_seeds(&[], "REQUEUE_DEADLOCKS", 1, |seed| {
        for version in PostgresVersion::all() {
            // A circle is found soon.
            let server = PostgresServer::with(&version, &["-c", "deadlock_timeout=20ms"]);
            let stores = clients(&server.url(), CLIENTS as usize);
            thread::scope(|scope| {
                for (store, n) in stores.iter().zip(0..) {
                    scope.spawn(move || work(store, seed * CLIENTS + n));
                }
            });
            is_whole(&stores[0]);
            drop(stores);
            let sessions =
                "select count(*) from pg_stat_activity where application_name = 'requeue'";
            until("the sessions have ended", || server.query(sessions) == "0");
            let deadlocks = server.query("select sum(deadlocks) from pg_stat_database");
            assert_eq!(deadlocks, "0", "{}", server.log());
        }
        Ok(())
    });
}
