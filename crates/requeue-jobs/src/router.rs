//! [`Router`]: calls a handler for each type of [`Task`].
//!
//! ```text
//!   JobRun --> around (1st added) --> around (2nd) --> route of the kind --> decode --> your handler
//!                                                       |                      |
//!                                                       | no handler           | not the expected JSON
//!                                                       v                      v
//!                                                     buried                 buried
//! ```
//!
//! A router is only a handler of a [`JobWorker`], and a set of limits per kind: the worker knows
//! nothing about types, and what it guarantees applies. A job costs one boxed future, and one more for
//! each function around the handlers.

mod around;
mod context;
mod handler;
mod spawn;

pub use around::NextHandler;
pub use context::TaskContext;
pub use handler::{TaskHandler, TaskResult};

use crate::error::Invalid;
use crate::names::Kind;
use crate::task::Task;
#[cfg(doc)]
use crate::worker::JobWorker;
use crate::worker::KindLimits;
use around::Around;
use handler::{ErasedHandler, HandlerFuture, erase};
use requeue::worker::Outcome;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

/// Calls a handler for each type of [`Task`]. Start it with `JobWorker::spawn_router`. Requires the
/// feature `serde`.
///
/// A handler receives the task and a [`TaskContext`], which contains the job and the state that all
/// handlers share:
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue_jobs::{
///     BoxError, JobOutcome, JobWorker, Jobs, MemoryStore, Outcome, Router, Task, TaskContext,
/// };
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(Serialize, Deserialize)]
/// struct Remind {
///     order: u64,
/// }
///
/// impl Task for Remind {
///     const KIND: &'static str = "order.remind";
///
///     fn id(&self) -> String {
///         format!("order-{}", self.order)
///     }
/// }
///
/// struct Shop {
///     name: &'static str,
/// }
///
/// async fn remind(task: Remind, context: TaskContext<Shop>) -> Result<(), BoxError> {
///     println!("{}: please pay order {}", context.state.name, task.order);
///     Ok(())
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new())); // or on disk, on Redis, over HTTP
/// let router = Router::new(Shop { name: "bakery" })
///     .on::<Remind>(remind)
///     .concurrency::<Remind>(2)
///     .timeout::<Remind>(Duration::from_secs(30));
/// let running = JobWorker::new(&jobs, [], "shop-1")?.concurrency(10).spawn_router(router)?;
///
/// jobs.put_task(&Remind { order: 7 }).await?;
/// # while jobs.get(Remind::KIND, "order-7").await?.is_some() { tokio::task::yield_now().await }
/// assert!(running.shut_down(Duration::from_secs(20)).await.is_empty());
/// # Ok::<(), BoxError>(()) }).unwrap() }
/// ```
///
/// | situation | what happens to the job |
/// |---|---|
/// | the handler returns, fails, panics, times out | the same as in a [`JobWorker`] without a router |
/// | the body is not the JSON of the task | it is buried; the reason contains the kind, and the line and column |
/// | there is no handler for the kind | it is buried; the reason contains the kind |
///
/// A put of a corrected body revives a buried job.
#[must_use = "a router does nothing before it is spawned"]
pub struct Router<S = ()> {
    state: Arc<S>,
    routes: Vec<(String, ErasedHandler<S>)>,
    limits: BTreeMap<&'static str, KindLimits>,
    around: Vec<Around<S>>,
}

