//! The master goes down, and sentinels make its replica master.
//!
//! What is promised: a replica gets what its master did some time after that was answered. So
//! answered puts may vanish in a failover, and acks be undone. What is there afterwards is whole,
//! fences rise (as far as the clocks of the two agree), and clients go on by themselves.

use crate::support::load::Load;
use crate::support::{
    claimed, clients, count, ids, insist, is_whole, put, put_all, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_testkit::block_on;
use requeue_testkit::servers::{RedisServer, Sentinels, until};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// How much a master has sent, or a replica has got.
fn offset(server: &RedisServer, name: &str) -> u64 {
    let info = server.command(&["INFO", "replication"]);
    let text = info.lines().find_map(|line| line.strip_prefix(name)).expect("it tells");
    text.trim().parse().expect("a number")
}

#[test]
fn clients_go_on_with_the_replica_of_a_master_that_is_gone() {
    let mut sentinels = Sentinels::start();
    for seed in 1..=count("REQUEUE_FAILOVERS", 1) {
        let store = clients(&sentinels.url(), 1).remove(0);
        let (answered, safe) = Load::run(&store, seed, |load| {
            load.reaches(500);
            let safe = load.answered();
            let sent = offset(sentinels.master(), "master_repl_offset:");
            until("the replica has it", || {
                offset(sentinels.replica(), "slave_repl_offset:") >= sent
            });
            load.reaches(100);
            sentinels.kill_master();
            // By themselves.
            load.reaches(100);
            safe
        });
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        let (lost, back) = (answered.lost(&found, &answered.claimed), answered.back(&found));
        println!(
            "{} put, {} lost, {} acked, {} back",
            answered.put.len(),
            lost.len(),
            answered.acked.len(),
            back.len()
        );
        assert_eq!(safe.lost(&found, &answered.claimed), Vec::<String>::new());
        assert_eq!(safe.back(&found), Vec::<String>::new());

        insist("it is there again", || try_put(&store, put("last")));
        let jobs = claimed(&store, 1000, LONG).jobs;
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > answered.fence));
        sentinels.start_again();
    }
}

#[test]
fn what_a_master_had_not_told_its_replica_is_lost_whole() {
    let mut sentinels = Sentinels::start();
    let store = clients(&sentinels.url(), 1).remove(0);
    put_all(&store, vec![put("told")]);
    let sent = offset(sentinels.master(), "master_repl_offset:");
    until("the replica has it", || offset(sentinels.replica(), "slave_repl_offset:") >= sent);
    // It hears no more, and the master does not mind.
    sentinels.replica().freeze();
    sentinels.master().command(&["CLIENT", "KILL", "TYPE", "replica"]);
    put_all(&store, vec![put("lost")]);
    let lost = claimed(&store, 2, LONG).jobs;
    assert_eq!(lost.len(), 2);
    let fence = lost.iter().map(|job| job.receipt.fence().0).max();
    let told = lost.iter().find(|job| job.id().as_str() == "told").expect("it was there");
    assert_eq!(settle(&store, told, Settlement::Ack), Ok(Settled::Done));
    // Otherwise it would tell it now.
    sentinels.master().freeze();
    sentinels.replica().thaw();
    sentinels.kill_master();

    let mut found = Vec::new();
    until("it is there again", || {
        found =
            insist("it is answered", || block_on(store.claim(crate::support::claim(2, LONG)))).jobs;
        !found.is_empty()
    });
    let [job] = &found[..] else { panic!("{found:?}") };
    assert_eq!(job.id().as_str(), "told", "its ack is undone");
    assert!(Some(job.receipt.fence().0) > fence, "{} after {fence:?}", job.receipt);
    // Who held what is lost is told so.
    for stale in &lost {
        assert!(settle(&store, stale, Settlement::Ack).is_err());
    }
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn clients_leave_a_master_that_is_made_a_replica() {
    let mut sentinels = Sentinels::start();
    let store = clients(&sentinels.url(), 1).remove(0);
    let (answered, ()) = Load::run(&store, 1, |load| {
        load.reaches(100);
        // The old one takes writes until it is told, and forgets them then.
        sentinels.fail_over();
        until("the old one is a replica", || {
            sentinels.replica().command(&["ROLE"]).starts_with("slave")
        });
        load.reaches(100);
    });
    is_whole(&store);
    insist("it is there", || try_put(&store, put("last")));
    let jobs = claimed(&store, 1000, LONG).jobs;
    assert!(!jobs.is_empty());
    assert!(jobs.iter().all(|job| job.receipt.fence().0 > answered.fence));
    let written = sentinels.master().command(&["DBSIZE"]);
    assert_ne!(written, "0");
}
