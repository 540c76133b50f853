//! The primary fails, and its replica is promoted. Clients know both servers.
//!
//! If commits wait for the replica, no confirmed write is lost. If not, the latest ones may be lost, but what is assigned
//! afterwards is higher than everything that was assigned before.

use crate::support::{
    LONG, claim, claimed, connect, fresh, ids, insist, is_whole, kind, kind_named, put, put_all,
    put_of, settle, try_put,
};
use requeue_jobs::{SettleError, Settled, Settlement, Store};
use requeue_postgres::PostgresStore;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, Replication, until};
use requeue_testkit::{Load, block_on, check_seeds};
use std::collections::BTreeSet;
use std::time::Duration;

fn url(servers: [&PostgresServer; 2]) -> String {
    let [first, second] = servers.map(|server| server.address());
    format!("postgres://requeue@{first},{second}/requeue?target_session_attrs=read-write")
}

/// Returns the seeds with a version for each.
fn version(seed: u64) -> PostgresVersion {
    PostgresVersion::all()[seed as usize % 2].clone()
}

#[test]
fn a_failover_to_a_synchronous_replica_loses_no_confirmed_write() {
    check_seeds(&[], "REQUEUE_FAILOVERS", 2, |seed| {
        let mut primary = PostgresServer::with(&version(seed), &[]);
        let replica = primary.replica(Replication::Synchronous);
        let store = connect(&url([&primary, &replica]), fresh());
        let (confirmed, ()) = Load::run(&store, seed, |load| {
            load.reaches(100);
            primary.kill();
            replica.promote();
            // The clients reconnect by themselves.
            load.reaches(100);
        });
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        assert_eq!(confirmed.lost(&found, &confirmed.claimed), Vec::<String>::new());
        assert_eq!(confirmed.back(&found), Vec::<String>::new());
        let last = try_put(&store, put("last")).expect("the server is up");
        assert!(last.generation.0 > confirmed.generation);
        let jobs = claimed(&store, 1000, LONG).jobs;
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > confirmed.fence));
        Ok(())
    });
}

/// Stops replication: the replica receives nothing more, and the primary still accepts writes.
fn part(primary: &PostgresServer, replica: &PostgresServer) {
    replica.wait_caught_up(primary);
    replica.freeze();
    primary.query("select pg_terminate_backend(pid) from pg_stat_replication");
    until("nothing is sent", || primary.query("select count(*) from pg_stat_replication") == "0");
}

#[test]
fn after_a_failover_that_lost_writes_all_numbers_are_higher_than_before() {
    for version in PostgresVersion::all() {
        let mut primary = PostgresServer::with(&version, &[]);
        let replica = primary.replica(Replication::Asynchronous);
        let store = connect(&url([&primary, &replica]), fresh());
        put_all(&store, ["held", "acked", "claimed"].map(put).into());
        let held = claimed(&store, 2, LONG).jobs;
        let [held, acked] = &held[..] else { panic!("{held:?}") };
        part(&primary, &replica);

        // All of this is lost.
        assert_eq!(settle(&store, acked, Settlement::Ack), Ok(Settled::Done));
        let lost = claimed(&store, 1, LONG).jobs.remove(0);
        let lost_kind = kind_named("lost-kind");
        put_all(&store, (0..100).map(|n| put(&format!("lost-{n}"))).collect());
        let of_kind = try_put(&store, put_of(&lost_kind, "lost")).expect("the server is up");
        let placed = try_put(&store, put("lost")).expect("the server is up");
        let fences = claimed(&store, 50, LONG).jobs.into_iter().map(|job| job.receipt.fence().0);
        let fence = fences.max().expect("jobs are due");
        primary.kill();
        replica.thaw();
        replica.promote();

        insist("the store has reconnected", || block_on(store.kinds()));
        is_whole(&store);
        assert_eq!(ids(&store), ["acked", "claimed", "held"], "the ack is undone");
        // Another kind does not get the number that this process knows of the lost one.
        let other = kind_named("other-kind");
        insist("a kind is created", || try_put(&store, put_of(&other, "a")));
        let again =
            insist("the kind is created again", || try_put(&store, put_of(&lost_kind, "lost")));
        assert!(again.generation > of_kind.generation, "{again:?} after {of_kind:?}");
        let views = block_on(store.kinds()).expect("the server is up");
        let counts: Vec<_> =
            views.iter().map(|view| (view.kind.as_str(), view.counts.pending)).collect();
        assert_eq!(counts, [("lost-kind", 1), ("mail", 1), ("other-kind", 1)]);

        let again = try_put(&store, put("lost")).expect("the server is up");
        assert!(again.generation > placed.generation, "{again:?} after {placed:?}");
        // The lease that was replicated is still valid, and the lost one is not.
        assert_eq!(settle(&store, held, Settlement::Ack), Ok(Settled::Done));
        let refused = settle(&store, &lost, Settlement::Ack);
        assert!(matches!(refused, Err(SettleError::LeaseLost { .. })), "{refused:?}");
        let jobs = claimed(&store, 100, LONG).jobs;
        assert_eq!(jobs.len(), 2, "the claimed job, and the one that was put again");
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > fence), "{jobs:?} after {fence}");
        is_whole(&store);
    }
}

#[test]
fn clients_leave_a_primary_that_hangs() {
    let primary = PostgresServer::start();
    let replica = primary.replica(Replication::Asynchronous);
    let mut options = fresh();
    // Creates the tables.
    drop(connect(&primary.url(), options.clone()));
    options.listen = true;
    options.connect_timeout = Duration::from_secs(1);
    options.response_timeout = Duration::from_secs(1);
    let store = insist("it connects", || {
        block_on(PostgresStore::connect_with(&url([&primary, &replica]), options.clone()))
    });
    insist("the job is put", || try_put(&store, put("before")));
    replica.wait_caught_up(&primary);
    primary.freeze();
    replica.promote();
    insist("the store uses the other server", || try_put(&store, put("after")));
    assert_eq!(insist("it is read", || block_on(store.kind(kind()))).counts.pending, 2);
    let found = insist("it claims", || block_on(store.claim(claim(2, LONG))));
    assert_eq!(found.jobs.len(), 2);
    is_whole(&store);
    primary.thaw();
}
