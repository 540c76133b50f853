//! Runners that are threads.

use crate::retry::Retry;
use crate::sync::{Mutex, thread};
use crate::worker::attempt::Attempt;
use crate::worker::failed::Fault;
use crate::worker::next_key::NextKey;
use crate::worker::running::Running;
use crate::worker::{BoxError, Job, Outcome, Run, Worker};
use std::io;
use std::sync::Arc;

/// Linux shows the first 15 bytes.
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
        let hire = move |runner| {
            start(Job { handler: Arc::clone(&handler), worker: Arc::clone(&worker), runner })
        };
        let running = Running::new(runners, Arc::new(hire));
        running.set_concurrency(concurrency).inspect_err(|_| running.stop())?;
        Ok(running)
    }
}

fn start<Q, F, T>(job: Job<Q, F>) -> io::Result<()>
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<T, BoxError> + Send + Sync + 'static,
    T: Into<Outcome>,
{
    // In an option that both sides can take, so that the job is not lost if there is no thread.
    let ours = Arc::new(Mutex::new(Some(job)));
    let theirs = Arc::clone(&ours);
    let body = move || {
        let job = theirs.lock().take();
        work(&job.expect("it is taken back only if the thread did not start"));
    };
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body);
    thread.map(drop).inspect_err(|_| {
        if let Some(job) = ours.lock().take() {
            job.runner.refuse();
        }
    })
}

fn work<Q, F, T>(job: &Job<Q, F>)
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<T, BoxError>,
    T: Into<Outcome>,
{
    let Job { handler, worker, runner } = job;
    runner.looks();
    let mut pause = false;
    while let Some(held) = NextKey::wait(runner, &worker.queue, pause) {
        let mut attempt = Attempt::begin(worker, runner, held);
        let begun = attempt.announce();
        let answer =
            begun.and_then(|()| attempt.span().enter(|| handler(attempt.run()).map(Into::into)));
        pause = attempt.settle(answer.and_then(|answer| answer.map_err(Fault::Error)));
    }
}
