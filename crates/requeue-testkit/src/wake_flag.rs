//! A waker that records whether it was woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// A flag that its waker sets. It is set at first.
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(WakeFlag(AtomicBool::new(true)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Clears the flag, and returns whether it was set.
    pub(crate) fn clear(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
