//! What the server has done, counted, for Prometheus.
//!
//! Counters are of this node's doings since it started; add them up over the nodes. How many jobs
//! there are is asked of the store when somebody looks, and every node on one store answers the
//! same.
//!
//! The label `kind` is bounded: a kind is counted by its name only once the store has answered
//! that it has jobs or settings of it, never because a request named it, and there are no more of
//! them than [`MAX_KINDS`](requeue_jobs::limits::MAX_KINDS). What cannot be told by a kind has an
//! empty one.
//!
//! # Lapses
//!
//! A lease expires where nobody looks: a claim or a reap ends it, and neither says so.
//! `requeue_lapses_total` counts those that can be told for certain: this node leased a job, has
//! seen no settlement of that lease, and now leases it again, as the next attempt, due when that
//! lease ended. It is a lower bound. It misses expires by which a job died, those of jobs that were
//! put or run anew meanwhile, and leases of other nodes, or of this one before it was started
//! again.
//!
//! All of them are what is left over, on all nodes together: every lease that was given out was
//! settled, is still held, or expired.
//!
//! ```text
//! sum by (kind) (increase(requeue_claimed_total[1h])) - sum by (kind) (increase(requeue_settled_total[1h]))
//!     - max by (kind) (delta(requeue_jobs{state="leased"}[1h]))
//! ```

mod calls;
mod http;
mod kinds;
mod now;

pub(crate) use calls::{Call, Verb};
pub use http::Counted;
pub(crate) use kinds::ByKind;

use calls::Calls;
use http::Http;
use kinds::Kinds;
use prometheus::{IntCounter, IntGauge, Opts, Registry, TextEncoder};
use requeue_jobs::{Store, StoreError, WallClock};
use std::fmt;
use std::time::Duration;

/// Of [`Metrics::render`]'s answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a scrape waits for the store: counters are wanted most while it does not answer, and
/// Prometheus waits for ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the server has done, counted.
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
pub struct Metrics {
    registry: Registry,
    wall_clock: WallClock,
    kinds: Kinds,
    calls: Calls,
    http: Http,
    reaped: IntCounter,
    listeners: IntGauge,
}

impl Metrics {
    /// Nothing has been counted. The wall_clock tells how long a call takes, and how old a job is.
    pub fn new(wall_clock: WallClock) -> Self {
        let registry = Registry::new();
        let reaped = IntCounter::new(
            "requeue_reaped_total",
            "Expired leases that this node's reaper ended, and dead jobs that it dropped.",
        );
        let listeners = IntGauge::new(
            "requeue_event_listeners",
            "Clients that listen to this node's events now.",
        );
        let build = IntGauge::with_opts(
            Opts::new("requeue_build_info", "Always 1; the label says which version runs.")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        );
        let build = registered(&registry, build);
        build.set(1);
        Metrics {
            kinds: Kinds::new(&registry),
            calls: Calls::new(&registry),
            http: Http::new(&registry),
            reaped: registered(&registry, reaped),
            listeners: registered(&registry, listeners),
            registry,
            wall_clock,
        }
    }

    /// All there is to know, as `text/plain; version=0.0.4`: see [`CONTENT_TYPE`].
    ///
    /// Where the store does not answer, or not within five seconds, what it would have been asked
    /// is left out.
    pub async fn render(&self, store: &dyn Store) -> String {
        let views = tokio::select! {
            biased;
            views = store.kinds() => views,
            () = self.wall_clock.clock().sleep(PATIENCE) => {
                let reason = format!("it has not answered for {PATIENCE:?}");
                Err(StoreError::Unavailable { reason })
            }
        };
        let mut families = self.registry.gather();
        match views {
            Ok(views) => {
                families.extend(now::families(&views, self.wall_clock.now()));
                self.kinds.keep_to(&views);
            }
            Err(error) => tracing::debug!(%error, "the store does not say what jobs there are"),
        }
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let text = TextEncoder::new().encode_to_string(&families);
        text.expect("every family has a name and something to tell")
    }

    /// A request was answered. `route` is the template of its path, such as
    /// `/v1/kinds/{kind}`; empty where no route took it.
    pub fn answered(&self, route: &str, method: &str, status: u16, took: Duration) {
        self.http.answered(route, method, status, took);
    }

    /// A connection is open, until the answer is dropped.
    pub fn connection(&self) -> Counted {
        self.http.connection()
    }

    /// A claim waits for jobs, until the answer is dropped.
    pub fn waiting_claim(&self) -> Counted {
        self.http.waiting_claim()
    }

    /// Somebody listens to events, until the answer is dropped.
    pub(crate) fn listener(&self) -> Counted {
        Counted::new(&self.listeners)
    }

    /// The store is asked for something.
    pub(crate) fn call(&self, verb: Verb) -> Call<'_> {
        self.calls.begin(verb, self.wall_clock.clock())
    }

    /// An entry of a batch failed.
    pub(crate) fn failed(&self, verb: Verb, error: &StoreError) {
        self.calls.failed(verb, error);
    }

    /// A batch of so many entries was answered.
    pub(crate) fn batch(&self, verb: Verb, len: usize) {
        self.calls.batch(verb, len);
    }

    pub(crate) fn reaped(&self, count: usize) {
        self.reaped.inc_by(count as u64);
    }

    /// The counters of kinds, for a batch.
    pub(crate) fn by_kind(&self) -> ByKind<'_> {
        self.kinds.by_kind()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// What was made, known to the registry.
fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let made = made.expect("the names of metrics and labels are valid");
    registry.register(Box::new(made.clone())).expect("no two metrics have one name");
    made
}
