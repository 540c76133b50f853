//! Waiting for keys and for the end of a queue, in a task or on a thread.

use crate::clock::{Alarm, Clock};
use crate::held::{Handle, Held};
use crate::park;
use crate::snapshot::Remains;
use crate::waiters::Waiter;
use crate::work_queue::{StopMode, WorkQueue};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits for a key: `.await` it, or call [`wait`](Self::wait) on a thread. Resolves to `None`
/// once the queue is shut down and no key is ready.
///
/// This future is cancel safe. It takes a key in the same poll that returns it, so dropping the
/// future loses no key. If the future was already woken, dropping it wakes another waiter. Poll
/// or drop it soon after it was woken: until then, one ready key may wait for it although other
/// getters are idle.
///
/// If it is polled again after it has resolved, it returns `None`.
#[must_use = "await it, or call wait()"]
pub struct Get<'q, Q: WorkQueue> {
    /// `None` after the future has resolved.
    queue: Option<Handle<'q, Q>>,
    waiter: Waiter,
    /// The token of a hold to end first.
    finished: Option<u64>,
}

impl<'q, Q: WorkQueue> Get<'q, Q> {
    #[inline(always)]
    pub(crate) fn new(queue: &'q Q) -> Self {
        let queue = Some(Handle::Borrowed(queue));
        Get { queue, waiter: Waiter::for_task(), finished: None }
    }

    /// Creates the future for a thread that polls it directly and does nothing else meanwhile.
    pub(crate) fn for_thread(queue: &'q Q) -> Self {
        let queue = Some(Handle::Borrowed(queue));
        Get { queue, waiter: Waiter::for_thread(), finished: None }
    }

    #[inline(always)]
    pub(crate) fn after(queue: Handle<'q, Q>, finished: u64) -> Self {
        Get { queue: Some(queue), waiter: Waiter::for_task(), finished: Some(finished) }
    }

    /// Blocks the thread until a key is ready, and returns it. Returns `None` once the queue is
    /// shut down and no key is ready.
    #[inline(always)]
    pub fn wait(mut self) -> Option<Held<'q, Q>> {
        if let (Some(Handle::Borrowed(queue)), 0) = (&self.queue, self.waiter.id()) {
            let queue: &'q Q = queue;
            let make = |taken| Held::new(Handle::Borrowed(queue), taken);
            let held = match self.finished.take() {
                Some(token) => queue.next_now(token, make),
                None => queue.take_now(make),
            };
            if held.is_some() {
                self.queue = None;
                return held;
            }
        }
        self.park()
    }

    #[cold]
    fn park(mut self) -> Option<Held<'q, Q>> {
        self.wait_as_thread();
        park::wait(|waker| self.poll_held(waker))
    }

    fn wait_as_thread(&mut self) {
        if let Some(queue) = &self.queue {
            become_thread(&**queue, &mut self.waiter);
        }
    }

    /// Blocks the thread until a key is ready, for at most `limit`. The limit is measured in
    /// real time even if the queue has a manual clock, because the caller waits in real time.
    ///
    /// ```
    /// use requeue::{GetTimeoutError, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::<String>::new();
    /// let error = queue.get().wait_timeout(Duration::ZERO).unwrap_err();
    /// assert_eq!(error, GetTimeoutError::TimedOut);
    /// ```
    pub fn wait_timeout(mut self, limit: Duration) -> Result<Held<'q, Q>, GetTimeoutError> {
        self.wait_as_thread();
        match park::wait_timeout(limit, |waker| self.poll_held(waker)) {
            Some(Some(held)) => Ok(held),
            Some(None) => Err(GetTimeoutError::ShutDown),
            None => Err(GetTimeoutError::TimedOut),
        }
    }

    fn poll_held(&mut self, waker: &Waker) -> Poll<Option<Held<'q, Q>>> {
        let Some(queue) = &self.queue else {
            return Poll::Ready(None);
        };
        let next = self.finished.take().and_then(|token| queue.next_now(token, |taken| taken));
        let taken = match next {
            Some(taken) => Poll::Ready(Some(taken)),
            None => queue.poll_take(&mut self.waiter, Some(waker)),
        };
        taken.map(|taken| Some(Held::new(self.queue.take()?, taken?)))
    }
}

impl<'q, Q: WorkQueue> Future for Get<'q, Q> {
    type Output = Option<Held<'q, Q>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_held(cx.waker())
    }
}

impl<Q: WorkQueue> Unpin for Get<'_, Q> {}

impl<Q: WorkQueue> Drop for Get<'_, Q> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        if let Some(finished) = self.finished.take() {
            queue.done(finished);
        }
        leave(&**queue, &mut self.waiter);
    }
}

/// Removes `waiter` from the queue's waiters, if it is registered.
#[inline(always)]
fn leave<Q: WorkQueue>(queue: &Q, waiter: &mut Waiter) {
    if waiter.id() != 0 {
        queue.leave(waiter);
    }
}

/// Registers as a thread from now on, even if a task polled before.
fn become_thread<Q: WorkQueue>(queue: &Q, waiter: &mut Waiter) {
    leave(queue, waiter);
    *waiter = Waiter::for_thread();
}

#[inline]
pub(crate) fn try_get<Q: WorkQueue>(queue: &Q) -> Result<Held<'_, Q>, TryGetError> {
    match queue.poll_take(&mut Waiter::for_task(), None) {
        Poll::Ready(Some(taken)) => Ok(Held::new(Handle::Borrowed(queue), taken)),
        Poll::Ready(None) => Err(TryGetError::ShutDown),
        Poll::Pending => Err(TryGetError::Empty),
    }
}

