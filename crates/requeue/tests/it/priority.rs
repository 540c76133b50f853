//! The behaviour of the priority queue that no trace covers: shutdown, drain, ageing, and
//! panics in foreign code.

use requeue::limiter::{Bucket, ExponentialFailure, RateLimiter};
use requeue::{AddOptions, Added, ManualClock, Metrics, Moment, Options, PriorityQueue, Remains};
use requeue::{TryGetError, WorkQueue};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

fn queue() -> (PriorityQueue<&'static str>, ManualClock) {
    with(|options| options)
}

fn with(set: impl FnOnce(Options) -> Options) -> (PriorityQueue<&'static str>, ManualClock) {
    let clock = ManualClock::new();
    let limiter = ExponentialFailure::new(SECOND, 100 * SECOND);
    (PriorityQueue::with(limiter, set(Options::new().clock(&clock))), clock)
}

fn priority(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn panics<T>(f: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Counts how often it was woken.
#[derive(Default)]
struct WakeCount(AtomicU32);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn what_is_ready_is_handed_out_after_a_shutdown_and_what_waits_is_not() {
    let (queue, clock) = queue();
    queue.add("low");
    queue.add_with("high", priority(9));
    queue.add_after("late", SECOND);
    queue.shut_down();
    queue.shut_down();
    assert_eq!(queue.add("new"), Added::Refused);
    clock.advance(SECOND);
    assert_eq!(*queue.try_get().unwrap().key(), "high");
    assert_eq!(*queue.try_get().unwrap().key(), "low");
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
}

#[test]
fn a_shutdown_with_drain_waits_until_no_key_is_held() {
    let (queue, _clock) = queue();
    queue.add_many(["a", "b"], AddOptions::new());
    let held = queue.try_get().unwrap();
    let (mut first, mut second) =
        (pin!(queue.shut_down_with_drain()), pin!(queue.shut_down_with_drain()));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    held.done();
    assert!(poll(first).is_ready() && poll(second).is_ready());
}

#[test]
fn a_drain_processes_ready_keys_and_returns_the_others() {
    let (queue, clock) = queue();
    queue.add_many(["a", "b", "c"], AddOptions::new());
    queue.add_after("late", 5 * SECOND);
    queue.add_after("c", SECOND); // already ready: no effect
    let mut drain = pin!(queue.drain(LIMIT));
    assert_eq!(queue.add("new"), Added::Refused);
    clock.advance(SECOND);
    assert_eq!(queue.try_get().unwrap().retry().added, Added::Kept);
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Kept);
    assert!(poll(drain.as_mut()).is_pending());
    queue.try_get().unwrap().done();
    let Poll::Ready(remains) = poll(drain) else { panic!("nothing is ready or held") };
    assert_eq!(remains.ready, ["b"]);
    assert_eq!(remains.waiting, [("a", SECOND), ("late", 4 * SECOND)]);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
}

#[test]
fn a_drain_at_its_limit_returns_held_keys_and_those_that_run_again() {
    let (queue, clock) = queue();
    queue.add_many(["a", "b"], AddOptions::new());
    let held = queue.try_get().unwrap();
    queue.add("a");
    let mut drain = pin!(queue.drain(LIMIT));
    assert!(poll(drain.as_mut()).is_pending());
    clock.advance(LIMIT);
    let Poll::Ready(Remains { mut ready, held: left, .. }) = poll(drain) else {
        panic!("too late")
    };
    ready.sort_unstable();
    assert_eq!((ready, left), (vec!["a", "b"], vec!["a"]));
    held.done();
    assert_eq!((queue.len(), queue.status("a").held), (0, false));
}

#[test]
fn each_key_that_falls_due_wakes_a_getter() {
    let (queue, clock) = queue();
    let woken = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut gets: Vec<_> = (0..3).map(|_| Box::pin(queue.get())).collect();
    for get in &mut gets {
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    queue.add_many(["a", "b"], AddOptions::new().after(SECOND));
    clock.advance(SECOND);
    assert_eq!(woken.0.load(SeqCst), 2);
    queue.add("c");
    assert_eq!(woken.0.load(SeqCst), 3);
    let got = gets.iter_mut().map(|get| poll(get.as_mut()));
    assert!(got.into_iter().all(|got| matches!(got, Poll::Ready(Some(_)))));
}

#[test]
fn the_limiter_is_not_called_for_a_refused_key() {
    let (queue, _clock) = queue();
    queue.add("a");
    let held = queue.try_get().unwrap();
    queue.shut_down();
    assert_eq!(queue.add_rate_limited("b").added, Added::Refused);
    assert_eq!(held.retry().added, Added::Refused);
    assert_eq!((queue.num_requeues("a"), queue.num_requeues("b")), (0, 0));
}

#[test]
fn depth_is_reported_by_priority() {
    let metrics = Metrics::new();
    let (queue, _clock) = with(|options| options.metrics(&metrics, "pods").expect("a free name"));
    queue.add_many(["a", "b"], priority(-100));
    queue.add("c");
    queue.add_after("d", SECOND);
    let report = queue.metrics().unwrap();
    assert_eq!(report.depth_by_priority, [(-100, 2), (0, 1)]);
    assert_eq!((report.depth, report.waiting, report.adds, report.retries), (3, 1, 3, 1));
    assert_eq!(metrics.gather()[0], report);
}

#[test]
fn what_is_dropped_is_counted_and_how_late_keys_are() {
    let metrics = Metrics::new();
    let (queue, clock) = with(|options| options.metrics(&metrics, "pods").expect("a free name"));
    queue.add_after("a", SECOND);
    clock.advance(2 * SECOND);
    let held = queue.try_get().unwrap();
    queue.add_after("b", SECOND);
    queue.shut_down(); // drops "b"
    queue.add("c");
    held.retry();
    let report = queue.metrics().unwrap();
    assert_eq!((report.lateness.count(), report.lateness.sum()), (1, Duration::ZERO));
    assert_eq!(report.dropped, 3);
}

#[test]
fn keys_may_come_from_an_iterator_that_uses_the_queue() {
    let (queue, _clock) = queue();
    let seen = queue.clone();
    let keys = ["a", "b"].into_iter().inspect(|_| assert!(seen.is_empty()));
    assert_eq!(queue.add_many(keys, AddOptions::new()).len(), 2);
    assert_eq!(queue.len(), 2);
}

#[test]
fn nothing_starves_with_ageing() {
    // One key of priority 10 becomes ready each second, and one key is taken each second.
    let (queue, clock) = with(|options| options.ageing(SECOND));
    let live: Vec<&'static str> = (0..30).map(|n| &*format!("live-{n}").leak()).collect();
    queue.add("resync");
    queue.add_with("live", priority(10));
    let mut waited = Duration::ZERO;
    for key in live {
        let held = queue.try_get().unwrap();
        if *held.key() == "resync" {
            break;
        }
        held.done();
        clock.advance(SECOND);
        waited += SECOND;
        queue.add_with(key, priority(10));
    }
    // It is overtaken only by keys that became ready less than 10 × 1 s after it: the tenth has
    // the same rank and came later.
    assert_eq!(waited, 10 * SECOND);
}

#[test]
fn without_ageing_it_starves() {
    let (queue, clock) = queue();
    queue.add("resync");
    for _ in 0..100 {
        queue.add_with("live", priority(10));
        assert_eq!(*queue.try_get().unwrap().key(), "live");
        clock.advance(SECOND);
    }
}

/// A limiter that panics while the flag is set.
struct PanickingLimiter(Arc<AtomicBool>);

impl<K> RateLimiter<K> for PanickingLimiter {
    fn when(&mut self, _: &K, _: u32, _: Moment) -> Duration {
        assert!(!self.0.load(SeqCst), "the limiter panics");
        SECOND
    }
}

#[test]
fn a_limiter_that_panics_adds_nothing_and_ends_the_hold() {
    let bad = Arc::new(AtomicBool::new(true));
    let clock = ManualClock::new();
    let queue =
        PriorityQueue::with(PanickingLimiter(Arc::clone(&bad)), Options::new().clock(&clock));
    assert!(panics(|| queue.add_rate_limited("a")));
    assert_eq!((queue.status("a").failures, queue.waiting()), (0, 0));
    queue.add("a");
    let held = queue.try_get().unwrap();
    queue.add("a");
    assert!(panics(|| held.retry()));
    assert_eq!((queue.status("a").held, queue.len()), (false, 1));
    bad.store(false, SeqCst);
    assert_eq!(queue.try_get().unwrap().retry().added, Added::Waiting);
}

#[test]
fn a_batch_that_panics_half_way_wakes_getters_for_the_keys_added_so_far() {
    let bad = Arc::new(AtomicBool::new(false));
    /// Panics when it is compared.
    #[derive(Clone, Debug)]
    struct Bad(u8, Arc<AtomicBool>);
    impl PartialEq for Bad {
        fn eq(&self, other: &Self) -> bool {
            assert!(!self.1.load(SeqCst), "eq");
            self.0 == other.0
        }
    }
    impl Eq for Bad {}
    impl std::hash::Hash for Bad {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            0.hash(state); // all equal, so that keys are compared
        }
    }
    let queue = PriorityQueue::new(Bucket::unlimited());
    let woken = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut get = pin!(queue.get());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    bad.store(true, SeqCst);
    let keys = [1, 2].map(|n| Bad(n, Arc::clone(&bad)));
    assert!(panics(|| queue.add_many(keys, AddOptions::new())));
    assert_eq!((woken.0.load(SeqCst), queue.len()), (1, 1));
    assert!(poll(get).is_ready());
}

#[test]
fn a_forged_or_stale_token_ends_no_hold() {
    let (queue, _clock) = queue();
    queue.add("a");
    let held = queue.try_get().unwrap();
    for token in [0, 1, u64::MAX, 1 << 32 | 7, 2 << 32] {
        WorkQueue::done(&queue, token);
    }
    assert!(queue.status("a").held);
    held.done();
    assert!(!queue.status("a").held);
}

#[test]
fn delays_that_reach_past_the_end_of_the_clock_never_fall_due() {
    let (queue, clock) = queue();
    queue.add_after("a", Duration::MAX);
    clock.advance(Duration::MAX);
    assert_eq!((queue.len(), queue.waiting()), (0, 1));
    assert_eq!(queue.add("a"), Added::Queued);
}

#[test]
fn extreme_priorities_and_steps_are_kept_apart() {
    for step in [Duration::ZERO, Duration::from_nanos(1), SECOND, Duration::MAX] {
        let (queue, _clock) = with(|options| options.ageing(step));
        for n in [0, i32::MIN, i32::MAX, -1, 1] {
            queue.add_with(n.to_string().leak(), priority(n));
        }
        let got: Vec<i32> =
            std::iter::from_fn(|| queue.try_get().ok().map(|held| held.priority())).collect();
        match step {
            Duration::ZERO => assert_eq!(got, [0, i32::MIN, i32::MAX, -1, 1]),
            _ => assert_eq!(got, [i32::MAX, 1, 0, -1, i32::MIN]),
        }
    }
}
