//! Panics in foreign code: handlers, keys, orders, wakers, inner queues. They damage neither
//! the queue nor the timers of other queues.

use requeue::limiter::ExponentialFailure;
use requeue::{Added, DelayingQueue, ManualClock, Options, Queue, QueueAdapter, Remains};
use requeue::{StopMode, Taken, TryGetError, Waiter, WorkQueue};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Long enough for any machine; only a failing test waits that long.
const FOREVER: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A key that panics in the selected operations.
#[derive(Default)]
struct PanickingKey {
    name: &'static str,
    on_hash: Arc<AtomicBool>,
    on_eq: Arc<AtomicBool>,
    on_clone: Arc<AtomicBool>,
}

fn key_named(name: &'static str) -> PanickingKey {
    PanickingKey { name, ..PanickingKey::default() }
}

impl Hash for PanickingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!self.on_hash.load(SeqCst), "hash of {}", self.name);
        // All equal, so that keys are compared.
        0.hash(state);
    }
}

impl PartialEq for PanickingKey {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.on_eq.load(SeqCst) && !other.on_eq.load(SeqCst), "eq of {}", self.name);
        self.name == other.name
    }
}

impl Eq for PanickingKey {}

impl Clone for PanickingKey {
    fn clone(&self) -> Self {
        assert!(!self.on_clone.load(SeqCst), "clone of {}", self.name);
        PanickingKey {
            name: self.name,
            on_hash: Arc::clone(&self.on_hash),
            on_eq: Arc::clone(&self.on_eq),
            on_clone: Arc::clone(&self.on_clone),
        }
    }
}

fn panics<T>(f: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

fn adapter<Q: WorkQueue>(inner: Q, options: Options) -> QueueAdapter<Q> {
    QueueAdapter::new(inner, ExponentialFailure::new(SECOND, SECOND), options)
}

fn names(queue: &Queue<PanickingKey>) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.try_get().ok().map(|held| held.key().name)).collect()
}

#[test]
fn a_handler_that_panics_gives_its_key_back() {
    let queue = Queue::new();
    queue.add("a");
    assert!(panics(|| {
        let _held = queue.try_get().unwrap();
        queue.add("a");
        panic!("the handler fails");
    }));
    assert!(!queue.status("a").held);
    assert_eq!(*queue.try_get().unwrap().key(), "a");
}

#[test]
fn a_key_that_panics_in_hash_or_eq_is_not_added_and_harms_no_other() {
    let queue = Queue::new();
    queue.add(key_named("a"));
    let bad = key_named("b");
    for flag in [&bad.on_hash, &bad.on_eq] {
        flag.store(true, SeqCst);
        assert!(panics(|| queue.add(bad.clone())));
        flag.store(false, SeqCst);
    }
    assert_eq!(queue.len(), 1);
    queue.add(bad);
    assert_eq!(names(&queue), ["a", "b"]);
}

#[test]
fn a_key_that_panics_in_clone_stays_where_it_was() {
    struct Fifo(std::collections::VecDeque<requeue::Slot>);
    impl<K> requeue::Order<K> for Fifo {
        fn push(&mut self, _: &K, slot: requeue::Slot) {
            self.0.push_back(slot);
        }
        fn pop(&mut self) -> Option<requeue::Slot> {
            self.0.pop_front()
        }
        fn remove(&mut self, _: &K, slot: requeue::Slot) {
            self.0.retain(|&other| other != slot);
        }
    }
    for queue in [Queue::new(), Queue::with_order(Fifo(Default::default()), Options::new())] {
        let key = key_named("a");
        let on_clone = Arc::clone(&key.on_clone);
        queue.add(key);
        on_clone.store(true, SeqCst);
        assert!(panics(|| queue.try_get().map(|held| held.key().name)));
        assert_eq!((queue.len(), queue.snapshot_is_free_of_holds()), (1, true));
        on_clone.store(false, SeqCst);
        assert_eq!(names(&queue), ["a"]);
    }
}

trait Free {
    fn snapshot_is_free_of_holds(&self) -> bool;
}

impl Free for Queue<PanickingKey> {
    /// Without cloning a key.
    fn snapshot_is_free_of_holds(&self) -> bool {
        !self.status(&key_named("a")).held
    }
}

