//! Delivers the jobs of a kind without a worker: by HTTP request (webhooks), or to a message broker.
//!
//! A kind with a push setting needs no worker: a [`Pusher`] claims its jobs, sends each to a URL, and acks
//! it when the receiver responds with 2xx. The targets for message brokers are in the crate `requeue-bridge`. Requests are signed as [Standard Webhooks] specifies. The
//! project's `docs/webhooks.md` describes what a receiver gets and how it responds.
//!
//! | type | what it is |
//! |---|---|
//! | [`Pusher`] | claims the jobs of some kinds, delivers and settles them |
//! | [`Target`] | where jobs are delivered to: the interface between a pusher and a protocol |
//! | [`Webhook`] | the target that sends an HTTP request per job |
//! | [`PushConfig`] | the push setting of a kind: URL, headers, timeout, concurrency, secrets, format |
//! | [`PushClient`] | the HTTP client: checks every address before it connects to it |
//! | [`AllowedTargets`] | the internal targets that an operator permits |
//! | [`PushStatus`] | the state of kinds and targets, for people and metrics |
//!
//! [Standard Webhooks]: https://www.standardwebhooks.com

mod addresses;
mod allowed;
mod broker_error;
mod circuit;
mod client;
mod config;
mod encode;
mod pusher;
mod resolve;
mod signature;
mod target;
mod waiting;
mod webhook;

pub use allowed::{AllowedTargets, InvalidAllowedTarget};
pub use circuit::{
    CircuitState, FIRST_OPEN, MAX_OPEN, MAX_RETRY_AFTER, OPEN_AFTER, SLOW_DOWN_PAUSE,
};
pub use client::{PushClient, PushClientError, PushClientOptions};
pub use config::{
    Broker, BrokerUrl, DEFAULT_BROKER_CONCURRENCY, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT,
    InvalidPush, MAX_CONCURRENCY, MAX_HEADERS, MAX_SECRETS, MAX_TEXT_LEN, MAX_TIMEOUT, MIN_TIMEOUT,
    PushConfig, PushTexts, PushUrl, PushView, SigningSecret, WebhookFormat, WebhookUrl,
    fill_template,
};
pub use pusher::{
    DEFAULT_MAX_BYTES, DEFAULT_MAX_IN_FLIGHT, DURATION_BOUNDS, DeliveryCounts, DurationHistogram,
    LEASE_MARGIN, LastError, OnStoreError, PushKindStatus, PushStatus, PushTarget,
    PushTargetStatus, Pusher, PusherOptions,
};
pub use resolve::{Resolve, ResolveFuture, SystemResolver};
pub use target::{Delivery, DeliveryFuture, DeliveryOutcome, Target};
pub use webhook::Webhook;
