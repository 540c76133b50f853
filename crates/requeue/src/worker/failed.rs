use super::BoxError;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// The handler answered `Retry` or `GiveUp`.
    Asked,
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Error(error) => error.fmt(f),
            Cause::TimedOut => f.write_str("it took too long"),
            Cause::Panicked(message) => write!(f, "it panicked: {message}"),
            Cause::Asked => f.write_str("the handler said so"),
        }
    }
}

/// What becomes of a key that failed.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is ready again after this long, or sooner if it was to be anyway.
    RetryIn(Duration),
    /// It is not tried again, and its failures are forgotten.
    Dead,
    /// The queue drains: it is not tried again, and the drain's answer lists it.
    Kept,
    /// The queue is shut down and took it back no more: this is the last that is heard of it.
    Dropped,
}

/// A cause that owns what it tells.
pub(super) enum Fault {
    Error(BoxError),
    TimedOut,
    Panicked(String),
    Asked,
}

impl Fault {
    pub(super) fn cause(&self) -> Cause<'_> {
        match self {
            Fault::Error(error) => Cause::Error(&**error),
            Fault::TimedOut => Cause::TimedOut,
            Fault::Panicked(message) => Cause::Panicked(message),
            Fault::Asked => Cause::Asked,
        }
    }
}

/// Runs foreign code, and survives it. The panic hook has reported a panic by then.
pub(super) fn guarded<T>(foreign: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(|payload| {
        let message = message(&*payload);
        // It is foreign too: dropping it may panic, with a payload that may do so again.
        if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(another);
        }
        Fault::Panicked(message)
    })
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("not with a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    fn caught(foreign: impl FnOnce()) -> String {
        match guarded(foreign) {
            Err(Fault::Panicked(message)) => message,
            _ => unreachable!("it panics"),
        }
    }

    #[test]
    fn a_panic_is_known_by_its_message() {
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("{} and {}", 1, 2)), "1 and 2");
        assert_eq!(caught(|| panic_any(7)), "not with a message");
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_survived() {
        struct Matryoshka;
        impl Drop for Matryoshka {
            fn drop(&mut self) {
                panic_any(Matryoshka);
            }
        }
        assert_eq!(caught(|| panic_any(Matryoshka)), "not with a message");
    }
}
