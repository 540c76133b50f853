mod damage;
mod fuzz;
mod power;
mod space;

use super::{AppendError, Log, LogEnd, LogOptions, Purpose, SegmentView, verify};
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::simulated_disk::{Op, SimulatedDisk};
use requeue_testkit::Random;
use std::sync::Arc;

/// Where the first frame of a segment begins.
const FIRST: u64 = 4096;
const SEGMENT: u64 = FIRST + 4096;
const OPTIONS: LogOptions = LogOptions { segment_bytes: SEGMENT, keep: 4 };

type Groups = Vec<(u64, Vec<u8>)>;

/// Opens a log. Returns its groups too.
fn open_after(disk: &SimulatedDisk, after: u64) -> Result<(Log, Groups), DiskError> {
    let mut groups = Vec::new();
    let log = Log::open(
        Arc::new(disk.clone()),
        OPTIONS,
        after,
        LogEnd::default(),
        |super::Group { number: group, payload, .. }| {
            groups.push((group, payload.to_vec()));
            Ok(())
        },
    )?;
    Ok((log, groups))
}

fn open(disk: &SimulatedDisk) -> (Log, Groups) {
    open_after(disk, 0).unwrap()
}

fn corrupt(result: Result<(Log, Groups), DiskError>) -> Corrupt {
    match result.map(|(_, groups)| groups) {
        Err(DiskError::Corrupt(corrupt)) => corrupt,
        other => panic!("not damaged, but {other:?}"),
    }
}

/// A payload that contains its group number, of some length.
fn payload(group: u64, bytes: usize) -> Vec<u8> {
    let mut payload = format!("group {group} ").into_bytes();
    payload.resize(bytes.max(payload.len()), group as u8);
    payload
}

fn append(log: &mut Log, bytes: usize) -> (u64, Vec<u8>) {
    let payload = payload(log.last_group() + 1, bytes);
    (log.append(&payload, Purpose::NewJobs).unwrap(), payload)
}

/// All damage.
fn damage(disk: &SimulatedDisk) -> Vec<Corrupt> {
    let mut found = Vec::new();
    let segments = SegmentView::all(disk).unwrap();
    verify(&segments, 0, |each| found.extend(each.err())).unwrap();
    found
}

fn names(disk: &SimulatedDisk, prefix: &str) -> Vec<String> {
    disk.names().unwrap().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn groups_come_back_in_order() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut written = Vec::new();
    // Short ones, one that fills a segment to its end, and some larger than a segment.
    for bytes in [1, 0, 7, 8, 900, 3000, 4096 - 24, 4000, 5000, 100_000, 3] {
        written.push(append(&mut log, bytes));
    }
    assert_eq!(log.last_group(), 11);
    drop(log);
    assert_eq!(open(&disk).1, written);
    assert_eq!(open_after(&disk, 7).unwrap().1, written[7..]);
    assert_eq!(open_after(&disk, 11).unwrap().1, []);
    assert_eq!(damage(&disk), []);
}

#[test]
fn a_reopened_log_goes_on_in_a_new_segment() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut written = vec![append(&mut log, 10)];
    let before = disk.bytes("log-0000000000");
    for round in 1..4 {
        let (mut log, groups) = open(&disk);
        assert_eq!(groups, written);
        written.push(append(&mut log, 10));
        assert_eq!(names(&disk, "log-").len(), round + 1);
    }
    assert_eq!(disk.bytes("log-0000000000"), before);
}

#[test]
fn opening_and_closing_again_writes_nothing() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    log.close().unwrap();
    assert_eq!(names(&disk, ""), [""; 0], "there was nothing to close");
    let written = vec![append(&mut log, 10)];
    log.close().unwrap();
    log.close().unwrap();
    assert_eq!(log.last_group(), 2);
    let writes = disk.count(Op::Write);
    for _ in 0..3 {
        let (mut log, groups) = open(&disk);
        assert_eq!((groups, log.last_group()), (written.clone(), 2));
        log.close().unwrap();
    }
    assert_eq!(disk.count(Op::Write), writes);
    let (mut log, _) = open(&disk);
    assert_eq!(append(&mut log, 10).0, 3);
    assert_eq!(open(&disk).1.len(), 2);
}

