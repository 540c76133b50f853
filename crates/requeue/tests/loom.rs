//! Model checks with loom: every interleaving of two or three threads.
//!
//! A target of its own, because it needs `RUSTFLAGS="--cfg requeue_loom"`; `scripts/test` sets
//! it. The number of preemptions is bounded, since most bugs appear with two or three.

#![cfg(requeue_loom)]

use loom::future::block_on;
use loom::thread;
use requeue::limiter::ExponentialFailure;
use requeue::worker::{Outcome, Running, Worker};
use requeue::{
    Added, DelayingQueue, ManualClock, Options, PriorityQueue, Queue, RateLimitingQueue,
    TryGetError,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

#[test]
fn add_racing_done_runs_the_key_once_more() {
    model(|| {
        let queue = Queue::new();
        queue.add("a");
        let held = queue.try_get().unwrap();
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add("a"))
        };
        drop(held);
        adder.join().unwrap();
        assert_eq!(*queue.try_get().unwrap().key(), "a");
        assert!(queue.try_get().is_err());
    });
}

#[test]
fn two_getters_never_hold_one_key() {
    model(|| {
        let queue = Queue::new();
        queue.add("a");
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.try_get().ok().map(|held| held.into_owned()))
        };
        let ours = queue.try_get().ok();
        let theirs = other.join().unwrap();
        assert_eq!([ours.is_some(), theirs.is_some()].iter().filter(|&&got| got).count(), 1);
    });
}

#[test]
fn an_add_wakes_a_thread_that_waits() {
    model(|| {
        let queue = Queue::new();
        let getter = {
            let queue = queue.clone();
            thread::spawn(move || *queue.get().wait().unwrap().key())
        };
        queue.add("a");
        assert_eq!(getter.join().unwrap(), "a");
    });
}

#[test]
fn an_add_wakes_a_task_that_waits() {
    model(|| {
        let queue = Queue::new();
        let getter = {
            let queue = queue.clone();
            thread::spawn(move || block_on(async { *queue.get().await.unwrap().key() }))
        };
        queue.add("a");
        assert_eq!(getter.join().unwrap(), "a");
    });
}

#[test]
fn two_adds_reach_two_threads_that_wait() {
    model(|| {
        let queue = Queue::new();
        let getters = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || *queue.get().wait().unwrap().key())
        });
        queue.add("a");
        queue.add("b");
        let mut got = getters.map(|getter| getter.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, ["a", "b"]);
    });
}

#[test]
fn a_get_racing_a_shutdown_ends() {
    model(|| {
        let queue = Queue::<&str>::new();
        let getter = {
            let queue = queue.clone();
            thread::spawn(move || queue.get().wait().is_none())
        };
        queue.shut_down();
        assert!(getter.join().unwrap());
    });
}

#[test]
fn a_cancelled_get_passes_its_wake_up_on() {
    model(|| {
        let queue = Queue::new();
        let getter = {
            let queue = queue.clone();
            thread::spawn(move || *queue.get().wait().unwrap().key())
        };
        let canceller = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut get = pin!(queue.get());
                match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    // From now on the getter may be notified; it is dropped without polling
                    // again.
                    Poll::Pending => {}
                    Poll::Ready(held) => drop(held.unwrap().requeue()),
                }
            })
        };
        queue.add("a");
        canceller.join().unwrap();
        assert_eq!(getter.join().unwrap(), "a");
    });
}

#[test]
fn a_guard_dropped_while_draining_ends_the_drain() {
    model(|| {
        let queue = Queue::new();
        queue.add("a");
        let held = queue.try_get().unwrap().into_owned();
        let holder = thread::spawn(move || drop(held));
        queue.shut_down_with_drain().wait();
        assert_eq!(queue.snapshot().held.len(), 0);
        holder.join().unwrap();
    });
}

#[test]
fn a_drain_waits_for_ready_keys_and_wakes_the_worker() {
    model(|| {
        let clock = ManualClock::new();
        let queue = Queue::with(Options::new().clock(&clock));
        queue.add("a");
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut done = 0;
                while let Some(held) = queue.get().wait() {
                    held.done();
                    done += 1;
                }
                done
            })
        };
        let left = queue.drain(Duration::from_secs(1)).wait();
        assert!(left.is_empty());
        assert_eq!(worker.join().unwrap(), 1);
    });
}

#[test]
fn a_key_requeued_as_a_drain_ends_is_returned_by_it() {
    model(|| {
        let clock = ManualClock::new();
        let queue = Queue::with(Options::new().clock(&clock));
        queue.add("a");
        let held = queue.try_get().unwrap().into_owned();
        let holder = thread::spawn(move || held.requeue());
        let left = queue.drain(Duration::ZERO).wait();
        match holder.join().unwrap() {
            Added::Queued | Added::Kept => assert_eq!((left.ready.len(), left.held.len()), (1, 0)),
            // The holder was notified by the result, and the drain returned the key.
            added => assert_eq!((added, &left.held[..]), (Added::Refused, &["a"][..])),
        }
    });
}

#[test]
fn a_key_that_falls_due_wakes_a_waiter_and_is_never_lost() {
    model(|| {
        let clock = ManualClock::new();
        let queue = Arc::new(DelayingQueue::with(Options::new().clock(&clock)));
        queue.add_after("a", Duration::from_secs(1));
        let getter = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || *queue.get().wait().unwrap().key())
        };
        clock.advance(Duration::from_secs(1));
        assert_eq!(getter.join().unwrap(), "a");
    });
}

