//! The exported text for queues with a known history.

use prometheus::{Registry, TextEncoder};
use requeue::limiter::ExponentialFailure;
use requeue::prometheus::Exporter;
use requeue::{ManualClock, Metrics, NameError, Options, Queue, RateLimitingQueue};
use std::time::Duration;

#[test]
fn every_change_of_a_key_is_in_the_text() -> Result<(), NameError> {
    let (clock, metrics) = (ManualClock::new(), Metrics::new());
    let backoff = ExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60));
    let options = Options::new().clock(&clock).metrics(&metrics, "orders")?;
    let queue = RateLimitingQueue::with(backoff, options);

    queue.add("a");
    queue.add("a");
    clock.advance(Duration::from_millis(10));
    let held = queue.try_get().unwrap();
    clock.advance(Duration::from_millis(20));
    held.retry(); // back after one second
    clock.advance(Duration::from_secs(1));
    let held = queue.try_get().unwrap();
    queue.add("b");
    queue.add_after("c", Duration::from_secs(1000));
    clock.advance(Duration::from_millis(2500));

    let text = Exporter::new(&metrics).text();
    let labels = r#"controller="orders",name="orders""#;
    for (name, more, value) in [
        ("workqueue_depth", r#",priority="""#, "1"),
        ("workqueue_adds_total", "", "3"),
        ("workqueue_queue_duration_seconds_bucket", r#",le="1e-08""#, "1"),
        ("workqueue_queue_duration_seconds_bucket", r#",le="9.999999999999999e-06""#, "1"),
        ("workqueue_queue_duration_seconds_bucket", r#",le="0.01""#, "2"),
        ("workqueue_queue_duration_seconds_bucket", r#",le="+Inf""#, "2"),
        ("workqueue_queue_duration_seconds_sum", "", "0.01"),
        ("workqueue_queue_duration_seconds_count", "", "2"),
        ("workqueue_work_duration_seconds_bucket", r#",le="0.01""#, "0"),
        ("workqueue_work_duration_seconds_bucket", r#",le="0.1""#, "1"),
        ("workqueue_work_duration_seconds_sum", "", "0.02"),
        ("workqueue_work_duration_seconds_count", "", "1"),
        ("workqueue_unfinished_work_seconds", "", "2.5"),
        ("workqueue_longest_running_processor_seconds", "", "2.5"),
        ("workqueue_retries_total", "", "2"),
        ("requeue_waiting_keys", "", "1"),
        ("requeue_oldest_ready_seconds", "", "2.5"),
        ("requeue_coalesced_adds_total", "", "1"),
        ("requeue_dropped_total", "", "0"),
        ("requeue_lateness_seconds_bucket", r#",le="1e-08""#, "1"),
        ("requeue_lateness_seconds_count", "", "1"),
    ] {
        let line = format!("{name}{{{labels}{more}}} {value}");
        assert!(text.lines().any(|exposed| exposed == line), "{line} in:\n{text}");
    }

    held.done();
    queue.shut_down();
    let text = Exporter::new(&metrics).text();
    assert!(text.contains(&format!("requeue_dropped_total{{{labels}}} 1\n")), "what waited");
    Ok(())
}

#[test]
fn an_empty_registry_exports_nothing() {
    assert_eq!(Exporter::new(&Metrics::new()).text(), "");
}

#[test]
fn an_exporter_sees_queues_that_come_and_go() -> Result<(), NameError> {
    let metrics = Metrics::new();
    let exporter = Exporter::new(&metrics);
    let queue = Queue::<u32>::with(Options::new().metrics(&metrics, "orders")?);
    assert!(exporter.text().contains(r#"name="orders""#));
    drop(queue);
    assert_eq!(exporter.text(), "");
    Ok(())
}

#[test]
fn a_name_is_written_so_that_it_can_be_read_back() -> Result<(), NameError> {
    let metrics = Metrics::new();
    let name = "le=\"0.000001\"\n\\";
    let _queue = Queue::<u32>::with(Options::new().metrics(&metrics, name)?);
    let text = Exporter::new(&metrics).text();
    let written =
        r#"workqueue_adds_total{controller="le=\"0.000001\"\n\\",name="le=\"0.000001\"\n\\"} 0"#;
    assert!(text.lines().any(|line| line == written), "{text}");
    Ok(())
}

#[test]
fn a_custom_registry_exports_the_same_except_for_the_spelling_of_small_bounds()
-> Result<(), Box<dyn std::error::Error>> {
    let (clock, metrics) = (ManualClock::new(), Metrics::new());
    let options = |name| Options::new().clock(&clock).metrics(&metrics, name);
    let [_first, _second] = [Queue::<u32>::with(options("b")?), Queue::with(options("a")?)];
    let registry = Registry::new();
    registry.register(Box::new(Exporter::new(&metrics)))?;
    let theirs = TextEncoder::new().encode_to_string(&registry.gather())?;
    let ours = Exporter::new(&metrics).text();
    assert_eq!(theirs.lines().count(), ours.lines().count());
    for (theirs, ours) in theirs.lines().zip(ours.lines()) {
        let (Some((theirs, their_rest)), Some((ours, our_rest))) =
            (theirs.split_once("le=\""), ours.split_once("le=\""))
        else {
            assert_eq!(theirs, ours);
            continue;
        };
        let bound = |rest: &str| rest.split('"').next().map(|bound| bound.parse::<f64>());
        assert_eq!((theirs, bound(their_rest)), (ours, bound(our_rest)));
    }
    Ok(())
}
