//! Runs a handler over a queue whose failed keys come back.
//!
//! ```text
//!           taken             Done
//!   ready --------> attempt -------------------------------> gone, failures forgotten
//!     ^                |      RequeueAfter
//!     |                +-----------------------------------> waiting, failures forgotten
//!     |                |      Retry, error, panic, timeout
//!     |                +-----------------------------------> waiting, one failure more
//!     |                |      GiveUp, or the last attempt failed
//!     |                +-----------------------------------> dead, failures forgotten
//!     |   cancelled    |
//!     +----------------+
//! ```
//!
//! A [`Worker`] says how; spawning it answers a [`Running`], by which it is watched,
//! changed and stopped. Its runners are threads ([`Worker::spawn_threads`]), tokio tasks
//! (`Worker::spawn`, feature `tokio`) or tasks of any other executor
//! ([`Worker::spawn_with`]). Each works on one key at a time.
//!
//! What is promised of every key:
//!
//! - **It is never lost.** Whatever becomes of an attempt, its key is settled in one of
//!   the ways above. An attempt whose task is dropped half way (an executor that ends,
//!   say) puts its key back at once, and it counts as no failure. Only a queue that is shut
//!   down takes no key back; a failed one is then reported ([`Next::Dropped`]).
//! - **It is never run twice at once.** The handler's future is gone before the hold ends.
//! - **A panic is a failed attempt**, in the handler and in dropping its future. A callback
//!   that panics changes nothing, nor does a subscriber of `tracing`. The panic hook reports
//!   it, and the runner goes on.
//!
//! A key or a limiter that panics does no more harm than it must. A key that does so
//! before its handler is called has failed. One whose limiter does comes back after a second.
//! One that cannot be put off, since its `Eq` panics, is ready again at once, and its runner
//! pauses for a second. So do all that try to take a key whose `Clone` panics; in a queue that is
//! first in, first out nobody gets past it before it is cancelled.

mod attempt;
mod failed;
mod next_key;
mod runners;
mod running;
mod tasks;
mod threads;
mod trace;

pub use failed::{Cause, Failed, Next};
pub use runners::MAX_CONCURRENCY;
pub use running::{Join, Running, RunningKey, ShutDown};
pub use tasks::RunnerFuture;

use crate::clock::{Alarm, Clock, Moment};
use crate::metrics::{Metrics, NameError, WorkerRecorder};
use crate::retry::Retry;
use runners::{Runner, Runners};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trace::Span;

/// What a handler fails with: any error that can be sent to another thread, by `?`.
///
/// ```
/// use requeue::worker::{BoxError, Outcome, Run};
///
/// fn handle(run: Run<&String>) -> Result<Outcome, BoxError> {
///     let _number: u32 = run.key.parse()?;
///     Ok(Outcome::Done)
/// }
/// ```
pub type BoxError = Box<dyn Error + Send + Sync>;

/// How an attempt ended: what the worker does with the key next.
///
/// A handler returns `Result<T, BoxError>`, where `T` is an `Outcome` or `()`, which means
/// [`Done`](Self::Done). An error means [`Retry`](Self::Retry), with the error as the cause.
///
/// ```
/// use requeue::worker::Outcome;
///
/// assert_eq!(Outcome::from(()), Outcome::Done);
/// let reason = "no such customer".to_owned();
/// assert_eq!(Outcome::give_up("no such customer"), Outcome::GiveUp { reason });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt succeeded. The queue forgets the key's failures.
    Done,
    /// The attempt succeeded, and the key is added again after this delay. The queue forgets
    /// the key's failures.
    ///
    /// The same rules as for [`Held::requeue_after`](crate::Held::requeue_after) apply: if the
    /// key is already waiting, the earlier time counts, and a queue that is shut down does not
    /// take the key back.
    RequeueAfter(Duration),
    /// The attempt failed. The key comes back after the delay that the limiter returns, or is
    /// dead if this was its last attempt.
    Retry,
    /// The attempt failed and further attempts are useless: the key is dead.
    GiveUp {
        /// Why, for people. Callbacks see it as [`Cause::GaveUp`].
        reason: String,
    },
}

impl Outcome {
    /// Returns [`Outcome::GiveUp`] with this reason.
    pub fn give_up(reason: impl Into<String>) -> Self {
        Outcome::GiveUp { reason: reason.into() }
    }
}

impl From<()> for Outcome {
    /// Returns [`Outcome::Done`], so that a handler may end with `Ok(())`.
    fn from((): ()) -> Self {
        Outcome::Done
    }
}

/// One attempt at a key, as its handler sees it.
///
/// `K` is the key for a task, and a reference to it for a thread.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Run<K> {
    /// The key.
    pub key: K,
    /// 1 for the first attempt since the key's failures were last forgotten.
    pub attempt: u32,
    limit: Option<Limit>,
}

