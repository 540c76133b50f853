//! Getters that are polled first and then waited for on a thread.

use requeue::Queue;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) {
    assert!(Pin::new(future).poll(&mut Context::from_waker(waker)).is_pending());
}

/// Regression test: the registration as a task remained and consumed the next wake-up.
#[test]
fn a_polled_getter_gives_up_its_registration_when_a_thread_waits_for_it() {
    let queue = Queue::new();
    for way in 0..3 {
        if way == 2 {
            let mut many = queue.get_many(2);
            poll_once(&mut many, Waker::noop());
            queue.add(0);
            assert_eq!(many.wait().len(), 1);
        } else {
            let mut get = queue.get();
            poll_once(&mut get, Waker::noop());
            if way == 0 {
                assert!(get.wait_timeout(Duration::ZERO).is_err());
            } else {
                queue.add(0);
                assert!(get.wait().is_some());
            }
        }
        let woken = Arc::new(Count::default());
        let mut other = queue.get();
        poll_once(&mut other, &Waker::from(Arc::clone(&woken)));
        queue.add(1);
        assert_eq!(woken.0.load(SeqCst), 1, "way {way}");
        drop(other);
        queue.cancel(&1);
    }
}

#[test]
fn a_task_that_is_woken_and_not_polled_does_not_block_the_others() {
    let queue = Queue::new();
    let mut sleepy = queue.get();
    poll_once(&mut sleepy, Waker::noop());
    let woken = Arc::new(Count::default());
    let mut other = queue.get();
    poll_once(&mut other, &Waker::from(Arc::clone(&woken)));
    queue.add(1); // wakes the first task, which is not polled
    queue.add(2);
    assert_eq!(woken.0.load(SeqCst), 1);
}
