//! Power cuts, at every operation of flushes and merges.

use super::super::MergeOptions;
use super::model::{Jobs, check_all, flush};
use super::{small, with_seeds};
use crate::error::DiskError;
use crate::simulated_disk::{Op, SimulatedDisk};
use crate::tables::Tables;
use requeue_testkit::Random;
use std::sync::Arc;

/// What was flushed, and which flushes returned.
#[derive(Default)]
struct Past {
    /// The jobs after each flush, including the one that failed; empty before the first.
    jobs: Vec<Jobs>,
    /// How many flushes returned.
    answered: u64,
    /// The last group of the log that was released.
    released: u64,
    merges: u64,
}

/// Flushes and merges until the disk fails; the same seed does the same.
fn work(disk: &SimulatedDisk, seed: u64, past: &mut Past) -> Result<(), DiskError> {
    let mut random = Random::new(seed);
    past.jobs = vec![Jobs::new()];
    let (mut jobs, mut seq) = (Jobs::new(), 0);
    let (tables, _) = Tables::open(Arc::new(disk.clone()), small())?;
    for round in 1..=8 {
        let flushed = flush(&tables, &mut jobs, &mut seq, &mut random);
        past.jobs.push(jobs.clone());
        flushed?;
        past.answered += 1;
        past.released = tables.released_through();
        while (round == 8 || random.chance(80))
            && tables.compact(|| false, &mut MergeOptions::default())?
        {
            past.released = tables.released_through();
            past.merges += 1;
        }
    }
    Ok(())
}

/// Opens what is left, and checks that it is what one flush left and that the log has the rest.
fn check(disk: &SimulatedDisk, past: &Past) -> u64 {
    let (tables, opened) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
    tables.clean();
    let flush = tables.version().next_flush - 1;
    assert!(opened.flushed_through >= past.released, "the log was released further");
    if flush > 0 {
        check_all(&tables, &past.jobs[flush as usize]);
    }
    // It can be written to as before.
    // No job may get the position of another, including one of a flush that failed.
    let (mut jobs, mut seq) = (past.jobs[flush as usize].clone(), 2_000_000);
    for seed in 0..2 {
        flush_after(&tables, &mut jobs, &mut seq, seed);
    }
    while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    drop(tables);
    let (tables, opened) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
    assert_eq!(opened.notes, []);
    check_all(&tables, &jobs);
    flush
}

fn flush_after(tables: &Tables, jobs: &mut Jobs, seq: &mut u64, seed: u64) {
    flush(tables, jobs, seq, &mut Random::new(seed)).unwrap();
}

#[test]
fn every_flush_that_returned_survives_a_power_cut_at_any_operation() {
    with_seeds(2, |random| {
        let seed = random.number();
        let disk = SimulatedDisk::new();
        let mut past = Past::default();
        work(&disk, seed, &mut past).unwrap();
        let operations = disk.operations();
        assert!(past.merges > 0, "nothing was merged");
        for operation in 0..operations {
            let (disk, mut past) = (SimulatedDisk::new(), Past::default());
            disk.cut_at(operation);
            // A failure to remove a file is not reported.
            let _ = work(&disk, seed, &mut past);
            assert!(disk.is_cut());
            let flush = check(&disk.after_cut(random.number()), &past);
            assert!(flush >= past.answered, "cut at {operation} of {operations}");

            // What a killed process left in the page cache, and another process read, is synced.
            let killed = disk.after_kill();
            let (tables, _) = Tables::open(Arc::new(killed.clone()), small()).unwrap();
            let found = tables.version().next_flush - 1;
            drop(tables);
            let flush = check(&killed.after_cut(random.number()), &past);
            assert!(flush >= found && found >= past.answered, "killed at {operation}");
        }
    });
}

#[test]
fn tables_that_were_never_synced_are_rebuilt_from_the_log() {
    let (mut all, mut lost) = (0, 0);
    with_seeds(100, |random| {
        let (disk, mut past) = (SimulatedDisk::new(), Past::default());
        work(&disk, random.number(), &mut past).unwrap();
        let (tables, _) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
        let (mut jobs, mut seq) = (past.jobs.last().unwrap().clone(), 1_000_000);
        disk.lie("table-");
        flush_after(&tables, &mut jobs, &mut seq, random.number());
        past.jobs.push(jobs);
        past.released = tables.released_through();
        let flush = check(&disk.after_cut(random.number()), &past);
        assert!(flush >= past.answered);
        all += 1;
        lost += u64::from(flush == past.answered);
    });
    assert!(all < 50 || lost > all / 10, "tables were lost in {lost} of {all} cases");
}

#[test]
fn whatever_fails_can_be_tried_again() {
    with_seeds(100, |random| {
        let (disk, mut past) = (SimulatedDisk::new(), Past::default());
        work(&disk, random.number(), &mut past).unwrap();
        let (tables, _) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
        let (mut jobs, mut seq) = (past.jobs.last().unwrap().clone(), 1_000_000);
        for _ in 0..10 {
            let op = *random.pick(&[Op::Write, Op::Sync, Op::Create, Op::Remove, Op::SyncNames]);
            disk.fail(op, "", random.below(10) as u64, 1);
            let (before, choices) = (jobs.clone(), random.number());
            if flush(&tables, &mut jobs, &mut seq, &mut Random::new(choices)).is_err() {
                check_all(&tables, &before);
                disk.heal();
                jobs = before;
                flush_after(&tables, &mut jobs, &mut seq, choices);
            }
            disk.fail(op, "", random.below(10) as u64, 1);
            while tables.compact(|| false, &mut MergeOptions::default()).unwrap_or(true) {}
            disk.heal();
            check_all(&tables, &jobs);
            past.jobs.push(jobs.clone());
            past.answered += 1;
            past.released = tables.released_through();
        }
        drop(tables);
        let flush = check(&disk.after_cut(random.number()), &past);
        assert_eq!(flush, past.answered);
    });
}
