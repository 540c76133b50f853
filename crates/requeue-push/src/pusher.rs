//! [`Pusher`]: claims jobs, delivers them to their targets, and settles them.
//!
//! ```text
//!            claim               2xx                       ack
//!   ready ----------> delivery ------------------------------------> gone, or done if that is kept
//!     ^                  |       410                       bury
//!     |                  +-----------------------------------------> dead
//!     |                  |       other, timeout, no connection: retry
//!     |                  +-----------------------------------------> waiting or dead
//!     |  release         |
//!     +-- not started ---+
//!     +-- expiry --------+ the node died, or the store was unavailable until the lease ended
//! ```
//!
//! One task per kind claims as many jobs as may be in flight, and starts a task for each. What may be in
//! flight is decided by [`PushState`], without a clock or tasks. Guarantees:
//!
//! - **No lease ends during a delivery**: it is longer than the timeout, by [`LEASE_MARGIN`].
//! - **A job is claimed only if it can be sent now**: while a target is paused or unreachable, its jobs stay
//!   ready and use up no attempts.
//! - **Memory is bounded**: the number of deliveries and the bytes of their bodies, over all kinds.
//! - **A kind whose target hangs does not stop the others**: see [`Budget`](budget::Budget).
//! - **A settlement is repeated** while the store is unavailable, until the lease ends.

mod attempt;
mod budget;
mod dispatch;
mod state;
mod status;

pub use status::{
    DURATION_BOUNDS, DeliveryCounts, DurationHistogram, LastError, PushKindStatus, PushStatus,
    PushTargetStatus,
};

use crate::PushClient;
use crate::config::{InvalidPush, PushConfig};
use crate::target::Target;
use crate::webhook::Webhook;
use requeue::Clock;
use requeue_jobs::{Invalid, Jobs, Kind, StoreError, WallClock, WorkerName};
use state::{Limits, PushState};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// How much longer than the timeout of a delivery its lease is: the time to start it after the claim, and
/// to settle it afterwards.
pub const LEASE_MARGIN: Duration = Duration::from_secs(15);

/// The default limit of deliveries in flight over all kinds. Each takes a connection, and about 30 KiB
/// beside the body.
pub const DEFAULT_MAX_IN_FLIGHT: usize = 10_000;

/// The default limit of the bytes of bodies in flight over all kinds.
pub const DEFAULT_MAX_BYTES: usize = 64 << 20;

/// The largest number of reads of previous failures in progress: each reads a job with its body, beyond
/// the limit of bytes.
const MAX_READS: usize = 8;

/// A callback for errors of the store: see [`PusherOptions::on_store_error`].
pub type OnStoreError = Arc<dyn Fn(&Kind, &StoreError) + Send + Sync>;

/// What a [`Pusher`] is made with.
#[derive(Clone)]
#[non_exhaustive]
pub struct PusherOptions {
    /// The clock of leases and pauses (default: the system's). In tests, that of the store.
    pub clock: WallClock,
    /// The largest number of deliveries in flight, over all kinds.
    pub max_in_flight: usize,
    /// The largest sum of the bytes of bodies in flight, over all kinds. Less than 2 MiB counts as 2 MiB,
    /// because a body can have 1 MiB.
    pub max_bytes: usize,
    /// Is called for each error of the store after which the pusher tries again.
    pub on_store_error: Option<OnStoreError>,
}

impl Default for PusherOptions {
    fn default() -> Self {
        PusherOptions {
            clock: WallClock::system(),
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            max_bytes: DEFAULT_MAX_BYTES,
            on_store_error: None,
        }
    }
}

impl fmt::Debug for PusherOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PusherOptions")
            .field("max_in_flight", &self.max_in_flight)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// Where the jobs of a kind are delivered to.
#[derive(Clone)]
#[non_exhaustive]
pub struct PushTarget {
    /// The target.
    pub target: Arc<dyn Target>,
    /// How long a delivery may take.
    pub timeout: Duration,
    /// How many jobs of the kind are delivered concurrently by one node.
    pub concurrency: u32,
}

impl PushTarget {
    /// Returns a target with these limits.
    pub fn new(target: Arc<dyn Target>, timeout: Duration, concurrency: u32) -> Self {
        PushTarget { target, timeout, concurrency }
    }

    /// Returns the target of a push setting. Fails if the setting is invalid.
    pub fn webhook(config: PushConfig, client: &PushClient) -> Result<Self, InvalidPush> {
        let (timeout, concurrency) = (config.timeout, config.concurrency);
        let target = Arc::new(Webhook::new(config, client)?);
        Ok(PushTarget { target, timeout, concurrency })
    }
}

impl fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushTarget")
            .field("target", &self.target.name())
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .finish()
    }
}