#[test]
fn a_key_delayed_while_the_clock_moves_still_becomes_ready() {
    model(|| {
        let clock = ManualClock::new();
        let queue = DelayingQueue::with(Options::new().clock(&clock));
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add_after("a", Duration::from_secs(1)))
        };
        clock.advance(Duration::from_secs(1));
        adder.join().unwrap();
        // Delayed before or after the clock moved: due now and ready, or not due yet.
        match queue.len() {
            1 => assert_eq!(queue.waiting(), 0),
            _ => assert_eq!(queue.status("a").due_in, Some(Duration::from_secs(1))),
        }
    });
}

#[test]
fn a_cancel_racing_the_due_time_leaves_no_trace() {
    model(|| {
        let clock = ManualClock::new();
        let queue = DelayingQueue::with(Options::new().clock(&clock));
        queue.add_after("a", Duration::from_secs(1));
        let mover = thread::spawn(move || clock.advance(Duration::from_secs(1)));
        let cancelled = queue.cancel("a");
        mover.join().unwrap();
        assert!(cancelled.any());
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        assert_eq!(queue.waiting(), 0);
    });
}

#[test]
fn a_retry_racing_an_add_runs_the_key_once_more() {
    model(|| {
        let clock = ManualClock::new();
        let limiter = ExponentialFailure::default();
        let queue = PriorityQueue::with(limiter, Options::new().clock(&clock));
        queue.add("a");
        let held = queue.try_get().unwrap();
        let adder = {
            let queue = queue.clone();
            thread::spawn(move || queue.add("a"))
        };
        held.retry();
        adder.join().unwrap();
        // In either order the add wins: the key is ready and no longer waits.
        assert_eq!((queue.len(), queue.waiting()), (1, 0));
        assert_eq!(*queue.try_get().unwrap().key(), "a");
    });
}

#[test]
fn a_key_of_a_priority_queue_that_falls_due_wakes_a_waiter() {
    model(|| {
        let clock = ManualClock::new();
        let limiter = ExponentialFailure::default();
        let queue = PriorityQueue::with(limiter, Options::new().clock(&clock));
        queue.add_after("a", Duration::from_secs(1));
        let getter = {
            let queue = queue.clone();
            thread::spawn(move || queue.get().wait().map(|held| held.done_into_key()))
        };
        clock.advance(Duration::from_secs(1));
        assert_eq!(getter.join().unwrap(), Some("a"));
    });
}

#[test]
fn a_key_delayed_as_a_drain_ends_is_returned_by_it() {
    model(|| {
        let clock = ManualClock::new();
        let delay = Duration::from_secs(1);
        let queue = DelayingQueue::with(Options::new().clock(&clock));
        queue.add("a");
        let held = queue.try_get().unwrap().into_owned();
        let holder = thread::spawn(move || held.requeue_after(delay));
        let left = queue.drain(Duration::ZERO).wait();
        match holder.join().unwrap() {
            Added::Waiting | Added::Kept => assert_eq!(left.waiting, [("a", delay)]),
            // The holder was notified by the result, and the drain returned the key.
            added => assert_eq!((added, &left.held[..]), (Added::Refused, &["a"][..])),
        }
    });
}

/// Starts a worker on one thread, which finds no key at first.
fn worker(
    handler: impl Fn() + Send + Sync + 'static,
) -> (RateLimitingQueue<&'static str>, Running<&'static str>) {
    let options = Options::new().clock(ManualClock::new());
    let queue = RateLimitingQueue::with(ExponentialFailure::default(), options);
    let worker = Worker::new(&queue).spawn_threads(move |_| {
        handler();
        Ok(Outcome::Done)
    });
    (queue, worker.expect("loom has threads"))
}

#[test]
fn a_stopped_worker_ends_and_leaves_the_keys_it_did_not_take() {
    model(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let (queue, running) = worker(move || {
            count.fetch_add(1, SeqCst);
        });
        queue.add("a");
        drop(running.shut_down(Duration::ZERO));
        running.join().wait();
        assert_eq!(runs.load(SeqCst) + queue.len(), 1);
        assert!(!queue.status("a").held && running.keys().is_empty());
    });
}

#[test]
fn a_worker_that_reports_nothing_in_progress_as_it_stops_runs_nothing_more() {
    model(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let (queue, running) = worker(move || {
            count.fetch_add(1, SeqCst);
        });
        queue.add("a");
        let left = running.shut_down(Duration::ZERO).wait();
        let before = runs.load(SeqCst);
        running.join().wait();
        assert!(!left.is_empty() || runs.load(SeqCst) == before);
    });
}

#[test]
fn a_worker_that_is_paused_and_resumed_works_on() {
    model(|| {
        let (queue, running) = worker(|| {});
        running.set_concurrency(0).unwrap();
        running.set_concurrency(1).unwrap();
        queue.add("a");
        queue.shut_down();
        running.join().wait();
        assert!(queue.is_empty());
    });
}

#[test]
fn a_worker_sees_its_queue_end() {
    model(|| {
        let (queue, running) = worker(|| {});
        queue.shut_down();
        running.join().wait();
    });
}
