//! Compares failure counts and backoff with a simple model, and checks the results of the
//! guard.

use proptest::prelude::*;
use requeue::limiter::{Bucket, ExponentialFailure, FastSlow};
use requeue::{
    Added, Limited, ManualClock, Metrics, Options, Queue, QueueAdapter, RateLimitingQueue,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn backoff() -> ExponentialFailure {
    ExponentialFailure::new(SECOND, 8 * SECOND)
}

fn queue(options: Options) -> (RateLimitingQueue<&'static str>, ManualClock) {
    let clock = ManualClock::new();
    (RateLimitingQueue::with(backoff(), options.clock(&clock)), clock)
}

/// Failure counts by linear search, oldest failure first.
struct FailureModel {
    now: Duration,
    failures: Vec<(u8, u32, Duration)>,
    waiting: Vec<(u8, Duration)>,
    ready: Vec<u8>,
    idle: Option<Duration>,
    keys: Option<usize>,
    down: bool,
}

impl FailureModel {
    fn forget_stale(&mut self) {
        let (now, idle) = (self.now, self.idle.unwrap_or(Duration::MAX));
        self.failures.retain(|&(_, _, at)| now - at < idle);
        let over = self.failures.len().saturating_sub(self.keys.unwrap_or(usize::MAX));
        self.failures.drain(..over);
    }

    fn num_requeues(&mut self, key: u8) -> u32 {
        self.forget_stale();
        self.failures.iter().find(|&&(failed, ..)| failed == key).map_or(0, |&(_, n, _)| n)
    }

    fn forget(&mut self, key: u8) {
        self.failures.retain(|&(failed, ..)| failed != key);
    }

    fn add_rate_limited(&mut self, key: u8) -> Duration {
        let failures = self.num_requeues(key);
        let delay = (SECOND * 2u32.pow(failures.min(10))).min(8 * SECOND);
        self.forget(key);
        self.failures.push((key, failures + 1, self.now));
        if !self.down {
            let due = self.now + delay;
            match self.waiting.iter_mut().find(|(waiting, _)| *waiting == key) {
                Some((_, old)) => *old = due.min(*old),
                None => self.waiting.push((key, due)),
            }
        }
        delay
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        let now = self.now;
        let due: Vec<u8> =
            self.waiting.iter().filter(|&&(_, due)| due <= now).map(|&(key, _)| key).collect();
        self.waiting.retain(|&(_, due)| due > now);
        self.ready
            .extend(due.into_iter().filter(|key| !self.ready.contains(key)).collect::<Vec<_>>());
    }
}

#[derive(Debug, Clone)]
enum Op {
    Fail(u8),
    Forget(u8),
    Cancel(u8),
    Advance(u64),
    Work,
    Retry,
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..8u8;
    prop_oneof![
        30 => key.clone().prop_map(Op::Fail),
        5 => key.clone().prop_map(Op::Forget),
        5 => key.prop_map(Op::Cancel),
        20 => (0..5000u64).prop_map(Op::Advance),
        10 => Just(Op::Work),
        10 => Just(Op::Retry),
        1 => Just(Op::ShutDown),
    ]
}

proptest! {
    #[test]
    fn failures_are_counted_and_forgotten_as_in_a_list(
        ops in prop::collection::vec(op(), 1..300),
        idle in prop::option::of(1..20_000u64),
        keys in prop::option::of(0..6usize),
    ) {
        let clock = ManualClock::new();
        let mut options = Options::new().clock(&clock);
        let idle = idle.map(Duration::from_millis);
        if let Some(idle) = idle {
            options = options.forget_failures_after(idle);
        }
        if let Some(keys) = keys {
            options = options.max_failing_keys(keys);
        }
        let queue = RateLimitingQueue::with(backoff(), options);
        let mut model = FailureModel {
            now: Duration::ZERO, failures: vec![], waiting: vec![], ready: vec![], idle, keys, down: false,
        };
        for op in ops {
            match op {
                Op::Fail(key) => {
                    prop_assert_eq!(queue.add_rate_limited(key).delay, model.add_rate_limited(key));
                }
                Op::Forget(key) => {
                    queue.forget(&key);
                    model.forget(key);
                }
                Op::Cancel(key) => {
                    queue.cancel(&key);
                    model.waiting.retain(|&(waiting, _)| waiting != key);
                    model.ready.retain(|&ready| ready != key);
                }
                Op::Advance(by) => {
                    clock.advance(Duration::from_millis(by));
                    model.advance(Duration::from_millis(by));
                }
                Op::Work => {
                    if let Ok(held) = queue.try_get() {
                        model.ready.retain(|ready| ready != held.key());
                    }
                }
                Op::Retry => {
                    if let Ok(held) = queue.try_get() {
                        let key = *held.key();
                        model.ready.retain(|&ready| ready != key);
                        prop_assert_eq!(held.num_requeues(), model.num_requeues(key));
                        prop_assert_eq!(held.retry().delay, model.add_rate_limited(key));
                    }
                }
                Op::ShutDown => {
                    queue.shut_down();
                    model.waiting.clear();
                    model.down = true;
                }
            }
            let mut ready: Vec<u8> = queue.snapshot().ready.iter().map(|ready| ready.key).collect();
            ready.sort_unstable();
            model.ready.sort_unstable();
            prop_assert_eq!(ready, model.ready.clone());
            prop_assert_eq!(queue.waiting(), model.waiting.len());
            for key in 0..8 {
                prop_assert_eq!(queue.num_requeues(&key), model.num_requeues(key));
                let due = model.waiting.iter().find(|&&(waiting, _)| waiting == key);
                prop_assert_eq!(queue.status(&key).due_in, due.map(|&(_, due)| due - model.now));
            }
        }
    }
}

#[test]
fn requeue_after_does_not_count_as_a_failure() {
    let (queue, clock) = queue(Options::new());
    queue.add("a");
    assert_eq!(queue.try_get().unwrap().requeue_after(SECOND), Added::Waiting);
    clock.advance(SECOND);
    let held = queue.try_get().unwrap();
    assert_eq!(held.num_requeues(), 0);
    held.forget();
    assert_eq!(*held.key(), "a", "still held");
}

#[test]
fn a_key_that_is_held_and_failed_is_kept_by_a_drain() {
    let (queue, _clock) = queue(Options::new());
    queue.add("a");
    let drain = queue.drain(10 * SECOND);
    let refused = queue.add_rate_limited("b");
    assert_eq!((refused.delay, refused.added), (SECOND, Added::Refused));
    let kept = queue.try_get().unwrap().retry();
    assert_eq!((kept.delay, kept.added), (SECOND, Added::Kept));
    assert_eq!(drain.wait().waiting, [("a", SECOND)]);
    assert_eq!(queue.num_requeues("a"), 1);
}

#[test]
fn a_limiter_that_returns_zero_makes_the_key_ready_immediately() {
    for limiter in
        [FastSlow::new(Duration::ZERO, SECOND, 2), FastSlow::new(Duration::ZERO, SECOND, 1)]
    {
        let queue = RateLimitingQueue::new(limiter);
        let Limited { delay, added, .. } = queue.add_rate_limited("a");
        assert_eq!((delay, added), (Duration::ZERO, Added::Queued));
        assert_eq!(queue.num_requeues("a"), 1);
        assert_eq!(queue.len(), 1);
    }
}

#[test]
fn backoff_works_with_an_adapter() {
    let clock = ManualClock::new();
    let inner = Queue::with(Options::new().clock(&clock));
    let queue = QueueAdapter::new(inner.clone(), backoff(), Options::new().clock(&clock));
    queue.add("a");
    assert_eq!(queue.try_get().unwrap().retry().delay, SECOND);
    assert_eq!(inner.len(), 0);
    clock.advance(SECOND);
    assert_eq!(inner.len(), 1);
    assert_eq!(queue.try_get().unwrap().retry().delay, 2 * SECOND);
}

#[test]
fn metrics_are_of_all_layers_under_one_name_until_the_queue_is_gone() {
    let (metrics, clock) = (Metrics::new(), ManualClock::new());
    let options = Options::new().clock(&clock).metrics(&metrics, "orders").unwrap();
    let queue = RateLimitingQueue::with(backoff(), options);
    queue.add("a");
    queue.add("a");
    clock.advance(SECOND);
    let held = queue.try_get().unwrap();
    clock.advance(2 * SECOND);
    queue.add("b");
    queue.add("a");
    clock.advance(SECOND);
    queue.add_after("c", SECOND);
    queue.add_after("d", Duration::ZERO);
    let report = &metrics.gather()[0];
    assert_eq!(report.name, "orders");
    // Ready: b and d; to run again: a.
    assert_eq!((report.depth, report.adds, report.coalesced, report.retries), (3, 4, 1, 2));
    assert_eq!((report.waiting, report.oldest_ready), (1, Some(SECOND)));
    assert_eq!((report.unfinished_work, report.longest_running), (3 * SECOND, 3 * SECOND));
    assert_eq!((report.queue_duration.count(), report.queue_duration.sum()), (1, SECOND));
    held.retry();
    let report = queue.metrics().unwrap();
    assert_eq!((report.work_duration.sum(), report.retries), (3 * SECOND, 3));
    assert_eq!(report.unfinished_work, Duration::ZERO);
    let taken = Options::new().metrics(&metrics, "orders").unwrap_err();
    assert!(taken.to_string().contains("\"orders\""));
    assert!(Options::new().metrics(&metrics, "").is_err());
    drop(queue);
    assert!(metrics.gather().is_empty());
    assert!(Options::new().metrics(&metrics, "orders").is_ok());
}

#[test]
fn a_queue_without_a_name_reports_nothing() {
    let queue = RateLimitingQueue::<&str>::new(backoff());
    assert_eq!(queue.metrics(), None);
}

/// Regression test: a zero delay took another code path than a longer one, and the drain lost
/// the key.
#[test]
fn a_retry_without_delay_is_kept_by_a_drain_too() {
    macro_rules! check {
        ($queue:expr) => {
            let queue = $queue;
            queue.add("a");
            let held = queue.try_get().unwrap();
            assert_eq!(held.retry().added, Added::Queued);
            let drain = queue.drain(SECOND);
            assert_eq!(queue.try_get().unwrap().retry().added, Added::Kept);
            assert_eq!(drain.wait().ready, ["a"]);
        };
    }
    let limiter = || Bucket::new(10.0, 100).unwrap();
    check!(RateLimitingQueue::new(limiter()));
    check!(QueueAdapter::new(Queue::new(), limiter(), Options::new()));
}

#[test]
fn an_inner_queue_shut_down_by_its_other_owner_refuses_and_counts_no_retry() {
    let (metrics, clock, inner) = (Metrics::new(), ManualClock::new(), Queue::new());
    let options = Options::new().clock(&clock).metrics(&metrics, "limited").unwrap();
    let queue = QueueAdapter::new(inner.clone(), backoff(), options);
    queue.add("held");
    let held = queue.try_get().unwrap();
    inner.shut_down();
    let limited = queue.add_rate_limited("a");
    assert_eq!((limited.delay, limited.added), (SECOND, Added::Refused));
    assert_eq!(queue.num_requeues("a"), 1, "the limiter was called");
    assert_eq!(queue.add_after("a", SECOND), Added::Refused);
    assert_eq!(queue.add_after("a", Duration::ZERO), Added::Refused);
    assert_eq!(held.retry().added, Added::Refused);
    assert_eq!((queue.waiting(), queue.metrics().unwrap().retries), (0, 0));
}

#[test]
fn status_knows_what_is_forgotten() {
    let (queue, clock) = queue(Options::new().forget_failures_after(SECOND).max_failing_keys(1));
    queue.add_rate_limited("a");
    queue.add_rate_limited("b");
    assert_eq!((queue.status("a").failures, queue.status("b").failures), (0, 1));
    clock.advance(SECOND);
    assert_eq!(queue.status("b").failures, 0);
}
