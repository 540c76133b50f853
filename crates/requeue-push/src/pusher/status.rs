//! What a pusher shows to people and metrics.

use crate::circuit::CircuitState;
use requeue_jobs::{Kind, Timestamp};
use std::time::Duration;

/// The upper bounds of the buckets of a [`DurationHistogram`], in seconds. Longer durations are in one more
/// bucket.
pub const DURATION_BOUNDS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// The state of a [`Pusher`](crate::Pusher): the result of [`Pusher::status`](crate::Pusher::status).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PushStatus {
    /// The kinds whose jobs are delivered, by name.
    pub kinds: Vec<PushKindStatus>,
    /// The targets of these kinds, by name.
    pub targets: Vec<PushTargetStatus>,
    /// How many deliveries are in flight, over all kinds.
    pub in_flight: usize,
    /// How many bytes the bodies in flight have, over all kinds. During a claim, as many as it can return.
    pub bytes: usize,
}

/// The deliveries of a kind by this node, since its target was set.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PushKindStatus {
    /// The kind.
    pub kind: Kind,
    /// The name of its target.
    pub target: String,
    /// How many deliveries are in flight.
    pub in_flight: usize,
    /// How many deliveries may be in flight, by the setting of the kind.
    pub concurrency: u32,
    /// How many deliveries have ended, by result.
    pub deliveries: DeliveryCounts,
    /// How long they took.
    pub durations: DurationHistogram,
    /// The latest delivery that failed.
    pub last_error: Option<LastError>,
}

/// A target that kinds of this node share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushTargetStatus {
    /// The name of the target: for a webhook its origin, such as `https://example.com:443`.
    pub target: String,
    /// Whether the target works.
    pub circuit: CircuitState,
    /// Until when the target gets no requests.
    pub until: Option<Timestamp>,
    /// How many deliveries are in flight.
    pub in_flight: usize,
    /// How many deliveries may be in flight. `None` if only the kinds' concurrency limits them.
    pub limit: Option<u32>,
    /// The latest delivery that failed.
    pub last_error: Option<LastError>,
}

/// A delivery that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastError {
    /// When it ended.
    pub at: Timestamp,
    /// Why it failed.
    pub error: String,
}

/// How many deliveries have ended, by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeliveryCounts {
    /// The target accepted the job.
    pub done: u64,
    /// The target rejected the job, which is tried again.
    pub retried: u64,
    /// The target asked for fewer requests (429 or 503). The job is tried again.
    pub slowed: u64,
    /// The target could not be reached or did not respond in time. The job is tried again.
    pub unreachable: u64,
    /// The target never accepts the job (410), which is dead.
    pub buried: u64,
    /// The outcome could not be stored: the lease was lost, or the store unavailable until the lease ended.
    /// Such a delivery is also counted by its outcome.
    pub unsettled: u64,
}

/// How long deliveries took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DurationHistogram {
    /// How many took at most as long as the bound of the same position in [`DURATION_BOUNDS`], and longer
    /// than the one before. The last position counts those that took longer than all bounds.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Returns how many deliveries have ended.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(DURATION_BOUNDS.len())] += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_once() {
        let mut durations = DurationHistogram::default();
        for millis in [0, 5, 6, 1000, 60_000, 60_001, 3_600_000] {
            durations.add(Duration::from_millis(millis));
        }
        assert_eq!(durations.buckets, [2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2]);
        assert_eq!((durations.count(), durations.sum), (7, Duration::from_millis(3_721_012)));
    }
}
