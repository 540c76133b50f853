//! The simulated disk loses what a disk may lose in a power cut, and nothing else.
use crate::support::simulated_disk::{Op, SimulatedDisk};
use requeue_disk::{Disk, DiskFile};
use std::collections::BTreeSet;
use std::sync::Arc;

const SEEDS: u64 = 300;

fn file(disk: &SimulatedDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.create(name).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    file
}

/// The contents that a file may have after a cut.
fn outcomes(disk: &SimulatedDisk, name: &str) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| disk.after_cut(seed).bytes(name)).collect()
}

/// The names that there may be after a cut.
fn names(disk: &SimulatedDisk) -> BTreeSet<Vec<String>> {
    (0..SEEDS).map(|seed| disk.after_cut(seed).names().unwrap()).collect()
}

fn set<const N: usize>(names: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    names.iter().map(|names| names.iter().map(|name| name.to_string()).collect()).collect()
}

#[test]
fn what_was_synced_is_there() {
    let disk = SimulatedDisk::new();
    file(&disk, "a", b"one").write_at(b"two", 3).unwrap();
    assert_eq!(disk.bytes("a"), b"onetwo");
    let found = outcomes(&disk, "a");
    assert!(found.contains(&b"one"[..]) && found.contains(&b"onetwo"[..]));
    assert!(found.iter().all(|bytes| bytes.starts_with(b"one")));
    assert!(found.contains(&b"one\0\0\0"[..]), "the size may be there without the bytes");
    assert_eq!(found.len(), 3);
}

#[test]
fn writes_tear_at_sectors_and_meet_in_any_order() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", &[0; 1024]);
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 512], 512).unwrap();
    let found = outcomes(&disk, "a");
    let halves: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[0], bytes[512])).collect();
    assert_eq!(halves, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].into());
    for bytes in found {
        assert!(bytes[..512].iter().all(|byte| *byte == bytes[0]), "a sector is whole");
        assert!(bytes[512..].iter().all(|byte| *byte == bytes[512]), "a sector is whole");
    }
}

#[test]
fn names_are_safe_only_once_synced() {
    let disk = SimulatedDisk::new();
    file(&disk, "a", b"");
    disk.create("b").unwrap();
    disk.rename("a", "c").unwrap();
    let any = set([&["a"], &["c"], &["a", "b"], &["b", "c"]]);
    assert_eq!(names(&disk), any, "never both of a and c, never neither");
    disk.sync_names().unwrap();
    assert_eq!(names(&disk), set([&["b", "c"]]));
    disk.remove("b").unwrap();
    assert_eq!(names(&disk), set([&["c"], &["b", "c"]]));
}

#[test]
fn a_file_is_never_moved_before_it_is_made_or_moved_to_there() {
    let disk = SimulatedDisk::new();
    disk.create("a").unwrap();
    disk.rename("a", "b").unwrap();
    disk.rename("b", "c").unwrap();
    assert_eq!(names(&disk), set([&[], &["a"], &["b"], &["c"]]));
}

#[test]
fn a_file_that_takes_anothers_place_is_one_of_both() {
    let disk = SimulatedDisk::new();
    file(&disk, "a", b"old");
    file(&disk, "b", b"new");
    disk.rename("b", "a").unwrap();
    assert_eq!(outcomes(&disk, "a"), [b"old".to_vec(), b"new".to_vec()].into());
}

