//! The SQL functions `put` and `cancel`. Those of `reschedule` are in `reschedules.rs`.

use crate::support::application::Application;
use crate::support::{
    LONG, SERVER, claimed, clients, connect, fresh, id, ids, is_whole, kind, put, put_after,
    put_all, settle,
};
use requeue_jobs::{JobState, Kind, Settled, Settlement, Store};
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::PostgresServer;
use std::time::Duration;

/// A new schema, its name, and an application.
fn start() -> (PostgresStore, String, Application) {
    let options = fresh();
    let schema = options.schema.clone();
    (connect(&SERVER.url(), options), schema, Application::connect(&SERVER.url()))
}

#[test]
fn put_has_all_options_of_a_put() {
    let (store, schema, app) = start();
    let put = |arguments: &str| app.run(&format!("select outcome from {schema}.put({arguments})"));
    assert_eq!(put("'mail', 'text', 'hello'"), "created");
    assert_eq!(put("'mail', 'json', '{\"a\": 1}'::jsonb"), "created");
    assert_eq!(put("'mail', 'bytes', '\\x00ff'::bytea, content_type => 'image/png'"), "created");
    assert_eq!(put("'mail', 'text', 'again', delay => '1 hour', priority => 5"), "updated");
    assert_eq!(
        put("'mail', 'text', 'earlier', mode => 'earliest', delay => '1 minute'"),
        "updated"
    );
    assert_eq!(put("'mail', 'text', 'kept', mode => 'keep'"), "kept");
    let wait = "mode => 'debounce', delay => '2 hours', max_wait => '3 hours'";
    assert_eq!(put(&format!("'mail', 'text', 'debounced', {wait}")), "updated");
    assert_eq!(put("'mail', 'text', 'x', condition => 'if_absent'"), "exists");
    assert_eq!(put("'mail', 'text', 'x', condition => 'if_new'"), "exists");
    let wrong = "condition => 'if_generation', generation => 1000000";
    assert_eq!(put(&format!("'mail', 'text', 'x', {wrong}")), "other_generation");
    assert_eq!(put("'mail', 'due', 'x', due => now() + '1 day'"), "created");
    assert_eq!(put("'mail', 'past', 'x', due => '1900-01-01', notify => true"), "created");

    let view = |name: &str| {
        let view = block_on(store.get(kind(), id(name))).expect("the server is up");
        view.expect("it exists")
    };
    assert_eq!(view("text").body().bytes(), b"debounced");
    assert_eq!(
        (view("text").body().content_type(), view("text").version.priority.get()),
        ("text/plain", 0)
    );
    assert_eq!(
        (view("json").body().bytes(), view("json").body().content_type()),
        (&b"{\"a\": 1}"[..], "application/json")
    );
    assert_eq!(
        (view("bytes").body().bytes(), view("bytes").body().content_type()),
        (&[0, 255][..], "image/png")
    );
    assert_eq!(view("due").state, JobState::Waiting);
    assert_eq!(view("past").state, JobState::Ready);
    is_whole(&store);
}

