//! `reopen-N`: how long a store with N pending jobs takes to open, and how much memory it has
//! then. Its files are in the page cache.

use super::job::Jobs;
use super::ours::Ours;
use super::{Queue, process};
use crate::suite::POPULATIONS;
use crate::system::System;
use crate::workloads::place::Place;
use requeue_bench::Measurement;
use std::time::Instant;

/// By then the store has read what it keeps in memory.
const GROUPS: usize = 100;
const GROUP: usize = 100;

pub(super) fn measure(label: &str, place: &Place) -> Vec<Measurement> {
    let population = POPULATIONS.iter().find(|(name, _)| *name == label);
    let &(_, pending) = population.expect("the number has a name");
    let dir = place.with_pending(System::Requeue, pending);
    let started = Instant::now();
    let mut ours = Ours::open(&dir);
    let there = ours.pending();
    let opened = started.elapsed();
    assert_eq!(there, pending, "pending jobs");
    let mut jobs = Jobs::due_now();
    for _ in 0..GROUPS {
        ours.put(&jobs.take(GROUP));
        ours.work_off(GROUP);
    }
    vec![
        Measurement::ns(opened.as_nanos() as f64),
        Measurement::bytes(process::peak_rss() as f64).of(format!("reopen-{label}-rss")),
    ]
}
