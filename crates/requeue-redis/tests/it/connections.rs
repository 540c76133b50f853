//! Connections break and scripts are flushed under load. Nothing is lost, and no call that is not
//! idempotent runs twice.

use crate::support::{
    as_stores, claim, claimed, clients, connect, fresh, ids, insist, is_whole, kind, put, put_all,
    settle, try_put,
};
use requeue_jobs::{
    Fence, JobId, JobState, Placed, Put, PutError, Receipt, Settle, SettleError, Settled,
    Settlement, Store, StoreError,
};
use requeue_redis::RedisStore;
use requeue_testkit::servers::{RedisServer, until};
use requeue_testkit::{Concurrent, Direction, Proxy, Random, block_on, check_seeds};
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

fn proxied() -> (RedisServer, Proxy, RedisStore) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.address().parse().expect("an address")).expect("a free port");
    let store = connect(&format!("redis://{}", proxy.address()), fresh());
    (server, proxy, store)
}

#[test]
fn concurrent_clients_of_a_server_see_the_guarantees() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 2, |seed| {
        let server = RedisServer::start();
        let clients = clients(&server.url(), 6);
        Concurrent::default().check(&as_stores(&clients), seed, || ())?;
        is_whole(&clients[0]);
        Ok(())
    });
}

#[test]
fn flushed_scripts_and_killed_connections_lose_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = RedisServer::start();
        let clients = clients(&server.url(), 4);
        let mut random = Random::new(seed);
        let faults: [&[&str]; 3] = [
            &["SCRIPT", "FLUSH"],
            &["CLIENT", "KILL", "TYPE", "normal"],
            &["CLIENT", "KILL", "TYPE", "pubsub"],
        ];
        Concurrent::default().check(&as_stores(&clients), seed, || {
            server.command(faults[random.below(faults.len())]);
        })?;
        is_whole(&clients[0]);
        Ok(())
    });
}

#[test]
fn broken_connections_lose_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let (_server, proxy, first) = proxied();
        let clients = clients(&format!("redis://{}", proxy.address()), 4);
        drop(first);
        let (mut random, mut cuts) = (Random::new(seed), 0);
        Concurrent::default().check(&as_stores(&clients), seed, || {
            cuts += 1;
            match random.below(4) {
                0 => proxy.cut(),
                1 => proxy.cut_after(Direction::ToServer, random.below(3000)),
                _ => proxy.cut_after(Direction::ToClient, random.below(3000)),
            }
        })?;
        is_whole(&clients[0]);
        assert!(cuts > 0);
        Ok(())
    });
}

/// The server runs calls that have timed out, once it continues.
#[test]
fn a_frozen_server_that_runs_timed_out_calls_late_loses_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = RedisServer::start();
        let mut options = fresh();
        options.response_timeout = Duration::from_millis(100);
        options.connect_timeout = Duration::from_millis(200);
        let clients: Vec<_> = (0..4).map(|_| connect(&server.url(), options.clone())).collect();
        let mut times = 0;
        Concurrent::default().check(&as_stores(&clients), seed, || {
            server.freeze();
            // This call times out, and so do the earlier calls of the clients.
            let given_up = block_on(clients[0].kinds()).is_err();
            server.thaw();
            times += u32::from(given_up);
        })?;
        is_whole(&clients[0]);
        assert!(times > 0);
        Ok(())
    });
}

#[test]
fn waiting_callers_are_notified_after_a_reconnect() {
    let server = RedisServer::start();
    let options = fresh();
    let channel = format!("{{{}:{}}}:wake", options.prefix, kind());
    let store = connect(&server.url(), options);
    let listens = || server.command(&["PUBSUB", "NUMSUB", &channel]).ends_with('1');
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("the server is up");
    until("it listens", listens);
    for kill in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kill]);
        until("it listens again", listens);
        insist("it is connected again", || try_put(&store, put(kill)));
        let mut jobs = Vec::new();
        while jobs.is_empty() {
            block_on(store.wait(vec![kind()], LONG)).expect("the server is up");
            jobs = claimed(&store, 1, LONG).jobs;
        }
        assert_eq!(settle(&store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
    }
}

/// The number of jobs that one call puts.
const CALL: usize = 250;

fn many(count: usize) -> Vec<Put> {
    (0..count).map(|number| put(&format!("job-{number:04}"))).collect()
}

fn is_unknown(result: &Result<Placed, PutError>) -> bool {
    matches!(result, Err(PutError::Store(StoreError::Unknown { .. })))
}