#[test]
fn a_group_is_one_write_and_one_sync() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    let before = (disk.operations(), disk.count(Op::Write), disk.count(Op::Sync));
    append(&mut log, 10);
    let after = (disk.operations(), disk.count(Op::Write), disk.count(Op::Sync));
    assert_eq!(after, (before.0 + 2, before.1 + 1, before.2 + 1));
}

#[test]
fn after_a_failed_sync_the_group_is_in_doubt_until_written_again() {
    for op in [Op::Write, Op::Sync] {
        let disk = SimulatedDisk::new();
        let (mut log, _) = open(&disk);
        let mut written = vec![append(&mut log, 10)];
        disk.fail(op, "log-", 0, 1);
        let doubtful = payload(2, 2000);
        assert!(matches!(log.append(&doubtful, Purpose::NewJobs), Err(AppendError::InDoubt(_))));
        assert!(log.in_doubt());
        for of in [Purpose::NewJobs, Purpose::ExistingJobs] {
            let refused = log.append(b"3", of);
            assert!(matches!(refused, Err(AppendError::Refused(DiskError::InDoubt { group: 2 }))));
        }
        log.retry().unwrap();
        assert!(!log.in_doubt());
        written.push((2, doubtful));
        written.push(append(&mut log, 10));
        for seed in 0..50 {
            assert_eq!(open(&disk.after_cut(seed)).1, written);
        }
        assert_eq!(damage(&disk), []);
    }
}

/// Appends groups of random sizes, of which one cannot be written or synced at first, which destroys
/// the blocks that it touches. Returns the disk, the log, and the groups.
fn torn(seed: u64) -> (SimulatedDisk, Log, Groups) {
    let mut random = Random::new(seed);
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let size = |random: &mut Random| *random.pick(&[0, 10, 50, 100, 300, 700, 1500]);
    let mut written = Vec::new();
    for _ in 0..random.below(30) + 1 {
        written.push(append(&mut log, size(&mut random)));
    }
    disk.tear(*random.pick(&[512, 4096]));
    disk.fail(*random.pick(&[Op::Write, Op::Sync]), "log-", 0, 1 + random.below(3) as u64);
    let doubtful = payload(log.last_group() + 1, size(&mut random));
    assert!(matches!(log.append(&doubtful, Purpose::NewJobs), Err(AppendError::InDoubt(_))));
    written.push((log.last_group(), doubtful));
    (disk, log, written)
}

#[test]
fn a_failed_write_that_destroys_its_block_loses_no_other_group() {
    let mut lost = 0;
    for seed in 0..300 {
        let (disk, mut log, mut written) = torn(seed);
        while log.retry().is_err() {}
        for bytes in [20, 300] {
            written.push(append(&mut log, bytes));
        }
        drop(log);
        for disk in [disk.after_kill(), disk.after_cut(seed)] {
            match open_after(&disk, 0) {
                Ok((_, groups)) if groups == written => assert_eq!(damage(&disk), []),
                _ => lost += 1,
            }
        }
    }
    assert_eq!(lost, 0, "of 600");
}

/// The process that could not sync it is killed before it writes it again. What it wrote can still
/// be read, but is destroyed on disk.
#[test]
fn groups_that_an_earlier_process_may_have_destroyed_are_written_again() {
    let (mut readable, mut lost) = (0, 0);
    for seed in 0..300 {
        let (disk, log, written) = torn(seed);
        drop(log);
        let disk = disk.after_kill();
        let Ok((mut log, groups)) = open_after(&disk, 0) else { continue };
        if groups.len() + 1 < written.len() {
            // It can be read no more.
            continue;
        }
        readable += 1;
        append(&mut log, 20);
        let found = open_after(&disk.after_cut(seed), 0);
        lost += u32::from(!found.is_ok_and(|(_, found)| found.starts_with(&groups)));
    }
    assert_eq!(lost, 0, "of {readable}");
    assert!(readable > 50, "{readable}");
}

