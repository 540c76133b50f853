//! A worker on threads. Handlers and tests synchronise with channels and barriers.

use super::{Log, MINUTE, OverlapCounter, SECOND, entry, lock, queue};
use requeue::limiter::ExponentialFailure;
use requeue::worker::{Next, Outcome, Worker};
use requeue::{ManualClock, Metrics, Options, RateLimitingQueue};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Synchronises a handler with a test twice: the handler reports that it has begun, and then waits
/// until the test lets it continue.
fn meeting() -> (Meeting, Receiver<&'static str>, Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    (Meeting { begun, may_go: Mutex::new(may_go) }, has_begun, go)
}

struct Meeting {
    begun: Sender<&'static str>,
    may_go: Mutex<Receiver<()>>,
}

impl Meeting {
    fn meet(&self, key: &'static str) {
        self.begun.send(key).expect("the test receives");
        lock(&self.may_go).recv().expect("the test lets it continue");
    }
}

#[test]
fn every_outcome_settles_its_key() {
    let (queue, _clock) = queue();
    let (log, dead) = (Log::default(), Log::default());
    let (last, reached) = mpsc::channel();
    let worker = Worker::new(&queue).on_failure(log.callback()).on_dead(dead.callback());
    let running = worker
        .spawn_threads(move |run| match *run.key {
            "requeue" => Ok(Outcome::RequeueAfter(MINUTE)),
            "retry" => Ok(Outcome::Retry),
            "dead" => Ok(Outcome::give_up("no such order")),
            "error" => Err("the bank is busy")?,
            "panic" => panic!("no such bank"),
            "last" => Ok(last.send(Outcome::Done).map(|()| Outcome::Done)?),
            _ => Ok(Outcome::Done),
        })
        .unwrap();
    for key in ["done", "requeue", "retry", "dead", "error", "panic", "last"] {
        queue.add(key);
    }
    // There is one runner. When it processes the last key, the others are settled.
    reached.recv().unwrap();
    assert_eq!(
        log.take(),
        [
            entry("retry", 1, "the handler requested a retry", Next::RetryIn(SECOND)),
            entry("dead", 1, "no such order", Next::Dead),
            entry("error", 1, "the bank is busy", Next::RetryIn(SECOND)),
            entry("panic", 1, "panicked: no such bank", Next::RetryIn(SECOND)),
        ]
    );
    assert_eq!(dead.take().len(), 1);
    assert_eq!(queue.status("requeue").due_in, Some(MINUTE));
    assert_eq!((queue.waiting(), queue.num_requeues("panic")), (4, 1));
    queue.shut_down();
    running.join().wait();
}

#[test]
fn a_handler_that_returns_after_the_timeout_has_failed_and_its_key_is_held_until_then() {
    let (queue, clock) = queue();
    let (log, (meeting, begun, go)) = (Log::default(), meeting());
    let worker = Worker::new(&queue).timeout(SECOND).on_failure(log.callback());
    let running = worker
        .spawn_threads(move |run| {
            meeting.meet(run.key);
            assert_eq!(run.remaining(), Some(Duration::ZERO));
            Ok(Outcome::Done)
        })
        .unwrap();
    queue.add("a");
    begun.recv().unwrap();
    clock.advance(2 * SECOND);
    assert!(queue.status("a").held);
    go.send(()).unwrap();
    assert!(running.shut_down(MINUTE).wait().is_empty());
    assert_eq!(log.take(), [entry("a", 1, "timed out", Next::RetryIn(SECOND))]);
}

#[test]
fn shut_down_returns_the_running_keys_at_its_limit() {
    let (queue, clock) = queue();
    let (meeting, begun, go) = meeting();
    let running = Worker::new(&queue)
        .spawn_threads(move |run| {
            meeting.meet(run.key);
            Ok(Outcome::Done)
        })
        .unwrap();
    queue.add("a");
    begun.recv().unwrap();
    clock.advance(SECOND);
    let shut_down = running.shut_down(SECOND);
    queue.add("b");
    clock.advance(SECOND);
    let left = shut_down.wait();
    assert_eq!((left.len(), left[0].key, left[0].running_for), (1, "a", 2 * SECOND));
    go.send(()).unwrap();
    running.join().wait();
    assert_eq!(queue.snapshot().ready.len(), 1);
    assert!(!queue.status("a").held);
}

/// A key whose second clone waits for the test. At that time the key has been taken, but is not yet
/// in the list of running keys.
#[derive(PartialEq, Eq, Hash)]
struct SlowClone;

static CLONES: AtomicU32 = AtomicU32::new(0);
static TAKEN: OnceLock<Meeting> = OnceLock::new();

impl Clone for SlowClone {
    fn clone(&self) -> Self {
        if CLONES.fetch_add(1, SeqCst) == 1 {
            TAKEN.get().expect("the test sets it").meet("taken");
        }
        SlowClone
    }
}

#[test]
fn shut_down_also_returns_a_key_that_was_just_being_taken() {
    let clock = ManualClock::new();
    let queue = RateLimitingQueue::with(ExponentialFailure::default(), Options::new().clock(clock));
    let (taken, has_taken, list) = meeting();
    assert!(TAKEN.set(taken).is_ok());
    let (meeting, begun, go) = meeting();
    let running = Worker::new(&queue)
        .spawn_threads(move |_| {
            meeting.meet("begun");
            Ok(Outcome::Done)
        })
        .unwrap();
    queue.add(SlowClone);
    has_taken.recv().unwrap();
    let mut shut_down = pin!(running.shut_down(Duration::ZERO));
    let mut context = Context::from_waker(Waker::noop());
    assert!(shut_down.as_mut().poll(&mut context).is_pending());
    list.send(()).unwrap();
    begun.recv().unwrap();
    let Poll::Ready(left) = shut_down.poll(&mut context) else {
        panic!("the key is in the list now")
    };
    assert_eq!(left.len(), 1);
    go.send(()).unwrap();
    running.join().wait();
}