/// In an adapter, the key is compared with others when it is delayed, but not when it becomes
/// ready.
#[test]
fn a_key_that_panics_as_its_holder_delays_it_is_ready_again() {
    let options = Options::new().clock(ManualClock::new());
    let queue = adapter(Queue::new(), options);
    queue.add_after(key_named("first"), SECOND);
    let key = key_named("a");
    let on_eq = Arc::clone(&key.on_eq);
    queue.add(key);
    let held = queue.try_get().unwrap();
    on_eq.store(true, SeqCst);
    assert!(panics(|| held.requeue_after(SECOND)));
    on_eq.store(false, SeqCst);
    assert_eq!((queue.len(), queue.waiting()), (1, 1));
}

#[test]
fn a_key_is_not_compared_as_its_holder_delays_it() {
    let queue = DelayingQueue::with(Options::new().clock(ManualClock::new()));
    queue.add_after(key_named("first"), SECOND);
    let key = key_named("a");
    let on_eq = Arc::clone(&key.on_eq);
    queue.add(key);
    let held = queue.try_get().unwrap();
    on_eq.store(true, SeqCst);
    assert_eq!(held.requeue_after(SECOND), Added::Waiting);
    assert_eq!((queue.len(), queue.waiting()), (0, 2));
}

struct PanickingWaker(fn() -> !);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0();
    }
}

fn fails() -> ! {
    panic!("it fails")
}

#[test]
fn if_a_waker_panics_the_next_waiter_is_woken() {
    let queue = Queue::new();
    let bad = Waker::from(Arc::new(PanickingWaker(fails)));
    let mut first = pin!(queue.get());
    assert!(first.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| queue.get().wait_timeout(FOREVER).map(|held| *held.key()));
        // Until the second getter waits too, there is no other waiter to wake.
        assert_eq!(queue.add("a"), Added::Queued);
        assert_eq!(second.join().unwrap().unwrap(), "a");
    });
}

#[test]
fn a_key_that_panics_as_it_falls_due_harms_no_other() {
    let clock = ManualClock::new();
    let options = || Options::new().clock(&clock);
    let other = DelayingQueue::with(options());
    // Only the inner queue of an adapter compares a key that falls due. The key is then lost.
    macro_rules! check {
        ($queue:expr, $ready:expr) => {
            let queue = $queue;
            let key = key_named("a");
            let on_eq = Arc::clone(&key.on_eq);
            queue.add(key_named("ready"));
            queue.add_after(key, SECOND);
            queue.add_after(key_named("b"), SECOND);
            other.add_after("other", SECOND);
            on_eq.store(true, SeqCst);
            clock.advance(SECOND);
            on_eq.store(false, SeqCst);
            assert_eq!((queue.len(), queue.waiting(), other.len()), ($ready, 0, 1));
        };
    }
    check!(DelayingQueue::with(options()), 3);
    check!(adapter(Queue::new(), options()), 2);
}

/// An inner queue that panics on every add.
struct PanickingQueue(fn() -> !);

impl WorkQueue for PanickingQueue {
    type Key = &'static str;
    fn add(&self, _: &'static str) -> Added {
        self.0()
    }
    fn poll_take(&self, _: &mut Waiter, _: Option<&Waker>) -> Poll<Option<Taken<&'static str>>> {
        Poll::Pending
    }
    fn leave(&self, _: &mut Waiter) {}
    fn done(&self, _: u64) {}
    fn len(&self) -> usize {
        0
    }
    fn stop(&self, _: StopMode) {}
    fn poll_drained(&self, _: StopMode, _: &mut Waiter, _: &Waker) -> Poll<()> {
        Poll::Ready(())
    }
    fn shutting_down(&self) -> bool {
        false
    }
}

#[test]
fn an_inner_queue_that_panics_harms_no_other_queue_on_the_manual_clock() {
    let clock = ManualClock::new();
    let broken = adapter(PanickingQueue(fails), Options::new().clock(&clock));
    let other = DelayingQueue::with(Options::new().clock(&clock));
    broken.add_after("a", SECOND);
    broken.add_after("b", SECOND);
    other.add_after("other", SECOND);
    // The caller of `advance` gets the panic after everything due has been processed.
    assert!(panics(|| clock.advance(SECOND)));
    assert_eq!((broken.waiting(), other.len()), (0, 1));
    assert_eq!(broken.drain(SECOND).wait(), Remains::default());
}

