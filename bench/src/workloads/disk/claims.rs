//! `claim-N`, `burst-N`: N jobs become due in one millisecond.
//!
//! First the CPU time for claiming and acking one of N: claimed jobs are put again, so
//! that there are always N. Then, with a million, how fast all of them are done, and with how much
//! memory.

use super::job::{DAY, Jobs};
use super::ours::Ours;
use super::{Queue, process};
use crate::suite::POPULATIONS;
use crate::workloads::place::Place;
use requeue::ManualClock;
use requeue_bench::Measurement;
use requeue_jobs::{Timestamp, WallClock};
use std::time::{Duration, Instant, SystemTime};

const CLAIM: usize = 100;
const CLAIMS: usize = 100;

pub(super) fn measure(label: &str, place: &Place) -> Vec<Measurement> {
    let population = POPULATIONS.iter().find(|(name, _)| *name == label);
    let &(_, pending) = population.expect("the number has a name");
    let dir = place.fresh("requeue-claims");
    let clock = ManualClock::new();
    let began_at = Timestamp::from(SystemTime::now());
    let mut ours = Ours::on(&dir, WallClock::manual(&clock, began_at));
    ours.fill(Jobs::due_in_a_day(), pending);
    clock.advance(DAY);
    process::rest();

    let mut more = Jobs::due_now();
    let mut busy = Duration::ZERO;
    for _ in 0..CLAIMS {
        let before = process::cpu_time();
        ours.work_off(CLAIM);
        busy += process::cpu_time() - before;
        ours.put(&more.take(CLAIM));
    }
    let mut answers = vec![Measurement::ns(busy.as_nanos() as f64 / (CLAIMS * CLAIM) as f64)];
    if pending == 1_000_000 {
        process::reset_peak_rss();
        let started = Instant::now();
        ours.work_off(pending);
        let rate = pending as f64 / started.elapsed().as_secs_f64();
        answers.push(Measurement::rate(rate).of(format!("burst-{label}")));
        let memory = process::peak_rss() as f64;
        answers.push(Measurement::bytes(memory).of(format!("burst-{label}-rss")));
    }
    answers
}
