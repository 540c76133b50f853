use super::{LimiterError, RateLimiter};
use crate::clock::Moment;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Shortens delays by a random part, so that keys that failed together do not all run again
/// together. It never lengthens a delay, so maxima still hold.
#[derive(Debug, Clone)]
pub struct Jitter<L> {
    limiter: L,
    fraction: f64,
    random: u64,
}

impl<L> Jitter<L> {
    /// Shortens the delays of `limiter` by up to `fraction`: 0 changes nothing, 1 may remove
    /// the whole delay. Fails if `fraction` is not from 0 to 1.
    pub fn new(limiter: L, fraction: f64) -> Result<Self, LimiterError> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(LimiterError {
                field: "fraction",
                value: fraction,
                allowed: "from 0 to 1",
            });
        }
        let random = RandomState::new().build_hasher().finish();
        Ok(Jitter { limiter, fraction, random })
    }

    /// Seeds the random numbers, so that they are the same every time. Default: a random seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = seed;
        self
    }

    /// Returns the next number from 0 up to, but not including, 1: splitmix64's upper 53 bits.
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for Jitter<L> {
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        let delay = self.limiter.when(key, failures, now);
        let off = delay.as_secs_f64() * (self.fraction * self.random());
        delay.saturating_sub(Duration::try_from_secs_f64(off).unwrap_or_default())
    }

    fn counts(&self) -> bool {
        self.limiter.counts()
    }
}
