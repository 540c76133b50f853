//! The load of waiting callers on the server does not depend on their number.

use crate::support::RedisFixture;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{BoxError, JobWorker, Jobs, Kind};
use requeue_testkit::servers::{RedisServer, until};
use requeue_testkit::{Fixture, block_on};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;

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

/// Half of the kinds had a job, and the others have never existed.
#[test]
fn a_worker_of_idle_kinds_asks_for_each_once_a_second() {
    const KINDS: u32 = 20;
    const SLICES: u32 = 5;
    let server = RedisServer::start();
    let fixture = RedisFixture::at(&server.url());
    let kinds: Vec<String> = (0..KINDS).map(|n| format!("kind-{n}")).collect();
    let jobs = Jobs::with_clock(fixture.store(), fixture.clock());
    block_on(async {
        for kind in &kinds[..KINDS as usize / 2] {
            jobs.put(kind, "a", "").await.expect("the server is up");
            let claimed = jobs.claim([kind.as_str()], "w").await.expect("the server is up").jobs;
            jobs.ack(&claimed[0].receipt).await.expect("the job is held");
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let began = scripts(&server);
    let working = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        runtime.block_on(async {
            let worker = JobWorker::new(&jobs, kinds.iter().map(String::as_str), "idle");
            let worker = worker.expect("the arguments are valid");
            let running = worker.spawn(|_| async { Ok::<_, BoxError>(()) });
            drop(stopped.await);
            running.stop(Duration::ZERO).await;
        });
    });
    // It claims, and asks when each kind may have a job.
    until("the worker waits", || scripts(&server) >= began + KINDS);
    until("its requests have ended", || {
        let before = scripts(&server);
        thread::yield_now();
        scripts(&server) == before
    });
    let before = scripts(&server);
    for slice in 1..=SLICES {
        fixture.advance(WAIT_SLICE);
        until("the worker asks again", || scripts(&server) >= before + slice * KINDS);
    }
    let requests = scripts(&server) - before;
    println!("{} scripts at first, then {requests} in {SLICES} s", before - began);
    assert!(requests <= SLICES * (KINDS + 3), "{requests} requests in {SLICES} s");
    drop(stop);
    working.join().expect("the worker does not panic");
}
