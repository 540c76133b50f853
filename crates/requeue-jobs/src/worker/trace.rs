//! The span of an attempt. Without the feature `tracing`, it does nothing.

pub(super) use imp::Span;

#[cfg(feature = "tracing")]
mod imp {
    use crate::claim::ClaimedJob;
    use crate::panics::guarded;
    use crate::worker::JobWorker;
    use requeue::worker::{Cause, Next};
    use tracing::field::Empty;

    /// A panic of the subscriber has no effect.
    pub(in crate::worker) struct Span(tracing::Span);

    impl Span {
        pub(in crate::worker) fn none() -> Self {
            Span(tracing::Span::none())
        }

        fn of(job: &ClaimedJob) -> Self {
            let (kind, id, attempt) = (job.kind().as_str(), job.id().as_str(), job.attempt);
            let span = guarded(|| tracing::info_span!("run", kind, id, attempt, outcome = Empty));
            Span(span.unwrap_or_else(|_| tracing::Span::none()))
        }

        /// Calls code that belongs to the attempt. Returns the message if it panics.
        pub(in crate::worker) fn enter<T>(&self, code: impl FnOnce() -> T) -> Result<T, String> {
            if self.0.is_none() {
                return guarded(code);
            }
            let entered = guarded(|| self.0.enter());
            let result = guarded(code);
            drop(guarded(|| drop(entered)));
            result
        }

        pub(in crate::worker) fn outcome(&self, outcome: &'static str) {
            drop(guarded(|| self.0.record("outcome", outcome)));
        }

        pub(in crate::worker) fn failed(&self, cause: Cause<'_>, next: Next) {
            if self.0.is_none() {
                return;
            }
            self.outcome(match next {
                Next::RetryIn(_) => "retry",
                Next::Dead => "dead",
                _ => "dropped",
            });
            let event = || tracing::warn!(parent: &self.0, %cause, ?next, "attempt failed");
            drop(guarded(event));
        }

        pub(in crate::worker) fn close(self) {
            drop(guarded(|| drop(self)));
        }
    }

    impl JobWorker {
        /// Opens a [`tracing`] span for every attempt: `run`, at the level info, with the fields
        /// `kind`, `id`, `attempt` and, once it is known, `outcome`. The handler runs within the span,
        /// and a failure is an event in it. Requires the feature `tracing`.
        ///
        /// ```
        /// # #[cfg(feature = "tokio")] {
        /// use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore};
        /// use std::sync::Arc;
        /// use std::time::Duration;
        ///
        /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
        /// jobs.put("order.close", "order-7", "").await?;
        /// let worker = JobWorker::new(&jobs, ["order.close"], "worker-1")?.traced();
        /// let running = worker.spawn(|_run| async {
        ///     tracing::info!("closing"); // in the span run{kind="order.close" id="order-7" attempt=1}
        ///     Ok(())
        /// });
        /// # while jobs.get("order.close", "order-7").await?.is_some() { tokio::task::yield_now().await }
        /// running.shut_down(Duration::from_secs(20)).await;
        /// # Ok::<(), BoxError>(()) }).unwrap() }
        /// ```
        pub fn traced(mut self) -> Self {
            self.span = Span::of;
            self
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use crate::panics::guarded;
    use requeue::worker::{Cause, Next};

    pub(in crate::worker) struct Span;

    impl Span {
        pub(in crate::worker) fn none() -> Self {
            Span
        }

        pub(in crate::worker) fn enter<T>(&self, code: impl FnOnce() -> T) -> Result<T, String> {
            guarded(code)
        }

        pub(in crate::worker) fn outcome(&self, _: &'static str) {}

        pub(in crate::worker) fn failed(&self, _: Cause<'_>, _: Next) {}

        pub(in crate::worker) fn close(self) {}
    }
}
