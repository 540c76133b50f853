//! The tokens of a rate limit, for the model and the simulator.

use requeue_jobs::{Rate, Timestamp};
use std::time::Duration;

/// A bucket of tokens. A token has as many parts as the period of the rate has milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tokens {
    /// The parts that are there, once some were taken. Before that the bucket is full.
    parts: Option<u128>,
    since: Timestamp,
}

impl Tokens {
    /// Returns the parts that are there now.
    fn refill(&mut self, rate: &Rate, now: Timestamp) -> u128 {
        let in_100_ms = || u128::from(rate.jobs) * 100 / rate.per.as_millis();
        let burst = rate.burst.map_or_else(|| in_100_ms().max(1), u128::from);
        let full = rate.per.as_millis() * burst;
        let elapsed = u128::from(now.as_millis().saturating_sub(self.since.as_millis()));
        let parts = self.parts.map_or(full, |parts| parts + elapsed * u128::from(rate.jobs));
        (self.parts, self.since) = (Some(parts.min(full)), self.since.max(now));
        parts.min(full)
    }

    /// Returns whether there are so many tokens.
    pub(crate) fn has(mut self, count: usize, rate: &Rate, now: Timestamp) -> bool {
        self.refill(rate, now) >= count as u128 * rate.per.as_millis()
    }

    pub(crate) fn take(&mut self, rate: &Rate, now: Timestamp) {
        self.parts = Some(self.refill(rate, now).saturating_sub(rate.per.as_millis()));
    }

    pub(crate) fn give_back(&mut self, rate: &Rate, now: Timestamp) {
        self.parts = Some(self.refill(rate, now) + rate.per.as_millis());
        // Not more than the burst.
        self.refill(rate, now);
    }

    /// Returns when the next token is there. `None`: now.
    pub(crate) fn throttled_until(mut self, rate: &Rate, now: Timestamp) -> Option<Timestamp> {
        let missing = rate.per.as_millis().saturating_sub(self.refill(rate, now));
        let millis = missing.div_ceil(u128::from(rate.jobs));
        let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        (millis > 0).then(|| self.since.saturating_add(wait))
    }
}
