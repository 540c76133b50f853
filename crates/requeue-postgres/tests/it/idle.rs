//! A worker without work asks the server with one statement per poll, however many kinds it has, and claims nothing.

use crate::support::{LONG, claim_of, fresh, kind_named, put_of};
use requeue::ManualClock;
use requeue_jobs::{
    BoxError, JobWorker, Jobs, Kind, Settle, Settlement, Store, Timestamp, WallClock,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, until};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;

const KINDS: usize = 20;

/// Half of the kinds had a job, and the others have never existed.
#[test]
fn a_worker_of_idle_kinds_polls_and_does_not_claim() {
    let server = PostgresServer::with(&PostgresVersion::chosen(), &["-c", "track_functions=pl"]);
    // The time stands still: nothing becomes due, and no wait ends with its limit.
    let clock = ManualClock::new();
    let time = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    let mut options = fresh();
    // The counts of one session are complete up to its latest statement.
    options.max_connections = 1;
    let schema = options.schema.clone();
    let store = block_on(PostgresStore::connect_at(&server.url(), options, Some(time)));
    let store = store.expect("the server is up");
    let kinds: Vec<Kind> = (0..KINDS).map(|n| kind_named(&format!("kind-{n}"))).collect();
    for kind in &kinds[..KINDS / 2] {
        block_on(store.put(vec![put_of(kind, "a")])).expect("the server is up");
        let job = block_on(store.claim(claim_of(kind, 1, LONG))).expect("the server is up").jobs;
        let ack = Settle { receipt: job[0].receipt.clone(), action: Settlement::Ack };
        block_on(store.settle(vec![ack])).expect("the server is up")[0].as_ref().expect("held");
    }
    let calls = |function: &str| -> usize {
        let count = format!(
            "select coalesce(sum(calls), 0) from pg_stat_user_functions \
             where schemaname = '{schema}' and funcname = '{function}'"
        );
        server.query(&count).parse().expect("a number")
    };
    let jobs = Jobs::new(Arc::new(store));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        runtime.block_on(async {
            let worker = JobWorker::new(&jobs, kinds.iter().map(Kind::as_str), "idle");
            let worker = worker.expect("the arguments are valid");
            let running = worker.spawn(|_| async { Ok::<_, BoxError>(()) });
            drop(stopped.await);
            running.stop(Duration::ZERO).await;
        });
    });
    let began = calls("_peek");
    until("the worker has polled often", || calls("_peek") >= began + 40);
    let claims = calls("_claim");
    println!("{claims} claims in {} polls", calls("_peek") - began);
    // Ten were made above. The worker begins with a claim of each kind that exists.
    assert!(claims <= KINDS, "{claims} claims");
    drop(stop);
    working.join().expect("the worker does not panic");
}
