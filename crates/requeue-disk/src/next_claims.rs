//! When the next claim of each kind can return a job.
//!
//! Callers that wait look here: they neither take the lock of the state, which the writer holds
//! while it reads tables, nor read tables themselves.

use foldhash::HashMap;
use requeue_jobs::{Kind, Timestamp};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The times of all kinds, published by the writer.
#[derive(Default)]
pub(crate) struct NextClaims {
    /// A kind that is missing has nothing to claim, now or later, unless it changes.
    kinds: Mutex<HashMap<Kind, NextClaim>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextClaim {
    /// Not known: there was no claim of the kind since the store was opened, or its tables could
    /// not be read. The next claim finds out.
    Unread,
    /// From this time on a claim returns a job, unless the kind changes before.
    At(Timestamp),
}

impl NextClaims {
    /// Sets the time of a kind. Returns whether callers that wait for the kind have to be woken:
    /// a claim may return a job sooner than they knew.
    pub(crate) fn publish(&self, kind: &Kind, next: Option<NextClaim>) -> bool {
        let mut kinds = self.lock();
        let before = match next {
            Some(next) => kinds.insert(kind.clone(), next),
            None => kinds.remove(kind),
        };
        match (before, next) {
            // No caller waits for a kind that is not known: its wait ends immediately.
            (_, None) | (Some(NextClaim::Unread), _) => false,
            (None, Some(_)) | (Some(NextClaim::At(_)), Some(NextClaim::Unread)) => true,
            (Some(NextClaim::At(before)), Some(NextClaim::At(next))) => next < before,
        }
    }

    /// Whether the time of any of these kinds is not known.
    pub(crate) fn any_unread(&self, wanted: &[Kind]) -> bool {
        let kinds = self.lock();
        wanted.iter().any(|kind| kinds.get(kind) == Some(&NextClaim::Unread))
    }

    /// How long it takes until a claim of any of these kinds can return a job; zero if it may now.
    /// `None` if there is none to wait for.
    pub(crate) fn until_next(&self, wanted: &[Kind], now: Timestamp) -> Option<Duration> {
        let kinds = self.lock();
        let until = |kind: &Kind| match kinds.get(kind)? {
            NextClaim::Unread => Some(Duration::ZERO),
            NextClaim::At(at) => Some(at.saturating_since(now)),
        };
        wanted.iter().filter_map(until).min()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, NextClaim>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_woken_only_for_a_sooner_claim() {
        let (next, kind) = (NextClaims::default(), Kind::new("mail").unwrap());
        let at = |millis| Some(NextClaim::At(Timestamp::from_millis(millis)));
        assert!(next.publish(&kind, at(50)));
        assert!(!next.publish(&kind, at(50)) && !next.publish(&kind, at(70)));
        assert!(next.publish(&kind, at(60)));
        assert!(next.publish(&kind, Some(NextClaim::Unread)));
        assert!(!next.publish(&kind, at(10)), "no caller waits for a kind that is not known");
        assert!(!next.publish(&kind, None));
        assert!(next.publish(&kind, at(90)));
    }

    #[test]
    fn the_first_of_the_kinds_counts_and_unread_is_now() {
        let next = NextClaims::default();
        let kinds: Vec<Kind> = ["a", "b", "none"].map(|name| Kind::new(name).unwrap()).into();
        let until = |now| next.until_next(&kinds, Timestamp::from_millis(now));
        assert_eq!(until(0), None);
        next.publish(&kinds[0], Some(NextClaim::At(Timestamp::from_millis(70))));
        next.publish(&kinds[1], Some(NextClaim::At(Timestamp::from_millis(50))));
        assert_eq!(until(20), Some(Duration::from_millis(30)));
        assert_eq!(until(60), Some(Duration::ZERO));
        assert!(!next.any_unread(&kinds));
        next.publish(&kinds[0], Some(NextClaim::Unread));
        assert_eq!((until(20), next.any_unread(&kinds)), (Some(Duration::ZERO), true));
    }
}
