//! Keys and wakers that use the queue while the queue wakes or drops them. The queue never does
//! so while it holds a lock; if it did, these tests would hang.

use requeue::limiter::{ExponentialFailure, RateLimiter};
use requeue::{
    AddOptions, ManualClock, Merge, Moment, Options, PriorityQueue, Queue, QueueAdapter,
    RateLimitingQueue,
};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

type QueueAccess = Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>;

/// A key that uses its queue when it is dropped.
#[derive(Clone)]
struct ReentrantKey {
    name: u32,
    access: QueueAccess,
}

impl Drop for ReentrantKey {
    fn drop(&mut self) {
        if let Some(access) = self.access.get() {
            access();
        }
    }
}

impl PartialEq for ReentrantKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ReentrantKey {}

impl Hash for ReentrantKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// A waker that uses its queue when it is woken and when it is dropped.
struct ReentrantWaker(QueueAccess);

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        if let Some(access) = self.0.get() {
            access();
        }
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        if let Some(access) = self.0.get() {
            access();
        }
    }
}

fn reentrant_queue() -> (RateLimitingQueue<ReentrantKey>, ManualClock, QueueAccess) {
    let (clock, access) = (ManualClock::new(), QueueAccess::default());
    let options = Options::new().clock(&clock).max_failing_keys(2);
    let queue = RateLimitingQueue::with(ExponentialFailure::default(), options);
    let (seen, now) = (queue.clone(), clock.clone());
    let look_at = move || {
        let _ = (seen.len(), seen.waiting(), seen.shutting_down(), now.now());
    };
    assert!(access.set(Box::new(look_at)).is_ok());
    (queue, clock, access)
}

#[test]
fn a_key_may_use_its_queue_as_it_is_dropped() {
    let (queue, clock, access) = reentrant_queue();
    let key = |name| ReentrantKey { name, access: Arc::clone(&access) };
    // Coalesced, re-run, done, cancelled.
    queue.add(key(1));
    queue.add(key(1));
    let held = queue.try_get().unwrap();
    queue.add(key(1));
    held.done();
    queue.cancel(&key(1));
    // Done and the next, with and without one.
    queue.add(key(1));
    queue.add(key(2));
    let held = queue.get().wait().unwrap();
    let held = held.next().wait().unwrap();
    assert!(held.next().wait_timeout(Duration::ZERO).is_err());
    // Delayed, merged, due while ready, cancelled while waiting.
    queue.add_after(key(1), SECOND);
    queue.add_after(key(1), 2 * SECOND);
    queue.add_after_with(key(1), Duration::ZERO, Merge::Replace);
    queue.add_after(key(1), SECOND);
    queue.add_after(key(2), SECOND);
    queue.cancel(&key(2));
    clock.advance(SECOND);
    queue.get().wait().unwrap().requeue();
    queue.get().wait().unwrap().requeue_after(SECOND);
    // Failed, forgotten, and forgotten because other keys failed since.
    for name in 0..5 {
        queue.add_rate_limited(key(name));
    }
    queue.forget(&key(4));
    clock.advance(SECOND);
    queue.get().wait().unwrap().retry();
    // Refused, kept, left over, dropped by a shutdown.
    let left = queue.drain(Duration::ZERO);
    queue.add(key(9));
    queue.add_after(key(9), SECOND);
    drop(left.wait());
    let (queue, _clock, access) = reentrant_queue();
    queue.add_after(ReentrantKey { name: 1, access }, SECOND);
    queue.shut_down();
}

#[test]
fn a_key_may_use_its_priority_queue_as_it_is_dropped() {
    let access = QueueAccess::default();
    let key = |name| ReentrantKey { name, access: Arc::clone(&access) };
    let clock = ManualClock::new();
    let options = Options::new().clock(&clock).max_failing_keys(2);
    let queue = PriorityQueue::with(ExponentialFailure::default(), options);
    let seen = queue.clone();
    let look_at = move || assert!(seen.len() + seen.waiting() < 100);
    assert!(access.set(Box::new(look_at)).is_ok());
    // Coalesced, raised, re-run, done, cancelled.
    queue.add_many([key(1), key(1)], AddOptions::new());
    queue.add_with(key(1), AddOptions::new().priority(1));
    let held = queue.try_get().unwrap();
    queue.add(key(1));
    held.done();
    queue.cancel(&key(1));
    // Delayed, merged, made ready, due.
    queue.add_after(key(1), SECOND);
    queue.add_after(key(1), SECOND / 2);
    queue.add(key(1));
    queue.add_after(key(2), SECOND);
    clock.advance(SECOND);
    queue.get().wait().unwrap().requeue();
    queue.get().wait().unwrap().requeue_after(SECOND);
    assert!(queue.get().wait().unwrap().next().wait_timeout(Duration::ZERO).is_err());
    // Failed, forgotten, and forgotten because other keys failed since.
    for name in 0..5 {
        queue.add_rate_limited(key(name));
    }
    queue.forget(&key(4));
    clock.advance(SECOND);
    queue.get().wait().unwrap().retry();
    // Refused, kept, left over, dropped by a shutdown.
    queue.add_after(key(8), SECOND);
    let held = queue.get().wait().unwrap();
    let left = queue.drain(Duration::ZERO);
    held.requeue();
    queue.add(key(9));
    drop(left.wait());
    let queue = PriorityQueue::with(ExponentialFailure::default(), Options::new().clock(&clock));
    let seen = queue.clone();
    let access = QueueAccess::default();
    assert!(access.set(Box::new(move || assert!(seen.is_empty()))).is_ok());
    queue.add_after(ReentrantKey { name: 1, access }, SECOND);
    queue.shut_down();
}

