//! What client-go's own tests check, told anew.
//!
//! Source: k8s.io/client-go v0.37.2, `util/workqueue` (Apache-2.0). Each module here is
//! one of its test files, and each test names the Go test whose promise it checks.
//! Where Go sleeps to give another goroutine a head start, a future is polled here; where
//! it looks into a channel or lends a metrics provider, the queue is asked.
//!
//! Without a counterpart here:
//!
//! - `TestGarbageCollection`, as far as the collector goes: Rust has none. That a
//!   queue lets go of a key is checked on the key's reference count instead.
//! - `TestMetricShutdown`, as far as the ticker goes: metrics are read here, not pushed.
//!   That a queue which reports needs no timer, shut down or not, is checked instead.
//! - `TestParallelizeUntil`: a loop over pieces of work, without a queue.
//! - `BenchmarkQueue`, `BenchmarkDelayingQueue_AddAfter`, `BenchmarkParallelizeUntil`:
//!   they measure, and promise nothing.

mod delaying;
mod limiters;
mod metrics;
mod queue;
mod rate_limiting;

use std::time::Duration;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
