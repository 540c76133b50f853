use std::time::Duration;

/// Upper bounds in nanoseconds: 10 ns to 1000 s in powers of ten, as in controller-runtime.
/// Kubernetes' component-base has the first ten of them.
const TENS: [u64; 12] = [
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

/// A histogram of durations.
///
/// The sum is exact to the nanosecond, so the difference of two reads is exact too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds in nanoseconds, ascending.
    bounds: &'static [u64],
    /// Not cumulative. One more than there are bounds: the last counts what exceeds all bounds.
    counts: Vec<u64>,
    sum_nanos: u128,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum_nanos: 0 }
    }

    pub(crate) fn observe(&mut self, nanos: u64) {
        self.counts[self.bounds.partition_point(|&bound| bound < nanos)] += 1;
        self.sum_nanos += u128::from(nanos);
    }

    /// Returns each upper bound with the number of observations up to that bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut total = 0;
        self.bounds.iter().zip(&self.counts).map(move |(&bound, count)| {
            total += count;
            (Duration::from_nanos(bound), total)
        })
    }

    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all observations.
    pub fn sum(&self) -> Duration {
        let (seconds, nanos) = (self.sum_nanos / 1_000_000_000, self.sum_nanos % 1_000_000_000);
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), nanos as u32)
    }
}

/// An empty histogram with bounds from 10 ns to 1000 s in powers of ten.
impl Default for Histogram {
    fn default() -> Self {
        Histogram::new(&TENS)
    }
}

/// A [`Histogram`] with the bounds `TENS` that a queue fills. The bucket is computed, not
/// searched.
#[derive(Default)]
pub(crate) struct Tens {
    counts: [u64; TENS.len() + 1],
    sum_nanos: u128,
}

impl Tens {
    #[inline]
    pub(crate) fn observe(&mut self, nanos: u64) {
        // The smallest power of ten that is at least `nanos`, minus one.
        let bucket = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize;
        self.counts[bucket.min(TENS.len())] += 1;
        self.sum_nanos += u128::from(nanos);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram { bounds: &TENS, counts: self.counts.to_vec(), sum_nanos: self.sum_nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_counted_from_the_first_bound_that_is_not_below_it() {
        let edges = TENS.iter().flat_map(|&bound| [bound - 1, bound, bound + 1]);
        for nanos in edges.chain([0, 1, u64::MAX]) {
            let mut tens = Tens::default();
            tens.observe(nanos);
            let mut searched = Histogram::default();
            searched.observe(nanos);
            let histogram = tens.read();
            assert_eq!(histogram, searched, "{nanos}");
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