#[test]
fn a_waker_may_use_its_queue_as_it_is_woken_and_dropped() {
    let (queue, clock, access) = reentrant_queue();
    let waker = || Waker::from(Arc::new(ReentrantWaker(Arc::clone(&access))));
    let key = |name| ReentrantKey { name, access: QueueAccess::default() };
    // Woken by an add, by a due key and by a shutdown; replaced; dropped with its getter.
    for wake in [0, 1, 2, 3] {
        let mut get = pin!(queue.get());
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        match wake {
            0 => drop(queue.add(key(1))),
            1 => {
                queue.add_after(key(1), SECOND);
                clock.advance(SECOND);
            }
            2 => continue,
            _ => queue.shut_down(),
        }
        assert!(get.poll(&mut Context::from_waker(&waker())).is_ready());
    }
    // The waker of a drain.
    let queue = Queue::new();
    let access = QueueAccess::default();
    let seen = queue.clone();
    let look_at = move || assert!(seen.len() <= 1);
    assert!(access.set(Box::new(look_at)).is_ok());
    queue.add("a");
    let held = queue.try_get().unwrap();
    let mut drain = pin!(queue.shut_down_with_drain());
    let waker = Waker::from(Arc::new(ReentrantWaker(access)));
    assert!(drain.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    held.done();
    assert!(drain.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

fn panics<T>(f: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// A limiter that panics on every call but the first.
struct PanickingLimiter(u32);

impl<K> RateLimiter<K> for PanickingLimiter {
    fn when(&mut self, _: &K, _: u32, _: Moment) -> Duration {
        self.0 += 1;
        assert_eq!(self.0, 1, "the limiter panics");
        SECOND
    }
}

#[test]
fn a_key_may_use_its_queue_as_it_is_dropped_by_a_panic() {
    let clock = ManualClock::new();
    let options = || Options::new().clock(&clock).max_failing_keys(1);

    let queue = RateLimitingQueue::with(PanickingLimiter(0), options());
    let seen = queue.clone();
    let access = QueueAccess::default();
    assert!(access.set(Box::new(move || assert!(seen.len() < 9))).is_ok());
    let key = |name| ReentrantKey { name, access: Arc::clone(&access) };
    queue.add_rate_limited(key(1));
    assert!(panics(|| queue.add_rate_limited(key(2))));
    queue.add(key(3));
    assert!(panics(|| queue.try_get().map(|held| held.retry())));

    let queue = PriorityQueue::with(PanickingLimiter(0), options());
    let seen = queue.clone();
    let access = QueueAccess::default();
    assert!(access.set(Box::new(move || assert!(seen.len() < 9))).is_ok());
    let key = |name| ReentrantKey { name, access: Arc::clone(&access) };
    queue.add_rate_limited(key(1));
    assert!(panics(|| queue.add_rate_limited(key(2))));
    assert!(panics(|| queue.add_many([key(2), key(3)], AddOptions::new().rate_limited())));
    queue.add(key(4));
    assert!(panics(|| queue.try_get().map(|held| held.retry())));
    assert_eq!((queue.len(), queue.waiting()), (0, 1));
}

#[test]
fn a_waker_may_use_an_adapter_of_a_priority_queue() {
    let clock = ManualClock::new();
    let options = || Options::new().clock(&clock);
    let inner = PriorityQueue::with(ExponentialFailure::default(), options());
    let queue = QueueAdapter::new(inner, ExponentialFailure::default(), options());
    let seen = queue.clone();
    let access = QueueAccess::default();
    assert!(access.set(Box::new(move || assert!(seen.waiting() < 9))).is_ok());
    let waker = Waker::from(Arc::new(ReentrantWaker(access)));
    let mut get = pin!(queue.get());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    queue.add_after("a", SECOND);
    clock.advance(SECOND);
    assert!(get.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}
