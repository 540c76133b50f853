//! Damage at the end of the log that loses acknowledged operations is reported, when the store is
//! opened and by verification.

use crate::support::simulated_disk::SimulatedDisk;
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
    let (mut at, mut offsets) = (64, Vec::new());
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
    assert_eq!(verified.problems, [corrupt.clone()]);
    corrupt
}

#[test]
fn damage_to_the_last_six_groups_of_a_crashed_store_is_reported() {
    let disk = SimulatedDisk::new();
    let store = open(&disk).unwrap();
    put(&store, 30);
    let disk = disk.snapshot();
    drop(store);
    let name = segments(&disk).pop().unwrap();
    let offsets = frames(&disk.bytes(&name));
    let first = offsets.len() - 6;
    for offset in &offsets[first..] {
        disk.flip(&name, *offset as u64 + 60, 1);
    }
    let found = damage(&disk);
    assert_eq!((found.file, found.offset), (name, offsets[first] as u64));
}
