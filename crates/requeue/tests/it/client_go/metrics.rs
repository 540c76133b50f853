//! What `metrics_test.go` checks.

use requeue::{ManualClock, Metrics, NameError, Options, Queue};
use std::time::Duration;

/// client-go: TestMetrics.
#[test]
fn an_add_that_changes_nothing_counts_neither_as_add_nor_as_depth() {
    let (_clock, metrics, queue) = reporting().unwrap();
    let adds_and_depth = || metrics.gather().iter().map(|r| (r.adds, r.depth)).next();
    queue.add("foo");
    assert_eq!(adds_and_depth(), Some((1, 1)));
    let held = queue.try_get().unwrap();
    assert_eq!(adds_and_depth(), Some((1, 0)));
    for _ in 0..5 {
        queue.add("foo");
    }
    assert_eq!(adds_and_depth(), Some((2, 1)), "held, and to run once more");
    held.done();
    assert_eq!(adds_and_depth(), Some((2, 1)), "ready");
    queue.try_get().unwrap().done();
    assert_eq!(adds_and_depth(), Some((2, 0)));
}

/// client-go: TestMetrics.
#[test]
fn each_run_of_a_key_is_observed_once_as_it_is_taken_and_once_as_it_is_done() {
    let (clock, metrics, queue) = reporting().unwrap();
    let observed = || {
        let report = metrics.gather().remove(0);
        [report.queue_duration, report.work_duration].map(|h| (h.count(), h.sum()))
    };
    queue.add("foo");
    clock.advance(micros(50));
    let held = queue.try_get().unwrap();
    assert_eq!(observed(), [(1, micros(50)), (0, micros(0))]);
    queue.add("foo");
    clock.advance(micros(25));
    held.done();
    assert_eq!(observed(), [(1, micros(50)), (1, micros(25))]);
    // In the queue since it was added, not since it was done.
    let again = queue.try_get().unwrap();
    assert_eq!(observed(), [(2, micros(50 + 25)), (1, micros(25))]);
    clock.advance(micros(1000));
    again.done();
    assert_eq!(observed(), [(2, micros(50 + 25)), (2, micros(25 + 1000))]);
}

/// client-go: TestMetrics.
#[test]
fn a_held_key_is_unfinished_work_from_the_moment_it_was_taken() {
    let (clock, metrics, queue) = reporting().unwrap();
    let unfinished = || {
        let report = metrics.gather().remove(0);
        (report.unfinished_work, report.longest_running)
    };
    queue.add("foo");
    clock.advance(micros(50));
    assert_eq!(unfinished(), (micros(0), micros(0)));
    let held = queue.try_get().unwrap();
    clock.advance(micros(1000));
    assert_eq!(unfinished(), (micros(1000), micros(1000)));
    held.done();
    assert_eq!(unfinished(), (micros(0), micros(0)));
}

/// client-go: TestMetricShutdown.
#[test]
fn a_queue_with_metrics_has_no_timer_and_still_reports_after_a_shutdown() {
    let (clock, metrics, queue) = reporting().unwrap();
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

fn reporting() -> Result<(ManualClock, Metrics, Queue<&'static str>), NameError> {
    let (clock, metrics) = (ManualClock::new(), Metrics::new());
    let queue = Queue::with(Options::new().clock(&clock).metrics(&metrics, "test")?);
    Ok((clock, metrics, queue))
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
