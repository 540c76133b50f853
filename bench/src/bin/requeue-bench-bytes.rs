//! `timer-bytes`: live heap bytes per pending timer.
//!
//! Counts allocated bytes. The keys are created before, so that only
//! the bytes of the queue count. Go and Java measure after garbage collection.

use requeue::DelayingQueue;
use requeue_bench::Measurement;
use requeue_bench::delays::{Delays, Timer, TokioUtil, TokioUtilKeyed, make_timers};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TIMERS: usize = 1_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let bytes_of = match args[..] {
        ["measure", "core", "requeue", "timer-bytes", _] => bytes::<DelayingQueue<Arc<str>>>,
        ["measure", "core", "tokio-util", "timer-bytes", _] => bytes::<TokioUtil>,
        ["measure", "core", "tokio-util-keyed", "timer-bytes", _] => bytes::<TokioUtilKeyed>,
        _ => {
            eprintln!("usage: requeue-bench-bytes measure core SYSTEM timer-bytes SECONDS");
            return ExitCode::FAILURE;
        }
    };
    let bytes = bytes_of(&make_timers(TIMERS));
    Measurement::bytes(bytes as f64 / TIMERS as f64).print();
    ExitCode::SUCCESS
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn bytes<Q: Delays>(timers: &[Timer]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without threads or sockets starts");
    let _context = runtime.enter();
    let mut queue = Q::empty(TIMERS);
    let before = live();
    queue.add_all(timers);
    let bytes = live() - before;
    drop(queue);
    bytes
}
