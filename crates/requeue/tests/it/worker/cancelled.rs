//! A runner that is dropped at any point loses no key.

use super::executor::Executor;
use super::{Log, MINUTE, lock, queue};
use requeue::TryGetError;
use requeue::worker::{Outcome, Running, RunningKey, Worker};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// How often the handler waits.
const STEPS: usize = 3;

/// The waker of the handler, while it waits in [`step`].
type HandlerWaker = Arc<Mutex<Option<Waker>>>;

/// Waits once, until the test calls [`wake`].
async fn step(waker: HandlerWaker) {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        *lock(&waker) = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

fn wake(waker: &HandlerWaker) -> bool {
    lock(waker).take().map(Waker::wake).is_some()
}

#[test]
fn a_runner_dropped_at_any_await_puts_its_key_back_once() {
    for polls in 0..=STEPS + 2 {
        let (queue, _clock) = queue();
        let (executor, waker, log) = (Executor::default(), HandlerWaker::default(), Log::default());
        let finished = Arc::new(AtomicU32::new(0));
        let worker = Worker::new(&queue).timeout(MINUTE).on_failure(log.callback());
        let (their_waker, count) = (Arc::clone(&waker), Arc::clone(&finished));
        let running = worker.spawn_with(executor.spawner(), move |_| {
            let (waker, count) = (Arc::clone(&their_waker), Arc::clone(&count));
            async move {
                for _ in 0..STEPS {
                    step(Arc::clone(&waker)).await;
                }
                count.fetch_add(1, SeqCst);
                Ok(Outcome::Done)
            }
        });
        if polls > 0 {
            executor.run(); // the runner waits for a key
        }
        queue.add("a");
        for _ in 1..polls {
            executor.run();
            wake(&waker);
        }
        executor.abort();

        let done = finished.load(SeqCst) == 1;
        assert_eq!(done, polls > STEPS + 1, "after {polls} polls");
        let status = queue.status("a");
        assert_eq!((status.ready, status.held, status.failures), (!done, false, 0));
        assert!(log.take().is_empty());
        assert!(running.keys().is_empty());
        running.join().wait();
        running.set_concurrency(9).unwrap(); // no effect, because the executor has ended
        assert_eq!(executor.tasks(), 0);
        match queue.try_get() {
            Ok(held) => assert_eq!((*held.key(), done), ("a", false)),
            Err(error) => assert_eq!((error, done), (TryGetError::Empty, true)),
        }
    }
}

#[test]
fn the_future_is_dropped_before_the_key_is_ready_again() {
    let (queue, _clock) = queue();
    let executor = Executor::default();

    struct Guard(super::Queue, Arc<AtomicU32>);
    impl Drop for Guard {
        fn drop(&mut self) {
            assert!(self.0.status("a").held);
            self.1.fetch_add(1, SeqCst);
        }
    }

    let drops = Arc::new(AtomicU32::new(0));
    let (theirs, count) = (queue.clone(), Arc::clone(&drops));
    let _running = Worker::new(&queue).spawn_with(executor.spawner(), move |_| {
        let guard = Guard(theirs.clone(), Arc::clone(&count));
        async move {
            let _guard = guard;
            pending::<Result<(), _>>().await
        }
    });
    queue.add("a");
    executor.run();
    executor.abort();
    assert_eq!(drops.load(SeqCst), 1);
    assert!(queue.status("a").ready);
}

#[test]
fn a_runner_dropped_after_it_was_woken_passes_the_key_on() {
    let (queue, _clock) = queue();
    let (first, second) = (Executor::default(), Executor::default());
    let handler = |_| async { Ok(Outcome::Done) };
    let _first = Worker::new(&queue).spawn_with(first.spawner(), handler);
    let _second = Worker::new(&queue).spawn_with(second.spawner(), handler);
    first.run();
    second.run();
    queue.add("a"); // wakes the first
    first.abort();
    assert_eq!(second.run(), 1);
    assert!(queue.is_empty());
}

/// A waker that records the running keys when it is called.
struct RecordingWaker {
    running: Running<&'static str>,
    seen: Mutex<Vec<RunningKey<&'static str>>>,
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.seen).extend(self.running.keys());
    }
}

#[test]
fn a_key_that_is_ready_again_is_no_longer_listed_as_running() {
    let (queue, _clock) = queue();
    let executor = Executor::default();
    let running =
        Worker::new(&queue).spawn_with(executor.spawner(), |_| pending::<Result<(), _>>());
    queue.add("a");
    executor.run();
    assert_eq!(running.keys().len(), 1);
    let recording = Arc::new(RecordingWaker { running, seen: Mutex::default() });
    let waker = Waker::from(Arc::clone(&recording));
    let mut get = pin!(queue.get());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    executor.abort();
    assert!(queue.status("a").ready);
    assert_eq!(*lock(&recording.seen), []);
}

#[test]
fn a_worker_ends_if_its_executor_drops_a_runner_without_polling_it() {
    let (queue, _clock) = queue();
    let worker = Worker::new(&queue).concurrency(4);
    let spawned = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&spawned);
    let spawn = move |_| {
        count.fetch_add(1, SeqCst);
    };
    let running = worker.spawn_with(spawn, |_| async { Ok(Outcome::Done) });
    running.join().wait();
    assert_eq!(spawned.load(SeqCst), 1);
    queue.add("a");
    assert_eq!(queue.len(), 1);
}
