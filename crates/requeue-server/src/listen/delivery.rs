//! Whether a response was delivered.
//!
//! A handler that claims jobs for its client must release them if the client does not get the
//! response. It registers a callback for that:
//!
//! ```text
//!                on_lost            the kernel has the complete response
//!   (handler) ----------> pending --------------------------------------> delivered: never run
//!                            |
//!                            +--- anything else ------------------------> lost: run once
//! ```
//!
//! Anything else: the client disconnects while the handler runs, the handler panics or returns an
//! error, a write fails or stalls, the connection is cut, the server stops.
//!
//! **Guarantees.** That the kernel has the bytes does not mean that the client has read them. They
//! can still be lost with the network or the client, without the server noticing: then the lease
//! expires. The other direction is certain: if a callback runs, at least the last byte of its
//! response never left the process, and no client can use such a response.
//!
//! **Disconnects** are noticed when the server reads the end of the stream. It reads while a
//! handler runs, once the body of the request was read, but not if the client has already sent its
//! next request: then only a failed write reveals the disconnect, if anything. A client that closes
//! its half of the connection and still waits for its response counts as disconnected.

use crate::response_memory::ResponseRoom;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle on the delivery of one response, in the extensions of every request.
///
/// ```text
/// async fn claim(Extension(delivery): Extension<Delivery>) -> &'static str {
///     // Register right after claiming, without an await in between.
///     delivery.on_lost(|| println!("release the job"));
///     "a job"
/// }
/// ```
#[derive(Clone)]
pub(crate) struct Delivery(Arc<Mutex<State>>);

type Callback = Box<dyn FnOnce() + Send>;

enum State {
    Pending {
        callbacks: Vec<Callback>,
        /// The memory that the response takes.
        room: Option<ResponseRoom>,
    },
    Delivered,
    Lost,
}

impl Delivery {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Pending { callbacks: Vec::new(), room: None })))
    }

    /// Runs `callback` if the response is lost; immediately if it is lost already.
    ///
    /// The callback runs on the connection's task: it must not block, and may spawn tasks. None
    /// runs after [`serve`](super::Listener::serve) has returned. A callback that panics does not
    /// affect others.
    pub(crate) fn on_lost(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        match &mut *state {
            State::Pending { callbacks, .. } => callbacks.push(Box::new(callback)),
            State::Delivered => {}
            State::Lost => {
                drop(state);
                run(Box::new(callback));
            }
        }
    }

    /// Holds this memory until the response is delivered or lost.
    pub(crate) fn hold(&self, new: ResponseRoom) {
        if let State::Pending { room, .. } = &mut *self.lock() {
            *room = Some(new);
        }
    }

    /// Gives back this many bytes of the memory that it holds.
    pub(crate) fn give_back(&self, bytes: usize) {
        if let State::Pending { room: Some(room), .. } = &mut *self.lock() {
            room.give_back(bytes);
        }
    }

    /// Returns whether the response holds memory.
    pub(crate) fn holds_memory(&self) -> bool {
        matches!(*self.lock(), State::Pending { room: Some(_), .. })
    }

    /// Returns whether the response holds memory that another request waits for.
    pub(crate) fn is_contended(&self) -> bool {
        matches!(&*self.lock(), State::Pending { room: Some(room), .. } if room.is_contended())
    }

    /// Marks the response as delivered: the kernel has it. Does nothing if it was lost before.
    pub(crate) fn delivered(&self) {
        drop(self.end(State::Delivered));
    }

    /// Marks the response as lost and runs the callbacks. Does nothing if it was delivered before.
    pub(crate) fn lost(&self) {
        if let Some(State::Pending { callbacks, .. }) = self.end(State::Lost) {
            callbacks.into_iter().for_each(run);
        }
    }

    /// Changes the state if it is pending, and returns that one. It is to be dropped without the lock,
    /// because dropping a callback may run arbitrary code.
    fn end(&self, end: State) -> Option<State> {
        let mut state = self.lock();
        let is_pending = matches!(*state, State::Pending { .. });
        is_pending.then(|| std::mem::replace(&mut *state, end))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &*self.lock() {
            State::Pending { .. } => "pending",
            State::Delivered => "delivered",
            State::Lost => "lost",
        };
        f.debug_tuple("Delivery").field(&state).finish()
    }
}

/// Runs a callback. Panics are caught, because this may run while a panic of the handler unwinds: a
/// second panic would abort the process.
fn run(callback: Callback) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the callback for a lost response panicked");
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
    fn callbacks_of_a_delivered_response_never_run() {
        let delivery = Delivery::new();
        let runs = counted(&delivery);
        delivery.delivered();
        delivery.lost();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(counted(&delivery).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn callbacks_of_a_lost_response_run_once_however_late_they_are_registered() {
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
    fn a_panicking_callback_does_not_prevent_the_next() {
        let delivery = Delivery::new();
        delivery.on_lost(|| panic!("on purpose"));
        let runs = counted(&delivery);
        delivery.lost();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
