//! Functions around handlers.

use super::handler::HandlerFuture;
use super::{Routes, TaskContext, TaskResult};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// A function around the handlers whose type is erased.
pub(super) type Around<S> =
    Box<dyn Fn(NextHandler<S>, TaskContext<S>) -> HandlerFuture + Send + Sync>;

/// What a function [around](super::Router::around) the handlers calls to continue: the next such
/// function, or the handler.
#[must_use = "the handler is not called before `run` is called and awaited"]
pub struct NextHandler<S = ()> {
    routes: Arc<Routes<S>>,
    /// How many of the functions around the handlers have been called.
    called: usize,
}

impl<S> NextHandler<S> {
    pub(super) fn first(routes: &Arc<Routes<S>>) -> Self {
        NextHandler { routes: Arc::clone(routes), called: 0 }
    }

    /// Runs the handler, and the functions between this one and the handler, and returns what they
    /// return.
    ///
    /// ```
    /// use requeue_jobs::{JobOutcome, NextHandler, Router, TaskContext, TaskResult};
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// struct Shop {
    ///     is_open: AtomicBool,
    /// }
    ///
    /// async fn only_when_open(next: NextHandler<Shop>, context: TaskContext<Shop>) -> TaskResult {
    ///     if !context.state.is_open.load(Ordering::Relaxed) {
    ///         return Ok(JobOutcome::retry_after(Duration::from_secs(600), "the shop is closed"));
    ///     }
    ///     next.run(context).await
    /// }
    ///
    /// let router = Router::new(Shop { is_open: AtomicBool::new(true) }).around(only_when_open);
    /// ```
    pub fn run(
        mut self,
        context: TaskContext<S>,
    ) -> impl Future<Output = TaskResult> + Send + use<S> {
        let routes = Arc::clone(&self.routes);
        match routes.around.get(self.called) {
            Some(around) => {
                self.called += 1;
                around(self, context)
            }
            None => routes.handle(context),
        }
    }
}

impl<S> fmt::Debug for NextHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHandler").finish_non_exhaustive()
    }
}
