//! Stops a worker on SIGTERM and SIGINT.

use super::lease::first;
use super::running::{RunningJob, RunningJobs};
use std::future::poll_fn;
use std::io;
use std::process;
use std::task::{Context, Poll};
use std::time::Duration;

impl RunningJobs {
    /// Runs the worker until the process receives SIGTERM or SIGINT (Ctrl-C), and then stops it.
    /// Returns the jobs that had to be stopped: choose the exit code of the program by them. Also returns
    /// if the worker is shut down otherwise. Requires the feature `tokio`.
    ///
    /// 1. On the first signal, the worker claims no more jobs, releases those that have not started, and
    ///    waits for the running ones: see [`shut_down`](Self::shut_down).
    /// 2. When `grace` is over, or on a second signal, the handlers that are still running are stopped,
    ///    and their jobs are retried: see [`stop`](Self::stop).
    /// 3. A third signal ends the process immediately, with the exit code 128 plus the number of the signal.
    ///
    /// Once this was called, these signals do not end the process any more, also after it has
    /// returned: let the program end then. On Windows, only Ctrl-C is handled.
    ///
    /// Fails if the signals cannot be handled.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, or if its I/O driver is not enabled.
    ///
    /// ```no_run
    /// use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore};
    /// use std::process::ExitCode;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<ExitCode, BoxError> {
    ///     let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    ///     let worker = JobWorker::new(&jobs, ["order.close"], "worker-1")?;
    ///     let running = worker.spawn(|run| async move { Ok(println!("{}", run.job.id())) });
    ///     let stopped = running.run_until_signal(Duration::from_secs(30)).await?;
    ///     Ok(if stopped.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    /// }
    /// ```
    pub async fn run_until_signal(&self, grace: Duration) -> io::Result<Vec<RunningJob>> {
        let mut signals = Signals::listen()?;
        let exit = |signal| process::exit(128 + signal);
        Ok(self.run_until(grace, |cx| signals.poll_next(cx), exit).await)
    }

    /// Stops the worker by the signals that `poll_signal` returns. `exit` is called for the third.
    async fn run_until(
        &self,
        grace: Duration,
        mut poll_signal: impl FnMut(&mut Context<'_>) -> Poll<i32>,
        exit: impl FnOnce(i32),
    ) -> Vec<RunningJob> {
        let mut next = async || poll_fn(&mut poll_signal).await;
        first(next(), self.join()).await;
        first(self.shut_down(grace), next()).await;
        let mut stopped = Vec::new();
        let stop = async { stopped = self.stop(Duration::ZERO).await };
        first(stop, async { exit(next().await) }).await;
        stopped
    }
}

#[cfg(unix)]
struct Signals([(tokio::signal::unix::Signal, i32); 2]);

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind: SignalKind| Ok::<_, io::Error>((signal(kind)?, kind.as_raw_value()));
        Ok(Signals([listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?]))
    }

    /// Returns the number of the next signal.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        let mut signals = self.0.iter_mut();
        signals
            .find_map(|(signal, number)| signal.poll_recv(cx).is_ready().then_some(*number))
            .map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(windows)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn listen() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Signals)
    }

    /// Returns the number that SIGINT has elsewhere.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        self.0.poll_recv(cx).map(|_| 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobWorker, Jobs, MemoryStore};
    use std::future::pending;
    use std::sync::Arc;
    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    /// A worker whose only job does not end by itself.
    async fn hanging_worker() -> RunningJobs {
        let jobs = Jobs::new(Arc::new(MemoryStore::new()));
        jobs.put("k", "i", "").await.expect("the memory store does not fail");
        let worker = JobWorker::new(&jobs, ["k"], "w").expect("the arguments are valid");
        let running = worker.spawn(|_| pending::<Result<(), _>>());
        while running.jobs().is_empty() {
            yield_now().await;
        }
        running
    }

    /// Runs a worker until it has received these signals. Returns how many jobs were stopped, and the
    /// signal that ended the process, if one did.
    async fn run(running: RunningJobs, grace: Duration, signals: &[i32]) -> (usize, Option<i32>) {
        let (send, mut receive) = mpsc::unbounded_channel();
        signals.iter().for_each(|signal| send.send(*signal).expect("the receiver lives"));
        let mut exit = None;
        let next = |cx: &mut Context<'_>| receive.poll_recv(cx).map(|signal| signal.unwrap_or(0));
        let stopped = running.run_until(grace, next, |signal| exit = Some(signal)).await;
        drop(send);
        (stopped.len(), exit)
    }

    #[tokio::test]
    async fn handlers_are_stopped_when_the_grace_period_is_over() {
        let running = hanging_worker().await;
        assert_eq!(run(running, Duration::from_millis(1), &[15]).await, (1, None));
    }

    #[tokio::test]
    async fn a_second_signal_stops_handlers_immediately() {
        let running = hanging_worker().await;
        assert_eq!(run(running, Duration::MAX, &[15, 2]).await, (1, None));
    }

    #[tokio::test]
    async fn a_third_signal_ends_the_process() {
        let running = hanging_worker().await;
        assert_eq!(run(running, Duration::MAX, &[15, 15, 2]).await, (0, Some(2)));
    }

    #[tokio::test]
    async fn without_a_signal_it_returns_when_the_worker_ends() {
        let running = hanging_worker().await;
        let stop = tokio::spawn(running.stop(Duration::ZERO));
        assert_eq!(run(running, Duration::MAX, &[]).await, (1, None));
        assert_eq!(stop.await.expect("it does not panic").len(), 1);
    }
}
