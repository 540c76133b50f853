//! Tests of damaged files.

use super::{flush_jobs, names, open, scanned, small, with_seeds};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::manifest::{self, Manifest};
use crate::simulated_disk::SimulatedDisk;
use crate::tables::{Checked, Entry, Tables, table};
use std::sync::Arc;

/// Replaces the contents of a file, for those who open it from now on.
fn change(disk: &SimulatedDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.bytes(name);
    change(&mut bytes);
    disk.put(name, &bytes);
}

#[test]
fn verify_reports_all_damage() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..200);
    let table = tables.version().due[0].tables[0].clone();
    let blocks = [1, 3];
    for block in blocks {
        let range = table.index.range(block);
        disk.flip(&table::name(table.number), range.start + 7, 1);
    }
    let wrong: Vec<_> = tables
        .version()
        .verify()
        .into_iter()
        .map(|error| match error {
            DiskError::Corrupt(corrupt) => (corrupt.file, corrupt.offset),
            error => panic!("{error}"),
        })
        .collect();
    let expected = blocks.map(|block| (table::name(table.number), table.index.range(block).start));
    assert_eq!(wrong, expected);

    let (mut checked, mut entries) = (Checked::default(), 0);
    let manifest = Manifest::read(&disk, 2).unwrap();
    let count = |_: &_, _: Entry<'_>| {
        entries += 1;
        Ok(())
    };
    checked.read(&disk, &manifest, count, |_| ());
    assert_eq!(checked.wrong(table.number).len(), 2);
    assert!(entries > 200 && entries < 400, "entries of two blocks are missing");
    assert!(checked.version(&manifest, None).is_none(), "it would be passed over");
}

#[test]
fn blocks_that_change_places_are_damage() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    // Jobs of equal length, so that blocks are.
    flush_jobs(&tables, 1000..1200);
    let table = tables.version().due[0].tables[0].clone();
    let (a, b) = (table.index.range(1), table.index.range(2));
    assert_eq!(a.end - a.start, b.end - b.start);
    // Now the table is not new in the newest manifest, so it is not read completely at open.
    flush_jobs(&tables, 0..1);
    change(&disk, &table::name(table.number), |bytes| {
        let (first, second) = bytes.split_at_mut(b.start as usize);
        let length = (b.end - b.start) as usize;
        first[a.start as usize..a.end as usize].swap_with_slice(&mut second[..length]);
    });
    assert_eq!(open(&disk, small()).version().verify().len(), 2);
}

#[test]
fn a_block_of_another_table_is_damage() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 1000..1200);
    let version = tables.version();
    let [a, b] = [0, 1].map(|table| &version.due[0].tables[table]);
    assert_eq!(a.index.range(0), b.index.range(0));
    flush_jobs(&tables, 0..1);
    let block = 0..a.index.range(0).end as usize;
    let other = disk.bytes(&table::name(b.number));
    change(&disk, &table::name(a.number), |bytes| {
        bytes[block.clone()].copy_from_slice(&other[block]);
    });
    let wrong = open(&disk, small()).version().verify();
    assert!(wrong[0].to_string().contains("checksum"), "{wrong:?}");
}

#[test]
fn a_table_in_the_place_of_another_is_damage() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..10);
    flush_jobs(&tables, 10..20);
    let first = tables.version().due[0].tables[0].number;
    let second = tables.version().due[1].tables[0].number;
    drop(tables);
    disk.put(&table::name(first), &disk.bytes(&table::name(second)));
    let error = Tables::open(Arc::new(disk), small()).err().unwrap();
    assert!(error.to_string().starts_with(&table::name(first)), "{error}");
}

