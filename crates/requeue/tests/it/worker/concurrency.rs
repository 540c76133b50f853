//! How many keys are processed concurrently, and which runner holds which key.

use super::executor::Executor;
use super::{Queue, SECOND, lock, queue};
use requeue::worker::{MAX_CONCURRENCY, Outcome, Running, Worker};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Makes each handler wait until the test opens the gate for its key.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    open: Vec<&'static str>,
    wakers: Vec<Waker>,
}

impl Gate {
    fn pass(&self, key: &'static str) -> impl Future<Output = ()> + Send + use<> {
        let gate = self.clone();
        poll_fn(move |cx| {
            let mut state = lock(&gate.0);
            match state.open.iter().position(|&open| open == key) {
                Some(index) => {
                    state.open.remove(index);
                    Poll::Ready(())
                }
                None => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    fn open(&self, key: &'static str) {
        let mut state = lock(&self.0);
        state.open.push(key);
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

fn gated(queue: &Queue, concurrency: usize) -> (Running<&'static str>, Executor, Gate) {
    let (executor, gate) = (Executor::default(), Gate::default());
    let their_gate = gate.clone();
    let worker = Worker::new(queue).concurrency(concurrency);
    let running = worker.spawn_with(executor.spawner(), move |run| {
        let passed = their_gate.pass(run.key);
        async move {
            passed.await;
            Ok(Outcome::Done)
        }
    });
    (running, executor, gate)
}

fn holders(running: &Running<&'static str>) -> Vec<(usize, &'static str)> {
    running.keys().into_iter().map(|key| (key.runner, key.key)).collect()
}

#[test]
fn as_many_keys_are_processed_concurrently_as_there_are_runners() {
    let (queue, clock) = queue();
    let (running, executor, gate) = gated(&queue, 2);
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    executor.run();
    assert_eq!(holders(&running), [(0, "a"), (1, "b")]);
    clock.advance(SECOND);
    assert_eq!(running.keys()[1].running_for, SECOND);
    gate.open("a");
    executor.run();
    assert_eq!(holders(&running), [(0, "c"), (1, "b")]);
    assert_eq!((queue.len(), running.concurrency()), (0, 2));
}

#[test]
fn additional_runners_start_immediately() {
    let (queue, _clock) = queue();
    let (running, executor, _gate) = gated(&queue, 1);
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    executor.run();
    running.set_concurrency(3).unwrap();
    executor.run();
    assert_eq!(holders(&running), [(0, "a"), (1, "b"), (2, "c")]);
}

#[test]
fn surplus_runners_end_immediately_if_idle_and_after_their_key_if_busy() {
    let (queue, _clock) = queue();
    let (running, executor, gate) = gated(&queue, 4);
    executor.run();
    queue.add("a");
    queue.add("b");
    executor.run();
    assert_eq!(holders(&running), [(0, "a"), (1, "b")]);
    running.set_concurrency(1).unwrap();
    assert_eq!(executor.run(), 2);
    assert_eq!(executor.tasks(), 2);
    queue.add("c");
    gate.open("b");
    executor.run();
    assert_eq!((holders(&running), queue.len()), (vec![(0, "a")], 1));
    assert_eq!(executor.tasks(), 1);
    gate.open("a");
    executor.run();
    assert_eq!(holders(&running), [(0, "c")]);
}

#[test]
fn a_dismissed_runner_that_is_wanted_again_before_it_ends_continues() {
    let (queue, _clock) = queue();
    let (running, executor, gate) = gated(&queue, 2);
    queue.add("a");
    queue.add("b");
    executor.run();
    running.set_concurrency(0).unwrap();
    running.set_concurrency(2).unwrap();
    assert_eq!(executor.tasks(), 2);
    gate.open("b");
    executor.run();
    queue.add("c");
    executor.run();
    assert_eq!(holders(&running), [(0, "a"), (1, "c")]);
}

#[test]
fn concurrency_zero_pauses_the_worker_and_does_not_end_it() {
    let (queue, _clock) = queue();
    let (running, executor, gate) = gated(&queue, 1);
    executor.run();
    running.set_concurrency(0).unwrap();
    executor.run();
    assert_eq!(executor.tasks(), 0);
    queue.add("a");
    queue.shut_down();
    let mut join = std::pin::pin!(running.join());
    let mut cx = std::task::Context::from_waker(Waker::noop());
    assert!(join.as_mut().poll(&mut cx).is_pending());
    running.set_concurrency(1).unwrap();
    gate.open("a");
    executor.run();
    assert!(join.as_mut().poll(&mut cx).is_ready());
    assert!(queue.is_empty());
}

#[test]
fn concurrency_is_limited_to_the_maximum() {
    let (queue, _clock) = queue();
    let (running, executor, _gate) = gated(&queue, usize::MAX);
    assert_eq!((running.concurrency(), executor.tasks()), (MAX_CONCURRENCY, MAX_CONCURRENCY));
    running.set_concurrency(1).unwrap();
    running.set_concurrency(usize::MAX).unwrap();
    assert_eq!((running.concurrency(), executor.tasks()), (MAX_CONCURRENCY, MAX_CONCURRENCY));
    executor.abort();
    assert_eq!(running.concurrency(), 0);
}

/// The runner was woken for the key, but ends without taking it. So another one must be woken.
#[test]
fn a_runner_that_ends_passes_its_wake_up_on() {
    let (queue, _clock) = queue();
    let (running, executor, _gate) = gated(&queue, 1);
    let (other, theirs, _their_gate) = gated(&queue, 1);
    executor.run();
    theirs.run();
    queue.add("a"); // wakes the first worker's runner
    running.set_concurrency(0).unwrap();
    executor.run();
    theirs.run();
    assert_eq!(holders(&other), [(0, "a")]);
}

/// Otherwise the runner would occupy its thread as long as keys are ready.
#[test]
fn a_runner_yields_to_other_tasks_even_if_its_handler_never_waits() {
    const MANY: u32 = 1000;
    let (queue, _clock) = queue();
    let (executor, runs) = (Executor::default(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&runs);
    let _running = Worker::new(&queue).spawn_with(executor.spawner(), move |_| {
        let again = count.fetch_add(1, SeqCst) < MANY;
        async move { Ok(if again { Outcome::RequeueAfter(Duration::ZERO) } else { Outcome::Done }) }
    });
    queue.add("a");
    assert!(executor.poll_one());
    assert!(runs.load(SeqCst) < MANY); // the runner has yielded
    executor.run();
    assert_eq!(runs.load(SeqCst), MANY + 1);
}
