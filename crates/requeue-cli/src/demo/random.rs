//! Random decisions that a seed reproduces.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A pseudo-random number generator (splitmix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns the generator for one attempt at one job. What happens to the job then does not depend
    /// on the order in which workers claim jobs.
    pub(super) fn of_attempt(seed: u64, id: &str, attempt: u32) -> Self {
        let of_id = id.bytes().fold(seed, |hash, byte| mixed(hash ^ u64::from(byte)));
        Random(mixed(of_id ^ u64::from(attempt)))
    }

    /// Returns a generator whose numbers do not depend on how many this one generates later.
    pub(super) fn split(&mut self) -> Self {
        Random(self.number())
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// Returns a number from 0 to `count` - 1, and 0 if `count` is 0.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.number() % count.max(1)
    }

    /// Returns `true` with a probability of `percent` in a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the elements.
    pub(super) fn pick<'a, T, const N: usize>(&mut self, from: &'a [T; N]) -> &'a T {
        const { assert!(N > 0) };
        &from[self.below(N as u64) as usize]
    }

    /// Returns a duration from `min` to `max`, in whole milliseconds.
    pub(super) fn between(&mut self, min: Duration, max: Duration) -> Duration {
        let span = u64::try_from(max.saturating_sub(min).as_millis()).unwrap_or(u64::MAX);
        min + Duration::from_millis(self.below(span.saturating_add(1)))
    }
}

fn mixed(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns a seed that differs between runs, and is short enough to type.
pub(super) fn new_seed() -> u64 {
    RandomState::new().hash_one(0) % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_within_the_range() {
        let (min, max) = (Duration::from_millis(5), Duration::from_millis(7));
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.between(min, max)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(7).iter().all(|duration| (min..=max).contains(duration)));
        assert_eq!(Random::new(7).between(max, min), max);
    }

    #[test]
    fn attempts_at_jobs_are_independent_of_each_other() {
        let number = |id, attempt| Random::of_attempt(7, id, attempt).number();
        assert_eq!(number("order-1", 1), number("order-1", 1));
        assert_ne!(number("order-1", 1), number("order-1", 2));
        assert_ne!(number("order-1", 1), number("order-2", 1));
    }
}