#[test]
fn after_the_cut_everything_fails_and_nothing_happens() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    assert_eq!((disk.operations(), disk.count(Op::Write)), (4, 1));
    disk.cut_at(5);
    file.write_at(b"two", 0).unwrap();
    assert!(!disk.is_cut());
    file.sync().unwrap_err();
    assert!(disk.is_cut());
    file.write_at(b"six", 0).unwrap_err();
    file.sync().unwrap_err();
    file.read_at(&mut [0], 0).unwrap_err();
    disk.create("b").err().unwrap();
    disk.remove("a").unwrap_err();
    disk.names().unwrap_err();
    assert_eq!(outcomes(&disk, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    assert_eq!(names(&disk), set([&["a"]]));
}

#[test]
fn what_is_cut_may_happen() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    let renamed = disk.snapshot();
    disk.cut_at(4);
    file.write_at(b"two", 0).unwrap_err();
    assert_eq!(outcomes(&disk, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    renamed.cut_at(4);
    renamed.rename("a", "b").unwrap_err();
    assert_eq!(names(&renamed), set([&["a"], &["b"]]));
}

#[test]
fn a_sync_after_a_failed_one_proves_nothing_until_it_is_written_again() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    disk.fail(Op::Sync, "a", 0, 1);
    file.write_at(b"two", 0).unwrap();
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    file.write_at(b"tw", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a"), [b"twe".to_vec(), b"two".to_vec()].into());
    assert_eq!(disk.bytes("a"), b"two");
}

#[test]
fn a_failed_write_destroys_bytes_of_its_blocks_and_no_others() {
    for (block, op) in [(512, Op::Write), (512, Op::Sync), (4096, Op::Write), (4096, Op::Sync)] {
        let before: Vec<u8> = vec![1; 3 * 4096];
        let (mut torn, mut hidden) = (false, false);
        for seed in 0..50 {
            let disk = SimulatedDisk::new();
            let file = file(&disk, "a", &before);
            (0..seed).for_each(|_| file.sync().unwrap());
            disk.tear(block);
            disk.fail(op, "a", 0, 1);
            // In the second block of either size.
            let offset = block + 100;
            let failed = file.write_at(&[2; 8], offset).and_then(|()| file.sync());
            failed.unwrap_err();
            let (now, found) = (disk.bytes("a"), disk.after_cut(seed).bytes("a"));
            let (from, to) = (block as usize, 2 * block as usize);
            for bytes in [&now, &found] {
                assert_eq!((&bytes[..from], &bytes[to..]), (&before[..from], &before[to..]));
            }
            let is_torn = |bytes: &[u8]| bytes[from..from + 100] != before[from..from + 100];
            torn |= is_torn(&found);
            hidden |= is_torn(&found) && !is_torn(&now);
        }
        assert_eq!((torn, hidden), (true, op == Op::Sync));
    }
}

#[test]
fn faults_meet_the_operations_that_were_meant() {
    let disk = SimulatedDisk::new();
    let (a, b) = (file(&disk, "a", b""), file(&disk, "b", b""));
    disk.fail(Op::Write, "b", 1, 2);
    for fails in [false, true, true, false] {
        a.write_at(b"x", 0).unwrap();
        assert_eq!(b.write_at(b"x", 0).is_err(), fails);
    }
    disk.fail(Op::Read, "b", 1, 1);
    let operations = disk.operations();
    for fails in [false, true, false] {
        a.read_at(&mut [0], 0).unwrap();
        assert_eq!(b.read_at(&mut [0], 0).is_err(), fails);
    }
    assert_eq!(disk.operations(), operations);
    disk.fail(Op::Rename, "a", 0, 9);
    disk.rename("a", "c").unwrap_err();
    disk.heal();
    disk.rename("a", "c").unwrap();
}

#[test]
fn a_lying_sync_makes_nothing_safe() {
    let disk = SimulatedDisk::new();
    disk.lie("table-");
    let file = file(&disk, "table-1", b"one");
    file.sync().unwrap();
    assert!(outcomes(&disk, "table-1").contains(&b""[..]));
}

#[test]
fn a_full_disk_takes_what_fits_and_more_once_there_is_space() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    disk.set_capacity(Some(5));
    let error = file.write_at(b"three", 2).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!((disk.bytes("a"), disk.free().unwrap()), (b"onthr".to_vec(), 0));
    file.write_at(b"r", 4).unwrap();
    disk.set_capacity(Some(7));
    file.write_at(b"three", 2).unwrap();
    disk.remove("a").unwrap();
    assert_eq!(disk.free().unwrap(), 7);
}

#[test]
fn a_snapshot_is_another_disk() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    let snapshot = disk.snapshot();
    file.write_at(b"two", 0).unwrap();
    disk.flip("a", 1, 0xff);
    assert_eq!(snapshot.bytes("a"), b"one");
    assert_eq!(disk.bytes("a"), [b't', !b'w', b'o']);
}

#[test]
fn what_is_cut_off_is_not_back_when_a_file_grows() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", &[7; 5000]);
    disk.truncate("a", 10);
    file.write_at(&[1], 4999).unwrap();
    let bytes = disk.bytes("a");
    assert_eq!((bytes[9], &bytes[10..4999], bytes[4999]), (7, &[0; 4989][..], 1));
}

#[test]
fn what_a_killed_process_did_is_there_but_not_safe() {
    let disk = SimulatedDisk::new();
    let file = file(&disk, "a", b"one");
    disk.cut_at(5);
    file.write_at(b"two", 0).unwrap();
    disk.rename("a", "b").unwrap_err();
    let killed = disk.after_kill();
    assert_eq!(killed.bytes("b"), b"two");
    assert_eq!(names(&killed), set([&["a"], &["b"]]));
    killed.sync_names().unwrap();
    assert_eq!(outcomes(&killed, "b"), [b"one".to_vec(), b"two".to_vec()].into());
}
