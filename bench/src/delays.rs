//! Queues with delays, as the delayed workloads use them.

use crate::keys::{make_delays, make_keys, priority_of};
use requeue::limiter::default_item_based;
use requeue::{AddOptions, DelayingQueue, PriorityQueue};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// A key and its delay.
pub type Timer = (Arc<str>, Duration);

/// Keys with delays of 1 to 61 minutes: none becomes due during the measurement.
pub fn make_timers(n: usize) -> Vec<Timer> {
    let delays = make_delays(n, Duration::from_secs(60), Duration::from_secs(3600));
    make_keys(n).into_iter().zip(delays).collect()
}

/// A queue with delays.
pub trait Delays {
    /// An empty queue, for at most `n` timers.
    fn empty(n: usize) -> Self;

    /// Delays the `i`-th key, which is not waiting yet.
    fn add_after(&mut self, i: usize, timer: &Timer);

    /// Delays the `i`-th key, which is already waiting, for a shorter time.
    fn reschedule(&mut self, i: usize, timer: &Timer);

    /// Returns the number of waiting keys.
    fn waiting(&self) -> usize;

    /// Delays all keys.
    fn add_all(&mut self, timers: &[Timer]) {
        for (i, timer) in timers.iter().enumerate() {
            self.add_after(i, timer);
        }
        assert_eq!(self.waiting(), timers.len());
    }
}

impl Delays for DelayingQueue<Arc<str>> {
    fn empty(_: usize) -> Self {
        DelayingQueue::new()
    }

    fn add_after(&mut self, _: usize, (key, delay): &Timer) {
        DelayingQueue::add_after(self, key.clone(), *delay);
    }

    fn reschedule(&mut self, _: usize, (key, delay): &Timer) {
        DelayingQueue::add_after(self, key.clone(), *delay);
    }

    fn waiting(&self) -> usize {
        DelayingQueue::waiting(self)
    }
}

impl Delays for PriorityQueue<Arc<str>> {
    fn empty(_: usize) -> Self {
        PriorityQueue::new(default_item_based())
    }

    fn add_after(&mut self, _: usize, (key, delay): &Timer) {
        let options = AddOptions::new().after(*delay).priority(priority_of(key));
        self.add_with(key.clone(), options);
    }

    fn reschedule(&mut self, i: usize, timer: &Timer) {
        Delays::add_after(self, i, timer);
    }

    fn waiting(&self) -> usize {
        PriorityQueue::waiting(self)
    }
}

/// tokio-util's `DelayQueue` unchanged: one owner, no lock, and no keys. The caller
/// keeps what `insert` returns; finding it is not counted.
#[derive(Debug)]
pub struct TokioUtil {
    queue: DelayQueue<Arc<str>>,
    handles: Vec<Key>,
}

impl Delays for TokioUtil {
    fn empty(n: usize) -> Self {
        TokioUtil { queue: DelayQueue::new(), handles: Vec::with_capacity(n) }
    }

    fn add_after(&mut self, _: usize, (key, delay): &Timer) {
        self.handles.push(self.queue.insert(key.clone(), *delay));
    }

    fn reschedule(&mut self, i: usize, (_, delay): &Timer) {
        self.queue.reset(&self.handles[i], *delay);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// tokio-util's `DelayQueue` with the behaviour of requeue: found by key, the sooner
/// time wins, and shared behind a lock.
#[derive(Debug)]
pub struct TokioUtilKeyed(Mutex<Keyed>);

#[derive(Debug, Default)]
struct Keyed {
    queue: DelayQueue<Arc<str>>,
    handles: HashMap<Arc<str>, Key>,
}

const NO_PANIC: &str = "nothing panics under the lock";

impl Delays for TokioUtilKeyed {
    fn empty(_: usize) -> Self {
        TokioUtilKeyed(Mutex::default())
    }

    fn add_after(&mut self, _: usize, (key, delay): &Timer) {
        let due = Instant::now() + *delay;
        // By `&self`, as a shared queue requires: `get_mut` would not lock.
        let Keyed { queue, handles } = &mut *self.0.lock().expect(NO_PANIC);
        match handles.entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(queue.insert_at(key.clone(), due));
            }
            Entry::Occupied(entry) if due < queue.deadline(entry.get()) => {
                queue.reset_at(entry.get(), due);
            }
            Entry::Occupied(_) => {}
        }
    }

    fn reschedule(&mut self, i: usize, timer: &Timer) {
        self.add_after(i, timer);
    }

    fn waiting(&self) -> usize {
        self.0.lock().expect(NO_PANIC).queue.len()
    }
}
