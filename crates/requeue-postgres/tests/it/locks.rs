//! Locks of others delay no calls that are about something else.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claim, claimed, connect, fresh, is_whole, kind, kind_named, put, put_all, put_of,
    settle, try_put,
};
use requeue_jobs::{
    ClaimedJob, Rate, Settings, Settle, SettleError, Settled, Settlement, Store, StoreError,
};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::PostgresServer;
use std::time::Duration;

/// Options of a store that does not wait long, and has fewer connections than there are calls.
fn impatient() -> Options {
    let mut options = fresh();
    options.response_timeout = Duration::from_secs(10);
    options.connect_timeout = Duration::from_secs(2);
    options
}

/// Advisory locks have no owner: every role that can connect can take those that a program uses.
#[test]
fn a_role_without_privileges_cannot_take_a_lock_that_the_store_needs() {
    let server = PostgresServer::start();
    let options = impatient();
    let (schema, later) = (options.schema.clone(), impatient());
    let store = connect(&server.url(), options);
    put_all(&store, ["a", "b"].map(put).into());
    let mut settings = Settings::default();
    settings.concurrency = Some(10);
    settings.rate = Some(Rate { jobs: 1000, per: Duration::from_secs(1), burst: Some(1000) });
    block_on(store.set(kind(), settings.clone())).expect("the server is up");
    server
        .query(&format!("create role stranger login; grant usage on schema {schema} to stranger"));
    let stranger = Application::connect(&server.url().replace("requeue@", "stranger@"));
    assert_eq!(stranger.run("select current_user"), "stranger");

    let kinds = server.query(&format!("select string_agg(kind_id::text, ',') from {schema}.kind"));
    stranger.run("begin");
    for table in ["job", "kind", "total", "delta", "cluster", "format"] {
        stranger.run(&format!(
            "select pg_advisory_lock('{schema}.{table}'::regclass::oid::int, n) from unnest(array[0, {kinds}]) n"
        ));
    }
    for schema in [&schema, &later.schema] {
        stranger.run(&format!(
            "select pg_advisory_lock(hashtext('requeue migrations'), hashtext('{schema}'))"
        ));
    }
    // As after a restart of the server.
    server.query(&format!("select setval('{schema}.raised_at', 1)"));

    let claims: Vec<_> = (0..15).map(|_| store.claim(claim(1, LONG))).collect();
    try_put(&store, put_of(&kind_named("other"), "a")).expect("it does not wait");
    let jobs: usize =
        claims.into_iter().map(|claim| block_on(claim).expect("it does not wait").jobs.len()).sum();
    assert_eq!(jobs, 2);
    settings.paused = true;
    block_on(store.set(kind(), settings)).expect("it does not wait");
    block_on(store.reap(100)).expect("it does not wait");
    let deltas = server.query(&format!("select count(*) from {schema}.delta"));
    assert_eq!(deltas, "0", "the reap has added up the counts");
    drop(connect(&server.url(), later));
    is_whole(&store);

    // Nor the locks that it uses instead.
    let tables = server.query(&format!(
        "select string_agg(relname, ' ') from pg_class \
         where relnamespace = '{schema}'::regnamespace and relkind in ('r', 'v')"
    ));
    stranger.run("rollback");
    assert!(tables.split(' ').count() >= 8, "{tables}");
    for table in tables.split(' ') {
        for sql in [
            format!("select 1 from {schema}.{table} for update"),
            format!("select 1 from {schema}.{table} for key share"),
            format!("lock table {schema}.{table} in access share mode"),
        ] {
            let refused = stranger.try_run(&format!("begin; {sql}")).expect_err(&sql);
            assert_eq!(refused.0, "42501", "{sql}");
            stranger.run("rollback");
        }
    }
    let lock = format!("select {schema}._lock_kind({})", kinds.split(',').next().expect("a kind"));
    assert_eq!(stranger.try_run(&lock).expect_err(&lock).0, "42501");
}

