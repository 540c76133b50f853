use std::time::Duration;

/// Upper bounds, in nanoseconds: 10 ns to 1000 s by tens, as in controller-runtime.
/// Kubernetes' component-base has the first ten of them.
const BOUNDS: [u64; 12] = [
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
];

/// How long things took.
///
/// The sum is of whole nanoseconds: the difference of two reads is exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Not cumulative; the last is of what is above all bounds.
    counts: [u64; BOUNDS.len() + 1],
    sum_nanos: u128,
}

impl Histogram {
    #[inline]
    pub(crate) fn observe(&mut self, nanos: u64) {
        // The power of ten that is not below it, less one.
        let bucket = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize;
        self.counts[bucket.min(BOUNDS.len())] += 1;
        self.sum_nanos += u128::from(nanos);
    }

    /// Upper bounds, and how many took at most so long.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut total = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(&bound, count)| {
            total += count;
            (Duration::from_nanos(bound), total)
        })
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all took together.
    pub fn sum(&self) -> Duration {
        let (seconds, nanos) = (self.sum_nanos / 1_000_000_000, self.sum_nanos % 1_000_000_000);
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), nanos as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_counted_from_the_first_bound_that_is_not_below_it() {
        let edges = BOUNDS.iter().flat_map(|&bound| [bound - 1, bound, bound + 1]);
        for nanos in edges.chain([0, 1, u64::MAX]) {
            let mut histogram = Histogram::default();
            histogram.observe(nanos);
            for (bound, count) in histogram.buckets() {
                assert_eq!(count, u64::from(nanos <= bound.as_nanos() as u64), "{nanos} {bound:?}");
            }
            assert_eq!((histogram.count(), histogram.sum()), (1, Duration::from_nanos(nanos)));
        }
    }

    #[test]
    fn sums_go_past_what_64_bits_hold() {
        let mut histogram = Histogram::default();
        (0..3).for_each(|_| histogram.observe(u64::MAX));
        assert_eq!(histogram.sum(), Duration::from_nanos(u64::MAX) * 3);
    }
}
