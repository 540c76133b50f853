//! What the tests of all brokers need.

use requeue_bridge::{
    Bridge, BridgeCounts, BridgeOptions, BrokerOptions, HeaderValue, Message, broker_target,
};
use requeue_jobs::{JobState, JobView, Jobs, Kind, MemoryStore, Timestamp};
use requeue_push::{PushConfig, Pusher, PusherOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) fn jobs() -> Jobs {
    Jobs::new(Arc::new(MemoryStore::new()))
}

/// Puts jobs of the kind `order` that are due now.
pub(crate) async fn put_jobs(jobs: &Jobs, count: usize) {
    for n in 0..count {
        jobs.put("order", &format!("order-{n}"), format!("{n}")).await.unwrap();
    }
}

/// Puts jobs of the kind `order` that became due one millisecond after the other, and returns their ids.
pub(crate) async fn put_in_order(jobs: &Jobs, count: u64) -> Vec<String> {
    let ids: Vec<_> = (0..count).map(|n| format!("order-{n:04}")).collect();
    let began_at = Timestamp::from_millis(1_000_000);
    for (n, id) in ids.iter().enumerate() {
        let due = began_at.saturating_add(Duration::from_millis(n as u64));
        jobs.put("order", id, "x").at(due).await.unwrap();
    }
    ids
}

/// Delivers the jobs of a kind to a broker.
pub(crate) fn pusher(
    jobs: &Jobs,
    kind: &str,
    config: PushConfig,
    options: &BrokerOptions,
) -> Pusher {
    let pusher = Pusher::start(jobs, "test", PusherOptions::default()).unwrap();
    pusher.set(Kind::new(kind).unwrap(), Some(broker_target(config, options).unwrap()));
    pusher
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn due_now(view: &JobView) -> bool {
    view.state != JobState::Waiting
}

pub(crate) fn message_headers(message: &Message) -> BTreeMap<String, HeaderValue> {
    message.headers.iter().cloned().collect()
}

/// Starts a bridge that puts messages as jobs of the kind `orders`. Dropping the sender stops it.
pub(crate) fn start_bridge(
    jobs: &Jobs,
    url: &str,
    options: BridgeOptions,
) -> (oneshot::Sender<()>, JoinHandle<BridgeCounts>) {
    let bridge = Bridge::new(jobs, Kind::new("orders").unwrap(), url, options).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    (stop, tokio::spawn(bridge.run(async move { drop(stopped.await) })))
}

/// Waits until there is a job of the kind `orders` with this id.
pub(crate) async fn wait_for_job(jobs: &Jobs, id: &str) -> JobView {
    loop {
        if let Some(view) = jobs.get("orders", id).await.unwrap() {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until there is no job of the kind `orders` with this id.
pub(crate) async fn wait_until_gone(jobs: &Jobs, id: &str) {
    while jobs.get("orders", id).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until an attempt to deliver the job of the kind `order` has failed, and returns the reason.
pub(crate) async fn wait_for_failure(jobs: &Jobs, id: &str) -> String {
    loop {
        let view = jobs.get("order", id).await.unwrap().unwrap();
        if let Some(failure) = view.failures.last() {
            return failure.error.clone().unwrap().to_string();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the only target of a pusher has failed, and returns the reason.
pub(crate) async fn wait_for_target_error(pusher: &Pusher) -> String {
    loop {
        let status = pusher.status();
        if let Some(error) = status.targets.first().and_then(|one| one.last_error.clone()) {
            return error.error;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a job is dead, and returns the reason.
pub(crate) async fn wait_for_dead(jobs: &Jobs, kind: &str, id: &str) -> String {
    loop {
        let view = jobs.get(kind, id).await.unwrap().unwrap();
        if view.state == JobState::Dead {
            return view.failures.last().unwrap().error.clone().unwrap().to_string();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the kind has no jobs.
pub(crate) async fn wait_until_done(jobs: &Jobs, kind: &str) {
    while !jobs.list(kind).await.unwrap().jobs.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The options of a client that trusts a test server, and presents the certificate that it requires.
pub(crate) fn trusting_options(dir: &Path) -> BrokerOptions {
    let mut options = BrokerOptions::default();
    options.ca_file = Some(dir.join("ca.crt"));
    options.client_cert = Some(dir.join("client.crt"));
    options.client_key = Some(dir.join("client.key"));
    options
}
