//! The numbers that a kind assigns: generations, fences and places in lists.

use super::kind::KindState;
use crate::error::Invalid;
use crate::limits::MAX_COUNTER;
use crate::receipt::{Fence, Generation};
use crate::restore::check_counter;
use crate::time::Timestamp;
use std::collections::VecDeque;

/// The most numbers that rules about one job use: generation, fence and [`seq`](super::Record::seq).
const NUMBERS_PER_JOB: usize = 3;
/// For dead and done jobs that a rule removes besides.
const SPARE_NUMBERS: usize = 4;

/// Numbers that something else has assigned, for a store that shares its counters with other
/// processes. Used with [`KindState::use_numbers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedNumbers {
    /// Distinct numbers, ascending. No other process uses them.
    pub numbers: VecDeque<u64>,
    /// Is added to a number to make a generation. `None`: generations are counted.
    pub generation_offset: Option<i64>,
    /// Is added to a number to make a fence. `None`: fences are counted.
    pub fence_offset: Option<i64>,
}

impl ReservedNumbers {
    /// How many numbers suffice for rules about this many jobs. Each put, settlement, change and import
    /// uses up to two, for its generation and its [`seq`](super::Record::seq); and each claimed job and each
    /// expired lease up to three, with its fence. A few more are for dead and done jobs that have to go.
    pub fn enough_for(jobs: usize) -> usize {
        NUMBERS_PER_JOB * jobs + SPARE_NUMBERS
    }
}

/// The latest number of each sort. They outlive the jobs: no number is assigned twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The latest [`Generation`].
    pub generation: u64,
    /// The latest [`Fence`].
    pub fence: u64,
    /// The latest [`seq`](super::Record::seq).
    pub seq: u64,
}

impl Counters {
    /// The higher ones of both.
    pub(super) fn max(self, other: Counters) -> Counters {
        Counters {
            generation: self.generation.max(other.generation),
            fence: self.fence.max(other.fence),
            seq: self.seq.max(other.seq),
        }
    }
}

impl<S> KindState<S> {
    /// Assigns these numbers as generations, fences and [`seq`](super::Record::seq) from now on, instead of
    /// counting. They must [suffice](ReservedNumbers::enough_for).
    pub fn use_numbers(&mut self, numbers: ReservedNumbers) {
        self.reserved = Some(numbers);
    }

    /// Fails if the kind has assigned its last generation. Call it before anything changes.
    pub(super) fn check_generation(&self) -> Result<(), Invalid> {
        check_counter("the kind's generation", self.coming_generation())
    }

    /// Returns the next reserved number plus an offset, unless there is no offset.
    fn reserved(&self, offset: impl Fn(&ReservedNumbers) -> Option<i64>) -> Option<u64> {
        let reserved = self.reserved.as_ref()?;
        let number = reserved.numbers.front().copied();
        debug_assert!(number.is_some(), "too few numbers were reserved");
        Some(number?.saturating_add_signed(offset(reserved)?))
    }

    /// Removes the reserved number if it was used, and otherwise returns `counted`.
    fn used(&mut self, reserved: Option<u64>, counted: u64) -> u64 {
        if let (Some(number), Some(numbers)) = (reserved, &mut self.reserved) {
            numbers.numbers.pop_front();
            return number;
        }
        counted
    }

    fn coming_generation(&self) -> u64 {
        let reserved = self.reserved(|numbers| numbers.generation_offset);
        reserved.unwrap_or(self.counters.generation.saturating_add(1))
    }

    /// Returns the next generation. Call [`check_generation`](KindState::check_generation) before.
    pub(super) fn next_generation(&mut self) -> Generation {
        let reserved = self.reserved(|numbers| numbers.generation_offset);
        self.counters.generation = self.used(reserved, self.coming_generation());
        Generation(self.counters.generation)
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        let reserved = self.reserved(|_| Some(0));
        self.counters.seq = self.used(reserved, self.counters.seq + 1);
        self.counters.seq
    }

    /// Returns the next fence. Fences rise strictly, also across restarts, unless the clock goes
    /// back by more microseconds than jobs were claimed since.
    pub(super) fn next_fence(&mut self, now: Timestamp) -> Fence {
        let reserved = self.reserved(|numbers| numbers.fence_offset);
        self.counters.fence = self.used(reserved, self.coming_fence(now));
        Fence(self.counters.fence)
    }

    fn coming_fence(&self, now: Timestamp) -> u64 {
        if let Some(fence) = self.reserved(|numbers| numbers.fence_offset) {
            return fence;
        }
        // A clock that is far ahead, after the year 2112, must leave higher numbers.
        let clock = now.as_millis().saturating_mul(1000).min(MAX_COUNTER / 2);
        self.counters.fence.saturating_add(1).max(clock)
    }

    /// Returns how many fences are left. Fails if there are none.
    pub(super) fn fences_left(&self, now: Timestamp) -> Result<usize, Invalid> {
        let next = self.coming_fence(now);
        check_counter("the kind's fence", next)?;
        Ok(usize::try_from(MAX_COUNTER - next + 1).unwrap_or(usize::MAX))
    }
}
