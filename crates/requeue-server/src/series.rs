//! What this node did in the last minute, hour and day: a small time series for people.
//!
//! Every five seconds the [`Sampler`] reads the counters of the [metrics](crate::metrics), and adds
//! what was counted since then to three rings per kind:
//!
//! ```text
//!   counters ── every 5 s: difference ──▶ recent   12 × 5 s
//!                                    ├──▶ hour     60 × 1 min
//!                                    └──▶ day      96 × 15 min
//! ```
//!
//! So recording costs nothing per request. The kinds are those that have metrics of their own, at most
//! [`metrics_kinds`](crate::Limits::metrics_kinds): about 25 KB each. Nothing is stored: after a restart
//! the series are empty, and each node has its own.

mod history;
mod ring;

pub(crate) use history::{Activity, Counted, Span};

use crate::instrumented::InstrumentedStore;
use crate::listen::Shutdown;
use history::Histories;
use requeue_http::wire::{SeriesJson, SeriesList};
use requeue_jobs::{Kind, Store, WallClock};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the counters are read. `recent` has this resolution.
const INTERVAL: Duration = Duration::from_secs(5);

/// After how many intervals the jobs are counted: this calls the store.
const COUNT_EVERY: u32 = 12;

/// The time series of this node.
pub(crate) struct Series {
    histories: Mutex<Histories>,
    wall_clock: WallClock,
}

impl Series {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Series { histories: Mutex::default(), wall_clock }
    }

    /// Returns the total, and the series of those kinds for which `wanted` holds.
    pub(crate) fn list(&self, span: Span, wanted: impl Fn(&Kind) -> bool) -> SeriesList {
        let now = self.wall_clock.now();
        let mut histories = self.lock();
        let show = |kind, history: &mut history::History| history.show(kind, span, now);
        let total = show(None, &mut histories.total);
        let kinds = histories.kinds.iter_mut().filter(|(kind, _)| wanted(kind));
        let kinds: Vec<SeriesJson> =
            kinds.map(|(kind, history)| show(Some(kind.as_str().to_owned()), history)).collect();
        SeriesList { from: span.start(now).into(), step: span.step().into(), total, kinds }
    }

    fn lock(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the counters of a store into its [`Series`].
pub(crate) struct Sampler {
    pub(crate) store: Arc<InstrumentedStore>,
    pub(crate) series: Arc<Series>,
}

impl Sampler {
    /// Runs until `stop` is requested.
    pub(crate) async fn run(self, stop: Shutdown) {
        let work = async {
            for n in 0_u32.. {
                self.sample(n % COUNT_EVERY == 0).await;
                self.series.wall_clock.clock().sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = work => {}
        }
    }

    /// Takes one sample, also of the numbers of jobs if `count` is set. If the store fails, these are
    /// unknown until the next time.
    async fn sample(&self, count: bool) {
        let counted = match count {
            true => self.store.kinds().await.ok(),
            false => None,
        };
        let activity = self.store.metrics().activity();
        let now = self.series.wall_clock.now();
        let mut histories = self.series.lock();
        histories.record(&activity, now);
        for view in counted.iter().flatten() {
            histories.count(&view.kind, Counted::from(&view.counts));
        }
        if counted.is_some() {
            histories.counted(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::ManualClock;
    use requeue_jobs::{Claim, Jobs, MemoryStore, Settle, Settlement, Timestamp, WorkerName};

    #[tokio::test]
    async fn a_sample_contains_what_was_done_since_the_last_one() {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_796_112_000_000));
        let store = MemoryStore::with(wall_clock.clone());
        let store = Arc::new(InstrumentedStore::new(Arc::new(store), wall_clock.clone()));
        let series = Arc::new(Series::new(wall_clock));
        let sampler = Sampler { store: store.clone(), series: series.clone() };
        sampler.sample(true).await;

        let jobs = Jobs::new(store.clone());
        for id in ["a", "b", "c"] {
            jobs.put("mail", id, "").await.unwrap();
        }
        jobs.put("report", "daily", "").after(Duration::from_secs(3600)).await.unwrap();
        clock.advance(Duration::from_secs(2));
        let kind = Kind::new("mail").unwrap();
        let worker = WorkerName::new("w").unwrap();
        let claim = Claim { kinds: vec![kind], max: 2, lease: None, worker, nonce: 1 };
        let claimed = store.claim(claim).await.unwrap().jobs;
        let actions = [Settlement::Ack, Settlement::Bury { error: "no such address".into() }];
        let settle = claimed.into_iter().zip(actions);
        let settle = settle.map(|(job, action)| Settle { receipt: job.receipt, action });
        store.settle(settle.collect()).await.unwrap();
        clock.advance(Duration::from_secs(3));
        sampler.sample(true).await;

        let list = series.list(Span::Hour, |kind| kind.as_str() == "mail");
        assert_eq!(list.kinds.len(), 1, "only the kind that was asked for");
        let mail = &list.kinds[0];
        assert_eq!(mail.kind.as_deref(), Some("mail"));
        let last = |counts: &[u64]| *counts.last().unwrap();
        let counts = [&mail.put, &mail.claimed, &mail.acked, &mail.failed, &mail.dead];
        assert_eq!(counts.map(|counts| last(counts)), [3, 2, 1, 1, 1]);
        assert_eq!(mail.put.len(), 60);
        assert_eq!(mail.put.iter().sum::<u64>(), 3, "earlier steps are empty");
        assert_eq!(mail.pending.last(), Some(&Some(1)));
        let p50 = mail.recent.lateness_p50_ms.unwrap();
        assert!((1000..=2500).contains(&p50), "{p50} ms, the jobs were claimed after 2 s");
        assert_eq!((mail.recent.put, mail.recent.seconds), (3, 60));
        assert_eq!(last(&list.total.put), 4);
        assert_eq!(list.total.pending.last(), Some(&Some(2)));
        assert_eq!((&*list.step, &*list.from), ("1m", "2026-12-01T07:01:00.000Z"));

        // A minute later, only the sliding window has moved on.
        clock.advance(Duration::from_secs(65));
        sampler.sample(false).await;
        let list = series.list(Span::Hour, |_| true);
        assert_eq!(list.total.recent.put, 0);
        assert_eq!((last(&list.total.put), list.total.put[58]), (0, 4));
        let day = series.list(Span::Day, |_| true);
        assert_eq!((last(&day.total.put), day.total.put.len()), (4, 96));
    }
}
