//! A backup contains the store at one moment, whatever happens meanwhile.

use crate::support::sample_data::{SampleWriter, StoreContents, beginning, kind, read_contents};
use crate::support::simulated_disk::{Op, SimulatedDisk};
use requeue_disk::{Disk, DiskError, DiskStore, Options, verify, verify_on};
use requeue_jobs::{
    Body, Claim, JobId, Put, Settle, Settlement, Store, StoreError, WallClock, WorkerName,
};
use requeue_testkit::block_on;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn options(wall_clock: &WallClock) -> Options {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    (options.memory, options.segment, options.background) = (48 << 10, 8 << 10, false);
    options
}

fn open(disk: &SimulatedDisk, wall_clock: &WallClock) -> Result<DiskStore, DiskError> {
    DiskStore::open_on(Arc::new(disk.clone()), options(wall_clock))
}

fn assert_sound(disk: &SimulatedDisk) {
    let verified = verify_on(disk, |_| ()).unwrap();
    assert!(verified.is_sound() && verified.harmless.is_empty(), "{verified:?}");
    assert_eq!(verified.orphans, Vec::<String>::new());
}

/// A store with jobs of every state in tables and log.
fn busy() -> (SimulatedDisk, DiskStore, requeue::ManualClock, WallClock) {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = open(&disk, &wall_clock).unwrap();
    let mut writer = SampleWriter::new(&store, &clock);
    writer.put_samples("a");
    (0..120).for_each(|number| writer.later("filler", &format!("{number:04}"), "nothing much"));
    writer.put_samples("b");
    (disk, store, clock, wall_clock)
}

#[test]
fn a_copy_is_a_store_with_the_same_jobs() {
    let (_, store, _, wall_clock) = busy();
    let (copy, mut told) = (SimulatedDisk::new(), Vec::new());
    let backup = store.backup_on(&copy, |progress| told.push((progress.bytes, progress.total)));
    let backup = backup.unwrap();
    assert_eq!(told.last(), Some(&(backup.bytes, backup.bytes)));
    assert_eq!(backup.files, copy.names().unwrap().len());
    assert_sound(&copy);
    let contents = read_contents(&store);
    assert!(contents.jobs.len() > 150);
    let opened = open(&copy, &wall_clock).unwrap();
    assert_eq!(read_contents(&opened), contents);

    let again = SimulatedDisk::new();
    let (clock, _) = beginning();
    SampleWriter::new(&opened, &clock).every_state("another", "c");
    opened.backup_on(&again, |_| ()).unwrap();
    assert_ne!(read_contents(&opened), contents, "the copy is independent");
    assert_eq!(read_contents(&open(&again, &wall_clock).unwrap()), read_contents(&opened));
    assert_eq!(read_contents(&store), contents);
    drop(opened);
    assert_sound(&copy);
}

#[test]
fn a_store_without_jobs_has_a_copy_too() {
    let (_, wall_clock) = beginning();
    let (disk, copy) = (SimulatedDisk::new(), SimulatedDisk::new());
    let store = open(&disk, &wall_clock).unwrap();
    store.backup_on(&copy, |_| ()).unwrap();
    assert_eq!(read_contents(&open(&copy, &wall_clock).unwrap()), read_contents(&store));
}

#[test]
fn what_happens_while_it_is_copied_is_not_in_the_copy() {
    let (disk, store, clock, wall_clock) = busy();
    let contents = read_contents(&store);
    let (copy, mut begun) = (SimulatedDisk::new(), false);
    let before: BTreeSet<String> = disk.names().unwrap().into_iter().collect();
    store
        .backup_on(&copy, |_| {
            if begun {
                return;
            }
            begun = true;
            // Tables are merged and removed, and segments of the log are used again.
            let writer = SampleWriter::new(&store, &clock);
            for number in 0..2000 {
                writer.later("filler", &format!("{:04}", number % 300), "something else");
            }
        })
        .unwrap();
    let after: BTreeSet<String> = disk.names().unwrap().into_iter().collect();
    assert!(before.iter().filter(|name| !after.contains(*name)).count() > 3, "{before:?}");
    assert_sound(&copy);
    assert_eq!(read_contents(&open(&copy, &wall_clock).unwrap()), contents);
    drop(store);
    assert_sound(&disk);
}

