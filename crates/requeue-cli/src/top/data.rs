//! What `top` shows, and how it is fetched.
//!
//! A server provides everything; an endpoint that it does not have yet (404) leaves its part of the screen
//! empty. Without a server, a store provides the counts and the histogram.

use super::horizon::Horizon;
use crate::error::{CliError, Result};
use crate::output::escape;
use crate::store_args::{IfMissing, StoreArgs, StoreLocation};
use crate::times;
use crate::workers::{self, Worker};
use requeue_http::HttpStore;
use requeue_http::client::{CallError, path};
use requeue_http::wire::{Forecast, LATE_AFTER, SeriesJson, SeriesList, StatsJson};
use requeue_jobs::{Kind, KindView, Spans, Store, StoreError, Timestamp};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Up to this many kinds, the series of all kinds are fetched; beyond it, only those on the screen. A series
/// has about 2 kB.
const MAX_ALL_SERIES: usize = 200;

/// Without a server, how often the jobs that become due are counted: a store may have to read all of them.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Everything on the screen that comes from the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Ordered by name.
    pub(crate) kinds: Vec<KindRow>,
    /// `None` without a server.
    pub(crate) stats: Option<StatsJson>,
    /// `None` if they are not wanted, or without a server.
    pub(crate) workers: Option<Vec<Worker>>,
    /// `None` if the server cannot count them.
    pub(crate) due: Option<DueHistograms>,
}

#[derive(Debug, Clone)]
pub(crate) struct KindRow {
    pub(crate) view: KindView,
    /// `None` if it is unknown.
    pub(crate) series: Option<SeriesJson>,
    /// What is wrong with the kind.
    pub(crate) trouble: Option<Trouble>,
}

/// Why a kind needs attention, the most serious last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    Late,
    /// The target of its webhook cannot be reached.
    CircuitOpen,
    /// Its webhook cannot be used.
    NotDelivered,
}

impl Trouble {
    /// How the server names it.
    fn read(name: &str) -> Option<Self> {
        match name {
            "late" => Some(Trouble::Late),
            "circuit_open" => Some(Trouble::CircuitOpen),
            "not_delivered" => Some(Trouble::NotDelivered),
            _ => None,
        }
    }

    pub(crate) fn flag(self) -> &'static str {
        match self {
            Trouble::Late => "late",
            Trouble::CircuitOpen => "unreachable",
            Trouble::NotDelivered => "undelivered",
        }
    }

    /// What can be known without a server.
    fn of(view: &KindView, now: Timestamp) -> Option<Self> {
        let is_late = |due: Timestamp| !view.paused && now.saturating_since(due) >= LATE_AFTER;
        view.oldest_ready.is_some_and(is_late).then_some(Trouble::Late)
    }
}

/// The jobs that become due.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DueHistograms {
    /// The number of jobs in each span of a horizon. A store counts only the wanted horizon.
    pub(crate) horizons: Vec<(Horizon, Vec<u64>)>,
    /// The number of jobs that are due after the longest horizon, if it is known.
    pub(crate) later: Option<u64>,
}

/// Which parts of a snapshot are shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    /// `None` if the histogram is not shown.
    pub(crate) horizon: Option<Horizon>,
    pub(crate) workers: bool,
    /// The kinds on the screen.
    pub(crate) kinds: Vec<String>,
}

/// Where snapshots come from.
#[derive(Clone)]
pub(crate) struct Source {
    /// The URL or directory, as it is shown.
    pub(crate) name: String,
    pub(crate) server: Option<HttpStore>,
    store: Arc<dyn Store>,
    /// The last histogram of a store without a server.
    counted: Option<(Instant, Horizon, Vec<u64>)>,
}

impl Source {
    pub(crate) async fn open(store_args: &StoreArgs) -> Result<Self> {
        let location = store_args.location()?;
        if let StoreLocation::Server(url) = &location {
            let server = store_args.connect(url)?;
            let (name, store) = (escape(server.url()), Arc::new(server.clone()));
            return Ok(Source { name, server: Some(server), store, counted: None });
        }
        let name = match location {
            StoreLocation::Data(directory) => escape(&directory.display().to_string()),
            StoreLocation::Redis(url)
            | StoreLocation::Postgres(url)
            | StoreLocation::Server(url) => escape(&without_secrets(&url)),
        };
        let store = store_args.open(IfMissing::Fail).await?;
        Ok(Source { name, server: None, store, counted: None })
    }

    pub(crate) async fn fetch(&mut self, wanted: &Wanted) -> Result<Snapshot> {
        match self.server.clone() {
            Some(server) => self.fetch_from(&server, wanted).await,
            None => self.fetch_locally(wanted).await,
        }
    }

