//! `churn-N`: N jobs are put and done, each after a random time.
//!
//! A thousand are put per millisecond of a manual clock, and all due jobs are
//! claimed and acked. A tenth of N is pending at a time, and most are
//! written to tables before they are due. Counting begins when that many are pending.

use super::job::{Jobs, PAYLOAD};
use super::ours::Ours;
use super::{BATCH, Queue, process};
use crate::workloads::place::Place;
use requeue::ManualClock;
use requeue_bench::Measurement;
use requeue_jobs::{Timestamp, WallClock};
use std::time::{Duration, SystemTime};

const LIVE_OF_1M: usize = 100_000;
const LIVE_OF_10M: usize = 1_000_000;

/// The time between two measurements of the space on disk.
const TICKS: usize = 10;

/// Returns `None` if there is no such number.
pub(super) fn measure(label: &str, place: &Place) -> Option<Vec<Measurement>> {
    let (total, live) = match label {
        "1m" => (1_000_000, LIVE_OF_1M),
        "10m" => (10_000_000, LIVE_OF_10M),
        _ => return None,
    };
    let dir = place.fresh("requeue-churn");
    let clock = ManualClock::new();
    let began_at = Timestamp::from(SystemTime::now());
    let mut ours = Ours::on(&dir, WallClock::manual(&clock, began_at));
    // On average, a job is pending for half of it.
    let longest = 2 * live / BATCH;
    let mut jobs = Jobs::due_within(Duration::from_millis(longest as u64));
    let (mut written, mut handed_over, mut space) = (0, 0, 0);
    for tick in 0..total / BATCH {
        if tick == longest {
            (written, handed_over) = (process::written(&dir), process::handed_over());
        }
        if tick >= longest && tick.is_multiple_of(TICKS) {
            space = space.max(process::space(&dir));
        }
        ours.put(&jobs.take(BATCH));
        clock.advance(Duration::from_millis(1));
        while ours.work(BATCH) == BATCH {}
    }
    process::rest();
    let payload = ((total - longest * BATCH) * PAYLOAD) as f64;
    let per_byte = |before: u64, after: u64| Measurement::bytes((after - before) as f64 / payload);
    Some(vec![
        per_byte(written, process::written(&dir)).of(format!("churn-{label}-written")),
        per_byte(handed_over, process::handed_over()).of(format!("churn-{label}-logical")),
        Measurement::bytes(space as f64).of(format!("churn-{label}-space")),
    ])
}
