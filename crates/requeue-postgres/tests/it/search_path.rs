//! Whatever strangers have created in the schemas of a `search_path`, no name in the statements and functions of the store is looked
//! up there.
//!
//! The tests of the contract run in such a database, too.

use crate::support::application::Application;
use crate::support::hostile::{FIRST_OID, HOSTILE};
use crate::support::{
    LONG, SERVER, claimed, connect, fresh, id, ids, is_whole, kind, put, put_all, settle,
};
use requeue_jobs::{ChangeError, Changed, Jobs, Settled, Settlement, Store};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::PostgresServer;
use std::sync::Arc;

/// A connection to the hostile database, as a new role without any privilege.
fn stranger(role: &str) -> Application {
    let superuser = Application::connect(&HOSTILE);
    superuser.run(&format!("set search_path = pg_catalog; create role {role} login"));
    Application::connect(&HOSTILE.replace("//requeue@", &format!("//{role}@")))
}

#[test]
fn what_is_planted_is_found_first() {
    let app = Application::connect(&HOSTILE);
    let function = |language: &str, body: &str| {
        format!(
            "create function pg_temp.control() returns int language {language} as $$ {body} $$; select pg_temp.control()"
        )
    };
    for (sql, error) in [
        ("select 1 + 1", "hijacked_int4pl"),
        (
            "select case when relname is null then 2 * relpages end from pg_catalog.pg_class",
            "hijacked_int4mul",
        ),
        ("select 1 = any(array[1])", "hijacked_int4eq"),
        ("select nullif(1, 2)", "hijacked_int4eq"),
        ("select 1 between 0 and 2", "hijacked_int4"),
        ("select 1 is distinct from 2", "hijacked_int4eq"),
        ("select octet_length('a'::pg_catalog.text)", "hijacked_octet_length"),
        ("select * from generate_series(1, 2)", "hijacked_generate_series"),
        ("select count(*) from pg_catalog.pg_class", "count is not an aggregate function"),
        ("select 'a'::text operator(pg_catalog.||) 'b'::text", "operator does not exist"),
        ("select count from pg_class", "does not exist"),
        (&function("sql", "select 1 + 1"), "hijacked_int4pl"),
        (&function("plpgsql", "begin return 1 + 1; end"), "hijacked_int4pl"),
    ] {
        let (_, message) = app.try_run(sql).expect_err(sql);
        assert!(message.contains(error), "{sql}: {message}");
    }
}

#[test]
fn no_function_looks_up_names_in_the_path_of_its_caller() {
    let options = fresh();
    let schema = options.schema.clone();
    drop(connect(&SERVER.url(), options));
    let of_schema = format!("from pg_proc where pronamespace = '{schema}'::regnamespace");
    assert_ne!(SERVER.query(&format!("select count(*) {of_schema}")), "0");
    let unsafe_ones = SERVER.query(&format!(
        "select oid::regprocedure {of_schema} and prosqlbody is null \
         and not coalesce(proconfig @> array['search_path=pg_catalog, pg_temp'], false)"
    ));
    assert_eq!(unsafe_ones, "", "they need `begin atomic`, or a `search_path` of their own");
}

/// As the body of a function, a statement is parsed and not executed, and the server remembers what it refers to.
#[test]
fn no_statement_refers_to_names_of_strangers() {
    let options = fresh();
    let schema = options.schema.clone();
    let store = connect(&HOSTILE, options);
    let (app, reader) = (Application::connect(&HOSTILE), Application::connect(&HOSTILE));
    reader.run("set search_path = pg_catalog");
    let statements = store.statements();
    assert!(statements.len() > 30, "there are {}", statements.len());
    for (sql, types) in statements {
        let types: Vec<_> = types.iter().map(|of| format!("pg_catalog.{}", of.name())).collect();
        app.run(&format!(
            "create function {schema}.statement({}) returns pg_catalog.void language sql begin atomic {sql}; end",
            types.join(", ")
        ));
        let strangers = reader.run(&format!(
            "select string_agg(pg_describe_object(refclassid, refobjid, refobjsubid), ', ') from pg_depend \
             where classid = 'pg_proc'::regclass and objid = '{schema}.statement'::regproc and refobjid >= {FIRST_OID}"
        ));
        assert_eq!(strangers, "", "{sql}");
        reader.run(&format!("drop function {schema}.statement"));
    }
}

#[test]
fn applications_put_and_cancel_under_a_hostile_path() {
    let options = fresh();
    let schema = options.schema.clone();
    let store = connect(&HOSTILE, options);
    let app = stranger("shop_hostile");
    Application::connect(&HOSTILE).run(&format!("grant usage on schema {schema} to shop_hostile"));
    // Temporary tables and types are found before those of Postgres, unless the path contains them.
    for sql in [
        "create type pg_temp.text as (a int); create type pg_temp.bytea as (a int); create type pg_temp.jsonb as (a int)",
        "create temporary table job (a int); create temporary table kind (a int); create temporary table pg_class (a int)",
    ] {
        app.run(sql);
    }
    for path in ["\"$user\", public, pg_catalog", "pg_temp, public, pg_catalog", "public", ""] {
        app.run(&format!("set search_path = {}", if path.is_empty() { "''" } else { path }));
        let run = |sql: &str| app.run(&sql.replace("S.", &format!("{schema}.")));
        assert_eq!(run("select outcome from S.put('mail', 'a')"), "created");
        assert_eq!(
            run("select outcome from S.put('mail', 'a', '{}'::pg_catalog.jsonb)"),
            "updated"
        );
        assert_eq!(run("select outcome from S.put('mail', 'a', 'x'::pg_catalog.bytea)"), "updated");
        let all = "kind => 'mail', id => 'a', body => 'x', delay => '1 s', options => '{\"priority\": 3, \
                   \"mode\": \"debounce\", \"max_wait\": \"1 h\", \"if_generation\": 1, \"content_type\": \"text/x\", \"notify\": true}'";
        assert_eq!(run(&format!("select outcome from S.put({all})")), "other_generation");
        assert_eq!(run("select S.cancel('mail', 'a')"), "removed");
    }
    is_whole(&store);
}