#[test]
fn at_its_limit_shut_down_does_not_wait_for_callbacks_of_a_key_that_is_no_longer_held() {
    let (queue, _clock) = queue();
    let (meeting, begun, go) = meeting();
    let worker = Worker::new(&queue).on_failure(move |failed| meeting.meet(failed.key));
    let running = worker.spawn_threads(|_| Ok(Outcome::Retry)).unwrap();
    queue.add("a");
    begun.recv().unwrap();
    let shut_down = pin!(running.shut_down(Duration::ZERO));
    let left = shut_down.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(left, Poll::Ready(Vec::new()));
    go.send(()).unwrap();
    running.join().wait();
}

/// A thread drops its references to the worker before `join` reports that the thread has ended.
#[test]
fn after_join_the_names_of_a_worker_can_be_used_again() {
    for _ in 0..200 {
        let metrics = Metrics::new();
        let options = Options::new().metrics(&metrics, "orders").unwrap();
        let queue = RateLimitingQueue::<u32>::with(ExponentialFailure::default(), options);
        let named = || Worker::new(&queue).metrics(&metrics, "orders");
        let handler = |_: requeue::worker::Run<&_>| Ok(Outcome::Done);
        let running = named().unwrap().concurrency(2).spawn_threads(handler).unwrap();
        running.shut_down(MINUTE).wait();
        drop(running);
        let running = named().unwrap().concurrency(2).spawn_threads(handler).unwrap();
        queue.shut_down();
        running.join().wait();
        drop((running, queue));
        assert!(Options::new().metrics(&metrics, "orders").is_ok());
    }
}

#[test]
fn concurrency_can_be_raised_and_lowered() {
    let (queue, _clock) = queue();
    let barrier = Arc::new(Barrier::new(4));
    let theirs = Arc::clone(&barrier);
    let running = Worker::new(&queue)
        .spawn_threads(move |_| {
            theirs.wait(); // waits for three runners and the test
            theirs.wait();
            Ok(Outcome::Done)
        })
        .unwrap();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    running.set_concurrency(3).unwrap();
    barrier.wait();
    let mut keys: Vec<_> = running.keys().iter().map(|held| (held.runner, held.key)).collect();
    assert_eq!(keys.iter().map(|held| held.0).collect::<Vec<_>>(), [0, 1, 2]);
    keys.sort_by_key(|held| held.1);
    assert_eq!(keys.iter().map(|held| held.1).collect::<Vec<_>>(), ["a", "b", "c"]);
    running.set_concurrency(0).unwrap();
    barrier.wait();
    // All three runners end, so the shutdown has no other runner to wait for.
    assert!(running.shut_down(MINUTE).wait().is_empty());
    queue.add("d");
    assert_eq!(queue.len(), 1);
}

#[test]
fn idle_threads_end_when_the_worker_or_its_queue_stops() {
    for stop_queue in [true, false] {
        let (queue, _clock) = queue();
        let handler = |_: requeue::worker::Run<&_>| Ok(Outcome::Done);
        let running = Worker::new(&queue).concurrency(4).spawn_threads(handler).unwrap();
        if stop_queue {
            queue.shut_down();
        } else {
            assert!(running.shut_down(MINUTE).wait().is_empty());
        }
        running.join().wait();
    }
}

/// Keys fail, panic and are retried while runners start and end. Every key is done once, and no key is
/// processed by two handlers concurrently.
#[test]
fn no_key_is_lost_while_the_concurrency_changes() {
    const KEYS: usize = 300;
    let backoff = ExponentialFailure::new(Duration::from_micros(1), Duration::from_micros(50));
    let queue = RateLimitingQueue::with(backoff, Options::new());
    let counter = Arc::new(OverlapCounter::new(KEYS));
    let (done, is_done) = mpsc::channel();
    let their_counter = Arc::clone(&counter);
    let running = Worker::new(&queue)
        .spawn_threads(move |run| {
            let key: usize = *run.key;
            their_counter.enter(key);
            std::thread::yield_now();
            their_counter.leave(key);
            match (key + run.attempt as usize) % 4 {
                0 => Ok(done.send(key).map(|()| Outcome::Done)?),
                1 => std::panic::resume_unwind(Box::new("without the hook's report")),
                2 => Ok(Outcome::Retry),
                _ => Err("again")?,
            }
        })
        .unwrap();
    let changer = std::thread::spawn({
        let running = running.clone();
        move || (0..200).for_each(|n| running.set_concurrency([3, 0, 5, 1][n % 4]).unwrap())
    });
    for key in 0..KEYS {
        queue.add(key);
    }
    changer.join().unwrap();
    running.set_concurrency(4).unwrap();
    let mut keys: Vec<usize> = is_done.iter().take(KEYS).collect();
    keys.sort();
    assert_eq!(keys, (0..KEYS).collect::<Vec<_>>());
    assert!(running.shut_down(Duration::MAX).wait().is_empty());
    assert_eq!(counter.overlaps(), 0);
    assert!((0..KEYS).all(|key| queue.status(&key) == requeue::KeyStatus::default()));
}
