//! The settings of a kind. The store keeps them, and enforces them inside a claim.

use crate::error::Invalid;
use crate::limits::{
    MAX_DELAY, MAX_JITTER_PERCENT, MAX_LEASE, MAX_RATE_JOBS, MAX_RATE_PERIOD, MIN_CONCURRENCY,
    MIN_LEASE,
};
use crate::push::PushSetting;
use crate::time::Timestamp;
use std::time::Duration;

/// The settings of a kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The length of a lease if the claim does not specify one, 10 ms to a day (default 30
    /// seconds).
    pub lease: Duration,
    /// The delay before a failed job is tried again.
    pub backoff: Backoff,
    /// The number of failed attempts after which a job is dead (default 20). 0 counts as 1.
    pub max_attempts: u32,
    /// The largest number of jobs of this kind that are leased concurrently, over all workers: at
    /// least 1. `None` means no limit (default). Expired leases do not count.
    pub concurrency: Option<u32>,
    /// How many jobs of this kind may be leased per time, over all workers. `None` means any number
    /// (default).
    pub rate: Option<Rate>,
    /// The time after which a ready job gains a level of [priority](crate::Priority): at least a
    /// millisecond (default 10 minutes). `None` means that jobs do not gain any.
    pub ageing: Option<Duration>,
    /// Whether the kind is paused: claims return none of its jobs (default `false`).
    pub paused: bool,
    /// How long, and how many, dead jobs are kept.
    pub retention: Retention,
    /// How long, and how many, done jobs are kept, without their bodies. `None` (default) keeps none.
    pub keep_done: Option<Retention>,
    /// Where the service delivers the jobs. `None` (default) means that workers claim them.
    pub push: Option<PushSetting>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            lease: Duration::from_secs(30),
            backoff: Backoff::default(),
            max_attempts: 20,
            concurrency: None,
            rate: None,
            ageing: Some(Duration::from_secs(600)),
            paused: false,
            retention: Retention::default(),
            keep_done: None,
            push: None,
        }
    }
}

impl Settings {
    /// Fails if the lease, the backoff, the jitter, the concurrency, the ageing or the rate is out of
    /// range, or the push target too long. For stores.
    ///
    /// ```
    /// use requeue_jobs::Settings;
    ///
    /// let mut settings = Settings::default();
    /// settings.concurrency = Some(0);
    /// let error = settings.check().unwrap_err();
    /// assert_eq!(error.to_string(), "the concurrency is 0; the lowest allowed value is 1");
    /// ```
    pub fn check(&self) -> Result<(), Invalid> {
        check_lease(self.lease)?;
        let Backoff { base, max: longest, jitter_percent } = self.backoff;
        for (field, value, max) in [
            ("the backoff's longest delay", longest, MAX_DELAY),
            ("the backoff's first delay", base, longest),
        ] {
            if value > max {
                return Err(Invalid::OutOfRange { field, value, min: Duration::ZERO, max });
            }
        }
        if jitter_percent > MAX_JITTER_PERCENT {
            let (value, limit) = (jitter_percent.into(), MAX_JITTER_PERCENT.into());
            return Err(Invalid::TooHigh { field: "the jitter in percent", value, limit });
        }
        if let Some(value) = self.concurrency
            && value < MIN_CONCURRENCY
        {
            let (field, value, limit) = ("the concurrency", value.into(), MIN_CONCURRENCY.into());
            return Err(Invalid::TooLow { field, value, limit });
        }
        let (field, min, max) = ("the ageing", Duration::from_millis(1), MAX_DELAY);
        if let Some(value) = self.ageing
            && !(min..=max).contains(&value)
        {
            return Err(Invalid::OutOfRange { field, value, min, max });
        }
        self.rate.as_ref().map_or(Ok(()), Rate::check)?;
        self.push.as_ref().map_or(Ok(()), PushSetting::check)
    }
}

/// Fails if a lease is shorter than [`MIN_LEASE`] or longer than [`MAX_LEASE`]. For stores.
pub fn check_lease(value: Duration) -> Result<(), Invalid> {
    if (MIN_LEASE..=MAX_LEASE).contains(&value) {
        return Ok(());
    }
    Err(Invalid::OutOfRange { field: "the lease", value, min: MIN_LEASE, max: MAX_LEASE })
}

/// A rate limit: of a bucket of tokens each claimed job takes one, and `jobs` tokens are refilled per
/// `per`. So in any span of time, at most as many jobs more than the rate are leased as a full bucket has
/// tokens.
///
/// By default the bucket has as many tokens as the rate refills in 100 ms, at least one: up to 10 jobs per
/// second are spaced evenly.
///
/// ```
/// use requeue_jobs::Rate;
/// use std::time::Duration;
///
/// let rate = Rate::new(10, Duration::from_secs(1));
/// assert_eq!((rate.burst, rate.bucket()), (None, 1));
/// assert_eq!(Rate::new(1000, Duration::from_secs(1)).bucket(), 100);
/// let bursts = Rate { burst: Some(50), ..rate };
/// assert_eq!(bursts.bucket(), 50);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many jobs per `per`: 1 to a million.
    pub jobs: u32,
    /// The period, in whole milliseconds: at most 31 days.
    pub per: Duration,
    /// How many jobs may be leased together if none were for a while: 1 to a million. `None` means as
    /// many as the rate allows in 100 ms, at least 1.
    pub burst: Option<u32>,
}

impl Rate {
    /// Returns a rate with the default burst.
    pub fn new(jobs: u32, per: Duration) -> Self {
        Rate { jobs, per, burst: None }
    }

