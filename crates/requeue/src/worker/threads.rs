//! Runners that are threads.

use crate::retry::Retry;
use crate::sync::{Mutex, thread};
use crate::worker::attempt::Attempt;
use crate::worker::failed::Fault;
use crate::worker::next_key::NextKey;
use crate::worker::running::Running;
use crate::worker::{BoxError, Outcome, Run, RunnerTask, Worker};
use std::io;
use std::sync::Arc;

/// The name of the threads. Linux shows the first 15 bytes.
const THREAD_NAME: &str = "requeue-worker";

impl<Q: Retry> Worker<Q> {
    /// Starts the worker on threads, one per concurrent key.
    ///
    /// See [`Worker`] for an example. Fails if the system cannot start a thread. The threads that
    /// were already started stop after the key that they may have taken.
    pub fn spawn_threads<F, T>(self, handler: F) -> io::Result<Running<Q::Key>>
    where
        F: Fn(Run<&Q::Key>) -> Result<T, BoxError> + Send + Sync + 'static,
        T: Into<Outcome>,
    {
        let (worker, handler) = (Arc::new(self), Arc::new(handler));
        let (runners, concurrency) = (worker.runners(), worker.concurrency);
        let start = move |runner| {
            let (handler, worker) = (Arc::clone(&handler), Arc::clone(&worker));
            start_thread(RunnerTask { handler, worker, runner })
        };
        let running = Running::new(runners, Arc::new(start));
        running.set_concurrency(concurrency).inspect_err(|_| running.stop())?;
        Ok(running)
    }
}

fn start_thread<Q, F, T>(task: RunnerTask<Q, F>) -> io::Result<()>
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<T, BoxError> + Send + Sync + 'static,
    T: Into<Outcome>,
{
    // In an option that either side can take. So if the thread does not start, the task can be taken
    // back, and its runner is not dropped with its slot.
    let ours = Arc::new(Mutex::new(Some(task)));
    let theirs = Arc::clone(&ours);
    let body = move || {
        let task = theirs.lock().take();
        work(&task.expect("it is taken back only if the thread did not start"));
    };
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body);
    thread.map(drop).inspect_err(|_| {
        if let Some(task) = ours.lock().take() {
            task.runner.not_started();
        }
    })
}

fn work<Q, F, T>(task: &RunnerTask<Q, F>)
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<T, BoxError>,
    T: Into<Outcome>,
{
    let RunnerTask { handler, worker, runner } = task;
    runner.set_taking();
    let mut pause = false;
    while let Some(held) = NextKey::wait(runner, &worker.queue, pause) {
        let mut attempt = Attempt::begin(worker, runner, held);
        let prepared = attempt.prepare();
        let result =
            prepared.and_then(|()| attempt.span().enter(|| handler(attempt.run()).map(Into::into)));
        pause = attempt.settle(result.and_then(|result| result.map_err(Fault::Error)));
    }
}
