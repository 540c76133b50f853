//! Counters by kind.

use super::registered;
use crate::instrumented::outcomes;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::{Kind, KindView};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Buckets in seconds: from a millisecond, the resolution of stores, to an hour.
const LATENESS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 3600.0,
];

/// Counters with the label `outcome`: name, help text, values of the label.
const BY_OUTCOME: [(&str, &str, &[&str]); 4] = [
    ("requeue_puts_total", "Accepted puts, by outcome.", &outcomes::PUT),
    (
        "requeue_settled_total",
        "Settled leases, by outcome. Every lease is settled once or expires.",
        &outcomes::LEASE_ENDS,
    ),
    (
        "requeue_changed_total",
        "Jobs that were cancelled, run now or revived by id, by outcome.",
        &outcomes::CHANGED,
    ),
    ("requeue_restored_total", "Imported jobs, by outcome.", &outcomes::RESTORED),
];

/// Counters without outcomes: name, help text.
const PLAIN: [(&str, &str); 5] = [
    ("requeue_put_conditions_refused_total", "Puts rejected because their condition did not hold."),
    ("requeue_claimed_total", "Claimed jobs. Each claimed job is one lease."),
    ("requeue_extended_total", "Extended leases."),
    (
        "requeue_lease_lost_total",
        "Settlements rejected because the lease had expired or was settled before.",
    ),
    ("requeue_lapses_total", "Expired leases that claims and reaps on this node ended."),
];

/// The counters of all kinds.
pub(super) struct KindCounters {
    by_outcome: [IntCounterVec; BY_OUTCOME.len()],
    plain: [IntCounterVec; PLAIN.len()],
    lateness: HistogramVec,
    /// The kinds that the store has or had, as far as this node knows.
    /// Invariant: at most `limit`, each with a child in every vector above.
    known: RwLock<HashMap<Kind, Arc<KindMeters>>>,
    /// [`MAX_KINDS`]; smaller in tests.
    limit: usize,
    /// Counts what belongs to a kind that is not known or beyond the limit: its label is empty.
    nameless: Arc<KindMeters>,
}

/// The counters of one kind.
pub(crate) struct KindMeters {
    pub(crate) puts: [IntCounter; outcomes::PUT.len()],
    pub(crate) settled: [IntCounter; outcomes::LEASE_ENDS.len()],
    pub(crate) changed: [IntCounter; outcomes::CHANGED.len()],
    pub(crate) restored: [IntCounter; outcomes::RESTORED.len()],
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

impl KindCounters {
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
                "Time between the due time of a job and its claim, by the store's clock if the claim specifies the lease, otherwise by this node's clock.",
            )
            .buckets(LATENESS.to_vec()),
            &["kind"],
        );
        let lateness = registered(registry, lateness);
        let nameless = Arc::new(meters(&by_outcome, &plain, &lateness, ""));
        KindCounters {
            by_outcome,
            plain,
            lateness,
            known: RwLock::default(),
            limit: MAX_KINDS,
            nameless,
        }
    }

    pub(super) fn by_kind(&self) -> ByKind<'_> {
        ByKind { kinds: self, last: None }
    }

    /// Returns the counters of a kind that the store may not have.
    fn known(&self, kind: &Kind) -> Arc<KindMeters> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(kind).unwrap_or(&self.nameless).clone()
    }

    /// Returns the counters of a kind that the store has, and creates them if necessary.
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

    /// Removes kinds that the store no longer has, but only once the limit is reached: the store
    /// does not list a kind whose jobs are all done, and its counters must not restart at zero.
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
        let reason = "a known kind has all counters";
        for (counter, (_, _, outcomes)) in self.by_outcome.iter().zip(BY_OUTCOME) {
            for outcome in outcomes {
                counter.remove_label_values(&[kind, outcome]).expect(reason);
            }
        }
        for counter in &self.plain {
            counter.remove_label_values(&[kind]).expect(reason);
        }
        self.lateness.remove_label_values(&[kind]).expect(reason);
    }
}

/// Creates all counters of a kind at zero, so that rates include the first increment.
fn meters(
    [puts, settled, changed, restored]: &[IntCounterVec; BY_OUTCOME.len()],
    plain: &[IntCounterVec; PLAIN.len()],
    lateness: &HistogramVec,
    kind: &str,
) -> KindMeters {
    let [refused, claimed, extended, lost, expired] =
        plain.each_ref().map(|counter| counter.with_label_values(&[kind]));
    KindMeters {
        puts: outcomes::PUT.map(|outcome| puts.with_label_values(&[kind, outcome])),
        settled: outcomes::LEASE_ENDS.map(|outcome| settled.with_label_values(&[kind, outcome])),
        changed: outcomes::CHANGED.map(|outcome| changed.with_label_values(&[kind, outcome])),
        restored: outcomes::RESTORED.map(|outcome| restored.with_label_values(&[kind, outcome])),
        refused,
        claimed,
        extended,
        lost,
        expired,
        lateness: lateness.with_label_values(&[kind]),
    }
}

/// Looks up the counters of kinds for a batch. Most batches have one kind: it is looked up once.
pub(crate) struct ByKind<'a> {
    kinds: &'a KindCounters,
    last: Option<(Kind, Arc<KindMeters>)>,
}

impl ByKind<'_> {
    /// Returns the counters of a kind that the store has.
    pub(crate) fn of(&mut self, kind: &Kind) -> &KindMeters {
        if self.last.as_ref().is_none_or(|(last, _)| last != kind) {
            self.last = Some((kind.clone(), self.kinds.of(kind)));
        }
        let (_, meters) = self.last.as_ref().expect("it was just set");
        meters
    }

    /// Returns the counters of a kind that the store may not have: an unknown kind gets the
    /// nameless counters.
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
    fn kinds_beyond_the_limit_are_nameless_until_others_are_removed() {
        let registry = Registry::new();
        let kinds = KindCounters { limit: 10, ..KindCounters::new(&registry) };
        for n in 0..=10 {
            kinds.by_kind().of(&kind(n)).claimed.inc();
        }
        assert_eq!(lines(&registry), 11, "including the nameless one");
        assert_eq!(kinds.nameless.claimed.get(), 1);
        kinds.keep_to(&[view(7)]);
        assert_eq!(lines(&registry), 2);
        assert_eq!(kinds.by_kind().of(&kind(7)).claimed.get(), 1);
        kinds.by_kind().of(&kind(10)).claimed.inc();
        assert_eq!(lines(&registry), 3);
    }

    #[test]
    fn a_kind_without_jobs_keeps_its_counters_while_there_is_room() {
        let kinds = KindCounters::new(&Registry::new());
        kinds.by_kind().of(&kind(1)).claimed.inc();
        kinds.keep_to(&[]);
        assert_eq!(kinds.by_kind().of(&kind(1)).claimed.get(), 1);
    }

    #[test]
    fn a_kind_that_the_store_may_not_have_is_not_added() {
        let registry = Registry::new();
        let kinds = KindCounters::new(&registry);
        kinds.by_kind().known(&kind(1)).lost.inc();
        assert_eq!((lines(&registry), kinds.nameless.lost.get()), (1, 1));
    }
}
