//! What has happened to the jobs of each kind.

use super::registered;
use crate::instrumented::words;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::{Kind, KindView};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// In seconds, from a millisecond, as exact as stores are, to an hour.
const LATENESS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 3600.0,
];

/// For each counter with an outcome: its name, what it is, and the outcomes.
const BY_OUTCOME: [(&str, &str, &[&str]); 4] = [
    ("requeue_puts_total", "Puts that the store took, by what they did.", &words::PUT),
    (
        "requeue_settled_total",
        "Leases that were settled, by what became of them; each ends here once, or expires.",
        &words::ENDED,
    ),
    ("requeue_changed_total", "Jobs that were changed by name, by what it did.", &words::CHANGED),
    ("requeue_restored_total", "Jobs that were imported, by what it did.", &words::RESTORED),
];

/// The same without outcomes.
const PLAIN: [(&str, &str); 5] = [
    ("requeue_put_conditions_refused_total", "Puts whose condition did not hold."),
    ("requeue_claimed_total", "Leases that were given out."),
    ("requeue_extended_total", "Leases that were extended."),
    (
        "requeue_lease_lost_total",
        "Settlements that came too late, or twice: the receipt leased no job any more.",
    ),
    (
        "requeue_lapses_total",
        "Jobs that were leased anew because their lease had expired, as far as this node can tell for certain: a lower bound.",
    ),
];

/// The counters of every kind.
pub(super) struct Kinds {
    by_outcome: [IntCounterVec; BY_OUTCOME.len()],
    plain: [IntCounterVec; PLAIN.len()],
    lateness: HistogramVec,
    /// Kinds that the store is known to have, or to have had.
    /// Invariant: at most `limit`, each with a child in every vector above.
    known: RwLock<HashMap<Kind, Arc<KindMeters>>>,
    /// [`MAX_KINDS`], but for tests.
    limit: usize,
    /// For what cannot be told by a kind.
    nameless: Arc<KindMeters>,
}

/// The counters of a kind.
pub(crate) struct KindMeters {
    pub(crate) puts: [IntCounter; words::PUT.len()],
    pub(crate) settled: [IntCounter; words::ENDED.len()],
    pub(crate) changed: [IntCounter; words::CHANGED.len()],
    pub(crate) restored: [IntCounter; words::RESTORED.len()],
    pub(crate) refused: IntCounter,
    pub(crate) claimed: IntCounter,
    pub(crate) extended: IntCounter,
    pub(crate) lost: IntCounter,
    pub(crate) expired: IntCounter,
    lateness: Histogram,
}

impl KindMeters {
    pub(crate) fn late(&self, by: Duration) {
        self.lateness.observe(by.as_secs_f64());
    }
}

impl Kinds {
    pub(super) fn new(registry: &Registry) -> Self {
        let by_outcome = BY_OUTCOME.map(|(name, help, _)| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), &["kind", "outcome"]))
        });
        let plain = PLAIN.map(|(name, help)| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), &["kind"]))
        });
        let lateness = HistogramVec::new(
            HistogramOpts::new(
                "requeue_claim_lateness_seconds",
                "How long after they fell due jobs were claimed: by the store's clock where the claim said for action long, otherwise by this node's.",
            )
            .buckets(LATENESS.to_vec()),
            &["kind"],
        );
        let lateness = registered(registry, lateness);
        let nameless = Arc::new(meters(&by_outcome, &plain, &lateness, ""));
        Kinds { by_outcome, plain, lateness, known: RwLock::default(), limit: MAX_KINDS, nameless }
    }

    pub(super) fn by_kind(&self) -> ByKind<'_> {
        ByKind { kinds: self, last: None }
    }

    /// A kind that the store may not have.
    fn known(&self, kind: &Kind) -> Arc<KindMeters> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(kind).unwrap_or(&self.nameless).clone()
    }

    /// A kind that the store has.
    fn of(&self, kind: &Kind) -> Arc<KindMeters> {
        if let Some(meters) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(kind) {
            return meters.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.limit && !known.contains_key(kind) {
            return self.nameless.clone();
        }
        let made =
            || Arc::new(meters(&self.by_outcome, &self.plain, &self.lateness, kind.as_str()));
        known.entry(kind.clone()).or_insert_with(made).clone()
    }

    /// Forgets kinds that the store has no longer, once there are too many. Not before: a kind
    /// whose jobs are all done is not told of either, and its counters must not start again.
    pub(super) fn keep_to(&self, views: &[KindView]) {
        if self.known.read().unwrap_or_else(PoisonError::into_inner).len() < self.limit {
            return;
        }
        let there: HashSet<&Kind> = views.iter().map(|view| &view.kind).collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|kind, _| {
            let keep = there.contains(kind);
            if !keep {
                self.forget(kind.as_str());
            }
            keep
        });
    }

    fn forget(&self, kind: &str) {
        let there = "a known kind has all of them";
        for (counter, (_, _, outcomes)) in self.by_outcome.iter().zip(BY_OUTCOME) {
            for outcome in outcomes {
                counter.remove_label_values(&[kind, outcome]).expect(there);
            }
        }
        for counter in &self.plain {
            counter.remove_label_values(&[kind]).expect(there);
        }
        self.lateness.remove_label_values(&[kind]).expect(there);
    }
}

