//! Two servers on one Redis.

use super::load::Load;
use super::node::{KIND, LONG, Node, block_on, claim, claim_released};
use crate::support::{Dir, until};
use requeue_jobs::{Settled, StoreError, Timestamp};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Random, check_seeds};
use std::thread;
use std::time::{Duration, SystemTime};

fn two_servers(dir: &Dir) -> (RedisServer, Node, Node) {
    let redis = RedisServer::start();
    let (one, other) = (Node::on_redis(dir, &redis), Node::on_redis(dir, &redis));
    (redis, one, other)
}

#[test]
fn a_put_at_one_server_wakes_a_claim_that_waits_at_the_other() {
    let dir = Dir::new();
    let (_redis, one, other) = two_servers(&dir);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| claim(&other.client, "1m"));
        other.awaits_claims(1);
        block_on(one.jobs().put(KIND, "a", "hello")).unwrap();
        let job = waiting.join().unwrap().unwrap().remove(0);
        assert_eq!((job.body.bytes(), job.attempt), (&b"hello"[..], 1));
        // The receipt is valid at both servers.
        assert_eq!(block_on(one.jobs().ack(&job.receipt)).unwrap(), Settled::Done);
    });
    assert_eq!(block_on(other.jobs().get(KIND, "a")).unwrap(), None);
}

#[test]
fn claims_that_waited_at_a_killed_server_hold_no_job() {
    let dir = Dir::new();
    let (_redis, one, other) = two_servers(&dir);
    let client = one.client.clone();
    thread::scope(|scope| {
        let ask = || scope.spawn(|| claim(&client, "1m"));
        let claims: Vec<_> = (0..5).map(|_| ask()).collect();
        one.awaits_claims(5);
        one.kill();
        for claim in claims {
            assert!(claim.join().unwrap().is_err());
        }
    });
    block_on(other.jobs().put(KIND, "a", "")).unwrap();
    claim_released(&other.client);
}

#[test]
fn the_job_of_a_dead_worker_is_claimed_at_the_other_server() {
    let dir = Dir::new();
    let (_redis, one, other) = two_servers(&dir);
    block_on(one.jobs().put(KIND, "a", "")).unwrap();
    let lease = Duration::from_secs(1);
    let claimed = block_on(one.jobs().claim([KIND], "first").lease(lease)).unwrap();
    let ends_at = claimed.jobs[0].lease_ends_at;
    one.kill();
    let job = claim(&other.client, "1m").unwrap().remove(0);
    assert_eq!(job.attempt, 2);
    assert!(Timestamp::from(SystemTime::now()) >= ends_at);
    let lost = block_on(other.jobs().ack(&claimed.jobs[0].receipt));
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(block_on(other.jobs().ack(&job.receipt)).unwrap(), Settled::Done);
}

#[test]
fn a_pause_at_one_server_applies_to_both() {
    let dir = Dir::new();
    let (_redis, one, other) = two_servers(&dir);
    let post = |node: &Node, what: &str| {
        let path = format!("/v1/kinds/{KIND}/{what}");
        block_on(node.client.call::<()>("POST", &path, None::<&()>)).unwrap();
    };
    block_on(other.jobs().put(KIND, "a", "")).unwrap();
    post(&one, "pause");
    assert_eq!(claim(&other.client, "0s").unwrap(), []);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| claim(&other.client, "1m"));
        other.awaits_claims(1);
        post(&one, "resume");
        assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
    });
}

#[test]
fn killing_a_server_under_load_loses_nothing() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let (dir, mut random) = (Dir::new(), Random::new(seed));
        let (_redis, one, other) = two_servers(&dir);
        let load = Load::new(Duration::from_secs(2));
        let client = one.client.clone();
        load.run(&[&client, &other.client], seed, || {
            load.reaches(200 + random.below(200));
            one.kill();
            load.reaches(50);
        });
        load.ends_well(&other.client);
        Ok(())
    });
}

#[test]
fn stopping_a_server_under_load_leaves_no_undelivered_leases() {
    check_seeds(&[], "REQUEUE_STOPS", 1, |seed| {
        let (dir, mut random) = (Dir::new(), Random::new(seed));
        let (_redis, one, other) = two_servers(&dir);
        let load = Load::new(LONG);
        let client = one.client.clone();
        load.run(&[&client, &other.client], seed, || {
            load.reaches(200 + random.below(200));
            one.stop();
            load.reaches(50);
        });
        load.holders_are_known(&other.client);
        load.ends_well(&other.client);
        Ok(())
    });
}

#[test]
fn a_server_recovers_with_its_redis() {
    let dir = Dir::new();
    let mut redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let node = Node::on_redis(&dir, &redis);
    let jobs = node.jobs();
    block_on(jobs.put(KIND, "a", "")).unwrap();
    assert_eq!(node.status("/readyz"), 200);
    redis.kill();
    until("it to know", || (node.status("/readyz") == 503).then_some(()));
    assert_eq!(node.status("/healthz"), 200);
    let refused = block_on(jobs.put(KIND, "b", "")).unwrap_err();
    assert!(
        matches!(refused, requeue_jobs::PutError::Store(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    redis.start_again();
    until("it to be ready", || (node.status("/readyz") == 200).then_some(()));
    assert_eq!(claim_released(&node.client).id().as_str(), "a");
    assert_eq!(block_on(jobs.get(KIND, "b")).unwrap(), None);
    node.stop();
}
