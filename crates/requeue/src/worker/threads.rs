//! Runners that are threads.

use crate::retry::Retry;
use crate::sync::{Mutex, thread};
use crate::worker::attempt::Attempt;
use crate::worker::crew::Runner;
use crate::worker::failed::Fault;
use crate::worker::next_key::NextKey;
use crate::worker::running::Running;
use crate::worker::{BoxError, Outcome, Run, Worker};
use std::io;
use std::sync::Arc;

/// Linux shows the first 15 bytes.
const THREAD_NAME: &str = "requeue-worker";

impl<Q: Retry> Worker<Q> {
    /// Runs `handler` on threads, one per key that is worked on at once.
    ///
    /// See [`Worker`] for an example. An error says that the system refused a thread; those
    /// that were started by then stop after the key they may have taken.
    pub fn spawn_threads<F>(self, handler: F) -> io::Result<Running<Q::Key>>
    where
        F: Fn(Run<&Q::Key>) -> Result<Outcome, BoxError> + Send + Sync + 'static,
    {
        let (worker, handler) = (Arc::new(self), Arc::new(handler));
        let crew = worker.crew(Box::new({
            let worker = Arc::clone(&worker);
            move |runner| start(runner, Arc::clone(&worker), Arc::clone(&handler))
        }));
        crew.set_concurrency(worker.concurrency).inspect_err(|_| crew.stop())?;
        Ok(Running::new(crew))
    }
}

fn start<Q, F>(runner: Runner<Q::Key>, worker: Arc<Worker<Q>>, handler: Arc<F>) -> io::Result<()>
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<Outcome, BoxError> + Send + Sync + 'static,
{
    // Handed over, so that it can be taken back where there is no thread.
    let ours = Arc::new(Mutex::new(Some(runner)));
    let theirs = Arc::clone(&ours);
    let body = move || {
        let runner = theirs.lock().take();
        work(&runner.expect("it is taken back only without a thread"), &worker, &*handler);
    };
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body);
    thread.map(drop).inspect_err(|_| {
        if let Some(runner) = ours.lock().take() {
            runner.refuse();
        }
    })
}

fn work<Q, F>(runner: &Runner<Q::Key>, worker: &Worker<Q>, handler: &F)
where
    Q: Retry,
    F: Fn(Run<&Q::Key>) -> Result<Outcome, BoxError>,
{
    let mut pause = false;
    while let Some(held) = NextKey::wait(runner, &worker.queue, pause) {
        let mut attempt = Attempt::begin(worker, runner, held);
        let begun = attempt.announce();
        let answer = begun.and_then(|()| attempt.span().enter(|| handler(attempt.run())));
        pause = attempt.settle(answer.and_then(|answer| answer.map_err(Fault::Error)));
    }
}
