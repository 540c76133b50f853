//! The twin of a disk loses what a disk may lose, and nothing else.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/twin.rs"]
mod twin;

use requeue_disk::{Disk, DiskFile};
use std::collections::BTreeSet;
use std::sync::Arc;
use twin::{Op, Twin};

const SEEDS: u64 = 300;

fn file(twin: &Twin, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = twin.create(name).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    twin.sync_names().unwrap();
    file
}

/// What a file may be after a cut.
fn outcomes(twin: &Twin, name: &str) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| twin.after_cut(seed).bytes(name)).collect()
}

/// Which names there may be after a cut.
fn names(twin: &Twin) -> BTreeSet<Vec<String>> {
    (0..SEEDS).map(|seed| twin.after_cut(seed).names().unwrap()).collect()
}

fn set<const N: usize>(names: [&[&str]; N]) -> BTreeSet<Vec<String>> {
    names.iter().map(|names| names.iter().map(|name| name.to_string()).collect()).collect()
}

#[test]
fn what_was_synced_is_there() {
    let twin = Twin::new();
    file(&twin, "a", b"one").write_at(b"two", 3).unwrap();
    assert_eq!(twin.bytes("a"), b"onetwo");
    let found = outcomes(&twin, "a");
    assert!(found.contains(&b"one"[..]) && found.contains(&b"onetwo"[..]));
    assert!(found.iter().all(|bytes| bytes.starts_with(b"one")));
    assert!(found.contains(&b"one\0\0\0"[..]), "the size may be there without the bytes");
    assert_eq!(found.len(), 3);
}

#[test]
fn writes_tear_at_sectors_and_meet_in_any_order() {
    let twin = Twin::new();
    let file = file(&twin, "a", &[0; 1024]);
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 512], 512).unwrap();
    let found = outcomes(&twin, "a");
    let halves: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[0], bytes[512])).collect();
    assert_eq!(halves, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].into());
    for bytes in found {
        assert!(bytes[..512].iter().all(|byte| *byte == bytes[0]), "a sector is whole");
        assert!(bytes[512..].iter().all(|byte| *byte == bytes[512]), "a sector is whole");
    }
}

#[test]
fn names_are_safe_only_once_synced() {
    let twin = Twin::new();
    file(&twin, "a", b"");
    twin.create("b").unwrap();
    twin.rename("a", "c").unwrap();
    let any = set([&["a"], &["c"], &["a", "b"], &["b", "c"]]);
    assert_eq!(names(&twin), any, "never both of a and c, never neither");
    twin.sync_names().unwrap();
    assert_eq!(names(&twin), set([&["b", "c"]]));
    twin.remove("b").unwrap();
    assert_eq!(names(&twin), set([&["c"], &["b", "c"]]));
}

#[test]
fn a_file_is_never_moved_before_it_is_made_or_moved_to_there() {
    let twin = Twin::new();
    twin.create("a").unwrap();
    twin.rename("a", "b").unwrap();
    twin.rename("b", "c").unwrap();
    assert_eq!(names(&twin), set([&[], &["a"], &["b"], &["c"]]));
}

#[test]
fn a_file_that_takes_anothers_place_is_one_of_both() {
    let twin = Twin::new();
    file(&twin, "a", b"old");
    file(&twin, "b", b"new");
    twin.rename("b", "a").unwrap();
    assert_eq!(outcomes(&twin, "a"), [b"old".to_vec(), b"new".to_vec()].into());
}

