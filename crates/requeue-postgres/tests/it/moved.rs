//! A dump of the tables that is restored into another cluster of servers, where transaction ids are others.

use crate::support::{
    LONG, claimed, connect, fresh, ids, is_whole, kind, put, put_all, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the path of a program of Postgres 15: the newest version has no clients.
fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("REQUEUE_POSTGRES_15");
    PathBuf::from(folder.unwrap_or_else(|| "/usr/lib/postgresql/15/bin".into())).join(name)
}

fn dump(server: &PostgresServer, schema: &str) -> Vec<u8> {
    let dumped = Command::new(program("pg_dump"))
        .args(["--schema", schema, &server.url()])
        .output()
        .expect("there is pg_dump");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    dumped.stdout
}

fn restore(server: &PostgresServer, dump: &[u8]) {
    let mut psql = Command::new(program("psql"))
        .args(["-Xq", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", &server.url()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is psql");
    psql.stdin.take().expect("it is piped").write_all(dump).expect("psql reads it");
    assert!(psql.wait().expect("psql ends").success());
}

#[test]
fn a_dump_that_is_restored_into_another_cluster_has_exact_counts_and_rising_numbers() {
    for to in PostgresVersion::all() {
        let (from, options) = (PostgresServer::with(&PostgresVersion::major(15), &[]), fresh());
        let store = connect(&from.url(), options.clone());
        // Many transactions, so that new ones elsewhere have lower ids.
        from.query("create table t (a int)");
        let burn =
            "do $$ begin for n in 1..5000 loop insert into t values (n); commit; end loop; end $$";
        from.query(burn);
        put_all(&store, (0..20).map(|n| put(&format!("job-{n:02}"))).collect());
        let jobs = claimed(&store, 5, LONG).jobs;
        assert_eq!(settle(&store, &jobs[0], Settlement::Ack), Ok(Settled::Done));
        // Adds up some of the counts.
        block_on(store.reap(10)).expect("the server is up");
        let bury = Settlement::Bury { error: "no".into() };
        assert_eq!(settle(&store, &jobs[1], bury), Ok(Settled::Dead));
        let last = try_put(&store, put("last")).expect("the server is up");
        let before = block_on(store.kind(kind())).expect("the server is up");
        let fence = jobs.iter().map(|job| job.receipt.fence()).max().expect("there are jobs");

        let server = PostgresServer::with(&to, &[]);
        restore(&server, &dump(&from, &options.schema));
        let moved = connect(&server.url(), options);
        is_whole(&moved);
        let after = block_on(moved.kind(kind())).expect("the server is up");
        assert_eq!(after.counts, before.counts);
        assert_eq!(ids(&moved), ids(&store));
        // A receipt of a lease is valid there, too.
        assert_eq!(settle(&moved, &jobs[2], Settlement::Ack), Ok(Settled::Done));
        let placed = try_put(&moved, put("new")).expect("the server is up");
        assert!(placed.generation > last.generation);
        let claimed = claimed(&moved, 3, LONG).jobs;
        assert!(claimed.iter().all(|job| job.receipt.fence() > fence));
        block_on(moved.reap(10)).expect("the server is up");
        put_all(&moved, vec![put("newer")]);
        is_whole(&moved);
    }
}
