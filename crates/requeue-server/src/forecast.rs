//! How many jobs become due in the next minute, hour, day and week.
//!
//! Counting may take long: the disk store reads every job of the span. So what was counted is used again for
//! [`SHARE`] times as long as counting took, between [`MIN_AGE`] and [`MAX_AGE`], however many people look.
//! The next hour has few jobs even if the week has millions, and is counted by itself: so it is
//! up to date, and the week, which changes slowly, costs little. `counted_at` of each horizon in the
//! response says when its jobs were counted.

use requeue::Moment;
use requeue_http::wire::{Forecast, Horizon};
use requeue_jobs::{
    Kind, KindView, SCHEDULE_TIMERS, Spans, Store, StoreError, Timestamp, WallClock,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;

/// Counts are used again for this many times as long as counting took.
const SHARE: u32 = 1000;

/// Counts are used again for at least this long …
const MIN_AGE: Duration = Duration::from_secs(1);

/// … and at most this long.
const MAX_AGE: Duration = Duration::from_secs(300);

/// How many forecasts are kept: of all kinds, and of those that somebody looks at.
const MAX_KEPT: usize = 64;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const QUARTER: Duration = Duration::from_secs(15 * 60);

/// The number of quarters of an hour in a week.
const QUARTERS: usize = 7 * 24 * 4;

/// How many quarters of an hour make a span of the horizon `week`.
const QUARTERS_PER_SPAN: usize = 8;

/// The forecasts that were made recently.
#[derive(Default)]
pub(crate) struct Forecasts {
    by_kind: StdMutex<HashMap<Option<Kind>, Entry>>,
}

/// The forecast of a kind, or of all. The lock is held while jobs are counted.
type Entry = Arc<Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    /// The minute and the hour.
    near: Option<Counted>,
    /// The day and the week.
    far: Option<Counted>,
}

impl Kept {
    fn forecast(&self, views: &[KindView]) -> Forecast {
        let horizons = [&self.near, &self.far].into_iter().flatten();
        let horizons: Vec<Horizon> = horizons.flat_map(|part| part.horizons.clone()).collect();
        let within_a_week = self.far.as_ref().map_or(0, |far| far.jobs);
        let ready: u64 = views.iter().map(|view| view.counts.ready).sum();
        let pending: u64 = views.iter().map(|view| view.counts.pending).sum();
        // Jobs may have become due or changed since they were counted.
        let later = pending.saturating_sub(ready).saturating_sub(within_a_week);
        Forecast { horizons, ready, later }
    }
}

struct Counted {
    horizons: Vec<Horizon>,
    /// The number of jobs in the longest of them.
    jobs: u64,
    valid_until: Moment,
}

impl Forecasts {
    /// Returns the forecast of a kind, or of all kinds. Concurrent calls for the same kind count once.
    pub(crate) async fn get(
        &self,
        kind: &Option<Kind>,
        store: &dyn Store,
        wall_clock: &WallClock,
    ) -> Result<Forecast, StoreError> {
        let entry = self.entry(kind);
        let mut kept = entry.lock().await;
        let views = views(kind, store).await?;
        let now = wall_clock.clock().now();
        if kept.near.as_ref().is_none_or(|near| near.valid_until <= now) {
            kept.near = Some(near(&views, store, wall_clock).await?);
        }
        if kept.far.as_ref().is_none_or(|far| far.valid_until <= now) {
            kept.far = Some(far(&views, store, wall_clock).await?);
        }
        Ok(kept.forecast(&views))
    }

    /// Returns the forecast if nothing has to be counted for it. If another call counts, waits for it.
    pub(crate) async fn kept(
        &self,
        kind: &Option<Kind>,
        store: &dyn Store,
        wall_clock: &WallClock,
    ) -> Result<Option<Forecast>, StoreError> {
        let entry = self.entry(kind);
        let kept = entry.lock().await;
        let now = wall_clock.clock().now();
        let is_valid =
            |part: &Option<Counted>| part.as_ref().is_some_and(|part| now < part.valid_until);
        if !is_valid(&kept.near) || !is_valid(&kept.far) {
            return Ok(None);
        }
        Ok(Some(kept.forecast(&views(kind, store).await?)))
    }

    /// Returns the place for the forecast of a kind. If there are too many, all others are dropped.
    fn entry(&self, kind: &Option<Kind>) -> Entry {
        let mut by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        if by_kind.len() >= MAX_KEPT && !by_kind.contains_key(kind) {
            by_kind.clear();
        }
        by_kind.entry(kind.clone()).or_default().clone()
    }
}

async fn views(kind: &Option<Kind>, store: &dyn Store) -> Result<Vec<KindView>, StoreError> {
    if let Some(kind) = kind {
        return Ok(vec![store.kind(kind.clone()).await?]);
    }
    let mut views = store.kinds().await?;
    // The timers of schedules are not jobs that somebody has put.
    views.retain(|view| view.kind.as_str() != SCHEDULE_TIMERS);
    Ok(views)
}

