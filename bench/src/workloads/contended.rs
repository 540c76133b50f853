//! `contended-*`: producers add 100k keys once each, while consumers get and
//! finish them.

use super::tally::Tally;
use requeue::limiter::default_item_based;
use requeue::{AddOptions, PriorityQueue, Queue};
use requeue_bench::keys::{make_keys, priority_of};
use requeue_bench::meter::Meter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const KEYS: usize = 100_000;

const CONSUMED: &str = "consumers finish every key";

pub(super) fn threads(producers: usize, consumers: usize, budget: Duration) -> f64 {
    let queue = Queue::new();
    let ends = Ends {
        add: |key| _ = queue.add(key),
        finish_one: || queue.get().wait().map(|held| held.done()).is_some(),
        shut_down: || queue.shut_down(),
    };
    between_threads(ends, producers, consumers, budget)
}

/// The same on a priority queue.
pub(super) fn prioritized(producers: usize, consumers: usize, budget: Duration) -> f64 {
    let queue = PriorityQueue::new(default_item_based());
    let ends = Ends {
        add: |key: Arc<str>| {
            let options = AddOptions::new().priority(priority_of(&key));
            queue.add_with(key, options);
        },
        finish_one: || queue.get().wait().map(|held| held.done()).is_some(),
        shut_down: || queue.shut_down(),
    };
    between_threads(ends, producers, consumers, budget)
}

/// A queue as producers and consumers use it.
struct Ends<Add, FinishOne, ShutDown> {
    add: Add,
    /// Gets a key and finishes it. Returns `false` if there are no more keys.
    finish_one: FinishOne,
    shut_down: ShutDown,
}

fn between_threads(
    ends: Ends<impl Fn(Arc<str>) + Sync, impl Fn() -> bool + Sync, impl Fn()>,
    producers: usize,
    consumers: usize,
    budget: Duration,
) -> f64 {
    let Ends { add, finish_one, shut_down } = ends;
    let keys: Vec<Arc<str>> = make_keys(KEYS);
    let (tally, rounds) = Tally::new(KEYS);
    let mut meter = Meter::new(budget);
    thread::scope(|scope| {
        for _ in 0..consumers {
            let (finish_one, tally) = (&finish_one, tally.clone());
            scope.spawn(move || {
                while finish_one() {
                    tally.finished();
                }
            });
        }
        while meter.more(KEYS as u64) {
            for producer in 0..producers {
                let (add, keys) = (&add, &keys);
                scope.spawn(move || {
                    for key in keys.iter().skip(producer).step_by(producers) {
                        add(key.clone());
                    }
                });
            }
            rounds.recv().expect(CONSUMED);
        }
        shut_down();
    });
    meter.ns_per_op()
}

/// The same as tasks on tokio.
pub(super) fn tasks(producers: usize, consumers: usize, budget: Duration) -> f64 {
    let keys: Arc<[Arc<str>]> = make_keys(KEYS).into();
    let queue = Queue::new();
    let (tally, rounds) = Tally::new(KEYS);
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