    async fn fetch_from(&self, server: &HttpStore, wanted: &Wanted) -> Result<Snapshot> {
        let workers =
            async { if wanted.workers { workers::list(server).await.map(Some) } else { Ok(None) } };
        let upcoming = async {
            if wanted.horizon.is_some() { get(server, "/v1/upcoming").await } else { Ok(None) }
        };
        let series = async { get::<SeriesList>(server, &series_path(&wanted.kinds)).await };
        let stats = async { get::<StatsJson>(server, "/v1/stats").await };
        let kinds = async { self.store.kinds().await.map_err(CliError::from) };
        let called = async { tokio::try_join!(stats, series, upcoming, workers) };
        let called = async { called.await.map_err(CliError::from) };
        let (kinds, (stats, series, upcoming, workers)) = tokio::try_join!(kinds, called)?;
        let mut kinds = with_series(kinds, series.unwrap_or_default().kinds);
        let trouble = stats.as_ref().map_or(&[][..], |stats: &StatsJson| &stats.trouble);
        let by_kind: HashMap<&str, &str> =
            trouble.iter().filter_map(|one| Some((one.kind.as_deref()?, &*one.name))).collect();
        for row in &mut kinds {
            row.trouble = by_kind.get(row.view.kind.as_str()).and_then(|name| Trouble::read(name));
        }
        Ok(Snapshot { kinds, stats, workers, due: upcoming.map(due) })
    }

    async fn fetch_locally(&mut self, wanted: &Wanted) -> Result<Snapshot> {
        let kinds = self.store.kinds().await?;
        let due = match wanted.horizon {
            None => None,
            Some(horizon) => {
                let counts = self.count(horizon, &kinds, times::now()).await?;
                Some(DueHistograms { horizons: vec![(horizon, counts)], later: None })
            }
        };
        let mut kinds = with_series(kinds, Vec::new());
        for row in &mut kinds {
            row.trouble = Trouble::of(&row.view, times::now());
        }
        Ok(Snapshot { kinds, due, ..Snapshot::default() })
    }

    /// Counts the jobs of all kinds that become due in each span of a horizon, or returns the last counts.
    async fn count(
        &mut self,
        horizon: Horizon,
        kinds: &[KindView],
        now: Timestamp,
    ) -> Result<Vec<u64>, StoreError> {
        if let Some((at, of, counts)) = &self.counted
            && *of == horizon
            && at.elapsed() < COUNT_INTERVAL
        {
            return Ok(counts.clone());
        }
        let spans = Spans { from: now, length: horizon.span(), count: horizon.count() };
        let mut sum = vec![0; horizon.count()];
        for kind in kinds.iter().filter(|kind| kind.counts.pending > 0) {
            let counts = self.store.upcoming(kind.kind.clone(), spans).await?;
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.counted = Some((Instant::now(), horizon, sum.clone()));
        Ok(sum)
    }

    /// Pauses or resumes a kind.
    pub(crate) async fn pause(&self, kind: &Kind, paused: bool) -> Result<()> {
        if let Some(server) = &self.server {
            let verb = if paused { "pause" } else { "resume" };
            let path = path(&["v1", "kinds", kind.as_str(), verb]);
            let _: serde_json::Value = server.call("POST", &path, None::<&()>).await?;
            return Ok(());
        }
        let mut settings = self.store.settings(kind.clone()).await?;
        settings.paused = paused;
        Ok(self.store.set(kind.clone(), settings).await?)
    }
}

/// A URL without user name, password and options. If an `@` follows a `?`, either may belong to a
/// password: then only the scheme is shown.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (base, options) = rest.split_once('?').unwrap_or((rest, ""));
    let host =
        if options.contains('@') { "…" } else { base.rsplit('@').next().unwrap_or_default() };
    format!("{scheme}://{host}")
}

