//! Range tombstones: they delete the consumed front of a list, without a tombstone for each job.
//!
//! A range tombstone of a prefix deletes all entries below `below` that flushes up to `upto` wrote.
//! Entries that later flushes write there are valid: a job can be put before the front at any time.

use super::keys::{Order, Prefix};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    pub(crate) prefix: Prefix,
    pub(crate) below: Order,
    pub(crate) upto: u64,
}

/// All range tombstones of a version.
///
/// Invariant: sorted by prefix, then by `upto`; within a prefix `below` strictly decreases, because
/// a later one that is at least as high makes an earlier one superfluous.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeTombstones {
    sorted: Vec<RangeTombstone>,
}

impl RangeTombstones {
    /// Returns `None` if the invariant does not hold.
    pub(crate) fn from_sorted(sorted: Vec<RangeTombstone>) -> Option<RangeTombstones> {
        let ordered = |pair: &[RangeTombstone]| {
            let (a, b) = (&pair[0], &pair[1]);
            a.prefix < b.prefix || a.prefix == b.prefix && a.upto < b.upto && a.below > b.below
        };
        sorted.windows(2).all(ordered).then_some(RangeTombstones { sorted })
    }

    pub(crate) fn all(&self) -> &[RangeTombstone] {
        &self.sorted
    }

    /// Adds a range tombstone. None of its prefix may have a later `upto`.
    pub(super) fn add(&mut self, tombstone: RangeTombstone) {
        let (start, end) = self.range(&tombstone.prefix);
        let of_prefix = &self.sorted[start..end];
        let kept = start + of_prefix.partition_point(|old| old.below > tombstone.below);
        debug_assert!(of_prefix.last().is_none_or(|last| last.upto <= tombstone.upto));
        if kept > start && self.sorted[kept - 1].upto == tombstone.upto {
            return;
        }
        self.sorted.splice(kept..end, [tombstone]);
    }

    /// The key below which all entries of flushes up to `flush` are deleted.
    pub(super) fn at(&self, prefix: &Prefix, flush: u64) -> Option<&Order> {
        let (start, end) = self.range(prefix);
        let of_prefix = &self.sorted[start..end];
        // The first that reaches this far is the highest that does.
        let first = of_prefix.partition_point(|tombstone| tombstone.upto < flush);
        of_prefix.get(first).map(|tombstone| &tombstone.below)
    }

    /// Whether the entry that a flush wrote at this position is deleted.
    pub(super) fn covers(&self, prefix: &Prefix, order: &Order, flush: u64) -> bool {
        self.at(prefix, flush).is_some_and(|below| order < below)
    }

    /// Keeps the range tombstones that are needed.
    pub(super) fn retain(&mut self, needed: impl FnMut(&RangeTombstone) -> bool) {
        self.sorted.retain(needed);
    }

    fn range(&self, prefix: &Prefix) -> (usize, usize) {
        let start = self.sorted.partition_point(|tombstone| tombstone.prefix < *prefix);
        let length =
            self.sorted[start..].iter().take_while(|tombstone| tombstone.prefix == *prefix).count();
        (start, start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{order, prefix};
    use super::*;

    fn below(kind: u32, at: u64, upto: u64) -> RangeTombstone {
        RangeTombstone { prefix: prefix(kind, 0), below: order(at, 0), upto }
    }

    #[test]
    fn a_higher_range_tombstone_replaces_those_before() {
        let mut range_tombstones = RangeTombstones::default();
        range_tombstones.add(below(1, 100, 5));
        range_tombstones.add(below(2, 7, 5));
        range_tombstones.add(below(1, 90, 6));
        assert_eq!(range_tombstones.all(), [below(1, 100, 5), below(1, 90, 6), below(2, 7, 5)]);
        range_tombstones.add(below(1, 95, 7));
        assert_eq!(range_tombstones.all(), [below(1, 100, 5), below(1, 95, 7), below(2, 7, 5)]);
        range_tombstones.add(below(1, 50, 7));
        range_tombstones.add(below(1, 100, 8));
        assert_eq!(range_tombstones.all(), [below(1, 100, 8), below(2, 7, 5)]);
        assert!(RangeTombstones::from_sorted(range_tombstones.all().to_vec()).is_some());
        assert!(RangeTombstones::from_sorted(vec![below(1, 9, 5), below(1, 9, 6)]).is_none());
    }

    #[test]
    fn a_range_tombstone_applies_to_flushes_up_to_its_own() {
        let mut range_tombstones = RangeTombstones::default();
        range_tombstones.add(below(1, 100, 5));
        range_tombstones.add(below(1, 90, 8));
        let covers = |at, flush| range_tombstones.covers(&prefix(1, 0), &order(at, 0), flush);
        assert!(covers(99, 5) && !covers(100, 5));
        assert!(covers(89, 6) && !covers(90, 6) && covers(89, 8));
        assert!(!covers(0, 9));
        assert!(!range_tombstones.covers(&prefix(1, 1), &order(0, 0), 1));
    }
}
