//! Intentional differences from client-go. Traces that show client-go's behaviour are excluded
//! from `conformance.rs` by flag.

use requeue::{Added, DelayingQueue, ManualClock, Options, Queue, Taken, WorkQueue};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

fn is_ready<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Flag `stray_done`. client-go queues the key twice, and two workers hold it.
#[test]
fn a_done_that_ends_no_hold_is_ignored() {
    let queue = Queue::new();
    queue.add("a");
    for token in [0, 1, 1 << 32, u64::MAX] {
        WorkQueue::done(&queue, token);
    }
    assert_eq!(queue.len(), 1);
    let held = queue.try_get().unwrap();
    assert!(queue.try_get().is_err());
    WorkQueue::done(&queue, 0);
    assert!(queue.status("a").held);
    held.done();
    assert!(!queue.status("a").held);
}

/// The same with a token of an earlier hold of the same key, in the same slot.
#[test]
fn a_stale_token_does_not_end_a_later_hold() {
    let queue = Queue::new();
    queue.add("a");
    let std::task::Poll::Ready(Some(taken)) =
        queue.poll_take(&mut requeue::Waiter::for_task(), None)
    else {
        panic!("a key is ready");
    };
    let stale = Taken::new("a", taken.token());
    queue.add("a");
    queue.done(taken.token());
    let held = queue.try_get().unwrap();
    assert_eq!(WorkQueue::requeue(&queue, stale), Added::Refused);
    assert!(queue.status("a").held);
    assert!(queue.try_get().is_err());
    held.done();
    assert!(queue.is_empty());
}

/// Flag `multi_drain`. In client-go one of the two hangs.
#[test]
fn the_last_done_ends_all_waiting_drains() {
    let queue = Queue::new();
    queue.add("a");
    let held = queue.try_get().unwrap();
    let (mut first, mut second) =
        (pin!(queue.shut_down_with_drain()), pin!(queue.shut_down_with_drain()));
    assert!(!is_ready(first.as_mut()) && !is_ready(second.as_mut()));
    held.done();
    assert!(is_ready(first) && is_ready(second));
}

/// Flag `noop_shut_down`. client-go's delaying queue ignores a second shutdown.
#[test]
fn a_second_shutdown_of_a_delaying_queue_ends_a_drain() {
    let queue = DelayingQueue::new();
    queue.add("a");
    let _held = queue.try_get().unwrap();
    queue.shut_down();
    let mut drain = pin!(queue.shut_down_with_drain());
    assert!(!is_ready(drain.as_mut()));
    queue.shut_down();
    assert!(is_ready(drain));
}

/// In no trace: in client-go, keys with the same due time become ready in the order of its
/// heap.
#[test]
fn keys_due_at_one_instant_become_ready_in_the_order_they_were_added() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock));
    let second = Duration::from_secs(1);
    for key in 0..100 {
        queue.add_after(key, 2 * second);
    }
    // It got this time later, so it is behind the others.
    queue.add_after(200, 3 * second);
    queue.add_after(200, 2 * second);
    clock.advance(second);
    queue.add_after(300, second);
    clock.advance(second);
    let expected: Vec<i32> = (0..100).chain([200, 300]).collect();
    let ready: Vec<i32> = queue.snapshot().ready.iter().map(|ready| ready.key).collect();
    assert_eq!(ready, expected);
}
