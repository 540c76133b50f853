//! The checks of client-go's own tests, rewritten.
//!
//! Source: k8s.io/client-go v0.37.2, `util/workqueue` (Apache-2.0). Each module corresponds to
//! one of its test files, and each test names the Go test whose guarantee it checks. Where Go
//! sleeps to let another goroutine run first, these tests poll a future. Where Go reads a
//! channel or passes a metrics provider, these tests call the queue.
//!
//! Without a counterpart here:
//!
//! - `TestGarbageCollection`, as far as the garbage collector is concerned: Rust has none. The
//!   test here checks by the reference count that a queue drops a key.
//! - `TestMetricShutdown`, as far as the ticker is concerned: metrics are read, not pushed. The
//!   test here checks that a queue with metrics needs no timer, before and after a shutdown.
//! - `TestParallelizeUntil`: a loop over pieces of work, without a queue.
//! - `BenchmarkQueue`, `BenchmarkDelayingQueue_AddAfter`, `BenchmarkParallelizeUntil`:
//!   benchmarks, which check nothing.

mod delaying;
mod limiters;
mod metrics;
mod queue;
mod rate_limiting;

use std::time::Duration;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
