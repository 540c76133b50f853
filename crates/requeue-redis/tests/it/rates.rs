//! The rate limit of a kind over several nodes on one Redis.

use crate::support::{claimed, kind, put, put_all};
use requeue::ManualClock;
use requeue_jobs::{Rate, Settings, Store, Timestamp, WallClock};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3600);

/// Sets the rate of the kind, and puts jobs that are due now.
fn prepare(store: &RedisStore, rate: Rate, jobs: usize) {
    let mut settings = Settings::default();
    settings.rate = Some(rate);
    block_on(store.set(kind(), settings)).expect("the server is up");
    let puts: Vec<_> = (0..jobs).map(|n| put(&n.to_string())).collect();
    puts.chunks(1000).for_each(|puts| put_all(store, puts.to_vec()));
}

#[test]
fn two_nodes_together_keep_exactly_to_the_rate() {
    const STEP: u64 = 7;
    const STEPS: u64 = 2000;
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    let connect = || {
        let (url, options) = (server.url(), Options::default());
        let store = RedisStore::connect_at(&url, options, Some(wall_clock.clone()));
        block_on(store).expect("the server is up")
    };
    let nodes = [connect(), connect()];
    let rate = Rate { jobs: 97, per: Duration::from_secs(1), burst: Some(20) };
    prepare(&nodes[0], rate, 2000);
    // The time and the number of the jobs that were claimed.
    let mut claims = Vec::new();
    for step in 0..STEPS {
        for node in &nodes {
            claims.push((step * STEP, claimed(node, 3, LEASE).jobs.len() as u64));
        }
        clock.advance(Duration::from_millis(STEP));
    }
    let all: u64 = claims.iter().map(|(_, count)| count).sum();
    assert_eq!(all, 20 + (STEPS - 1) * STEP * 97 / 1000, "there were always enough jobs");
    for (first, (from, _)) in claims.iter().enumerate() {
        let mut count = 0;
        for (at, more) in &claims[first..] {
            count += more;
            let allowed = 20 + ((at - from) * 97).div_ceil(1000);
            assert!(count <= allowed, "{count} jobs from {from} to {at} ms");
        }
    }
}
