//! The checks of client-go's own tests that its recorded traces (`conformance.rs`) cannot contain:
//! concurrent threads, a custom order, what is freed, and what happens between two steps.
//!
//! Source: k8s.io/client-go v0.37.2, `util/workqueue` (Apache-2.0). Each test names the Go test whose
//! guarantee it checks. Where Go sleeps to let another goroutine run first, these tests poll a future.
//! Of `TestGarbageCollection` the reference count is left, of `TestMetricShutdown` that a queue with
//! metrics needs no timer. `TestParallelizeUntil` and the benchmarks have no counterpart.

use requeue::{Added, ManualClock, Metrics, Options, Order, Queue, Slot, TryGetError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

const WORKERS: usize = 10;
const KEYS: usize = 50;

type Stop = fn(&Queue<usize>);

/// client-go's two ways to stop.
const STOPS: [(&str, Stop); 2] = [
    ("shut_down", Queue::shut_down),
    ("shut_down_with_drain", |queue| queue.shut_down_with_drain().wait()),
];

/// client-go: TestBasic.
#[test]
fn what_was_added_before_a_shutdown_is_worked_off_and_what_came_after_is_not() {
    const ROUNDS: usize = 50;
    const LATE: usize = KEYS;
    for (action, stop) in STOPS {
        let queue = Queue::<usize>::new();
        let rounds = counters(KEYS + 1);
        let seen = Mutex::new(BTreeMap::new());
        let late = thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some(held) = queue.get().wait() {
                        let round = rounds[*held.key()].load(SeqCst);
                        seen.lock().unwrap().insert(*held.key(), round);
                    }
                });
            }
            let (queue, rounds) = (&queue, &rounds);
            let produce = |key: usize| {
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        rounds[key].store(round, SeqCst);
                        queue.add(key);
                    }
                })
            };
            let producers: Vec<_> = (0..KEYS).map(produce).collect();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            stop(queue);
            queue.add(LATE)
        });
        assert_eq!(late, Added::Refused, "{action}");
        // Adds of one key may share a run, but the last one is not forgotten.
        let last_rounds: BTreeMap<_, _> = (0..KEYS).map(|key| (key, ROUNDS)).collect();
        assert_eq!(seen.into_inner().unwrap(), last_rounds, "{action}");
        assert!(queue.is_empty(), "{action}");
    }
}

/// client-go: TestAddWhileProcessing.
#[test]
fn every_add_by_a_holder_brings_one_more_run_until_the_shutdown() {
    for (action, stop) in STOPS {
        let queue = Queue::<usize>::new();
        let runs = counters(KEYS);
        let (sender, readds) = mpsc::channel();
        let mut added: Vec<(usize, Added)> = Vec::new();
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                let (queue, runs, sender) = (&queue, &runs, sender.clone());
                scope.spawn(move || {
                    let mut known = BTreeSet::new();
                    while let Some(held) = queue.get().wait() {
                        let key = *held.key();
                        runs[key].fetch_add(1, SeqCst);
                        if known.insert(key) {
                            sender.send((key, queue.add(key))).unwrap();
                        }
                    }
                });
            }
            drop(sender);
            let queue = &queue;
            for key in 0..KEYS {
                scope.spawn(move || queue.add(key));
            }
            // Whichever worker has a key first adds it again: each key comes up here.
            let mut missing: BTreeSet<usize> = (0..KEYS).collect();
            while !missing.is_empty() {
                let readd = readds.recv().unwrap();
                missing.remove(&readd.0);
                added.push(readd);
            }
            stop(queue);
            added.extend(readds);
        });
        for (key, runs) in runs.into_iter().enumerate() {
            let results = added.iter().filter(|(of, _)| *of == key);
            let accepted = results.filter(|(_, added)| *added == Added::Rerun).count();
            assert!(accepted >= 1, "{action}: {key}");
            assert_eq!(runs.into_inner(), 1 + accepted, "{action}: {key}");
        }
        assert!(queue.is_empty(), "{action}");
    }
}

