//! `lateness`: how late a getter receives a timer; the median, at 2000 timers per second.

use requeue::DelayingQueue;
use requeue_bench::delays::Timer;
use requeue_bench::keys::{make_delays, make_keys};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio_util::time::DelayQueue;

/// The average time from one timer to the next.
const INTERVAL: Duration = Duration::from_micros(500);
/// The first timers become due after all are set.
const LEAD: Duration = Duration::from_millis(50);
const WARM_UP: Duration = Duration::from_millis(100);

/// The due time of each key, and the time when it was received.
#[derive(Default)]
pub(super) struct Record {
    due: HashMap<Arc<str>, Instant>,
    arrived: Vec<(Arc<str>, Instant)>,
}

pub(super) fn lateness(budget: Duration, run: fn(&[Timer]) -> Record) -> f64 {
    median_lateness(WARM_UP, run);
    median_lateness(budget, run)
}

fn median_lateness(over: Duration, run: fn(&[Timer]) -> Record) -> f64 {
    let n = (over.as_nanos() / INTERVAL.as_nanos()).max(1) as usize;
    let delays = make_delays(n, LEAD, over);
    let timers: Vec<Timer> = make_keys(n).into_iter().zip(delays).collect();
    let Record { due, arrived } = run(&timers);
    let late = |(key, at): &(Arc<str>, Instant)| {
        let due = due[key];
        at.checked_duration_since(due).expect("no timer is early").as_nanos() as f64
    };
    let mut late: Vec<f64> = arrived.iter().map(late).collect();
    assert_eq!(late.len(), n);
    late.sort_by(f64::total_cmp);
    late[n / 2]
}

pub(super) fn requeue(timers: &[Timer]) -> Record {
    let queue = DelayingQueue::<Arc<str>>::new();
    let mut due = HashMap::with_capacity(timers.len());
    let arrived = thread::scope(|scope| {
        let getter = scope.spawn(|| {
            let mut arrived = Vec::with_capacity(timers.len());
            for _ in timers {
                let held = queue.get().wait().expect("the queue is not shut down");
                arrived.push((held.key().clone(), Instant::now()));
            }
            arrived
        });
        for (key, delay) in timers {
            due.insert(key.clone(), Instant::now() + *delay);
            queue.add_after(key.clone(), *delay);
        }
        getter.join().expect("the task does not panic")
    });
    Record { due, arrived }
}

pub(super) fn tokio_util(timers: &[Timer]) -> Record {
    let timers = timers.to_vec();
    let runtime = super::tokio();
    let getter = runtime.spawn(async move {
        let mut record = Record::default();
        let mut queue = DelayQueue::new();
        for (key, delay) in &timers {
            record.due.insert(key.clone(), Instant::now() + *delay);
            queue.insert(key.clone(), *delay);
        }
        while let Some(expired) = poll_fn(|cx| queue.poll_expired(cx)).await {
            record.arrived.push((expired.into_inner(), Instant::now()));
        }
        record
    });
    runtime.block_on(getter).expect("the task does not panic")
}
