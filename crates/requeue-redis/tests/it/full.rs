//! A server without room takes no more jobs, and those that it has can be worked off.

use crate::support::{claimed, connect, fresh, ids, is_whole, put, settle, try_put};
use requeue_jobs::{
    Body, Change, ChangeKind, Changed, Placed, Put, PutError, Settled, Settlement, Store,
    StoreError,
};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use std::collections::BTreeSet;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

fn large(number: usize) -> Put {
    let body = Body::octets(vec![b'x'; 10_000]).expect("it is not too large");
    Put { body, ..put(&format!("job-{number}")) }
}

fn is_full(answer: &Result<Placed, PutError>) -> bool {
    match answer {
        Ok(_) => false,
        Err(PutError::Store(StoreError::Unavailable { reason })) => {
            assert!(reason.contains("OOM") && reason.contains("maxmemory"), "{reason}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_full_server_takes_no_more_jobs_and_lets_those_it_has_be_worked_off() {
    let server = RedisServer::with(&["--maxmemory", "8mb"]);
    let store = connect(&server.url(), fresh());
    let taken = (0..5000).find(|number| is_full(&try_put(&store, large(*number))));
    let taken = taken.expect("it is full at last");
    assert!(taken > 100, "{taken}");
    assert_eq!(ids(&store).len(), taken, "what was refused is not there");
    // The scripts that follow are not loaded yet either.
    server.command(&["SCRIPT", "FLUSH"]);

    let jobs = claimed(&store, 4, LONG).jobs;
    assert!(matches!(settle(&store, &jobs[0], Settlement::Extend(None)), Ok(Settled::Extended(_))));
    let (delay, error) = (Some(Duration::ZERO), "x".repeat(1000));
    let retry = settle(&store, &jobs[0], Settlement::Retry { delay, error });
    assert!(matches!(retry, Ok(Settled::RetryAt(_))), "{retry:?}");
    assert_eq!(settle(&store, &jobs[1], Settlement::Release), Ok(Settled::Released));
    let change = |action| Change { kind: jobs[2].kind().clone(), id: jobs[2].id().clone(), action };
    let changed = block_on(store.change(vec![change(ChangeKind::Cancel)])).expect("it is answered");
    assert_eq!(changed, [Ok(Changed::Ending)]);
    assert_eq!(settle(&store, &jobs[2], Settlement::Ack), Ok(Settled::Cancelled));
    assert_eq!(settle(&store, &jobs[3], Settlement::Ack), Ok(Settled::Done));

    let mut done: BTreeSet<_> = jobs[2..].iter().map(|job| job.id().clone()).collect();
    loop {
        let jobs = claimed(&store, 50, LONG).jobs;
        if jobs.is_empty() {
            break;
        }
        for job in jobs {
            assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
            assert!(done.insert(job.id().clone()), "{} is done twice", job.id());
        }
    }
    assert_eq!(done.len(), taken);
    is_whole(&store);
    for number in 0..taken / 2 {
        try_put(&store, large(number)).expect("there is room again");
    }
}

#[test]
fn a_kind_that_is_new_is_refused_by_a_full_server_and_leaves_nothing() {
    let server = RedisServer::start();
    let store = connect(&server.url(), fresh());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(is_full(&try_put(&store, put("a"))));
    assert_eq!(block_on(store.kinds()), Ok(Vec::new()));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    try_put(&store, put("a")).expect("there is room again");
    is_whole(&store);
}
