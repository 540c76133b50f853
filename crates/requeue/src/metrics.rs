//! What queues and workers report: counted where it happens, read by pull.
//!
//! The seven of client-go, with its meaning, those of a controller-runtime controller, and
//! a few of our own. A queue without a name reports nothing, keeps no times and reads no
//! clock for them.

mod histogram;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod recorder;
mod worker;

pub use histogram::Histogram;
pub(crate) use histogram::Tens;
pub(crate) use recorder::Recorder;
pub use worker::WorkerMetrics;
pub(crate) use worker::{RunEnd, RunResult, WorkerRecorder};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The queues and workers that report here, by name. Clones share one list.
///
/// A queue and a worker may have the same name; two queues may not, nor two workers.
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
    /// A worker's name is free once its recorder is gone.
    workers: BTreeMap<String, Weak<WorkerRecorder>>,
}

/// `None` until the queue is built.
type Reporter = Option<Weak<dyn Report>>;

impl Metrics {
    /// No queues and no workers yet.
    pub fn new() -> Self {
        Metrics::default()
    }

    /// What every queue reports at this moment, by name. Takes each queue's lock in turn,
    /// for a time that grows with the number of keys it has, or had since it was last empty.
    pub fn gather(&self) -> Vec<QueueMetrics> {
        let queues: Vec<_> = self.lock().queues.values().flatten().cloned().collect();
        // Not under the lock: this may be the last to let go of a queue.
        queues.into_iter().filter_map(|queue| Some(queue.upgrade()?.report())).collect()
    }

    /// What every worker reports at this moment, by name.
    pub fn gather_workers(&self) -> Vec<WorkerMetrics> {
        let workers: Vec<_> = self.lock().workers.values().cloned().collect();
        workers.into_iter().filter_map(|worker| Some(worker.upgrade()?.report())).collect()
    }

    /// A recorder for a worker, which has the name until the last handle to it is dropped.
    pub(crate) fn worker(&self, name: String) -> Result<Arc<WorkerRecorder>, NameError> {
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

/// Why a queue or a worker cannot have a name.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// It is empty.
    Empty,
    /// Another queue has it, and still lives.
    Taken {
        /// The name.
        name: String,
    },
    /// Another worker has it, and still lives.
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

/// A queue that can be asked.
pub(crate) trait Report: Send + Sync {
    fn report(&self) -> QueueMetrics;
}

/// A name in a registry, held for a queue; dropping it frees the name.
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

/// What one queue reports. Counts are since the queue was made.
#[non_exhaustive]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueMetrics {
    /// The queue's name.
    pub name: String,
    /// Keys that need work: those that are ready, and those added while held.
    pub depth: u64,
    /// The same by priority, lowest first. Empty unless it is a
    /// [`PriorityQueue`](crate::PriorityQueue).
    pub depth_by_priority: Vec<(i32, u64)>,
    /// Adds that made a key ready, or made a held key run again.
    pub adds: u64,
    /// Adds of a key that was ready or to run again already, or, in a
    /// [`PriorityQueue`](crate::PriorityQueue), waited for no longer than it would have to.
    pub coalesced: u64,
    /// Delayed and rate-limited adds, whatever their delay; in a
    /// [`PriorityQueue`](crate::PriorityQueue), as in controller-runtime, those that had one.
    pub retries: u64,
    /// Adds refused since the queue is shut down or draining, and waiting keys that a
    /// shutdown dropped. What a drain answers is not dropped.
    pub dropped: u64,
    /// How long keys waited from their add until a worker took them.
    pub queue_duration: Histogram,
    /// How long workers held keys.
    pub work_duration: Histogram,
    /// How long after their time delayed keys became ready.
    pub lateness: Histogram,
    /// How long the keys held now have been held, added up.
    pub unfinished_work: Duration,
    /// How long the key held longest has been held.
    pub longest_running: Duration,
    /// Keys that wait for their time.
    pub waiting: u64,
    /// How long ago the key was added that has been ready for longest.
    pub oldest_ready: Option<Duration>,
}