impl<K> Run<K> {
    /// An attempt without a limit: for tests of a handler, and for workers over other queues.
    ///
    /// ```
    /// use requeue::worker::{BoxError, Outcome, Run};
    ///
    /// fn handle(run: Run<&str>) -> Result<Outcome, BoxError> {
    ///     Ok(if run.attempt < 3 { Outcome::Retry } else { Outcome::give_up("no answer") })
    /// }
    ///
    /// assert_eq!(handle(Run::new("order-7", 1))?, Outcome::Retry);
    /// assert_eq!(handle(Run::new("order-7", 3))?, Outcome::give_up("no answer"));
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn new(key: K, attempt: u32) -> Self {
        Run { key, attempt, limit: None }
    }

    /// The same, to be finished before `at` on this clock.
    ///
    /// ```
    /// use requeue::worker::Run;
    /// use requeue::{Clock, ManualClock, Moment};
    ///
    /// let clock = ManualClock::new();
    /// let run = Run::new("order-7", 1).until(&Clock::from(&clock), Moment::from_nanos(5));
    /// assert_eq!(run.remaining().map(|left| left.as_nanos()), Some(5));
    /// ```
    #[must_use]
    pub fn until(mut self, clock: &Clock, at: Moment) -> Self {
        self.limit = Some(Limit { clock: clock.clone(), at });
        self
    }

    /// How long the attempt may still take. `None`: as long as it likes.
    ///
    /// ```
    /// use requeue::limiter::default_controller;
    /// use requeue::worker::{Outcome, Worker};
    /// use requeue::{ManualClock, Options, RateLimitingQueue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = RateLimitingQueue::with(default_controller(), Options::new().clock(&clock));
    /// let running = Worker::new(&queue).timeout(Duration::from_secs(30)).spawn_threads(move |run| {
    ///     assert_eq!(run.remaining(), Some(Duration::from_secs(30)));
    ///     clock.advance(Duration::from_secs(10)); // a slow step
    ///     assert_eq!(run.remaining(), Some(Duration::from_secs(20)));
    ///     Ok(Outcome::Done)
    /// })?;
    /// queue.add("order-7");
    /// assert!(queue.drain(Duration::MAX).wait().is_empty());
    /// running.join().wait();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn remaining(&self) -> Option<Duration> {
        let limit = self.limit.as_ref()?;
        Some(limit.at.saturating_since(limit.clock.now()))
    }
}

impl<K: Clone> Run<&K> {
    fn cloned(self) -> Run<K> {
        Run { key: self.key.clone(), attempt: self.attempt, limit: self.limit }
    }
}

/// When an attempt takes too long.
#[derive(Debug, Clone)]
struct Limit {
    clock: Clock,
    at: Moment,
}

impl Limit {
    fn is_past(&self) -> bool {
        self.clock.now() >= self.at
    }

    fn alarm(&self) -> Alarm {
        Alarm::new(&self.clock, self.at)
    }
}

/// How a handler is to be run over a queue.
///
/// On threads:
///
/// ```
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::ExponentialFailure;
/// use requeue::worker::{Outcome, Worker};
/// use std::time::Duration;
///
/// fn close(order: &str, attempt: u32) -> Result<(), std::io::Error> {
///     match attempt {
///         1 => Err(std::io::Error::other("the bank is busy")),
///         _ => Ok(println!("{order} is closed")),
///     }
/// }
///
/// let queue = RateLimitingQueue::<&str>::new(ExponentialFailure::default());
/// let (closed, is_closed) = std::sync::mpsc::channel();
/// let running = Worker::new(&queue)
///     .concurrency(2)
///     .max_attempts(10)
///     .on_failure(|failed| eprintln!("{}: {}, {:?}", failed.key, failed.cause, failed.next))
///     .spawn_threads(move |run| {
///         close(run.key, run.attempt)?; // an error is a retry
///         closed.send(*run.key)?;
///         Ok(Outcome::Done)
///     })?;
/// queue.add("order-7");
/// assert_eq!(is_closed.recv(), Ok("order-7"));
/// assert!(running.shut_down(Duration::from_secs(20)).wait().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// On tokio, with the feature of that name:
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::ExponentialFailure;
/// use requeue::worker::{Outcome, Worker};
/// use std::time::Duration;
///
/// async fn close(order: &str) -> Result<(), std::io::Error> {
///     Ok(println!("{order} is closed"))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let queue = RateLimitingQueue::new(ExponentialFailure::default());
/// let running = Worker::new(&queue).concurrency(100).timeout(Duration::from_secs(30)).spawn(
///     |run| async move {
///         close(run.key).await?;
///         Ok(Outcome::Done)
///     },
/// );
/// queue.add("order-7");
/// let left = queue.drain(Duration::from_secs(20)).await; // the worker works it off
/// assert!(left.is_empty());
/// running.join().await;
/// # }) }
/// ```
#[must_use = "spawn it"]
pub struct Worker<Q: Retry> {
    queue: Q,
    concurrency: usize,
    timeout: Option<Duration>,
    max_attempts: Option<u32>,
    on_failure: Option<Callback<Q::Key>>,
    on_dead: Option<Callback<Q::Key>>,
    recorder: Option<Arc<WorkerRecorder>>,
    span: fn(&Q::Key, u32) -> Span,
}

