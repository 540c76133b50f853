use super::lock;
use requeue::worker::RunnerFuture;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// An executor that polls tasks only when a test calls it, and only those that were woken.
#[derive(Clone, Default)]
pub(crate) struct Executor {
    tasks: Arc<Mutex<Vec<Task>>>,
}

struct Task {
    future: RunnerFuture,
    woken: Arc<WokenFlag>,
}

struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

impl Executor {
    pub(crate) fn spawner(&self) -> impl Fn(RunnerFuture) + Send + Sync + 'static {
        let tasks = Arc::clone(&self.tasks);
        move |future| {
            let woken = Arc::new(WokenFlag(AtomicBool::new(true)));
            lock(&tasks).push(Task { future, woken });
        }
    }

    /// Polls until no task is woken, and returns the number of polls.
    pub(crate) fn run(&self) -> usize {
        (0..).take_while(|_| self.poll_one()).count()
    }

    /// Polls one woken task. Returns `false` if there is none.
    pub(crate) fn poll_one(&self) -> bool {
        let mut tasks = lock(&self.tasks);
        let Some(index) = tasks.iter().position(|task| task.woken.0.load(SeqCst)) else {
            return false;
        };
        let mut task = tasks.remove(index);
        drop(tasks);
        task.woken.0.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&task.woken));
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
            lock(&self.tasks).push(task);
        }
        true
    }

    /// Returns the number of tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        lock(&self.tasks).len()
    }

    /// Drops all tasks, as a runtime that is shut down does.
    pub(crate) fn abort(&self) {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        drop(tasks);
    }
}
