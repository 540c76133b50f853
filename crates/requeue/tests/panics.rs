//! Panics in other people's code: handlers, keys, orders, wakers, inner queues.
//! Neither the queue nor other queues' timers come to harm.

#![cfg(not(requeue_loom))]

use requeue::{Added, DelayingQueue, ManualClock, Options, Queue, Remains, StopMode, Taken};
use requeue::{TryGetError, Waiter, WorkQueue};
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

/// A key that panics where it is told to.
#[derive(Default)]
struct Touchy {
    name: &'static str,
    on_hash: Arc<AtomicBool>,
    on_eq: Arc<AtomicBool>,
    on_clone: Arc<AtomicBool>,
}

fn touchy(name: &'static str) -> Touchy {
    Touchy { name, ..Touchy::default() }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!self.on_hash.load(SeqCst), "hash of {}", self.name);
        // All alike, so that they are compared.
        0.hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.on_eq.load(SeqCst) && !other.on_eq.load(SeqCst), "eq of {}", self.name);
        self.name == other.name
    }
}

impl Eq for Touchy {}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        assert!(!self.on_clone.load(SeqCst), "clone of {}", self.name);
        Touchy {
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

fn names(queue: &Queue<Touchy>) -> Vec<&'static str> {
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
    queue.add(touchy("a"));
    let bad = touchy("b");
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
        let key = touchy("a");
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

impl Free for Queue<Touchy> {
    /// Without cloning a key.
    fn snapshot_is_free_of_holds(&self) -> bool {
        !self.status(&touchy("a")).held
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("the waker fails");
    }
}

#[test]
fn a_waker_that_panics_passes_its_turn_on() {
    let queue = Queue::new();
    let bad = Waker::from(Arc::new(PanickingWaker));
    let mut first = pin!(queue.get());
    assert!(first.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| queue.get().wait_timeout(FOREVER).map(|held| *held.key()));
        // Until the second waits too, the wake-up has nowhere to go; then it gets there.
        assert_eq!(queue.add("a"), Added::Queued);
        assert_eq!(second.join().unwrap().unwrap(), "a");
    });
}

#[test]
fn a_key_that_panics_as_it_falls_due_is_alone_in_that() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock));
    let other = DelayingQueue::with(Options::new().clock(&clock));
    let key = touchy("a");
    let on_eq = Arc::clone(&key.on_eq);
    queue.add(touchy("ready"));
    queue.add_after(key, SECOND);
    queue.add_after(touchy("b"), SECOND);
    other.add_after("other", SECOND);
    on_eq.store(true, SeqCst);
    clock.advance(SECOND);
    on_eq.store(false, SeqCst);
    assert_eq!((queue.len(), queue.waiting(), other.len()), (2, 0, 1));
}

/// An inner queue that cannot take what it is given.
struct Broken;

impl WorkQueue for Broken {
    type Key = &'static str;
    fn add(&self, key: &'static str) -> Added {
        panic!("cannot take {key}");
    }
    fn poll_take(&self, _: &mut Waiter, _: Option<&Waker>) -> Poll<Option<Taken<&'static str>>> {
        Poll::Pending
    }
    fn leave(&self, _: &mut Waiter) {}
    fn done(&self, _: u64) {}
    fn len(&self) -> usize {
        0
    }
    fn shut_down(&self, _: StopMode) {}
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
    let broken = DelayingQueue::over(Arc::new(Broken), Options::new().clock(&clock));
    let other = DelayingQueue::with(Options::new().clock(&clock));
    broken.add_after("a", SECOND);
    broken.add_after("b", SECOND);
    other.add_after("other", SECOND);
    // The caller of `advance` is told, once everything due has been seen to.
    assert!(panics(|| clock.advance(SECOND)));
    assert_eq!((broken.waiting(), other.len()), (0, 1));
    assert_eq!(broken.drain(SECOND).wait(), Remains::default());
}

#[test]
fn nor_on_the_timer_thread() {
    let broken = DelayingQueue::over(Arc::new(Broken), Options::new());
    let panicking = DelayingQueue::<&str>::new();
    let other = DelayingQueue::new();
    let bad = Waker::from(Arc::new(PanickingWaker));
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
fn nothing_that_can_be_asked_for_panics() {
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
