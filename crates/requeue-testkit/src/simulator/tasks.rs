//! Tasks on one thread, of which a seed says which goes on next.
//!
//! A task goes on only when it was woken: a store that forgets to wake those who wait is found
//! out.

use crate::random::Random;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
pub(super) struct Tasks<'a> {
    tasks: Vec<Task<'a>>,
}

struct Task<'a> {
    name: String,
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<'a> Tasks<'a> {
    pub(super) fn spawn(&mut self, name: String, future: impl Future<Output = ()> + 'a) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.tasks.push(Task { name, future: Box::pin(future), woken });
    }

    /// Drops a task where it stands, a call in hand or not.
    pub(super) fn kill(&mut self, name: &str) {
        self.tasks.retain(|task| task.name != name);
    }

    /// Lets one go on. Answers whether any could.
    pub(super) fn step(&mut self, random: &mut Random) -> bool {
        let woken = |at: &usize| self.tasks[*at].woken.0.load(Ordering::SeqCst);
        let woken: Vec<usize> = (0..self.tasks.len()).filter(woken).collect();
        if woken.is_empty() {
            return false;
        }
        let at = *random.pick(&woken);
        let task = &mut self.tasks[at];
        task.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(task.woken.clone());
        if let Poll::Ready(()) = task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            drop(self.tasks.swap_remove(at));
        }
        true
    }
}
