//! Claims that Redis runs, but whose replies are lost: they are reported as unknown, and never sent
//! again.

use crate::support::{claim, connect, fresh, put_all, try_put};
use requeue_jobs::{Body, Claim, Claimed, JobId, JobState, Jobs, Kind, Put, Store, StoreError};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::{RedisCluster, RedisServer, until};
use requeue_testkit::{Direction, Proxy, block_on};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// A server behind a proxy, with the script of claims loaded.
fn proxied() -> (RedisServer, Proxy, RedisStore) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.address().parse().expect("an address")).expect("a free port");
    let store = connect(&format!("redis://{}", proxy.address()), fresh());
    block_on(store.claim(claim(1, LONG))).expect("the server is up");
    (server, proxy, store)
}

fn put(kind: &Kind, id: &str) -> Put {
    Put::new(kind.clone(), JobId::new(id).expect("a valid id"), Body::default())
}

fn leased(store: &RedisStore, kind: &Kind) -> usize {
    let kinds = block_on(store.kinds()).expect("the server is up");
    let view = kinds.iter().find(|view| view.kind == *kind).expect("the kind has jobs");
    view.counts.leased.try_into().expect("a small number")
}

fn is_unknown(claimed: &Claimed, kind: &Kind) -> bool {
    matches!(&claimed.errors[..], [(of, StoreError::Unknown { .. })] if of == kind)
}

#[test]
fn a_waiting_claim_whose_reply_is_lost_returns_with_the_error() {
    let (_server, proxy, store) = proxied();
    let kind = crate::support::kind();
    put_all(&store, vec![put(&kind, "a"), put(&kind, "b")]);
    proxy.cut_after(Direction::ToClient, 1);
    let jobs = Jobs::new(Arc::new(store.clone()));
    let claimed = block_on(jobs.claim(["mail"], "w").wait(LONG).into_future()).expect("a result");
    assert!(claimed.jobs.is_empty() && is_unknown(&claimed, &kind), "{claimed:?}");
    assert_eq!(leased(&store, &kind), 1, "the claim was sent once");
}

/// A Cluster whose nodes are reached through proxies.
struct ProxiedCluster {
    cluster: RedisCluster,
    proxies: Vec<Proxy>,
}

impl ProxiedCluster {
    fn start() -> Self {
        let cluster = RedisCluster::start(3, 0);
        let to = |node: &RedisServer| {
            Proxy::to(node.address().parse().expect("an address")).expect("a free port")
        };
        let proxies: Vec<_> = cluster.nodes().iter().map(to).collect();
        let ports: Vec<_> =
            proxies.iter().map(|proxy| proxy.address().port().to_string()).collect();
        for (node, port) in cluster.nodes().iter().zip(&ports) {
            node.command(&["CONFIG", "SET", "cluster-announce-port", port]);
        }
        until("all nodes announce the proxies", || {
            cluster.nodes().iter().all(|node| {
                let slots = node.command(&["CLUSTER", "SLOTS"]);
                ports.iter().all(|port| slots.contains(port))
            })
        });
        ProxiedCluster { cluster, proxies }
    }

    fn connect(&self, options: Options) -> RedisStore {
        let addresses: Vec<_> = self.proxies.iter().map(|it| it.address().to_string()).collect();
        connect(&format!("redis+cluster://{}", addresses.join(",")), options)
    }

    /// Returns the node that has the keys of this kind.
    fn node(&self, options: &Options, kind: &Kind) -> usize {
        let key = format!("{{{}:{kind}}}:meta", options.prefix);
        let exists = |node: &RedisServer| node.command(&["EXISTS", &key]) == "1";
        self.cluster.nodes().iter().position(exists).expect("a node has the key")
    }
}

#[test]
fn on_a_cluster_a_lost_reply_is_reported_for_its_kind_only() {
    let (proxied, options) = (ProxiedCluster::start(), fresh());
    let store = proxied.connect(options.clone());
    let kinds: Vec<Kind> =
        (0..20).map(|n| Kind::new(format!("k{n}")).expect("a valid kind")).collect();
    for kind in &kinds {
        try_put(&store, put(kind, "a")).expect("the Cluster is up");
    }
    let first = kinds[0].clone();
    let node = proxied.node(&options, &first);
    let other = kinds.iter().find(|kind| proxied.node(&options, kind) != node);
    let other = other.expect("the kinds are spread over the nodes").clone();
    let claims = |kinds: &[&Kind], max| Claim {
        kinds: kinds.iter().map(|&kind| kind.clone()).collect(),
        ..claim(max, LONG)
    };
    // Loads the scripts, and leaves a job of each kind.
    let loaded = block_on(store.claim(claims(&[&first, &other], 2))).expect("the Cluster is up");
    assert_eq!((loaded.jobs.len(), loaded.errors.len()), (2, 0));
    for kind in [&first, &other] {
        try_put(&store, put(kind, "b")).expect("the Cluster is up");
    }
    // The reply to the peek has four bytes. The fifth byte is the first one of the claim's reply.
    proxied.proxies[node].cut_after(Direction::ToClient, 5);
    let claimed = block_on(store.claim(claims(&[&first, &other], 2))).expect("a result");
    assert!(is_unknown(&claimed, &first), "{claimed:?}");
    assert_eq!(claimed.jobs.iter().map(|job| job.kind()).collect::<Vec<_>>(), [&other]);
    assert_eq!(leased(&store, &first), 2, "the claim was sent once");
    let id = JobId::new("b").expect("a valid id");
    let job = block_on(store.get(first.clone(), id)).expect("the Cluster is up");
    let job = job.expect("the job exists");
    assert_eq!((job.state, job.attempts), (JobState::Leased, 0));
}
