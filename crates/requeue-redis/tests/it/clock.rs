//! The server's clock is set: back, and on.
//!
//! All times are the server's. What is promised:
//!
//! - fences rise, whatever the clock says
//! - nothing is delivered before the server's clock shows its due time. Set back, what waits
//!   waits so much longer, also what was ready; set on, so much shorter
//! - a lease ends when the server's clock shows its end. Set back, it lasts so much longer, and
//!   no longer than that: nobody else gets the job meanwhile, and its holder can settle it
//! - what is put after the jump is counted from the clock as it is then

use crate::support::{claimed, connect, fresh, is_whole, kind, put, put_after, put_all, settle};
use requeue_jobs::{JobState, SettleError, Settled, Settlement, Store};
use requeue_redis::RedisStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::{RedisServer, until};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const HOUR: i64 = 3600;

fn start() -> (RedisServer, RedisStore) {
    let server = RedisServer::with_clock(&[]);
    let store = connect(&server.url(), fresh());
    (server, store)
}

/// Sets it, and waits until the server knows.
fn set_clock(server: &RedisServer, seconds: i64) {
    let time = || {
        let time = server.command(&["TIME"]);
        time.lines().next().and_then(|time| time.parse::<i64>().ok()).expect("a time")
    };
    let true_time = || {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.expect("it is after 1970").as_secs() as i64
    };
    server.set_clock(seconds);
    until("the clock is set", || (time() - true_time() - seconds).abs() < 60);
}

/// Does what is due, and tells what that was.
fn work(store: &RedisStore) -> Vec<String> {
    let done = claimed(store, 10, LONG).jobs.into_iter().map(|job| {
        settle(store, &job, Settlement::Ack).expect("it is ours");
        job.id().as_str().to_owned()
    });
    let mut done: Vec<_> = done.collect();
    done.sort();
    done
}

#[test]
fn fences_rise_whatever_the_clock_says() {
    let (server, store) = start();
    let mut last = 0;
    for (round, seconds) in [0, HOUR, -HOUR, 0, -24 * HOUR, 24 * HOUR, 0].into_iter().enumerate() {
        set_clock(&server, seconds);
        put_all(&store, (0..3).map(|job| put(&format!("{round}-{job}"))).collect());
        let jobs = claimed(&store, 3, LONG).jobs;
        assert!(!jobs.is_empty());
        for job in jobs {
            assert!(job.receipt.fence().0 > last, "{} after {last}", job.receipt);
            last = job.receipt.fence().0;
            settle(&store, &job, Settlement::Ack).expect("it is ours");
        }
    }
    is_whole(&store);
}

#[test]
fn what_waits_waits_for_the_clock_of_the_server() {
    let (server, store) = start();
    put_all(&store, vec![put("ready"), put_after("later", Duration::from_secs(1800))]);
    set_clock(&server, -HOUR);
    assert_eq!(work(&store), [""; 0], "by the clock it is not yet due");
    let get = |id: &str| {
        let id = requeue_jobs::JobId::new(id).expect("a valid id");
        block_on(store.get(kind(), id)).expect("it is answered").expect("it is there")
    };
    assert_eq!(get("ready").state, JobState::Waiting);
    // What is put now is due by the clock as it is now.
    put_all(&store, vec![put("new"), put_after("soon", Duration::from_millis(1))]);
    let mut found = Vec::new();
    until("it is due", || {
        found.extend(work(&store));
        found.len() == 2
    });
    found.sort();
    assert_eq!(found, ["new", "soon"]);
    // A put makes due again what the clock has taken away.
    put_all(&store, vec![put("ready")]);
    assert_eq!(work(&store), ["ready"]);
    set_clock(&server, 0);
    assert_eq!(work(&store), [""; 0]);
    set_clock(&server, HOUR);
    assert_eq!(work(&store), ["later"]);
    is_whole(&store);
}

#[test]
fn who_waits_for_work_finds_out_that_the_clock_was_set() {
    let (server, store) = start();
    put_all(&store, vec![put_after("later", Duration::from_secs(1800))]);
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("it waits");
    set_clock(&server, HOUR);
    // It thinks that there is half an hour left; and it looks nevertheless.
    let mut found = Vec::new();
    until("it looks", || {
        block_on(store.wait(vec![kind()], LONG)).expect("it waits");
        found = work(&store);
        !found.is_empty()
    });
    assert_eq!(found, ["later"]);
}

#[test]
fn a_lease_of_before_the_jump_ends_by_the_clock_and_is_not_stuck() {
    let (server, store) = start();
    let lease = Duration::from_secs(60);
    put_all(&store, vec![put("a"), put("b")]);
    let mut jobs = claimed(&store, 2, lease).jobs;
    jobs.sort_by_key(|job| job.id().as_str().to_owned());
    set_clock(&server, -HOUR);
    // Its holder is the only one, and can settle it.
    assert_eq!(work(&store), [""; 0]);
    assert_eq!(block_on(store.reap(10)).unwrap().count, 0);
    assert_eq!(settle(&store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
    // An extension never shortens it.
    let extended = settle(&store, &jobs[1], Settlement::Extend(Some(lease)));
    assert_eq!(extended, Ok(Settled::Extended(jobs[1].lease_ends_at)));

    // The clock comes to its end at last.
    set_clock(&server, HOUR);
    let again = claimed(&store, 2, lease).jobs;
    let [job] = &again[..] else { panic!("{again:?}") };
    assert_eq!((job.id(), job.attempt), (jobs[1].id(), 2));
    let stale = settle(&store, &jobs[1], Settlement::Ack);
    assert!(matches!(stale, Err(SettleError::LeaseLost { .. })), "{stale:?}");
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}
