//! Metrics of the server, in the text format of Prometheus.
//!
//! Counters count what this node did since it started: sum them over all nodes. The numbers of jobs
//! are read from the store at each scrape: all nodes on one store report the same.
//!
//! The label `kind` is bounded. A kind gets its own label value only once the store has reported
//! that it has jobs or settings of it, never because a request named it. What belongs to no kind of
//! the store is counted with an empty `kind`. Only a limited number of kinds have a label of their
//! own; all others are summed under `kind="(other)"`, which no kind can be called.
//!
//! # Expired leases
//!
//! A lease expires without an operation. The next claim or reap that finds it ends it and reports
//! it to the node that called: `requeue_lapses_total` counts these. Each expired lease is counted
//! once, by one node, unless the result of that call is lost on the way. So over all nodes:
//!
//! ```text
//! increase(requeue_claimed_total) = increase(requeue_settled_total)
//!     + increase(requeue_lapses_total) + delta(requeue_jobs{state="leased"})
//! ```

mod calls;
mod http;
mod kinds;
mod now;
mod process;
mod push;
mod status;

pub(crate) use calls::TimedCall;
pub use http::GaugeGuard;
pub(crate) use kinds::{ByKind, DEFAULT_LIMIT, LATENESS};

use crate::failure_log::FailureLog;
use crate::series::Activity;
use calls::CallMetrics;
use http::HttpMetrics;
use kinds::KindCounters;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, TextEncoder};
use push::PushMetrics;
use requeue_jobs::{Kind, KindView, Store, StoreError, StoreMethod, StoreStatus, WallClock};
use requeue_push::PushStatus;
use status::StatusMetrics;
use std::fmt;
use std::time::Duration;

/// The content type of the text that [`ServerMetrics::render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a scrape waits for the store. Prometheus waits for ten seconds, and the counters matter
/// most while the store does not respond.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The metrics of a server.
///
/// ```
/// use requeue_jobs::{WallClock, Jobs, MemoryStore};
/// use requeue_server::InstrumentedStore;
/// use std::sync::Arc;
///
/// # requeue_testkit::block_on(async {
/// let store = Arc::new(InstrumentedStore::new(Arc::new(MemoryStore::new()), WallClock::system()));
/// Jobs::new(store.clone()).put("order.close", "order-42", "unpaid").await?;
/// let text = store.metrics().render(&*store).await;
/// assert!(text.contains(r#"requeue_puts_total{kind="order.close",outcome="created"} 1"#));
/// assert!(text.contains(r#"requeue_jobs{kind="order.close",state="pending"} 1"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct ServerMetrics {
    registry: Registry,
    wall_clock: WallClock,
    kinds: KindCounters,
    calls: CallMetrics,
    status: StatusMetrics,
    push: PushMetrics,
    failures: FailureLog,
    http: HttpMetrics,
    reaped: IntCounter,
    schedule_lateness: Histogram,
    listeners: IntGauge,
    response_memory: IntGauge,
    waiting_for_memory: IntGauge,
}

impl ServerMetrics {
    /// Creates metrics that are all zero. `wall_clock` measures the duration of calls and the age
    /// of jobs.
    pub fn new(wall_clock: WallClock) -> Self {
        let registry = Registry::new();
        let reaped = IntCounter::new(
            "requeue_reaped_total",
            "Expired leases ended, and dead and done jobs dropped, by reaps on this node.",
        );
        let schedule_lateness = Histogram::with_opts(
            HistogramOpts::new(
                "requeue_schedule_lateness_seconds",
                "Time between the time of a run of a schedule and its start, by this node's clock.",
            )
            .buckets(LATENESS.to_vec()),
        );
        let listeners = IntGauge::new(
            "requeue_event_listeners",
            "Clients that listen to the events of this node.",
        );
        let response_memory = IntGauge::new(
            "requeue_response_memory_bytes",
            "Memory that the jobs of unwritten responses take.",
        );
        let waiting_for_memory = IntGauge::new(
            "requeue_response_memory_waiting",
            "Requests that wait for memory for their response.",
        );
        let build = IntGauge::with_opts(
            Opts::new(
                "requeue_build_info",
                "Always 1. The label version is the version of the server.",
            )
            .const_label("version", env!("CARGO_PKG_VERSION")),
        );
        let build = registered(&registry, build);
        build.set(1);
        ServerMetrics {
            kinds: KindCounters::new(&registry),
            calls: CallMetrics::new(&registry),
            status: StatusMetrics::new(&registry),
            push: PushMetrics::default(),
            failures: FailureLog::new(wall_clock.clock().clone()),
            http: HttpMetrics::new(&registry),
            reaped: registered(&registry, reaped),
            schedule_lateness: registered(&registry, schedule_lateness),
            listeners: registered(&registry, listeners),
            response_memory: registered(&registry, response_memory),
            waiting_for_memory: registered(&registry, waiting_for_memory),
            registry,
            wall_clock,
        }
    }

