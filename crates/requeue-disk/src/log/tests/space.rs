//! Segments are used again, and a full disk still settles jobs.

use super::*;
use crate::log::RESERVE;

#[test]
fn released_segments_are_used_again() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut creates = 0;
    for round in 0..20 {
        for _ in 0..3 {
            append(&mut log, 1900);
        }
        log.roll();
        log.release(log.last_group() - 3);
        log.spares().fill().unwrap();
        if round == 5 {
            creates = disk.count(Op::Create);
        }
    }
    assert_eq!(disk.count(Op::Create), creates);
    assert!(!log.spares().wanted());
    let (_, groups) = open_after(&disk, 57).unwrap();
    assert_eq!(groups.iter().map(|(group, _)| *group).collect::<Vec<_>>(), [58, 59, 60]);
}

#[test]
fn no_more_spares_are_kept_than_asked_for() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    for _ in 0..20 {
        append(&mut log, 3000);
    }
    log.roll();
    log.release(20);
    log.spares().fill().unwrap();
    assert_eq!((names(&disk, "log-").len(), names(&disk, "spare-").len()), (0, OPTIONS.keep));
    drop(log);
    disk.put("spare-0000000900", &[1; SEGMENT as usize]);
    disk.put("spare-0000000901", &[1; 17]);
    let (mut log, _) = open_after(&disk, 20).unwrap();
    assert_eq!(names(&disk, "spare-").len(), OPTIONS.keep);
    assert_eq!(append(&mut log, 10).0, 21);
}

#[test]
fn a_segment_is_released_only_with_its_last_group() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    append(&mut log, 10);
    log.release(2);
    assert_eq!(log.segments(0).len(), 1, "it is still written to");
    log.roll();
    append(&mut log, 10);
    log.release(1);
    assert_eq!(log.segments(0).len(), 2);
    assert_eq!(log.segments(2).len(), 1);
    log.release(2);
    assert_eq!(log.segments(0).len(), 1);
    log.spares().fill().unwrap();
    assert_eq!(open_after(&disk, 2).unwrap().1.len(), 1);
}

#[test]
fn a_segment_that_is_being_read_is_not_used_again() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let written = append(&mut log, 3000);
    let views = log.segments(0);
    log.roll();
    log.release(1);
    for _ in 0..8 {
        log.spares().fill().unwrap();
        append(&mut log, 3000);
        log.roll();
        log.release(log.last_group());
    }
    let mut groups = Vec::new();
    verify(&views, 0, |each| groups.extend(each.map(|each| (each.number, each.payload.to_vec()))))
        .unwrap();
    assert_eq!(groups, [written]);
}

#[test]
fn a_segment_that_failed_is_not_used_again() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    disk.fail(Op::Sync, "log-", 0, 1);
    log.append(b"2", Purpose::NewJobs).unwrap_err();
    log.retry().unwrap();
    log.spares().fill().unwrap();
    log.release(2);
    log.spares().fill().unwrap();
    assert_eq!(names(&disk, "spare-").len(), RESERVE + 1);
    assert_eq!(names(&disk, "log-"), ["log-0000000001"]);
}

#[test]
fn a_copy_of_the_segments_is_a_log() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let written: Vec<_> = [10, 3000, 3000, 9000, 10].map(|bytes| append(&mut log, bytes)).into();
    let copy = SimulatedDisk::new();
    for segment in log.segments(2) {
        segment.copy_to(&copy).unwrap();
    }
    copy.sync_names().unwrap();
    append(&mut log, 10);
    assert_eq!(open_after(&copy.after_cut(1), 2).unwrap().1, written[2..]);
}

#[test]
fn a_full_disk_refuses_puts_and_settles_from_the_reserve() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    log.spares().fill().unwrap();
    disk.set_capacity(Some(disk.used()));
    let mut puts = 0;
    let full = loop {
        match log.reserve(Purpose::NewJobs, 2000) {
            Ok(()) => append(&mut log, 2000),
            Err(error) => break error,
        };
        puts += 1;
    };
    assert!(matches!(full, DiskError::Full { .. }), "{full}");
    assert!(puts >= 2, "there was a segment besides the reserve");
    let writes = disk.count(Op::Write);
    let refused = log.append(&payload(99, 2000), Purpose::NewJobs);
    assert!(matches!(refused, Err(AppendError::Refused(DiskError::Full { .. }))));
    assert_eq!(disk.count(Op::Write), writes, "nothing was tried");

    let mut settled = 0;
    while log.reserve(Purpose::ExistingJobs, 1000).is_ok() {
        log.append(&payload(0, 1000), Purpose::ExistingJobs).unwrap();
        settled += 1;
        // Not even if it would fit into what the settlements took from the reserve.
        if settled > 3 {
            assert!(log.reserve(Purpose::NewJobs, 1).is_err());
        }
    }
    assert!(settled >= 3 * RESERVE, "{settled}");

    disk.set_capacity(None);
    assert!(log.reserve(Purpose::NewJobs, 1).is_err(), "the free space was not checked again yet");
    log.reserve(Purpose::ExistingJobs, 1).unwrap();
    log.spares().fill().unwrap();
    append(&mut log, 2000);
    assert_eq!(open(&disk.after_cut(7)).1.len(), 1 + puts + settled + 1);
}

#[test]
fn released_segments_end_the_shortage() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    disk.set_capacity(Some(disk.used()));
    while log.reserve(Purpose::NewJobs, 3000).is_ok() {
        append(&mut log, 3000);
    }
    log.roll();
    log.release(log.last_group());
    append(&mut log, 3000);
}

#[test]
fn a_disk_that_cannot_make_segments_says_why() {
    for op in [Op::Create, Op::Write, Op::Sync] {
        let disk = SimulatedDisk::new();
        let (mut log, _) = open(&disk);
        disk.fail(op, "spare-", 1, u64::MAX);
        let error = log.reserve(Purpose::NewJobs, 10).err();
        let Some(DiskError::Full { source }) = error else { panic!("{op:?}: {error:?}") };
        assert!(source.to_string().contains("fault"), "{source}");
        disk.heal();
        log.append(b"1", Purpose::ExistingJobs).unwrap();
        log.reserve(Purpose::NewJobs, 10).unwrap_err();
        log.spares().fill().unwrap();
        append(&mut log, 10);
    }
}

#[test]
fn a_group_has_a_limit() {
    let (mut log, _) = open(&SimulatedDisk::new());
    let refused = log.reserve(Purpose::ExistingJobs, crate::log::MAX_PAYLOAD + 1);
    assert!(matches!(refused, Err(DiskError::TooLarge { .. })));
}
