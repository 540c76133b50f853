//! Blocking a thread until a poll is ready.

use crate::sync::Parker;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
}

/// Blocks this thread until `poll` is ready.
pub(crate) fn wait<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    loop {
        if let Poll::Ready(value) = poll(&waker) {
            return value;
        }
        parker.park();
    }
}

/// Blocks this thread until `poll` is ready, for at most `limit`. Returns `None` if the limit
/// passed.
pub(crate) fn wait_timeout<T>(
    limit: Duration,
    mut poll: impl FnMut(&Waker) -> Poll<T>,
) -> Option<T> {
    let parker = Arc::new(Parker::new());
    let waker = Waker::from(Arc::clone(&parker));
    let start = Instant::now();
    loop {
        if let Poll::Ready(value) = poll(&waker) {
            return Some(value);
        }
        match limit.checked_sub(start.elapsed()) {
            Some(left) if !left.is_zero() => parker.park_timeout(left),
            _ => return None,
        }
    }
}