    /// Returns all metrics as text of the type [`CONTENT_TYPE`].
    ///
    /// If the store fails or does not respond within five seconds, the metrics that are read from
    /// it are omitted.
    pub async fn render(&self, store: &dyn Store) -> String {
        let views = self.read(store).await;
        if let Err(error) = &views {
            tracing::debug!(%error, "metrics without job counts: the store failed");
        }
        self.encode(views.ok(), &store.status(), None)
    }

    /// Reads the kinds for [`encode`](Self::encode).
    pub(crate) async fn read(&self, store: &dyn Store) -> Result<Vec<KindView>, StoreError> {
        tokio::select! {
            biased;
            views = store.kinds() => views,
            () = self.wall_clock.clock().sleep(STORE_TIMEOUT) => {
                let reason = format!("no response within {STORE_TIMEOUT:?}");
                Err(StoreError::Unavailable { reason })
            }
        }
    }

    /// Returns all metrics as text, without the numbers of jobs if `views` is `None`. It takes some
    /// milliseconds of computation.
    pub(crate) fn encode(
        &self,
        views: Option<Vec<KindView>>,
        status: &StoreStatus,
        push: Option<&PushStatus>,
    ) -> String {
        self.status.set(status);
        // Before the counters are read: a kind that gets a label has all of them.
        let named = views.as_ref().map(|views| self.kinds.choose(views)).unwrap_or_default();
        let mut families = self.registry.gather();
        if let Some(views) = views {
            families.extend(now::families(&views, &named, self.wall_clock.now()));
        }
        if let Some(push) = push {
            families.extend(self.push.families(push, &self.kinds.named(), self.kinds.limit()));
        }
        families.extend(status::families(status));
        families.extend(process::families());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        // A store must not repeat one of our names: Prometheus would reject all metrics.
        families.dedup_by(|a, b| a.name() == b.name());
        let text = TextEncoder::new().encode_to_string(&families);
        text.expect("every metric has a name and a value")
    }

    /// Counts an HTTP request. `route` is the template of its path, such as `/v1/kinds/{kind}`, or
    /// empty if no route matched.
    pub fn request_finished(&self, route: &str, method: &str, status: u16, took: Duration) {
        self.http.request_finished(route, method, status, took);
    }

    /// Counts an open connection until the returned guard is dropped.
    pub fn connection(&self) -> GaugeGuard {
        self.http.connection()
    }

    /// Counts a waiting claim until the returned guard is dropped.
    pub fn waiting_claim(&self) -> GaugeGuard {
        self.http.waiting_claim()
    }

    /// Counts an event listener until the returned guard is dropped.
    pub(crate) fn listener(&self) -> GaugeGuard {
        GaugeGuard::new(&self.listeners)
    }

    /// Sets how many kinds have a label of their own. Default: 200.
    pub fn set_kind_limit(&self, limit: usize) {
        self.kinds.set_limit(limit);
    }

    /// Records the memory that responses use, and how many requests wait for it.
    pub(crate) fn set_response_memory(&self, used: usize, waiting: usize) {
        self.response_memory.set(used as i64);
        self.waiting_for_memory.set(waiting as i64);
    }

    /// Starts timing a store call.
    pub(crate) fn call(&self, method: StoreMethod) -> TimedCall<'_> {
        self.calls.begin(method, self.wall_clock.clock())
    }

    /// Counts a failed entry of a batch, or a failed wait.
    pub(crate) fn failed(&self, method: StoreMethod, error: &StoreError) {
        self.calls.failed(method, error);
        self.failures.failed(method, error);
    }

    /// Logs why a call failed that was counted already.
    pub(crate) fn log_failure(&self, method: StoreMethod, error: &StoreError) {
        self.failures.failed(method, error);
    }

    /// Records the size of a batch.
    pub(crate) fn batch(&self, method: StoreMethod, len: usize) {
        self.calls.batch(method, len);
    }

    pub(crate) fn reaped(&self, count: usize) {
        self.reaped.inc_by(count as u64);
    }

    /// Records how late a run of a schedule was started.
    pub(crate) fn schedule_run(&self, late: Duration) {
        self.schedule_lateness.observe(late.as_secs_f64());
    }

    /// Returns what was counted of each kind so far, for the time series.
    pub(crate) fn activity(&self) -> Vec<(Option<Kind>, Activity)> {
        self.kinds.activity()
    }

    /// Returns the counters by kind, for one batch.
    pub(crate) fn by_kind(&self) -> ByKind<'_> {
        self.kinds.by_kind()
    }
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMetrics").finish_non_exhaustive()
    }
}

/// Adds a metric to the registry and returns it.
fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    metric: prometheus::Result<C>,
) -> C {
    let metric = metric.expect("the names of metrics and labels are valid");
    registry.register(Box::new(metric.clone())).expect("no two metrics have the same name");
    metric
}
