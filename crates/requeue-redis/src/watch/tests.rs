//! Waiting, on a real server, where a clock stands still.

use super::*;
use crate::options::Options;
use requeue::ManualClock;
use requeue_jobs::WorkerName;
use requeue_jobs::{Body, Claim, JobId, Put, Receipt, Settings, Settle, Settlement, Timestamp};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

fn kind(name: &str) -> Kind {
    Kind::new(name).expect("it is a kind")
}

#[test]
fn a_message_that_says_nothing_makes_those_who_wait_look_at_once() {
    let watch = Watch::new((&ManualClock::new()).into(), None);
    let kinds = [kind("mail")];
    for in_millis in [-1, 3_600_000] {
        watch.learn(&kinds[0], watch.question(&kinds[0]), in_millis);
        assert_eq!(watch.to_ask(&kinds), []);
        watch.on_message("mail", b"");
        assert_eq!(watch.soonest(&kinds), Some(Duration::ZERO));
        assert_eq!(watch.to_ask(&kinds), kinds);
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A store with a job, that has heard of the only subscription it will have.
fn store(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    let wall_clock = WallClock::manual(clock, Timestamp::from_millis(1 << 40));
    let url = server.url();
    let store = RedisStore::connect_at(&url, Options::default(), Some(wall_clock));
    let store = block_on(store).expect("the server answers");
    store.subscribe(&kind("mail"));
    while lock(&store.shared.watch.known).forgotten == 0 {
        thread::yield_now();
    }
    put(&store, "a");
    store
}

fn put(store: &RedisStore, id: &str) {
    let put = Put::new(kind("mail"), JobId::new(id).expect("an id"), Body::default());
    block_on(store.put_all(vec![put])).expect("the server answers");
}

fn claim(store: &RedisStore, lease: Duration) -> Receipt {
    let (worker, kinds) = (WorkerName::new("w").expect("a name"), vec![kind("mail")]);
    let claim = Claim { kinds, max: 1, lease: Some(lease), worker, nonce: 7 };
    let claimed = block_on(store.claim_of_kinds(claim)).expect("the server answers");
    claimed.jobs.into_iter().next().expect("there is a job").receipt
}

/// Polls until it is over, and does this before.
fn ends(wait: impl Future<Output = Result<(), StoreError>>, before: impl Fn()) {
    let (mut wait, began) = (pin!(wait), Instant::now());
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        before();
        if let Poll::Ready(answer) = wait.as_mut().poll(&mut cx) {
            return assert_eq!(answer, Ok(()));
        }
        assert!(began.elapsed() < Duration::from_secs(10), "it waits, and there is work");
        thread::yield_now();
    }
}

#[test]
fn one_who_gives_up_does_not_keep_others_from_asking() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    store.shared.watch.forget_all();
    // The reply must not arrive before the first poll returns.
    server.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    let mut given_up = Box::pin(store.wait_for(vec![kind("mail")], HOUR));
    assert!(given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(given_up);
    ends(store.wait_for(vec![kind("mail")], HOUR), || {});
}

#[test]
fn who_is_told_of_work_believes_it_whatever_messages_came_meanwhile() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    let wait = store.wait_for(vec![kind("mail")], HOUR);
    ends(wait, || store.shared.watch.on_message("mail", b""));
    let stats = server.command(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_hmget:calls=1,"), "it asked once: {stats}");
}

#[test]
fn a_kind_that_cannot_be_asked_does_not_hide_the_work_of_another() {
    let server = RedisServer::start();
    let store = store(&server, &ManualClock::new());
    server.command(&["SET", "{requeue:broken}:meta", "no hash"]);
    let kinds = vec![kind("broken"), kind("mail")];
    ends(store.wait_for(kinds, HOUR), || {});
}

#[test]
fn who_waits_for_room_is_told_of_it_where_only_an_expired_lease_is_left() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let store = store(&server, &clock);
    let mut settings = Settings::default();
    settings.concurrency = Some(1);
    block_on(store.set_of(kind("mail"), settings)).unwrap();
    claim(&store, Duration::from_millis(20));
    clock.advance(Duration::from_millis(10));
    put(&store, "b");
    clock.advance(Duration::from_millis(10));
    // It comes before the one whose lease has expired.
    let receipt = claim(&store, HOUR);
    // Two puts and a setting: what comes now is of the settlement.
    while lock(&store.shared.watch.known).heard(&kind("mail")).messages < 3 {
        thread::yield_now();
    }
    let mut wait = Box::pin(store.wait_for(vec![kind("mail")], HOUR));
    let mut cx = Context::from_waker(Waker::noop());
    while store.shared.watch.soonest(&[kind("mail")]) == Some(Duration::ZERO) {
        assert!(wait.as_mut().poll(&mut cx).is_pending(), "there is no room");
    }
    let action = Settlement::Bury { error: String::new() };
    block_on(store.settle_all(vec![Settle { receipt, action }])).unwrap();
    ends(wait, || {});
}