#[test]
fn a_copy_that_was_cut_is_whole_or_refused() {
    let (_, store, _, wall_clock) = busy();
    let contents = read_contents(&store);
    let whole = SimulatedDisk::new();
    store.backup_on(&whole, |_| ()).unwrap();
    let (mut refused, mut complete, mut empty) = (0, 0, 0);
    for cut in 0..whole.operations() {
        let copy = SimulatedDisk::new();
        copy.cut_at(cut);
        let ended = store.backup_on(&copy, |_| ());
        assert!(ended.is_err(), "cut at {cut}");
        for seed in 0..4 {
            let after = copy.after_cut(seed * 1000 + cut);
            if after.names().unwrap().is_empty() {
                assert!(cut < 2, "an empty directory, cut at {cut}");
                empty += 1;
                continue;
            }
            match open(&after, &wall_clock) {
                Ok(opened) => {
                    assert_eq!(read_contents(&opened), contents, "cut at {cut}");
                    complete += 1;
                }
                Err(DiskError::Corrupt(_)) => refused += 1,
                Err(error) => panic!("cut at {cut}: {error}"),
            }
        }
    }
    println!("{refused} refused, {complete} complete, {empty} empty");
    assert!(refused > 20 && complete > 0, "{refused} refused, {complete} complete");
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_can_be_tried_again() {
    let (_, store, _, wall_clock) = busy();
    let copy = SimulatedDisk::new();
    copy.set_capacity(Some(10_000));
    let error = store.backup_on(&copy, |_| ()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("but only 10000 are free"), "{source}");
    copy.set_capacity(None);
    for (op, skip) in [(Op::Write, 3), (Op::Sync, 4), (Op::SyncNames, 1), (Op::SyncNames, 2)] {
        copy.fail(op, "", skip, 1);
        store.backup_on(&copy, |_| ()).unwrap_err();
        assert_eq!(copy.names().unwrap(), Vec::<String>::new(), "{op:?} {skip}");
        copy.heal();
    }
    store.backup_on(&copy, |_| ()).unwrap();
    assert_eq!(read_contents(&open(&copy, &wall_clock).unwrap()), read_contents(&store));
}

#[test]
fn what_is_damaged_is_not_copied() {
    let (disk, store, _, _) = busy();
    let names = disk.names().unwrap();
    let table = names.iter().find(|name| name.starts_with("table-")).unwrap();
    disk.flip(table, 30, 4);
    let copy = SimulatedDisk::new();
    match store.backup_on(&copy, |_| ()).unwrap_err() {
        DiskError::Corrupt(corrupt) => assert_eq!((&corrupt.file, corrupt.offset), (table, 0)),
        error => panic!("{error}"),
    }
    assert_eq!(copy.names().unwrap(), Vec::<String>::new());
}

/// A directory that is removed when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("requeue-{name}-{}", std::process::id());
        Temporary(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_directory_with_something_in_it_is_refused_by_name() {
    let (_, store, _, _) = busy();
    let directory = Temporary::new("backup-refused");
    std::fs::create_dir_all(directory.0.join("deeper")).unwrap();
    let error = store.backup(&directory.0, |_| ()).unwrap_err().to_string();
    assert!(error.contains(&directory.0.display().to_string()), "{error}");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1, "nothing was put there");
    store.backup(directory.0.join("deeper"), |_| ()).unwrap();
    store.backup(directory.0.join("deeper"), |_| ()).unwrap_err();
    store.backup(directory.0.join("new/and/deep"), |_| ()).unwrap();
    assert!(verify(directory.0.join("new/and/deep"), |_| ()).unwrap().is_sound());
}

/// The operations that have returned so far.
#[derive(Default, Clone)]
struct Returned {
    put: BTreeSet<String>,
    acked: BTreeSet<String>,
}

/// Puts jobs, and acks every other one, until `stop` is set.
fn work(store: &DiskStore, thread: usize, returned: &Mutex<Returned>, stop: &AtomicBool) {
    let of = kind(&format!("kind-{thread}"));
    let worker = WorkerName::new("worker").unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let name = format!("{thread}-{number:06}");
        let body = Body::octets(vec![7; 200]).unwrap();
        let put = Put::new(of.clone(), JobId::new(name.as_str()).unwrap(), body);
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
        returned.lock().unwrap().put.insert(name);
        if number % 2 == 0 {
            let (kinds, worker) = (vec![of.clone()], worker.clone());
            let claim = Claim { kinds, max: 1, lease: None, worker, nonce: number };
            let job = block_on(store.claim(claim)).unwrap().jobs.remove(0);
            let name = job.id().as_str().to_owned();
            let ack = Settle { receipt: job.receipt, action: Settlement::Ack };
            block_on(store.settle(vec![ack])).unwrap().remove(0).unwrap();
            returned.lock().unwrap().acked.insert(name);
        }
    }
}

