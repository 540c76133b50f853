use super::BoxError;
use crate::guarded::guarded;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A failed attempt, as its callbacks see it.
#[non_exhaustive]
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a, K> {
    /// The key.
    pub key: &'a K,
    /// 1 for the first attempt since the key's failures were last forgotten.
    pub attempt: u32,
    /// Why it failed.
    pub cause: Cause<'a>,
    /// What becomes of the key.
    pub next: Next,
}

impl<'a, K> Failed<'a, K> {
    /// For tests of a callback, and for workers over other queues.
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
    /// The handler answered this error.
    Error(&'a (dyn Error + Send + Sync + 'static)),
    /// It took longer than [`Worker::timeout`](super::Worker::timeout) allows.
    TimedOut,
    /// It panicked with this message.
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

/// What becomes of a key that failed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is ready again after this long: sooner if it was to be anyway, later if a
    /// [minimum interval](crate::Options::min_interval) keeps it.
    RetryIn(Duration),
    /// It is not tried again, and its failures are forgotten.
    Dead,
    /// The queue drains, and the drain's answer lists it. It is not tried again, unless it had
    /// been added once more before.
    Kept,
    /// The queue is shut down and took it back no more: this is the last that is heard of it.
    Dropped,
}

/// A cause that owns what it tells.
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

/// Runs what belongs to an attempt: a panic in it is why that failed.
pub(super) fn attempted<T>(foreign: impl FnOnce() -> T) -> Result<T, Fault> {
    guarded(foreign).map_err(Fault::Panicked)
}
