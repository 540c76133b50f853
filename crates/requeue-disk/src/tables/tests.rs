//! Tests of the tables as a whole, on a simulated disk.

mod cuts;
mod damage;
mod fuzz;
mod merges;
mod model;

use super::MergeOptions;
use super::{Batch, JobLocation, ListPosition, Options, Tables, Version};
use crate::disk::Disk;
use crate::manifest;
use crate::simulated_disk::{Op, SimulatedDisk};
use requeue_testkit::{Random, check_seeds};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Options so small that a few jobs make many blocks, files and merges.
fn small() -> Options {
    Options {
        due_block: 256,
        ids_block: 128,
        file: 2048,
        flush_file: 1024,
        due_runs: 3,
        ids_runs: 2,
        due_dead: 2048,
        ids_dead: 512,
        linger: 4096,
    }
}

fn open(disk: &SimulatedDisk, options: Options) -> Tables {
    let (tables, opened) = Tables::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(opened.notes, []);
    tables.clean();
    tables
}

/// The names of all files, sorted.
fn names(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.names().unwrap();
    names.sort();
    names
}

fn position(list: u8, at: u64, seq: u64) -> ListPosition {
    ListPosition { list, at, seq }
}

/// Flushes one job for each of `seqs`, of kind 1 and pending, due at 1000 and its number.
fn flush_jobs(tables: &Tables, seqs: std::ops::Range<u64>) {
    let mut flush = tables.flush();
    for seq in seqs.clone() {
        flush.due(1, position(0, 1000 + seq, seq), Some(format!("job {seq}").as_bytes())).unwrap();
    }
    for seq in seqs.clone() {
        flush.id(1, &format!("id-{seq:08}"), Some(position(0, 1000 + seq, seq))).unwrap();
    }
    let live = tables.version().live + (seqs.end - seqs.start);
    let batch = Batch { flushed_through: flush.number() * 10, live, ..Batch::default() };
    flush.commit(batch).unwrap();
}

/// The numbers of the jobs that a scan of kind 1's pending jobs finds.
fn scanned(version: &Version) -> Vec<u64> {
    let mut scan = version.scan(1, 0, (0, 0));
    let mut seqs = Vec::new();
    while let Some(((at, seq), job)) = scan.next().unwrap() {
        assert_eq!((at, job), (1000 + seq, format!("job {seq}").as_bytes()));
        seqs.push(seq);
    }
    seqs
}

/// Runs a check with so many seeds, or with as many as `REQUEUE_SEEDS` specifies.
fn with_seeds(count: u64, check: impl FnMut(&mut Random)) {
    let check = RefCell::new(check);
    check_seeds(&[], "REQUEUE_SEEDS", count, |seed| {
        check.borrow_mut()(&mut Random::new(seed));
        Ok(())
    });
}

#[test]
fn a_new_directory_is_empty() {
    let disk = SimulatedDisk::new();
    let (tables, opened) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
    assert_eq!((opened.flushed_through, opened.blob.len()), (0, 0));
    assert_eq!(tables.version().find(1, "a").unwrap(), None);
    assert!(tables.version().scan(1, 0, (0, 0)).next().unwrap().is_none());
    drop(tables);
    assert_eq!(open(&disk, small()).version().next_flush, 1);
}

#[test]
fn what_was_flushed_is_found_read_and_scanned() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..500);
    for tables in [tables, open(&disk, small())] {
        let version = tables.version();
        for seq in [0, 1, 250, 499] {
            let location = version.find(1, &format!("id-{seq:08}")).unwrap().unwrap();
            assert_eq!(location, JobLocation { list: 0, at: 1000 + seq, seq, flush: 1 });
            assert_eq!(version.read(1, &location).unwrap(), format!("job {seq}").as_bytes());
        }
        for (kind, id) in [(1, "id-00000500"), (1, ""), (0, "id-00000001"), (2, "id-00000001")] {
            assert_eq!(version.find(kind, id).unwrap(), None);
        }
        assert_eq!(version.find(1, &"x".repeat(5000)).unwrap(), None);
        assert_eq!(scanned(&version), (0..500).collect::<Vec<_>>());
        assert!(version.verify().is_empty());
    }
}

