//! Tasks on one thread. A seed decides which of them runs next.
//!
//! A task runs only after it was woken, so that a store that forgets to wake its waiters is found.

use crate::random::Random;
use crate::wake_flag::WakeFlag;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[derive(Default)]
pub(super) struct Tasks<'a> {
    tasks: Vec<Task<'a>>,
}

struct Task<'a> {
    name: String,
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<WakeFlag>,
}

impl<'a> Tasks<'a> {
    pub(super) fn spawn(&mut self, name: String, future: impl Future<Output = ()> + 'a) {
        self.tasks.push(Task { name, future: Box::pin(future), woken: WakeFlag::new() });
    }

    /// Drops a task, even in the middle of a call.
    pub(super) fn kill(&mut self, name: &str) {
        self.tasks.retain(|task| task.name != name);
    }

    /// Polls one of the tasks that were woken. Returns whether there was one.
    pub(super) fn step(&mut self, random: &mut Random) -> bool {
        let woken = |at: &usize| self.tasks[*at].woken.is_set();
        let woken: Vec<usize> = (0..self.tasks.len()).filter(woken).collect();
        if woken.is_empty() {
            return false;
        }
        let at = *random.pick(&woken);
        let task = &mut self.tasks[at];
        task.woken.clear();
        let waker = task.woken.waker();
        if let Poll::Ready(()) = task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            drop(self.tasks.swap_remove(at));
        }
        true
    }
}