#[test]
fn every_invalid_argument_of_put_is_a_clear_error_and_changes_nothing() {
    let (store, schema, app) = start();
    let long_id = format!("'mail', '{}'", "x".repeat(513));
    let cases = [
        ("'', 'a'", "kind '' must have 1 to 128 characters"),
        ("null, 'a'", "kind NULL must have 1 to 128 characters"),
        ("'a b', 'a'", "kind 'a b' must have"),
        ("E'mail\\n', 'a'", "must have 1 to 128 characters"),
        ("'requeue.schedules', 'mail/daily'", "kind 'requeue.schedules' is reserved"),
        ("'mail', ''", "the id must not be empty"),
        ("'mail', null", "the id must not be empty"),
        (&long_id, "the id has 513 bytes; the limit is 512"),
        ("'mail', 'a', null::text", "the body must not be null"),
        ("'mail', 'a', repeat('x', 1048577)", "the body has 1048577 bytes; the limit is 1048576"),
        ("'mail', 'a', 'x', content_type => repeat('x', 129)", "the content type has 129 bytes"),
        ("'mail', 'a', 'x', '1 s', now()", "delay and due exclude each other"),
        ("'mail', 'a', 'x', delay => '-1 s'", "it must not be negative"),
        ("'mail', 'a', 'x', delay => '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', 'x', due => now() + '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', 'x', due => 'infinity'", "must not be infinite"),
        ("'mail', 'a', 'x', due => '-infinity'", "must not be infinite"),
        ("'mail', 'a', 'x', priority => 10", "the priority is 10; the range is 0 to 9"),
        ("'mail', 'a', 'x', priority => -1", "the priority is -1; the range is 0 to 9"),
        ("'mail', 'a', 'x', priority => null", "the range is 0 to 9"),
        ("'mail', 'a', 'x', mode => 'soon'", "mode 'soon' must be replace"),
        ("'mail', 'a', 'x', mode => null", "mode NULL must be replace"),
        ("'mail', 'a', 'x', mode => 'debounce'", "which requires it"),
        ("'mail', 'a', 'x', max_wait => '1 s'", "max_wait belongs to the mode debounce"),
        ("'mail', 'a', 'x', mode => 'debounce', max_wait => '-1 s'", "it must not be negative"),
        ("'mail', 'a', 'x', condition => 'if_blue'", "condition 'if_blue' must be if_absent"),
        ("'mail', 'a', 'x', condition => 'if_generation'", "which requires it"),
        ("'mail', 'a', 'x', generation => 5", "generation belongs to the condition"),
    ];
    for (arguments, message) in cases {
        let failed = app.try_run(&format!("select {schema}.put({arguments})"));
        let (code, text) = failed.expect_err(arguments);
        assert!(text.starts_with("put: ") && text.contains(message), "{arguments}: {text}");
        assert_eq!(code, "22023", "{arguments}: {text}");
    }
    assert_eq!(block_on(store.kinds()).expect("the server is up"), []);
    assert_eq!(app.run(&format!("select count(*) from {schema}.job")), "0");
}

#[test]
fn a_due_time_that_is_put_with_sql_is_rounded_up() {
    let (store, schema, app) = start();
    app.run(&format!("select {schema}.put('mail', 'a', 'x', due => '2030-01-01 00:00:00.0001Z')"));
    let view = block_on(store.get(kind(), id("a"))).expect("the server is up");
    assert_eq!(view.expect("it exists").version.due.as_millis(), 1_893_456_000_001);
}

#[test]
fn ids_with_control_characters_are_the_same_in_sql_and_rust() {
    let (store, schema, app) = start();
    app.run(&format!(
        "select {schema}.put('mail', chr(1), 'x'), {schema}.put('mail', chr(1) || chr(2), 'x')"
    ));
    assert_eq!(ids(&store), ["\u{1}", "\u{1}\u{2}"]);
    assert_eq!(app.run(&format!("select {schema}.cancel('mail', chr(1))")), "removed");
    assert_eq!(ids(&store), ["\u{1}\u{2}"]);
    is_whole(&store);
}

#[test]
fn cancel_ends_a_job_in_every_state() {
    let (store, schema, app) = start();
    let cancel = |name: &str| app.run(&format!("select {schema}.cancel('mail', '{name}')"));
    assert_eq!(cancel("absent"), "absent");
    put_all(&store, ["leased", "dead"].map(put).into());
    let jobs = claimed(&store, 2, LONG).jobs;
    let dead = jobs.iter().find(|job| job.id().as_str() == "dead").expect("it is claimed");
    settle(&store, dead, Settlement::Bury { error: "no".into() }).expect("the lease is held");
    let leased = jobs.iter().find(|job| job.id().as_str() == "leased").expect("it is claimed");
    put_all(&store, vec![put("leased"), put("ready"), put_after("waiting", LONG)]);
    for name in ["ready", "waiting", "dead"] {
        assert_eq!(cancel(name), "removed");
        assert_eq!(cancel(name), "absent");
        is_whole(&store);
    }
    assert_eq!(cancel("leased"), "ending");
    assert_eq!(cancel("leased"), "ending");
    is_whole(&store);
    let ended = settle(&store, leased, Settlement::Ack);
    assert_eq!(ended, Ok(Settled::Cancelled));
    assert_eq!(ids(&store), Vec::<String>::new());
    assert_eq!(cancel("leased"), "absent");
    is_whole(&store);
}

