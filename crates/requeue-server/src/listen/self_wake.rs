//! Polls a future again immediately if it has woken itself.
//!
//! hyper wakes the task of its connection when the handler takes a piece of the request's body, even
//! if no more of it is to be read. The task is running at that moment, so tokio queues it again, and
//! wakes another thread that could take it over: two system calls and a switch between threads for
//! each request. Polling the connection once more costs less.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How often a future is polled in a row. Then its task is queued, so that others have their turn.
const MAX_POLLS: usize = 4;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const POLLED_AND_WOKEN: u8 = 2;

/// A future whose wake-ups do not reach the executor while it is polled.
pub(super) struct SelfWaking<F> {
    pub(super) future: F,
    shared: Arc<Shared>,
    /// Wakes `shared`.
    waker: Waker,
}

struct Shared {
    state: AtomicU8,
    /// The task that polls the future.
    task: Mutex<Waker>,
}

impl<F> SelfWaking<F> {
    pub(super) fn new(future: F) -> Self {
        let task = Mutex::new(Waker::noop().clone());
        let shared = Arc::new(Shared { state: AtomicU8::new(IDLE), task });
        let waker = Waker::from(Arc::clone(&shared));
        SelfWaking { future, shared, waker }
    }
}

impl<F: Future + Unpin> Future for SelfWaking<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, shared, waker } = self.get_mut();
        let old = shared.set_task(cx.waker());
        drop(old);
        for _ in 0..MAX_POLLS {
            shared.state.store(POLLED, Ordering::SeqCst);
            let polled = Pin::new(&mut *future).poll(&mut Context::from_waker(waker));
            let was_woken = shared.state.swap(IDLE, Ordering::SeqCst) == POLLED_AND_WOKEN;
            if polled.is_ready() || !was_woken {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Shared {
    /// Returns the previous task, which is to be dropped without the lock.
    fn set_task(&self, waker: &Waker) -> Option<Waker> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        (!task.will_wake(waker)).then(|| std::mem::replace(&mut *task, waker.clone()))
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = |state| (state != IDLE).then_some(POLLED_AND_WOKEN);
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, woken).is_err() {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A future that counts its polls, wakes itself in the first `wakes` of them, and keeps the waker.
    struct Counted {
        polls: usize,
        wakes: usize,
        waker: Option<Waker>,
    }

    impl Future for Counted {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            self.polls += 1;
            self.waker = Some(cx.waker().clone());
            if self.polls <= self.wakes {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        }
    }

    /// Polls such a future once. Returns it, and how often its task was woken.
    fn poll_once(wakes: usize) -> (SelfWaking<Counted>, Arc<Task>) {
        let mut future = SelfWaking::new(Counted { polls: 0, wakes, waker: None });
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        (future, task)
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_and_its_task_is_not_woken() {
        let (future, task) = poll_once(1);
        assert_eq!((future.future.polls, task.0.load(Ordering::Relaxed)), (2, 0));
        // Later wake-ups reach the task.
        future.future.waker.expect("it was polled").wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_future_that_always_wakes_itself_lets_others_have_their_turn() {
        let (future, task) = poll_once(usize::MAX);
        assert_eq!((future.future.polls, task.0.load(Ordering::Relaxed)), (MAX_POLLS, 1));
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let (mut future, first) = poll_once(0);
        let second = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&second));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        future.future.waker.expect("it was polled").wake();
        assert_eq!([&first, &second].map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