#[test]
fn a_disk_that_keeps_failing_is_not_filled_up() {
    for prefix in ["", "log-"] {
        let disk = SimulatedDisk::new();
        let (mut log, _) = open(&disk);
        append(&mut log, 10);
        disk.fail(Op::Sync, prefix, 0, u64::MAX);
        log.append(b"2", Purpose::NewJobs).unwrap_err();
        let files = names(&disk, "").len();
        for _ in 0..10 {
            log.retry().unwrap_err();
        }
        assert!(names(&disk, "").len() <= files);
        disk.heal();
        log.retry().unwrap();
        append(&mut log, 10);
        for seed in 0..50 {
            assert_eq!(open(&disk.after_cut(seed)).1.len(), 3);
        }
    }
}

#[test]
fn if_a_segment_cannot_be_begun_the_group_is_refused() {
    for (op, prefix) in [(Op::Write, "spare-"), (Op::Sync, "spare-"), (Op::Rename, "")] {
        let disk = SimulatedDisk::new();
        let (mut log, _) = open(&disk);
        append(&mut log, 10);
        log.spares().fill().unwrap();
        log.roll();
        disk.fail(op, prefix, 0, 1);
        log.reserve(Purpose::NewJobs, 10).unwrap_err();
        assert_eq!(log.last_group(), 1);
        append(&mut log, 10);
        for seed in 0..50 {
            assert_eq!(open(&disk.after_cut(seed)).1.len(), 2);
        }
    }
}

#[test]
fn a_group_that_an_earlier_process_could_not_sync_is_written_again() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    disk.fail(Op::Sync, "log-", 0, 1);
    log.append(b"2", Purpose::NewJobs).unwrap_err();
    drop(log);
    // The kernel has it in its page cache and considers it written.
    let (mut log, groups) = open(&disk);
    assert_eq!(groups.len(), 2);
    append(&mut log, 10);
    for seed in 0..50 {
        assert_eq!(open(&disk.after_cut(seed)).1.len(), 3);
    }
}

#[test]
fn what_a_killed_process_wrote_is_synced_before_it_is_used() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    // As if it had been killed between writing and syncing.
    disk.lie("log-");
    append(&mut log, 10);
    drop(log);
    let killed = disk.after_kill();
    assert!((0..50).any(|seed| open(&killed.after_cut(seed)).1.len() == 1));
    assert_eq!(open(&killed).1.len(), 2);
    for seed in 0..50 {
        assert_eq!(open(&killed.after_cut(seed)).1.len(), 2);
    }
}

#[test]
fn a_process_killed_while_it_renames_segments_does_no_harm() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    log.roll();
    append(&mut log, 10);
    log.release(1);
    // A segment was renamed to a spare, but the name is not synced.
    disk.cut_at(disk.operations() + 1);
    log.spares().fill().unwrap_err();
    for operations in 0..12 {
        let disk = disk.after_kill();
        disk.cut_at(disk.operations() + operations);
        let _ = open_after(&disk, 1).map(|(mut log, _)| log.append(b"3", Purpose::NewJobs).is_ok());
        for seed in 0..20 {
            let (_, groups) = open_after(&disk.after_cut(seed), 1).unwrap();
            assert_eq!(groups[0].0, 2);
        }
    }
}

fn check_seeds(count_in: &str, count: u64, check: impl Fn(u64)) {
    requeue_testkit::check_seeds(&[], count_in, count, |seed| {
        check(seed);
        Ok(())
    });
}
