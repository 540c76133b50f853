//! Starts a worker with a router.

use super::{NextHandler, Router, RouterError, TaskContext};
use crate::worker::{JobWorker, RunningJobs};
use requeue::worker::RunnerFuture;
use std::sync::Arc;

impl JobWorker {
    /// Starts the worker on the current tokio runtime, with the handlers of a router. Requires the
    /// features `serde` and `tokio`.
    ///
    /// The worker claims jobs of the router's kinds, in addition to those passed to
    /// [`new`](Self::new), which may be none. Fails, and starts nothing, if the router has two handlers
    /// for a kind, or limits for a kind without a handler, or if a kind is invalid.
    ///
    /// # Panics
    ///
    /// Panics if it is called outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub fn spawn_router<S>(self, router: Router<S>) -> Result<RunningJobs, RouterError>
    where
        S: Send + Sync + 'static,
    {
        let runtime = tokio::runtime::Handle::current();
        self.spawn_router_with(move |task| drop(runtime.spawn(task)), router)
    }

    /// Starts the worker on any executor, with the handlers of a router. Requires the feature `serde`.
    ///
    /// The worker claims jobs of the router's kinds, in addition to those passed to
    /// [`new`](Self::new), which may be none. `spawn` is called for each task and has to make the
    /// executor poll the future to completion.
    ///
    /// Fails, and starts nothing, if the router has two handlers for a kind, or limits for a kind without a
    /// handler, or if a kind is invalid:
    ///
    /// ```
    /// use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore, Router, Task, TaskContext};
    /// use std::sync::Arc;
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Close;
    ///
    /// impl Task for Close {
    ///     const KIND: &'static str = "order.close";
    ///
    ///     fn id(&self) -> String {
    ///         "all".to_owned()
    ///     }
    /// }
    ///
    /// async fn close(_task: Close, _context: TaskContext) -> Result<(), BoxError> {
    ///     Ok(())
    /// }
    ///
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let worker = JobWorker::new(&jobs, [], "shop-1")?;
    /// let router = Router::new(()).on::<Close>(close).on::<Close>(close);
    /// let error = worker.spawn_router_with(drop, router).unwrap_err();
    /// assert_eq!(error.to_string(), "there are two handlers for kind order.close");
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn spawn_router_with<S>(
        self,
        spawn: impl Fn(RunnerFuture) + Send + Sync + 'static,
        router: Router<S>,
    ) -> Result<RunningJobs, RouterError>
    where
        S: Send + Sync + 'static,
    {
        let (routes, limits) = router.build()?;
        let worker = self.with_kinds(routes.handlers.keys().cloned(), limits)?;
        let routes = Arc::new(routes);
        Ok(worker.spawn_with(spawn, move |run| {
            let context = TaskContext { state: Arc::clone(&routes.state), run };
            NextHandler::first(&routes).run(context)
        }))
    }
}
