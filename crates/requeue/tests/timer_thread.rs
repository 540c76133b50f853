//! There is one timer thread per process, and none without a queue that needs it.
//!
//! A target of its own, because it counts the threads of its process.

#![cfg(all(target_os = "linux", not(requeue_loom)))]

use requeue::DelayingQueue;
use std::time::{Duration, Instant};

fn timer_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads there");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "requeue-timer").count()
}

/// A thread ends a moment after it was asked to, so this checks until it has.
fn threads_become(expected: usize) -> bool {
    let start = Instant::now();
    while timer_threads() != expected {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn ten_thousand_queues_share_a_thread_that_ends_with_the_last_of_them() {
    for _round in 0..2 {
        let idle: Vec<_> = (0..10).map(|_| DelayingQueue::<u32>::new()).collect();
        assert_eq!(timer_threads(), 0, "a queue that delays nothing needs no timer");

        let queues: Vec<_> = (0..10_000).map(|_| DelayingQueue::new()).collect();
        for (queue, key) in queues.iter().zip(0u32..) {
            queue.add_after(key, Duration::from_micros(u64::from(key)));
        }
        assert_eq!(timer_threads(), 1);
        for (queue, key) in queues.iter().zip(0u32..) {
            assert_eq!(queue.get().wait().map(|held| held.done_into_key()), Some(key));
        }

        // A key that still waits does not keep its queue, nor the thread, alive.
        queues[0].add_after(0, Duration::from_secs(3600));
        drop(queues);
        assert!(threads_become(0), "{} timer threads are left", timer_threads());
        drop(idle);
    }
}
