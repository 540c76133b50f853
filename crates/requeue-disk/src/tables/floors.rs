//! Floors: where the front of a list was consumed, so that this leaves no tombstones.
//!
//! A floor of a prefix says that whatever flushes up to `upto` wrote below `below` is dead. What
//! later flushes write there is alive: jobs may be put before the front at any time.

use super::keys::{Order, Prefix};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) prefix: Prefix,
    pub(crate) below: Order,
    pub(crate) upto: u64,
}

/// All floors.
///
/// Invariant: sorted by prefix, then by `upto`; within a prefix `below` strictly falls, since a
/// later floor that is no lower makes an earlier one needless.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Floors {
    floors: Vec<Floor>,
}

impl Floors {
    /// `None` where these are not as they would have been left.
    pub(crate) fn from_sorted(floors: Vec<Floor>) -> Option<Floors> {
        let ordered = |pair: &[Floor]| {
            let (a, b) = (&pair[0], &pair[1]);
            a.prefix < b.prefix || a.prefix == b.prefix && a.upto < b.upto && a.below > b.below
        };
        floors.windows(2).all(ordered).then_some(Floors { floors })
    }

    pub(crate) fn all(&self) -> &[Floor] {
        &self.floors
    }

    /// Adds a floor; no floor of its prefix may have a later `upto`.
    pub(super) fn add(&mut self, floor: Floor) {
        let (start, end) = self.range(&floor.prefix);
        let of_prefix = &self.floors[start..end];
        let kept = start + of_prefix.partition_point(|old| old.below > floor.below);
        debug_assert!(of_prefix.last().is_none_or(|last| last.upto <= floor.upto));
        if kept > start && self.floors[kept - 1].upto == floor.upto {
            return;
        }
        self.floors.splice(kept..end, [floor]);
    }

    /// Below what the entries of these flushes, all up to `flush`, are dead.
    pub(super) fn at(&self, prefix: &Prefix, flush: u64) -> Option<&Order> {
        let (start, end) = self.range(prefix);
        let of_prefix = &self.floors[start..end];
        // The first that reaches this far is the highest that does.
        let first = of_prefix.partition_point(|floor| floor.upto < flush);
        of_prefix.get(first).map(|floor| &floor.below)
    }

    /// Whether what a flush wrote to this place was consumed.
    pub(super) fn covers(&self, prefix: &Prefix, order: &Order, flush: u64) -> bool {
        self.at(prefix, flush).is_some_and(|below| order < below)
    }

    /// Drops the floors that no table needs any more.
    pub(super) fn retain(&mut self, needed: impl FnMut(&Floor) -> bool) {
        self.floors.retain(needed);
    }

    fn range(&self, prefix: &Prefix) -> (usize, usize) {
        let start = self.floors.partition_point(|floor| floor.prefix < *prefix);
        let length =
            self.floors[start..].iter().take_while(|floor| floor.prefix == *prefix).count();
        (start, start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{order, prefix};
    use super::*;

    fn floor(kind: u32, at: u64, upto: u64) -> Floor {
        Floor { prefix: prefix(kind, 0), below: order(at, 0), upto }
    }

    #[test]
    fn a_higher_floor_takes_the_place_of_those_before() {
        let mut floors = Floors::default();
        floors.add(floor(1, 100, 5));
        floors.add(floor(2, 7, 5));
        floors.add(floor(1, 90, 6));
        assert_eq!(floors.all(), [floor(1, 100, 5), floor(1, 90, 6), floor(2, 7, 5)]);
        floors.add(floor(1, 95, 7));
        assert_eq!(floors.all(), [floor(1, 100, 5), floor(1, 95, 7), floor(2, 7, 5)]);
        floors.add(floor(1, 50, 7));
        floors.add(floor(1, 100, 8));
        assert_eq!(floors.all(), [floor(1, 100, 8), floor(2, 7, 5)]);
        assert!(Floors::from_sorted(floors.all().to_vec()).is_some());
        assert!(Floors::from_sorted(vec![floor(1, 9, 5), floor(1, 9, 6)]).is_none());
    }

    #[test]
    fn a_floor_holds_for_the_flushes_up_to_its_own() {
        let mut floors = Floors::default();
        floors.add(floor(1, 100, 5));
        floors.add(floor(1, 90, 8));
        let covers = |at, flush| floors.covers(&prefix(1, 0), &order(at, 0), flush);
        assert!(covers(99, 5) && !covers(100, 5));
        assert!(covers(89, 6) && !covers(90, 6) && covers(89, 8));
        assert!(!covers(0, 9));
        assert!(!floors.covers(&prefix(1, 1), &order(0, 0), 1));
    }
}
