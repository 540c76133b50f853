//! Waiting for work, and seeing whether one is woken.

use requeue_jobs::StoreFuture;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// One who waits for work, and is looked at only when woken.
pub(crate) struct Waiting<'a> {
    answer: StoreFuture<'a, ()>,
    patience: Duration,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<'a> Waiting<'a> {
    pub(super) fn new(answer: StoreFuture<'a, ()>, patience: Duration) -> Self {
        Waiting { answer, patience, woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    /// Looks, if it was woken.
    pub(crate) fn is_over(&mut self) -> bool {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => {
                answer.expect("waiting works");
                true
            }
            Poll::Pending => false,
        }
    }

    /// It is woken, and over.
    pub(crate) async fn ends(mut self) {
        let began = Instant::now();
        while !self.is_over() {
            assert!(began.elapsed() < self.patience, "nobody woke who waits for this");
            let mut yielded = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}
