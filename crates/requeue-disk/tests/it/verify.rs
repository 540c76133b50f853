//! Verification finds and names all damage, and changes nothing.

use crate::support::sample_data::{SampleWriter, StoreContents, beginning, kind, read_contents};
use crate::support::simulated_disk::SimulatedDisk;
use requeue_disk::{Corrupt, Disk, DiskError, DiskStore, Options, Verified, verify, verify_on};
use requeue_jobs::{
    Body, Claim, ClaimedJob, JobId, Put, Settle, Settlement, Store, WallClock, WorkerName,
};
use requeue_testkit::{Random, block_on};
use std::sync::Arc;

fn options(wall_clock: &WallClock) -> Options {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    (options.memory, options.segment, options.background) = (48 << 10, 8 << 10, false);
    options
}

/// A disk with jobs of every state in several tables, and newer ones in the log.
fn busy() -> (SimulatedDisk, WallClock, StoreContents) {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    let mut writer = SampleWriter::new(&store, &clock);
    writer.put_samples("a");
    for number in 0..250 {
        writer.later("filler", &format!("{number:04}"), "nothing much");
    }
    writer.put_samples("b");
    let contents = read_contents(&store);
    drop(store);
    (disk, wall_clock, contents)
}

fn check(disk: &SimulatedDisk) -> Verified {
    verify_on(disk, |_| ()).unwrap()
}

fn all(verified: &Verified) -> Vec<&Corrupt> {
    verified.problems.iter().chain(&verified.harmless).collect()
}

#[test]
fn a_store_that_was_closed_is_sound() {
    let (disk, _, contents) = busy();
    let (mut told, before) = (Vec::new(), disk.operations());
    let verified =
        verify_on(&disk, |progress| told.push((progress.bytes, progress.total))).unwrap();
    assert_eq!(all(&verified), Vec::<&Corrupt>::new());
    assert!(verified.is_sound());
    assert_eq!(verified.orphans, Vec::<String>::new());
    assert_eq!((verified.jobs, verified.kinds), (contents.jobs.len() as u64, contents.kinds.len()));
    assert!(verified.tables >= 4 && verified.groups > 50, "{verified:?}");
    assert_eq!(disk.operations(), before, "nothing is written");
    assert!(told.is_sorted() && told[0].0 == 0 && told.last().is_some_and(|(a, b)| a == b));
}

#[test]
fn an_empty_directory_is_sound() {
    let verified = check(&SimulatedDisk::new());
    assert!(verified.is_sound() && verified.jobs == 0);
}

#[test]
fn a_crashed_store_is_sound_and_its_leftovers_are_named() {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = DiskStore::open_on(Arc::new(disk.clone()), options(&wall_clock)).unwrap();
    SampleWriter::new(&store, &clock).put_samples("a");
    let crashed = disk.snapshot();
    drop(store);
    crashed.create("table-0000000999").unwrap();
    crashed.create("manifest-0000000999").unwrap();
    crashed.create("shopping list").unwrap();
    let verified = check(&crashed);
    assert!(verified.is_sound(), "{:?}", verified.problems);
    assert_eq!(verified.harmless.len(), 1, "a manifest that was begun: {:?}", verified.harmless);
    assert_eq!(
        verified.orphans,
        ["shopping list", "manifest-0000000999", "table-0000000999"],
        "but not what is in use"
    );
    drop(DiskStore::open_on(Arc::new(crashed.clone()), options(&wall_clock)).unwrap());
    let verified = check(&crashed);
    assert!(all(&verified).is_empty());
    assert_eq!(verified.orphans, ["shopping list"]);
}

/// Puts jobs, and acks some of them, until the disk fails.
fn work(disk: &SimulatedDisk, wall_clock: &WallClock) -> Result<(), Box<dyn std::error::Error>> {
    let store = DiskStore::open_on(Arc::new(disk.clone()), options(wall_clock))?;
    let (of, worker) = (kind("mail"), WorkerName::new("w").unwrap());
    for number in 0..300 {
        let id = JobId::new(format!("{}", number % 70)).unwrap();
        let body = Body::octets(vec![7; 150]).unwrap();
        block_on(store.put(vec![Put::new(of.clone(), id, body)]))?;
        if number % 3 == 0 {
            let (kinds, worker) = (vec![of.clone()], worker.clone());
            let claim = Claim { kinds, max: 2, lease: None, worker, nonce: number };
            let jobs = block_on(store.claim(claim))?.jobs;
            let ack = |job: ClaimedJob| Settle { receipt: job.receipt, action: Settlement::Ack };
            block_on(store.settle(jobs.into_iter().map(ack).collect()))?;
        }
    }
    Ok(())
}

