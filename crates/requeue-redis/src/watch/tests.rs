//! Tests of waiting, on a real server with a manual clock.

use super::*;
use crate::RedisStore;
use crate::options::Options;
use requeue::ManualClock;
use requeue_jobs::WorkerName;
use requeue_jobs::{
    Body, Claim, JobId, Put, Receipt, Settings, Settle, Settlement, Store, Timestamp,
};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a valid kind")
}

#[test]
fn an_empty_message_makes_waiting_callers_ask_immediately() {
    let watch = Watch::new((&ManualClock::new()).into(), None);
    let kinds = [kind("mail")];
    for in_millis in [-1, 3_600_000] {
        watch.learn(&kinds[0], watch.request(&kinds[0]), in_millis);
        assert_eq!(watch.to_ask(&kinds), []);
        watch.on_message("mail", b"");
        assert_eq!(watch.soonest(&kinds), Some(Duration::ZERO));
        assert_eq!(watch.to_ask(&kinds), kinds);
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A store with one job, whose only subscription is complete.
fn store(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    let wall_clock = WallClock::manual(clock, Timestamp::from_millis(1 << 40));
    let url = server.url();
    let store = RedisStore::connect_at(&url, Options::default(), Some(wall_clock));
    let store = block_on(store).expect("the server is up");
    store.deployment.subscribe(&kind("mail"));
    while lock(&store.deployment.watch.known).forgotten == 0 {
        thread::yield_now();
    }
    put(&store, "a");
    store
}

fn put(store: &RedisStore, id: &str) {
    let put = Put::new(kind("mail"), JobId::new(id).expect("a valid id"), Body::default());
    block_on(store.put(vec![put])).expect("the server is up");
}

fn claim(store: &RedisStore, lease: Duration) -> Receipt {
    let (worker, kinds) = (WorkerName::new("w").expect("a valid name"), vec![kind("mail")]);
    let claim = Claim { kinds, max: 1, lease: Some(lease), worker, nonce: 7 };
    let claimed = block_on(store.claim(claim)).expect("the server is up");
    claimed.jobs.into_iter().next().expect("there is a job").receipt
}

/// Polls the future until it returns, and calls `before` before each poll.
fn returns(wait: impl Future<Output = Result<(), StoreError>>, before: impl Fn()) {
    let (mut wait, began) = (pin!(wait), Instant::now());
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        before();
        if let Poll::Ready(result) = wait.as_mut().poll(&mut cx) {
            return assert_eq!(result, Ok(()));
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "it still waits, although a job is claimable"
        );
        thread::yield_now();
    }
}

#[test]
fn a_dropped_wait_does_not_keep_others_from_asking() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    store.deployment.watch.forget_all();
    // The reply must not arrive before the first poll returns.
    server.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let mut dropped = Box::pin(store.wait(vec![kind("mail")], HOUR));
    assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(dropped);
    returns(store.wait(vec![kind("mail")], HOUR), || {});
}

#[test]
fn a_reply_with_a_claimable_job_counts_even_if_messages_arrive_meanwhile() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    let wait = store.wait(vec![kind("mail")], HOUR);
    returns(wait, || store.deployment.watch.on_message("mail", b""));
    let stats = server.command(&["INFO", "commandstats"]);
    // Two by the put, which is repeated after the kind was registered, one by that, and one by the question.
    assert!(
        stats.contains("cmdstat_hmget:calls=4,"),
        "the server was asked more than once: {stats}"
    );
}

#[test]
fn the_failure_of_one_kind_does_not_hide_the_jobs_of_another() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    server.command(&["SET", "{requeue:broken}:meta", "no hash"]);
    let kinds = vec![kind("broken"), kind("mail")];
    returns(store.wait(kinds, HOUR), || {});
}

#[test]
fn a_caller_that_waits_for_concurrency_wakes_when_only_an_expired_lease_is_left() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let store = store(&server, &clock);
    let mut settings = Settings::default();
    settings.concurrency = Some(1);
    block_on(store.set(kind("mail"), settings)).unwrap();
    claim(&store, Duration::from_millis(20));
    clock.advance(Duration::from_millis(10));
    put(&store, "b");
    clock.advance(Duration::from_millis(10));
    // Claims "b", which is due before "a", whose lease has expired.
    let receipt = claim(&store, HOUR);
    // Two puts and one change of settings have sent a message each. The next one is that of the
    // settlement.
    while lock(&store.deployment.watch.known).received(&kind("mail")).messages < 3 {
        thread::yield_now();
    }
    let mut wait = Box::pin(store.wait(vec![kind("mail")], HOUR));
    let mut cx = Context::from_waker(Waker::noop());
    while store.deployment.watch.soonest(&[kind("mail")]) == Some(Duration::ZERO) {
        assert!(wait.as_mut().poll(&mut cx).is_pending(), "the concurrency limit is reached");
    }
    let action = Settlement::Bury { error: String::new() };
    block_on(store.settle(vec![Settle { receipt, action }])).unwrap();
    returns(wait, || {});
}