#[test]
fn after_the_cut_everything_fails_and_nothing_happens() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    assert_eq!((twin.operations(), twin.count(Op::Write)), (4, 1));
    twin.cut_at(5);
    file.write_at(b"two", 0).unwrap();
    assert!(!twin.is_cut());
    file.sync().unwrap_err();
    assert!(twin.is_cut());
    file.write_at(b"six", 0).unwrap_err();
    file.sync().unwrap_err();
    file.read_at(&mut [0], 0).unwrap_err();
    twin.create("b").err().unwrap();
    twin.remove("a").unwrap_err();
    twin.names().unwrap_err();
    assert_eq!(outcomes(&twin, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    assert_eq!(names(&twin), set([&["a"]]));
}

#[test]
fn what_is_cut_may_happen() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    let renamed = twin.snapshot();
    twin.cut_at(4);
    file.write_at(b"two", 0).unwrap_err();
    assert_eq!(outcomes(&twin, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    renamed.cut_at(4);
    renamed.rename("a", "b").unwrap_err();
    assert_eq!(names(&renamed), set([&["a"], &["b"]]));
}

#[test]
fn a_sync_after_a_failed_one_proves_nothing_until_it_is_written_again() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    twin.fail(Op::Sync, "a", 0, 1);
    file.write_at(b"two", 0).unwrap();
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(outcomes(&twin, "a"), [b"one".to_vec(), b"two".to_vec()].into());
    file.write_at(b"tw", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&twin, "a"), [b"twe".to_vec(), b"two".to_vec()].into());
    assert_eq!(twin.bytes("a"), b"two");
}

#[test]
fn faults_meet_the_operations_that_were_meant() {
    let twin = Twin::new();
    let (a, b) = (file(&twin, "a", b""), file(&twin, "b", b""));
    twin.fail(Op::Write, "b", 1, 2);
    for fails in [false, true, true, false] {
        a.write_at(b"x", 0).unwrap();
        assert_eq!(b.write_at(b"x", 0).is_err(), fails);
    }
    twin.fail(Op::Rename, "a", 0, 9);
    twin.rename("a", "c").unwrap_err();
    twin.heal();
    twin.rename("a", "c").unwrap();
}

#[test]
fn a_lying_sync_makes_nothing_safe() {
    let twin = Twin::new();
    twin.lie("table-");
    let file = file(&twin, "table-1", b"one");
    file.sync().unwrap();
    assert!(outcomes(&twin, "table-1").contains(&b""[..]));
}

#[test]
fn a_full_disk_takes_what_fits_and_more_once_there_is_space() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    twin.set_capacity(Some(5));
    let error = file.write_at(b"three", 2).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!((twin.bytes("a"), twin.free().unwrap()), (b"onthr".to_vec(), 0));
    file.write_at(b"r", 4).unwrap();
    twin.set_capacity(Some(7));
    file.write_at(b"three", 2).unwrap();
    twin.remove("a").unwrap();
    assert_eq!(twin.free().unwrap(), 7);
}

#[test]
fn a_snapshot_is_another_disk() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    let snapshot = twin.snapshot();
    file.write_at(b"two", 0).unwrap();
    twin.flip("a", 1, 0xff);
    assert_eq!(snapshot.bytes("a"), b"one");
    assert_eq!(twin.bytes("a"), [b't', !b'w', b'o']);
}

#[test]
fn what_is_cut_off_is_not_back_when_a_file_grows() {
    let twin = Twin::new();
    let file = file(&twin, "a", &[7; 5000]);
    twin.truncate("a", 10);
    file.write_at(&[1], 4999).unwrap();
    let bytes = twin.bytes("a");
    assert_eq!((bytes[9], &bytes[10..4999], bytes[4999]), (7, &[0; 4989][..], 1));
}

#[test]
fn what_a_killed_process_did_is_there_but_not_safe() {
    let twin = Twin::new();
    let file = file(&twin, "a", b"one");
    twin.cut_at(5);
    file.write_at(b"two", 0).unwrap();
    twin.rename("a", "b").unwrap_err();
    let killed = twin.after_kill();
    assert_eq!(killed.bytes("b"), b"two");
    assert_eq!(names(&killed), set([&["a"], &["b"]]));
    killed.sync_names().unwrap();
    assert_eq!(outcomes(&killed, "b"), [b"one".to_vec(), b"two".to_vec()].into());
}
