//! What a handler receives beside its task.

#[cfg(doc)]
use super::Router;
use crate::worker::JobRun;
use std::sync::Arc;

/// What a handler receives beside its task: the attempt, and the state of the [`Router`].
#[derive(Debug)]
#[non_exhaustive]
pub struct TaskContext<S = ()> {
    /// The state that was passed to [`Router::new`].
    pub state: Arc<S>,
    /// The job, the number of the attempt, and the time that is left.
    pub run: JobRun,
}

impl<S> TaskContext<S> {
    /// Returns a context. Use it to test a handler.
    ///
    /// ```
    /// use requeue_jobs::{
    ///     Body, BoxError, ClaimedJob, Fence, JobId, JobRun, Kind, Receipt, TaskContext,
    /// };
    ///
    /// struct Close {
    ///     order: u64,
    /// }
    ///
    /// async fn close(task: Close, context: TaskContext<&str>) -> Result<(), BoxError> {
    ///     println!("{}: order {} is closed", context.state, task.order);
    ///     Ok(())
    /// }
    ///
    /// let receipt = Receipt::new(Kind::new("order.close")?, JobId::new("order-7")?, Fence(1), 1);
    /// let job = ClaimedJob::new(receipt, Body::default());
    /// let context = TaskContext::new("bakery", JobRun::new(job));
    /// requeue_testkit::block_on(close(Close { order: 7 }, context))?;
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn new(state: impl Into<Arc<S>>, run: JobRun) -> Self {
        TaskContext { state: state.into(), run }
    }
}

impl<S> Clone for TaskContext<S> {
    fn clone(&self) -> Self {
        TaskContext { state: Arc::clone(&self.state), run: self.run.clone() }
    }
}
