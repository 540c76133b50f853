//! The history of each kind, in plain code.

use super::ring::Ring;
use crate::metrics::LATENESS;
use requeue_http::wire::{RecentJson, SeriesJson};
use requeue_jobs::{Counts, Kind, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const RECENT_STEP_MS: u64 = 5_000;
const RECENT_STEPS: usize = 12;
const HOUR_STEP_MS: u64 = 60_000;
const HOUR_STEPS: usize = 60;
const DAY_STEP_MS: u64 = 15 * 60_000;
const DAY_STEPS: usize = 96;

/// The number of buckets of lateness: the last one has no upper bound.
const BUCKETS: usize = LATENESS.len() + 1;

/// The span of time of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Hour,
    Day,
}

impl Span {
    pub(super) fn step(self) -> Duration {
        Duration::from_millis(self.steps().0)
    }

    /// Returns the start of the first of its steps.
    pub(super) fn start(self, now: Timestamp) -> Timestamp {
        let (step_ms, steps) = self.steps();
        let first = (now.as_millis() / step_ms + 1).saturating_sub(steps);
        Timestamp::from_millis(first * step_ms)
    }

    fn steps(self) -> (u64, u64) {
        match self {
            Span::Hour => (HOUR_STEP_MS, HOUR_STEPS as u64),
            Span::Day => (DAY_STEP_MS, DAY_STEPS as u64),
        }
    }
}

/// What was counted since the process began, or in a span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) put: u64,
    pub(crate) claimed: u64,
    pub(crate) acked: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
    /// The number of claims by lateness, in the buckets of [`LATENESS`].
    pub(crate) lateness: [u64; BUCKETS],
}

impl Activity {
    fn fields(&mut self) -> impl Iterator<Item = &mut u64> {
        let Activity { put, claimed, acked, failed, dead, lateness } = self;
        [put, claimed, acked, failed, dead].into_iter().chain(lateness)
    }

    fn add(&mut self, mut other: Activity) {
        self.fields().zip(other.fields()).for_each(|(sum, count)| *sum += *count);
    }

    /// Returns what was counted after `before`. A counter that was reset counts from zero.
    fn since(mut self, mut before: Activity) -> Activity {
        for (count, before) in self.fields().zip(before.fields()) {
            *count = count.checked_sub(*before).unwrap_or(*count);
        }
        self
    }

    /// Returns the lateness that the given part of the claims does not exceed, in milliseconds,
    /// interpolated within its bucket.
    fn quantile(&self, part: f64) -> Option<u64> {
        let total: u64 = self.lateness.iter().sum();
        if total == 0 {
            return None;
        }
        let wanted = part * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (count, upper) in self.lateness.iter().zip(LATENESS) {
            let count = *count as f64;
            if below + count >= wanted && count > 0.0 {
                let inside = (wanted - below) / count;
                return Some(((lower + (upper - lower) * inside) * 1000.0).round() as u64);
            }
            (below, lower) = (below + count, upper);
        }
        // Beyond the last bound, it is not known how far.
        Some((lower * 1000.0) as u64)
    }
}

/// Numbers of jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pending: u64,
    ready: u64,
}

impl From<&Counts> for Counted {
    fn from(counts: &Counts) -> Self {
        Counted { pending: counts.pending, ready: counts.ready }
    }
}

/// One step of a history.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    activity: Activity,
    counted: Option<Counted>,
}

/// The history of a kind, or of all.
#[derive(Debug)]
pub(super) struct History {
    recent: Ring<Activity, RECENT_STEPS>,
    hour: Ring<Step, HOUR_STEPS>,
    day: Ring<Step, DAY_STEPS>,
    counted: Counted,
}

impl Default for History {
    fn default() -> Self {
        History {
            recent: Ring::new(RECENT_STEP_MS),
            hour: Ring::new(HOUR_STEP_MS),
            day: Ring::new(DAY_STEP_MS),
            counted: Counted::default(),
        }
    }
}

impl History {
    fn add(&mut self, activity: Activity, now: Timestamp) {
        self.recent.at(now).add(activity);
        self.hour.at(now).activity.add(activity);
        self.day.at(now).activity.add(activity);
    }

    /// Stores the numbers of jobs that were counted.
    fn keep_counted(&mut self, now: Timestamp) {
        let counted = Some(std::mem::take(&mut self.counted));
        self.hour.at(now).counted = counted;
        self.day.at(now).counted = counted;
    }