/// With timers of schedules, anybody could stop them.
#[test]
fn the_jobs_of_reserved_kinds_cannot_be_changed_with_sql() {
    let (store, schema, app) = start();
    let timers = Kind::with_reserved("requeue.schedules").expect("a valid kind");
    let mut timer = put("mail/daily");
    timer.kind = timers.clone();
    put_all(&store, vec![timer]);
    let get = || block_on(store.get(timers.clone(), id("mail/daily"))).expect("the server is up");
    let before = get().expect("it exists");
    for call in [
        "put('requeue.schedules', 'mail/daily', 'x', delay => '9 days')",
        "put('requeue.schedules', 'mail/daily', '{}'::jsonb)",
        "put('requeue.x', 'mail/daily', 'x'::bytea)",
        "reschedule('requeue.schedules', 'mail/daily', delay => '9 days')",
        "reschedule('requeue.schedules', 'mail/daily', '{}'::jsonb)",
        "cancel('requeue.schedules', 'mail/daily')",
    ] {
        let (code, text) = app.try_run(&format!("select {schema}.{call}")).expect_err(call);
        assert_eq!(code, "22023", "{call}: {text}");
        assert!(text.contains("is reserved"), "{call}: {text}");
    }
    let timers = timers.as_str();
    let error = app.cancel(&store, timers, "mail/daily").expect_err("it is reserved");
    assert!(error.to_string().contains("is reserved"), "{error}");
    assert_eq!(get(), Some(before));
}

/// A role that may use the schema, and nothing else.
#[test]
fn a_role_that_can_only_use_the_schema_can_put_and_cancel_but_not_read() {
    let server = PostgresServer::start();
    let store = clients(&server.url(), 1).remove(0);
    let schema = server.query("select nspname from pg_namespace where nspname like 'test%'");
    server.query("create role app login");
    let url = format!("postgres://app@{}/requeue", server.address());
    let app = Application::connect(&url);
    let denied = |sql: &str| {
        let (code, text) = app.try_run(sql).expect_err(sql);
        assert_eq!(code, "42501", "{sql}: {text}");
    };
    denied(&format!("select {schema}.put('mail', 'a', 'x')"));
    server.query(&format!("grant usage on schema {schema} to app"));
    app.run(&format!("select {schema}.put('mail', 'a', 'x')"));
    app.run(&format!("select {schema}.put('mail', 'b', 'x')"));
    let moved =
        format!("select outcome from {schema}.reschedule('mail', 'b', 'y', delay => '1 s')");
    assert_eq!(app.run(&moved), "updated");
    assert_eq!(app.run(&format!("select {schema}.cancel('mail', 'b')")), "removed");
    for table in ["job", "jobs", "kind", "delta", "total", "schedule", "number"] {
        denied(&format!("select * from {schema}.{table}"));
    }
    denied(&format!("delete from {schema}.job"));
    denied(&format!("select {schema}._ack(1, array['a'], array[1], array[1])"));
    denied(&format!("select * from {schema}._lock(1, array['a'])"));
    denied(&format!(
        "select {schema}._reschedule(null, 'mail', 'a', null, null, 0, null, null, null)"
    ));
    denied(&format!("select {schema}._recount()"));
    denied(&format!("select {schema}._kind_id('other')"));

    // Functions and operators of the caller are not used with the privileges of the owner.
    server.query("create schema trap; grant all on schema trap to app");
    app.run(
        "create function trap.replace(text, text, text) returns text language plpgsql as \
         $$ begin raise exception 'trapped as %', current_user; end $$; \
         create function trap.nextval(text) returns bigint language plpgsql as \
         $$ begin raise exception 'trapped as %', current_user; end $$; \
         create temporary table unnest (a int); \
         set search_path = trap, pg_catalog",
    );
    app.run(&format!("select {schema}.put('mail', 'c', 'x')"));
    assert_eq!(
        app.run(&format!("select outcome from {schema}.reschedule('mail', 'c', 'y')")),
        "updated"
    );
    assert_eq!(app.run(&format!("select {schema}.cancel('mail', 'c')")), "removed");
    assert_eq!(ids(&store), ["a"]);
    is_whole(&store);
}

/// The role was not allowed to raise the numbers. Its session stays open.
#[test]
fn a_session_that_fails_to_raise_numbers_does_not_block_others() {
    let mut server = PostgresServer::start();
    let mut options = fresh();
    options.response_timeout = Duration::from_secs(10);
    let (schema, store) = (options.schema.clone(), connect(&server.url(), options));
    put_all(&store, vec![put("a")]);
    server.query(&format!(
        "create role app login; grant usage on schema {schema} to app; \
         grant select on all sequences in schema {schema} to app"
    ));
    server.kill();
    server.start_again();
    let app = Application::connect(&format!("postgres://app@{}/requeue", server.address()));
    let failed = app.try_run(&format!("select {schema}._raise_numbers()"));
    assert_eq!(failed.expect_err("it may not").0, "42501");
    crate::support::insist("the store has reconnected", || block_on(store.kinds()));
    put_all(&store, vec![put("b")]);
    is_whole(&store);
}
