//! The store contract on a Cluster, where kinds are on different nodes.

use crate::support::{RedisFixture, as_stores, clients, is_whole};
use requeue_testkit::servers::RedisCluster;
use requeue_testkit::{Concurrent, check_histories, check_seeds};
use std::sync::LazyLock;

/// Shared by all tests of this process.
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| RedisCluster::start(3, 0));

fn fixture() -> RedisFixture {
    RedisFixture::at(&CLUSTER.url())
}

requeue_testkit::conformance!(fixture);

const FAILED_ONCE: [u64; 0] = [];

#[test]
fn histories_on_a_cluster_match_the_model() {
    check_histories(fixture, &FAILED_ONCE, 30);
}

#[test]
fn concurrent_clients_of_a_cluster_see_the_guarantees() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let clients = clients(&CLUSTER.url(), 6);
        Concurrent::default().check(&as_stores(&clients), seed, || ())?;
        is_whole(&clients[0]);
        Ok(())
    });
}
