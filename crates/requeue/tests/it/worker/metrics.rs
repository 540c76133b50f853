//! The metrics of a worker.

use super::executor::Executor;
use super::{MINUTE, SECOND, lock, queue};
use requeue::limiter::RateLimiter;
use requeue::worker::{Outcome, Worker};
use requeue::{ManualClock, Metrics, Moment, Options, RateLimitingQueue, WorkerMetrics};
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

fn report(metrics: &Metrics) -> WorkerMetrics {
    metrics.gather_workers().remove(0)
}

#[test]
fn every_way_an_attempt_can_end_is_counted() {
    let (queue, clock) = queue();
    let (metrics, executor) = (Metrics::new(), Executor::default());
    let worker = Worker::new(&queue).concurrency(2).timeout(MINUTE).max_attempts(2);
    let running = worker.metrics(&metrics, "orders").unwrap().spawn_with(
        executor.spawner(),
        |run| async move {
            match run.key {
                "retry" if run.attempt == 1 => Ok(Outcome::Retry),
                "again" => Ok(Outcome::RequeueAfter(1000 * MINUTE)),
                "dead" => Ok(Outcome::give_up("no such order")),
                "error" => Err("the bank is busy")?, // fails twice, and is dead then
                "panic" if run.attempt == 1 => panic!("no such bank"),
                "slow" if run.attempt == 1 => pending().await,
                _ => Ok(Outcome::Done),
            }
        },
    );
    for key in ["done", "retry", "again", "dead", "error", "panic", "slow"] {
        queue.add(key);
    }
    executor.run();
    assert_eq!((report(&metrics).active, report(&metrics).concurrency), (1, 2));
    clock.advance(SECOND);
    executor.run();
    clock.advance(MINUTE);
    executor.run();
    clock.advance(MINUTE);
    executor.run();

    let report = report(&metrics);
    assert_eq!((report.success, report.requeue, report.requeue_after), (4, 1, 1));
    assert_eq!((report.error, report.panics, report.timeouts, report.given_up), (5, 1, 1, 2));
    assert_eq!((report.active, report.run_duration.count()), (0, 11));
    assert_eq!(report.run_duration.sum(), MINUTE + SECOND); // the attempt that timed out
    drop(running);
}

/// A limiter that reads the metrics of the worker when it is called.
struct MetricsReader(Arc<OnceLock<Metrics>>, Arc<Mutex<Vec<(u64, u64, u64)>>>);

impl<K> RateLimiter<K> for MetricsReader {
    fn when(&mut self, _: &K, _: u32, _: Moment) -> Duration {
        let report = report(self.0.get().expect("the test sets it"));
        lock(&self.1).push((report.active, report.error, report.panics));
        SECOND
    }
}

#[test]
fn an_attempt_is_counted_in_all_metrics_together() {
    let (metrics, seen) = (Arc::new(OnceLock::new()), Arc::default());
    let limiter = MetricsReader(Arc::clone(&metrics), Arc::clone(&seen));
    let queue = RateLimitingQueue::with(limiter, Options::new().clock(ManualClock::new()));
    let executor = Executor::default();
    let worker = Worker::new(&queue).metrics(metrics.get_or_init(Metrics::new), "orders").unwrap();
    let handler = |_| async { panic!("no such bank") as Result<(), _> };
    let _running = worker.spawn_with(executor.spawner(), handler);
    queue.add("a");
    executor.run();
    assert_eq!(*lock(&seen), [(0, 1, 1)]);
}

#[test]
fn a_cancelled_attempt_is_not_counted() {
    let (queue, _clock) = queue();
    let (metrics, executor) = (Metrics::new(), Executor::default());
    let worker = Worker::new(&queue).metrics(&metrics, "orders").unwrap();
    let running = worker.spawn_with(executor.spawner(), |_| pending::<Result<(), _>>());
    queue.add("a");
    executor.run();
    assert_eq!(report(&metrics).active, 1);
    executor.abort();
    assert_eq!((report(&metrics).active, report(&metrics).run_duration.count()), (0, 0));
    drop(running);
    assert!(metrics.gather_workers().is_empty());
}

#[test]
fn the_concurrency_metric_is_the_last_value_that_was_set() {
    let (queue, _clock) = queue();
    let (metrics, executor) = (Metrics::new(), Executor::default());
    let worker = Worker::new(&queue).concurrency(3).metrics(&metrics, "orders").unwrap();
    let running = worker.spawn_with(executor.spawner(), |_| async { Ok(Outcome::Done) });
    assert_eq!(report(&metrics).concurrency, 3);
    running.set_concurrency(5).unwrap();
    assert_eq!(report(&metrics).concurrency, 5);
    drop(running.shut_down(SECOND));
    assert_eq!(report(&metrics).concurrency, 0);
}

#[test]
fn the_concurrency_of_a_worker_that_has_ended_is_zero() {
    let (queue, _clock) = queue();
    let (metrics, executor) = (Metrics::new(), Executor::default());
    let worker = Worker::new(&queue).concurrency(2).metrics(&metrics, "orders").unwrap();
    let running = worker.spawn_with(executor.spawner(), |_| async { Ok(Outcome::Done) });
    queue.shut_down();
    executor.run();
    running.join().wait();
    assert_eq!((running.concurrency(), report(&metrics).concurrency), (0, 0));
}

#[test]
fn a_name_can_be_used_again_when_its_worker_has_ended_and_is_dropped() {
    let (queue, _clock) = queue();
    let metrics = Metrics::new();
    let named = || Worker::new(&queue).metrics(&metrics, "orders");
    let worker = named().unwrap();
    assert!(named().is_err());
    let executor = Executor::default();
    let running = worker.spawn_with(executor.spawner(), |_| async { Ok(Outcome::Done) });
    drop(running.shut_down(MINUTE));
    drop(running);
    assert!(named().is_err()); // a runner is left
    executor.run();
    assert!(named().is_ok());
}
