//! The priority of a job.

use crate::error::Invalid;
use crate::limits::MAX_PRIORITY;
use std::fmt;

/// The priority of a job: 0 (default) to 9. Of the ready jobs of a kind, those with a higher priority
/// are claimed first.
///
/// A ready job gains a level for each span of [`Settings::ageing`](crate::Settings::ageing) that it
/// has been ready, so that jobs of a low priority are claimed, too.
///
/// ```
/// use requeue_jobs::Priority;
///
/// assert!(Priority::new(5)? > Priority::default());
/// let error = Priority::new(10).unwrap_err();
/// assert_eq!(error.to_string(), "the priority is 10; the limit is 9");
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(u8);

impl Priority {
    /// The highest priority.
    pub const MAX: Priority = Priority(MAX_PRIORITY);

    /// Returns a priority. Fails if `level` is higher than [`MAX_PRIORITY`].
    pub fn new(level: u8) -> Result<Self, Invalid> {
        if level > MAX_PRIORITY {
            let (field, value, limit) = ("the priority", level.into(), MAX_PRIORITY.into());
            return Err(Invalid::TooHigh { field, value, limit });
        }
        Ok(Priority(level))
    }

    /// Returns the level.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Iterates over all priorities, the highest first.
    pub(crate) fn all() -> impl Iterator<Item = Priority> {
        (0..=MAX_PRIORITY).rev().map(Priority)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Priorities(u16);

impl Priorities {
    /// Adds a priority.
    #[inline]
    pub fn insert(&mut self, priority: Priority) {
        self.0 |= 1 << priority.0;
    }

    /// Iterates over the priorities, the highest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Priority> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let level = left.checked_ilog2()? as u8;
            left &= !(1 << level);
            Some(Priority(level))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_returns_its_priorities_from_the_highest_down() {
        let mut set = Priorities::default();
        assert_eq!(set.iter().next(), None);
        for level in [0, 9, 4] {
            set.insert(Priority(level));
        }
        assert_eq!(set.iter().map(Priority::get).collect::<Vec<_>>(), [9, 4, 0]);
    }
}