#[test]
fn a_value_may_be_larger_than_a_file() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    let large = vec![7; 3 << 20];
    let mut flush = tables.flush();
    flush.due(1, position(0, 1, 1), Some(b"before")).unwrap();
    flush.due(1, position(0, 1, 2), Some(&large)).unwrap();
    flush.due(1, position(0, 1, 3), Some(b"")).unwrap();
    flush.id(1, "large", Some(position(0, 1, 2))).unwrap();
    flush.commit(Batch { live: 3, ..Batch::default() }).unwrap();
    let version = open(&disk, small()).version();
    let location = version.find(1, "large").unwrap().unwrap();
    assert!(version.read(1, &location).unwrap() == large);
    let mut scan = version.scan(1, 0, (1, 2));
    assert_eq!(scan.next().unwrap().unwrap().1.len(), large.len());
    assert_eq!(scan.next().unwrap(), Some(((1, 3), &b""[..])));
    assert_eq!(scan.next().unwrap(), None);
}

#[test]
fn readers_keep_their_version() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..300);
    let before = tables.version();
    let mut scan = before.scan(1, 0, (0, 0));
    scan.next().unwrap();
    for flush in 1..6 {
        flush_jobs(&tables, flush * 300..flush * 300 + 300);
        while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    }
    let (mut left, mut flush) = (0, tables.flush());
    flush.due(9, position(0, 1, 1), Some(b"")).unwrap();
    flush.commit(Batch { live: 1801, ..Batch::default() }).unwrap();
    while scan.next().unwrap().is_some() {
        left += 1;
    }
    assert_eq!(left, 299);
    assert_eq!(scanned(&before).len(), 300);
    assert_eq!(scanned(&tables.version()).len(), 1800);
}

#[test]
fn a_copy_has_what_its_version_had() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..300);
    let version = tables.version();
    for flush in 1..6 {
        flush_jobs(&tables, flush * 300..flush * 300 + 300);
        while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    }
    let copy = SimulatedDisk::new();
    for table in version.tables() {
        let mut bytes = vec![0; table.bytes as usize];
        table.file.read_at(&mut bytes, 0).unwrap();
        copy.put(&super::table::name(table.number), &bytes);
    }
    copy.put(&manifest::name(2), &manifest::encode(2, &version, 99));
    let tables = open(&copy, small());
    assert_eq!(scanned(&tables.version()), (0..300).collect::<Vec<_>>());
    flush_jobs(&tables, 300..310);
}

#[test]
fn flushes_merges_and_reads_run_concurrently() {
    let tables = open(&SimulatedDisk::new(), small());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                tables.compact(|| false, &mut MergeOptions::default()).unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let version = tables.version();
                assert_eq!(scanned(&version), (0..version.live).collect::<Vec<_>>());
            }
        });
        for flush in 0..60 {
            flush_jobs(&tables, flush * 50..flush * 50 + 50);
        }
        done.store(true, Ordering::Relaxed);
    });
    while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
    assert_eq!(scanned(&tables.version()), (0..3000).collect::<Vec<_>>());
    assert!(tables.version().verify().is_empty());
    assert_eq!(tables.lag(), 0);
}

#[test]
fn the_log_is_released_up_to_the_manifest_before() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    assert_eq!(tables.released_through(), 0);
    let mut released = Vec::new();
    for flush in 0..4 {
        flush_jobs(&tables, flush * 10..flush * 10 + 10);
        released.push(tables.released_through());
    }
    assert_eq!(released, [0, 10, 20, 30]);
    drop(tables);
    assert_eq!(open(&disk, small()).released_through(), 30);
}

#[test]
fn a_flush_that_is_dropped_or_fails_leaves_nothing() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..10);
    let before = names(&disk);
    let mut flush = tables.flush();
    for seq in 0..500 {
        flush.due(1, position(0, 1, seq), Some(b"job")).unwrap();
    }
    assert!(names(&disk).len() > before.len());
    drop(flush);
    assert_eq!(names(&disk), before);

    for failing in ["table-", "manifest-"] {
        let mut flush = tables.flush();
        flush.due(1, position(0, 1, 1), Some(b"job")).unwrap();
        disk.fail(Op::Sync, failing, 0, u64::MAX);
        flush.commit(Batch::default()).unwrap_err();
        disk.heal();
        assert_eq!(scanned(&tables.version()), (0..10).collect::<Vec<_>>());
    }
    flush_jobs(&tables, 10..20);
    assert_eq!(names(&disk).len(), 2 + 4, "two manifests, two tables of each flush");
    drop(tables);
    assert_eq!(scanned(&open(&disk, small()).version()), (0..20).collect::<Vec<_>>());
}
