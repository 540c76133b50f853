//! Counters by kind.

use super::registered;
use crate::instrumented::outcomes::{self, LeaseEnd};
use crate::series::Activity;
use prometheus::core::Metric;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use requeue_jobs::{Kind, KindView};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Buckets in seconds: from a millisecond, the resolution of stores, to an hour.
pub(crate) const LATENESS: [f64; 18] = [
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
const PLAIN: [(&str, &str); 6] = [
    ("requeue_put_conditions_refused_total", "Puts rejected because their condition did not hold."),
    ("requeue_claimed_total", "Claimed jobs. Each claimed job is one lease."),
    ("requeue_extended_total", "Extended leases."),
    (
        "requeue_lease_lost_total",
        "Settlements rejected because the lease had expired or was settled before.",
    ),
    ("requeue_lapses_total", "Expired leases that claims and reaps on this node ended."),
    ("requeue_schedule_runs_total", "Runs of schedules that this node started."),
];

/// The label of all kinds that have none of their own. No kind can have this name.
pub(super) const OTHERS: &str = "(other)";

/// How many kinds have a label of their own: about 50 lines per kind, so about 1.5 MB of text.
pub(crate) const DEFAULT_LIMIT: usize = 200;

/// The counters of all kinds.
pub(super) struct KindCounters {
    by_outcome: [IntCounterVec; BY_OUTCOME.len()],
    plain: [IntCounterVec; PLAIN.len()],
    lateness: HistogramVec,
    /// The kinds that the store has or had, as far as this node knows.
    /// Invariant: at most `limit`, each with a child in every vector above.
    known: RwLock<HashMap<Kind, Arc<KindMeters>>>,
    limit: AtomicUsize,
    /// Counts what belongs to a kind that the store may not have: its label is empty.
    nameless: Arc<KindMeters>,
    /// Counts what belongs to the kinds beyond the limit, once there is one: their label is
    /// [`OTHERS`].
    others: OnceLock<Arc<KindMeters>>,
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
    pub(crate) runs: IntCounter,
    lateness: Histogram,
    /// How many of the expired leases made their job dead. Not exported.
    expired_dead: AtomicU64,
    /// The sum of the counters at the last scrape.
    counted: AtomicU64,
}

impl KindMeters {
    /// Returns how much was counted in total.
    fn sum(&self) -> u64 {
        let outcomes = [&self.puts[..], &self.settled, &self.changed, &self.restored].concat();
        let plain =
            [&self.refused, &self.claimed, &self.extended, &self.lost, &self.expired, &self.runs];
        outcomes.iter().chain(plain).map(IntCounter::get).sum()
    }

    /// Returns whether nothing was counted since the last scrape.
    fn is_idle(&self) -> bool {
        self.sum() == self.counted.load(Relaxed)
    }

    /// Remembers what was counted until this scrape.
    fn seen(&self) {
        self.counted.store(self.sum(), Relaxed);
    }

    pub(crate) fn late(&self, by: Duration) {
        self.lateness.observe(by.as_secs_f64());
    }

    /// Counts an expired lease.
    pub(crate) fn lease_expired(&self, died: bool) {
        self.expired.inc();
        self.expired_dead.fetch_add(u64::from(died), Relaxed);
    }

    /// Returns what was counted so far, for the time series.
    fn activity(&self) -> Activity {
        let settled = |end: LeaseEnd| self.settled[end as usize].get();
        let mut activity = Activity {
            put: self.puts.iter().map(IntCounter::get).sum(),
            claimed: self.claimed.get(),
            acked: settled(LeaseEnd::Acked) + settled(LeaseEnd::Requeued),
            failed: settled(LeaseEnd::Retried) + settled(LeaseEnd::Dead) + self.expired.get(),
            dead: settled(LeaseEnd::Dead) + self.expired_dead.load(Relaxed),
            ..Activity::default()
        };
        let metric = self.lateness.metric();
        let histogram = metric.get_histogram();
        let mut below = 0;
        for (count, bucket) in activity.lateness.iter_mut().zip(histogram.get_bucket()) {
            *count = bucket.cumulative_count() - below;
            below = bucket.cumulative_count();
        }
        activity.lateness[LATENESS.len()] = histogram.get_sample_count() - below;
        activity
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
            limit: AtomicUsize::new(DEFAULT_LIMIT),
            nameless,
            others: OnceLock::new(),
        }
    }

    pub(super) fn by_kind(&self) -> ByKind<'_> {
        ByKind { kinds: self, last: None }
    }

    /// Returns the counters of the kinds beyond the limit.
    fn others(&self) -> Arc<KindMeters> {
        let made = || Arc::new(meters(&self.by_outcome, &self.plain, &self.lateness, OTHERS));
        self.others.get_or_init(made).clone()
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
        if known.len() >= self.limit.load(Relaxed) && !known.contains_key(kind) {
            return self.others();
        }
        let made =
            || Arc::new(meters(&self.by_outcome, &self.plain, &self.lateness, kind.as_str()));
        known.entry(kind.clone()).or_insert_with(made).clone()
    }

    /// Returns what was counted of each kind so far; `None` stands for the kinds beyond the limit.
    pub(super) fn activity(&self) -> Vec<(Option<Kind>, Activity)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let named = known.iter().map(|(kind, meters)| (Some(kind.clone()), meters.activity()));
        // Nothing is put, claimed or settled of a kind that the store does not have.
        named.chain(self.others.get().map(|others| (None, others.activity()))).collect()
    }

    /// Sets the number of kinds that have a label of their own.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Returns the kinds that have counters of their own. A kind whose jobs were delivered was claimed.
    pub(super) fn named(&self) -> HashSet<Kind> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().cloned().collect()
    }

    /// Returns the kinds that have a label of their own, given all kinds of the store. To be called
    /// for each scrape.
    ///
    /// Kinds with counters come first, then those with the most jobs. A kind keeps its label, so
    /// that its counters do not restart: it loses it only if it is idle, which means that nothing
    /// was counted since the last scrape, and a kind without a label has more than twice as many
    /// jobs.
    pub(super) fn choose(&self, views: &[KindView]) -> HashSet<Kind> {
        let limit = self.limit.load(Relaxed);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let jobs: HashMap<&Kind, u64> =
            views.iter().map(|view| (&view.kind, count(view))).collect();
        let mut others: Vec<_> =
            views.iter().filter(|view| !known.contains_key(&view.kind)).collect();
        others.sort_by_key(|view| (Reverse(count(view)), &view.kind));
        let idle = known.iter().filter(|(_, meters)| meters.is_idle());
        let idle = idle.map(|(kind, _)| (jobs.get(kind).copied().unwrap_or(0), kind.clone()));
        let mut idle: Vec<_> = idle.collect();
        idle.sort();
        let mut idle = idle.into_iter().peekable();
        let mut named: HashSet<Kind> = known.keys().cloned().collect();
        for view in others {
            if named.len() >= limit {
                let is_smaller = |(jobs, _): &(u64, Kind)| jobs.saturating_mul(2) < count(view);
                let Some((_, kind)) = idle.next_if(is_smaller) else { break };
                self.forget(kind.as_str());
                known.remove(&kind);
                named.remove(&kind);
            }
            named.insert(view.kind.clone());
        }
        known.values().for_each(|meters| meters.seen());
        named
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
    let [refused, claimed, extended, lost, expired, runs] =
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
        runs,
        lateness: lateness.with_label_values(&[kind]),
        expired_dead: AtomicU64::new(0),
        counted: AtomicU64::new(0),
    }
}

