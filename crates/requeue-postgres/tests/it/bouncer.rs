//! Behind PgBouncer, which executes each transaction on any of its server connections. Version 1.18 does not support
//! prepared statements.

use crate::support::hostile::{self, nothing_was_hijacked};
use crate::support::{
    LONG, PostgresFixture, as_stores, claim, claimed, clients, connect, fresh, ids, insist,
    is_whole, kind, put, put_all, settle, try_put,
};
use requeue_jobs::{Settled, Settlement, Store, StoreError};
use requeue_postgres::PostgresStore;
use requeue_testkit::servers::{PgBouncer, PostgresServer, PostgresVersion, until};
use requeue_testkit::{
    Concurrent, Direction, Proxy, block_on, check_histories, check_seeds, conformance,
};
use std::sync::LazyLock;
use std::thread;

/// A server of the newest version with few connections, which transactions share.
static BEHIND: LazyLock<(PostgresServer, PgBouncer)> = LazyLock::new(|| {
    let [_, newest] = PostgresVersion::all();
    let server = PostgresServer::with(&newest, &[]);
    hostile::plant(&server);
    let settings = [("default_pool_size", "8"), ("max_client_conn", "1000")];
    let pooler = PgBouncer::with(&server, &settings);
    (server, pooler)
});

/// With these topics, all statements are used.
pub(crate) const TOPICS: [&str; 7] =
    ["claim", "cron", "done", "priority", "rate", "successor", "wait"];

#[test]
fn the_contract_holds_behind_a_pooler() {
    let url = BEHIND.1.url_of(hostile::DATABASE);
    let cases = conformance::cases()
        .filter(|case| TOPICS.iter().any(|topic| case.name.starts_with(&format!("{topic}::"))));
    for case in cases {
        println!("{}", case.name);
        block_on(case.run(PostgresFixture::unchecked(&url)));
    }
    nothing_was_hijacked(&BEHIND.0);
}

#[test]
fn histories_behind_a_pooler_match_the_model() {
    let url = BEHIND.1.url();
    check_histories(|| PostgresFixture::at(&url), &[], 3);
}

#[test]
fn concurrent_clients_of_a_pooler_see_the_guarantees() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let clients = clients(&BEHIND.1.url(), 6);
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || ())?;
        is_whole(&clients[0]);
        Ok(())
    });
}

#[test]
fn many_first_calls_at_a_time_succeed() {
    let (server, mut options) = (PostgresServer::start(), fresh());
    options.max_connections = 10;
    let pooler = PgBouncer::with(&server, &[("default_pool_size", "2")]);
    let store = connect(&pooler.url(), options);
    thread::scope(|scope| {
        for n in 0..20 {
            let store = &store;
            scope.spawn(move || {
                try_put(store, put(&format!("job-{n}"))).expect("the server is up");
                let job = claimed(store, 1, LONG).jobs.remove(0);
                assert_eq!(settle(store, &job, Settlement::Ack), Ok(Settled::Done));
            });
        }
    });
    assert_eq!(ids(&store), Vec::<String>::new());
    is_whole(&store);
    // A statement that one process has prepared could be executed by another one.
    for _ in 0..4 {
        assert_eq!(pooler.query("select count(*) from pg_prepared_statements"), "0");
        assert_eq!(pooler.query("select count(*) from pg_listening_channels()"), "0");
    }
}

#[test]
fn a_wait_behind_a_pooler_finds_the_jobs_of_others() {
    let mut options = fresh();
    options.listen = true;
    let waiter = connect(&BEHIND.1.url(), options.clone());
    let producer = connect(&BEHIND.0.url(), options);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(waiter.wait(vec![kind()], LONG)));
        put_all(&producer, vec![put("a")]);
        waiting.join().expect("no panic").expect("the server is up");
    });
    assert_eq!(claimed(&waiter, 1, LONG).jobs.len(), 1);
}

#[test]
fn a_restarted_pooler_or_server_loses_nothing() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let mut server = PostgresServer::start();
        let mut pooler = PgBouncer::with(&server, &[("default_pool_size", "3")]);
        let clients = clients(&pooler.url(), 4);
        let mut faults = 0;
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || {
            faults += 1;
            if faults % 2 == 0 {
                pooler.start_again();
            } else {
                server.start_again();
            }
        })?;
        is_whole(&clients[0]);
        assert!(faults > 1);
        Ok(())
    });
}

/// The pooler reports that it has lost the server. The server has executed the statement.
#[test]
fn a_call_whose_response_the_pooler_has_lost_has_an_unknown_outcome() {
    let server = PostgresServer::start();
    let proxy = Proxy::to(server.address().parse().expect("an address")).expect("a free port");
    let pooler = PgBouncer::to(proxy.address().port(), &[("default_pool_size", "1")]);
    let store: PostgresStore = clients(&pooler.url(), 1).remove(0);
    put_all(&store, vec![put("a")]);
    proxy.cut_at(Direction::ToClient, 1);
    let lost = block_on(store.put(vec![put("b")]));
    assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
    until("the server has done it", || {
        insist("the pooler has reconnected", || block_on(store.kind(kind()))).counts.pending == 2
    });
    let job = insist("it is claimed", || block_on(store.claim(claim(1, LONG)))).jobs.remove(0);
    proxy.cut_at(Direction::ToClient, 1);
    let lost = settle(&store, &job, Settlement::Ack);
    let lost = lost.expect_err("the response is lost").to_string();
    assert!(lost.contains("the outcome is unknown"), "{lost}");
    until("the server has done it", || ids(&store).len() == 1);
    is_whole(&store);
}
