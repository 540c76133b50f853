//! What the tests of all brokers need.

use requeue_bridge::{BrokerOptions, HeaderValue, Message, broker_target};
use requeue_jobs::{JobState, JobView, Jobs, Kind, MemoryStore};
use requeue_push::{PushConfig, Pusher, PusherOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn jobs() -> Jobs {
    Jobs::new(Arc::new(MemoryStore::new()))
}

/// Puts jobs of the kind `order` that are due now.
pub(crate) async fn put_jobs(jobs: &Jobs, count: usize) {
    for n in 0..count {
        jobs.put("order", &format!("order-{n}"), format!("{n}")).await.unwrap();
    }
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