/// Puts a batch again, and checks that each job exists once, with a generation of its own.
fn redo(store: &RedisStore, results: &[Result<Placed, PutError>]) {
    let again = block_on(store.put(many(results.len()))).expect("the store has reconnected");
    let generations = |results: &[Result<Placed, PutError>]| -> BTreeSet<u64> {
        results.iter().flatten().map(|placed| placed.generation.0).collect()
    };
    let (first, second) = (generations(results), generations(&again));
    assert_eq!(second.len(), results.len(), "{again:?}");
    assert!(first.is_disjoint(&second), "{first:?} and {second:?}");
    let found = ids(store);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), results.len());
    assert_eq!(found.len(), results.len());
    is_whole(store);
}

#[test]
fn an_interrupted_batch_has_no_partial_calls() {
    // The cut is within the first or the second of four calls. The others are in flight too.
    for (bytes, cut) in [(5_000, 0), (10_000, CALL)] {
        let (_server, proxy, store) = proxied();
        // Loads the script, which would otherwise be part of the bytes sent.
        put_all(&store, vec![put("first")]);
        let first = claimed(&store, 1, LONG).jobs.remove(0);
        settle(&store, &first, Settlement::Ack).expect("the lease is held");
        proxy.cut_after(Direction::ToServer, bytes);
        let results = block_on(store.put(many(4 * CALL))).expect("each put has a result");
        assert!(results[cut..cut + CALL].iter().all(is_unknown), "{:?}", results[cut]);
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        for (number, call) in results.chunks(CALL).enumerate() {
            let created = call.iter().filter(|result| result.is_ok()).count();
            let ids = number * CALL..(number + 1) * CALL;
            let there = ids.filter(|id| found.contains(&format!("job-{id:04}"))).count();
            assert!([0, CALL].contains(&there), "{there} jobs of call {number} are stored");
            assert!(
                created == there || created == 0,
                "{created} jobs of call {number} were confirmed"
            );
        }
        // The server never received the end of this call.
        assert!(!found.contains(&format!("job-{cut:04}")));
        redo(&store, &results);
    }
}

#[test]
fn a_batch_whose_reply_is_lost_has_run_and_can_be_repeated() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(1));
    proxy.cut_after(Direction::ToClient, 1);
    let results = block_on(store.put(many(CALL))).expect("each put has a result");
    assert!(results.iter().all(is_unknown), "{:?}", results[0]);
    until("the server has done it", || ids(&store).len() == CALL);
    redo(&store, &results);
}

#[test]
fn jobs_of_a_lost_claim_come_back_when_their_leases_expire() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(3));
    let first = claimed(&store, 1, LONG).jobs.remove(0);
    proxy.cut_after(Direction::ToClient, 1);
    let lost = block_on(store.claim(claim(1, Duration::from_secs(1)))).expect("the call returns");
    assert!(lost.jobs.is_empty());
    assert!(matches!(&lost.errors[..], [(_, StoreError::Unknown { .. })]), "{:?}", lost.errors);

    // The job is leased, although no worker knows of the lease. Nobody else can claim it.
    let leased = |number: usize| {
        let id = JobId::new(format!("job-{number:04}")).expect("a valid id");
        let view =
            block_on(store.get(kind(), id)).expect("the server is up").expect("the job exists");
        view.state == JobState::Leased
    };
    assert_eq!((0..3).filter(|number| leased(*number)).count(), 2);
    let free = claimed(&store, 3, LONG).jobs;
    assert_eq!(free.len(), 1);

    let mut back = Vec::new();
    until("its lease is over", || {
        back = claimed(&store, 3, LONG).jobs;
        !back.is_empty()
    });
    let [job] = &back[..] else { panic!("{back:?}") };
    assert_eq!(job.attempt, 2);
    // The lost claim has used one fence.
    let fences = [&first, &free[0], job].map(|job| job.receipt.fence().0);
    assert!(fences.is_sorted_by(|a, b| a < b) && fences[1] > fences[0] + 1, "{fences:?}");
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn an_ack_whose_reply_is_lost_runs_once() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(1));
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    // An ack with an invalid receipt, which loads the script.
    let stale = Receipt::new(kind(), job.id().clone(), Fence(1), 1);
    let action = Settlement::Ack;
    let no = block_on(store.settle(vec![Settle { receipt: stale, action }]));
    assert!(matches!(no.expect("the call returns")[..], [Err(SettleError::LeaseLost { .. })]));
    proxy.cut_after(Direction::ToClient, 1);
    let lost = settle(&store, &job, Settlement::Ack);
    assert!(matches!(lost, Err(SettleError::Store(StoreError::Unknown { .. }))), "{lost:?}");
    let again = settle(&store, &job, Settlement::Ack);
    assert!(matches!(again, Err(SettleError::LeaseLost { .. })), "{again:?}");
    assert_eq!(ids(&store), Vec::<String>::new());
    is_whole(&store);
}
