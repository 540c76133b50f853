//! Connections break under load. Nothing is lost, and no call that is not idempotent runs twice.

use crate::support::{
    LONG, SERVER, as_stores, claim, claimed, clients, connect, fresh, ids, insist, is_whole, kind,
    put, put_all, settle, try_put,
};
use requeue_jobs::{JobState, Placed, Put, PutError, Settled, Settlement, Store, StoreError};
use requeue_postgres::PostgresStore;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, until};
use requeue_testkit::{Concurrent, Direction, Proxy, Random, block_on, check_seeds};
use std::collections::BTreeSet;
use std::time::Duration;

fn proxied() -> (Proxy, PostgresStore) {
    let proxy = Proxy::to(SERVER.address().parse().expect("an address")).expect("a free port");
    let store = connect(&format!("postgres://requeue@{}/requeue", proxy.address()), fresh());
    (proxy, store)
}

/// A server for one test.
fn alone() -> (PostgresServer, Proxy, PostgresStore) {
    let server = PostgresServer::start();
    let proxy = Proxy::to(server.address().parse().expect("an address")).expect("a free port");
    let store = connect(&format!("postgres://requeue@{}/requeue", proxy.address()), fresh());
    (server, proxy, store)
}

#[test]
fn concurrent_clients_of_a_server_see_the_guarantees() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        for version in PostgresVersion::all() {
            let server = PostgresServer::with(&version, &[]);
            let clients = clients(&server.url(), 6);
            let run = Concurrent { operations: 300, ..Concurrent::default() };
            run.check(&as_stores(&clients), seed, || ())?;
            is_whole(&clients[0]);
            assert_eq!(server.query("select sum(deadlocks) from pg_stat_database"), "0");
        }
        Ok(())
    });
}

#[test]
fn broken_connections_lose_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let (proxy, first) = proxied();
        let clients = clients(&format!("postgres://requeue@{}/requeue", proxy.address()), 4);
        drop(first);
        let (mut random, mut cuts) = (Random::new(seed), 0);
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || {
            cuts += 1;
            match random.below(4) {
                0 => proxy.cut(),
                1 => proxy.cut_after(Direction::ToServer, random.below(3000)),
                _ => proxy.cut_after(Direction::ToClient, random.below(3000)),
            }
        })?;
        is_whole(&clients[0]);
        assert!(cuts > 0);
        Ok(())
    });
}

#[test]
fn terminated_server_processes_and_cancelled_statements_lose_nothing() {
    const FAULTS: [&str; 3] =
        ["pg_terminate_backend(pid)", "pg_cancel_backend(pid)", "pg_terminate_backend(pid)"];
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = PostgresServer::start();
        let clients = clients(&server.url(), 4);
        let (mut random, mut hits) = (Random::new(seed), 0);
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || {
            let fault = random.pick(&FAULTS);
            let hit = server.query(&format!(
                "select count({fault}) from pg_stat_activity where application_name = 'requeue'"
            ));
            hits += hit.parse::<u32>().expect("a number");
        })?;
        is_whole(&clients[0]);
        assert!(hits > 0);
        Ok(())
    });
}

/// The server executes calls that have timed out, once it continues.
#[test]
fn a_frozen_server_that_runs_timed_out_calls_late_loses_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = PostgresServer::start();
        let mut options = fresh();
        // Creates the tables.
        drop(connect(&server.url(), options.clone()));
        options.response_timeout = Duration::from_millis(100);
        options.connect_timeout = Duration::from_millis(200);
        let connect = || {
            insist("it connects", || {
                block_on(PostgresStore::connect_with(&server.url(), options.clone()))
            })
        };
        let clients: Vec<_> = (0..4).map(|_| connect()).collect();
        let mut times = 0;
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || {
            server.freeze();
            // This call times out, and so do the earlier calls of the clients.
            let given_up = block_on(clients[0].kinds()).is_err();
            server.thaw();
            times += u32::from(given_up);
        })?;
        is_whole(&clients[0]);
        assert!(times > 0);
        Ok(())
    });
}

/// The number of jobs that one call puts.
const CALL: usize = 1000;

fn many(count: usize) -> Vec<Put> {
    (0..count).map(|number| put(&format!("job-{number:04}"))).collect()
}

