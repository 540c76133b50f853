use super::BoxError;
use crate::guarded::guarded;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A failed attempt: what [`Worker::on_failure`](super::Worker::on_failure) and
/// [`Worker::on_dead`](super::Worker::on_dead) pass to their callback.
#[non_exhaustive]
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a, K> {
    /// The key.
    pub key: &'a K,
    /// The number of the attempt: 1 for the first since the key's failures were last forgotten.
    pub attempt: u32,
    /// Why the attempt failed.
    pub cause: Cause<'a>,
    /// What happens to the key.
    pub next: Next,
}

impl<'a, K> Failed<'a, K> {
    /// Returns a failed attempt. Use it to test a callback, or to write a worker for another queue.
    ///
    /// ```
    /// use requeue::worker::{Cause, Failed, Next};
    ///
    /// let failed = Failed::new(&"order-7", 3, Cause::TimedOut, Next::Dead);
    /// assert_eq!(failed.cause.to_string(), "timed out");
    /// ```
    pub fn new(key: &'a K, attempt: u32, cause: Cause<'a>, next: Next) -> Self {
        Failed { key, attempt, cause, next }
    }
}

/// Why an attempt failed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// The handler returned this error.
    Error(&'a (dyn Error + Send + Sync + 'static)),
    /// The attempt took longer than [`Worker::timeout`](super::Worker::timeout) allows.
    TimedOut,
    /// The handler, or other code of the attempt, panicked with this message.
    Panicked(&'a str),
    /// The handler returned [`Outcome::Retry`](super::Outcome::Retry).
    RetryRequested,
    /// The handler returned [`Outcome::GiveUp`](super::Outcome::GiveUp) with this reason.
    GaveUp(&'a str),
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Error(error) => error.fmt(f),
            Cause::TimedOut => f.write_str("timed out"),
            Cause::Panicked(message) => write!(f, "panicked: {message}"),
            Cause::RetryRequested => f.write_str("the handler requested a retry"),
            Cause::GaveUp("") => f.write_str("the handler gave up"),
            Cause::GaveUp(reason) => f.write_str(reason),
        }
    }
}

/// What happens to a key, or a job, after a failed attempt.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is retried after this delay. A key may be ready earlier if it was already waiting for an
    /// earlier time.
    RetryIn(Duration),
    /// It is not retried. The queue forgets the key's failures; a store keeps the job as dead.
    Dead,
    /// The queue is draining, and the result of the drain lists the key. It is not retried, unless
    /// it had been added again before.
    Kept,
    /// The queue is shut down and did not take the key back: this is the last report of it.
    Dropped,
}

/// An owned [`Cause`].
pub(super) enum Fault {
    Error(BoxError),
    TimedOut,
    Panicked(String),
    RetryRequested,
    GaveUp(String),
}

impl Fault {
    pub(super) fn cause(&self) -> Cause<'_> {
        match self {
            Fault::Error(error) => Cause::Error(&**error),
            Fault::TimedOut => Cause::TimedOut,
            Fault::Panicked(message) => Cause::Panicked(message),
            Fault::RetryRequested => Cause::RetryRequested,
            Fault::GaveUp(reason) => Cause::GaveUp(reason),
        }
    }
}

/// Calls code that belongs to an attempt. A panic is the cause of the attempt's failure.
pub(super) fn attempted<T>(code: impl FnOnce() -> T) -> Result<T, Fault> {
    guarded(code).map_err(Fault::Panicked)
}