    pub(super) fn show(&mut self, kind: Option<String>, span: Span, now: Timestamp) -> SeriesJson {
        let recent = self.recent(now);
        let mut shown = SeriesJson { kind, recent, ..SeriesJson::default() };
        let mut push = |step: &Step| {
            let Step { activity, counted } = step;
            shown.put.push(activity.put);
            shown.claimed.push(activity.claimed);
            shown.acked.push(activity.acked);
            shown.failed.push(activity.failed);
            shown.dead.push(activity.dead);
            shown.lateness_p50_ms.push(activity.quantile(0.5));
            shown.lateness_p99_ms.push(activity.quantile(0.99));
            shown.pending.push(counted.map(|counted| counted.pending));
            shown.ready.push(counted.map(|counted| counted.ready));
        };
        match span {
            Span::Hour => self.hour.values(now).for_each(&mut push),
            Span::Day => self.day.values(now).for_each(&mut push),
        }
        shown
    }

    fn recent(&mut self, now: Timestamp) -> RecentJson {
        let mut sum = Activity::default();
        self.recent.values(now).for_each(|step| sum.add(*step));
        RecentJson {
            seconds: RECENT_STEP_MS / 1000 * RECENT_STEPS as u64,
            put: sum.put,
            claimed: sum.claimed,
            acked: sum.acked,
            failed: sum.failed,
            dead: sum.dead,
            lateness_p50_ms: sum.quantile(0.5),
            lateness_p99_ms: sum.quantile(0.99),
        }
    }
}

/// The histories of all kinds.
#[derive(Debug, Default)]
pub(super) struct Histories {
    pub(super) total: History,
    /// Invariant: only kinds of the last sample, so no more than have metrics of their own.
    pub(super) kinds: BTreeMap<Kind, History>,
    /// The counters at the last sample.
    last: HashMap<Option<Kind>, Activity>,
}

impl Histories {
    /// Adds what was counted since the last sample. `None` stands for the kinds without metrics of
    /// their own.
    pub(super) fn record(&mut self, activity: &[(Option<Kind>, Activity)], now: Timestamp) {
        let last = std::mem::take(&mut self.last);
        for (kind, counted) in activity {
            let before = last.get(kind).copied().unwrap_or_default();
            let new = counted.since(before);
            self.total.add(new, now);
            if let Some(kind) = kind {
                self.kinds.entry(kind.clone()).or_default().add(new, now);
            }
        }
        self.last = activity.iter().cloned().collect();
        let last = &self.last;
        self.kinds.retain(|kind, _| last.contains_key(&Some(kind.clone())));
    }

    /// Notes the numbers of jobs of one kind, until [`counted`](Self::counted).
    pub(super) fn count(&mut self, kind: &Kind, counted: Counted) {
        self.total.counted.pending += counted.pending;
        self.total.counted.ready += counted.ready;
        if let Some(history) = self.kinds.get_mut(kind) {
            history.counted = counted;
        }
    }

    /// Stores the numbers of jobs: all kinds were counted.
    pub(super) fn counted(&mut self, now: Timestamp) {
        self.total.keep_counted(now);
        self.kinds.values_mut().for_each(|history| history.keep_counted(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lateness(buckets: &[(usize, u64)]) -> Activity {
        let mut activity = Activity::default();
        for (bucket, count) in buckets {
            activity.lateness[*bucket] = *count;
        }
        activity
    }

    #[test]
    fn quantiles_are_interpolated_within_their_bucket() {
        assert_eq!(Activity::default().quantile(0.5), None);
        // Bucket 9 is from 0.5 to 1 s.
        let activity = lateness(&[(0, 50), (9, 50)]);
        assert_eq!(activity.quantile(0.5), Some(1));
        assert_eq!(activity.quantile(0.75), Some(750));
        assert_eq!(lateness(&[(BUCKETS - 1, 3)]).quantile(0.99), Some(3_600_000));
    }

    #[test]
    fn a_counter_that_was_reset_counts_from_zero() {
        let before = Activity { put: 10, acked: 4, ..Activity::default() };
        let after = Activity { put: 3, acked: 9, ..Activity::default() };
        let new = after.since(before);
        assert_eq!((new.put, new.acked), (3, 5));
    }

    #[test]
    fn a_kind_that_lost_its_metrics_has_no_history() {
        let mut histories = Histories::default();
        let now = Timestamp::from_millis(1_000_000);
        let mail = Some(Kind::new("mail").unwrap());
        let activity = Activity { put: 1, ..Activity::default() };
        histories.record(&[(mail.clone(), activity), (None, activity)], now);
        assert_eq!(histories.kinds.len(), 1);
        histories.record(&[(None, activity)], now);
        assert_eq!(histories.kinds.len(), 0);
        assert_eq!(histories.total.show(None, Span::Hour, now).put.last(), Some(&2));
    }
}
