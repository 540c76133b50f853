//! Whatever the files contain: there is no panic, and no group that was not written.

use super::damage::segment;
use super::*;
use crate::log::segment::segment_name;
use std::collections::BTreeMap;

/// A log with segments of all sorts, and all groups that it has or had.
fn log(random: &mut Random) -> (SimulatedDisk, BTreeMap<u64, Vec<u8>>) {
    let disk = SimulatedDisk::new();
    let (mut log, _) = open(&disk);
    let mut written = BTreeMap::new();
    for _ in 0..random.below(30) + 2 {
        match random.below(12) {
            0 => log.roll(),
            1 => log = open_after(&disk, 0).unwrap().0,
            2 => log.close().unwrap(),
            3 => disk.fail(Op::Sync, "log-", 0, 1),
            _ => {
                let bytes = *random.pick(&[0, 5, 100, 700, 5000]);
                let (group, payload) = (log.last_group() + 1, random.number().to_le_bytes());
                let payload = payload.repeat(bytes / 8 + 1);
                if let Err(AppendError::Refused(_)) = log.append(&payload, Purpose::NewJobs) {
                    continue;
                }
                written.insert(group, payload);
            }
        }
        log.retry().unwrap();
        disk.heal();
    }
    (disk, written)
}

/// Damages the files in a way that no program and no power cut does.
fn damage_one(disk: &SimulatedDisk, random: &mut Random) {
    let names = names(disk, "log-");
    if names.is_empty() {
        return;
    }
    let (name, other) = (random.pick(&names).clone(), random.pick(&names).clone());
    let mut bytes = disk.bytes(&name);
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => disk.flip(&name, at as u64, 1 << random.below(8)),
        1 => disk.truncate(&name, at as u64),
        2 => disk.remove(&name).unwrap(),
        3 => disk.rename(&name, &other).unwrap(),
        4 => disk.put(&segment_name(random.below(9) as u64), &bytes),
        5 => {
            let end = bytes.len().min(at + random.below(300));
            bytes[at..end].fill_with(|| random.number() as u8);
            disk.put(&name, &bytes);
        }
        // A piece of another segment, or of this one, at the place of a frame.
        6 => {
            let from = disk.bytes(&other);
            let start = random.below(from.len()) / 8 * 8;
            let end = from.len().min(start + random.below(2000));
            let at = at / 8 * 8;
            bytes.truncate(at);
            bytes.extend_from_slice(&from[start..end]);
            bytes.resize(bytes.len().max(SEGMENT as usize), 0);
            disk.put(&name, &bytes);
        }
        // Nothing but noise, with a header that promises more.
        _ => {
            let header = bytes.len().min(64);
            bytes[header..].fill_with(|| random.number() as u8);
            disk.put(&name, &bytes);
        }
    }
}

fn check(seed: u64) {
    let mut random = Random::new(seed);
    let (disk, written) = log(&mut random);
    for _ in 0..random.below(3) + 1 {
        damage_one(&disk, &mut random);
    }
    let known = |group: u64, payload: &[u8]| {
        assert_eq!(written.get(&group).map(Vec::as_slice), Some(payload), "group {group}");
    };
    let after = random.below(5) as u64;
    let mut next = after + 1;
    let opened = Log::open(
        Arc::new(disk.snapshot()),
        OPTIONS,
        after,
        LogEnd::default(),
        |crate::log::Group { number: group, payload, .. }| {
            known(group, payload);
            // Numbers that are left out are those of closing groups.
            assert!((next..group).all(|number| !written.contains_key(&number)), "group {group}");
            next = group + 1;
            Ok(())
        },
    );
    let corrupt = match opened {
        Ok(_) => None,
        Err(DiskError::Corrupt(corrupt)) => Some(corrupt),
        Err(error) => panic!("neither opened nor damaged: {error}"),
    };
    let mut found = Vec::new();
    verify(&SegmentView::all(&disk).unwrap(), after, |each| match each {
        Ok(group) => known(group.number, group.payload),
        Err(corrupt) => found.push(corrupt),
    })
    .unwrap();
    if let Some(corrupt) = corrupt {
        assert!(!found.is_empty(), "verify does not find that {corrupt}");
    }
}

#[test]
fn no_damage_makes_a_group_that_was_not_written() {
    check_seeds("REQUEUE_LOG_FUZZ", 1500, check);
}

#[test]
fn valid_frames_with_impossible_numbers_are_refused() {
    check_seeds("REQUEUE_LOG_FUZZ", 1500, |seed| {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new();
        let edges = [0, 1, 2, 3, u64::MAX - 1, u64::MAX];
        for _ in 0..random.below(4) + 1 {
            let number = *random.pick(&edges);
            let first_group = *random.pick(&edges);
            let groups: Vec<(u64, &[u8])> =
                (0..random.below(4)).map(|_| (*random.pick(&edges), b"x" as &[u8])).collect();
            let mut bytes = segment(number, first_group, &groups);
            bytes.truncate(*random.pick(&[bytes.len(), bytes.len(), 100]));
            disk.put(&segment_name(number), &bytes);
        }
        let after = *random.pick(&edges);
        let _ = open_after(&disk.snapshot(), after);
        verify(&SegmentView::all(&disk).unwrap(), after, |_| ()).unwrap();
    });
}

#[test]
fn a_segment_that_looks_like_long_frames_everywhere_is_read_in_time() {
    let disk = SimulatedDisk::new();
    let mut bytes = segment(0, 1, &[(1, b"x")]);
    let size: u64 = 4 << 20;
    let mark: [u8; 4] = bytes[40..44].try_into().unwrap();
    bytes[32..40].copy_from_slice(&size.to_le_bytes());
    let mut header: [u8; 64] = bytes[..64].try_into().unwrap();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..12]);
    hasher.update(&header[16..]);
    header[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes[..64].copy_from_slice(&header);
    // Every eighth byte is the beginning of a frame, which claims half of the segment.
    let filler = [mark, (size as u32 / 2).to_le_bytes()].concat();
    bytes.truncate(4096 + 64);
    while bytes.len() < size as usize {
        bytes.extend_from_slice(&filler);
    }
    disk.put(&segment_name(0), &bytes);
    let mut groups = 0;
    let segments = SegmentView::all(&disk).unwrap();
    verify(&segments, 0, |each| groups += usize::from(each.is_ok())).unwrap();
    assert_eq!(groups, 1);
}