/// Returns the response to a GET request, or `None` if the server does not have this path.
async fn get<T: DeserializeOwned>(server: &HttpStore, path: &str) -> Result<Option<T>, CallError> {
    match server.call("GET", path, None::<&()>).await {
        Ok(response) => Ok(Some(response)),
        Err(CallError::Problem(problem)) if problem.status == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of the series of these kinds, or of all kinds if there are not too many.
fn series_path(kinds: &[String]) -> String {
    // Kinds consist of characters that have no meaning in a URL.
    let kinds = if kinds.is_empty() { "*".to_owned() } else { kinds.join(",") };
    format!("/v1/series?last=1h&kinds={kinds}")
}

/// The kinds whose series are fetched, if only these are on the screen. Empty for all kinds.
pub(crate) fn kinds_of_series(all: usize, shown: Vec<String>) -> Vec<String> {
    if all <= MAX_ALL_SERIES { Vec::new() } else { shown }
}

fn with_series(kinds: Vec<KindView>, series: Vec<SeriesJson>) -> Vec<KindRow> {
    let mut series: HashMap<String, SeriesJson> =
        series.into_iter().filter_map(|series| Some((series.kind.clone()?, series))).collect();
    let row = |view: KindView| {
        let series = series.remove(view.kind.as_str());
        KindRow { series, view, trouble: None }
    };
    kinds.into_iter().map(row).collect()
}

/// The histograms of a server. Horizons that this version does not know are left out.
fn due(list: Forecast) -> DueHistograms {
    let known = |counts: requeue_http::wire::Horizon| {
        let horizon = Horizon::ALL.into_iter().find(|horizon| horizon.name() == counts.name)?;
        Some((horizon, counts.counts))
    };
    DueHistograms {
        horizons: list.horizons.into_iter().filter_map(known).collect(),
        later: Some(list.later),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Body, JobId, MemoryStore, Put};

    fn kind(name: &str) -> Kind {
        Kind::new(name).expect("a kind")
    }

    #[tokio::test]
    async fn a_store_without_a_server_provides_counts_and_the_wanted_histogram() {
        let store = Arc::new(MemoryStore::new());
        for (name, id, seconds) in [("mail", "a", 90), ("sms", "b", 95), ("sms", "c", 86_000)] {
            let mut put = Put::new(kind(name), JobId::new(id).expect("an id"), Body::default());
            put.due = requeue_jobs::Due::After(Duration::from_secs(seconds));
            store.put(vec![put]).await.unwrap().remove(0).unwrap();
        }
        let mut source = Source { name: "d".to_owned(), server: None, store, counted: None };
        let wanted = Wanted { horizon: Some(Horizon::Hour), workers: true, kinds: vec![] };
        let snapshot = source.fetch(&wanted).await.unwrap();
        let pending: Vec<u64> = snapshot.kinds.iter().map(|row| row.view.counts.pending).collect();
        assert_eq!(pending, [1, 2]);
        let due = snapshot.due.expect("it can be counted");
        let [(Horizon::Hour, counts)] = &due.horizons[..] else { panic!("{due:?}") };
        assert_eq!((counts.len(), counts.iter().sum::<u64>(), counts[1]), (60, 2, 2));
        assert!(snapshot.stats.is_none() && snapshot.workers.is_none());

        source.pause(&kind("sms"), true).await.unwrap();
        let snapshot = source.fetch(&Wanted::default()).await.unwrap();
        assert!(snapshot.kinds[1].view.paused && snapshot.due.is_none());
    }

    #[test]
    fn without_a_server_a_late_kind_is_known_unless_it_is_paused() {
        let now = Timestamp::from_millis(1_000_000);
        let oldest = |millis| Some(Timestamp::from_millis(millis));
        let view = KindView { oldest_ready: oldest(700_000), ..KindView::new(kind("mail")) };
        assert_eq!(Trouble::of(&view, now), Some(Trouble::Late));
        assert_eq!(Trouble::of(&KindView { paused: true, ..view.clone() }, now), None);
        assert_eq!(Trouble::of(&KindView { oldest_ready: oldest(700_001), ..view }, now), None);
    }

    #[test]
    fn responses_with_missing_and_unknown_fields_are_read() {
        let list: Forecast = serde_json::from_value(serde_json::json!({
            "counted_at": "2026-12-01T08:00:00.000Z", "ready": 3, "later": 9,
            "horizons": [
                {"name": "minute", "span": "1s", "counts": [1, 2]},
                {"name": "century", "counts": [1]},
            ],
        }))
        .unwrap();
        let expected = vec![(Horizon::Minute, vec![1, 2])];
        assert_eq!(due(list), DueHistograms { horizons: expected, later: Some(9) });
        let series: SeriesList = serde_json::from_value(serde_json::json!({
            "total": {}, "kinds": [{"kind": "mail", "recent": {"seconds": 60, "acked": 6}}],
        }))
        .unwrap();
        let rows = with_series(
            vec![KindView::new(kind("fax")), KindView::new(kind("mail"))],
            series.kinds,
        );
        assert!(rows[0].series.is_none());
        assert_eq!(rows[1].series.as_ref().map(|series| series.recent.acked), Some(6));
    }

    #[test]
    fn a_password_is_not_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/", "redis://127.0.0.1:6379/"),
            ("rediss://me:s@cret@host/0?password=x", "rediss://host/0"),
            ("postgres://me:secret@a:1,b:2/shop?sslmode=require", "postgres://a:1,b:2/shop"),
            ("postgres://host/shop?user=me&password=s@cret", "postgres://…"),
            ("postgres://me:se?cret@host/shop", "postgres://…"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn of_many_kinds_only_the_series_on_the_screen_are_fetched() {
        let shown = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(series_path(&kinds_of_series(200, shown.clone())), "/v1/series?last=1h&kinds=*");
        assert_eq!(series_path(&kinds_of_series(201, shown)), "/v1/series?last=1h&kinds=a,b");
    }
}
