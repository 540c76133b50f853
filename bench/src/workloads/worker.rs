//! `worker-*`: a worker with an empty handler processes a backlog of 10k keys.

use super::tally::Tally;
use requeue::RateLimitingQueue;
use requeue::limiter::ExponentialFailure;
use requeue::worker::{Outcome, Running, Worker};
use requeue_bench::keys::make_keys;
use requeue_bench::meter::passes;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BACKLOG: usize = 10_000;

type Queue = RateLimitingQueue<Arc<str>>;

pub(super) fn threads(concurrency: usize, budget: Duration) -> f64 {
    work_off(budget, |queue, tally| {
        let worker = Worker::new(queue).concurrency(concurrency);
        let running = worker.spawn_threads(move |_run| {
            tally.finished();
            Ok(Outcome::Done)
        });
        running.expect("the system has a few threads to spare")
    })
}

pub(super) fn tasks(concurrency: usize, budget: Duration) -> f64 {
    let runtime = super::tokio();
    let _context = runtime.enter();
    work_off(budget, |queue, tally| {
        Worker::new(queue).concurrency(concurrency).spawn(move |_run| {
            tally.finished();
            async { Ok(Outcome::Done) }
        })
    })
}

/// The keys are added before. Starting the worker is counted.
fn work_off(budget: Duration, start: impl Fn(&Queue, Tally) -> Running<Arc<str>>) -> f64 {
    let keys: Vec<Arc<str>> = make_keys(BACKLOG);
    let pass = || {
        let queue = Queue::new(ExponentialFailure::default());
        for key in &keys {
            queue.add(key.clone());
        }
        let (tally, rounds) = Tally::new(BACKLOG);
        let started = Instant::now();
        let running = start(&queue, tally);
        rounds.recv().expect("the worker runs every key");
        let elapsed = started.elapsed();
        queue.shut_down();
        running.join().wait();
        elapsed
    };
    pass();
    passes(BACKLOG, budget, pass)
}
