//! Connections are cut and scripts forgotten under load: nothing is lost, and nothing is done
//! twice that must not be.

use crate::support::{
    as_stores, claim, claimed, clients, connect, fresh, ids, insist, is_whole, kind, put, put_all,
    settle, try_put,
};
use requeue_jobs::limits::{MAX_BATCH_BYTES, MAX_BODY_LEN};
use requeue_jobs::{
    Body, Fence, JobId, JobState, Placed, Put, PutError, Receipt, Settle, SettleError, Settled,
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
fn clients_that_meet_on_a_server_see_what_is_promised() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 2, |seed| {
        let server = RedisServer::start();
        let clients = clients(&server.url(), 6);
        Concurrent::default().check(&as_stores(&clients), seed, || ())?;
        is_whole(&clients[0]);
        Ok(())
    });
}

#[test]
fn scripts_that_are_forgotten_and_clients_that_are_killed_lose_nothing() {
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
fn a_network_that_cuts_connections_now_and_then_loses_nothing() {
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

/// What nobody waits for any more is still done, when the server goes on.
#[test]
fn a_server_that_hangs_for_a_while_does_late_what_was_given_up() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = RedisServer::start();
        let mut options = fresh();
        options.answer_timeout = Duration::from_millis(100);
        options.connect_timeout = Duration::from_millis(200);
        let clients: Vec<_> = (0..4).map(|_| connect(&server.url(), options.clone())).collect();
        let mut times = 0;
        Concurrent::default().check(&as_stores(&clients), seed, || {
            server.freeze();
            // It is given up after a while, and so is what the clients have asked before.
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
fn who_waits_is_told_again_after_its_connection_was_killed() {
    let server = RedisServer::start();
    let options = fresh();
    let channel = format!("{{{}:{}}}:wake", options.prefix, kind());
    let store = connect(&server.url(), options);
    let listens = || server.command(&["PUBSUB", "NUMSUB", &channel]).ends_with('1');
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("it waits");
    until("it listens", listens);
    for kill in ["normal", "pubsub"] {
        server.command(&["CLIENT", "KILL", "TYPE", kill]);
        until("it listens again", listens);
        insist("it is connected again", || try_put(&store, put(kill)));
        let mut jobs = Vec::new();
        while jobs.is_empty() {
            block_on(store.wait(vec![kind()], LONG)).expect("it waits");
            jobs = claimed(&store, 1, LONG).jobs;
        }
        assert_eq!(settle(&store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
    }
}

/// So many jobs are put in one call.
const CALL: usize = 250;

fn many(count: usize) -> Vec<Put> {
    (0..count).map(|number| put(&format!("job-{number:04}"))).collect()
}

fn is_unknown(answer: &Result<Placed, PutError>) -> bool {
    matches!(answer, Err(PutError::Store(StoreError::Unknown { .. })))
}

/// Done again: all of a batch has come to be, each job once, each with a generation of its own.
fn redo(store: &RedisStore, answers: &[Result<Placed, PutError>]) {
    let again = block_on(store.put(many(answers.len()))).expect("it is connected again");
    let generations = |answers: &[Result<Placed, PutError>]| -> BTreeSet<u64> {
        answers.iter().flatten().map(|placed| placed.generation.0).collect()
    };
    let (first, second) = (generations(answers), generations(&again));
    assert_eq!(second.len(), answers.len(), "{again:?}");
    assert!(first.is_disjoint(&second), "{first:?} and {second:?}");
    let found = ids(store);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), answers.len());
    assert_eq!(found.len(), answers.len());
    is_whole(store);
}

#[test]
fn a_batch_that_is_cut_in_the_middle_is_not_there_by_halves() {
    // Within the first of four calls, and within the second; the others are on their way too.
    for (bytes, cut) in [(10_000, 0), (20_000, CALL)] {
        let (_server, proxy, store) = proxied();
        // Otherwise the script is sent too.
        put_all(&store, vec![put("first")]);
        let first = claimed(&store, 1, LONG).jobs.remove(0);
        settle(&store, &first, Settlement::Ack).expect("it is ours");
        proxy.cut_after(Direction::ToServer, bytes);
        let answers = block_on(store.put(many(4 * CALL))).expect("each is answered");
        assert!(answers[cut..cut + CALL].iter().all(is_unknown), "{:?}", answers[cut]);
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        for (number, call) in answers.chunks(CALL).enumerate() {
            let created = call.iter().filter(|answer| answer.is_ok()).count();
            let ids = number * CALL..(number + 1) * CALL;
            let there = ids.filter(|id| found.contains(&format!("job-{id:04}"))).count();
            assert!([0, CALL].contains(&there), "{there} of call {number} are there");
            assert!(created == there || created == 0, "{created} of call {number} were answered");
        }
        // The server never saw the end of it.
        assert!(!found.contains(&format!("job-{cut:04}")));
        redo(&store, &answers);
    }
}

#[test]
fn a_batch_whose_answer_is_lost_is_done_and_can_be_done_again() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(1));
    proxy.cut_after(Direction::ToClient, 1);
    let answers = block_on(store.put(many(CALL))).expect("each is answered");
    assert!(answers.iter().all(is_unknown), "{:?}", answers[0]);
    until("the server has done it", || ids(&store).len() == CALL);
    redo(&store, &answers);
}

#[test]
fn what_a_lost_claim_has_taken_comes_back_when_its_lease_is_over() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(3));
    let first = claimed(&store, 1, LONG).jobs.remove(0);
    proxy.cut_after(Direction::ToClient, 1);
    let lost = block_on(store.claim(claim(1, Duration::from_secs(1)))).expect("it is answered");
    assert!(lost.jobs.is_empty());
    assert!(matches!(&lost.errors[..], [(_, StoreError::Unknown { .. })]), "{:?}", lost.errors);

    // It has a holder that does not know. Nobody else gets it meanwhile.
    let leased = |number: usize| {
        let id = JobId::new(format!("job-{number:04}")).expect("a valid id");
        let view = block_on(store.get(kind(), id)).expect("it is there").expect("it is there");
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
    // One fence was given to who does not know of it.
    let fences = [&first, &free[0], job].map(|job| job.receipt.fence().0);
    assert!(fences.is_sorted_by(|a, b| a < b) && fences[1] > fences[0] + 1, "{fences:?}");
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn an_ack_whose_answer_is_lost_is_done_once() {
    let (_server, proxy, store) = proxied();
    put_all(&store, many(1));
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    // A receipt that leases nothing, so that the script is there.
    let stale = Receipt::new(kind(), job.id().clone(), Fence(1), 1);
    let action = Settlement::Ack;
    let no = block_on(store.settle(vec![Settle { receipt: stale, action }]));
    assert!(matches!(no.expect("it is answered")[..], [Err(SettleError::LeaseLost { .. })]));
    proxy.cut_after(Direction::ToClient, 1);
    let lost = settle(&store, &job, Settlement::Ack);
    assert!(matches!(lost, Err(SettleError::Store(StoreError::Unknown { .. }))), "{lost:?}");
    let again = settle(&store, &job, Settlement::Ack);
    assert!(matches!(again, Err(SettleError::LeaseLost { .. })), "{again:?}");
    assert_eq!(ids(&store), Vec::<String>::new());
    is_whole(&store);
}

#[test]
fn a_claim_of_large_jobs_gets_no_more_than_can_be_answered() {
    const LARGE: usize = MAX_BODY_LEN;
    let server = RedisServer::start();
    let store = connect(&server.url(), fresh());
    for number in 0..120 {
        let mut put = put(&format!("job-{number:03}"));
        put.body = Body::octets(vec![0; LARGE]).expect("as large as it may be");
        put_all(&store, vec![put]);
    }
    let first = claimed(&store, 1000, LONG).jobs;
    assert!(first.len() * LARGE > MAX_BATCH_BYTES, "{} jobs are too few", first.len());
    assert!(first.len() < 120, "all at once");
    let rest = claimed(&store, 1000, LONG).jobs;
    assert_eq!(first.len() + rest.len(), 120, "nothing is held by nobody");
}
