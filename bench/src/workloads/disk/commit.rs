//! `commit-p99`: the 99th percentile of the duration of a put under an open load: jobs arrive at
//! planned times, whether or not the ones before are done, and the duration of each counts from its
//! planned time. The load is half of what the store can sustain.

use super::fdatasync::Appends;
use super::job::{DAY, Job, Jobs};
use super::ours::Ours;
use crate::workloads::place::Place;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The callers that put one job after the other, to find the highest load.
const CALLERS: usize = 64;
/// Longer than the delay of the timer, shorter than a commit.
const PAUSE: Duration = Duration::from_micros(50);
/// The file in which a measurement of the store leaves its load, for that of the plain file.
const RATE: &str = "commit-rate";

/// Returns nanoseconds.
pub(super) fn ours(place: &Place, budget: Duration) -> f64 {
    let dir = place.fresh("requeue-commit");
    let ours = Ours::open(&dir);
    let runtime = crate::workloads::tokio();
    let rate = runtime.block_on(full_load(&ours, budget / 2)) / 2.0;
    place.note(RATE, rate);
    let mut results = Vec::new();
    open_load(rate, budget, |at, job| {
        let (store, put) = (Arc::clone(&ours.store), ours.put_of(&job));
        results.push(runtime.spawn(async move {
            store.put(vec![put]).await.expect("the store responds");
            at.elapsed()
        }));
    });
    let results = results.into_iter();
    p99(results.map(|took| runtime.block_on(took).expect("a caller does not panic")).collect())
}

/// Returns nanoseconds. The jobs arrive at the same times as in the measurement of the store before
/// this one. Those that arrive during a sync are appended together.
pub(super) fn fdatasync(place: &Place, budget: Duration) -> f64 {
    let rate = place.noted(RATE).expect("the store is measured first, with the same directory");
    let dir = place.fresh("fdatasync-commit");
    let mut file = Appends::create(&dir);
    let (arrive, arrived) = mpsc::channel::<(Instant, Job)>();
    let appender = thread::spawn(move || {
        let mut took = Vec::new();
        while let Ok(first) = arrived.recv() {
            let (at, jobs): (Vec<_>, Vec<_>) =
                [first].into_iter().chain(arrived.try_iter()).unzip();
            file.append(&jobs);
            took.extend(at.iter().map(Instant::elapsed));
        }
        took
    });
    open_load(rate, budget, |at, job| arrive.send((at, job)).expect("the appender waits for jobs"));
    drop(arrive);
    p99(appender.join().expect("the disk works"))
}

/// Returns puts per second.
async fn full_load(ours: &Ours, budget: Duration) -> f64 {
    let mut jobs = Jobs::due_within(DAY);
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let started = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, put) = (Arc::clone(&ours.store), ours.put_of(&jobs.take(1)[0]));
            let (done, over) = (Arc::clone(&done), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    store.put(vec![put.clone()]).await.expect("the store responds");
                    done.fetch_add(1, Ordering::Relaxed);
                    // With a store that never waits, the clock would never be read.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    tokio::time::sleep(budget).await;
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

/// Calls `arrive` with so many jobs per second, each with its planned time.
fn open_load(rate: f64, budget: Duration, mut arrive: impl FnMut(Instant, Job)) {
    let total = (rate * budget.as_secs_f64()).max(1.0) as usize;
    let mut jobs = Jobs::due_within(DAY);
    let (started, mut arrived) = (Instant::now(), 0);
    while arrived < total {
        let due = started.elapsed().as_secs_f64() * rate;
        for job in jobs.take(total.min(due as usize).saturating_sub(arrived)) {
            arrive(started + Duration::from_secs_f64(arrived as f64 / rate), job);
            arrived += 1;
        }
        thread::sleep(PAUSE);
    }
}

fn p99(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() * 99 / 100].as_nanos() as f64
}
