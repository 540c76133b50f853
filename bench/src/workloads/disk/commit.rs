//! `commit-p99`: the 99th percentile of the duration of a put, at half the load that the store
//! can sustain.

use super::fdatasync::Appends;
use super::job::{DAY, Jobs};
use super::ours::Ours;
use crate::workloads::place::Place;
use requeue_jobs::{Put, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The callers that put one job after the other, to find the highest load.
const CALLERS: usize = 64;
/// Longer than the delay of the timer, shorter than a commit.
const PAUSE: Duration = Duration::from_micros(50);

/// Returns nanoseconds.
pub(super) fn ours(place: &Place, budget: Duration) -> f64 {
    let dir = place.fresh("requeue-commit");
    let ours = Ours::open(&dir);
    let mut jobs = Jobs::due_within(DAY);
    let mut put = || ours.put_of(&jobs.take(1)[0]);
    let runtime = crate::workloads::tokio();
    let full = runtime.block_on(full_load(&ours.store, budget / 2, &mut put));
    let took = half_load(&runtime, &ours.store, full / 2.0, budget, &mut put);
    p99(took)
}

/// Returns puts per second.
async fn full_load(store: &Arc<dyn Store>, budget: Duration, put: &mut impl FnMut() -> Put) -> f64 {
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let started = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, put) = (Arc::clone(store), put());
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

/// Puts this many jobs per second, whether or not the ones before are done. The duration of each
/// counts from its planned start.
fn half_load(
    runtime: &tokio::runtime::Runtime,
    store: &Arc<dyn Store>,
    rate: f64,
    budget: Duration,
    put: &mut impl FnMut() -> Put,
) -> Vec<Duration> {
    let total = (rate * budget.as_secs_f64()).max(1.0) as usize;
    let mut answers = Vec::with_capacity(total);
    let started = Instant::now();
    while answers.len() < total {
        let due = started.elapsed().as_secs_f64() * rate;
        while answers.len() < total.min(due as usize) {
            let at = started + Duration::from_secs_f64(answers.len() as f64 / rate);
            let (store, put) = (Arc::clone(store), put());
            answers.push(runtime.spawn(async move {
                store.put(vec![put]).await.expect("the store responds");
                at.elapsed()
            }));
        }
        thread::sleep(PAUSE);
    }
    let answers = answers.into_iter();
    answers.map(|answer| runtime.block_on(answer).expect("a caller does not panic")).collect()
}

/// Returns nanoseconds for single jobs, each followed by a pause of the same length.
pub(super) fn fdatasync(place: &Place, budget: Duration) -> f64 {
    let dir = place.fresh("fdatasync-commit");
    let mut file = Appends::create(&dir);
    let mut jobs = Jobs::due_within(DAY);
    let (mut took, started) = (Vec::new(), Instant::now());
    while took.is_empty() || started.elapsed() < budget {
        let job = jobs.take(1);
        let began = Instant::now();
        file.append(&job);
        took.push(began.elapsed());
        thread::sleep(began.elapsed());
    }
    p99(took)
}

fn p99(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() * 99 / 100].as_nanos() as f64
}
