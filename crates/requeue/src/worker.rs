//! [`Worker`]: takes keys from a queue and calls a handler for each; failed keys are retried.
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
//! Configure a [`Worker`] and spawn it. That returns a [`Running`], which observes, changes and stops
//! it. Its runners are threads ([`Worker::spawn_threads`]), tokio tasks (`Worker::spawn`, feature
//! `tokio`) or tasks of any other executor ([`Worker::spawn_with`]). Each runner processes one key
//! at a time.
//!
//! Guarantees for every key:
//!
//! - **It is never lost.** However an attempt ends, its key is settled in one of the ways above. If
//!   the task of an attempt is dropped before it completes, for example because the executor ends,
//!   the key is put back immediately, and no failure is counted. Only a queue that is shut down
//!   takes no key back; a failed key is then reported with [`Next::Dropped`].
//! - **It never runs twice concurrently.** The handler's future is dropped before the hold ends.
//! - **A panic is a failed attempt**, in the handler and when its future is dropped. A panic in a
//!   callback or in a `tracing` subscriber has no effect. The panic hook reports it, and the runner
//!   continues.
//!
//! Panics in the code of a key or a limiter:
//!
//! - A key that panics before its handler is called has failed.
//! - If the limiter panics, the key is added again after a second.
//! - If the key cannot be delayed because its `Eq` panics, it is ready again immediately, and its
//!   runner pauses for a second.
//! - If the key's `Clone` panics, every runner that tries to take it pauses for a second. In a
//!   first-in, first-out queue, the keys behind it are blocked until it is cancelled.

mod attempt;
mod failed;
mod next_key;
mod runners;
mod running;
mod tasks;
mod threads;
mod trace;

pub use crate::metrics::{RunEnd, RunResult, WorkerRecorder};
pub use failed::{Cause, Failed, Next};
pub use runners::MAX_CONCURRENCY;
pub use running::{Join, Running, RunningKey, ShutDown};
pub use tasks::RunnerFuture;

use crate::clock::{Alarm, Clock, Moment};
use crate::metrics::{Metrics, NameError};
use crate::retry::Retry;
use runners::{Runner, Runners};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use trace::Span;

/// The error type of handlers. The operator `?` converts any error that can be sent to another
/// thread.
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
        /// The reason, as text for people. Callbacks receive it as [`Cause::GaveUp`].
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

/// One attempt at a key: what a [`Worker`] passes to its handler.
///
/// `K` is the key if the runner is a task, and a reference to the key if it is a thread.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Run<K> {
    /// The key.
    pub key: K,
    /// The number of this attempt: 1 for the first since the key's failures were last forgotten.
    pub attempt: u32,
    limit: Option<Limit>,
}

impl<K> Run<K> {
    /// Returns an attempt without a deadline. Use it to test a handler, or to write a worker for
    /// another queue.
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

    /// Sets a deadline: [`remaining`](Self::remaining) then counts down to `at` on this clock.
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

    /// Returns the time left until the attempt times out, or `None` if the worker has no
    /// [`timeout`](Worker::timeout).
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

/// The deadline of an attempt.
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

/// Takes keys from a queue and calls a handler for each. Configure it, then spawn it.
///
/// The handler returns `Result<T, BoxError>`, where `T` is an [`Outcome`] or `()`. An error means
/// that the key is retried.
///
/// On threads:
///
/// ```
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::ExponentialFailure;
/// use requeue::worker::Worker;
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
///         Ok(())
///     })?;
/// queue.add("order-7");
/// assert_eq!(is_closed.recv(), Ok("order-7"));
/// assert!(running.shut_down(Duration::from_secs(20)).wait().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// On tokio, with the feature `tokio`:
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
/// let left = queue.drain(Duration::from_secs(20)).await; // waits for the worker
/// assert!(left.is_empty());
/// running.join().await;
/// # }) }
/// ```
#[must_use = "a worker does nothing before it is spawned"]
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
    /// Returns a worker that processes one key at a time, without a timeout, and retries each key
    /// until it succeeds.
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

    /// Sets how many keys the worker processes concurrently (default 1, at most
    /// [`MAX_CONCURRENCY`]). With 0, the worker is paused until [`Running::set_concurrency`] is
    /// called.
    pub fn concurrency(mut self, runners: usize) -> Self {
        self.concurrency = runners;
        self
    }

    /// Sets how long an attempt may take, on the queue's clock (default: no limit). An attempt that
    /// takes longer fails, whatever its handler returns.
    ///
    /// The future of a task is dropped at that time. A thread cannot be stopped: its attempt fails
    /// when the handler returns. Call [`Run::remaining`] in the handler to learn how much time is
    /// left.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets the number of failed attempts after which a key is dead (default: no limit). 0 counts
    /// as 1.
    ///
    /// The worker uses the queue's count of failures. So calls of `add_rate_limited` by others
    /// count too, and a queue with a bound on its counts may forget some. With a limiter that does
    /// not need the count, the queue counts failures nevertheless from now on.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets a callback for every failed attempt, including the last one of a key. The runner calls
    /// it. A second call of this method replaces the callback.
    ///
    /// At that time a key that will be retried is no longer held; a dead one still is. For a key
    /// whose `Clone` panics, the callback is called only when the key is dead.
    pub fn on_failure(
        mut self,
        callback: impl Fn(&Failed<'_, Q::Key>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(callback));
        self
    }

    /// Sets a callback for every key that is dead, for example to store it. It is called after
    /// [`on_failure`](Self::on_failure). The key is still held, so no other runner processes it
    /// meanwhile.
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

    /// Reports metrics of this worker under a name: see [`Metrics::gather_workers`]. The name is in
    /// use until the worker is dropped or, once it is spawned, until it has ended and no [`Running`]
    /// is left.
    ///
    /// Fails if another worker uses the name. The queue may use the same name.
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
        self.recorder = Some(registry.worker(name)?);
        Ok(self)
    }

    /// Returns the state of this worker's runners, with no runner yet.
    fn runners(&self) -> Arc<Runners<Q::Key>> {
        if self.max_attempts.is_some() {
            self.queue.count_failures();
        }
        Runners::new(self.queue.clock().clone(), self.recorder.as_ref())
    }
}

/// What each runner owns.
///
/// The fields are dropped in this order. So when the worker has ended, only a [`Running`] can still
/// own the queue, the handler and the name.
struct RunnerTask<Q: Retry, F> {
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
