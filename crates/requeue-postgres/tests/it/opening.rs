//! Opening a store: creating its tables, and clear errors if it cannot be used.

use crate::support::{
    LONG, SERVER, claimed, connect, fresh, ids, is_whole, kind, put, put_all, settle,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_postgres::{Options, PostgresConnectError, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, Replication};
use std::fs;
use std::thread;
use std::time::Duration;

fn refused(url: &str, options: Options) -> PostgresConnectError {
    match block_on(PostgresStore::connect_with(url, options)) {
        Ok(_) => panic!("it is accepted"),
        Err(error) => error,
    }
}

#[test]
fn processes_that_start_at_the_same_time_create_the_tables_once() {
    for version in PostgresVersion::all() {
        let (server, options) = (PostgresServer::with(&version, &[]), fresh());
        let url = server.url();
        let stores: Vec<_> = thread::scope(|scope| {
            let starts: Vec<_> =
                (0..8).map(|_| scope.spawn(|| connect(&url, options.clone()))).collect();
            starts.into_iter().map(|start| start.join().expect("it connects")).collect()
        });
        let format = server.query(&format!("select * from {}.format", options.schema));
        assert_eq!(format, "1|{}");
        put_all(&stores[0], vec![put("a")]);
        assert_eq!(ids(&stores[7]), ["a"]);
    }
}

#[test]
fn another_format_unknown_features_and_tables_without_a_format_are_refused_by_name() {
    let options = fresh();
    let schema = options.schema.clone();
    drop(connect(&SERVER.url(), options.clone()));
    for (change, found) in [
        ("update S.format set version = 99", "has format 99"),
        ("update S.format set version = 1, features = '{groups,holds}'", "support: groups, holds"),
        ("drop table S.format", "has a table job, but no table format"),
    ] {
        SERVER.query(&change.replace("S.", &format!("{schema}.")));
        let error = refused(&SERVER.url(), options.clone());
        assert!(matches!(error, PostgresConnectError::Format { .. }), "{error}");
        assert!(error.to_string().contains(found), "{error}");
    }
    let tables = format!("select count(*) from pg_tables where schemaname = '{schema}'");
    assert_eq!(SERVER.query(&tables), "8", "nothing was created");
}

#[test]
fn a_schema_in_which_every_role_may_create_functions_is_refused() {
    let options = fresh();
    let schema = &options.schema;
    SERVER.query(&format!("create schema {schema}; grant create on schema {schema} to public"));
    let error = refused(&SERVER.url(), options.clone()).to_string();
    assert!(
        error.contains(&format!("every role may create functions in the schema {schema:?}")),
        "{error}"
    );
    SERVER.query(&format!("revoke create on schema {schema} from public"));
    drop(connect(&SERVER.url(), options.clone()));
    // Also later on.
    SERVER.query(&format!("grant create on schema {schema} to public"));
    assert!(matches!(refused(&SERVER.url(), options), PostgresConnectError::Unfit { .. }));
}

/// Its functions would run with the privileges of whoever connects.
#[test]
fn a_schema_of_a_stranger_is_refused_before_anything_of_it_is_executed() {
    let (server, mut options) = (PostgresServer::start(), fresh());
    let schema = options.schema.clone();
    server.query(
        "create role stranger login; create role app login; create role member login in role stranger; \
         grant create on database requeue to stranger, app; create table stolen (who text); grant all on stolen to public",
    );
    let url = |role: &str| format!("postgres://{role}@{}/requeue", server.address());
    // It looks as if it was created by requeue, with a function that is called first.
    drop(connect(&url("stranger"), options.clone()));
    server.query(&format!(
        "set role stranger; grant usage on schema {schema} to public; \
         grant all on all tables in schema {schema} to public; \
         create or replace function {schema}._recount_if_moved() returns void language sql as \
         $$ insert into public.stolen values (current_user) $$"
    ));
    for role in ["app", "requeue"] {
        let error = refused(&url(role), options.clone());
        assert!(matches!(error, PostgresConnectError::Unfit { .. }), "{error}");
        let reason = format!("the schema {schema:?} belongs to the role stranger");
        assert!(error.to_string().contains(&reason), "{error}");
    }
    // As `requeue stats` connects. A superuser has to choose the role.
    options.migrate = false;
    let error = refused(&url("requeue"), options.clone()).to_string();
    assert!(error.contains("options=-crole%3Dstranger"), "{error}");
    assert_eq!(server.query("select count(*) from stolen"), "0");
    let chosen = format!("{}?options=-crole%3Dstranger", url("requeue"));
    drop(connect(&chosen, options.clone()));
    // Whoever says that the tables belong to another role trusts it, and so does a member.
    for (role, migrate) in [("app", false), ("member", true)] {
        options.migrate = migrate;
        drop(connect(&url(role), options.clone()));
    }
    let who = server.query("select string_agg(distinct who, ' ' order by who) from stolen");
    assert_eq!(who, "app member stranger");

    // The same is true for roles that may create functions in it.
    server.query(&format!("set role stranger; grant create on schema {schema} to app"));
    options.migrate = true;
    let error = refused(&url("stranger"), options).to_string();
    assert!(error.contains("app may create functions in the schema"), "{error}");
}

#[test]
fn without_migrations_the_tables_have_to_be_there() {
    let mut options = fresh();
    options.migrate = false;
    let error = refused(&SERVER.url(), options.clone());
    assert!(matches!(error, PostgresConnectError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("has no tables of requeue"), "{error}");
    let schemas = format!("select count(*) from pg_namespace where nspname = '{}'", options.schema);
    assert_eq!(SERVER.query(&schemas), "0");
    let mut migrating = options.clone();
    migrating.migrate = true;
    drop(connect(&SERVER.url(), migrating));
    put_all(&connect(&SERVER.url(), options), vec![put("a")]);
}

#[test]
fn two_schemas_of_a_database_are_independent() {
    let stores = [(); 2].map(|()| connect(&SERVER.url(), fresh()));
    put_all(&stores[0], vec![put("a")]);
    put_all(&stores[1], vec![put("a"), put("b")]);
    let job = claimed(&stores[0], 10, LONG).jobs.remove(0);
    let lost = settle(&stores[1], &job, Settlement::Ack);
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(settle(&stores[0], &job, Settlement::Ack), Ok(Settled::Done));
    assert_eq!((ids(&stores[0]).len(), ids(&stores[1]).len()), (0, 2));
    stores.iter().for_each(is_whole);
}

#[test]
fn a_role_without_privileges_is_refused_with_the_reason() {
    let (server, options) = (PostgresServer::start(), fresh());
    server.query("create role app login; revoke create on database requeue from public");
    let url = format!("postgres://app@{}/requeue", server.address());
    let error = refused(&url, options.clone());
    assert!(matches!(error, PostgresConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("permission denied for database"), "{error}");
    drop(connect(&server.url(), options.clone()));
    let error = refused(&url, options.clone());
    assert!(matches!(error, PostgresConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("permission denied for schema"), "{error}");

    // What a store needs if another role owns its tables.
    let schema = &options.schema;
    server.query(&format!(
        "grant usage on schema {schema} to app; \
         grant select, insert, update, delete on all tables in schema {schema} to app; \
         grant select, usage, update on all sequences in schema {schema} to app"
    ));
    let store = connect(&url, options);
    put_all(&store, vec![put("a")]);
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
    block_on(store.reap(10)).expect("it may");
    is_whole(&store);
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let server = PostgresServer::start();
    server.query("create role app login superuser password 'hunter2'");
    let rules = "host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    fs::write(server.dir().join("data/pg_hba.conf"), rules).expect("files can be written");
    server.query("select pg_reload_conf()");
    let url = |password: &str| format!("postgres://app{password}@{}/requeue", server.address());
    for (password, reason) in
        [(":hunter3", "password authentication failed"), ("", "password missing")]
    {
        let error = refused(&url(password), fresh());
        assert!(matches!(error, PostgresConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }
    drop(connect(&url(":hunter2"), fresh()));
}

#[test]
fn a_database_with_another_encoding_and_a_replica_are_refused() {
    let server = PostgresServer::start();
    server.query("create database latin encoding 'LATIN1' locale 'C' template template0");
    let error = refused(&server.url_of("latin"), fresh());
    assert!(matches!(error, PostgresConnectError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("the encoding LATIN1; create one with UTF8"), "{error}");

    let replica = server.replica(Replication::Asynchronous);
    let error = refused(&replica.url(), fresh());
    assert!(matches!(error, PostgresConnectError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("read-only replica"), "{error}");
    let error = refused(&format!("{}?target_session_attrs=read-write", replica.url()), fresh());
    assert!(matches!(error, PostgresConnectError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("does not allow writes"), "{error}");
}

#[test]
fn a_server_that_is_down_or_hangs_is_reported_within_the_connect_timeout() {
    let mut options = fresh();
    options.connect_timeout = Duration::from_millis(300);
    let error = refused("postgres://requeue@127.0.0.1:1/requeue", options.clone());
    assert!(matches!(error, PostgresConnectError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    let server = PostgresServer::start();
    server.freeze();
    let error = refused(&server.url(), options);
    assert!(matches!(error, PostgresConnectError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(&server.address()), "{error}");
    server.thaw();
}

#[test]
fn a_kind_that_another_process_has_created_is_found() {
    let options = fresh();
    let [first, second] = [(); 2].map(|()| connect(&SERVER.url(), options.clone()));
    assert_eq!(claimed(&second, 1, LONG).jobs.len(), 0, "there is no such kind");
    put_all(&first, vec![put("a")]);
    assert_eq!(claimed(&second, 1, LONG).jobs.len(), 1);
    assert_eq!(block_on(second.kind(kind())).expect("the server is up").counts.leased, 1);
}
