//! `contended-*`: producers add 100k keys once each, while consumers get and
//! finish them.

use requeue::Queue;
use requeue_bench::keys::make_keys;
use requeue_bench::meter::Meter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const KEYS: usize = 100_000;

/// Counts finished keys, and tells when a round of all keys is over.
#[derive(Clone)]
struct Tally {
    count: Arc<AtomicUsize>,
    round: mpsc::Sender<()>,
}

impl Tally {
    fn new() -> (Self, mpsc::Receiver<()>) {
        let (round, rounds) = mpsc::channel();
        (Tally { count: Arc::default(), round }, rounds)
    }

    fn finished(&self) {
        if (self.count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(KEYS) {
            self.round.send(()).expect("who measures waits for it");
        }
    }
}

const CONSUMED: &str = "consumers finish every key";

pub(super) fn threads(producers: usize, consumers: usize, budget: Duration) -> f64 {
    let keys: Vec<Arc<str>> = make_keys(KEYS);
    let queue = Queue::new();
    let (tally, rounds) = Tally::new();
    let mut meter = Meter::new(budget);
    thread::scope(|scope| {
        for _ in 0..consumers {
            let (queue, tally) = (&queue, tally.clone());
            scope.spawn(move || {
                while let Some(held) = queue.get().wait() {
                    held.done();
                    tally.finished();
                }
            });
        }
        while meter.more(KEYS as u64) {
            for producer in 0..producers {
                let (queue, keys) = (&queue, &keys);
                scope.spawn(move || {
                    for key in keys.iter().skip(producer).step_by(producers) {
                        queue.add(key.clone());
                    }
                });
            }
            rounds.recv().expect(CONSUMED);
        }
        queue.shut_down();
    });
    meter.ns_per_op()
}

/// The same as tasks on tokio.
pub(super) fn tasks(producers: usize, consumers: usize, budget: Duration) -> f64 {
    let keys: Arc<[Arc<str>]> = make_keys(KEYS).into();
    let queue = Queue::new();
    let (tally, rounds) = Tally::new();
    let runtime = super::tokio();
    for _ in 0..consumers {
        let (queue, tally) = (queue.clone(), tally.clone());
        runtime.spawn(async move {
            while let Some(held) = queue.get().await {
                held.done();
                tally.finished();
            }
        });
    }
    let mut meter = Meter::new(budget);
    while meter.more(KEYS as u64) {
        for producer in 0..producers {
            let (queue, keys) = (queue.clone(), Arc::clone(&keys));
            runtime.spawn(async move {
                for key in keys.iter().skip(producer).step_by(producers) {
                    queue.add(key.clone());
                }
            });
        }
        rounds.recv().expect(CONSUMED);
    }
    queue.shut_down();
    meter.ns_per_op()
}
