//! Whether an answer got out.
//!
//! A handler that takes something for its client (a claim) has a problem when the client does not
//! get the answer: what was taken is nobody's. It registers how to give it back:
//!
//! ```text
//!                or_else            all of the answer is with the kernel
//!   (handler) ----------> pending --------------------------------------> kept, never run
//!                            |
//!                            +--- anything else ------------------------> run, once
//! ```
//!
//! Anything else: the client closes while the handler runs, the handler panics or answers an error,
//! a write fails or stalls, the connection is cut, the server stops.
//!
//! **What is known.** A write that the kernel took is not a client that read it. Bytes may still be
//! lost with the network or with the client, and nobody here hears of it: for that there are leases.
//! The other way round nothing is left open: what runs here belongs to an answer of which at least
//! the last byte never left the process, and no client can make sense of such an answer.
//!
//! **A client that leaves** is noticed when its end of the stream is read. The server reads while a
//! handler runs, once the request's body has been read; not so from a client that has already sent
//! its next request. Then it is noticed by the write, if at all. A client that shuts down its half
//! of the connection and still waits for its answer is taken to be gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// A handle on the way of one answer, in the extensions of every request.
///
/// ```ignore
/// async fn claim(Extension(delivery): Extension<Delivery>) -> &'static str {
///     // Register in the same breath as taking: no await in between.
///     delivery.on_lost(|| println!("give the job back"));
///     "a job"
/// }
/// ```
#[derive(Clone)]
pub(crate) struct Delivery(Arc<Mutex<State>>);

type Undo = Box<dyn FnOnce() + Send>;

enum State {
    Pending(Vec<Undo>),
    Delivered,
    Lost,
}

impl Delivery {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Pending(Vec::new()))))
    }

    /// Runs `undo` unless the answer gets out; at once, if that is already known.
    ///
    /// It runs on the connection's task, within the runtime: it must not block, and may spawn.
    /// None runs after [`serve`](super::Listener::serve) has returned. One that panics harms no other.
    pub(crate) fn on_lost(&self, undo: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        match &mut *state {
            State::Pending(undos) => undos.push(Box::new(undo)),
            State::Delivered => {}
            State::Lost => {
                drop(state);
                run(Box::new(undo));
            }
        }
    }

    /// The answer is with the kernel. Too late if it was lost before.
    pub(crate) fn delivered(&self) {
        let undos = {
            let mut state = self.lock();
            match &mut *state {
                State::Pending(undos) => {
                    let undos = std::mem::take(undos);
                    *state = State::Delivered;
                    undos
                }
                State::Delivered | State::Lost => return,
            }
        };
        // Not under the lock: what they own may do anything when it is dropped.
        drop(undos);
    }

    /// The answer will not get out. Too late if it did.
    pub(crate) fn lost(&self) {
        let undos = {
            let mut state = self.lock();
            match &mut *state {
                State::Pending(undos) => {
                    let undos = std::mem::take(undos);
                    *state = State::Lost;
                    undos
                }
                State::Delivered | State::Lost => return,
            }
        };
        undos.into_iter().for_each(run);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &*self.lock() {
            State::Pending(_) => "pending",
            State::Delivered => "delivered",
            State::Lost => "lost",
        };
        f.debug_tuple("Delivery").field(&state).finish()
    }
}

/// Caught, because it may run while a handler's panic unwinds: a second one would end the process.
fn run(undo: Undo) {
    if catch_unwind(AssertUnwindSafe(undo)).is_err() {
        tracing::error!("what was to be undone for an answer that was lost has panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted(delivery: &Delivery) -> Arc<AtomicUsize> {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = runs.clone();
        delivery.on_lost(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        runs
    }

    #[test]
    fn what_was_delivered_is_never_undone() {
        let delivery = Delivery::new();
        let runs = counted(&delivery);
        delivery.delivered();
        delivery.lost();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(counted(&delivery).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_was_lost_is_undone_once_however_late_it_is_registered() {
        let delivery = Delivery::new();
        let (first, second) = (counted(&delivery), counted(&delivery));
        delivery.lost();
        delivery.lost();
        delivery.delivered();
        assert_eq!(first.load(Ordering::Relaxed), 1);
        assert_eq!(second.load(Ordering::Relaxed), 1);
        assert_eq!(counted(&delivery).load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_that_panics_does_not_keep_the_next_from_running() {
        let delivery = Delivery::new();
        delivery.on_lost(|| panic!("on purpose"));
        let runs = counted(&delivery);
        delivery.lost();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
