//! Waiting on a thread for what a poll answers.

use crate::sync::{park_timeout, thread};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `poll` is ready.
pub(crate) fn wait<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = poll(&waker) {
            return value;
        }
        thread::park();
    }
}

/// As [`wait`], for at most `limit`. `None`: it passed.
pub(crate) fn wait_timeout<T>(
    limit: Duration,
    mut poll: impl FnMut(&Waker) -> Poll<T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let start = Instant::now();
    loop {
        if let Poll::Ready(value) = poll(&waker) {
            return Some(value);
        }
        match limit.checked_sub(start.elapsed()) {
            Some(left) if !left.is_zero() => park_timeout(left),
            _ => return None,
        }
    }
}
