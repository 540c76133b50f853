//! The slots of single kinds, if some kinds have a concurrency of their own.
//!
//! A claimed job has to start immediately, because its lease is running. A claim has one maximum for
//! all its kinds, and the store may return that many jobs of any of them. So a claim contains only kinds
//! that have at least that many free slots:
//!
//! ```text
//!   5 slots of the worker are free.        kind    slots   running    claim
//!                                          a       no limit           a, b together: at most 5 jobs
//!                                          b       8       3
//!                                          c       2       0          c alone: at most 2 jobs
//!                                          d       4       4          d: not claimed
//! ```
//!
//! The claims are made one after the other, for what the earlier ones have left. Another one is the first
//! each time, so that no kind starves. On a busy worker, slots become free one by one, and all kinds with a
//! free slot are in one claim.

use super::limits::KindLimits;
use crate::names::Kind;
use std::collections::BTreeMap;

pub(super) struct KindSlots {
    /// The kinds without a limit.
    unlimited: Vec<Kind>,
    limited: BTreeMap<Kind, Limited>,
    /// How many times groups were made.
    turn: usize,
    /// Whether a kind that had no free slot has one since groups were made.
    pub(super) freed: bool,
}

struct Limited {
    slots: usize,
    running: usize,
}

/// Kinds to claim together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClaimGroup {
    pub(super) kinds: Vec<Kind>,
    /// The largest number of jobs to claim.
    pub(super) max: usize,
}

impl KindSlots {
    /// Returns `None` if no kind has a concurrency of its own.
    pub(super) fn new(kinds: &[Kind], limits: &BTreeMap<Kind, KindLimits>) -> Option<Self> {
        let (mut unlimited, mut limited) = (Vec::new(), BTreeMap::new());
        for kind in kinds {
            match limits.get(kind).and_then(|limits| limits.concurrency) {
                Some(slots) => drop(limited.insert(kind.clone(), Limited { slots, running: 0 })),
                None => unlimited.push(kind.clone()),
            }
        }
        let slots = KindSlots { unlimited, limited, turn: 0, freed: false };
        (!slots.limited.is_empty()).then_some(slots)
    }

    /// Returns the claims to make if `free` slots of the worker are free. Returns none if no kind has a
    /// free slot.
    pub(super) fn groups(&mut self, free: usize) -> Vec<ClaimGroup> {
        self.freed = false;
        let mut together = ClaimGroup { kinds: self.unlimited.clone(), max: free };
        let mut groups = Vec::new();
        for (kind, limited) in &self.limited {
            match limited.slots.saturating_sub(limited.running) {
                0 => {}
                room if room >= free => together.kinds.push(kind.clone()),
                max => groups.push(ClaimGroup { kinds: vec![kind.clone()], max }),
            }
        }
        if !together.kinds.is_empty() {
            groups.push(together);
        }
        if !groups.is_empty() {
            let first = self.turn % groups.len();
            groups.rotate_left(first);
            self.turn = self.turn.wrapping_add(1);
        }
        groups
    }

    /// Records that a job of this kind has a slot.
    pub(super) fn take(&mut self, kind: &Kind) {
        if let Some(limited) = self.limited.get_mut(kind) {
            limited.running += 1;
            debug_assert!(limited.running <= limited.slots);
        }
    }

    /// Records that the slot of a job of this kind is free.
    pub(super) fn free(&mut self, kind: &Kind) {
        if let Some(limited) = self.limited.get_mut(kind) {
            self.freed |= limited.running == limited.slots;
            limited.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        Kind::new(name).expect("the name is valid")
    }

    fn slots(limits: &[(&str, Option<usize>)]) -> Option<KindSlots> {
        let kinds: Vec<_> = limits.iter().map(|(name, _)| kind(name)).collect();
        let limits = limits.iter().map(|(name, concurrency)| {
            (kind(name), KindLimits { concurrency: *concurrency, timeout: None })
        });
        KindSlots::new(&kinds, &limits.collect())
    }

    fn groups(slots: &mut KindSlots, free: usize) -> Vec<(String, usize)> {
        let name = |group: ClaimGroup| {
            let kinds: Vec<_> = group.kinds.iter().map(Kind::as_str).collect();
            (kinds.join(" "), group.max)
        };
        slots.groups(free).into_iter().map(name).collect()
    }

    #[test]
    fn a_claim_contains_only_kinds_that_have_slots_for_everything_it_may_return() {
        let limits = [("a", None), ("b", Some(8)), ("c", Some(2)), ("d", Some(4))];
        let mut slots = slots(&limits).expect("there are limits");
        (0..3).for_each(|_| slots.take(&kind("b")));
        (0..4).for_each(|_| slots.take(&kind("d")));
        assert_eq!(groups(&mut slots, 5), [("c".into(), 2), ("a b".into(), 5)]);
        assert_eq!(
            groups(&mut slots, 6)[0].0,
            "c",
            "b has fewer than 6 slots, and the turns rotate"
        );
        assert_eq!(groups(&mut slots, 1), [("a b c".into(), 1)]);
        slots.free(&kind("d"));
        assert!(slots.freed);
        assert_eq!(groups(&mut slots, 1), [("a b c d".into(), 1)]);
        assert!(!slots.freed);
    }

    #[test]
    fn another_group_is_first_each_time() {
        let mut slots = slots(&[("a", None), ("b", Some(1))]).expect("there are limits");
        let first: Vec<_> = (0..4).map(|_| groups(&mut slots, 2).remove(0).0).collect();
        assert_eq!(first, ["b", "a", "b", "a"]);
    }

    #[test]
    fn kinds_without_a_free_slot_are_not_claimed() {
        let mut slots = slots(&[("a", Some(0)), ("b", Some(1))]).expect("there are limits");
        slots.take(&kind("b"));
        assert!(groups(&mut slots, 3).is_empty());
    }

    #[test]
    fn without_limits_there_is_nothing_to_count() {
        assert!(slots(&[("a", None), ("b", None)]).is_none());
    }
}
