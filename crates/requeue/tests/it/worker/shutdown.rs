//! Shutting down: the worker takes no more keys, and waits for running ones up to a limit.

use super::executor::Executor;
use super::{MINUTE, Queue, SECOND, queue};
use requeue::worker::{Outcome, Running, Worker};
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn spawned(queue: &Queue, concurrency: usize) -> (Running<&'static str>, Executor) {
    let executor = Executor::default();
    let worker = Worker::new(queue).concurrency(concurrency).timeout(MINUTE);
    let handler = |run: requeue::worker::Run<&'static str>| async move {
        match run.key {
            "slow" => pending().await,
            _ => Ok(Outcome::Done),
        }
    };
    (worker.spawn_with(executor.spawner(), handler), executor)
}

/// A waker that counts its wakes.
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll<F: Future>(future: Pin<&mut F>, wakes: &Arc<WakeCount>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(wakes))))
}

#[test]
fn shut_down_begins_with_the_call_and_takes_no_more_keys() {
    let (queue, _clock) = queue();
    let (running, executor) = spawned(&queue, 2);
    executor.run();
    queue.add("a"); // wakes one runner
    let shut_down = running.shut_down(SECOND);
    executor.run();
    assert_eq!((executor.tasks(), queue.len(), running.concurrency()), (0, 1, 0));
    assert!(shut_down.wait().is_empty());
    running.set_concurrency(2).unwrap();
    assert_eq!((executor.tasks(), running.concurrency()), (0, 0));
    assert!(!queue.shutting_down());
}

#[test]
fn shut_down_waits_for_running_keys_and_is_woken_when_they_end() {
    let (queue, clock) = queue();
    let (running, executor) = spawned(&queue, 2);
    queue.add("slow");
    executor.run();
    let mut shut_down = pin!(running.shut_down(2 * MINUTE));
    let wakes = Arc::new(WakeCount(AtomicUsize::new(0)));
    executor.run();
    assert!(poll(shut_down.as_mut(), &wakes).is_pending());
    clock.advance(MINUTE); // the timeout of the attempt
    assert_eq!(wakes.0.load(SeqCst), 0);
    executor.run();
    assert_eq!(wakes.0.load(SeqCst), 1);
    assert_eq!(poll(shut_down.as_mut(), &wakes), Poll::Ready(Vec::new()));
    assert_eq!(queue.num_requeues("slow"), 1);
}

#[test]
fn shut_down_returns_the_running_keys_at_its_limit() {
    let (queue, clock) = queue();
    let (running, executor) = spawned(&queue, 2);
    queue.add("slow");
    executor.run();
    clock.advance(SECOND);
    let mut shut_down = pin!(running.shut_down(SECOND));
    let wakes = Arc::new(WakeCount(AtomicUsize::new(0)));
    executor.run();
    assert!(poll(shut_down.as_mut(), &wakes).is_pending());
    clock.advance(SECOND - Duration::from_nanos(1));
    assert!(poll(shut_down.as_mut(), &wakes).is_pending());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(wakes.0.load(SeqCst), 1);
    let Poll::Ready(left) = poll(shut_down.as_mut(), &wakes) else {
        panic!("the limit has passed");
    };
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].key, left[0].attempt, left[0].running_for), ("slow", 1, 2 * SECOND));
    // The attempt continues, and ends with its own timeout.
    clock.advance(MINUTE);
    executor.run();
    running.join().wait();
}

#[test]
fn a_worker_ends_when_its_queue_is_shut_down_and_empty() {
    let (queue, _clock) = queue();
    let (running, executor) = spawned(&queue, 3);
    let wakes = Arc::new(WakeCount(AtomicUsize::new(0)));
    let (mut first, mut second) = (pin!(running.join()), pin!(running.join()));
    executor.run();
    queue.add("a");
    queue.add("b");
    queue.shut_down();
    assert!(poll(first.as_mut(), &wakes).is_pending());
    assert!(poll(second.as_mut(), &wakes).is_pending());
    {
        let third = pin!(running.join());
        assert!(poll(third, &wakes).is_pending()); // then it is dropped and stops waiting
    }
    executor.run();
    assert!(queue.is_empty());
    assert_eq!(wakes.0.load(SeqCst), 2);
    assert!(poll(first.as_mut(), &wakes).is_ready());
    assert!(poll(second.as_mut(), &wakes).is_ready());
    assert!(poll(pin!(running.join()), &wakes).is_ready());
}

#[test]
fn shutting_down_a_paused_worker_ends_it() {
    let (queue, _clock) = queue();
    let (running, executor) = spawned(&queue, 0);
    let wakes = Arc::new(WakeCount(AtomicUsize::new(0)));
    let mut join = pin!(running.join());
    assert!(poll(join.as_mut(), &wakes).is_pending());
    assert!(running.shut_down(MINUTE).wait().is_empty());
    assert_eq!(wakes.0.load(SeqCst), 1);
    assert!(poll(join.as_mut(), &wakes).is_ready());
    assert_eq!(executor.run(), 0);
}

#[test]
fn a_worker_continues_when_its_handle_is_dropped() {
    let (queue, _clock) = queue();
    let (running, executor) = spawned(&queue, 1);
    drop(running);
    queue.add("a");
    executor.run();
    assert_eq!(queue.status("a"), requeue::KeyStatus::default());
}
