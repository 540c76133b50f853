//! The load of waiting callers on the server does not depend on their number.

use crate::support::RedisFixture;
use requeue_jobs::Kind;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_testkit::servers::{RedisServer, until};
use requeue_testkit::{Fixture, block_on};
use std::thread;

/// Returns how many scripts the server has run.
fn scripts(server: &RedisServer) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest);
    let digits = calls.split(',').next().expect("`split` returns at least one part");
    digits.parse().expect("a number")
}

#[test]
fn waiting_callers_of_a_process_ask_once_a_second_together() {
    const WAITERS: usize = 20;
    const SLICES: u32 = 5;
    let server = RedisServer::start();
    let fixture = RedisFixture::at(&server.url());
    let kind = Kind::new("mail").expect("a valid kind");
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (store, kind) = (fixture.store(), kind.clone());
            thread::spawn(move || block_on(store.wait(vec![kind], SLICES * WAIT_SLICE)))
        })
        .collect();
    until("a caller has asked", || scripts(&server) > 0);
    for _ in 1..SLICES {
        let before = scripts(&server);
        fixture.advance(WAIT_SLICE);
        until("a caller asks again", || scripts(&server) > before);
    }
    // Callers that began before the subscription was complete have asked once more.
    let requests = scripts(&server);
    assert!(requests <= 2 * SLICES + 2, "{requests} requests in {SLICES} s");
    // Some callers may have begun late.
    until("all waits have ended", || {
        fixture.advance(WAIT_SLICE);
        waiting.iter().all(thread::JoinHandle::is_finished)
    });
    for waiter in waiting {
        waiter.join().expect("the thread does not panic").expect("the server is up");
    }
}
