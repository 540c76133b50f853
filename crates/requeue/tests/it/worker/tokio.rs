//! A worker on tokio.

use super::{Log, MINUTE, OverlapCounter, SECOND, entry, lock, queue};
use requeue::worker::{Next, Outcome, Worker};
use requeue::{Options, RateLimitingQueue, limiter::ExponentialFailure};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Barrier, mpsc};

fn one_thread() -> Runtime {
    Builder::new_current_thread().build().expect("tokio starts")
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("tokio starts")
}

#[test]
fn keys_are_processed_and_failed_keys_are_retried() {
    one_thread().block_on(async {
        let (queue, clock) = queue();
        let log = Log::default();
        let (done, mut is_done) = mpsc::unbounded_channel();
        let worker = Worker::new(&queue).concurrency(2).on_failure(log.callback());
        let running = worker.spawn(move |run| {
            let done = done.clone();
            async move {
                if run.attempt == 1 {
                    Err("the bank is busy")?;
                }
                done.send(run.key)?;
                Ok(Outcome::Done)
            }
        });
        queue.add("a");
        while lock(&log.0).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(log.take(), [entry("a", 1, "the bank is busy", Next::RetryIn(SECOND))]);
        clock.advance(SECOND);
        assert_eq!(is_done.recv().await, Some("a"));
        assert!(queue.drain(MINUTE).await.is_empty());
        running.join().await;
    });
}

#[test]
fn concurrency_can_be_raised_and_lowered_and_shut_down_waits() {
    two_threads().block_on(async {
        let (queue, _clock) = queue();
        let barrier = Arc::new(Barrier::new(4));
        let theirs = Arc::clone(&barrier);
        let running = Worker::new(&queue).spawn(move |_| {
            let barrier = Arc::clone(&theirs);
            async move {
                barrier.wait().await;
                barrier.wait().await;
                Ok(Outcome::Done)
            }
        });
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        running.set_concurrency(3).unwrap();
        barrier.wait().await;
        assert_eq!(running.keys().len(), 3);
        running.set_concurrency(1).unwrap();
        let shut_down = running.shut_down(MINUTE);
        barrier.wait().await;
        assert!(shut_down.await.is_empty());
        assert_eq!(running.keys(), []);
    });
}

#[test]
fn concurrency_can_be_changed_from_a_thread_outside_the_runtime() {
    let runtime = two_threads();
    let (queue, _clock) = queue();
    let _entered = runtime.enter();
    let running = Worker::new(&queue).concurrency(0).spawn(|_| async { Ok(Outcome::Done) });
    let elsewhere = running.clone();
    std::thread::spawn(move || elsewhere.set_concurrency(2).unwrap()).join().unwrap();
    queue.add("a");
    assert!(queue.drain(MINUTE).wait().is_empty());
    running.join().wait();
}

#[test]
fn a_runtime_that_shuts_down_puts_back_the_keys_that_were_being_processed() {
    let (queue, _clock) = queue();
    let runtime = two_threads();
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let running = runtime.block_on(async {
        let worker = Worker::new(&queue).concurrency(2).timeout(MINUTE);
        let running = worker.spawn(move |run| {
            begun.send(run.key).unwrap();
            pending::<Result<(), _>>()
        });
        queue.add("a");
        assert_eq!(has_begun.recv().await, Some("a"));
        running
    });
    drop(runtime);
    running.join().wait();
    assert!(running.keys().is_empty());
    let status = queue.status("a");
    assert_eq!((status.ready, status.held, status.failures), (true, false, 0));
}

#[test]
fn no_key_is_lost_while_the_concurrency_changes() {
    const KEYS: usize = 300;
    let backoff = ExponentialFailure::new(Duration::from_micros(1), Duration::from_micros(50));
    let queue = RateLimitingQueue::with(backoff, Options::new());
    let counter = Arc::new(OverlapCounter::new(KEYS));
    let their_counter = Arc::clone(&counter);
    two_threads().block_on(async {
        let (done, mut is_done) = mpsc::unbounded_channel();
        let running = Worker::new(&queue).timeout(Duration::from_secs(3600)).spawn(move |run| {
            let (key, attempt): (usize, _) = (run.key, run.attempt as usize);
            let (counter, done) = (Arc::clone(&their_counter), done.clone());
            async move {
                counter.enter(key);
                tokio::task::yield_now().await;
                counter.leave(key);
                match (key + attempt) % 3 {
                    0 => Ok(done.send(key).map(|()| Outcome::Done)?),
                    1 => Ok(Outcome::Retry),
                    _ => Err("again")?,
                }
            }
        });
        for key in 0..KEYS {
            queue.add(key);
        }
        for n in 0..200 {
            running.set_concurrency([3, 0, 5, 1][n % 4]).unwrap();
            tokio::task::yield_now().await;
        }
        running.set_concurrency(4).unwrap();
        let mut keys = Vec::new();
        while keys.len() < KEYS {
            keys.extend(is_done.recv().await);
        }
        keys.sort();
        assert_eq!(keys, (0..KEYS).collect::<Vec<_>>());
        assert!(running.shut_down(Duration::MAX).await.is_empty());
    });
    assert_eq!(counter.overlaps(), 0);
    assert!((0..KEYS).all(|key| queue.status(&key) == requeue::KeyStatus::default()));
}

#[test]
fn a_handler_may_return_unit() {
    one_thread().block_on(async {
        let (queue, _clock) = queue();
        let running = Worker::new(&queue).spawn(|_run| async { Ok(()) });
        queue.add("a");
        assert!(queue.drain(MINUTE).await.is_empty());
        running.join().await;
    });
}
