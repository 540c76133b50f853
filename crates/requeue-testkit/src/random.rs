//! Numbers that look random and can be had again.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::thread;

/// splitmix64.
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
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One of the first `count` numbers, from 0; 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count.max(1) as u64) as usize
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them; there must be one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Checks seeds: those that once failed, and as many new ones as `count_in`, an environment
/// variable, says; where it says nothing, `count` that are always the same. Where `REQUEUE_SEED` is
/// set, that one and no other.
///
/// ```
/// use requeue_testkit::{Random, check_seeds};
///
/// check_seeds(&[7], "REQUEUE_DICE", 10, |seed| match Random::new(seed).below(6) {
///     0..6 => Ok(()),
///     other => Err(format!("a die showed {other}")),
/// });
/// ```
///
/// # Panics
///
/// Where a check answers an error or panics; the seed is printed.
pub fn check_seeds(
    failed_once: &[u64],
    count_in: &str,
    count: u64,
    check: impl Fn(u64) -> Result<(), String>,
) {
    for seed in seeds(failed_once, count_in, count) {
        let named = Named(seed);
        if let Err(error) = check(seed) {
            panic!("{error}");
        }
        drop(named);
    }
}

fn seeds(failed_once: &[u64], count_in: &str, count: u64) -> Vec<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, and not a number")))
    };
    if let Some(seed) = number("REQUEUE_SEED") {
        return vec![seed];
    }
    // Who asks for many looks for what is not known. All others want the same as yesterday.
    let asked = number(count_in);
    let first = asked.map_or(1, |_| RandomState::new().hash_one(()) >> 16);
    let count = asked.unwrap_or(count);
    println!("{count} seeds from {first}, and {} that once failed", failed_once.len());
    failed_once.iter().copied().chain(first..first + count).collect()
}

/// Names its seed in a panic, wherever that came from.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("to see it again: REQUEUE_SEED={}", self.0);
        }
    }
}
