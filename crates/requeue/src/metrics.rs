//! Metrics of queues and workers: counted where they occur, read on request.
//!
//! They are the seven metrics of client-go, with the same meaning, those of a
//! controller-runtime controller, and a few of our own. A queue without a name reports nothing,
//! stores no times and reads no clock for them.

mod histogram;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod recorder;
mod worker;

pub use histogram::Histogram;
pub(crate) use histogram::Tens;
pub(crate) use recorder::Recorder;
pub use worker::{RunEnd, RunResult, WorkerMetrics, WorkerRecorder};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A registry of queues and workers that report metrics under a name. Clones share one
/// registry.
///
/// A queue and a worker may have the same name. Two queues may not, and two workers may not.
///
/// ```
/// use requeue::{Metrics, Options, Queue};
///
/// let metrics = Metrics::new();
/// let queue = Queue::with(Options::new().metrics(&metrics, "orders")?);
/// queue.add("order-7");
/// queue.add("order-7");
/// let report = &metrics.gather()[0];
/// assert_eq!((report.name.as_str(), report.depth), ("orders", 1));
/// assert_eq!((report.adds, report.coalesced), (1, 1));
/// # Ok::<(), requeue::NameError>(())
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    names: Arc<Mutex<Names>>,
}

#[derive(Default)]
struct Names {
    queues: BTreeMap<String, Reporter>,
    /// A worker's name is free again once its recorder is dropped.
    workers: BTreeMap<String, Weak<WorkerRecorder>>,
}

/// `None` until the queue is built.
type Reporter = Option<Weak<dyn Report>>;

impl Metrics {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Metrics::default()
    }

    /// Returns the current metrics of every queue, sorted by name. Locks each queue in turn,
    /// for a time that grows with the number of keys that it has, or had since it was last
    /// empty.
    pub fn gather(&self) -> Vec<QueueMetrics> {
        let queues: Vec<_> = self.lock().queues.values().flatten().cloned().collect();
        // Not under the lock: this may drop the last reference to a queue.
        queues.into_iter().filter_map(|queue| Some(queue.upgrade()?.report())).collect()
    }

    /// Returns the current metrics of every worker, sorted by name.
    pub fn gather_workers(&self) -> Vec<WorkerMetrics> {
        let workers: Vec<_> = self.lock().workers.values().cloned().collect();
        workers.into_iter().filter_map(|worker| Some(worker.upgrade()?.report())).collect()
    }

    /// Returns a recorder for a worker of your own, whose runs [`gather_workers`](Self::gather_workers)
    /// then reports under this name. The name is in use until the last handle to the recorder is
    /// dropped.
    ///
    /// Fails if another worker uses the name, or if it is empty.
    pub fn worker(&self, name: impl Into<String>) -> Result<Arc<WorkerRecorder>, NameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let workers = &mut self.lock().workers;
        workers.retain(|_, worker| worker.strong_count() > 0);
        if workers.contains_key(&name) {
            return Err(NameError::WorkerTaken { name });
        }
        let worker = Arc::new(WorkerRecorder::new(name.clone()));
        workers.insert(name, Arc::downgrade(&worker));
        Ok(worker)
    }

    pub(crate) fn reserve(&self, name: String) -> Result<Name, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let queues = &mut self.lock().queues;
        if queues.contains_key(&name) {
            return Err(NameError::Taken { name });
        }
        queues.insert(name.clone(), None);
        Ok(Name { name, registry: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.lock();
        f.debug_struct("Metrics")
            .field("queues", &names.queues.keys())
            .field("workers", &names.workers.keys())
            .finish()
    }
}

/// Why a queue or a worker cannot use a name.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// Another queue uses the name.
    Taken {
        /// The name.
        name: String,
    },
    /// Another worker uses the name.
    WorkerTaken {
        /// The name.
        name: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => f.write_str("a name must not be empty"),
            NameError::Taken { name } => {
                write!(f, "a queue named {name:?} already reports to these metrics")
            }
            NameError::WorkerTaken { name } => {
                write!(f, "a worker named {name:?} already reports to these metrics")
            }
        }
    }
}

impl std::error::Error for NameError {}

/// A queue that reports metrics.
pub(crate) trait Report: Send + Sync {
    fn report(&self) -> QueueMetrics;
}

/// A name that is reserved for a queue. Dropping it frees the name.
#[derive(Debug)]
pub(crate) struct Name {
    name: String,
    registry: Metrics,
}

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    pub(crate) fn reporter(&self, queue: Weak<dyn Report>) {
        self.registry.lock().queues.insert(self.name.clone(), Some(queue));
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.registry.lock().queues.remove(&self.name);
    }
}

/// The metrics of one queue. Counts start at the queue's creation.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueMetrics {
    /// The queue's name.
    pub name: String,
    /// Keys that need work: ready keys, and held keys that were added again.
    pub depth: u64,
    /// The depth by priority, lowest priority first. Empty unless the queue is a
    /// [`PriorityQueue`](crate::PriorityQueue).
    pub depth_by_priority: Vec<(i32, u64)>,
    /// Adds that made a key ready, or made a held key run again.
    pub adds: u64,
    /// Adds that changed nothing, because the key was already ready or already to run again. In
    /// a [`PriorityQueue`](crate::PriorityQueue), also adds of a key that already waited for an
    /// earlier or equal time.
    pub coalesced: u64,
    /// Delayed and rate-limited adds, whatever their delay. In a
    /// [`PriorityQueue`](crate::PriorityQueue), only those with a delay, as in
    /// controller-runtime.
    pub retries: u64,
    /// Adds that were refused because the queue is shut down or draining, and waiting keys that
    /// a shutdown dropped. Keys that a drain returns do not count.
    pub dropped: u64,
    /// How long keys were ready before a worker took them, from their add.
    pub queue_duration: Histogram,
    /// How long workers held keys.
    pub work_duration: Histogram,
    /// How long after their due time delayed keys became ready.
    pub lateness: Histogram,
    /// The sum of the times for which the keys held now have been held.
    pub unfinished_work: Duration,
    /// The time for which the key that has been held longest has been held.
    pub longest_running: Duration,
    /// Keys that wait for their due time.
    pub waiting: u64,
    /// The time since the add of the key that has been ready longest.
    pub oldest_ready: Option<Duration>,
}