#[test]
fn under_load_every_operation_that_returned_before_is_in_the_copy() {
    let directory = Temporary::new("backup-load");
    let mut options = Options::default();
    (options.memory, options.segment) = (128 << 10, 64 << 10);
    let store = DiskStore::open_with(directory.0.join("store"), options.clone()).unwrap();
    let (returned, stop) = (Mutex::new(Returned::default()), AtomicBool::new(false));
    let copies: Vec<(PathBuf, Returned, Returned)> = thread::scope(|scope| {
        for number in 0..4 {
            let (store, returned, stop) = (&store, &returned, &stop);
            scope.spawn(move || work(store, number, returned, stop));
        }
        let copies = (1..=4).map(|round| {
            while returned.lock().unwrap().put.len() < round * 400 {
                thread::yield_now();
            }
            let copy = directory.0.join(format!("copy-{round}"));
            let before = returned.lock().unwrap().clone();
            store.backup(&copy, |_| ()).unwrap();
            (copy, before, returned.lock().unwrap().clone())
        });
        let copies = copies.collect();
        stop.store(true, Ordering::Relaxed);
        copies
    });
    drop(store);
    for (copy, before, after) in copies {
        let verified = verify(&copy, |_| ()).unwrap();
        assert!(verified.is_sound() && verified.harmless.is_empty(), "{verified:?}");
        let StoreContents { jobs, .. } =
            read_contents(&DiskStore::open_with(&copy, options.clone()).unwrap());
        let there: BTreeSet<_> = jobs.iter().map(|job| job.id.as_str().to_owned()).collect();
        assert_eq!(there.len() as u64, verified.jobs);
        // An ack may be in flight when the list is made.
        let under_way = |thread: usize| format!("{thread}-");
        for name in before.put.difference(&after.acked).filter(|name| !there.contains(*name)) {
            let first = (0..4).map(under_way).find(|first| name.starts_with(first)).unwrap();
            let later = before.put.difference(&after.acked).find(|name| name.starts_with(&first));
            assert_eq!(later, Some(name), "{name} is missing, and was not being acked");
        }
        assert!(before.acked.is_disjoint(&there), "what was acked is gone");
        assert!(before.put.len() >= 400 && there.len() >= 150, "{} jobs", there.len());
    }
}

#[test]
fn a_store_whose_disk_fails_is_copied_up_to_its_last_synced_group() {
    let (disk, store, clock, wall_clock) = busy();
    let contents = read_contents(&store);
    disk.fail(Op::Sync, "log-", 0, u64::MAX);
    disk.fail(Op::Rename, "spare-", 0, u64::MAX);
    let put = Put::new(kind("mail"), JobId::new("doubtful").unwrap(), Body::octets([]).unwrap());
    let error = block_on(store.put(vec![put])).unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    let copy = SimulatedDisk::new();
    store.backup_on(&copy, |_| ()).unwrap();
    assert_eq!(read_contents(&open(&copy, &wall_clock).unwrap()), contents);
    disk.heal();
    SampleWriter::new(&store, &clock).later("mail", "after", "it works again");
    let copy = SimulatedDisk::new();
    store.backup_on(&copy, |_| ()).unwrap();
    assert_eq!(read_contents(&open(&copy, &wall_clock).unwrap()), read_contents(&store));
    assert_eq!(read_contents(&store).jobs.len(), contents.jobs.len() + 2);
}
