//! The master fails, and the sentinels promote its replica.
//!
//! Replication is asynchronous: a replica receives a write some time after the master has confirmed
//! it. So a failover may lose confirmed puts and undo acks. Afterwards the data is consistent, fences
//! increase (as far as the clocks of both servers agree), and clients reconnect by themselves.

use crate::support::{
    claimed, clients, count, ids, insist, is_whole, put, put_all, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_testkit::servers::{RedisServer, Sentinels, until};
use requeue_testkit::{Load, block_on};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// Returns the replication offset: how much a master has sent, or a replica has received.
fn offset(server: &RedisServer, name: &str) -> u64 {
    let info = server.command(&["INFO", "replication"]);
    let text = info.lines().find_map(|line| line.strip_prefix(name)).expect("the field is present");
    text.trim().parse().expect("a number")
}

#[test]
fn clients_continue_after_the_failover_to_a_replica() {
    let mut sentinels = Sentinels::start();
    for seed in 1..=count("REQUEUE_FAILOVERS", 1) {
        let store = clients(&sentinels.url(), 1).remove(0);
        let (confirmed, safe) = Load::run(&store, seed, |load| {
            load.reaches(500);
            let safe = load.confirmed();
            let sent = offset(sentinels.master(), "master_repl_offset:");
            until("the replica has it", || {
                offset(sentinels.replica(), "slave_repl_offset:") >= sent
            });
            load.reaches(100);
            sentinels.kill_master();
            // The clients reconnect by themselves.
            load.reaches(100);
            safe
        });
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        let (lost, back) = (confirmed.lost(&found, &confirmed.claimed), confirmed.back(&found));
        println!(
            "{} put, {} lost, {} acked, {} back",
            confirmed.put.len(),
            lost.len(),
            confirmed.acked.len(),
            back.len()
        );
        assert_eq!(safe.lost(&found, &confirmed.claimed), Vec::<String>::new());
        assert_eq!(safe.back(&found), Vec::<String>::new());

        insist("the new master accepts a put", || try_put(&store, put("last")));
        let jobs = claimed(&store, 1000, LONG).jobs;
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > confirmed.fence));
        sentinels.start_again();
    }
}

#[test]
fn unreplicated_changes_are_lost_completely() {
    let mut sentinels = Sentinels::start();
    let store = clients(&sentinels.url(), 1).remove(0);
    put_all(&store, vec![put("replicated")]);
    let sent = offset(sentinels.master(), "master_repl_offset:");
    until("the replica has it", || offset(sentinels.replica(), "slave_repl_offset:") >= sent);
    // The replica receives nothing more, and the master still accepts writes.
    sentinels.replica().freeze();
    sentinels.master().command(&["CLIENT", "KILL", "TYPE", "replica"]);
    put_all(&store, vec![put("lost")]);
    let lost = claimed(&store, 2, LONG).jobs;
    assert_eq!(lost.len(), 2);
    let fence = lost.iter().map(|job| job.receipt.fence().0).max();
    let replicated =
        lost.iter().find(|job| job.id().as_str() == "replicated").expect("the job was claimed");
    assert_eq!(settle(&store, replicated, Settlement::Ack), Ok(Settled::Done));
    // Otherwise the master would send the changes now.
    sentinels.master().freeze();
    sentinels.replica().thaw();
    sentinels.kill_master();

    let mut found = Vec::new();
    until("the job is claimable again", || {
        found =
            insist("the claim succeeds", || block_on(store.claim(crate::support::claim(2, LONG))))
                .jobs;
        !found.is_empty()
    });
    let [job] = &found[..] else { panic!("{found:?}") };
    assert_eq!(job.id().as_str(), "replicated", "its ack is undone");
    assert!(Some(job.receipt.fence().0) > fence, "{} after {fence:?}", job.receipt);
    // The holders of lost leases get an error.
    for stale in &lost {
        assert!(settle(&store, stale, Settlement::Ack).is_err());
    }
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn clients_leave_a_master_that_becomes_a_replica() {
    let mut sentinels = Sentinels::start();
    let store = clients(&sentinels.url(), 1).remove(0);
    let (confirmed, ()) = Load::run(&store, 1, |load| {
        load.reaches(100);
        // The old master accepts writes until it becomes a replica, and then discards them.
        sentinels.fail_over();
        until("the old master is a replica", || {
            sentinels.replica().command(&["ROLE"]).starts_with("slave")
        });
        load.reaches(100);
    });
    is_whole(&store);
    insist("the job is put", || try_put(&store, put("last")));
    let jobs = claimed(&store, 1000, LONG).jobs;
    assert!(!jobs.is_empty());
    assert!(jobs.iter().all(|job| job.receipt.fence().0 > confirmed.fence));
    let written = sentinels.master().command(&["DBSIZE"]);
    assert_ne!(written, "0");
}
