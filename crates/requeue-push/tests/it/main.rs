//! Deliveries over real sockets, to receivers on this machine.

#![allow(clippy::unwrap_used)]

mod addresses;
mod certificates;
mod libraries;
mod nodes;
mod pusher;
mod receiver;
mod requests;
mod responses;
mod room;

use requeue_jobs::{
    Body, ClaimedJob, Fence, Generation, JobId, Kind, ManualClock, Receipt, Timestamp, Version,
    WallClock,
};
use requeue_push::{
    AllowedTargets, Delivery, DeliveryOutcome, PushClient, PushClientOptions, PushConfig, Target,
    Webhook,
};
use serde_json::Value;
use std::time::Duration;

/// 2026-12-01T08:00:00Z
const BEGAN_AT: Timestamp = Timestamp::from_millis(1_796_112_000_000);

/// Waits until a condition holds. It must come true: the limit only ends a test that would hang.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), waiting).await;
    assert!(waited.is_ok(), "this did not happen: {what}");
}

/// Options that allow receivers on 127.0.0.1 and run on a manual clock.
fn options(clock: &ManualClock) -> PushClientOptions {
    let mut options = PushClientOptions::default();
    options.allowed = "127.0.0.1".parse::<AllowedTargets>().unwrap();
    options.clock = WallClock::manual(clock, BEGAN_AT);
    options
}

fn client(clock: &ManualClock) -> PushClient {
    PushClient::new(options(clock)).unwrap()
}

fn config(url: &str, more: Value) -> PushConfig {
    PushConfig::new(url).unwrap().merged(&more).unwrap()
}

fn delivery_of(id: &str, body: Body) -> Delivery {
    let (kind, id) = (Kind::new("order.close").unwrap(), JobId::new(id).unwrap());
    let version = Version::new(body, BEGAN_AT, Generation(3));
    let mut job = ClaimedJob::new(Receipt::new(kind, id, Fence(7), 1), version);
    job.created_at = Timestamp::from_millis(1_796_111_000_000);
    Delivery::new(job)
}

fn delivery() -> Delivery {
    delivery_of("order-7", Body::new(*b"{\"a\":1}", "application/json").unwrap())
}

async fn deliver(config: PushConfig, client: &PushClient, delivery: &Delivery) -> DeliveryOutcome {
    Webhook::new(config, client).unwrap().deliver(delivery).await
}

/// Delivers a job, and moves the clock on as soon as `ready` holds.
async fn deliver_and_advance(
    config: PushConfig,
    clock: &ManualClock,
    ready: impl FnMut() -> bool,
    by: Duration,
) -> DeliveryOutcome {
    let webhook = Webhook::new(config, &client(clock)).unwrap();
    let delivered = tokio::spawn(async move { webhook.deliver(&delivery()).await });
    until("the receiver is ready", ready).await;
    clock.advance(by);
    delivered.await.unwrap()
}

fn error(outcome: DeliveryOutcome) -> String {
    match outcome {
        DeliveryOutcome::Retry { error, .. }
        | DeliveryOutcome::SlowDown { error, .. }
        | DeliveryOutcome::Unreachable { error }
        | DeliveryOutcome::Bury { error } => error,
        outcome => panic!("{outcome:?}"),
    }
}

fn unreachable(outcome: DeliveryOutcome) -> String {
    assert!(matches!(outcome, DeliveryOutcome::Unreachable { .. }), "{outcome:?}");
    error(outcome)
}

const DONE: DeliveryOutcome = DeliveryOutcome::Done { result: None };
