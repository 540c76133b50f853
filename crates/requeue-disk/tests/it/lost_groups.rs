//! Damage at the end of the log that loses acknowledged operations is reported, when the store is
//! opened and by verification.

use crate::support::simulated_disk::{Op, SimulatedDisk};
use crate::support::small;
use crate::support::workload::{clock_at, id, kinds};
use requeue_disk::{Corrupt, Disk, DiskError, DiskStore, Options, verify_on};
use requeue_jobs::{Body, Put, Store, Timestamp};
use requeue_testkit::block_on;
use std::sync::Arc;

fn options() -> Options {
    let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let mut options = small(&wall_clock);
    (options.memory, options.segment) = (256 << 10, 16 << 10);
    options
}

fn open(disk: &SimulatedDisk) -> Result<DiskStore, DiskError> {
    DiskStore::open_on(Arc::new(disk.clone()), options())
}

/// Puts so many jobs, one after the other.
fn put(store: &DiskStore, count: usize) {
    for number in 0..count {
        let body = Body::octets(vec![7; 100]).unwrap();
        let put = Put::new(kinds().remove(0), id(format!("job-{number:05}")), body);
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
    }
}

fn jobs(store: &DiskStore) -> u64 {
    let counts = block_on(store.kinds()).unwrap();
    counts.first().map_or(0, |kind| kind.counts.pending)
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.names().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Where the frames of a segment begin.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut offsets) = (4096, Vec::new());
    while at + 24 <= bytes.len() && bytes[at..at + 4] == bytes[40..44] {
        offsets.push(at);
        at += (24 + u32_at(bytes, at + 8)).next_multiple_of(8);
    }
    offsets
}

/// Opening fails, verification reports a problem, and both name the same damage.
fn damage(disk: &SimulatedDisk) -> Corrupt {
    let corrupt = match open(&disk.snapshot()) {
        Err(DiskError::Corrupt(corrupt)) => corrupt,
        Err(error) => panic!("{error}"),
        Ok(store) => panic!("it opens with {} jobs", jobs(&store)),
    };
    let verified = verify_on(disk, |_| ()).unwrap();
    assert_eq!(verified.problems, std::slice::from_ref(&corrupt));
    corrupt
}

/// A closed store with so many jobs, all of them in its log.
fn closed(count: usize) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    put(&open(&disk).unwrap(), count);
    disk
}

#[test]
fn the_last_segment_of_a_closed_store_cannot_get_lost_unnoticed() {
    let whole = closed(400);
    let names = segments(&whole);
    let last = names.last().unwrap();
    assert!(names.len() > 2, "{names:?}");
    for at in 0..names.len() {
        // The last ones, down to this one.
        let disk = whole.snapshot();
        names[at..].iter().for_each(|name| disk.remove(name).unwrap());
        assert_eq!(damage(&disk).file, *last);
    }
}

#[test]
fn the_end_of_the_last_segment_of_a_closed_store_cannot_get_lost_unnoticed() {
    let whole = closed(100);
    let name = segments(&whole).pop().unwrap();
    let bytes = whole.bytes(&name);
    let offsets = frames(&bytes);
    // The last one closes the log, and contains no data.
    let (closing, groups) = offsets.split_last().unwrap();
    for (at, offset) in groups.iter().enumerate() {
        // Truncated and extended again, or never written.
        for keep in [*offset, offset + 4, offset + 30] {
            let disk = whole.snapshot();
            disk.put(&name, &[&bytes[..keep], &vec![0; bytes.len() - keep]].concat());
            let found = damage(&disk);
            assert_eq!((&found.file, found.offset), (&name, *offset as u64), "group {at}");
        }
        let disk = whole.snapshot();
        disk.truncate(&name, *offset as u64);
        assert_eq!(damage(&disk).file, name);
    }
    let disk = whole.snapshot();
    disk.put(&name, &[&bytes[..*closing], &vec![0; bytes.len() - closing]].concat());
    assert!(verify_on(&disk, |_| ()).unwrap().is_sound());
    assert_eq!(jobs(&open(&disk).unwrap()), 100, "nothing is missing");
}

#[test]
fn a_store_that_was_closed_once_may_crash_later() {
    let disk = closed(50);
    for round in 0..20 {
        let store = open(&disk).unwrap();
        // In some rounds everything is flushed to tables, and segments are used again.
        put(&store, 60 * round);
        let all = 50.max(60 * round as u64);
        for seed in 0..10 {
            let found = disk.after_cut(seed);
            assert!(verify_on(&found, |_| ()).unwrap().is_sound());
            assert_eq!(jobs(&open(&found).unwrap()), all);
        }
        if round % 3 == 0 {
            drop(store);
            assert!(verify_on(&disk, |_| ()).unwrap().is_sound());
        }
    }
}

#[test]
fn opening_and_closing_again_changes_nothing() {
    let disk = closed(50);
    let names = disk.names().unwrap();
    assert_eq!(names.iter().filter(|name| name.starts_with("manifest-")).count(), 1);
    let creates = disk.count(Op::Create);
    for _ in 0..3 {
        drop(open(&disk).unwrap());
    }
    assert_eq!((disk.names().unwrap(), disk.count(Op::Create)), (names, creates));
}

#[test]
fn a_store_closes_on_a_disk_that_is_full_or_fails() {
    let reopen = |disk: &SimulatedDisk| {
        let verified = verify_on(disk, |_| ()).unwrap();
        assert!(verified.is_sound(), "{:?}", verified.problems);
        assert_eq!(jobs(&open(disk).unwrap()), 100);
    };
    let full = SimulatedDisk::new();
    let store = open(&full).unwrap();
    put(&store, 100);
    full.set_capacity(Some(full.used()));
    drop(store);
    let names = full.names().unwrap();
    assert_eq!(names.iter().filter(|name| name.starts_with("manifest-")).count(), 1);
    reopen(&full);
    for op in [Op::Create, Op::Write, Op::Sync, Op::SyncNames, Op::Remove] {
        for prefix in ["", "manifest-"] {
            let disk = SimulatedDisk::new();
            let store = open(&disk).unwrap();
            put(&store, 100);
            disk.fail(op, prefix, 0, u64::MAX);
            drop(store);
            disk.heal();
            reopen(&disk.snapshot());
            (0..20).for_each(|seed| reopen(&disk.after_cut(seed)));
        }
    }
}

#[test]
fn a_backup_without_its_last_segment_is_damaged() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    put(&store, 400);
    let copy = SimulatedDisk::new();
    store.backup_on(&copy, |_| ()).unwrap();
    put(&store, 500);
    assert_eq!(jobs(&open(&copy.snapshot()).unwrap()), 400);
    let last = segments(&copy).pop().unwrap();
    copy.remove(&last).unwrap();
    assert_eq!(damage(&copy).file, last);
}