#[test]
fn what_a_power_cut_leaves_is_sound() {
    let (_, wall_clock) = beginning();
    let whole = SimulatedDisk::new();
    work(&whole, &wall_clock).unwrap();
    let mut harmless = 0;
    for cut in (0..whole.operations()).step_by(11) {
        let disk = SimulatedDisk::new();
        disk.cut_at(cut);
        // If the power is cut while the store is closed, no call fails.
        let _ = work(&disk, &wall_clock);
        if !disk.is_cut() {
            // The number of operations depends on when the writer finds the next call.
            continue;
        }
        let after = disk.after_cut(cut);
        let verified = check(&after);
        assert!(verified.is_sound(), "cut at {cut}: {:?}", verified.problems);
        harmless += verified.harmless.len() + verified.orphans.len();
        let store = DiskStore::open_on(Arc::new(after.clone()), options(&wall_clock)).unwrap();
        let jobs = read_contents(&store).jobs.len() as u64;
        assert_eq!(jobs, verified.jobs, "cut at {cut}");
        drop(store);
        let verified = check(&after);
        assert!(all(&verified).is_empty() && verified.orphans.is_empty(), "cut at {cut}");
        assert_eq!(verified.jobs, jobs);
    }
    assert!(harmless > 0, "some cuts leave something behind");
}

/// Opens the store and reads all its contents.
fn opened(disk: &SimulatedDisk, wall_clock: &WallClock) -> Result<StoreContents, DiskError> {
    Ok(read_contents(&DiskStore::open_on(Arc::new(disk.clone()), options(wall_clock))?))
}

#[test]
fn a_flipped_bit_is_found_in_its_file_or_does_not_matter() {
    let (disk, wall_clock, contents) = busy();
    let seed = std::env::var("REQUEUE_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("REQUEUE_SEED={seed}");
    let mut random = Random::new(seed);
    let (mut found, mut unused) = (0, 0);
    for name in disk.names().unwrap() {
        let size = disk.bytes(&name).len();
        for round in 0..30 {
            let (at, bit) =
                (if round < 8 { round * 3 } else { random.below(size) }, random.below(8));
            let damaged = disk.snapshot();
            damaged.flip(&name, at as u64, 1 << bit);
            let verified = check(&damaged);
            let whole = all(&verified).is_empty();
            for corrupt in all(&verified) {
                assert_eq!(corrupt.file, name, "byte {at}: {corrupt}");
            }
            if verified.is_sound() {
                let opened = opened(&damaged, &wall_clock);
                assert_eq!(opened.unwrap(), contents, "{name}, byte {at}, {verified:?}");
            }
            let may_be_unused = name.starts_with("log-") || name.starts_with("spare-");
            assert!(!whole || may_be_unused, "{name}, byte {at}");
            found += u32::from(!whole);
            unused += u32::from(whole);
        }
    }
    assert!(found > 200 && unused > 50, "{found} found, {unused} in unused bytes");
}

#[test]
fn a_missing_file_is_named() {
    let (disk, _, _) = busy();
    let names: Vec<_> = disk.names().unwrap();
    let mut needed = 0;
    for name in names.iter().filter(|name| !name.starts_with("spare-")) {
        let damaged = disk.snapshot();
        damaged.remove(name).unwrap();
        let verified = check(&damaged);
        // A manifest that is missing looks as if it had never been written.
        let is_first = all(&verified).is_empty();
        assert!(!is_first || name.starts_with("manifest-") || name.starts_with("log-"), "{name}");
        assert!(all(&verified).iter().all(|corrupt| corrupt.file == *name), "{name}: {verified:?}");
        needed += u32::from(!verified.is_sound());
    }
    assert!(needed >= 2, "{needed} of {names:?}");
    for name in names.iter().filter(|name| name.starts_with("manifest-")) {
        disk.remove(name).unwrap();
    }
    let verified = check(&disk);
    assert_eq!(verified.problems.len(), 1);
    assert!(verified.problems[0].to_string().contains("so is every other manifest"));
}

#[test]
fn one_call_reports_all_damage() {
    let (disk, _, _) = busy();
    let tables: Vec<_> =
        disk.names().unwrap().into_iter().filter(|name| name.starts_with("table-")).collect();
    for name in &tables {
        disk.flip(name, 9, 1);
    }
    let verified = check(&disk);
    let files: Vec<_> = all(&verified).iter().map(|corrupt| corrupt.file.clone()).collect();
    for table in &tables {
        assert!(files.contains(table), "{table} is missing in {files:?}");
    }
}

#[test]
fn a_directory_in_use_is_refused_and_a_missing_one_is_not_created() {
    let directory = std::env::temp_dir().join(format!("requeue-verify-{}", std::process::id()));
    let error = verify(&directory, |_| ()).unwrap_err();
    assert!(matches!(error, DiskError::Io { .. }) && !directory.exists(), "{error}");
    let (_, wall_clock) = beginning();
    let store = DiskStore::open_with(&directory, options(&wall_clock)).unwrap();
    let error = verify(&directory, |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    drop(store);
    assert!(verify(&directory, |_| ()).unwrap().is_sound());
    std::fs::remove_dir_all(&directory).unwrap();
}