async fn near(
    views: &[KindView],
    store: &dyn Store,
    wall_clock: &WallClock,
) -> Result<Counted, StoreError> {
    let spans = [(SECOND, 60), (MINUTE, 60)];
    let (at, [minute, hour], valid_until) = count(views, spans, store, wall_clock).await?;
    let jobs = hour.iter().sum();
    let horizons = vec![horizon("minute", SECOND, minute, at), horizon("hour", MINUTE, hour, at)];
    Ok(Counted { horizons, jobs, valid_until })
}

async fn far(
    views: &[KindView],
    store: &dyn Store,
    wall_clock: &WallClock,
) -> Result<Counted, StoreError> {
    let spans = [(QUARTER, QUARTERS)];
    let (at, [quarters], valid_until) = count(views, spans, store, wall_clock).await?;
    let day = quarters[..96].to_vec();
    let week = quarters.chunks(QUARTERS_PER_SPAN).map(|span| span.iter().sum()).collect();
    let week_span = QUARTER * QUARTERS_PER_SPAN as u32;
    let horizons = vec![horizon("day", QUARTER, day, at), horizon("week", week_span, week, at)];
    Ok(Counted { horizons, jobs: quarters.iter().sum(), valid_until })
}

fn horizon(name: &str, span: Duration, counts: Vec<u64>, at: Timestamp) -> Horizon {
    let (name, span, counted_at) = (name.to_owned(), span.into(), at.into());
    Horizon { name, span, counts, counted_at }
}

/// Counts the waiting jobs of these kinds in consecutive spans of each length. Returns when, and how long
/// the result is used.
async fn count<const N: usize>(
    views: &[KindView],
    spans: [(Duration, usize); N],
    store: &dyn Store,
    wall_clock: &WallClock,
) -> Result<(Timestamp, [Vec<u64>; N], Moment), StoreError> {
    let (clock, now) = (wall_clock.clock(), wall_clock.now());
    let began = clock.now();
    // What is due at this millisecond is ready.
    let from = now.saturating_add(Duration::from_millis(1));
    let mut sums = spans.map(|(_, count)| vec![0_u64; count]);
    let waiting = |view: &&KindView| view.counts.pending > view.counts.ready;
    for view in views.iter().filter(waiting) {
        for ((length, count), sums) in spans.into_iter().zip(&mut sums) {
            let counts = store.upcoming(view.kind.clone(), Spans { from, length, count }).await?;
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    let ended = clock.now();
    let age = ended.saturating_since(began).saturating_mul(SHARE).clamp(MIN_AGE, MAX_AGE);
    Ok((now, sums, ended.saturating_add(age)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::ManualClock;
    use requeue_jobs::{Jobs, MemoryStore, Timestamp};

    #[tokio::test]
    async fn jobs_are_counted_by_when_they_are_due_and_again_after_a_second() {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_796_112_000_000));
        let store = MemoryStore::with(wall_clock.clone());
        let jobs = Jobs::with_wall_clock(Arc::new(store.clone()), wall_clock.clone());
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for (n, delay) in [Duration::ZERO, SECOND * 5, MINUTE * 5, hours(5), hours(50), hours(500)]
            .iter()
            .enumerate()
        {
            jobs.put("mail", &n.to_string(), "").after(*delay).await.unwrap();
        }
        jobs.put("report", "daily", "").after(hours(5)).await.unwrap();

        let forecasts = Forecasts::default();
        let all = forecasts.get(&None, &store, &wall_clock).await.unwrap();
        let nonzero = |horizon: &Horizon| {
            let counts = horizon.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let counts: Vec<_> = counts.map(|(n, count)| (n, *count)).collect();
            (horizon.name.clone(), horizon.span.clone(), horizon.counts.len(), counts)
        };
        let expected = [
            ("minute", "1s", 60, vec![(4, 1)]),
            ("hour", "1m", 60, vec![(0, 1), (4, 1)]),
            ("day", "15m", 96, vec![(0, 2), (19, 2)]),
            ("week", "2h", 84, vec![(0, 2), (2, 2), (24, 1)]),
        ];
        let expected =
            expected.map(|(name, span, len, counts)| (name.into(), span.into(), len, counts));
        assert_eq!(all.horizons.iter().map(nonzero).collect::<Vec<_>>(), expected);
        assert_eq!((all.ready, all.later), (1, 1));

        let mail = Some(Kind::new("mail").unwrap());
        let one = forecasts.get(&mail, &store, &wall_clock).await.unwrap();
        assert_eq!(one.horizons[2].counts.iter().sum::<u64>(), 3);

        jobs.put("mail", "new", "").after(SECOND * 30).await.unwrap();
        let again = forecasts.get(&mail, &store, &wall_clock).await.unwrap();
        assert_eq!(one.horizons, again.horizons, "within a second, the counts are used again");
        clock.advance(SECOND);
        let later = forecasts.get(&mail, &store, &wall_clock).await.unwrap();
        assert_eq!(later.horizons[0].counts.iter().sum::<u64>(), 2);
    }
}
