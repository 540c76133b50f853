//! The rate limit of a kind: a bucket of tokens, of which each leased job takes one.
//!
//! ```text
//!   refill: `jobs` tokens per `per`, at most a full bucket
//!          |
//!          v
//!     [ tokens ] ---- a claim leases a job: one less
//!          ^
//!          +--------- a release: one more
//! ```
//!
//! It is kept as what is missing from a full bucket, so that the state of an unused kind is 0. A token
//! is divided into as many parts as `per` has milliseconds: `jobs` parts per millisecond are refilled,
//! all numbers are integers, and nothing is lost by rounding. They stay below 2⁵³, which scripts in
//! Redis can represent.

use crate::settings::Rate;
use crate::time::Timestamp;

/// How much of the tokens of a kind is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateUse {
    /// The missing parts at the time `at`.
    pub parts: u64,
    /// When that was computed.
    pub at: Timestamp,
}

impl RateUse {
    /// Refills what the time since `at` has brought. If the clock went back, nothing.
    fn refill(&mut self, rate: &Rate, now: Timestamp) {
        let elapsed = now.as_millis().saturating_sub(self.at.as_millis());
        self.parts = self.parts.saturating_sub(elapsed.saturating_mul(rate.jobs.into()));
        self.at = self.at.max(now);
    }

    /// Returns how many jobs may be leased at `now`.
    pub fn tokens(mut self, rate: &Rate, now: Timestamp) -> usize {
        self.refill(rate, now);
        let left = rate.capacity().saturating_sub(self.parts) / rate.parts();
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Takes a token for a job that is leased at `now`.
    pub fn take(&mut self, rate: &Rate, now: Timestamp) {
        self.refill(rate, now);
        self.parts = self.parts.saturating_add(rate.parts());
    }

    /// Gives back the token of a job that is released at `now`.
    pub fn give_back(&mut self, rate: &Rate, now: Timestamp) {
        self.refill(rate, now);
        self.parts = self.parts.saturating_sub(rate.parts());
    }

    /// Returns when the next job may be leased. `None` means now.
    pub fn throttled_until(mut self, rate: &Rate, now: Timestamp) -> Option<Timestamp> {
        self.refill(rate, now);
        let most = rate.capacity().saturating_sub(rate.parts());
        let missing = self.parts.saturating_sub(most);
        let millis = missing.div_ceil(rate.jobs.max(1).into());
        // Counted from `at`: if the clock went back, nothing is refilled until it is there again.
        (millis > 0).then(|| Timestamp::from_millis(self.at.as_millis().saturating_add(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn rate(jobs: u32, per: Duration, burst: u32) -> Rate {
        Rate { jobs, per, burst: Some(burst) }
    }

    #[test]
    fn a_full_bucket_gives_a_burst_and_then_its_rate() {
        let rate = rate(3, Duration::from_secs(1), 2);
        let mut used = RateUse::default();
        assert_eq!(used.tokens(&rate, at(0)), 2);
        used.take(&rate, at(0));
        used.take(&rate, at(0));
        assert_eq!(
            (used.tokens(&rate, at(0)), used.throttled_until(&rate, at(0))),
            (0, Some(at(334)))
        );
        assert_eq!((used.tokens(&rate, at(333)), used.tokens(&rate, at(334))), (0, 1));
        assert_eq!(used.throttled_until(&rate, at(334)), None);
        // Nothing is lost by rounding: three after a second.
        let mut leased = 0;
        for millis in 1..=1000 {
            while used.tokens(&rate, at(millis)) > 0 {
                used.take(&rate, at(millis));
                leased += 1;
            }
        }
        assert_eq!(leased, 3);
        assert_eq!(used.tokens(&rate, at(1_000_000)), 2, "a bucket does not overflow");
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again() {
        let rate = rate(1, Duration::from_secs(60), 1);
        let mut used = RateUse::default();
        used.take(&rate, at(0));
        assert_eq!(used.tokens(&rate, at(10)), 0);
        used.give_back(&rate, at(10));
        assert_eq!(used.tokens(&rate, at(10)), 1);
        used.give_back(&rate, at(20));
        assert_eq!(used.tokens(&rate, at(20)), 1, "not more than the burst");
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let rate = rate(1, Duration::from_secs(1), 1);
        let mut used = RateUse::default();
        used.take(&rate, at(5000));
        used.give_back(&rate, at(1000));
        used.take(&rate, at(1000));
        assert_eq!(used.tokens(&rate, at(4000)), 0);
        assert_eq!(used.throttled_until(&rate, at(4000)), Some(at(6000)));
        assert_eq!(used.tokens(&rate, at(6000)), 1);
    }

    #[test]
    fn the_largest_numbers_stay_below_two_to_the_53rd() {
        use crate::limits::{MAX_COUNTER, MAX_RATE_JOBS, MAX_RATE_PERIOD};
        let rate = rate(MAX_RATE_JOBS, MAX_RATE_PERIOD, MAX_RATE_JOBS);
        assert!(2 * rate.capacity() < MAX_COUNTER);
        let mut used = RateUse::default();
        for _ in 0..3 {
            used.take(&rate, at(0));
        }
        assert_eq!(used.tokens(&rate, at(0)), MAX_RATE_JOBS as usize - 3);
    }
}
