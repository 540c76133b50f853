//! Waiting for work, and seeing whether one is woken.

use super::secs;
use requeue_jobs::Answer;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// One who waits for work, and is looked at only when woken.
pub(crate) struct Waiting<'a> {
    answer: Answer<'a, ()>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Waiting<'_> {
    /// Where there is nothing to claim: the wait must not be over at once.
    pub(super) fn begin(answer: Answer<'_, ()>) -> Waiting<'_> {
        let mut waiting = Waiting { answer, woken: Arc::new(Woken(AtomicBool::new(true))) };
        assert!(!waiting.is_over(), "there is nothing to claim, and the wait is over");
        waiting
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

    /// It is woken, and over. A store elsewhere may take a moment for that; none at all
    /// would mean to hang.
    pub(crate) async fn ends(mut self) {
        let patience = Instant::now() + secs(10);
        while !self.is_over() {
            assert!(Instant::now() < patience, "there is work, and nobody woke who waits for it");
            let mut yielded = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}
