//! Runners that are tasks, of any executor. Only `spawn` calls tokio.

use crate::guarded::discard;
use crate::retry::Retry;
use crate::worker::attempt::Attempt;
use crate::worker::failed::{Fault, attempted};
use crate::worker::next_key::NextKey;
use crate::worker::running::Running;
use crate::worker::trace::Span;
use crate::worker::{BoxError, Limit, Outcome, Run, RunnerTask, Worker};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

/// The future of a runner, which an executor polls to completion.
pub type RunnerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// After this many keys, a runner yields to other tasks of the executor. Otherwise a handler that
/// never waits would starve them as long as keys are ready. Yielding costs less than one key.
const KEYS_PER_TURN: u32 = 32;

impl<Q: Retry> Worker<Q> {
    /// Starts the worker on the current tokio runtime. Requires the feature `tokio`.
    ///
    /// See [`Worker`] for an example. When the runtime shuts down, the keys that are being processed
    /// are put back into the queue.
    ///
    /// # Panics
    ///
    /// Panics if it is called outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub fn spawn<F, Fut, T>(self, handler: F) -> Running<Q::Key>
    where
        F: Fn(Run<Q::Key>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Into<Outcome> + 'static,
    {
        let runtime = tokio::runtime::Handle::current();
        self.spawn_with(move |runner| drop(runtime.spawn(runner)), handler)
    }

    /// Starts the worker on any executor. `spawn` is called for each runner and has to make the
    /// executor poll the future to completion.
    ///
    /// If the executor drops the future before, the key that was being processed is put back. No
    /// further runner is started then, because the executor has ended.
    ///
    /// ```
    /// use requeue::RateLimitingQueue;
    /// use requeue::limiter::default_controller;
    /// use requeue::worker::{Outcome, RunnerFuture, Worker};
    /// use std::sync::mpsc;
    /// use std::task::{Context, Waker};
    ///
    /// // An executor whose tasks are polled by hand.
    /// let (spawn, spawned) = mpsc::channel::<RunnerFuture>();
    /// let queue = RateLimitingQueue::new(default_controller());
    /// let running = Worker::new(&queue).spawn_with(
    ///     move |runner| spawn.send(runner).expect("the executor is running"),
    ///     |run| async move {
    ///         assert_eq!(run.key, "order-7");
    ///         Ok(Outcome::Done)
    ///     },
    /// );
    /// let mut runner = spawned.recv()?;
    /// queue.add("order-7");
    /// assert!(runner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert!(queue.is_empty());
    /// # drop(running);
    /// # Ok::<(), mpsc::RecvError>(())
    /// ```
    pub fn spawn_with<S, F, Fut, T>(self, spawn: S, handler: F) -> Running<Q::Key>
    where
        S: Fn(RunnerFuture) + Send + Sync + 'static,
        F: Fn(Run<Q::Key>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Into<Outcome> + 'static,
    {
        let (worker, handler) = (Arc::new(self), Arc::new(handler));
        let (runners, concurrency) = (worker.runners(), worker.concurrency);
        let start = move |runner| {
            let (handler, worker) = (Arc::clone(&handler), Arc::clone(&worker));
            spawn(Box::pin(work(RunnerTask { handler, worker, runner })));
            Ok(())
        };
        let running = Running::new(runners, Arc::new(start));
        running.set_concurrency(concurrency).expect("starting a task never fails");
        running
    }
}

async fn work<Q, F, Fut, T>(task: RunnerTask<Q, F>)
where
    Q: Retry,
    F: Fn(Run<Q::Key>) -> Fut,
    Fut: Future<Output = Result<T, BoxError>>,
    T: Into<Outcome>,
{
    let RunnerTask { handler, worker, runner } = &task;
    runner.set_taking();
    let (mut keys, mut pause) = (0_u32, false);
    loop {
        let next = match NextKey::immediately(runner, &worker.queue, &mut pause) {
            Some(next) => next,
            None => NextKey::new(runner, &worker.queue, pause).await,
        };
        let Some(held) = next else { return };
        let mut attempt = Attempt::begin(worker, runner, held);
        let prepared = attempt.prepare();
        let future =
            prepared.and_then(|()| attempt.span().enter(|| handler(attempt.run().cloned())));
        let result = match future {
            Ok(future) => finish(future, attempt.limit(), attempt.span()).await,
            Err(panicked) => Err(panicked),
        };
        pause = attempt.settle(result);
        keys = keys.wrapping_add(1);
        if keys.is_multiple_of(KEYS_PER_TURN) {
            runner.set_idle(None);
            yield_now().await;
            runner.set_taking();
        }
    }
}

/// Polls a handler's future until it completes or times out, and drops it.
async fn finish<Fut, T>(future: Fut, limit: Option<Limit>, span: &Span) -> Result<Outcome, Fault>
where
    Fut: Future<Output = Result<T, BoxError>>,
    T: Into<Outcome>,
{
    let mut future = pin!(Some(future));
    let mut alarm = limit.as_ref().map(Limit::alarm);
    let result = poll_fn(|cx| {
        if limit.as_ref().is_some_and(Limit::is_past) {
            return Poll::Ready(Err(Fault::TimedOut));
        }
        let future = future.as_mut().as_pin_mut().expect("it is dropped only below");
        match span.enter(|| future.poll(cx).map_ok(Into::into)) {
            Ok(Poll::Ready(result)) => Poll::Ready(result.map_err(Fault::Error)),
            // Set only now: an attempt that completes at the first poll needs no alarm.
            Ok(Poll::Pending) => {
                match alarm.as_mut().map(|alarm| attempted(|| alarm.poll(cx.waker()))) {
                    Some(Ok(Poll::Ready(()))) => Poll::Ready(Err(Fault::TimedOut)),
                    Some(Ok(Poll::Pending)) | None => Poll::Pending,
                    // The timer thread could not be started, so there would be no timeout.
                    Some(Err(panicked)) => Poll::Ready(Err(panicked)),
                }
            }
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    })
    .await;
    match span.enter(|| future.set(None)) {
        Ok(()) => result,
        Err(panicked) => {
            discard(result);
            Err(panicked)
        }
    }
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