fn is_unknown(result: &Result<Vec<Result<Placed, PutError>>, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unknown { .. }))
}

#[test]
fn an_interrupted_batch_is_put_completely_or_not_at_all_and_can_be_repeated() {
    for (direction, bytes) in
        [(Direction::ToServer, 5_000), (Direction::ToClient, 100), (Direction::ToClient, 0)]
    {
        let (server, proxy, store) = alone();
        // The statement is prepared.
        put_all(&store, vec![put("job-0000")]);
        proxy.cut_after(direction, bytes);
        let result = block_on(store.put(many(CALL)));
        assert!(is_unknown(&result), "{result:?}");
        let executes = "select count(*) from pg_stat_activity \
                        where state = 'active' and application_name = 'requeue'";
        until("the server has ended it", || server.query(executes) == "0");
        let found = ids(&store).len();
        // A server that cannot send a long response rolls back.
        assert!([1, CALL].contains(&found), "{found}");
        // It never received the end of the request.
        assert!(direction == Direction::ToClient || found == 1);
        let again = block_on(store.put(many(CALL))).expect("the store has reconnected");
        let generations: BTreeSet<u64> =
            again.iter().flatten().map(|placed| placed.generation.0).collect();
        assert_eq!(generations.len(), CALL);
        assert_eq!(ids(&store).len(), CALL);
        is_whole(&store);
    }
}

#[test]
fn jobs_of_a_lost_claim_come_back_when_their_leases_expire() {
    let (proxy, store) = proxied();
    put_all(&store, many(3));
    let first = claimed(&store, 1, LONG).jobs.remove(0);
    proxy.cut_after(Direction::ToClient, 1);
    let lost = block_on(store.claim(claim(1, Duration::from_secs(1)))).expect("the call returns");
    assert!(lost.jobs.is_empty());
    assert!(matches!(&lost.errors[..], [(_, StoreError::Unknown { .. })]), "{:?}", lost.errors);

    // The job is leased, although no worker knows of the lease. Nobody else can claim it.
    let is_leased = |number: usize| {
        let id = crate::support::id(&format!("job-{number:04}"));
        let view = block_on(store.get(kind(), id)).expect("the server is up");
        view.expect("the job exists").state == JobState::Leased
    };
    until("the server has done it", || (0..3).filter(|number| is_leased(*number)).count() == 2);
    let free = claimed(&store, 3, LONG).jobs;
    assert_eq!(free.len(), 1);

    let mut back = Vec::new();
    until("its lease is over", || {
        back = claimed(&store, 3, LONG).jobs;
        !back.is_empty()
    });
    let [job] = &back[..] else { panic!("{back:?}") };
    assert_eq!(job.attempt, 2);
    let fences = [&first, &free[0], job].map(|job| job.receipt.fence().0);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(settle(&store, job, Settlement::Ack), Ok(Settled::Done));
    is_whole(&store);
}

#[test]
fn waiting_callers_are_notified_after_a_reconnect() {
    let (proxy, mut options) = (proxied().0, fresh());
    options.listen = true;
    // Too long for a poll to find the job.
    options.poll_interval = LONG;
    let url = format!("postgres://requeue@{}/requeue", proxy.address());
    let waiter = connect(&url, options.clone());
    let producer = connect(&SERVER.url(), options.clone());
    let listens = format!(
        "select count(*) from pg_stat_activity where query = 'listen \"{}_wake\"'",
        options.schema
    );
    for round in 0..2 {
        until("both listen", || SERVER.query(&listens) == "2");
        let job = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(waiter.wait(vec![kind()], LONG)));
            let asked = format!(
                "select count(*) from pg_stat_activity \
                 where query like '%\"{}\"._peek%' and pid <> pg_backend_pid()",
                options.schema
            );
            until("it waits", || SERVER.query(&asked) == "1");
            insist("the job is put", || try_put(&producer, put(&format!("job-{round}"))));
            waiting.join().expect("no panic").expect("the server is up");
            claimed(&waiter, 1, LONG).jobs.remove(0)
        });
        assert_eq!(settle(&waiter, &job, Settlement::Ack), Ok(Settled::Done));
        proxy.cut();
        until("the connections are gone", || SERVER.query(&listens) == "1");
    }
}