/// client-go: TestCollapse.
#[test]
fn a_key_added_twice_runs_once_and_the_order_is_notified() {
    let order = Touches::default();
    let touched = Arc::clone(&order.touched);
    let queue = Queue::with_order(order, Options::new());
    assert_eq!(queue.add("bar"), Added::Queued);
    assert_eq!(queue.add("bar"), Added::Coalesced);
    assert_eq!(*touched.lock().unwrap(), ["bar"]);
    let held = queue.try_get().unwrap();
    assert_eq!(*held.key(), "bar");
    held.done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
}

/// client-go: TestCollapseWhileProcessing.
#[test]
fn a_key_added_twice_while_held_is_for_the_next_worker_once_after_done() {
    let order = Touches::default();
    let touched = Arc::clone(&order.touched);
    let queue = Queue::with_order(order, Options::new());
    queue.add("foo");
    let held = queue.try_get().unwrap();
    assert_eq!(queue.add("foo"), Added::Rerun);
    assert_eq!(queue.add("foo"), Added::Coalesced);

    let flag = Arc::new(WakeFlag::default());
    let mut get = queue.get();
    assert!(flag.poll(&mut get).is_pending());
    assert!(!flag.was_woken());
    held.done();
    assert!(flag.was_woken());
    let Poll::Ready(Some(next)) = flag.poll(&mut get) else { panic!("it was done") };
    assert_eq!(*next.key(), "foo");
    next.done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    // Held is not ready: there was no place in the order to change.
    assert!(touched.lock().unwrap().is_empty());
}

/// client-go: TestQueueDrainageUsingShutDownWithDrain.
#[test]
fn a_thread_that_drains_is_blocked_until_the_last_held_key_is_done() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let drain = scope.spawn(|| {
            queue.shut_down_with_drain().wait();
            finished.load(SeqCst)
        });
        assert!(queue.get().wait().is_none(), "the drain wakes getters");
        first.done();
        finished.store(true, SeqCst);
        second.done();
        assert!(drain.join().unwrap());
    });
}

/// client-go: TestGarbageCollection.
#[test]
fn a_queue_drops_a_key_that_is_done() {
    let key: Arc<str> = Arc::from("hello");
    let weak = Arc::downgrade(&key);
    let queue = Queue::new();
    queue.add(Arc::clone(&key));
    queue.add(key);
    let held = queue.try_get().unwrap();
    queue.add(Arc::clone(held.key()));
    held.done();
    assert_ne!(weak.strong_count(), 0, "it is to run again");
    queue.try_get().unwrap().done();
    assert_eq!(weak.strong_count(), 0);
}

/// client-go: TestMetricShutdown.
#[test]
fn a_queue_with_metrics_has_no_timer_and_still_reports_after_a_shutdown() {
    let (clock, metrics) = (ManualClock::new(), Metrics::new());
    let options = Options::new().clock(&clock).metrics(&metrics, "test").unwrap();
    let queue = Queue::with(options);
    queue.add("foo");
    let held = queue.try_get().unwrap();
    assert_eq!(clock.advance_to_next(), None);
    queue.shut_down();
    let at_shutdown = metrics.gather();
    assert_eq!(clock.advance_to_next(), None);
    assert_eq!(metrics.gather(), at_shutdown);
    // client-go's gauges stop at a shutdown; requeue's are still exact.
    clock.advance(Duration::from_secs(3600));
    assert_eq!(metrics.gather()[0].unfinished_work, Duration::from_secs(3600));
    held.done();
    drop(queue);
    assert!(metrics.gather().is_empty());
}

/// First in, first out, and records the keys that were added again.
#[derive(Default)]
struct Touches {
    slots: VecDeque<Slot>,
    touched: Arc<Mutex<Vec<&'static str>>>,
}

impl Order<&'static str> for Touches {
    fn push(&mut self, _key: &&'static str, slot: Slot) {
        self.slots.push_back(slot);
    }

    fn pop(&mut self) -> Option<Slot> {
        self.slots.pop_front()
    }

    fn remove(&mut self, _key: &&'static str, slot: Slot) {
        self.slots.retain(|other| *other != slot);
    }

    fn touch(&mut self, key: &&'static str, _slot: Slot) {
        self.touched.lock().expect("no test panics with it locked").push(key);
    }
}

/// A waker that remembers whether it was called.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl WakeFlag {
    fn was_woken(&self) -> bool {
        self.0.load(SeqCst)
    }

    fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

fn counters(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}
