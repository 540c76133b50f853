//! Damage is detected and reported; an incomplete write is not damage.

use super::*;
use crate::log::frame::{self, FrameKind, HEADER, Header};
use crate::log::segment::segment_name;

/// A log of three segments with two groups each, and a closing one.
fn closed() -> (SimulatedDisk, Groups) {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut written = Vec::new();
    for _ in 0..3 {
        log.roll();
        written.push(append(&mut log, 50));
        written.push(append(&mut log, 60));
    }
    log.close().unwrap();
    (disk, written)
}

/// A segment of these groups, one after the other.
pub(super) fn segment(number: u64, first_group: u64, groups: &[(u64, &[u8])]) -> Vec<u8> {
    let header = Header { number, first_group, bytes: SEGMENT, mark: 77 };
    let mut bytes = header.encode().to_vec();
    bytes.resize(FIRST as usize, 0);
    let mut one = Vec::new();
    for (group, payload) in groups {
        frame::encode(&mut one, *group, FrameKind::Data, payload);
        frame::seal(&mut one, &header);
        bytes.extend_from_slice(&one);
    }
    bytes.resize(SEGMENT as usize, 0);
    bytes
}

#[test]
fn every_flipped_bit_of_a_closed_log_is_found() {
    let (whole, written) = closed();
    for view in SegmentView::all(&whole).unwrap() {
        let used = FIRST..FIRST + 24 + 56 + 24 + 64;
        for offset in (0..HEADER as u64).chain(used) {
            let disk = whole.snapshot();
            disk.flip(&view.name, offset, 1 << (offset % 8));
            let found = corrupt(open_after(&disk, 0));
            assert_eq!(found.file, view.name, "byte {offset}");
            assert!(found.offset <= offset && offset < found.offset + 88, "{found}: byte {offset}");
            assert_eq!(damage(&disk), [found]);
        }
    }
    // The closing frame protects the groups before it, and contains no data itself.
    let last = segment_name(2);
    for offset in FIRST + 24 + 56 + 24 + 64..FIRST + 24 + 56 + 24 + 64 + 24 {
        let disk = whole.snapshot();
        disk.flip(&last, offset, 4);
        assert_eq!(open(&disk).1, written);
    }
}

#[test]
fn damage_to_the_last_group_is_found_after_another_segment_began() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    append(&mut log, 10);
    log.roll();
    log.reserve(Purpose::NewJobs, 10).unwrap();
    drop(log);
    disk.flip(&segment_name(0), FIRST + 40 + 30, 1);
    let found = corrupt(open_after(&disk, 0));
    assert_eq!((found.file.as_str(), found.offset), ("log-0000000000", FIRST + 40));
}

#[test]
fn a_segment_that_is_gone_is_named() {
    for number in 0..2 {
        let (disk, _) = closed();
        disk.remove(&segment_name(number)).unwrap();
        let found = corrupt(open_after(&disk, 0));
        assert_eq!((found.file.as_str(), found.offset), (segment_name(number).as_str(), 0));
        assert!(found.what.contains(&format!("group {}", 2 * number + 1)), "{found}");
    }
    let (disk, written) = closed();
    disk.remove(&segment_name(0)).unwrap();
    assert_eq!(open_after(&disk, 2).unwrap().1, written[2..], "the tables have it");
}

#[test]
fn a_segment_that_was_cut_off_is_named() {
    let (whole, _) = closed();
    for bytes in [0, 10, 64, FIRST, FIRST + 300, SEGMENT - 1] {
        let disk = whole.snapshot();
        disk.truncate(&segment_name(2), bytes);
        let found = corrupt(open_after(&disk, 0));
        assert_eq!((found.file, found.offset), (segment_name(2), bytes));
    }
}

#[test]
fn a_segment_in_anothers_place_is_named() {
    let (whole, _) = closed();
    for (from, to) in [(0, 1), (1, 0), (2, 3), (0, 7)] {
        let disk = whole.snapshot();
        disk.put(&segment_name(to), &whole.bytes(&segment_name(from)));
        assert_eq!(corrupt(open_after(&disk, 0)).file, segment_name(to));
    }
}

