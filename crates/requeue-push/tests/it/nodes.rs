//! Several nodes on one store.

use super::pusher::{KIND, Node, kind};
use super::receiver::{Action, Receiver, Recorded, ok};
use super::{BEGAN_AT, config, until};
use requeue_jobs::{Kind, ManualClock, MemoryStore, Settings, Store, WallClock};
use requeue_push::{LEASE_MARGIN, PushTarget};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const JOBS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_the_work_and_take_over_from_one_that_dies() {
    // The first twenty requests hang: the node that sent them dies during them.
    let receiver =
        Receiver::start(|n, _| if n < 20 { Action::Stall(Vec::new()) } else { ok() }).await;
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(WallClock::manual(&clock, BEGAN_AT)));
    let node = |name| Node::on(Arc::clone(&store), &clock, name);
    let push = |node: &Node| {
        let config = config(&receiver.url(), json!({"concurrency": 20}));
        let target = PushTarget::webhook(config, &node.client).unwrap();
        node.pusher.set(kind(), Some(target));
    };
    let (dies, survives) = (node("node-1"), node("node-2"));
    let puts = (0..JOBS).map(|id| dies.jobs.put(KIND, &format!("job-{id}"), "{}"));
    dies.jobs.put_all(puts).await.unwrap();
    push(&dies);
    until("the first node has sent its requests", || receiver.stalled() == 20).await;
    push(&survives);
    let status = || survives.pusher.status().kinds.remove(0).deliveries;
    until("the other node delivers the rest", || status().done == JOBS as u64 - 20).await;
    drop(dies.pusher);
    until("its connections are closed", || receiver.stalled() == 0).await;
    // Nothing settles the leases of the first node. When they expire, each job is delivered again after
    // its backoff.
    clock.advance(Duration::from_secs(10) + LEASE_MARGIN);
    until("the other node has taken over", || {
        // While a delivery is in flight, the clock stands still, so that it does not time out.
        if survives.pusher.status().in_flight == 0 {
            clock.advance(Duration::from_secs(1));
        }
        status().done == JOBS as u64
    })
    .await;
    assert_eq!(survives.jobs.kind(KIND).await.unwrap().counts.pending, 0);
    let mut fences: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for request in receiver.requests() {
        let fence = request.header("requeue-fence").parse().unwrap();
        fences.entry(request.header("webhook-id").to_owned()).or_default().push(fence);
    }
    assert_eq!(fences.len(), JOBS, "each job was delivered");
    assert_eq!(fences.values().filter(|fences| fences.len() == 2).count(), 20);
    for (id, fences) in fences {
        assert!(fences.is_sorted_by(|a, b| a < b), "{id}: {fences:?}");
    }
    let again = receiver.requests().into_iter().filter(|r| r.header("requeue-attempt") == "2");
    for request in again {
        assert_eq!(request.header("requeue-previous-failure"), "the lease expired");
    }
    assert_eq!(survives.pusher.shut_down(Duration::from_secs(1)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_deliver_each_job_once_as_long_as_both_live() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(WallClock::manual(&clock, BEGAN_AT)));
    let nodes = ["node-1", "node-2"].map(|name| Node::on(Arc::clone(&store), &clock, name));
    for node in &nodes {
        let config = config(&receiver.url(), json!({"concurrency": 5}));
        let target = PushTarget::webhook(config, &node.client).unwrap();
        node.pusher.set(kind(), Some(target));
    }
    let puts = (0..200).map(|id| nodes[0].jobs.put(KIND, &format!("job-{id}"), "{}"));
    nodes[0].jobs.put_all(puts).await.unwrap();
    let done = |node: &Node| node.pusher.status().kinds.remove(0).deliveries.done;
    until("all jobs were delivered", || nodes.iter().map(done).sum::<u64>() == 200).await;
    assert_eq!(receiver.count(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_is_delivered_whatever_the_receivers_do_at_first() {
    let script = |n: usize, _: &Recorded| match n {
        0..150 => match n % 5 {
            0 => Action::Respond("500 Oops", Vec::new()),
            1 => Action::Respond("429 Too Many Requests", Vec::new()),
            2 => Action::Respond("503 Service Unavailable\r\nretry-after: 3", Vec::new()),
            3 => Action::Write(Vec::new()),
            _ => ok(),
        },
        _ => ok(),
    };
    let receivers = [Receiver::start(script).await, Receiver::start(script).await];
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(WallClock::manual(&clock, BEGAN_AT)));
    let nodes = ["node-1", "node-2"].map(|name| Node::on(Arc::clone(&store), &clock, name));
    let jobs = &nodes[0].jobs;
    let kinds = ["order.close", "order.remind", "mail", "sms"];
    for (i, kind) in kinds.iter().enumerate() {
        let set = |settings: &mut Settings| settings.max_attempts = 1000;
        jobs.change_settings(kind, set).await.unwrap();
        let puts = (0..100).map(|id| jobs.put(kind, &format!("job-{id}"), "{}"));
        jobs.put_all(puts).await.unwrap();
        for node in &nodes {
            let config = config(&receivers[i % 2].url(), json!({"concurrency": 3 + i}));
            let target = PushTarget::webhook(config, &node.client).unwrap();
            node.pusher.set(Kind::new(*kind).unwrap(), Some(target));
        }
    }
    let in_flight = || nodes.iter().map(|node| node.pusher.status().in_flight).sum::<usize>();
    let done = || {
        let kinds = nodes.iter().flat_map(|node| node.pusher.status().kinds);
        kinds.map(|kind| kind.deliveries.done).sum::<u64>()
    };
    until("all jobs were delivered", || {
        // While a delivery is in flight, the clock stands still, so that it does not time out.
        if in_flight() == 0 {
            clock.advance(Duration::from_millis(500));
        }
        done() == 400
    })
    .await;
    for kind in kinds {
        let counts = jobs.kind(kind).await.unwrap().counts;
        assert_eq!((counts.pending, counts.leased, counts.dead), (0, 0, 0), "{kind}");
    }
    let sent: usize = receivers.iter().map(Receiver::count).sum();
    let ended =
        |node: &Node| node.pusher.status().kinds.iter().map(|k| k.durations.count()).sum::<u64>();
    assert_eq!(nodes.iter().map(ended).sum::<u64>(), sent as u64);
    assert_eq!(in_flight(), 0);
}
