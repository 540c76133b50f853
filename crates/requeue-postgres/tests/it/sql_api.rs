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
    assert_eq!(put(r#"'mail', 'json', '{"a": 1}'::jsonb"#), "created");
    assert_eq!(
        put("'mail', 'bytes', '\\x00ff'::bytea, options => '{\"content_type\": \"image/png\"}'"),
        "created"
    );
    let with =
        |arguments: &str, options: &str| put(&format!("{arguments}, options => '{options}'"));
    assert_eq!(with("'mail', 'text', 'again', delay => '1 hour'", r#"{"priority": 5}"#), "updated");
    let earlier = "'mail', 'text', 'earlier', delay => '1 minute'";
    assert_eq!(with(earlier, r#"{"mode": "earliest"}"#), "updated");
    assert_eq!(with("'mail', 'text', 'kept'", r#"{"mode": "keep"}"#), "kept");
    for wait in ["3 hours", "3h", "180m", "2h 60m", "03:00:00", "3600000ms", "1d"] {
        let wait = format!(r#"{{"mode": "debounce", "max_wait": "{wait}"}}"#);
        assert_eq!(with("'mail', 'text', 'debounced', delay => '2 hours'", &wait), "updated");
    }
    assert_eq!(with("'mail', 'text', 'x'", r#"{"if_absent": true}"#), "exists");
    assert_eq!(with("'mail', 'text', 'x'", r#"{"if_new": true}"#), "exists");
    assert_eq!(with("'mail', 'text', 'x'", r#"{"if_generation": 1000000}"#), "other_generation");
    let unset = r#"{"if_generation": null, "if_absent": false, "priority": null, "mode": null}"#;
    assert_eq!(with("'mail', 'text', 'debounced'", unset), "updated");
    assert_eq!(put("'mail', 'text', 'debounced', options => null"), "updated");
    assert_eq!(put("'mail', 'due', 'x', due => now() + '1 day'"), "created");
    assert_eq!(with("'mail', 'past', 'x', due => '1900-01-01'", r#"{"notify": true}"#), "created");

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
        (&br#"{"a": 1}"#[..], "application/json")
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
        ("'mail', 'a', 'x', '1 s', now()", "delay and due exclude each other"),
        ("'mail', 'a', 'x', delay => '-1 s'", "it must not be negative"),
        ("'mail', 'a', 'x', delay => '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', 'x', due => now() + '11 years'", "the limit is 316224000000 (ten years)"),
        ("'mail', 'a', 'x', due => 'infinity'", "must not be infinite"),
        ("'mail', 'a', 'x', due => '-infinity'", "must not be infinite"),
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
fn every_invalid_option_is_an_error_that_names_the_option_the_value_and_what_is_allowed() {
    let (store, schema, app) = start();
    let long_type = format!(r#"{{"content_type": "{}"}}"#, "x".repeat(129));
    let of_put = "the options are priority, mode, max_wait, if_absent, if_new, if_generation, content_type, notify";
    let cases = [
        ("5", r#"options is 5; it must be an object such as {"priority": 5}"#),
        ("[{}]", "options is [{}]; it must be an object"),
        (
            r#"{"colour": "blue"}"#,
            &format!(r#"option colour is "blue"; there is no such option: {of_put}"#),
        ),
        (r#"{"delay": "1m"}"#, of_put),
        (r#"{"envelope": {"type": "a", "base64": ""}}"#, of_put),
        (r#"{"priority": 10}"#, "option priority is 10; it must be an integer from 0 to 9"),
        (r#"{"priority": -1}"#, "option priority is -1; it must be"),
        (r#"{"priority": 1.5}"#, "option priority is 1.5; it must be"),
        (r#"{"priority": "5"}"#, r#"option priority is "5"; it must be"#),
        (
            r#"{"mode": "soon"}"#,
            r#"option mode is "soon"; it must be "replace", "earliest", "keep" or "debounce""#,
        ),
        (r#"{"mode": 1}"#, "option mode is 1; it must be"),
        (r#"{"mode": "debounce"}"#, "max_wait belongs to the mode debounce, which requires it"),
        (r#"{"max_wait": "1s"}"#, "max_wait belongs to the mode debounce, which requires it"),
        (
            r#"{"mode": "debounce", "max_wait": "-1s"}"#,
            r#"option max_wait is "-1s"; it must be a duration, such as "90s" or "1 hour 30 minutes""#,
        ),
        (r#"{"mode": "debounce", "max_wait": "90"}"#, r#"option max_wait is "90"; it must be"#),
        (r#"{"mode": "debounce", "max_wait": 90}"#, "option max_wait is 90; it must be"),
        (r#"{"mode": "debounce", "max_wait": ""}"#, r#"option max_wait is ""; it must be"#),
        (r#"{"mode": "debounce", "max_wait": "soon"}"#, r#"option max_wait is "soon"; it must be"#),
        (r#"{"mode": "debounce", "max_wait": "999999999999 years"}"#, "it must be a duration"),
        (r#"{"if_absent": "true"}"#, r#"option if_absent is "true"; it must be true or false"#),
        (r#"{"if_new": 1}"#, "option if_new is 1; it must be true or false"),
        (r#"{"notify": {}}"#, "option notify is {}; it must be true or false"),
        (
            r#"{"if_generation": true}"#,
            "option if_generation is true; it must be an integer from 0 to 9007199254740991",
        ),
        (r#"{"if_generation": -1}"#, "option if_generation is -1; it must be"),
        (
            r#"{"if_generation": 9007199254740992}"#,
            "option if_generation is 9007199254740992; it must be",
        ),
        (
            r#"{"if_generation": 1e30}"#,
            "option if_generation is 1000000000000000000000000000000; it must be",
        ),
        (
            r#"{"if_absent": true, "if_new": true}"#,
            "if_absent, if_new and if_generation exclude each other",
        ),
        (
            r#"{"if_generation": 1, "if_new": true}"#,
            "if_absent, if_new and if_generation exclude each other",
        ),
        (&long_type, "it must be a text of at most 128 bytes"),
        (
            r#"{"content_type": 1}"#,
            "option content_type is 1; it must be a text of at most 128 bytes",
        ),
    ];
    for (options, message) in cases {
        for body in ["'x'", "'{}'::jsonb", "'x'::bytea"] {
            let call = format!("select {schema}.put('mail', 'a', {body}, options => '{options}')");
            let (code, text) = app.try_run(&call).expect_err(options);
            assert!(text.starts_with("put: ") && text.contains(message), "{options}: {text}");
            assert_eq!(code, "22023", "{options}: {text}");
        }
    }
    for (options, message) in [
        (r#"{"mode": "keep"}"#, "the options are priority, if_generation, content_type, notify"),
        (r#"{"priority": 65536}"#, "option priority is 65536; it must be an integer from 0 to 9"),
        (r#"{"if_generation": "1"}"#, r#"option if_generation is "1"; it must be an integer"#),
    ] {
        let call = format!("select {schema}.reschedule('mail', 'a', 'x', options => '{options}')");
        let (code, text) = app.try_run(&call).expect_err(options);
        assert!(text.starts_with("reschedule: ") && text.contains(message), "{options}: {text}");
        assert_eq!(code, "22023", "{options}: {text}");
    }
    assert_eq!(block_on(store.kinds()).expect("the server is up"), []);
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
