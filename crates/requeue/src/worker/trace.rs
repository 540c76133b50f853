//! The span of an attempt. Without the feature `tracing`, it does nothing.

pub(super) use imp::Span;

#[cfg(feature = "tracing")]
mod imp {
    use crate::guarded::{discard, guarded};
    use crate::retry::Retry;
    use crate::worker::failed::{Fault, attempted};
    use crate::worker::{Cause, Next, Worker};
    use std::fmt::Debug;
    use tracing::field::Empty;

    pub(in crate::worker) struct Span(tracing::Span);

    impl Span {
        pub(in crate::worker) fn none() -> Self {
            Span(tracing::Span::none())
        }

        fn of<K: Debug>(key: &K, attempt: u32) -> Self {
            Span(tracing::info_span!("run", ?key, attempt, outcome = Empty))
        }

        /// Calls code that belongs to the attempt. A panic of the subscriber, when the span is
        /// entered or left, has no effect.
        pub(in crate::worker) fn enter<T>(&self, f: impl FnOnce() -> T) -> Result<T, Fault> {
            let entered = guarded(|| self.0.enter());
            let result = attempted(f);
            discard(entered);
            result
        }

        pub(in crate::worker) fn outcome(&self, outcome: &'static str) {
            self.0.record("outcome", outcome);
        }

        pub(in crate::worker) fn failed(&self, cause: Cause<'_>, next: Next) {
            if self.0.is_none() {
                return;
            }
            self.outcome(match next {
                Next::RetryIn(_) => "retry",
                Next::Dead => "dead",
                Next::Kept => "kept",
                Next::Dropped => "dropped",
            });
            tracing::warn!(parent: &self.0, %cause, ?next, "attempt failed");
        }
    }

    impl<Q: Retry<Key: Debug>> Worker<Q> {
        /// Opens a [`tracing`] span for every attempt: `run`, at the level info, with the fields
        /// `key`, `attempt` and, once it is known, `outcome`. The handler runs within the span, and a
        /// failure is an event in it. Requires the feature `tracing`.
        ///
        /// ```
        /// use requeue::RateLimitingQueue;
        /// use requeue::limiter::default_controller;
        /// use requeue::worker::{Outcome, Worker};
        /// use std::time::Duration;
        ///
        /// let queue = RateLimitingQueue::new(default_controller());
        /// queue.add("order-7");
        /// let running = Worker::new(&queue).traced().spawn_threads(|_run| {
        ///     tracing::info!("closing"); // in the span run{key="order-7" attempt=1}
        ///     Ok(Outcome::Done)
        /// })?;
        /// assert!(queue.drain(Duration::MAX).wait().is_empty());
        /// # running.join().wait();
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn traced(mut self) -> Self {
            self.span = Span::of;
            self
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod imp {
    use crate::worker::failed::{Fault, attempted};
    use crate::worker::{Cause, Next};

    pub(in crate::worker) struct Span;

    impl Span {
        pub(in crate::worker) fn none() -> Self {
            Span
        }

        pub(in crate::worker) fn enter<T>(&self, f: impl FnOnce() -> T) -> Result<T, Fault> {
            attempted(f)
        }

        pub(in crate::worker) fn outcome(&self, _: &'static str) {}

        pub(in crate::worker) fn failed(&self, _: Cause<'_>, _: Next) {}
    }
}
