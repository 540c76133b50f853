//! A database in which strangers have planted names: every function, operator and type of Postgres exists again in the schema with
//! the name of the role and in `public`, and these are found first. So every name that is looked up is found there.
//!
//! The planted functions cannot be executed: to use one, even in a branch that is not taken, is an error of which the server writes
//! `hijacked_` and the name.

use crate::support::SERVER;
use crate::support::application::Application;
use requeue_testkit::servers::PostgresServer;
use std::sync::LazyLock;

pub(crate) const DATABASE: &str = "hostile";

/// What is planted has identifiers from here on.
pub(crate) const FIRST_OID: &str = "4000000000";

/// In plain catalog rows: `create function` is slow, and does not allow all of these arguments.
const PLANT: &str = "
set search_path = pg_catalog;
create schema requeue;
create temporary table place as select * from (values (4000000000, 'requeue'::regnamespace::oid), (4000100000, 'public'::regnamespace::oid))
  s (first, schema);
insert into pg_proc select n.* from place s, pg_proc p cross join lateral jsonb_populate_record(p, jsonb_build_object(
  'oid', s.first + p.oid::bigint, 'pronamespace', s.schema, 'prokind', 'f', 'prolang', 12, 'prosrc', 'hijacked_' || p.proname,
  'prosqlbody', null, 'prosupport', 0)) n
where p.pronamespace = 'pg_catalog'::regnamespace;
insert into pg_operator select n.* from place s, pg_operator o cross join lateral jsonb_populate_record(o, jsonb_build_object(
  'oid', s.first + o.oid::bigint, 'oprnamespace', s.schema, 'oprcode', s.first + o.oprcode::oid::bigint)) n
where o.oprnamespace = 'pg_catalog'::regnamespace;
insert into pg_type select n.* from place s, pg_type t cross join lateral jsonb_populate_record(t, jsonb_build_object(
  'oid', s.first + t.oid::bigint, 'typnamespace', s.schema, 'typarray', case when t.typarray = 0 then 0 else s.first + t.typarray::bigint end,
  'typelem', case when t.typelem = 0 then 0 else s.first + t.typelem::bigint end)) n
where t.typnamespace = 'pg_catalog'::regnamespace and t.typrelid = 0 and t.typelem not in (select oid from pg_type where typrelid <> 0);
do $$
declare of_postgres text;
begin
  for of_postgres in select relname from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v') loop
    execute format('create view requeue.%1$I as select 1 / 0; create view public.%1$I as select 1 / 0', of_postgres);
  end loop;
end $$;
alter database hostile set search_path = \"$user\", public, pg_catalog;
";

/// Creates the database on a server.
pub(crate) fn plant(server: &PostgresServer) {
    server.create_database(DATABASE);
    Application::connect(&server.url_of(DATABASE)).run(PLANT);
}

/// The database on the server of all tests.
pub(crate) static HOSTILE: LazyLock<String> = LazyLock::new(|| {
    plant(&SERVER);
    SERVER.url_of(DATABASE)
});

/// Checks that the log of a server contains no use of a planted function.
pub(crate) fn nothing_was_hijacked(server: &PostgresServer) {
    let log = server.log();
    let hijacked: Vec<_> = log.lines().filter(|line| line.contains("hijacked_")).collect();
    assert!(hijacked.is_empty(), "{}", hijacked.join("\n"));
}