/// Returns the number of jobs of a kind.
fn count(view: &KindView) -> u64 {
    let counts = view.counts;
    // Done jobs do not count: nothing happens to them any more.
    counts.pending.saturating_add(counts.leased).saturating_add(counts.dead)
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
    use requeue_jobs::Counts;

    fn kind(n: usize) -> Kind {
        Kind::new(format!("k{n}")).expect("a valid kind")
    }

    fn view(n: usize, pending: u64) -> KindView {
        KindView { counts: Counts { pending, ..Counts::default() }, ..KindView::new(kind(n)) }
    }

    fn lines(registry: &Registry) -> usize {
        let families = registry.gather();
        let claimed = families.iter().find(|family| family.name() == "requeue_claimed_total");
        claimed.map_or(0, |family| family.get_metric().len())
    }

    /// The named kinds, by their number.
    fn chosen(kinds: &KindCounters, views: &[KindView]) -> Vec<usize> {
        let chosen = kinds.choose(views);
        let mut chosen: Vec<usize> =
            chosen.iter().map(|kind| kind.as_str()[1..].parse().expect("a number")).collect();
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn kinds_beyond_the_limit_are_counted_together_until_others_are_idle() {
        let registry = Registry::new();
        let kinds = KindCounters::new(&registry);
        kinds.set_limit(3);
        for n in 0..10 {
            kinds.by_kind().of(&kind(n)).claimed.inc();
        }
        assert_eq!(lines(&registry), 5, "three kinds, the others, and the nameless one");
        assert_eq!(kinds.others().claimed.get(), 7);
        let views: Vec<KindView> = (0..10).map(|n| view(n, n as u64)).collect();
        assert_eq!(chosen(&kinds, &views), [0, 1, 2], "they are not idle");
        // Kind 1 is not idle. The others give their labels to those with the most jobs.
        kinds.by_kind().of(&kind(1)).claimed.inc();
        assert_eq!(chosen(&kinds, &views), [1, 8, 9]);
        assert_eq!(lines(&registry), 3, "the new ones have no counters yet");
        kinds.by_kind().of(&kind(9)).claimed.inc();
        assert_eq!(kinds.by_kind().of(&kind(9)).claimed.get(), 1);
        assert_eq!(kinds.by_kind().of(&kind(1)).claimed.get(), 2);
        assert_eq!(chosen(&kinds, &views), [7, 8, 9], "kind 1 is idle now");
    }

    #[test]
    fn a_kind_keeps_its_label_unless_another_has_twice_as_many_jobs() {
        let kinds = KindCounters::new(&Registry::new());
        kinds.set_limit(1);
        kinds.by_kind().of(&kind(1)).claimed.inc();
        assert_eq!(chosen(&kinds, &[]), [1], "a kind without jobs keeps its counters");
        assert_eq!(chosen(&kinds, &[view(1, 10), view(2, 20)]), [1]);
        assert_eq!(kinds.by_kind().of(&kind(1)).claimed.get(), 1);
        assert_eq!(chosen(&kinds, &[view(1, 10), view(2, 21)]), [2]);
    }

    #[test]
    fn a_kind_that_the_store_may_not_have_is_not_added() {
        let registry = Registry::new();
        let kinds = KindCounters::new(&registry);
        kinds.by_kind().known(&kind(1)).lost.inc();
        assert_eq!((lines(&registry), kinds.nameless.lost.get()), (1, 1));
    }
}
