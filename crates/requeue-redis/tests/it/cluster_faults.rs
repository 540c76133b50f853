//! Migrations and failovers of a Cluster under load.
//!
//! While a slot migrates, its kinds are not accessible: calls wait, and fail if that takes too long.
//! Nothing is lost by a migration, nor by a manual failover from a live master. If a master dies, its
//! replica may lack writes that were confirmed, as with Sentinel.

use crate::support::{
    as_stores, claimed, clients, connect, fresh, ids, insist, is_whole, kind, put, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_testkit::servers::{RedisCluster, RedisServer};
use requeue_testkit::{Concurrent, Load, Random, block_on, check_seeds};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn migrating_slots_under_load_loses_nothing() {
    check_seeds(&[], "REQUEUE_MOVES", 1, |seed| {
        let cluster = RedisCluster::start(3, 0);
        let options = fresh();
        let clients: Vec<_> = (0..4).map(|_| connect(&cluster.url(), options.clone())).collect();
        let (mut random, mut moves) = (Random::new(seed), 0);
        Concurrent::default().check(&as_stores(&clients), seed, || {
            let kinds = block_on(clients[0].kinds()).unwrap_or_default();
            let mut tags: Vec<String> =
                kinds.iter().map(|view| format!("{}:{}", options.prefix, view.kind)).collect();
            // The tag of the deployment, which every list of kinds reads.
            tags.push(options.prefix.clone());
            let slot = cluster.slot(&tags[random.below(tags.len())]);
            cluster.move_slot(slot, (cluster.owner(slot) + 1) % 3);
            moves += 1;
        })?;
        is_whole(&clients[0]);
        assert!(moves > 0);
        Ok(())
    });
}

#[test]
fn while_a_slot_migrates_calls_fail_without_partial_effects() {
    let cluster = RedisCluster::start(3, 0);
    let mut options = fresh();
    options.response_timeout = Duration::from_millis(300);
    let slot = cluster.slot(&format!("{}:{}", options.prefix, kind()));
    let to = (cluster.owner(slot) + 1) % 3;
    let store = connect(&cluster.url(), options);
    insist("the job is put", || try_put(&store, put("a")));
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    for step in [RedisCluster::begin_move, RedisCluster::move_keys] {
        step(&cluster, slot, to);
        let refused = try_put(&store, put("b")).expect_err("part of the kind is on another node");
        let text = refused.to_string();
        assert!(text.contains("is unavailable") && text.contains("TRYAGAIN"), "{text}");
        settle(&store, &job, Settlement::Ack).expect_err("part of the kind is on another node");
    }
    cluster.end_move(slot, to);
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
    assert_eq!(ids(&store), Vec::<String>::new());
    insist("the job is put", || try_put(&store, put("b")));
    is_whole(&store);
}

/// Runs a manual failover, after which the replica is the master.
fn take_over(replica: &RedisServer) {
    // An attempt ends after five seconds, for example if the other nodes are too slow to vote.
    for _ in 0..5 {
        assert_eq!(replica.command(&["CLUSTER", "FAILOVER"]), "OK");
        let end = Instant::now() + Duration::from_secs(6);
        while Instant::now() < end {
            if replica.command(&["ROLE"]).starts_with("master") {
                return;
            }
        }
    }
    panic!("the replica does not become master: {}", replica.log());
}

#[test]
fn a_manual_failover_loses_nothing() {
    check_seeds(&[], "REQUEUE_FAILOVERS", 1, |seed| {
        let cluster = RedisCluster::start(3, 1);
        let clients = clients(&cluster.url(), 4);
        // The first nodes are the masters.
        let mut replicas = cluster.nodes()[3..].iter();
        let mut times = 0;
        Concurrent::default().check(&as_stores(&clients), seed, || {
            if let Some(replica) = replicas.next() {
                take_over(replica);
                times += 1;
            }
        })?;
        assert!(times > 0);
        is_whole(&clients[0]);
        Ok(())
    });
}

#[test]
fn clients_continue_after_the_failover_from_a_dead_master() {
    check_seeds(&[], "REQUEUE_FAILOVERS", 1, |seed| {
        let mut cluster = RedisCluster::start(3, 1);
        let options = fresh();
        let slot = cluster.slot(&format!("{}:{}", options.prefix, kind()));
        let owner = cluster.owner(slot);
        let store = connect(&cluster.url(), options);
        let (confirmed, ()) = Load::run(&store, seed, |load| {
            load.reaches(300);
            cluster.node_mut(owner).kill();
            load.reaches(100);
        });
        is_whole(&store);
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        let (lost, back) = (confirmed.lost(&found, &confirmed.claimed), confirmed.back(&found));
        println!("{} put, {} lost, {} back", confirmed.put.len(), lost.len(), back.len());
        insist("the job is put", || try_put(&store, put("last")));
        let jobs = claimed(&store, 1000, LONG).jobs;
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > confirmed.fence));
        Ok(())
    });
}