impl<S: Send + Sync + 'static> Router<S> {
    /// Returns a router without handlers. `state` is what they share: a pool of connections, a
    /// configuration, a [`Jobs`](crate::Jobs) to put more jobs. Use `()` if they need nothing.
    pub fn new(state: S) -> Self {
        let state = Arc::new(state);
        Router { state, routes: Vec::new(), limits: BTreeMap::new(), around: Vec::new() }
    }

    /// Sets the handler of a type of task: `async fn(T, TaskContext<S>) -> Result<(), BoxError>`, or a
    /// closure of this form. See [`TaskHandler`] for what else it may return.
    ///
    /// A second handler of the same kind is an error, which [`JobWorker::spawn_router_with`] returns.
    ///
    /// A handler of another task is rejected by the compiler, and so is one without a context:
    ///
    /// ```compile_fail,E0631
    /// # use requeue_jobs::{BoxError, Router, Task, TaskContext};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Remind;
    /// # impl Task for Remind { const KIND: &'static str = "a"; fn id(&self) -> String { "a".into() } }
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Close;
    /// # impl Task for Close { const KIND: &'static str = "b"; fn id(&self) -> String { "b".into() } }
    /// async fn close(task: Close, context: TaskContext) -> Result<(), BoxError> {
    ///     Ok(())
    /// }
    /// let router = Router::new(()).on::<Remind>(close);
    /// ```
    ///
    /// ```compile_fail,E0593
    /// # use requeue_jobs::{BoxError, Router, Task};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Close;
    /// # impl Task for Close { const KIND: &'static str = "b"; fn id(&self) -> String { "b".into() } }
    /// async fn close(task: Close) -> Result<(), BoxError> {
    ///     Ok(())
    /// }
    /// let router = Router::new(()).on::<Close>(close);
    /// ```
    pub fn on<T: Task>(self, handler: impl TaskHandler<T, S>) -> Self {
        self.on_kind(T::KIND, handler)
    }

    /// Sets the handler of a kind that is only known at run time, for example because each customer
    /// has one. The body has any type that JSON can be parsed as.
    ///
    /// ```
    /// use requeue_jobs::{BoxError, Router, TaskContext};
    ///
    /// async fn index(document: String, context: TaskContext) -> Result<(), BoxError> {
    ///     println!("{document} of {}", context.run.job.kind());
    ///     Ok(())
    /// }
    ///
    /// let customers = ["bakery", "florist"];
    /// let router = customers.iter().fold(Router::new(()), |router, customer| {
    ///     router.on_kind(&format!("index.{customer}"), index)
    /// });
    /// ```
    pub fn on_kind<T>(mut self, kind: &str, handler: impl TaskHandler<T, S>) -> Self
    where
        T: DeserializeOwned,
    {
        self.routes.push((kind.to_owned(), erase(handler)));
        self
    }

    /// Sets how many jobs of this kind run concurrently (default: as many as the
    /// [worker](JobWorker::concurrency) runs of all kinds together). With 0, none are claimed.
    ///
    /// The limit applies to this worker. [`Settings::concurrency`](crate::Settings::concurrency)
    /// limits a kind across all workers.
    pub fn concurrency<T: Task>(mut self, jobs: usize) -> Self {
        self.limits.entry(T::KIND).or_default().concurrency = Some(jobs);
        self
    }

    /// Sets how long an attempt at a job of this kind may take (default: the
    /// [timeout of the worker](JobWorker::timeout)).
    pub fn timeout<T: Task>(mut self, limit: Duration) -> Self {
        self.limits.entry(T::KIND).or_default().timeout = Some(limit);
        self
    }

    /// Calls a function around every handler, for example to log or to reject jobs. The one that was
    /// added first is called first.
    ///
    /// The function calls [`NextHandler::run`] to continue. The timeout includes it. It is also called
    /// for jobs that are about to be buried because they have no handler or do not decode.
    ///
    /// ```
    /// use requeue_jobs::{NextHandler, Router, TaskContext, TaskResult};
    ///
    /// async fn log(next: NextHandler<u8>, context: TaskContext<u8>) -> TaskResult {
    ///     let id = context.run.job.id().clone();
    ///     let result = next.run(context).await;
    ///     println!("{id}: {result:?}");
    ///     result
    /// }
    ///
    /// let router = Router::new(7).around(log);
    /// ```
    pub fn around<F, Fut>(mut self, function: F) -> Self
    where
        F: Fn(NextHandler<S>, TaskContext<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        self.around.push(Box::new(move |next, context| Box::pin(function(next, context))));
        self
    }

    /// Returns the routes, and the limits of each kind.
    fn build(self) -> Result<(Routes<S>, BTreeMap<Kind, KindLimits>), RouterError> {
        let mut handlers = BTreeMap::new();
        for (kind, handler) in self.routes {
            if handlers.insert(Kind::new(kind.as_str())?, handler).is_some() {
                return Err(RouterError::Duplicate { kind });
            }
        }
        let mut limits = BTreeMap::new();
        for (kind, limit) in self.limits {
            match handlers.get_key_value(kind) {
                Some((known, _)) => limits.insert(known.clone(), limit),
                None => return Err(RouterError::NoHandler { kind: kind.to_owned() }),
            };
        }
        Ok((Routes { state: self.state, handlers, around: self.around }, limits))
    }
}

impl<S> fmt::Debug for Router<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.routes.iter().map(|(kind, _)| kind).collect();
        f.debug_struct("Router").field("kinds", &kinds).finish_non_exhaustive()
    }
}

/// What handlers and the functions around them share.
struct Routes<S> {
    state: Arc<S>,
    handlers: BTreeMap<Kind, ErasedHandler<S>>,
    around: Vec<Around<S>>,
}

impl<S> Routes<S> {
    fn handle(&self, context: TaskContext<S>) -> HandlerFuture {
        let kind = context.run.job.kind();
        match self.handlers.get(kind) {
            Some(handler) => handler(context),
            None => {
                let reason = format!("no handler for kind {kind}");
                Box::pin(ready(Ok(Outcome::give_up(reason).into())))
            }
        }
    }
}

/// Why a [`Router`] cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterError {
    /// A kind is invalid, or there are too many.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The router has two handlers for the same kind.
    #[error("there are two handlers for kind {kind}")]
    Duplicate {
        /// The kind.
        kind: String,
    },
    /// The router has limits for a kind, but no handler.
    #[error("there are limits for kind {kind}, but no handler")]
    NoHandler {
        /// The kind.
        kind: String,
    },
}
