//! What a handler of a task is.

use super::TaskContext;
use crate::worker::JobOutcome;
use requeue::worker::{BoxError, Outcome};
use serde::de::DeserializeOwned;
use std::future::{Future, ready};
use std::pin::Pin;

/// The result of a handler.
pub type TaskResult = Result<JobOutcome, BoxError>;

/// The future of a handler whose type is erased.
pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// A handler of any task: decodes the body and calls the handler of the user.
pub(super) type ErasedHandler<S> = Box<dyn Fn(TaskContext<S>) -> HandlerFuture + Send + Sync>;

/// A function that a [`Router`](super::Router) can call for a task of type `T`, with a state of type
/// `S`:
///
/// ```
/// # use requeue_jobs::{BoxError, TaskContext};
/// # struct Remind;
/// # struct Shop;
/// async fn remind(task: Remind, context: TaskContext<Shop>) -> Result<(), BoxError> {
///     # let _ = (task, context);
///     Ok(())
/// }
/// ```
///
/// Instead of `()`, it may return an [`Outcome`] or a [`JobOutcome`]. Its future must be `Send`. All
/// such functions and closures implement this trait; there is nothing to implement.
pub trait TaskHandler<T, S>: Fn(T, TaskContext<S>) -> Self::Future + Send + Sync + 'static {
    /// The future that the function returns.
    type Future: Future<Output = Result<Self::Outcome, BoxError>> + Send + 'static;
    /// What the function returns if it succeeds.
    type Outcome: Into<JobOutcome>;
}

impl<T, S, F, Fut, O> TaskHandler<T, S> for F
where
    F: Fn(T, TaskContext<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<JobOutcome>,
{
    type Future = Fut;
    type Outcome = O;
}

/// Returns a handler that decodes the body first. If that fails, it gives up: the job is buried.
pub(super) fn erase<T: DeserializeOwned, S>(handler: impl TaskHandler<T, S>) -> ErasedHandler<S> {
    Box::new(move |context| match context.run.job.json() {
        Ok(task) => {
            let future = handler(task, context);
            Box::pin(async move { future.await.map(Into::into) })
        }
        Err(invalid) => {
            let reason = format!("kind {}: {invalid}", context.run.job.kind());
            Box::pin(ready(Ok(Outcome::give_up(reason).into())))
        }
    })
}