#[test]
fn an_inner_queue_that_panics_harms_no_other_queue_on_the_timer_thread() {
    let broken = adapter(PanickingQueue(fails), Options::new());
    let panicking = DelayingQueue::<&str>::new();
    let other = DelayingQueue::new();
    let bad = Waker::from(Arc::new(PanickingWaker(fails)));
    let mut get = pin!(panicking.get());
    assert!(get.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    for n in 1..20 {
        broken.add_after("broken", Duration::from_micros(n));
        panicking.add_after("panicking", Duration::from_micros(n));
        other.add_after("other", Duration::from_micros(n));
        let held = other.get().wait_timeout(FOREVER).expect("the timer thread lives");
        assert_eq!(*held.key(), "other");
    }
    assert_eq!(*panicking.get().wait_timeout(FOREVER).unwrap().key(), "panicking");
}

#[test]
fn no_argument_makes_a_call_panic() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock));
    assert_eq!(queue.add_after("never", Duration::MAX), Added::Waiting);
    assert_eq!(queue.add_after("late", Duration::from_secs(100 * 365 * 86_400)), Added::Waiting);
    assert!(queue.get().wait_timeout(Duration::ZERO).is_err());
    queue.add("a");
    assert_eq!(queue.get_many(0).wait().len(), 1);
    queue.add("a");
    assert_eq!(queue.get_many(usize::MAX).wait().len(), 1);
    clock.advance(Duration::MAX);
    clock.advance(Duration::MAX);
    assert_eq!(*queue.try_get().unwrap().key(), "late");
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "the end is not reached");
    assert_eq!(clock.advance_to_next(), None);
    let left = queue.drain(Duration::MAX).wait();
    assert_eq!(left.waiting.len(), 1);
    queue.shut_down();
    queue.shut_down_with_drain().wait();
    assert_eq!(queue.drain(Duration::ZERO).wait(), Remains::default());
}

#[test]
fn a_waker_that_panics_at_a_drains_limit_is_not_called_again() {
    let clock = ManualClock::new();
    for options in [Options::new().clock(&clock), Options::new()] {
        let queue = Queue::with(options);
        queue.add("a");
        let _held = queue.try_get().unwrap();
        let mut drain = pin!(queue.drain(Duration::from_millis(1)));
        let bad = Waker::from(Arc::new(PanickingWaker(fails)));
        assert!(drain.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
        clock.advance(SECOND);
        // On the system clock, the timers of another queue continue.
        let other = DelayingQueue::new();
        other.add_after("b", Duration::from_millis(2));
        assert_eq!(*other.get().wait_timeout(FOREVER).unwrap().key(), "b");
    }
}

/// A panic's payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload fails");
    }
}

fn bombs() -> ! {
    std::panic::panic_any(Bomb)
}

#[test]
fn a_payload_that_panics_when_dropped_ends_neither_an_add_nor_the_timer_thread() {
    let bad = Waker::from(Arc::new(PanickingWaker(bombs)));
    let mut context = Context::from_waker(&bad);
    // A waker that is woken by an add.
    let queue = DelayingQueue::new();
    let mut get = pin!(queue.get());
    assert!(get.as_mut().poll(&mut context).is_pending());
    assert_eq!(queue.add("a"), Added::Queued);
    // One that is woken by the timer thread, for a key and for a drain's limit.
    let held = queue.try_get().unwrap();
    assert!(get.as_mut().poll(&mut context).is_pending());
    queue.add_after("b", Duration::from_micros(1));
    let other = Queue::new();
    other.add("held");
    let _held = other.try_get().unwrap();
    let mut drain = pin!(other.drain(Duration::from_millis(10)));
    let _pending = drain.as_mut().poll(&mut context);
    // And an inner queue that is called by it.
    let broken = adapter(PanickingQueue(bombs), Options::new());
    broken.add_after("c", Duration::from_micros(1));

    let later = DelayingQueue::new();
    later.add_after("d", Duration::from_millis(11));
    assert_eq!(*later.get().wait_timeout(FOREVER).expect("the timer thread lives").key(), "d");
    assert_eq!(*queue.get().wait_timeout(FOREVER).unwrap().key(), "b");
    held.done();
}

