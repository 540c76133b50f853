//! Deduplicating in-memory work queues with delays, retries and priorities.
//!
//! Producers add keys. Workers get keys, one worker per key at a time. A key can be added with
//! a delay, and a key whose processing failed can be retried with backoff.
//!
//! The queues behave like Kubernetes client-go's `util/workqueue`. The tests replay traces that
//! were recorded from client-go and compare every result. The crate works with any async
//! runtime and without one: every wait can be awaited or can block a thread. It contains no
//! `unsafe` code.
//!
//! ```
//! use requeue::DelayingQueue;
//! use std::time::Duration;
//!
//! let queue = DelayingQueue::new();
//! queue.add("order-7");
//! queue.add_after("order-8", Duration::from_secs(300));
//!
//! let held = queue.get().wait().expect("a key is ready"); // or .get().await
//! assert_eq!(*held.key(), "order-7");
//! queue.add("order-7"); // it is held, so it runs once more afterwards
//! held.done(); // dropping `held` does the same
//! assert_eq!(queue.len(), 1);
//! ```
//!
//! | type | purpose |
//! |---|---|
//! | [`Queue`] | A FIFO queue that stores each key once and never gives a key to two workers |
//! | [`DelayingQueue`] | Adds [`add_after`](DelayingQueue::add_after) |
//! | [`RateLimitingQueue`] | Adds [`retry`](Held::retry) with backoff, computed by any [`limiter`] |
//! | [`PriorityQueue`] | Delays, retries and priorities, for example live events before a resync |
//! | [`Held`] | The guard that [`get`](Queue::get) returns; dropping it ends the hold |
//! | [`Get`] | Waits for a key, in a task or on a thread |
//! | [`Worker`](worker::Worker) | Runs a handler for every key: outcomes, timeouts, panics, shutdown |
//! | [`Drain`] | Stops accepting keys, waits for the remaining work and returns what was left |
//! | [`Metrics`] | Collects what named queues and workers report |
//! | [`ManualClock`] | A clock for tests; time passes only when the test advances it |
//! | [`Fair`] | An [`Order`] that serves tenants in turn |
//! | [`Order`] | A trait to implement your own order of the ready keys |
//! | [`WorkQueue`], [`QueueAdapter`] | A trait to implement your own queue, and delays and backoff on top of it |
//!
//! # Features
//!
//! No feature is on by default. A feature only adds items; it never changes behaviour.
//!
//! | feature | adds |
//! |---|---|
//! | `prometheus` | The module `prometheus`, which exports metrics for a scrape |
//! | `tokio` | `Worker::spawn`, which runs a worker on tokio |
//! | `tracing` | `Worker::traced`, which opens a span for every run |
//!
//! # Panics
//!
//! A call panics by itself in three cases only:
//!
//! - A queue would contain 2³² − 1 keys at the same time.
//! - The operating system refuses to start the process's timer thread. The first delayed key
//!   and the first drain limit need it.
//! - A worker is spawned on tokio outside of a runtime.
//!
//! If `Hash`, `Eq` or `Clone` of a key panics, the panic propagates to the caller of the queue.
//! Neither this key nor any other key is lost, with one exception: a delayed key that panics
//! while it becomes ready is lost. If a waker panics, the queue wakes the next waiter instead.

mod backoff;
mod built_in;
mod clock;
mod delaying;
mod ending;
mod get;
mod guarded;
mod held;
mod keys;
pub mod limiter;
mod metrics;
mod options;
mod order;
mod park;
mod priority;
mod queue;
mod retry;
mod shared;
mod shell;
mod slot_index;
mod snapshot;
mod sync;
mod timers;
mod waiters;
mod wheel;
mod work_queue;
pub mod worker;

pub use clock::{Clock, ManualClock, Moment, Sleep};
pub use delaying::{DelayingQueue, QueueAdapter, RateLimitingQueue};
pub use get::{Drain, Get, GetMany, GetTimeoutError, ShutDownWithDrain, TryGetError};
pub use held::Held;
#[cfg(feature = "prometheus")]
pub use metrics::prometheus;
pub use metrics::{Histogram, Metrics, NameError, QueueMetrics, WorkerMetrics};
pub use options::{Merge, Options};
pub use order::{Fair, Order, Slot};
pub use priority::{AddOptions, PriorityQueue};
pub use queue::Queue;
pub use retry::Retry;
pub use snapshot::{
    Added, Cancelled, HeldKey, KeyStatus, Limited, ReadyKey, Remains, Snapshot, WaitingKey,
};
pub use waiters::Waiter;
pub use work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};

/// Runs the program in the README as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
