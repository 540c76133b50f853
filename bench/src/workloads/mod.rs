//! The workloads by name: one measurement per call.

mod beanstalkd;
pub(crate) mod bridge;
pub(crate) mod clients;
mod contended;
mod cycle;
mod dedupe;
mod delayed;
pub(crate) mod disk;
mod fair;
pub(crate) mod http;
mod lateness;
mod place;
pub(crate) mod postgres;
mod priority;
mod program;
pub(crate) mod redis;
mod retry;
mod tally;
mod usage;
mod wake;
mod wheel;
mod worker;

use crate::system::System::{self, *};
use requeue::{DelayingQueue, PriorityQueue};
use requeue_bench::Measurement;
use requeue_bench::delays::{self, Delays};
use std::sync::Arc;
use std::time::Duration;

/// The number of timers of the delayed workloads.
const TIMERS: usize = 1_000_000;
/// The number of worker threads of the tokio workloads.
const TOKIO_WORKERS: usize = 2;

/// Suites may have workloads with the same name. Returns `None` if `system` has no such workload.
pub(crate) fn measure(
    suite: &str,
    system: System,
    workload: &str,
    budget: Duration,
) -> Option<Measurement> {
    let ns = match (suite, system) {
        ("core", Requeue) => keyed::<Arc<str>>(workload, budget)
            .or_else(|| ours(workload, budget))
            .or_else(|| delayed::<DelayingQueue<Arc<str>>>(workload, budget)),
        ("core", RequeueString) => keyed::<String>(workload, budget),
        ("core", RequeueFifo) => tenants(workload).map(|n| fair::fifo(n, budget)),
        ("core", TokioUtil) => tokio_util(workload, budget),
        ("core", TokioUtilKeyed) => delayed::<delays::TokioUtilKeyed>(workload, budget),
        ("wheel", Requeue) => wheel::measure(workload, budget),
        _ => None,
    };
    ns.map(Measurement::ns)
}

/// The workloads for both types of keys.
fn keyed<K: requeue::Key + From<String>>(workload: &str, budget: Duration) -> Option<f64> {
    Some(match workload {
        "cycle-1" => cycle::cycle::<K>(1, budget),
        "cycle-1k" => cycle::cycle::<K>(1_000, budget),
        "cycle-100k" => cycle::cycle::<K>(100_000, budget),
        "cycle-1k-fused" => cycle::fused::<K>(1_000, budget),
        "cycle-1k-metrics" => cycle::metered::<K>(1_000, budget),
        "dedupe-hot" => dedupe::dedupe::<K>(1, budget),
        "dedupe-cold" => dedupe::dedupe::<K>(100_000, budget),
        _ => return None,
    })
}

fn ours(workload: &str, budget: Duration) -> Option<f64> {
    if let Some(tenants) = tenants(workload) {
        return Some(fair::fair(tenants, budget));
    }
    Some(match workload {
        "contended-2x2" => contended::threads(2, 2, budget),
        "contended-8x8" => contended::threads(8, 8, budget),
        "contended-tokio" => contended::tasks(8, 8, budget),
        "wake" => wake::wake(budget),
        "lateness" => lateness::lateness(budget, lateness::requeue),
        "retry-loop" => retry::retry_loop(budget),
        "worker-threads" => worker::threads(1, budget),
        "worker-threads-4" => worker::threads(4, budget),
        "worker-tokio" => worker::tasks(1, budget),
        "worker-tokio-4" => worker::tasks(4, budget),
        "priority-cycle" => priority::cycle(1_000, budget),
        "priority-contended" => contended::prioritized(2, 2, budget),
        "priority-add-after" => delayed::add_after::<PriorityQueue<Arc<str>>>(TIMERS, budget),
        _ => return None,
    })
}

fn tenants(workload: &str) -> Option<u32> {
    match workload {
        "fair-1" => Some(1),
        "fair-100" => Some(100),
        "fair-100k" => Some(100_000),
        _ => None,
    }
}

/// The workloads for all queues with delays, in a runtime for those that need one.
fn delayed<Q: Delays>(workload: &str, budget: Duration) -> Option<f64> {
    let runtime = tokio();
    let _context = runtime.enter();
    Some(match workload {
        "add-after-1m" => delayed::add_after::<Q>(TIMERS, budget),
        "reschedule-1m" => delayed::reschedule::<Q>(TIMERS, budget),
        _ => return None,
    })
}

fn tokio_util(workload: &str, budget: Duration) -> Option<f64> {
    match workload {
        "lateness" => Some(lateness::lateness(budget, lateness::tokio_util)),
        _ => delayed::<delays::TokioUtil>(workload, budget),
    }
}

fn tokio() -> tokio::runtime::Runtime {
    build(tokio_builder().enable_time())
}

/// A runtime for sockets, too.
fn tokio_with_io() -> tokio::runtime::Runtime {
    build(tokio_builder().enable_all())
}

fn tokio_builder() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(TOKIO_WORKERS);
    builder
}

fn build(builder: &mut tokio::runtime::Builder) -> tokio::runtime::Runtime {
    builder.build().expect("the system has two threads to spare")
}
