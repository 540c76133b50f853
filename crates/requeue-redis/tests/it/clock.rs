//! The clock of the server is set back, and forward.
//!
//! The store uses the time of the server. It guarantees:
//!
//! - Fences increase, whatever the clock shows.
//! - No job is claimed before the server's clock shows its due time. If the clock is set back, jobs
//!   wait that much longer, even those that were ready. If it is set forward, they wait that much
//!   less.
//! - A lease expires when the server's clock shows its end. If the clock is set back, the lease lasts
//!   that much longer, and not more. Meanwhile nobody else can claim the job, and its holder can
//!   settle it.
//! - The due time of a job that is put after the jump is relative to the new time.

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

/// Sets the clock, as an offset to the true time, and waits until the server uses it.
fn set_clock(server: &RedisServer, seconds: i64) {
    let time = || {
        let time = server.command(&["TIME"]);
        time.lines().next().and_then(|time| time.parse::<i64>().ok()).expect("a time")
    };
    let true_time = || {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.expect("the time is after 1970").as_secs() as i64
    };
    server.set_clock(seconds);
    until("the clock is set", || (time() - true_time() - seconds).abs() < 60);
}

/// Claims and acks all claimable jobs, and returns their ids.
fn work(store: &RedisStore) -> Vec<String> {
    let done = claimed(store, 10, LONG).jobs.into_iter().map(|job| {
        settle(store, &job, Settlement::Ack).expect("the lease is held");
        job.id().as_str().to_owned()
    });
    let mut done: Vec<_> = done.collect();
    done.sort();
    done
}

#[test]
fn fences_increase_whatever_the_clock_shows() {
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
            settle(&store, &job, Settlement::Ack).expect("the lease is held");
        }
    }
    is_whole(&store);
}

#[test]
fn due_times_follow_the_clock_of_the_server() {
    let (server, store) = start();
    put_all(&store, vec![put("ready"), put_after("later", Duration::from_secs(1800))]);
    set_clock(&server, -HOUR);
    assert_eq!(work(&store), [""; 0], "not yet due by the clock of the server");
    let get = |id: &str| {
        let id = requeue_jobs::JobId::new(id).expect("a valid id");
        block_on(store.get(kind(), id)).expect("the server is up").expect("the job exists")
    };
    assert_eq!(get("ready").state, JobState::Waiting);
    // Jobs that are put now are due by the new time.
    put_all(&store, vec![put("new"), put_after("soon", Duration::from_millis(1))]);
    let mut found = Vec::new();
    until("it is due", || {
        found.extend(work(&store));
        found.len() == 2
    });
    found.sort();
    assert_eq!(found, ["new", "soon"]);
    // A put makes a job due again that the clock has moved into the future.
    put_all(&store, vec![put("ready")]);
    assert_eq!(work(&store), ["ready"]);
    set_clock(&server, 0);
    assert_eq!(work(&store), [""; 0]);
    set_clock(&server, HOUR);
    assert_eq!(work(&store), ["later"]);
    is_whole(&store);
}

#[test]
fn waiting_callers_notice_that_the_clock_was_set() {
    let (server, store) = start();
    put_all(&store, vec![put_after("later", Duration::from_secs(1800))]);
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("the server is up");
    set_clock(&server, HOUR);
    // The store expects the job in half an hour, but asks the server again before that.
    let mut found = Vec::new();
    until("the job is found", || {
        block_on(store.wait(vec![kind()], LONG)).expect("the server is up");
        found = work(&store);
        !found.is_empty()
    });
    assert_eq!(found, ["later"]);
}

#[test]
fn a_lease_from_before_the_jump_expires_by_the_new_time() {
    let (server, store) = start();
    let lease = Duration::from_secs(60);
    put_all(&store, vec![put("a"), put("b")]);
    let mut jobs = claimed(&store, 2, lease).jobs;
    jobs.sort_by_key(|job| job.id().as_str().to_owned());
    set_clock(&server, -HOUR);
    // Nobody else can claim the job, and its holder can settle it.
    assert_eq!(work(&store), [""; 0]);
    assert_eq!(block_on(store.reap(10)).unwrap().count, 0);
    assert_eq!(settle(&store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
    // An extension never shortens it.
    let extended = settle(&store, &jobs[1], Settlement::Extend(Some(lease)));
    assert_eq!(extended, Ok(Settled::Extended(jobs[1].lease_ends_at)));

    // The clock reaches the end of the lease.
    set_clock(&server, HOUR);
    let again = claimed(&store, 2, lease).jobs;
    let [job] = &again[..] else { panic!("{again:?}") };
    assert_eq!((job.id(), job.attempt), (jobs[1].id(), 2));
    let stale = settle(&store, &jobs[1], Settlement::Ack);
    assert!(matches!(stale, Err(SettleError::LeaseLost { .. })), "{stale:?}");
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}
