//! What the store reports about its servers: problems appear, and disappear when they are over.

use crate::support::{claimed, connect, fresh, insist, kind, put, put_all, settle, try_put};
use requeue_jobs::{PutError, Settled, Settlement, Store, StoreError, StoreProblem};
use requeue_redis::RedisStore;
use requeue_testkit::servers::{RedisCluster, RedisServer, until};
use requeue_testkit::{Proxy, block_on};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

fn problem(store: &RedisStore, name: &str) -> Option<StoreProblem> {
    store.status().problems.into_iter().find(|problem| problem.name == name)
}

fn metric(store: &RedisStore, name: &str) -> f64 {
    let metrics = store.status().metrics;
    metrics.iter().find(|metric| metric.name == name).expect("the metric exists").value
}

#[test]
fn a_lost_connection_and_lost_notifications_are_problems_until_they_are_back() {
    let server = RedisServer::with(&["--requirepass", "hunter2"]);
    let proxy = Proxy::to(server.address().parse().expect("an address")).expect("a free port");
    let store = connect(&format!("redis://:hunter2@{}", proxy.address()), fresh());
    assert_eq!(store.status().problems, []);
    let connections = metric(&store, "redis_connections_total");
    assert_eq!(connections, 1.0);
    block_on(store.wait(vec![kind()], Duration::from_millis(1))).expect("the server is up");
    until("it is subscribed", || proxy.connections() == 2);
    proxy.refuse();
    proxy.cut();
    for name in ["redis_disconnected", "redis_notifications_down"] {
        until(name, || problem(&store, name).is_some());
        let first = problem(&store, name).expect("it is still down");
        assert!(first.detail.contains(&proxy.address().to_string()), "{}", first.detail);
        assert!(!first.detail.contains("hunter2"), "{}", first.detail);
        // Failed attempts to connect do not change when it began.
        let other = |it: StoreProblem| it.detail != first.detail && it.since == first.since;
        if name == "redis_disconnected" {
            until("an attempt fails", || problem(&store, name).is_some_and(other));
        }
    }
    proxy.accept();
    until("it is back", || store.status().problems.is_empty());
    assert!(metric(&store, "redis_connections_total") > connections);
    assert!(metric(&store, "redis_commands_total") > 0.0);
    assert_eq!(metric(&store, "redis_commands_in_flight"), 0.0);
}

#[test]
fn a_full_server_is_a_problem_until_it_accepts_jobs_again() {
    let server = RedisServer::start();
    let store = connect(&server.url(), fresh());
    put_all(&store, vec![put("a")]);
    let job = claimed(&store, 1, LONG).jobs.remove(0);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = try_put(&store, put("b"));
    assert!(
        matches!(&refused, Err(PutError::Store(StoreError::Unavailable { reason })) if reason.contains("OOM")),
        "{refused:?}"
    );
    let full = problem(&store, "redis_out_of_memory").expect("it is reported");
    assert!(full.detail.contains(&server.address()), "{}", full.detail);
    assert_eq!(settle(&store, &job, Settlement::Ack), Ok(Settled::Done));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    try_put(&store, put("b")).expect("memory is free again");
    assert_eq!(store.status().problems, []);
}

#[test]
fn a_server_that_becomes_a_replica_is_a_problem() {
    let server = RedisServer::start();
    let store = connect(&server.url(), fresh());
    put_all(&store, vec![put("a")]);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(matches!(
        try_put(&store, put("b")),
        Err(PutError::Store(StoreError::Unavailable { .. }))
    ));
    until("it is found to be a replica", || {
        let found = problem(&store, "redis_disconnected");
        found.is_some_and(|found| found.detail.contains("it is a replica of 127.0.0.1:1"))
    });
    server.command(&["REPLICAOF", "NO", "ONE"]);
    insist("it is a master again", || try_put(&store, put("b")));
    assert_eq!(store.status().problems, []);
}

#[test]
fn a_hanging_server_is_a_problem_and_its_calls_end() {
    let server = RedisServer::start();
    let mut options = fresh();
    options.response_timeout = Duration::from_millis(100);
    options.connect_timeout = Duration::from_millis(200);
    let store = connect(&server.url(), options);
    put_all(&store, vec![put("a")]);
    server.freeze();
    let unknown = try_put(&store, put("b"));
    assert!(matches!(unknown, Err(PutError::Store(StoreError::Unknown { .. }))), "{unknown:?}");
    // The connection was replaced. No call is sent while the server does not reply to the checks.
    let unavailable = try_put(&store, put("c"));
    let is_unavailable =
        matches!(unavailable, Err(PutError::Store(StoreError::Unavailable { .. })));
    assert!(is_unavailable, "{unavailable:?}");
    assert!(problem(&store, "redis_disconnected").is_some());
    server.thaw();
    insist("it replies again", || try_put(&store, put("c")));
    assert_eq!(store.status().problems, []);
    assert_eq!(metric(&store, "redis_commands_in_flight"), 0.0);
}

#[test]
fn a_lost_node_of_a_cluster_is_named() {
    let mut cluster = RedisCluster::with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let mut options = fresh();
    options.connect_timeout = Duration::from_millis(300);
    let store = connect(&cluster.url(), options);
    assert_eq!(metric(&store, "redis_connections_total"), 3.0);
    let address = cluster.nodes()[1].address();
    cluster.node_mut(1).kill();
    until("it is noticed", || {
        problem(&store, "redis_disconnected").is_some_and(|lost| lost.detail.contains(&address))
    });
    cluster.node_mut(1).start_again();
    until("it is back", || store.status().problems.is_empty());
}
