//! The metrics of a named queue, in client-go's terms.
//!
//! client-go refreshes two of its gauges at ticks of 500 ms and stops at shutdown. requeue's
//! gauges are exact whenever they are read, so the replay reads them at those ticks.

use super::trace::Measured;
use requeue::{QueueMetrics, Snapshot};
use std::time::Duration;

/// How often client-go refreshes its gauges of unfinished work.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Converts like Go's `Duration.Seconds`: whole seconds and the rest, added as floats.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs() as f64 + f64::from(duration.subsec_nanos()) / 1e9
}

#[derive(Default)]
pub(crate) struct Sampler {
    unfinished: f64,
    longest: f64,
    last: QueueMetrics,
    last_measured: Measured,
}

impl Sampler {
    /// Simulates a refresh of client-go's gauges.
    pub(crate) fn tick(&mut self, metrics: &QueueMetrics, snapshot: &Snapshot<String>) {
        let ages = snapshot.held.iter().filter_map(|held| held.held_for);
        let ages: Vec<Duration> = ages.collect();
        assert_eq!(metrics.unfinished_work, ages.iter().sum());
        assert_eq!(metrics.longest_running, ages.iter().copied().max().unwrap_or_default());
        self.unfinished = ages.iter().copied().map(seconds).sum::<f64>();
        self.longest = seconds(metrics.longest_running);
    }

    /// Returns what client-go's provider saw in this step, or `None` if nothing changed.
    pub(crate) fn measure(&mut self, metrics: QueueMetrics) -> Option<Measured> {
        let observed = |now: &requeue::Histogram, before: &requeue::Histogram| {
            assert!(now.count() - before.count() <= 1, "a step observes one at the most");
            let new = now.count() > before.count();
            new.then(|| seconds(now.sum() - before.sum())).into_iter().collect()
        };
        let mut measured = Measured {
            depth: metrics.depth as i64,
            adds: metrics.adds,
            retries: metrics.retries,
            // -0.0 is the sum of nothing.
            unfinished: self.unfinished + 0.0,
            longest: self.longest,
            ..Measured::default()
        };
        let changed = measured != self.last_measured;
        self.last_measured = measured.clone();
        measured.latency = observed(&metrics.queue_duration, &self.last.queue_duration);
        measured.work = observed(&metrics.work_duration, &self.last.work_duration);
        self.last = metrics;
        let observed = !measured.latency.is_empty() || !measured.work.is_empty();
        (changed || observed).then_some(measured)
    }
}
