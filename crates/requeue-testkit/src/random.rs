//! Pseudo-random numbers that a seed reproduces.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::thread;

/// A pseudo-random number generator (splitmix64).
///
/// ```
/// use requeue_testkit::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.number(), other.number());
/// assert!(one.below(3) < 3);
/// ```
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. The same seed always generates the same numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `count` - 1, and 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count.max(1) as u64) as usize
    }

    /// Returns `true` with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the elements.
    ///
    /// # Panics
    ///
    /// If `from` is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns one of the values, each with a probability in proportion to its weight.
    ///
    /// # Panics
    ///
    /// If the sum of the weights is 0.
    pub fn weighted<T: Copy>(&mut self, weights: &[(usize, T)]) -> T {
        let mut rest = self.below(weights.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in weights {
            match rest.checked_sub(*weight) {
                None => return *value,
                Some(less) => rest = less,
            }
        }
        panic!("the sum of the weights is 0");
    }
}

/// Runs a check with many seeds: those in `failed_once`, and `count` seeds that are always the same.
///
/// If the environment variable with the name `count_in` is set, it specifies the number of seeds,
/// and they are different in each run. If `REQUEUE_SEED` is set, only that seed is checked.
///
/// ```
/// use requeue_testkit::{Random, check_seeds};
///
/// check_seeds(&[7], "REQUEUE_DICE", 10, |seed| match Random::new(seed).below(6) {
///     0..6 => Ok(()),
///     other => Err(format!("the die shows {other}")),
/// });
/// ```
///
/// # Panics
///
/// If a check returns an error or panics. The seed is printed.
pub fn check_seeds(
    failed_once: &[u64],
    count_in: &str,
    count: u64,
    check: impl Fn(u64) -> Result<(), String>,
) {
    for seed in seeds(failed_once, count_in, count) {
        let print_on_panic = PrintOnPanic(seed);
        if let Err(error) = check(seed) {
            panic!("{error}");
        }
        drop(print_on_panic);
    }
}

fn seeds(failed_once: &[u64], count_in: &str, count: u64) -> Vec<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
    };
    if let Some(seed) = number("REQUEUE_SEED") {
        return vec![seed];
    }
    // A run that asks for a number of seeds searches for new failures. All others are repeatable.
    let requested = number(count_in);
    let first = requested.map_or(1, |_| RandomState::new().hash_one(()) >> 16);
    let count = requested.unwrap_or(count);
    println!("{count} seeds from {first}, and {} that failed once", failed_once.len());
    failed_once.iter().copied().chain(first..first + count).collect()
}

/// Prints the seed if the check panics.
struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("to repeat this run: REQUEUE_SEED={}", self.0);
        }
    }
}