#[test]
fn a_clone_that_panics_in_a_batch_loses_no_hold() {
    let queue = Queue::new();
    let bad = key_named("b");
    let on_clone = Arc::clone(&bad.on_clone);
    queue.add(key_named("a"));
    queue.add(bad);
    on_clone.store(true, SeqCst);
    assert_eq!(queue.get_many(2).wait().len(), 1, "the first, and the second stays");
    assert!(panics(|| queue.get_many(2).wait().len()), "the next caller gets the panic");
    on_clone.store(false, SeqCst);
    assert_eq!(names(&queue), ["b"]);
    assert!(!queue.status(&key_named("a")).held);
}

#[test]
fn a_clone_that_panics_in_next_leaves_the_key_to_another() {
    let queue = Queue::new();
    let key = key_named("a");
    let on_clone = Arc::clone(&key.on_clone);
    queue.add(key);
    let held = queue.try_get().unwrap();
    queue.add(key_named("a"));
    let woken = Arc::new(Woken::default());
    let mut other = pin!(queue.get());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    on_clone.store(true, SeqCst);
    assert!(panics(|| held.next().wait().map(|held| held.key().name)));
    on_clone.store(false, SeqCst);
    assert!(woken.0.load(SeqCst), "the key that came back wakes another waiter");
    assert!(other.poll(&mut Context::from_waker(&waker)).is_ready());
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_clone_that_panics_as_a_drain_ends_loses_nothing() {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(SECOND, SECOND);
    let queue = requeue::RateLimitingQueue::with(backoff, Options::new().clock(&clock));
    let key = key_named("a");
    let on_clone = Arc::clone(&key.on_clone);
    queue.add(key);
    queue.add(key_named("b"));
    let held = queue.try_get().unwrap();
    on_clone.store(true, SeqCst);
    assert!(panics(|| drop(queue.drain(Duration::ZERO).wait())), "a held key is cloned");
    on_clone.store(false, SeqCst);
    assert_eq!(queue.len(), 1, "the ready one is still there");
    held.done();
    let left = queue.drain(Duration::ZERO).wait();
    assert_eq!(left.ready.iter().map(|key| key.name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_clone_that_panics_as_failed_keys_are_returned_leaves_them_waiting() {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(SECOND, SECOND);
    let queue = requeue::RateLimitingQueue::with(backoff, Options::new().clock(&clock));
    let key = key_named("a");
    let on_clone = Arc::clone(&key.on_clone);
    queue.add_rate_limited(key_named("b"));
    queue.add_rate_limited(key);
    on_clone.store(true, SeqCst);
    assert!(panics(|| drop(queue.drain(Duration::ZERO).wait())));
    on_clone.store(false, SeqCst);
    assert_eq!(queue.waiting(), 2);
    assert!(queue.cancel(&key_named("a")).waiting && queue.cancel(&key_named("b")).waiting);
    assert_eq!(queue.waiting(), 0);
}

/// A last in, first out order that panics while the flag is set.
struct TouchyOrder(Vec<requeue::Slot>, Arc<AtomicBool>);

impl<K> requeue::Order<K> for TouchyOrder {
    fn push(&mut self, _: &K, slot: requeue::Slot) {
        assert!(!self.1.load(SeqCst), "push");
        self.0.push(slot);
    }
    fn pop(&mut self) -> Option<requeue::Slot> {
        self.0.pop()
    }
    fn remove(&mut self, _: &K, slot: requeue::Slot) {
        assert!(!self.1.load(SeqCst), "remove");
        self.0.retain(|&other| other != slot);
    }
}

#[test]
fn an_order_that_panics_loses_at_most_one_key_and_no_drain() {
    let fail = Arc::new(AtomicBool::new(false));
    let queue = Queue::with_order(TouchyOrder(Vec::new(), Arc::clone(&fail)), Options::new());
    // In a cancel: the key is removed and can be added again.
    queue.add("a");
    fail.store(true, SeqCst);
    assert!(panics(|| queue.cancel("a")));
    fail.store(false, SeqCst);
    assert_eq!(queue.len(), 0);
    assert_eq!(queue.add("a"), Added::Queued);
    // In the done of a key that was to run again: the drain still ends.
    let held = queue.try_get().unwrap();
    queue.add("a");
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain().wait());
        while !queue.shutting_down() {
            std::thread::yield_now();
        }
        fail.store(true, SeqCst);
        held.done();
        drain.join().unwrap();
    });
    assert_eq!((queue.len(), queue.snapshot().held.len()), (0, 0));
}
