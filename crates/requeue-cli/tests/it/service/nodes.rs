//! Two servers on one Redis, or on one database.

use super::load::{Load, list};
use super::node::{KIND, LONG, Node, block_on, claim, claim_released};
use super::shared_store::SharedStore;
use crate::support::{Dir, until};
use requeue_jobs::{SettleError, Settled, StoreError, Timestamp};
use requeue_testkit::{Random, check_seeds};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, SystemTime};

/// Calls `check` with two servers on each store that servers can share.
fn on_two_servers(check: impl Fn(Node, Node)) {
    for store in SharedStore::each() {
        let dir = Dir::new();
        check(Node::on(&dir, &store), Node::on(&dir, &store));
    }
}

#[test]
fn a_put_at_one_server_wakes_a_claim_that_waits_at_the_other() {
    on_two_servers(|one, other| {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| claim(&other.client, "1m"));
            other.awaits_claims(1);
            block_on(one.jobs().put(KIND, "a", "hello")).unwrap();
            let job = waiting.join().unwrap().unwrap().remove(0);
            assert_eq!((job.body().bytes(), job.attempt), (&b"hello"[..], 1));
            // The receipt is valid at both servers.
            assert_eq!(block_on(one.jobs().ack(&job.receipt)).unwrap(), Settled::Done);
        });
        assert_eq!(block_on(other.jobs().get(KIND, "a")).unwrap(), None);
    });
}

#[test]
fn claims_that_waited_at_a_killed_server_hold_no_job() {
    on_two_servers(|one, other| {
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
    });
}

#[test]
fn the_job_of_a_dead_worker_is_claimed_at_the_other_server() {
    on_two_servers(|one, other| {
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
    });
}

#[test]
fn a_pause_at_one_server_applies_to_both() {
    on_two_servers(|one, other| {
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
    });
}

#[test]
fn killing_a_server_under_load_loses_nothing() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        on_two_servers(|one, other| {
            let mut random = Random::new(seed);
            let load = Load::new(Duration::from_secs(2));
            let client = one.client.clone();
            load.run(&[&client, &other.client], seed, || {
                load.reaches(200 + random.below(200));
                one.kill();
                load.reaches(50);
            });
            load.ends_well(&other.client);
        });
        Ok(())
    });
}

#[test]
fn stopping_a_server_under_load_leaves_no_undelivered_leases() {
    check_seeds(&[], "REQUEUE_STOPS", 1, |seed| {
        on_two_servers(|one, other| {
            let mut random = Random::new(seed);
            let load = Load::new(LONG);
            let client = one.client.clone();
            load.run(&[&client, &other.client], seed, || {
                load.reaches(200 + random.below(200));
                one.stop();
                load.reaches(50);
            });
            load.holders_are_known(&other.client);
            load.ends_well(&other.client);
        });
        Ok(())
    });
}

#[test]
fn jobs_of_workers_whose_server_was_killed_are_done_at_the_other_with_higher_fences() {
    on_two_servers(|one, other| {
        let ids: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        for id in &ids {
            block_on(one.jobs().put(KIND, id, "")).unwrap();
        }
        let lease = Duration::from_secs(1);
        let first = block_on(one.jobs().claim([KIND], "first").max(20).lease(lease)).unwrap().jobs;
        assert_eq!(first.len(), 20);
        one.kill();
        let mut done = BTreeMap::new();
        while done.len() < ids.len() {
            for job in claim(&other.client, "1m").unwrap() {
                assert_eq!(block_on(other.jobs().ack(&job.receipt)).unwrap(), Settled::Done);
                let before = done.insert(job.id().to_string(), job);
                assert!(before.is_none(), "a job was done twice: {before:?}");
            }
        }
        for job in &first {
            let second = &done[job.id().as_str()];
            assert_eq!(second.attempt, 2);
            assert!(second.receipt.fence() > job.receipt.fence(), "{job:?}, then {second:?}");
            let lost = block_on(other.jobs().ack(&job.receipt));
            assert!(matches!(lost, Err(SettleError::LeaseLost { .. })), "{lost:?}");
        }
        assert_eq!(list(&other.client), []);
    });
}

#[test]
fn a_server_recovers_with_its_store() {
    for mut store in SharedStore::each_durable() {
        let dir = Dir::new();
        let node = Node::on(&dir, &store);
        let jobs = node.jobs();
        block_on(jobs.put(KIND, "a", "")).unwrap();
        assert_eq!(node.status("/readyz"), 200);
        store.kill();
        until("it to know", || (node.status("/readyz") == 503).then_some(()));
        assert_eq!(node.status("/healthz"), 200);
        let refused = block_on(jobs.put(KIND, "b", "")).unwrap_err();
        assert!(
            matches!(refused, requeue_jobs::PutError::Store(StoreError::Unavailable { .. })),
            "{refused:?}"
        );
        store.start_again();
        until("it to be ready", || (node.status("/readyz") == 200).then_some(()));
        assert_eq!(claim_released(&node.client).id().as_str(), "a");
        assert_eq!(block_on(jobs.get(KIND, "b")).unwrap(), None);
        node.stop();
    }
}
