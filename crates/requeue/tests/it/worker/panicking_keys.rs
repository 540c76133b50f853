//! Keys that panic when they are cloned, compared or dropped: no key is lost, and no runner ends.

use super::executor::Executor;
use super::{MINUTE, SECOND, lock};
use requeue::limiter::ExponentialFailure;
use requeue::worker::{Next, Outcome, Running, Worker};
use requeue::{ManualClock, Options, Queue, QueueAdapter, RateLimitingQueue, Retry};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Works,
    Panics,
}
use Step::{Panics, Works};

/// When a key panics.
#[derive(Default)]
struct Panicking {
    /// What the next clones do. Later clones do not panic, unless `on_clone` is set.
    clones: Mutex<VecDeque<Step>>,
    on_clone: AtomicBool,
    on_eq: AtomicBool,
    on_drop: AtomicBool,
}

/// A key that panics when the test makes it panic.
struct ScriptedKey(&'static str, Arc<Panicking>);

impl Clone for ScriptedKey {
    fn clone(&self) -> Self {
        let step = lock(&self.1.clones).pop_front();
        assert!(step != Some(Panics) && !self.1.on_clone.load(SeqCst), "clone");
        ScriptedKey(self.0, Arc::clone(&self.1))
    }
}

impl Hash for ScriptedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0.hash(state); // the same for all, so that the map compares them
    }
}

impl PartialEq for ScriptedKey {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.1.on_eq.load(SeqCst) && !other.1.on_eq.load(SeqCst), "eq");
        self.0 == other.0
    }
}

impl Eq for ScriptedKey {}

impl Drop for ScriptedKey {
    fn drop(&mut self) {
        assert!(!self.1.on_drop.swap(false, SeqCst), "drop");
    }
}

fn panicking(name: &'static str) -> (ScriptedKey, Arc<Panicking>) {
    let panics = Arc::new(Panicking::default());
    (ScriptedKey(name, Arc::clone(&panics)), panics)
}

fn good(name: &'static str) -> ScriptedKey {
    panicking(name).0
}

