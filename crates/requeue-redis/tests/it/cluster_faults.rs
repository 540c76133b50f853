//! A Cluster changes under load.
//!
//! While a slot is on its way, nobody gets at its kinds: calls wait, and are refused if that takes
//! too long. Nothing is lost by it, nor by a replica that takes over from a master that lives.
//! Where a master dies, its replica may not have all that was answered, as under Sentinel.

use crate::support::load::Load;
use crate::support::{
    as_stores, claimed, clients, connect, fresh, ids, insist, is_whole, kind, put, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_testkit::servers::{RedisCluster, RedisServer};
use requeue_testkit::{Concurrent, Random, block_on, check_seeds};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn slots_that_move_under_load_lose_nothing() {
    check_seeds(&[], "REQUEUE_MOVES", 1, |seed| {
        let cluster = RedisCluster::start(3, 0);
        let options = fresh();
        let clients: Vec<_> = (0..4).map(|_| connect(&cluster.url(), options.clone())).collect();
        let (mut random, mut moves) = (Random::new(seed), 0);
        Concurrent::default().check(&as_stores(&clients), seed, || {
            let kinds = block_on(clients[0].kinds()).unwrap_or_default();
            let mut tags: Vec<String> =
                kinds.iter().map(|view| format!("{}:{}", options.prefix, view.kind)).collect();
            // That of the deployment is read for every list of kinds.
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
fn while_a_slot_is_on_its_way_calls_wait_and_nothing_is_done_by_halves() {
    let cluster = RedisCluster::start(3, 0);
    let mut options = fresh();
    options.answer_timeout = Duration::from_millis(300);
    let slot = cluster.slot(&format!("{}:{}", options.prefix, kind()));
    let to = (cluster.owner(slot) + 1) % 3;
    let store = connect(&cluster.url(), options);
    insist("it is put", || try_put(&store, put("a")));
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    for step in [RedisCluster::begin_move, RedisCluster::move_keys] {
        step(&cluster, slot, to);
        let refused = try_put(&store, put("b")).expect_err("part of the kind is elsewhere");
        let told = refused.to_string();
        assert!(told.contains("unavailable") && told.contains("TRYAGAIN"), "{told}");
        settle(&store, &job, Settlement::Ack).expect_err("part of the kind is elsewhere");
    }
    cluster.end_move(slot, to);
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
    assert_eq!(ids(&store), Vec::<String>::new());
    insist("it is put", || try_put(&store, put("b")));
    is_whole(&store);
}

/// Lets a replica agree with its master that it is the master now.
fn take_over(replica: &RedisServer) {
    // They give up after five seconds, for example where the others were too slow to agree.
    for _ in 0..5 {
        assert_eq!(replica.command(&["CLUSTER", "FAILOVER"]), "OK");
        let end = Instant::now() + Duration::from_secs(6);
        while Instant::now() < end {
            if replica.command(&["ROLE"]).starts_with("master") {
                return;
            }
        }
    }
    panic!("it does not become master: {}", replica.log());
}

#[test]
fn a_replica_that_takes_over_from_a_master_that_lives_loses_nothing() {
    check_seeds(&[], "REQUEUE_FAILOVERS", 1, |seed| {
        let cluster = RedisCluster::start(3, 1);
        let clients = clients(&cluster.url(), 4);
        // The masters come first.
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
fn clients_go_on_when_the_replica_of_a_dead_master_takes_over() {
    check_seeds(&[], "REQUEUE_FAILOVERS", 1, |seed| {
        let mut cluster = RedisCluster::start(3, 1);
        let options = fresh();
        let slot = cluster.slot(&format!("{}:{}", options.prefix, kind()));
        let owner = cluster.owner(slot);
        let store = connect(&cluster.url(), options);
        let (answered, ()) = Load::run(&store, seed, |load| {
            load.reaches(300);
            cluster.node_mut(owner).kill();
            load.reaches(100);
        });
        is_whole(&store);
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        let (lost, back) = (answered.lost(&found, &answered.claimed), answered.back(&found));
        println!("{} put, {} lost, {} back", answered.put.len(), lost.len(), back.len());
        insist("it is there", || try_put(&store, put("last")));
        let jobs = claimed(&store, 1000, LONG).jobs;
        assert!(!jobs.is_empty());
        assert!(jobs.iter().all(|job| job.receipt.fence().0 > answered.fence));
        Ok(())
    });
}