/// Delivers the jobs of some kinds to their targets.
///
/// A pusher is an ordinary worker: several of them on one store share the work, and take over the jobs of
/// one that dies when their leases expire. A target therefore receives each job at least once.
///
/// It runs until it is [shut down](Self::shut_down). Dropping it aborts all deliveries; their jobs are
/// delivered again when the leases expire.
///
/// ```
/// use requeue_jobs::{Jobs, Kind, MemoryStore};
/// use requeue_push::{Pusher, PusherOptions, PushTarget};
/// use std::sync::Arc;
/// use std::time::Duration;
/// # use requeue_push::{Delivery, DeliveryFuture, DeliveryOutcome, Target};
/// # struct Log;
/// # impl Target for Log {
/// #     fn name(&self) -> String { "log".to_owned() }
/// #     fn deliver<'a>(&'a self, _: &'a Delivery) -> DeliveryFuture<'a> {
/// #         Box::pin(async { DeliveryOutcome::Done { result: None } })
/// #     }
/// # }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// let pusher = Pusher::start(&jobs, "node-1", PusherOptions::default())?;
/// let target = PushTarget::new(Arc::new(Log), Duration::from_secs(10), 10);
/// pusher.set(Kind::new("order.close")?, Some(target));
/// jobs.put("order.close", "order-7", "unpaid").await?;
/// # while jobs.get("order.close", "order-7").await?.is_some() { tokio::task::yield_now().await }
/// assert_eq!(pusher.shut_down(Duration::from_secs(30)).await, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pusher {
    shared: Arc<Shared>,
    runtime: Handle,
    /// The tasks of the kinds. Dropping it aborts them, and they abort their deliveries.
    tasks: Mutex<JoinSet<()>>,
}

/// What the tasks share.
struct Shared {
    jobs: Jobs,
    worker: WorkerName,
    clock: WallClock,
    state: Mutex<PushState>,
    /// Notified when the last delivery in flight ends, and when the last task of a kind does.
    ended: Notify,
    reads: Semaphore,
    on_store_error: Option<OnStoreError>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> &Clock {
        self.clock.clock()
    }

    fn report(&self, kind: &Kind, error: &StoreError) {
        if let Some(callback) = &self.on_store_error {
            callback(kind, error);
        }
    }
}

impl Pusher {
    /// Starts a pusher without kinds on the current tokio runtime. `name` shows people which worker holds a
    /// job. Fails if the name is invalid.
    ///
    /// # Panics
    ///
    /// Panics if it is called outside of a tokio runtime.
    pub fn start(jobs: &Jobs, name: &str, options: PusherOptions) -> Result<Self, Invalid> {
        let limits = Limits { in_flight: options.max_in_flight, bytes: options.max_bytes };
        let shared = Shared {
            jobs: jobs.clone(),
            worker: WorkerName::new(name)?,
            clock: options.clock,
            state: Mutex::new(PushState::new(limits)),
            ended: Notify::new(),
            reads: Semaphore::new(MAX_READS),
            on_store_error: options.on_store_error,
        };
        let (shared, runtime) = (Arc::new(shared), Handle::current());
        Ok(Pusher { shared, runtime, tasks: Mutex::default() })
    }

    /// Sets where the jobs of a kind are delivered to, or stops delivering them. This takes effect for the
    /// next claim: deliveries in flight end as they began.
    pub fn set(&self, kind: Kind, target: Option<PushTarget>) {
        let set = self.shared.lock().set(&kind, target);
        if set.is_new {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            // The results of tasks that have ended are not needed.
            while tasks.try_join_next().is_some() {}
            let task = dispatch::run(Arc::clone(&self.shared), kind, Arc::clone(&set.changed));
            tasks.spawn_on(task, &self.runtime);
        }
        set.changed.notify_one();
    }

    /// Sets the targets of all kinds: those that are missing in `targets` are no longer delivered.
    pub fn replace_all(&self, mut targets: BTreeMap<Kind, PushTarget>) {
        let before = self.shared.lock().kinds();
        for kind in before {
            let target = targets.remove(&kind);
            self.set(kind, target);
        }
        for (kind, target) in targets {
            self.set(kind, Some(target));
        }
    }

    /// Returns the state of all kinds and targets, for people and metrics.
    pub fn status(&self) -> PushStatus {
        self.shared.lock().status(self.shared.clock().now(), self.shared.clock.now())
    }

    /// Stops claiming jobs, waits until the deliveries in flight have ended, but at most `limit`, and
    /// releases the jobs that were not started. Returns how many deliveries were still in flight; they are
    /// aborted, and their jobs are delivered again when the leases expire.
    pub async fn shut_down(&self, limit: Duration) -> usize {
        let changed = self.shared.lock().stop();
        changed.iter().for_each(|changed| changed.notify_one());
        let ended = async {
            loop {
                let notified = self.shared.ended.notified();
                if self.shared.lock().has_ended() {
                    return;
                }
                notified.await;
            }
        };
        let clock = self.shared.clock();
        clock.timeout_at(clock.now().saturating_add(limit), ended).await;
        let left = self.shared.lock().delivering();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        left
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("worker", &self.shared.worker).finish_non_exhaustive()
    }
}