#[test]
fn calls_that_wait_for_a_locked_job_leave_connections_for_other_kinds() {
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    put_all(&store, ["a", "b"].map(put).into());
    let app = Application::connect(&SERVER.url());
    app.run(&format!("begin; select {schema}.cancel('mail', 'a')"));
    // More than there are connections.
    let waiting: Vec<_> = (0..20).map(|_| store.put(vec![put("a")])).collect();
    for name in ["one", "two", "three"] {
        let kind = kind_named(name);
        try_put(&store, put_of(&kind, "a")).expect("it does not wait");
    }
    app.run("rollback");
    // Some may have waited for a connection for too long: they have done nothing.
    let placed: Vec<_> = waiting.into_iter().map(block_on).collect();
    assert!(placed.iter().any(Result::is_ok), "{placed:?}");
    let unknown = |put: &Result<_, _>| matches!(put, Err(StoreError::Unknown { .. }));
    assert!(!placed.iter().any(unknown), "{placed:?}");
    is_whole(&store);
}

/// A store with ten leases, and an application.
fn ten_leases() -> (PostgresStore, String, Vec<ClaimedJob>, Application) {
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    put_all(&store, (0..10).map(|n| put(&n.to_string())).collect());
    let jobs = claimed(&store, 10, Duration::from_secs(60)).jobs;
    assert_eq!(jobs.len(), 10);
    (store, schema, jobs, Application::connect(&SERVER.url()))
}

fn is_unavailable(result: &Result<Settled, SettleError>) -> bool {
    matches!(result, Err(SettleError::Store(StoreError::Unavailable { .. })))
}

#[test]
fn extensions_skip_a_job_that_an_open_transaction_has_locked() {
    for call in ["cancel('mail', '3')", "put('mail', '3', 'again')"] {
        let (store, schema, jobs, app) = ten_leases();
        app.run(&format!("begin; select {schema}.{call}"));
        let extend = |job: &ClaimedJob| Settle {
            receipt: job.receipt.clone(),
            action: Settlement::Extend(Some(LONG)),
        };
        let all = jobs.iter().map(extend).collect();
        let results = block_on(store.settle(all)).expect("it does not wait");
        for (job, result) in jobs.iter().zip(&results) {
            let is_locked = job.id().as_str() == "3";
            assert_eq!(is_unavailable(result), is_locked, "{}: {result:?}", job.id());
            assert_eq!(matches!(result, Ok(Settled::Extended(_))), !is_locked);
        }
        app.run("commit");
        let third = jobs.iter().find(|job| job.id().as_str() == "3").expect("it was claimed");
        let repeated = settle(&store, third, Settlement::Extend(Some(LONG)));
        match call.starts_with("cancel") {
            true => assert_eq!(repeated, Ok(Settled::Cancelled)),
            false => assert!(matches!(repeated, Ok(Settled::Extended(_))), "{repeated:?}"),
        }
        is_whole(&store);
    }
}

/// A worker sends its acks and extensions together: a call that waited would let other leases expire.
#[test]
fn settlements_do_not_wait_long_for_a_job_that_an_open_transaction_has_locked() {
    let (store, schema, jobs, app) = ten_leases();
    app.run(&format!("begin; select {schema}.put('mail', '3', 'again')"));
    let settle_all = |action: fn(usize) -> Settlement| {
        let all = jobs.iter().enumerate().map(|(n, job)| Settle {
            receipt: job.receipt.clone(),
            action: if job.id().as_str() == "3" { Settlement::Ack } else { action(n) },
        });
        block_on(store.settle(all.collect())).expect("it does not wait long")
    };
    // The jobs that are released are settled by the rules, as is the ack, because the job is locked.
    for action in [(|_| Settlement::Extend(None)) as fn(usize) -> Settlement, |n| {
        if n % 2 == 0 { Settlement::Release } else { Settlement::Ack }
    }] {
        for (job, result) in jobs.iter().zip(settle_all(action)) {
            let is_locked = job.id().as_str() == "3";
            assert_eq!((is_unavailable(&result), result.is_ok()), (is_locked, !is_locked));
        }
    }
    app.run("commit");
    let third = jobs.iter().find(|job| job.id().as_str() == "3").expect("it was claimed");
    assert_eq!(settle(&store, third, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}
