//! Tests of merges, and of what they free.

use super::super::MergeOptions;
use super::{flush_jobs, names, open, position, scanned, small};
use crate::simulated_disk::SimulatedDisk;
use crate::tables::{Batch, Options, Tables, Tree};
use std::cell::Cell;

fn drop_below(tables: &Tables, seq: u64, live: u64) {
    let range_tombstones = vec![(1, 0, (1000 + seq, seq))];
    tables.flush().commit(Batch { range_tombstones, live, ..Batch::default() }).unwrap();
}

#[test]
fn a_consumed_front_is_freed_file_by_file_and_without_reading() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..1000);
    let before = tables.version().counts(Tree::Due).tables;
    drop_below(&tables, 500, 500);
    let version = tables.version();
    assert_eq!(scanned(&version), (500..1000).collect::<Vec<_>>());
    let after = version.counts(Tree::Due).tables;
    assert!(after <= before / 2 + 1, "{after} of {before} tables are left");
    assert_eq!(version.find(1, "id-00000499").unwrap(), None, "without a tombstone");
    assert!(version.find(1, "id-00000500").unwrap().is_some());
    drop_below(&tables, 1000, 0);
    assert_eq!(tables.version().counts(Tree::Due).tables, 0);
}

#[test]
fn entries_put_before_the_front_later_are_valid() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..100);
    drop_below(&tables, 100, 0);
    flush_jobs(&tables, 40..60);
    for _ in 0..4 {
        drop_below(&tables, 10, 20);
    }
    assert_eq!(scanned(&tables.version()), (40..60).collect::<Vec<_>>());
    flush_jobs(&tables, 200..201);
    flush_jobs(&tables, 201..202);
    while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    let expected = (40..60).chain(200..202).collect::<Vec<_>>();
    assert_eq!(scanned(&tables.version()), expected);
    assert!(tables.version().find(1, "id-00000050").unwrap().is_some());
}

#[test]
fn a_stopped_merge_continues_and_ends() {
    let disk = SimulatedDisk::new();
    let mut tables = open(&disk, small());
    for flush in 0..4 {
        // Every fourth job, so that the runs overlap everywhere.
        let mut batch = tables.flush();
        for seq in (0..8000).filter(|seq| seq % 4 == flush) {
            let job = format!("job {seq}");
            batch.due(1, position(0, 1000 + seq, seq), Some(job.as_bytes())).unwrap();
        }
        batch.commit(Batch { live: 2000 * (flush + 1), ..Batch::default() }).unwrap();
    }
    let all: Vec<_> = (0..8000).collect();
    let mut stopped = 0;
    loop {
        assert!(tables.compact(|| false, &mut MergeOptions::default()).unwrap());
        let version = tables.version();
        assert_eq!(scanned(&version), all);
        assert!(version.due.iter().all(|run| !run.tables.is_empty()));
        if version.due.len() == 1 {
            break;
        }
        assert!(version.due.len() <= 5, "the four, and what they become");
        assert!(tables.compact(|| true, &mut MergeOptions::default()).unwrap());
        assert_eq!(scanned(&tables.version()), all);
        stopped += 1;
        drop(tables);
        tables = open(&disk, small());
    }
    assert!(stopped > 2, "all was merged in {stopped} steps");
    let run = &tables.version().due[0];
    assert_eq!((run.lo, run.hi, run.generation), (1, 4, 1));
    assert!(!tables.compact(|| false, &mut MergeOptions::default()).unwrap());
}

#[test]
fn a_large_merge_needs_little_space_besides() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    for flush in 0..4 {
        let mut batch = tables.flush();
        for seq in (0..8000).filter(|seq| seq % 4 == flush) {
            batch.due(1, position(0, 1000 + seq, seq), Some(b"job")).unwrap();
        }
        batch.commit(Batch { live: 2000 * (flush + 1), ..Batch::default() }).unwrap();
    }
    let space = || names(&disk).iter().map(|name| disk.bytes(name).len()).sum::<usize>();
    let before = space();
    let most = Cell::new(0);
    let look = || {
        most.set(most.get().max(space()));
        false
    };
    while tables.compact(look, &mut MergeOptions::default()).unwrap() {}
    let most = most.get();
    assert!(most > before, "nothing was looked at");
    assert!(most < before + before / 3, "{most} bytes at most, {before} before");
    assert!(space() < before + before / 20, "{} bytes after, {before} before", space());
}

#[test]
fn large_merged_tables_are_removed_immediately() {
    for (linger, lingering) in [(0, 0), (1 << 20, 4)] {
        let disk = SimulatedDisk::new();
        let tables = open(&disk, Options { linger, file: 1 << 20, ..small() });
        for flush in 0..4 {
            let mut batch = tables.flush();
            batch.due(1, position(0, 1000 + flush, flush), Some(b"job")).unwrap();
            batch.commit(Batch { live: flush + 1, ..Batch::default() }).unwrap();
        }
        while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
        assert_eq!(tables.version().tables().count(), 1);
        assert_eq!(names(&disk).len(), 2 + 1 + lingering, "linger {linger}");
    }
}

#[test]
fn cancelled_jobs_give_their_space_back() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..1000);
    let before = tables.version().counts(Tree::Due);
    let mut flush = tables.flush();
    for seq in (0..1000).filter(|seq| seq % 2 == 0) {
        flush.due(1, position(0, 1000 + seq, seq), None).unwrap();
    }
    for seq in (0..1000).filter(|seq| seq % 2 == 0) {
        flush.id(1, &format!("id-{seq:08}"), None).unwrap();
    }
    flush.commit(Batch { live: 500, ..Batch::default() }).unwrap();
    while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    let version = tables.version();
    for tree in [Tree::Due, Tree::Ids] {
        let counts = version.counts(tree);
        assert_eq!((counts.entries, counts.tombstones), (500, 0), "{tree:?}");
    }
    assert!(version.counts(Tree::Due).bytes < before.bytes * 2 / 3);
    assert_eq!(scanned(&version).len(), 500);
}

#[test]
fn range_tombstones_are_dropped_when_they_apply_to_nothing() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, Options { flush_file: 1 << 20, ..small() });
    flush_jobs(&tables, 0..1000);
    drop_below(&tables, 700, 300);
    assert_eq!(tables.version().range_tombstones.all().len(), 1);
    while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    let version = tables.version();
    assert_eq!(version.counts(Tree::Due).entries, 300);
    assert_eq!(version.counts(Tree::Ids).entries, 300);
    assert_eq!(version.range_tombstones.all(), []);
    assert_eq!(version.find(1, "id-00000699").unwrap(), None);
}
