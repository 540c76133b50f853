//! What named queues report beyond client-go's seven.

use requeue::limiter::ExponentialFailure;
use requeue::{
    Added, DelayingQueue, ManualClock, Metrics, NameError, Options, Queue, QueueAdapter,
    RateLimitingQueue,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_refused_add_counts_as_dropped_whoever_makes_it() -> Result<(), NameError> {
    let queue = Queue::with(Options::new().metrics(&Metrics::new(), "test")?);
    let dropped = || queue.metrics().map(|report| report.dropped);
    queue.add("a");
    queue.add("b");
    let [a, b] = [queue.try_get().unwrap(), queue.try_get().unwrap()];
    queue.add("b");
    queue.shut_down();
    assert_eq!(dropped(), Some(0), "a shutdown loses nothing that is ready or held");
    queue.add("a");
    assert_eq!(dropped(), Some(1));
    a.requeue();
    assert_eq!(dropped(), Some(2));
    b.done();
    assert_eq!((queue.len(), dropped()), (1, Some(2)), "it was to run again");
    Ok(())
}

#[test]
fn keys_that_a_drain_returns_are_not_dropped() -> Result<(), NameError> {
    let (_clock, queue) = delaying()?;
    queue.add("held");
    let held = queue.try_get().unwrap();
    queue.add_after("waiting", SECOND);
    let drain = queue.drain(SECOND);
    assert_eq!(queue.add("a"), Added::Refused);
    assert_eq!(queue.add_after("b", SECOND), Added::Refused);
    assert_eq!(held.requeue_after(SECOND), Added::Kept);
    assert_eq!(drain.wait().waiting.len(), 2);
    let report = queue.metrics().unwrap();
    assert_eq!((report.dropped, report.waiting), (2, 0));
    Ok(())
}

#[test]
fn a_shutdown_drops_what_waits_once() -> Result<(), NameError> {
    let (_clock, queue) = delaying()?;
    for key in ["a", "b", "c"] {
        queue.add_after(key, SECOND);
    }
    queue.shut_down();
    queue.shut_down();
    assert_eq!(queue.metrics().unwrap().dropped, 3);
    Ok(())
}

#[test]
fn a_failed_key_that_waits_is_dropped_once_too() -> Result<(), NameError> {
    let options = Options::new().clock(ManualClock::new()).metrics(&Metrics::new(), "test")?;
    let queue = RateLimitingQueue::with(ExponentialFailure::default(), options);
    queue.add_rate_limited("waits");
    queue.add("held");
    let held = queue.try_get().unwrap();
    queue.shut_down();
    assert_eq!(queue.metrics().unwrap().dropped, 1);
    assert_eq!(held.retry().added, Added::Refused);
    assert_eq!(queue.metrics().unwrap().dropped, 2);
    Ok(())
}

#[test]
fn an_adapter_counts_what_it_refused_itself() -> Result<(), NameError> {
    let metrics = Metrics::new();
    let named = |name| Options::new().clock(ManualClock::new()).metrics(&metrics, name);
    let inner = Queue::with(named("inner")?);
    let queue = QueueAdapter::new(inner, ExponentialFailure::default(), named("outer")?);
    queue.inner().shut_down();
    queue.add("a");
    queue.add_after("b", SECOND);
    let dropped: Vec<_> = metrics.gather().into_iter().map(|r| (r.name, r.dropped)).collect();
    assert_eq!(dropped, [("inner".to_owned(), 1), ("outer".to_owned(), 1)]);
    Ok(())
}

#[test]
fn every_key_that_falls_due_is_observed_once() -> Result<(), NameError> {
    let (clock, queue) = delaying()?;
    queue.add("now");
    queue.add_after("now", Duration::ZERO);
    queue.add_after("a", SECOND);
    queue.add_after("b", SECOND);
    queue.cancel("b");
    queue.add_after("later", 2 * SECOND);
    clock.advance(SECOND);
    let lateness = queue.metrics().unwrap().lateness;
    assert_eq!((lateness.count(), lateness.sum()), (1, Duration::ZERO), "a manual clock is exact");
    Ok(())
}

fn delaying() -> Result<(ManualClock, DelayingQueue<&'static str>), NameError> {
    let clock = ManualClock::new();
    let options = Options::new().clock(&clock).metrics(&Metrics::new(), "test")?;
    Ok((clock, DelayingQueue::with(options)))
}
