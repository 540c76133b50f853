//! Work queues in memory: add a key, and it is worked on — once at a time, when it is
//! due, with backoff when it fails.
//!
//! The semantics are those of Kubernetes client-go's `util/workqueue`, checked against
//! what the real one answered. Runtime-agnostic: every getter can be awaited or waited
//! for on a thread. No `unsafe`.
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
//! queue.add("order-7"); // held: it runs once more afterwards
//! held.done(); // as does dropping it
//! assert_eq!(queue.len(), 1);
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`Queue`] | deduplicates, never hands a key to two workers |
//! | [`DelayingQueue`] | [`add_after`](DelayingQueue::add_after), on any inner queue |
//! | [`RateLimitingQueue`] | [`retry`](Held::retry) with backoff, on any [`limiter`] |
//! | [`PriorityQueue`] | the same, with priorities: live events before the resync |
//! | [`Held`] | the guard that [`get`](Queue::get) answers: a hold ends when it is dropped |
//! | [`Get`] | waits for a key, in a task or on a thread |
//! | [`Worker`](worker::Worker) | runs a handler over a queue: outcomes, timeout, panics, shutdown |
//! | [`Drain`] | works off what is ready, and answers what was left |
//! | [`Metrics`] | what named queues and workers report |
//! | [`ManualClock`] | time that moves when a test moves it |
//! | [`Fair`] | an [`Order`] in which tenants take turns |
//! | [`Order`], [`WorkQueue`] | an order, and an inner queue, of your own |
//!
//! # Features
//!
//! None by default; each adds methods and changes none.
//!
//! | feature | adds |
//! |---|---|
//! | `prometheus` | the module `prometheus`, which answers a scrape |
//! | `tokio` | `Worker::spawn`: a worker on tokio |
//! | `tracing` | `Worker::traced`: a span for every run |
//!
//! # Panics
//!
//! No call panics by itself, with three exceptions: a queue that is given 2³² − 1 keys at
//! once; the first delayed key, limit, or key under a minimum interval, of a process whose
//! system refuses to start a thread; and a worker spawned on tokio outside of a runtime.
//! A panic in `Hash`, `Eq` or `Clone` of a key comes out of the call that needed it, and
//! neither it nor another key is lost, unless the key was just falling due. A waker that
//! panics loses its turn to the next.

mod clock;
mod delaying;
mod ending;
mod failures;
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
mod shell;
mod snapshot;
mod sync;
mod waiters;
mod wheel;
mod work_queue;
pub mod worker;

pub use clock::{Clock, ManualClock, Moment, Sleep};
pub use delaying::{AlreadyLimited, DelayingQueue, RateLimitingQueue};
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

/// The program in the README runs as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
