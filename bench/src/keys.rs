//! Keys and delays: the same in Rust, Go and Java.

use std::time::Duration;

/// splitmix64: the same numbers in all three languages, with three lines each.
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Creates a generator. The same seed generates the same numbers.
    pub fn new(seed: u64) -> Self {
        Numbers(seed)
    }

    /// Returns the next number, less than `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// The keys of all systems, in a different order from their order in memory.
pub fn make_keys<K: From<String>>(n: usize) -> Vec<K> {
    let mut numbers = Numbers::new(42);
    let mut keys: Vec<K> = (0..n)
        .map(|i| {
            let hex = numbers.below(1 << 24);
            format!("namespace-{}/pod-{hex:06x}-{i:04}", i % 97).into()
        })
        .collect();
    for i in (1..n).rev() {
        keys.swap(i, numbers.below(i as u64 + 1) as usize);
    }
    keys
}

/// The number of priorities.
pub const PRIORITIES: i32 = 3;

/// Returns the priority of a key: its last digit decides.
pub fn priority_of(key: &str) -> i32 {
    key.bytes().next_back().map_or(0, |digit| i32::from(digit) % PRIORITIES)
}

/// Delays from `from` to less than `from + spread`.
pub fn make_delays(n: usize, from: Duration, spread: Duration) -> Vec<Duration> {
    let mut numbers = Numbers::new(7);
    let spread = spread.as_nanos() as u64;
    (0..n).map(|_| from + Duration::from_nanos(numbers.below(spread))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_delays_are_those_of_go_and_java() {
        let keys: Vec<String> = make_keys(2000);
        assert_eq!(keys[7], "namespace-0/pod-d42412-0776");
        assert_eq!(priority_of(&keys[7]), 0);
        let delays = make_delays(2, Duration::ZERO, Duration::from_secs(3600));
        assert_eq!(delays[1], Duration::from_nanos(2_972_594_955_804));
    }
}