type Callback<K> = Box<dyn Fn(&Failed<'_, K>) + Send + Sync>;

impl<Q: Retry> Worker<Q> {
    /// One key at a time, for as long as it takes, until it succeeds.
    pub fn new(queue: &Q) -> Self {
        Worker {
            queue: queue.clone(),
            concurrency: 1,
            timeout: None,
            max_attempts: None,
            on_failure: None,
            on_dead: None,
            recorder: None,
            span: |_, _| Span::none(),
        }
    }

    /// How many keys are worked on at once. Of 0, none: a worker that is paused, until
    /// [`Running::set_concurrency`]. More than [`MAX_CONCURRENCY`] counts as that.
    pub fn concurrency(mut self, runners: usize) -> Self {
        self.concurrency = runners;
        self
    }

    /// An attempt that has taken this long, on the queue's clock, has failed, whatever it
    /// answers later.
    ///
    /// The future of a task is dropped then. A thread cannot be stopped: its attempt has
    /// failed too, but that is noticed when it returns; [`Run::remaining`] tells it how long
    /// it has.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// A key that fails this often is dead instead of retried. 0 counts as 1. Default: it
    /// is retried for ever.
    ///
    /// The attempts are the queue's count of failures, so `add_rate_limited` from elsewhere
    /// counts too, and a queue that was told to bound its counts may forget some. Under a limiter
    /// that has no use for it, the queue counts all the same from now on.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Called for every failed attempt, the last included, by the runner. The latest call
    /// of this counts.
    ///
    /// A key that is to come back is no longer held by then; one that is dead still is. Of a
    /// key whose `Clone` panics it is told only when that is dead.
    pub fn on_failure(
        mut self,
        callback: impl Fn(&Failed<'_, Q::Key>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(callback));
        self
    }

    /// Called for every key that is dead, after [`on_failure`](Self::on_failure): a place to
    /// keep it. The key is still held: nobody works on it meanwhile.
    ///
    /// ```
    /// use requeue::RateLimitingQueue;
    /// use requeue::limiter::default_controller;
    /// use requeue::worker::{Outcome, Worker};
    /// use std::sync::mpsc;
    ///
    /// let queue = RateLimitingQueue::new(default_controller());
    /// let (dead, letters) = mpsc::channel();
    /// let running = Worker::new(&queue)
    ///     .on_dead(move |failed| drop(dead.send((*failed.key, failed.attempt))))
    ///     .spawn_threads(|_run| Ok(Outcome::give_up("no such customer")))?;
    /// queue.add("order-7");
    /// assert_eq!(letters.recv(), Ok(("order-7", 1)));
    /// # queue.shut_down();
    /// # running.join().wait();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_dead(
        mut self,
        callback: impl Fn(&Failed<'_, Q::Key>) + Send + Sync + 'static,
    ) -> Self {
        self.on_dead = Some(Box::new(callback));
        self
    }

    /// A name to report under: see [`Metrics::gather_workers`]. The worker has it until it is
    /// dropped, and, once it runs, until it has ended and no [`Running`] is left of it. One
    /// that another worker has is an error; the queue may have the same.
    ///
    /// ```
    /// use requeue::limiter::default_controller;
    /// use requeue::worker::{Outcome, Worker};
    /// use requeue::{Metrics, RateLimitingQueue};
    ///
    /// let metrics = Metrics::new();
    /// let queue = RateLimitingQueue::new(default_controller());
    /// queue.add("order-7");
    /// queue.shut_down();
    /// let worker = Worker::new(&queue).metrics(&metrics, "orders")?;
    /// let running = worker.spawn_threads(|_run| Ok(Outcome::Done))?;
    /// running.join().wait();
    /// assert_eq!(metrics.gather_workers()[0].success, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(
        mut self,
        registry: &Metrics,
        name: impl Into<String>,
    ) -> Result<Self, NameError> {
        self.recorder = Some(registry.worker(name.into())?);
        Ok(self)
    }

    /// A runners for this worker, still without runners.
    fn runners(&self) -> Arc<Runners<Q::Key>> {
        if self.max_attempts.is_some() {
            self.queue.count_failures();
        }
        Runners::new(self.queue.clock().clone(), self.recorder.as_ref())
    }
}

/// What each runner is given.
///
/// Dropped in this order: as the worker ends, nobody but a [`Running`] has its queue, its
/// handler and its name any more.
struct Job<Q: Retry, F> {
    handler: Arc<F>,
    worker: Arc<Worker<Q>>,
    runner: Runner<Q::Key>,
}

impl<Q: Retry> fmt::Debug for Worker<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("concurrency", &self.concurrency)
            .field("timeout", &self.timeout)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}
