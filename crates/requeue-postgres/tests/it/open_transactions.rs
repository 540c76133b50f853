//! A put in an open transaction locks nothing but its job: all other calls proceed while it is open.
//!
//! A call that waited for it would fail.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claim, claimed, connect, fresh, id, ids, is_whole, kind, kind_named, put,
    put_all, put_of, settle, try_put,
};
use futures_util::future::join_all;
use requeue_jobs::{
    Change, ChangeKind, Changed, ClaimedJob, Jobs, Placed, PutError, PutOutcome, Query, Settings,
    Settle, Settled, Settlement, Store, StoreError,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::until;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

/// A store that does not wait long, its schema, and an application.
fn start() -> (PostgresStore, String, Application) {
    let mut options = fresh();
    options.response_timeout = Duration::from_secs(5);
    let schema = options.schema.clone();
    let url = SERVER.url();
    (connect(&url, options), schema, Application::connect(&url))
}

/// Makes every kind of call about a kind, on other jobs than that of the open transaction.
fn calls(store: &PostgresStore) {
    put_all(store, ["b", "c", "d", "e"].map(put).into());
    let jobs = claimed(store, 4, LONG).jobs;
    assert_eq!(jobs.len(), 4);
    assert!(matches!(
        settle(store, &jobs[0], Settlement::Extend(Some(2 * LONG))),
        Ok(Settled::Extended(_))
    ));
    assert_eq!(settle(store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
    assert_eq!(settle(store, &jobs[1], Settlement::Release), Ok(Settled::Released));
    let retry = Settlement::Retry { delay: Some(LONG), error: "no".into() };
    assert!(matches!(settle(store, &jobs[2], retry), Ok(Settled::RetryAt(_))));
    let cancel = Change { kind: kind(), id: jobs[1].id().clone(), action: ChangeKind::Cancel };
    block_on(store.change(vec![cancel])).expect("it does not wait").remove(0).expect("it exists");
    assert_eq!(settle(store, &jobs[3], Settlement::Ack), Ok(Settled::Done));
    block_on(store.reap(100)).expect("it does not wait");
    let mut settings = Settings::default();
    settings.max_attempts = 7;
    block_on(store.set(kind(), settings)).expect("it does not wait");
    block_on(store.kinds()).expect("it does not wait");
    block_on(store.list(Query::new(kind()))).expect("it does not wait");
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("it does not wait");
    is_whole(store);
}

#[test]
fn other_calls_do_not_wait_for_a_put_in_an_open_transaction() {
    let (store, _, app) = start();
    let jobs = Jobs::new(Arc::new(store.clone()));
    put_all(&store, vec![put("existing")]);
    let held = claimed(&store, 1, LONG).jobs.remove(0);
    settle(&store, &held, Settlement::Release).expect("the lease is held");
    app.run("begin");
    app.put(&store, jobs.put("mail", "new", "")).expect("the put succeeds");
    app.put(&store, jobs.put("mail", "existing", "").after(LONG)).expect("the put succeeds");
    calls(&store);
    app.run("commit");
    assert_eq!(ids(&store).len(), 3, "the two jobs, and the one that is retried");
    is_whole(&store);
}

#[test]
fn other_calls_do_not_wait_for_a_put_that_has_created_its_kind() {
    let (store, _, app) = start();
    let jobs = Jobs::new(Arc::new(store.clone()));
    app.run("begin");
    app.put(&store, jobs.put("mail", "new", "")).expect("the put succeeds");
    calls(&store);
    app.run("rollback");
    assert_eq!(ids(&store).len(), 1, "the job that is retried");
    is_whole(&store);
}

#[test]
fn other_calls_do_not_wait_for_a_cancel_in_an_open_transaction() {
    let (store, schema, app) = start();
    put_all(&store, vec![put("existing")]);
    app.run(&format!("begin; select {schema}.cancel('mail', 'existing')"));
    calls(&store);
    app.run("rollback");
    assert_eq!(claimed(&store, 1, LONG).jobs.len(), 1, "it was not cancelled");
    is_whole(&store);
}

/// The SQL function cannot create a kind outside of its transaction.
#[test]
fn a_kind_that_an_open_transaction_creates_with_sql_delays_only_puts_of_this_kind() {
    let (store, schema, app) = start();
    app.run(&format!("begin; select {schema}.put('mail', 'new', 'hello')"));
    let other = kind_named("other-kind");
    let placed = try_put(&store, put_of(&other, "a")).expect("it does not wait");
    assert_eq!(placed.outcome, PutOutcome::Created);
    assert_eq!(claimed(&store, 1, LONG).jobs.len(), 0);
    assert_eq!(block_on(store.get(kind(), id("new"))), Ok(None));
    block_on(store.reap(100)).expect("it does not wait");
    assert_eq!(block_on(store.kinds()).expect("it does not wait").len(), 1);
    let second = Application::connect(&SERVER.url());
    second.run(&format!("begin; select {schema}.put('third-kind', 'a', 'hello'); commit"));
    let waits = second.try_run(&format!(
        "set lock_timeout = '100ms'; select {schema}.put('mail', 'other', 'hello')"
    ));
    assert_eq!(waits.expect_err("it waits").0, "55P03");
    app.run("commit");
    try_put(&store, put("other")).expect("it does not wait");
    assert_eq!(ids(&store), ["new", "other"]);
    is_whole(&store);
}

/// It waits a moment. Most transactions are over then; otherwise nothing was done, and the caller can repeat it.
#[test]
fn a_put_of_the_same_job_is_unavailable_while_the_transaction_is_open() {
    let (store, _, app) = start();
    let jobs = Jobs::new(Arc::new(store.clone()));
    app.run("begin");
    app.put(&store, jobs.put("mail", "a", "")).expect("the put succeeds");
    let waited = try_put(&store, put("a"));
    assert!(is_unavailable(&waited), "{waited:?}");
    // Other jobs of the process are not affected, also of the same batch.
    let placed = block_on(store.put(["a", "b", "a", "c"].map(put).into())).expect("some are put");
    for (n, placed) in placed.iter().enumerate() {
        assert_eq!((is_unavailable(placed), placed.is_ok()), (n % 2 == 0, n % 2 == 1), "{n}");
    }
    app.run("commit");
    assert_eq!(ids(&store), ["a", "b", "c"]);
    assert_eq!(try_put(&store, put("a")).expect("it is committed").outcome, PutOutcome::Updated);
    is_whole(&store);
}

fn is_unavailable(put: &Result<Placed, PutError>) -> bool {
    matches!(put, Err(PutError::Store(StoreError::Unavailable { .. })))
}

#[test]
fn a_put_of_the_same_job_waits_for_a_transaction_that_ends_soon() {
    let (store, schema, app) = start();
    put_all(&store, vec![put("a")]);
    app.run(&format!("begin; select {schema}.cancel('mail', 'a')"));
    let waiting = store.put(vec![put("b"), put("a")]);
    let asked = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%{schema}%_put%'"
    );
    until("it waits", || SERVER.query(&asked) == "1");
    app.run("commit");
    for placed in block_on(waiting).expect("both are put") {
        assert_eq!(placed.expect("it has no condition").outcome, PutOutcome::Created);
    }
    is_whole(&store);
}

#[test]
fn single_puts_and_changes_of_a_client_do_not_wait_for_long_for_a_job_that_is_locked() {
    let (store, schema, app) = start();
    let jobs = Jobs::new(Arc::new(store.clone()));
    let others: Vec<String> = (0..10).map(|n| format!("other-{n}")).collect();
    for kind in ["mail", "other"] {
        block_on(jobs.put(kind, "a", "").into_future()).expect("it is put");
    }
    app.run(&format!("begin; select {schema}.cancel('mail', 'a')"));
    block_on(async {
        // The client sends the first two alone, and the others together.
        let locked = join_all((0..20).map(|_| jobs.put("mail", "a", "").into_future()));
        let free = join_all(others.iter().map(|id| jobs.put("other", id, "").into_future()));
        let new = join_all(others.iter().map(|kind| jobs.put(kind, "a", "").into_future()));
        let (locked, free, new) = tokio::join!(locked, free, new);
        assert!(locked.iter().all(is_unavailable), "{locked:?}");
        for placed in free.into_iter().chain(new) {
            placed.expect("it does not wait for the transaction");
        }
        let locked = join_all((0..20).map(|_| jobs.run_now("mail", "a")));
        let free = join_all(others.iter().map(|id| jobs.cancel("other", id)));
        let (locked, free) = tokio::join!(locked, free);
        for changed in locked {
            let reason = changed.expect_err("the job is locked").to_string();
            assert!(reason.contains("has locked job a of kind mail"), "{reason}");
        }
        for changed in free {
            assert_eq!(changed, Ok(Changed::Removed));
        }
    });
    app.run("commit");
    is_whole(&store);
}

/// Acks are sent together with the claim that follows them.
#[test]
fn a_claim_does_not_wait_for_an_ack_of_a_job_that_an_open_transaction_cancels() {
    let (store, schema, app) = start();
    put_all(&store, ["a", "b", "c", "d"].map(put).into());
    let mut jobs = claimed(&store, 2, LONG).jobs;
    let ack = |job: ClaimedJob| {
        store.settle(vec![Settle { receipt: job.receipt, action: Settlement::Ack }])
    };
    let next = || store.claim(claim(1, LONG));
    // The next ack expects to be followed by a claim, as this one is.
    let (acking, claiming) = (ack(jobs.remove(1)), next());
    assert_eq!(block_on(claiming).expect("it does not wait").jobs.len(), 1);
    assert_eq!(block_on(acking), Ok(vec![Ok(Settled::Done)]));
    app.run("begin");
    app.run(&format!("select {schema}.cancel('mail', 'a')"));
    let (acking, claiming) = (ack(jobs.remove(0)), next());
    let claimed = block_on(claiming).expect("it does not wait");
    assert_eq!((claimed.jobs.len(), claimed.errors), (1, Vec::new()));
    app.run("commit");
    assert_eq!(block_on(acking), Ok(vec![Ok(Settled::Cancelled)]));
    is_whole(&store);
}
