//! A ring of steps of equal length, the last of which is the present.

use requeue_jobs::Timestamp;

/// The values of the last `N` steps of a wall clock. A step is identified by its number since 1970, so
/// steps of all rings begin at the same times, and gaps are empty.
#[derive(Debug, Clone)]
pub(super) struct Ring<T, const N: usize> {
    step_ms: u64,
    /// The number of the last step.
    last: u64,
    /// By the number of the step, modulo `N`.
    values: Box<[T; N]>,
}

impl<T: Default + Copy, const N: usize> Ring<T, N> {
    pub(super) fn new(step_ms: u64) -> Self {
        Ring { step_ms, last: 0, values: Box::new([T::default(); N]) }
    }

    /// Returns the value of the step of `now`. Steps since the last call become empty. If the clock was
    /// set back, the latest step is returned, so that nothing is counted twice or lost.
    pub(super) fn at(&mut self, now: Timestamp) -> &mut T {
        let step = (now.as_millis() / self.step_ms).max(self.last);
        let skipped = (step - self.last).min(N as u64);
        for n in 0..skipped {
            self.values[((step - n) % N as u64) as usize] = T::default();
        }
        self.last = step;
        &mut self.values[(step % N as u64) as usize]
    }

    /// Returns the values up to the step of `now`, the oldest first.
    pub(super) fn values(&mut self, now: Timestamp) -> impl Iterator<Item = &T> {
        self.at(now);
        // The step after the last one is the oldest.
        let (before, from) = self.values.split_at(((self.last + 1) % N as u64) as usize);
        from.iter().chain(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn values_move_towards_the_past_and_out_of_the_ring() {
        let mut ring = Ring::<u64, 4>::new(10);
        *ring.at(at(100)) += 1;
        *ring.at(at(109)) += 1;
        *ring.at(at(110)) += 5;
        let values = |ring: &mut Ring<u64, 4>, ms| ring.values(at(ms)).copied().collect::<Vec<_>>();
        assert_eq!(values(&mut ring, 115), [0, 0, 2, 5]);
        assert_eq!(values(&mut ring, 130), [2, 5, 0, 0]);
        assert_eq!(values(&mut ring, 1000), [0, 0, 0, 0]);
    }

    #[test]
    fn a_clock_that_was_set_back_neither_loses_nor_repeats_values() {
        let mut ring = Ring::<u64, 4>::new(10);
        *ring.at(at(500)) += 1;
        *ring.at(at(100)) += 1;
        assert_eq!(ring.values(at(100)).copied().collect::<Vec<_>>(), [0, 0, 0, 2]);
    }
}