#[test]
fn transactions_and_views_of_applications_are_safe_under_a_hostile_path() {
    let options = fresh();
    let schema = options.schema.clone();
    let store = connect(&HOSTILE, options);
    let jobs = Jobs::new(Arc::new(store.clone()));
    let app = Application::connect(&HOSTILE);
    for begin in ["begin", "begin isolation level repeatable read"] {
        app.run(begin);
        app.put(&store, jobs.put("mail", "a", "hello")).expect("the put succeeds");
        app.put(&store, jobs.put("new.kind", begin, "hello")).expect("the put succeeds");
        app.run("commit");
    }
    assert_eq!(app.run(&format!("select state from {schema}.jobs order by id")), "ready");
    assert_eq!(app.cancel(&store, "mail", "a"), Ok(Changed::Removed));
    let absent = app.cancel(&store, "mail", "a").expect_err("it is gone");
    assert!(matches!(absent, ChangeError::Absent { .. }), "{absent}");
    is_whole(&store);
}

/// A server on which `mallory` may create functions in `public`, as everybody may by default up to Postgres 14, and has created
/// some. Each notes who has called it.
struct Planted {
    server: PostgresServer,
    options: Options,
}

impl Planted {
    fn new() -> Self {
        let (server, options) = (PostgresServer::start(), fresh());
        server.query(
            "create role mallory login; create role service login; create role shop login; \
             grant create on database requeue to service; grant create on schema public to mallory",
        );
        let mallory = Application::connect(&url_of(&server, "mallory"));
        mallory.run("create table stolen (who text, what text); grant insert on stolen to public");
        let overload = |name: &str, arguments: &str, result: &str, value: &str| {
            mallory.run(&format!(
                "create function public.{name}({arguments}) returns {result} language plpgsql as $$ begin \
                 insert into public.stolen values (current_user, $1::text); return {value}; end $$"
            ));
        };
        overload("multiplied", "numeric, int", "numeric", "$1 operator(pg_catalog.*) $2::numeric");
        overload("added", "bigint, int", "bigint", "$1 operator(pg_catalog.+) $2::bigint");
        overload("equal", "smallint, int", "boolean", "$1 operator(pg_catalog.=) $2");
        overload(
            "convert_to",
            "text, text",
            "bytea",
            "pg_catalog.convert_to($1, 'UTF8'::pg_catalog.name)",
        );
        for (name, function, left) in
            [("*", "multiplied", "numeric"), ("+", "added", "bigint"), ("=", "equal", "smallint")]
        {
            mallory.run(&format!(
                "create operator public.{name} (function = public.{function}, leftarg = {left}, rightarg = int)"
            ));
        }
        Planted { server, options }
    }

    fn store(&self, role: &str) -> PostgresStore {
        connect(&url_of(&self.server, role), self.options.clone())
    }

    fn stolen(&self) -> String {
        self.server.query("select who, count(*) from public.stolen group by who order by who")
    }
}

fn url_of(server: &PostgresServer, role: &str) -> String {
    server.url().replace("//requeue@", &format!("//{role}@"))
}

#[test]
fn overloads_that_fit_better_are_not_called() {
    let planted = Planted::new();
    let service = planted.store("service");
    put_all(&service, (0..20).map(|n| put(&format!("job-{n:02}"))).collect());
    let jobs = claimed(&service, 10, LONG).jobs;
    let retry = Settlement::Retry { error: "no".into(), delay: Some(LONG) };
    assert!(settle(&service, &jobs[0], retry).is_ok());
    for job in &jobs[1..] {
        assert_eq!(settle(&service, job, Settlement::Ack), Ok(Settled::Done));
    }
    assert_eq!(planted.stolen(), "", "what the service has called");

    let schema = &planted.options.schema;
    planted.server.query(&format!("grant usage on schema {schema} to shop"));
    let shop = Application::connect(&url_of(&planted.server, "shop"));
    shop.run(&format!("select {schema}.put('mail', 'secret', 'card 1234')"));
    assert_eq!(planted.stolen(), "", "what an application has called");

    // As `requeue stats` and `requeue postgres check` with the role of a superuser, who has to be a member of the owner.
    planted.server.query("grant service to requeue");
    let superuser = planted.store("requeue");
    block_on(superuser.kinds()).expect("the server is up");
    assert!(block_on(superuser.get(kind(), id("secret"))).expect("the server is up").is_some());
    assert_eq!(ids(&superuser).len(), 12);
    is_whole(&superuser);
    assert_eq!(planted.stolen(), "", "what a superuser has called");

    // The same statement of the service itself is hijacked.
    Application::connect(&url_of(&planted.server, "service")).run("select 1.5 * 2");
    assert_eq!(planted.stolen(), "service|1");
}