#[test]
fn if_the_newest_table_is_damaged_or_missing_the_previous_manifest_is_used() {
    with_seeds(50, |random| {
        let disk = SimulatedDisk::new();
        let tables = open(&disk, small());
        flush_jobs(&tables, 0..100);
        let before = names(&disk);
        flush_jobs(&tables, 100..200);
        drop(tables);
        let new: Vec<_> = names(&disk).into_iter().filter(|name| !before.contains(name)).collect();
        let name = random.pick(&new).clone();
        let length = disk.bytes(&name).len();
        if random.chance(30) {
            disk.remove(&name).unwrap();
        } else if random.chance(50) {
            disk.truncate(&name, random.below(length) as u64);
        } else {
            let at = random.below(length);
            (at..length).for_each(|at| disk.flip(&name, at as u64, 0x55));
        }
        let (tables, opened) = Tables::open(Arc::new(disk.clone()), small()).unwrap();
        assert_eq!(opened.flushed_through, 10);
        assert_eq!(opened.notes.len(), usize::from(names(&disk).contains(&manifest::name(3))));
        assert_eq!(tables.released_through(), 0, "the log is needed from the start");
        assert_eq!(scanned(&tables.version()), (0..100).collect::<Vec<_>>());

        // The contents of the log are flushed again, whether the damaged files are there or not.
        if random.chance(50) {
            tables.clean();
        }
        flush_jobs(&tables, 100..200);
        flush_jobs(&tables, 200..210);
        drop(tables);
        let tables = open(&disk, small());
        assert_eq!(scanned(&tables.version()), (0..210).collect::<Vec<_>>());
        assert_eq!(names(&disk).len(), 2 + tables.version().tables().count());
    });
}

#[test]
fn orphans_are_removed() {
    let disk = SimulatedDisk::new();
    let tables = open(&disk, small());
    flush_jobs(&tables, 0..10);
    drop(tables);
    let before = names(&disk);
    disk.put(&table::name(77), &[1; 100]);
    let tables = open(&disk, small());
    assert_eq!(names(&disk), before);
    flush_jobs(&tables, 10..20);
    assert!(names(&disk).contains(&table::name(78)), "no number is used twice");
}

#[test]
fn an_incomplete_first_manifest_is_written_again() {
    let disk = SimulatedDisk::new();
    disk.put(&manifest::name(1), &[0; 10]);
    let tables = open(&disk, small());
    assert_eq!(names(&disk), [manifest::name(1)]);
    flush_jobs(&tables, 0..10);
    drop(tables);
    assert_eq!(scanned(&open(&disk, small()).version()).len(), 10);
}

#[test]
fn a_directory_without_its_manifests_is_refused() {
    let disk = SimulatedDisk::new();
    disk.put("log-0000000001", &[]);
    let error = Tables::open(Arc::new(disk), small()).err().unwrap();
    assert!(matches!(error, DiskError::Corrupt(_)), "{error}");
}

#[test]
fn another_format_and_unknown_features_are_refused() {
    // With other magic bytes, another number, and a list of one feature in place of the empty one.
    for (at, removed, with, text) in [
        (
            3,
            3,
            &b"log"[..],
            r#"manifest-0000000002 has format 1 ("rq-log\r\n"), but this version reads only format 1 ("rq-man\r\n")"#,
        ),
        (8, 1, &[9], r#"has format 9 ("rq-man\r\n"), but"#),
        (
            24,
            1,
            b"\x02\x05holds\x06groups",
            "manifest-0000000002 lists features that this version does not know: holds, groups",
        ),
    ] {
        let disk = SimulatedDisk::new();
        let tables = open(&disk, small());
        flush_jobs(&tables, 0..10);
        drop(tables);
        change(&disk, &manifest::name(2), |bytes| {
            bytes.splice(at..at + removed, with.iter().copied());
            let length = bytes.len() as u64 - 24;
            bytes[16..24].copy_from_slice(&length.to_le_bytes());
            let crc = manifest::crc(2, bytes);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        });
        let error = Tables::open(Arc::new(disk), small()).err().unwrap();
        assert!(error.is_other_version() && error.to_string().contains(text), "{error}");
    }
}
