//! Locks of others delay no calls that are about something else.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claim, claim_of, claimed, connect, fresh, id, is_whole, kind, kind_named, put,
    put_all, put_of, settle, try_put,
};
use requeue_jobs::{
    Body, ClaimedJob, Missed, Priority, Rate, Schedule, ScheduleCondition, Settings, Settle,
    SettleError, Settled, Settlement, Spans, Store, StoreError, Tick, TickJob, Ticked, Timestamp,
};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, until};
use std::time::{Duration, Instant};

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

#[test]
fn calls_that_wait_for_locked_jobs_of_many_kinds_leave_connections_for_others() {
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    put_all(&store, vec![put("held")]);
    let held = claimed(&store, 1, LONG).jobs.remove(0);
    let app = Application::connect(&SERVER.url());
    let kinds: Vec<_> = (0..12).map(|n| kind_named(&format!("kind-{n}"))).chain([kind()]).collect();
    put_all(&store, kinds.iter().map(|kind| put_of(kind, "a")).collect());
    app.run("begin");
    for kind in &kinds {
        app.run(&format!("select {schema}.cancel('{kind}', 'a')"));
    }
    let waiting: Vec<_> =
        (0..3).flat_map(|_| &kinds).map(|kind| store.put(vec![put_of(kind, "a")])).collect();
    for name in ["one", "two", "three"] {
        try_put(&store, put_of(&kind_named(name), "a")).expect("it does not wait");
        block_on(store.get(kind(), id("held"))).expect("it does not wait");
        // Of a kind whose calls wait.
        let extended = settle(&store, &held, Settlement::Extend(Some(LONG)));
        assert!(matches!(extended, Ok(Settled::Extended(_))), "{extended:?}");
    }
    for put in waiting {
        let put = block_on(put).expect("it is reported for the entry").remove(0);
        let reason = put.expect_err("the job is locked").to_string();
        assert!(reason.contains("has locked job a of kind"), "{reason}");
    }
    app.run("rollback");
    is_whole(&store);
}

#[test]
fn a_statement_that_has_timed_out_is_cancelled() {
    let mut options = impatient();
    let schema = options.schema.clone();
    drop(connect(&SERVER.url(), options.clone()));
    options.response_timeout = Duration::from_millis(500);
    let store = connect(&SERVER.url(), options);
    let app = Application::connect(&SERVER.url());
    app.run(&format!("begin; lock table {schema}.job in access exclusive mode"));
    let failed = block_on(store.get(kind(), id("a"))).expect_err("the table is locked");
    assert!(failed.to_string().contains("no response within 500ms"), "{failed}");
    let waits = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%\"{schema}\".job%'"
    );
    until("nothing waits for the lock", || SERVER.query(&waits) == "0");
    app.run("rollback");
    assert_eq!(block_on(store.get(kind(), id("a"))), Ok(None));
}

#[test]
fn locked_jobs_of_many_kinds_delay_settlements_as_long_as_one() {
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    let kinds: Vec<_> = (0..12).map(|n| kind_named(&format!("kind-{n}"))).collect();
    let mut jobs = Vec::new();
    for kind in &kinds {
        put_all(&store, ["a", "b"].map(|id| put_of(kind, id)).into());
        let claimed = block_on(store.claim(claim_of(kind, 2, LONG))).expect("the server is up");
        jobs.extend(claimed.jobs);
    }
    assert_eq!(jobs.len(), 24);
    let app = Application::connect(&SERVER.url());
    app.run("begin");
    for kind in &kinds {
        app.run(&format!("select {schema}.put('{kind}', 'a', 'again')"));
    }
    let began = Instant::now();
    let ack = |job: &ClaimedJob| Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
    let settled = block_on(store.settle(jobs.iter().map(ack).collect())).expect("some are free");
    // A second for each kind would be twelve.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    for (job, result) in jobs.iter().zip(&settled) {
        let is_locked = job.id().as_str() == "a";
        assert_eq!((is_unavailable(result), result.is_ok()), (is_locked, !is_locked));
    }
    app.run("rollback");
    is_whole(&store);
}

#[test]
fn a_run_of_a_schedule_whose_job_is_locked_is_unavailable_and_others_start() {
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&SERVER.url(), options);
    let (now, next) = (Timestamp::from_millis(1_000), Timestamp::from_millis(2_000));
    let tick = |name: &str| {
        let job = TickJob {
            id: id(name),
            content: Body::default().into(),
            priority: Priority::default(),
        };
        let (kind, expected, put) = (kind(), now, Some(job));
        block_on(store.tick(Tick { kind, id: id(name), expected, next, put }))
    };
    for name in ["existing", "new", "other"] {
        let schedule = Schedule {
            id: id(name),
            when: "@hourly".to_owned(),
            time_zone: "UTC".to_owned(),
            content: Body::default().into(),
            missed: Missed::One,
            next: now,
        };
        let set = store.set_schedule(kind(), schedule, ScheduleCondition::Always);
        assert_eq!(block_on(set), Ok(true));
    }
    put_all(&store, vec![put("existing")]);
    let app = Application::connect(&SERVER.url());
    app.run(&format!("begin; select {schema}.put('mail', 'existing', 'x')"));
    app.run(&format!("select {schema}.put('mail', 'new', 'x')"));
    for name in ["existing", "new"] {
        let ticked = tick(name);
        assert!(matches!(ticked, Err(StoreError::Unavailable { .. })), "{ticked:?}");
    }
    assert!(matches!(tick("other"), Ok(Ticked::Put(_))));
    app.run("commit");
    for name in ["existing", "new"] {
        assert!(matches!(tick(name), Ok(Ticked::Put(_))));
    }
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

#[test]
fn counts_by_due_time_leave_connections_to_other_calls() {
    let server = PostgresServer::start();
    let options = impatient();
    let schema = options.schema.clone();
    let store = connect(&server.url(), options);
    put_all(&store, vec![put("a")]);
    // A count of many jobs takes long, too.
    let slow = Application::connect(&server.url());
    slow.run("begin");
    slow.run(&format!("lock table {schema}.job in access exclusive mode"));
    let spans = Spans { from: Timestamp::from_millis(0), length: LONG, count: 3 };
    let counts: Vec<_> = (0..30).map(|_| store.upcoming(kind(), spans)).collect();
    block_on(store.settings(kind_named("other"))).expect("a connection is free");
    slow.run("rollback");
    for count in counts {
        drop(block_on(count));
    }
    block_on(store.upcoming(kind(), spans)).expect("the server is up");
}
