//! Waiting costs the server next to nothing, however many wait.

use crate::support::RedisFixture;
use requeue_jobs::Kind;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_testkit::servers::{RedisServer, until};
use requeue_testkit::{Fixture, block_on};
use std::thread;

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest);
    let digits = calls.split(',').next().expect("there is always a first");
    digits.parse().expect("it is a number")
}

#[test]
fn all_who_wait_in_a_process_look_once_a_second_together() {
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
    until("somebody has looked", || scripts(&server) > 0);
    for _ in 1..SLICES {
        let before = scripts(&server);
        fixture.advance(WAIT_SLICE);
        until("somebody looks again", || scripts(&server) > before);
    }
    // Those who came before messages did look once more.
    let looks = scripts(&server);
    assert!(looks <= 2 * SLICES + 2, "{looks} looks in {SLICES} s");
    // Some may have begun late.
    until("all are done", || {
        fixture.advance(WAIT_SLICE);
        waiting.iter().all(thread::JoinHandle::is_finished)
    });
    for waiter in waiting {
        waiter.join().expect("it does not panic").expect("the server answers");
    }
}