type Failures = Arc<Mutex<Vec<(&'static str, u32, String, Next)>>>;

struct Fixture<Q = RateLimitingQueue<ScriptedKey>> {
    queue: Q,
    clock: ManualClock,
    executor: Executor,
    running: Running<ScriptedKey>,
    runs: Arc<Mutex<Vec<(&'static str, u32)>>>,
    failures: Failures,
    dead: Failures,
}

/// A worker with two runners, whose handler always returns `outcome`.
fn worker(options: Options, max_attempts: u32, outcome: Outcome) -> Fixture {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(SECOND, MINUTE);
    let queue = RateLimitingQueue::with(backoff, options.clock(&clock));
    worker_of(queue, clock, max_attempts, outcome)
}

fn worker_of<Q: Retry<Key = ScriptedKey>>(
    queue: Q,
    clock: ManualClock,
    max_attempts: u32,
    outcome: Outcome,
) -> Fixture<Q> {
    let executor = Executor::default();
    let (runs, failures, dead) = (Arc::default(), Failures::default(), Failures::default());
    let note = |failures: &Failures| {
        let failures = Arc::clone(failures);
        move |failed: &requeue::worker::Failed<'_, ScriptedKey>| {
            let failure = (failed.key.0, failed.attempt, failed.cause.to_string(), failed.next);
            lock(&failures).push(failure);
        }
    };
    let worker = Worker::new(&queue).concurrency(2).max_attempts(max_attempts);
    let worker = worker.on_failure(note(&failures)).on_dead(note(&dead));
    let their_runs: Arc<Mutex<Vec<_>>> = Arc::clone(&runs);
    let running = worker.spawn_with(executor.spawner(), move |run| {
        lock(&their_runs).push((run.key.0, run.attempt));
        std::future::ready(Ok(outcome.clone()))
    });
    Fixture { queue, clock, executor, running, runs, failures, dead }
}

impl<Q> Fixture<Q> {
    /// Runs until every task waits, checks that both runners are left, and returns the new calls of
    /// the handler.
    fn run(&self) -> Vec<(&'static str, u32)> {
        self.executor.run();
        assert_eq!((self.executor.tasks(), self.running.concurrency()), (2, 2));
        std::mem::take(&mut *lock(&self.runs))
    }
}

#[test]
fn runners_pause_while_a_key_cannot_be_taken_and_continue_when_it_can() {
    let worker = worker(Options::new(), 9, Outcome::Done);
    worker.executor.run(); // both runners wait for a key
    let (bad, panics) = panicking("bad");
    worker.queue.add(bad);
    worker.queue.add(good("good"));
    panics.on_clone.store(true, SeqCst);
    for _ in 0..3 {
        assert_eq!(worker.run(), []); // and does not retry in a busy loop
        assert_eq!(worker.queue.len(), 2);
        worker.clock.advance(SECOND);
    }
    panics.on_clone.store(false, SeqCst);
    assert_eq!(worker.run(), [("bad", 1), ("good", 1)]);
}

#[test]
fn a_key_that_cannot_be_taken_can_be_cancelled() {
    let worker = worker(Options::new(), 9, Outcome::Done);
    let (bad, panics) = panicking("bad");
    worker.queue.add(bad);
    worker.queue.add(good("good"));
    panics.on_clone.store(true, SeqCst);
    assert_eq!(worker.run(), []);
    assert!(worker.queue.cancel(&good("bad")).ready);
    worker.clock.advance(SECOND);
    assert_eq!(worker.run(), [("good", 1)]);
}

#[test]
fn a_worker_that_pauses_can_be_shut_down() {
    let worker = worker(Options::new(), 9, Outcome::Done);
    let (bad, panics) = panicking("bad");
    worker.queue.add(bad);
    panics.on_clone.store(true, SeqCst);
    assert_eq!(worker.run(), []);
    let shut_down = worker.running.shut_down(MINUTE);
    worker.executor.run();
    assert!(shut_down.wait().is_empty());
    assert_eq!(worker.queue.len(), 1);
}

#[test]
fn a_thread_pauses_while_a_key_cannot_be_taken() {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(SECOND, MINUTE);
    let queue = RateLimitingQueue::with(backoff, Options::new().clock(&clock));
    let (bad, panics) = panicking("bad");
    lock(&panics.clones).extend([Panics, Panics, Works]);
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let running = Worker::new(&queue)
        .spawn_threads(move |_| {
            count.fetch_add(1, SeqCst);
            Ok(Outcome::Done)
        })
        .unwrap();
    queue.add(bad);
    let start = Instant::now();
    while runs.load(SeqCst) == 0 {
        assert!(start.elapsed() < MINUTE, "the key was not taken again");
        clock.advance(SECOND);
        std::thread::yield_now();
    }
    assert!(running.shut_down(MINUTE).wait().is_empty());
}

#[test]
fn a_key_that_panics_before_its_handler_is_called_has_failed() {
    let worker = worker(Options::new(), 9, Outcome::Done);
    let (bad, panics) = panicking("bad");
    lock(&panics.clones).extend([Works, Panics]); // taking it works, listing it panics
    worker.queue.add(bad);
    worker.queue.add(good("good"));
    assert_eq!(worker.run(), [("good", 1)]);
    let failure = ("bad", 1, "panicked: clone".to_owned(), Next::RetryIn(SECOND));
    assert_eq!(*lock(&worker.failures), [failure]);
    worker.clock.advance(SECOND);
    assert_eq!(worker.run(), [("bad", 2)]);
}

/// No callback is called when it is retried, because it cannot be cloned. When it is dead, the
/// callback is called.
#[test]
fn a_key_that_always_panics_before_its_handler_is_called_dies() {
    let worker = worker(Options::new(), 2, Outcome::Done);
    let (bad, panics) = panicking("bad");
    // Taking it works, listing it panics, and cloning it for the callback panics.
    lock(&panics.clones).extend([Works, Panics, Panics]);
    // Taking it works, and listing it panics.
    lock(&panics.clones).extend([Works, Panics]);
    worker.queue.add(bad);
    assert_eq!(worker.run(), []);
    assert_eq!((worker.queue.waiting(), lock(&worker.failures).len()), (1, 0));
    worker.clock.advance(SECOND);
    assert_eq!(worker.run(), []);
    let death = ("bad", 2, "panicked: clone".to_owned(), Next::Dead);
    assert_eq!(*lock(&worker.dead), [death]);
    assert_eq!((worker.queue.len(), worker.queue.waiting()), (0, 0));
}

#[test]
fn a_key_that_cannot_be_delayed_is_ready_again_and_its_runner_pauses() {
    let clock = ManualClock::new();
    // An adapter finds a held key by comparing it with others.
    let backoff = ExponentialFailure::new(SECOND, MINUTE);
    let queue = QueueAdapter::new(Queue::new(), backoff, Options::new().clock(&clock));
    let worker = worker_of(queue, clock, 9, Outcome::Retry);
    worker.queue.add_after(good("other"), MINUTE); // so that there is a key to compare with
    let (bad, panics) = panicking("bad");
    worker.queue.add(bad);
    panics.on_eq.store(true, SeqCst);
    for _ in 0..3 {
        assert_eq!(worker.run(), []);
        assert_eq!((worker.queue.inner().len(), worker.queue.waiting()), (1, 1));
        worker.clock.advance(SECOND);
    }
    panics.on_eq.store(false, SeqCst);
    assert_eq!(worker.run(), [("bad", 1)]);
    assert_eq!((worker.queue.inner().len(), worker.queue.waiting()), (0, 2));
}

#[test]
fn a_key_that_panics_when_it_is_dropped_is_not_lost() {
    let outcomes = [
        (Outcome::Done, false),
        (Outcome::give_up(""), false),
        (Outcome::Retry, true),
        (Outcome::RequeueAfter(SECOND), true),
    ];
    for (outcome, comes_back) in outcomes {
        let clock = ManualClock::new();
        let backoff = ExponentialFailure::new(SECOND, MINUTE);
        let queue = RateLimitingQueue::with(backoff, Options::new().clock(&clock));
        let executor = Executor::default();
        let (bad, panics) = panicking("bad");
        let returned = outcome.clone();
        let _running = Worker::new(&queue).spawn_with(executor.spawner(), move |run| {
            std::mem::forget(run.key); // so that the worker's copy is the next to be dropped
            let (panics, outcome) = (Arc::clone(&panics), returned.clone());
            async move {
                panics.on_drop.store(true, SeqCst);
                Ok(outcome)
            }
        });
        queue.add(bad);
        executor.run();
        assert_eq!(executor.tasks(), 1, "{outcome:?}");
        let status = queue.status(&good("bad"));
        assert_eq!((status.held, status.ready), (false, false));
        assert_eq!(status.due_in.is_some(), comes_back, "{outcome:?}");
    }
}
