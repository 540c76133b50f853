//! Counts finished keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// Counts finished keys, and notifies the receiver when a round of all keys is over.
#[derive(Clone)]
pub(super) struct Tally {
    keys: usize,
    count: Arc<AtomicUsize>,
    round: mpsc::Sender<()>,
}

impl Tally {
    pub(super) fn new(keys: usize) -> (Self, mpsc::Receiver<()>) {
        let (round, rounds) = mpsc::channel();
        (Tally { keys, count: Arc::default(), round }, rounds)
    }

    pub(super) fn finished(&self) {
        if (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.keys) {
            self.round.send(()).expect("the receiver waits for it");
        }
    }
}
