//! A wait for a job, which is polled only after it was woken.

use crate::wake_flag::WakeFlag;
use requeue_jobs::StoreFuture;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A wait in progress. It is polled only after it was woken.
pub(crate) struct Waiting<'a> {
    wait: StoreFuture<'a, ()>,
    patience: Duration,
    woken: Arc<WakeFlag>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(wait: StoreFuture<'a, ()>, patience: Duration) -> Self {
        Waiting { wait, patience, woken: WakeFlag::new() }
    }

    /// Polls the wait if it was woken, and returns whether it has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        if !self.woken.clear() {
            return false;
        }
        let waker = self.woken.waker();
        match self.wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => {
                result.expect("the wait succeeds");
                true
            }
            Poll::Pending => false,
        }
    }

    /// Asserts that the wait is woken and ends.
    pub(crate) async fn ends(mut self) {
        let began = Instant::now();
        while !self.is_over() {
            assert!(began.elapsed() < self.patience, "the wait was not woken");
            let mut yielded = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}
