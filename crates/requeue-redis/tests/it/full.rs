//! When the memory of a server is full, new jobs are rejected, and existing jobs can be processed.

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
    let body = Body::octets(vec![b'x'; 10_000]).expect("a valid body");
    Put { content: body.into(), ..put(&format!("job-{number}")) }
}

fn is_full(result: &Result<Placed, PutError>) -> bool {
    match result {
        Ok(_) => false,
        Err(PutError::Store(StoreError::Unavailable { reason })) => {
            assert!(reason.contains("OOM") && reason.contains("maxmemory"), "{reason}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_full_server_rejects_new_jobs_and_lets_existing_jobs_be_processed() {
    let server = RedisServer::with(&["--maxmemory", "8mb"]);
    let store = connect(&server.url(), fresh());
    let accepted = (0..5000).find(|number| is_full(&try_put(&store, large(*number))));
    let accepted = accepted.expect("the server is full in the end");
    assert!(accepted > 100, "{accepted}");
    assert_eq!(ids(&store).len(), accepted, "rejected jobs are not stored");
    // The scripts have to be loaded again while memory is full.
    server.command(&["SCRIPT", "FLUSH"]);

    let jobs = claimed(&store, 4, LONG).jobs;
    assert!(matches!(settle(&store, &jobs[0], Settlement::Extend(None)), Ok(Settled::Extended(_))));
    let (delay, error) = (Some(Duration::ZERO), "x".repeat(1000));
    let retry = settle(&store, &jobs[0], Settlement::Retry { delay, error });
    assert!(matches!(retry, Ok(Settled::RetryAt(_))), "{retry:?}");
    assert_eq!(settle(&store, &jobs[1], Settlement::Release), Ok(Settled::Released));
    let change = |action| Change { kind: jobs[2].kind().clone(), id: jobs[2].id().clone(), action };
    let changed =
        block_on(store.change(vec![change(ChangeKind::Cancel)])).expect("the server is up");
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
            assert!(done.insert(job.id().clone()), "{} was processed twice", job.id());
        }
    }
    assert_eq!(done.len(), accepted);
    is_whole(&store);
    for number in 0..accepted / 2 {
        try_put(&store, large(number)).expect("memory is free again");
    }
}

#[test]
fn a_full_server_rejects_a_new_kind_and_stores_nothing() {
    let server = RedisServer::start();
    let store = connect(&server.url(), fresh());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(is_full(&try_put(&store, put("a"))));
    assert_eq!(block_on(store.kinds()), Ok(Vec::new()));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    try_put(&store, put("a")).expect("memory is free again");
    is_whole(&store);
}