    /// Returns how many tokens a full bucket has: the burst, or its default.
    pub fn bucket(&self) -> u32 {
        let default = || u64::from(self.jobs) * DEFAULT_BURST_MILLIS / self.parts();
        let default = || u32::try_from(default()).unwrap_or(MAX_RATE_JOBS).clamp(1, MAX_RATE_JOBS);
        self.burst.unwrap_or_else(default)
    }

    /// Fails if a number is out of range. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        for (field, value) in [
            ("the number of jobs of the rate", self.jobs),
            ("the burst of the rate", self.bucket()),
        ] {
            let value = value.into();
            if value < 1 {
                return Err(Invalid::TooLow { field, value, limit: 1 });
            }
            let limit = MAX_RATE_JOBS.into();
            if value > limit {
                return Err(Invalid::TooHigh { field, value, limit });
            }
        }
        let (field, value) = ("the period of the rate", self.per);
        let (min, max) = (Duration::from_millis(1), MAX_RATE_PERIOD);
        if !(min..=max).contains(&value) {
            return Err(Invalid::OutOfRange { field, value, min, max });
        }
        Ok(())
    }

    /// Returns the parts of a token: one for each millisecond of the period.
    pub(crate) fn parts(&self) -> u64 {
        u64::try_from(self.per.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the parts of a full bucket.
    pub(crate) fn capacity(&self) -> u64 {
        self.parts().saturating_mul(self.bucket().into())
    }
}

/// The default burst of a rate limit is what the rate allows in this time.
const DEFAULT_BURST_MILLIS: u64 = 100;

/// Exponential backoff with jitter: the random part prevents jobs that failed together from being
/// retried together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure, at most `max`. It doubles with each further failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// The largest part of the delay, in percent, that is subtracted at random: 0 to 100.
    pub jitter_percent: u8,
}

impl Default for Backoff {
    /// From one second to one hour, with 20 percent jitter.
    fn default() -> Self {
        let (base, max) = (Duration::from_secs(1), Duration::from_secs(3600));
        Backoff { base, max, jitter_percent: 20 }
    }
}

impl Backoff {
    /// Returns the delay after the `failures`-th failure. The same `seed` gives the same jitter. A
    /// store that derives the seed from the lease computes the same delay when it replays its log.
    pub fn delay(&self, failures: u32, seed: u64) -> Duration {
        let doubled = 2u32.checked_pow(failures.saturating_sub(1));
        let delay = doubled.and_then(|times| self.base.checked_mul(times)).unwrap_or(self.max);
        let delay = delay.min(self.max);
        let percent = u64::from(self.jitter_percent.min(MAX_JITTER_PERCENT));
        let part = u64::from(Backoff::part(seed));
        let taken = delay.as_millis() * u128::from(percent * part) / (100 << 16);
        delay.saturating_sub(Duration::from_millis(u64::try_from(taken).unwrap_or(u64::MAX)))
    }

    /// Returns the share of the allowed jitter that is subtracted, in units of 1/2¹⁶. For a store
    /// that computes the delay elsewhere, for example in a script: together with the fields of
    /// `self`, this is all that [`delay`](Backoff::delay) uses.
    ///
    /// ```
    /// use requeue_jobs::Backoff;
    ///
    /// let backoff = Backoff { jitter_percent: 100, ..Backoff::default() };
    /// let taken = 1000 * u64::from(Backoff::part(7)) / 65_536;
    /// assert_eq!(backoff.delay(1, 7).as_millis() as u64, 1000 - taken);
    /// ```
    pub fn part(seed: u64) -> u16 {
        (mixed(seed) & 0xFFFF) as u16
    }
}

/// The last step of splitmix64.
fn mixed(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How long, and how many, dead or done jobs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Jobs are deleted this long after they became dead or done.
    pub age: Duration,
    /// The largest number of such jobs of a kind. The oldest ones are deleted first.
    pub count: usize,
}

impl Default for Retention {
    /// Seven days and 100,000 jobs.
    fn default() -> Self {
        Retention { age: Duration::from_secs(7 * 86_400), count: 100_000 }
    }
}

impl Retention {
    /// Returns the earliest time that is kept. Jobs that became dead or done before it are deleted.
    pub fn oldest(&self, now: Timestamp) -> Timestamp {
        let age = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(now.as_millis().saturating_sub(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum_and_no_further() {
        let backoff = Backoff { jitter_percent: 0, ..Backoff::default() };
        let seconds = [1, 2, 3, 12, 13, 33, u32::MAX].map(|n| backoff.delay(n, 7).as_secs());
        assert_eq!(seconds, [1, 2, 4, 2048, 3600, 3600, 3600]);
        assert_eq!(backoff.delay(0, 7), backoff.delay(1, 7));
    }

    #[test]
    fn jitter_takes_away_up_to_its_part_and_differs() {
        let backoff = Backoff { jitter_percent: 200, ..Backoff::default() };
        let whole = Duration::from_secs(1);
        let delays: Vec<Duration> = (0..100).map(|seed| backoff.delay(1, seed)).collect();
        assert!(delays.iter().all(|&delay| delay <= whole));
        assert!(
            delays.iter().min() < Some(&(whole / 4))
                && delays.iter().max() > Some(&(whole * 3 / 4))
        );
        let whole_less = |seed| whole.as_millis() - 1000 * u128::from(Backoff::part(seed)) / 65_536;
        assert!((0..100).all(|seed| backoff.delay(1, seed).as_millis() == whole_less(seed)));
        let fifth = Backoff { jitter_percent: 20, ..backoff };
        assert!((0..1000).all(|seed| fifth.delay(1, seed) >= whole * 4 / 5));
    }
}
