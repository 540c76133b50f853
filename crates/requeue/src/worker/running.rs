use crate::clock::Alarm;
use crate::park;
use crate::waiters::Waiter;
use crate::work_queue::Key;
use crate::worker::runners::{Runners, StartRunner};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A handle to a running worker. Clones are handles to the same worker.
///
/// The worker ends when its queue ends, that is, when the queue is shut down and empty, or drained.
/// It also ends when it is [shut down](Self::shut_down) itself; the queue then stays as it is.
/// Dropping the handle neither stops the worker nor waits for it.
///
/// ```
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::default_controller;
/// use requeue::worker::{Outcome, Worker};
/// use std::{sync::mpsc, time::Duration};
///
/// let queue = RateLimitingQueue::new(default_controller());
/// let (begun, has_begun) = mpsc::channel();
/// let (go, may_go) = mpsc::channel::<()>();
/// let may_go = std::sync::Mutex::new(may_go);
/// let running = Worker::new(&queue).spawn_threads(move |run| {
///     begun.send(*run.key)?;
///     may_go.lock().unwrap().recv()?;
///     Ok(Outcome::Done)
/// })?;
/// queue.add("order-7");
/// queue.add("order-8");
/// has_begun.recv()?;
///
/// let held = &running.keys()[0];
/// assert_eq!((held.runner, held.key, held.attempt), (0, "order-7", 1));
/// let left = running.shut_down(Duration::ZERO).wait(); // takes no more keys
/// assert_eq!(left[0].key, "order-7"); // still running
/// go.send(())?;
/// running.join().wait();
/// assert_eq!(queue.len(), 1); // for another worker, or for `queue.drain`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Running<K> {
    runners: Arc<Runners<K>>,
    start: StartRunner<K>,
}

impl<K: Key> Running<K> {
    pub(super) fn new(runners: Arc<Runners<K>>, start: StartRunner<K>) -> Self {
        Running { runners, start }
    }

    /// Returns how many keys may be processed concurrently, or 0 if the worker is shut down or has
    /// ended.
    pub fn concurrency(&self) -> usize {
        self.runners.concurrency()
    }

    /// Sets how many keys may be processed concurrently, at most
    /// [`MAX_CONCURRENCY`](super::MAX_CONCURRENCY). 0 pauses the worker.
    ///
    /// Surplus runners end: those that wait for a key immediately, those that process a key, or are
    /// just taking one, after that key. The call has no effect if the worker has ended or is shut
    /// down.
    ///
    /// Fails if the system cannot start a thread. As many threads run as could be started, and
    /// [`concurrency`](Self::concurrency) returns their number. It never fails for tasks.
    ///
    /// ```
    /// use requeue::RateLimitingQueue;
    /// use requeue::limiter::default_controller;
    /// use requeue::worker::{Outcome, Worker};
    ///
    /// let queue = RateLimitingQueue::new(default_controller());
    /// queue.add("order-7");
    /// let paused = Worker::new(&queue).concurrency(0);
    /// let running = paused.spawn_threads(|_run| Ok(Outcome::Done))?;
    /// assert_eq!(queue.len(), 1);
    /// running.set_concurrency(8)?;
    /// queue.shut_down();
    /// running.join().wait();
    /// assert_eq!(queue.len(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_concurrency(&self, runners: usize) -> io::Result<()> {
        self.runners.set_concurrency(runners, &self.start)
    }

    pub(super) fn stop(&self) {
        self.runners.stop();
    }

    /// Returns the keys that are being processed, by runner. The runners are read one after the
    /// other, so the list is not one consistent snapshot.
    pub fn keys(&self) -> Vec<RunningKey<K>> {
        self.runners.running()
    }

    /// Waits until the worker has ended, even if it is paused meanwhile.
    ///
    /// It has ended once it or the queue was shut down and every runner has ended. A paused worker
    /// does not read its queue, and so does not notice that the queue ends.
    pub fn join(&self) -> Join<K> {
        Join { runners: Arc::clone(&self.runners), waiter: Waiter::for_task() }
    }

    /// Stops the worker: it takes no more keys. Waits for the keys that are being processed, for at
    /// most `limit` on the queue's clock, and returns those that are still being processed then. Their
    /// handlers continue. If the result is empty, no handler is running any more.
    ///
    /// The worker stops when this method is called, not when the future is first polled. A runner that
    /// is just taking a key still processes it, and the future waits until that key is known. The queue
    /// stays open and keeps its keys. To process them first, call the queue's `drain`.
    pub fn shut_down(&self, limit: Duration) -> ShutDown<K> {
        let clock = self.runners.clock();
        let alarm = Alarm::new(clock, clock.now().saturating_add(limit));
        self.runners.stop();
        ShutDown { join: self.join(), alarm }
    }
}

impl<K> Clone for Running<K> {
    fn clone(&self) -> Self {
        Running { runners: Arc::clone(&self.runners), start: Arc::clone(&self.start) }
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Running<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("concurrency", &self.concurrency())
            .field("keys", &self.keys())
            .finish()
    }
}

/// A key that a runner is processing.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningKey<K> {
    /// The number of the runner, from 0. It is lower than the highest concurrency so far.
    pub runner: usize,
    /// The key.
    pub key: K,
    /// The number of the attempt: 1 for the first since the key's failures were last forgotten.
    pub attempt: u32,
    /// How long the attempt has been running.
    pub running_for: Duration,
}

/// Waits until a worker has ended: `.await` it, or [`wait`](Self::wait) on a thread.
/// Dropping it only stops waiting.
#[must_use = "await it, or call wait()"]
pub struct Join<K> {
    runners: Arc<Runners<K>>,
    waiter: Waiter,
}

impl<K: Key> Join<K> {
    /// Blocks the thread until the worker has ended.
    pub fn wait(mut self) {
        park::wait(|waker| self.poll_ended(waker));
    }

    fn poll_ended(&mut self, waker: &Waker) -> Poll<()> {
        self.runners.poll_ended(&mut self.waiter, waker)
    }
}

impl<K: Key> Future for Join<K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().poll_ended(cx.waker())
    }
}

impl<K> Drop for Join<K> {
    fn drop(&mut self) {
        self.runners.leave_joins(&mut self.waiter);
    }
}

/// Waits until a worker that is shutting down has ended, or a time limit has passed, and returns
/// the keys that are still being processed. Dropping it only stops waiting.
#[must_use = "await it, or call wait(): it returns the keys that are still being processed"]
pub struct ShutDown<K> {
    join: Join<K>,
    alarm: Alarm,
}

impl<K: Key> ShutDown<K> {
    /// Blocks the thread until the worker has ended, or the limit has passed.
    pub fn wait(mut self) -> Vec<RunningKey<K>> {
        park::wait(|waker| self.poll_left(waker))
    }

    fn poll_left(&mut self, waker: &Waker) -> Poll<Vec<RunningKey<K>>> {
        if self.join.poll_ended(waker).is_pending() && self.alarm.poll(waker).is_pending() {
            return Poll::Pending;
        }
        self.join.runners.left().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<K: Key> Future for ShutDown<K> {
    type Output = Vec<RunningKey<K>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_left(cx.waker())
    }
}