/// All at once, from zero: a rate can be told from the first count on.
fn meters(
    [puts, settled, changed, restored]: &[IntCounterVec; BY_OUTCOME.len()],
    plain: &[IntCounterVec; PLAIN.len()],
    lateness: &HistogramVec,
    kind: &str,
) -> KindMeters {
    let [refused, claimed, extended, lost, expired] =
        plain.each_ref().map(|counter| counter.with_label_values(&[kind]));
    KindMeters {
        puts: words::PUT.map(|outcome| puts.with_label_values(&[kind, outcome])),
        settled: words::ENDED.map(|outcome| settled.with_label_values(&[kind, outcome])),
        changed: words::CHANGED.map(|outcome| changed.with_label_values(&[kind, outcome])),
        restored: words::RESTORED.map(|outcome| restored.with_label_values(&[kind, outcome])),
        refused,
        claimed,
        extended,
        lost,
        expired,
        lateness: lateness.with_label_values(&[kind]),
    }
}

/// The counters of kinds, for a batch: most have one kind, and it is looked up once.
pub(crate) struct ByKind<'a> {
    kinds: &'a Kinds,
    last: Option<(Kind, Arc<KindMeters>)>,
}

impl ByKind<'_> {
    /// Of a kind that the store has.
    pub(crate) fn of(&mut self, kind: &Kind) -> &KindMeters {
        if self.last.as_ref().is_none_or(|(last, _)| last != kind) {
            self.last = Some((kind.clone(), self.kinds.of(kind)));
        }
        let (_, meters) = self.last.as_ref().expect("it has just been set");
        meters
    }

    /// Of a kind that the store may not have: it is not counted by a name that is not known.
    pub(crate) fn known(&self, kind: &Kind) -> Arc<KindMeters> {
        self.kinds.known(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Counts, Fence, Generation};

    fn kind(n: usize) -> Kind {
        Kind::new(format!("k{n}")).expect("a valid kind")
    }

    fn view(n: usize) -> KindView {
        KindView {
            kind: kind(n),
            counts: Counts::default(),
            oldest_ready: None,
            paused: false,
            generation: Generation(0),
            fence: Fence(0),
        }
    }

    fn lines(registry: &Registry) -> usize {
        let families = registry.gather();
        let claimed = families.iter().find(|family| family.name() == "requeue_claimed_total");
        claimed.map_or(0, |family| family.get_metric().len())
    }

    #[test]
    fn kinds_beyond_the_limit_have_no_name_until_others_are_gone() {
        let registry = Registry::new();
        let kinds = Kinds { limit: 10, ..Kinds::new(&registry) };
        for n in 0..=10 {
            kinds.by_kind().of(&kind(n)).claimed.inc();
        }
        assert_eq!(lines(&registry), 11, "with the nameless one");
        assert_eq!(kinds.nameless.claimed.get(), 1);
        kinds.keep_to(&[view(7)]);
        assert_eq!(lines(&registry), 2);
        assert_eq!(kinds.by_kind().of(&kind(7)).claimed.get(), 1);
        kinds.by_kind().of(&kind(10)).claimed.inc();
        assert_eq!(lines(&registry), 3);
    }

    #[test]
    fn a_kind_without_jobs_keeps_its_counters_while_there_is_room() {
        let kinds = Kinds::new(&Registry::new());
        kinds.by_kind().of(&kind(1)).claimed.inc();
        kinds.keep_to(&[]);
        assert_eq!(kinds.by_kind().of(&kind(1)).claimed.get(), 1);
    }

    #[test]
    fn a_kind_that_the_store_may_not_have_gets_no_name() {
        let registry = Registry::new();
        let kinds = Kinds::new(&registry);
        kinds.by_kind().known(&kind(1)).lost.inc();
        assert_eq!((lines(&registry), kinds.nameless.lost.get()), (1, 1));
    }
}