#[test]
fn damage_in_groups_that_the_tables_contain_is_found_only_by_verify() {
    let (disk, written) = closed();
    disk.flip(&segment_name(0), FIRST + 30, 1);
    disk.flip(&segment_name(1), 3, 1);
    assert_eq!(corrupt(open_after(&disk, 4)).file, segment_name(1), "headers are always read");
    disk.flip(&segment_name(1), 3, 1);
    assert_eq!(open_after(&disk, 4).unwrap().1, written[4..]);
    disk.flip(&segment_name(1), FIRST + 30, 1);
    disk.flip(&segment_name(2), FIRST + 24 + 56 + 24, 1);
    let found = damage(&disk);
    let places: Vec<_> = found.iter().map(|c| (c.file.clone(), c.offset)).collect();
    let expected =
        [(segment_name(0), FIRST), (segment_name(1), FIRST), (segment_name(2), FIRST + 24 + 56)];
    assert_eq!(places, expected);
}

#[test]
fn another_format_is_refused() {
    for (at, with, found) in
        [(8, &[2][..], r#"2 ("rq-seg\r\n")"#), (3, b"log", r#"1 ("rq-log\r\n")"#)]
    {
        let (disk, _) = closed();
        let mut bytes = disk.bytes(&segment_name(2));
        bytes[at..at + with.len()].copy_from_slice(with);
        let sum = {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes[..12]);
            hasher.update(&bytes[16..HEADER]);
            hasher.finalize()
        };
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        disk.put(&segment_name(2), &bytes);
        let Some(DiskError::Format { file, found: read, expected }) = open_after(&disk, 0).err()
        else {
            panic!("it is opened")
        };
        assert_eq!((file, &*read, &*expected), (segment_name(2), found, r#"1 ("rq-seg\r\n")"#));
    }
}

#[test]
fn copies_of_a_group_must_be_the_same() {
    let disk = SimulatedDisk::new();
    disk.put(&segment_name(0), &segment(0, 1, &[(1, b"a"), (2, b"b")]));
    disk.put(&segment_name(1), &segment(1, 2, &[(2, b"b"), (3, b"c")]));
    let groups = [(1, b"a".to_vec()), (2, b"b".to_vec()), (3, b"c".to_vec())];
    assert_eq!(open(&disk).1, groups);
    // There may be several, and some of them may be incomplete.
    disk.put(&segment_name(1), &segment(1, 1, &[(1, b"a"), (2, b"b"), (3, b"c")]));
    assert_eq!(open(&disk).1, groups);
    for copy in 0..2 {
        let disk = disk.snapshot();
        disk.flip(&segment_name(1), FIRST + 32 * copy + 24, 1);
        assert_eq!(open(&disk).1, groups);
        assert_eq!(damage(&disk), []);
    }
    disk.put(&segment_name(1), &segment(1, 2, &[(2, b"x"), (3, b"c")]));
    let found = corrupt(open_after(&disk, 0));
    assert_eq!((found.file, found.offset), (segment_name(1), FIRST));
}

#[test]
fn groups_out_of_order_are_refused() {
    let cases: [&[(u64, &[u8])]; 4] = [
        &[(1, b""), (3, b"")],
        &[(1, b""), (2, b""), (1, b"")],
        &[(2, b"")],
        &[(1, b""), (0, b"")],
    ];
    for groups in cases {
        let disk = SimulatedDisk::new();
        disk.put(&segment_name(0), &segment(0, 1, groups));
        assert_eq!(corrupt(open_after(&disk, 0)).file, segment_name(0), "{groups:?}");
    }
}

#[test]
fn an_incomplete_write_at_the_end_is_not_damage() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut written = vec![append(&mut log, 10)];
    append(&mut log, 500);
    drop(log);
    disk.flip(&segment_name(0), FIRST + 300, 1);
    let (mut log, groups) = open(&disk);
    assert_eq!((&groups, log.last_group()), (&written, 1));
    // The new group 2 goes to another segment, and the incomplete one never comes back.
    written.push(append(&mut log, 30));
    written.push(append(&mut log, 30));
    drop(log);
    assert_eq!(open(&disk).1, written);
    assert_eq!(damage(&disk), []);
}

#[test]
fn an_incomplete_write_is_not_reported_for_later_damage() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    append(&mut log, 500);
    drop(log);
    disk.flip(&segment_name(0), FIRST + 300, 1);
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    log.roll();
    append(&mut log, 10);
    // After another copy of group 1.
    disk.flip(&segment_name(1), FIRST + 40 + 30, 1);
    let found = corrupt(open_after(&disk, 0));
    assert_eq!((found.file, found.offset), (segment_name(1), FIRST + 40));
}

/// Ten groups in one segment, and where they begin. The log was not closed.
fn ten() -> (SimulatedDisk, Groups, Vec<u64>) {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let (mut written, mut offsets) = (Vec::new(), Vec::new());
    for bytes in [10, 200, 30, 300, 10, 90, 0, 700, 50, 40] {
        offsets.push(log.segments(0).last().map_or(FIRST, |segment| segment.bytes));
        written.push(append(&mut log, bytes));
    }
    (disk, written, offsets)
}

#[test]
fn damage_to_the_last_groups_is_found_because_later_ones_were_begun() {
    let (whole, written, offsets) = ten();
    for count in 1..=6 {
        // A bit of the checksum, the length, the type, the payload; not of the mark and the number.
        for at in [5, 9, 13, 24] {
            let disk = whole.snapshot();
            let first = offsets.len() - count;
            for offset in &offsets[first..] {
                disk.flip(&segment_name(0), offset + at, 1);
            }
            if count == 1 {
                // It looks like an incomplete write.
                assert_eq!(open(&disk).1, written[..first]);
                continue;
            }
            let found = corrupt(open_after(&disk, 0));
            assert_eq!((&*found.file, found.offset), (&*segment_name(0), offsets[first]));
            assert!(found.what.contains(&format!("group {} is damaged", first + 1)), "{found}");
            assert_eq!(damage(&disk), [found]);
            // The tables may contain the groups that are damaged, or all but the last of them.
            for after in [9, 10] {
                assert_eq!(open_after(&disk, after).unwrap().1, []);
            }
        }
    }
}

#[test]
fn one_incomplete_group_is_not_taken_for_two() {
    let (whole, written, offsets) = ten();
    let end = *offsets.last().unwrap();
    // Every aligned piece of the last group is lost or kept, and what it overwrites is zeros, or
    // frames of an earlier use of the file, with higher numbers and another mark.
    let stale =
        segment(0, 1, &(12..40).map(|group| (group, b"stale" as &[u8])).collect::<Vec<_>>());
    for pieces in 0_u32..1 << 8 {
        for old in [&vec![0; SEGMENT as usize], &stale] {
            let mut bytes = whole.bytes(&segment_name(0));
            for piece in (0..8).filter(|piece| pieces >> piece & 1 == 1) {
                let at = end as usize + piece * 8;
                bytes[at..at + 8].copy_from_slice(&old[at..at + 8]);
            }
            let used = end as usize + 64;
            bytes[used..].copy_from_slice(&old[used..]);
            let disk = SimulatedDisk::new();
            disk.put(&segment_name(0), &bytes);
            let groups = open(&disk).1;
            assert!(groups == written || groups == written[..9], "{pieces:b}");
            assert_eq!(damage(&disk), []);
        }
    }
}

#[test]
fn a_body_with_a_piece_of_this_log_is_not_taken_for_a_later_group() {
    let (disk, written, _) = ten();
    // Also with headers of this segment, and with the mark at every place.
    let copied = disk.bytes(&segment_name(0));
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    let mark = disk.bytes(&segment_name(1))[40..44].to_vec();
    let marks: Vec<u8> = [mark, vec![0xff; 20]].concat().repeat(20);
    for body in
        [copied[4096..5500].to_vec(), disk.bytes(&segment_name(1))[4096..4600].to_vec(), marks]
    {
        let disk = disk.snapshot();
        let (mut log, _) = open(&disk);
        append(&mut log, 10);
        let at = log.segments(0).last().unwrap().bytes;
        log.append(&body, Purpose::NewJobs).unwrap();
        drop(log);
        disk.flip(&segment_name(2), at + 5, 1);
        assert_eq!(open(&disk).1.len(), written.len() + 2);
        assert_eq!(damage(&disk), []);
    }
}

#[test]
fn a_frame_belongs_to_one_segment() {
    let header = Header { number: 5, first_group: 1, bytes: SEGMENT, mark: 77 };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, 9, FrameKind::Data, b"payload");
    frame::seal(&mut bytes, &header);
    assert_eq!(frame::decode(&bytes, &header).unwrap().payload, b"payload");
    frame::decode(&bytes, &Header { number: 6, ..header }).unwrap_err();
    frame::decode(&bytes, &Header { mark: 78, ..header }).unwrap_err();
    frame::decode(&bytes[..bytes.len() - 1], &header).unwrap_err();
}

#[test]
fn a_frame_in_a_body_is_not_taken_for_a_group() {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    append(&mut log, 10);
    // A body with a piece of a log in it, even of this segment's number.
    let body = segment(0, 1, &[(2, b"not a group")])[4096..4160].to_vec();
    log.append(&body, Purpose::NewJobs).unwrap();
    drop(log);
    disk.flip(&segment_name(0), FIRST + 40 + 4, 1);
    assert_eq!(open(&disk).1.len(), 1);
}