/// Waits for several keys, which it takes under one lock. Otherwise like [`Get`]. Resolves to
/// an empty list once the queue is shut down and no key is ready.
#[must_use = "await it, or call wait()"]
pub struct GetMany<'q, Q: WorkQueue> {
    queue: &'q Q,
    max: usize,
    waiter: Waiter,
}

impl<'q, Q: WorkQueue> GetMany<'q, Q> {
    pub(crate) fn new(queue: &'q Q, max: usize) -> Self {
        GetMany { queue, max: max.max(1), waiter: Waiter::for_task() }
    }

    /// Blocks the thread until at least one key is ready, and returns the keys. Returns an
    /// empty list once the queue is shut down and no key is ready.
    pub fn wait(mut self) -> Vec<Held<'q, Q>> {
        become_thread(self.queue, &mut self.waiter);
        park::wait(|waker| self.poll_many(waker))
    }

    fn poll_many(&mut self, waker: &Waker) -> Poll<Vec<Held<'q, Q>>> {
        let mut taken = Vec::new();
        self.queue.take_ready(self.max, &mut taken);
        if taken.is_empty() {
            match self.queue.poll_take(&mut self.waiter, Some(waker)) {
                Poll::Ready(first) => taken.extend(first),
                Poll::Pending => return Poll::Pending,
            }
        } else {
            leave(self.queue, &mut self.waiter);
        }
        let queue = self.queue;
        Poll::Ready(taken.into_iter().map(|t| Held::new(Handle::Borrowed(queue), t)).collect())
    }
}

impl<'q, Q: WorkQueue> Future for GetMany<'q, Q> {
    type Output = Vec<Held<'q, Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_many(cx.waker())
    }
}

impl<Q: WorkQueue> Drop for GetMany<'_, Q> {
    fn drop(&mut self) {
        leave(self.queue, &mut self.waiter);
    }
}

/// Waits until no key is held. The call that created this value has already shut the queue
/// down. Dropping the value only stops the wait.
#[must_use = "await it, or call wait(); shut_down() does not wait"]
pub struct ShutDownWithDrain<'q, Q: WorkQueue> {
    queue: &'q Q,
    waiter: Waiter,
}

impl<'q, Q: WorkQueue> ShutDownWithDrain<'q, Q> {
    pub(crate) fn new(queue: &'q Q) -> Self {
        queue.stop(StopMode::WithDrain);
        ShutDownWithDrain { queue, waiter: Waiter::for_task() }
    }

    /// Blocks the thread until no key is held.
    pub fn wait(mut self) {
        park::wait(|waker| self.poll_drained(waker));
    }

    fn poll_drained(&mut self, waker: &Waker) -> Poll<()> {
        self.queue.poll_drained(StopMode::WithDrain, &mut self.waiter, waker)
    }
}

impl<Q: WorkQueue> Future for ShutDownWithDrain<'_, Q> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().poll_drained(cx.waker())
    }
}

impl<Q: WorkQueue> Drop for ShutDownWithDrain<'_, Q> {
    fn drop(&mut self) {
        leave(self.queue, &mut self.waiter);
    }
}

/// Waits until no key is ready or held, or until the limit (on the queue's clock) has passed.
/// Then shuts the queue down and returns the remaining keys.
///
/// The drain begins with the call that creates this value. If the value is dropped before it
/// resolves, the queue continues to drain, without a limit. If a queue has several drains, the
/// first one to end returns the remaining keys and ends the others.
#[must_use = "await it, or call wait(): it returns the remaining keys"]
pub struct Drain<'q, Q: WorkQueue> {
    queue: &'q Q,
    waiter: Waiter,
    alarm: Alarm,
}

impl<'q, Q: WorkQueue> Drain<'q, Q> {
    pub(crate) fn new(queue: &'q Q, clock: &Clock, limit: Duration) -> Self {
        let alarm = Alarm::new(clock, clock.now().saturating_add(limit));
        queue.stop(StopMode::WorkOff);
        Drain { queue, waiter: Waiter::for_task(), alarm }
    }

    /// Blocks the thread until the drain ends, and returns the remaining keys.
    pub fn wait(mut self) -> Remains<Q::Key> {
        park::wait(|waker| self.poll_remains(waker))
    }

    fn poll_remains(&mut self, waker: &Waker) -> Poll<Remains<Q::Key>> {
        let drained = self.queue.poll_drained(StopMode::WorkOff, &mut self.waiter, waker);
        if drained.is_pending() && self.alarm.poll(waker).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.queue.take_remaining())
    }
}

impl<Q: WorkQueue> Future for Drain<'_, Q> {
    type Output = Remains<Q::Key>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_remains(cx.waker())
    }
}

impl<Q: WorkQueue> Drop for Drain<'_, Q> {
    fn drop(&mut self) {
        leave(self.queue, &mut self.waiter);
    }
}

/// Error of `try_get`: why no key was returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryGetError {
    /// No key is ready now.
    Empty,
    /// No key is ready, and the queue is shut down.
    ShutDown,
}

/// Error of [`Get::wait_timeout`]: why no key was returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetTimeoutError {
    /// No key became ready within the limit.
    TimedOut,
    /// No key is ready, and the queue is shut down.
    ShutDown,
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryGetError::Empty => "no key is ready",
            TryGetError::ShutDown => "no key is ready and the queue is shut down",
        })
    }
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GetTimeoutError::TimedOut => "no key became ready in time",
            GetTimeoutError::ShutDown => "no key is ready and the queue is shut down",
        })
    }
}

impl std::error::Error for TryGetError {}
impl std::error::Error for GetTimeoutError {}
