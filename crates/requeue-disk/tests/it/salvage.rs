//! What is left of a damaged directory can be read, and what is lost is named.

use crate::support::original::{Original, OriginalShape, Salvaged, Wrong, jobs};
use crate::support::sample_data::{SampleWriter, beginning, read_contents};
use crate::support::simulated_disk::SimulatedDisk;
use crate::support::{seeds, small};
use requeue_disk::{Disk, DiskError, DiskStore, Loss, Options, Salvage};
use requeue_jobs::{
    Body, Claim, Due, JobId, Kind, MemoryStore, Put, Settle, Settlement, Store, StoreError,
    WorkerName, transfer,
};
use requeue_testkit::{Random, block_on};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SHAPE: OriginalShape =
    OriginalShape { steps: 200, ids: 60, memory: 12 << 10, segment: 32 << 10, closed: true };

fn files(disk: &SimulatedDisk, prefix: &str) -> Vec<String> {
    let names = disk.names().unwrap().into_iter();
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// The bytes of a file that are in use.
fn used(disk: &SimulatedDisk, name: &str) -> usize {
    disk.bytes(name).iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[test]
fn a_sound_directory_is_read_completely() {
    for closed in [true, false] {
        let original = Original::random(1, OriginalShape { closed, ..SHAPE });
        let found = original.check_salvaged(&original.disk, Wrong::Detectable).unwrap();
        assert_eq!(found.losses, []);
        assert_eq!(found.jobs, original.last.jobs);
        assert_eq!(found.schedules, original.last.schedules);
        assert_eq!(found.salvage.harmless(), []);
        let kinds = block_on(found.salvage.kinds()).unwrap();
        for (kind, expected) in kinds.iter().zip(&original.last.kinds) {
            let (counts, raised) = (expected.counts, found.salvage.raised());
            assert_eq!(kind.counts.pending, counts.pending);
            assert_eq!((kind.counts.leased, kind.counts.dead), (counts.leased, counts.dead));
            assert_eq!(kind.generation.0, expected.generation.0 + raised);
            assert_eq!(kind.fence.0, expected.fence.0 + raised);
        }
    }
}

#[test]
fn every_state_settings_and_schedules_are_exported_and_imported() {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).unwrap();
    SampleWriter::new(&store, &clock).put_samples("a");
    SampleWriter::new(&store, &clock).put_samples("b");
    let expected = read_contents(&store);
    drop(store);
    let salvage = Salvage::open_on(&disk, wall_clock.clone(), |loss| panic!("{loss}")).unwrap();
    let found = read_contents(&salvage);
    assert_eq!(found.jobs, expected.jobs);
    for (found, expected) in found.kinds.iter().zip(&expected.kinds) {
        assert_eq!((&found.1, &found.2), (&expected.1, &expected.2));
    }
    let mut export = Vec::new();
    block_on(transfer::export(&salvage, &mut export, |_| ())).unwrap();
    let new = MemoryStore::with(wall_clock);
    let imported = block_on(transfer::import(&new, &mut &export[..], |_| ())).unwrap();
    assert_eq!(imported.jobs, expected.jobs.len() as u64);
    let generations = block_on(new.kinds()).unwrap();
    for (kind, (before, ..)) in generations.iter().zip(&expected.kinds) {
        assert!(kind.generation.0 >= before.generation.0 + salvage.raised());
    }
}

#[test]
fn nothing_can_be_changed() {
    let original = Original::random(2, OriginalShape { steps: 20, ..SHAPE });
    let salvage = Salvaged::read(&original.disk, original.now).unwrap().salvage;
    let kind = Kind::new("mail").unwrap();
    let put = Put::new(kind.clone(), JobId::new("a").unwrap(), Body::default());
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: vec![kind], max: 1, lease: None, worker, nonce: 1 };
    let refused = |error| assert!(matches!(error, StoreError::Unavailable { .. }));
    refused(block_on(salvage.put(vec![put])).unwrap_err());
    refused(block_on(salvage.claim(claim)).unwrap_err());
    refused(block_on(salvage.reap(1)).unwrap_err());
}

/// Flips single bits of every part of every file.
#[test]
fn after_a_flipped_bit_everything_else_is_read() {
    let most = std::env::var("REQUEUE_FLIPS").map_or(750, |most| most.parse().unwrap());
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for seed in seeds("REQUEUE_SALVAGED", 2) {
        let original = Original::random(seed, SHAPE);
        let mut random = Random::new(seed);
        let mut places = Vec::new();
        for name in original.disk.names().unwrap() {
            places.extend((0..used(&original.disk, &name)).map(|at| (name.clone(), at as u64)));
        }
        for _ in 0..most.min(places.len()) {
            let (name, at) = places.swap_remove(random.below(places.len()));
            let damaged = original.disk.snapshot();
            damaged.flip(&name, at, 1 << random.below(8));
            let found = original.check_salvaged(&damaged, Wrong::Detectable);
            let found = found.unwrap_or_else(|error| panic!("{name} at {at}: {error}"));
            let part = name.split('-').next().unwrap();
            let part = ["log", "manifest", "spare", "table"].into_iter().find(|p| *p == part);
            counts.entry(part.unwrap()).or_default()[usize::from(!found.losses.is_empty())] += 1;
        }
    }
    println!("files: [nothing lost, something lost]: {counts:?}");
    assert_eq!(counts["manifest"][1], 0, "the manifest before and the log have the same data");
    // Of all seeds: after some, everything is in tables, and the log is not needed.
    assert!(counts["table"][1] > 0 && counts["log"][1] > 0, "{counts:?}");
}

/// A store with 300 jobs in tables, which the log has not changed.
fn in_tables() -> (SimulatedDisk, Vec<requeue_jobs::JobView>, requeue_jobs::WallClock) {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let mut options = small(&wall_clock);
    options.memory = 16 << 10;
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let kind = Kind::new("mail").unwrap();
    for number in 0..300 {
        let id = JobId::new(format!("id-{number:03}")).unwrap();
        let mut put = Put::new(kind.clone(), id, Body::octets([number as u8; 100]).unwrap());
        put.due = Due::After(Duration::from_secs(number));
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
    }
    clock.advance(Duration::from_millis(1));
    let expected = jobs(&store).unwrap();
    drop(store);
    (disk, expected, wall_clock)
}

/// The parts of a table, by the format: blocks, index, filter, footer.
fn parts(bytes: &[u8]) -> (usize, usize, usize, usize) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let tail = bytes.len() - 20;
    let length = u32::from_le_bytes(bytes[tail + 4..tail + 8].try_into().unwrap());
    let footer = tail - length as usize;
    let (index, filter) = (number(footer + 24), number(footer + 32));
    (footer - filter - index, footer - filter, footer, tail)
}

/// Damages the part of every table that `at` chooses, one table after the other, and returns what
/// was found of each.
fn damage_tables(at: impl Fn((usize, usize, usize, usize)) -> Option<usize>) -> Vec<Salvaged> {
    let (disk, _, wall_clock) = in_tables();
    let mut all = Vec::new();
    for name in files(&disk, "table-") {
        let Some(at) = at(parts(&disk.bytes(&name))) else { continue };
        let damaged = disk.snapshot();
        damaged.flip(&name, at as u64, 4);
        all.push(Salvaged::read(&damaged, wall_clock.now()).unwrap());
    }
    assert!(all.len() > 2);
    all
}

#[test]
fn a_damaged_index_filter_footer_or_tail_loses_nothing() {
    let (_, expected, _) = in_tables();
    let index = damage_tables(|(index, ..)| Some(index + 1));
    let filter = damage_tables(|(_, filter, footer, _)| (footer > filter).then_some(filter + 1));
    let footer = damage_tables(|(_, _, footer, _)| Some(footer + 1));
    let tail = damage_tables(|(_, _, _, tail)| Some(tail + 1));
    for found in index.into_iter().chain(filter).chain(footer).chain(tail) {
        assert_eq!(found.losses, []);
        assert_eq!(found.jobs, expected);
        assert!(found.salvage.harmless().len() <= 1);
    }
}

#[test]
fn a_damaged_block_loses_its_jobs_and_names_them() {
    let (_, expected, _) = in_tables();
    let (mut named, mut ids) = (0, 0);
    for found in damage_tables(|_| Some(7)) {
        let bytes = found.losses.iter().filter(|loss| matches!(loss, Loss::Bytes { .. })).count();
        // The newest tables are also in the log.
        assert!(bytes <= 1, "{:?}", found.losses);
        let lost: Vec<_> = found
            .losses
            .iter()
            .filter_map(|loss| match loss {
                Loss::Job { id, .. } => Some(id.clone()),
                _ => None,
            })
            .collect();
        let left = expected.iter().filter(|job| !lost.contains(&job.id)).cloned();
        assert_eq!(found.jobs, left.collect::<Vec<_>>());
        named += usize::from(!lost.is_empty());
        ids += usize::from(bytes == 1 && lost.is_empty());
        if let (1, Some(Loss::Bytes { from, to, contents, .. })) = (bytes, found.losses.first()) {
            assert!(*from == 0 && *to > 0 && contents.contains("of kind"), "{contents}");
        }
    }
    assert!(named > 0, "a block of jobs was damaged");
    assert!(ids > 0, "a block of ids was damaged: its jobs are found in the other tree");
}

#[test]
fn a_missing_table_loses_its_jobs_and_names_them() {
    let (disk, expected, wall_clock) = in_tables();
    for name in files(&disk, "table-") {
        let damaged = disk.snapshot();
        damaged.remove(&name).unwrap();
        let found = Salvaged::read(&damaged, wall_clock.now()).unwrap();
        let lost = found.losses.iter().filter(|loss| matches!(loss, Loss::Job { .. })).count();
        assert_eq!(found.jobs.len() + lost, expected.len());
        assert!(found.losses.is_empty() || found.losses[0].to_string().contains(&name));
    }
}

#[test]
fn without_any_manifest_the_log_is_read() {
    let original = Original::random(3, OriginalShape { steps: 60, memory: 1 << 20, ..SHAPE });
    let damaged = original.disk.snapshot();
    for name in files(&damaged, "manifest-") {
        damaged.flip(&name, 30, 1);
    }
    let found = original.check_salvaged(&damaged, Wrong::Detectable).unwrap();
    assert_eq!(found.jobs, original.last.jobs);
    assert!(found.losses.iter().any(|loss| loss.to_string().starts_with("manifest-")));
}

#[test]
fn a_damaged_header_of_a_segment_loses_nothing() {
    let original = Original::random(4, SHAPE);
    for name in files(&original.disk, "log-") {
        let damaged = original.disk.snapshot();
        damaged.flip(&name, 41, 1);
        let found = original.check_salvaged(&damaged, Wrong::Detectable).unwrap();
        assert_eq!(found.losses, [], "{name}");
        assert_eq!(found.jobs, original.last.jobs);
    }
}

#[test]
fn a_body_that_was_lost_in_the_log_is_named_and_an_earlier_version_returned() {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let mut options = small(&wall_clock);
    (options.memory, options.segment) = (1 << 20, 64 << 10);
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let kind = Kind::new("mail").unwrap();
    let put = |id: &str, body: &[u8]| {
        let put = Put::new(kind.clone(), JobId::new(id).unwrap(), Body::octets(body).unwrap());
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
    };
    put("a", b"first"); // group 1
    put("a", b"second"); // group 2: lost
    put("b", b"only"); // group 3: lost
    clock.advance(Duration::from_millis(1));
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: vec![kind.clone()], max: 9, lease: None, worker, nonce: 1 };
    let claimed = block_on(store.claim(claim)).unwrap(); // group 4 repeats both bodies
    assert_eq!(claimed.jobs.len(), 2);
    put("c", b"later"); // group 5
    drop(store);

    let name = files(&disk, "log-").remove(0);
    let bytes = disk.bytes(&name);
    let find = |text: &[u8]| bytes.windows(text.len()).position(|found| found == text).unwrap();
    disk.flip(&name, find(b"second") as u64, 1);
    disk.flip(&name, find(b"only") as u64, 1);
    assert!(matches!(
        DiskStore::open_on(Arc::new(disk.snapshot()), small(&wall_clock)),
        Err(DiskError::Corrupt(_))
    ));
    let found = Salvaged::read(&disk, wall_clock.now()).unwrap();
    let bodies: Vec<_> =
        found.jobs.iter().map(|job| (job.id.as_str(), job.body().bytes())).collect();
    assert_eq!(bodies, [("a", &b"first"[..]), ("c", b"later")]);
    let losses: Vec<_> = found.losses.iter().map(ToString::to_string).collect();
    assert_eq!(losses.len(), 4, "{losses:#?}");
    assert!(losses[0].starts_with(&format!("{name}, bytes ")), "{losses:#?}");
    assert_eq!(losses[1], "groups 2 to 3 of the log: the changes of their operations");
    assert_eq!(
        losses[2],
        "generation 2 of job \"a\" of kind mail: generation 1 is written instead"
    );
    assert_eq!(losses[3], "job \"b\" of kind mail: its body is in a part of the log that is lost");
    let kinds = block_on(found.salvage.kinds()).unwrap();
    assert!(kinds[0].generation.0 > 4 + (1 << 20));
}

#[test]
fn failed_attempts_that_were_lost_in_a_table_are_named() {
    let (clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let mut options = small(&wall_clock);
    (options.memory, options.segment) = (6 << 10, 64 << 10);
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let put = |kind: &str, id: &str, body: &[u8]| {
        let (kind, body) = (Kind::new(kind).unwrap(), Body::octets(body).unwrap());
        let put = Put::new(kind, JobId::new(id).unwrap(), body);
        block_on(store.put(vec![put])).unwrap().remove(0).unwrap();
    };
    put("mail", "a", b"first");
    let (kinds, worker) = (vec![Kind::new("mail").unwrap()], WorkerName::new("w").unwrap());
    let claim = Claim { kinds, max: 1, lease: None, worker, nonce: 1 };
    let receipt = block_on(store.claim(claim)).unwrap().jobs.remove(0).receipt;
    let action = Settlement::Retry { delay: None, error: "no route".into() };
    block_on(store.settle(vec![Settle { receipt, action }])).unwrap().remove(0).unwrap();
    clock.advance(Duration::from_millis(1));
    // Several flushes: no older manifest makes up for the table.
    (0..8).for_each(|number| put("other", &number.to_string(), &[0; 3000]));
    assert!(!files(&disk, "table-").is_empty(), "the job is in a table");
    // Two changes that have a body, and refer to the failed attempts in the table.
    put("mail", "a", b"second");
    put("mail", "a", b"third");
    drop(store);

    let mut times_named = 0;
    for name in files(&disk, "table-") {
        let damaged = disk.snapshot();
        damaged.flip(&name, 8, 1);
        let found = Salvaged::read(&damaged, wall_clock.now()).unwrap();
        let job = found.jobs.iter().find(|job| job.id.as_str() == "a").unwrap();
        assert_eq!((job.attempts, job.body().bytes()), (1, &b"third"[..]));
        let losses: Vec<_> = found.losses.iter().map(ToString::to_string).collect();
        let named = losses.iter().filter(|loss| {
            **loss
                == "failed attempts of job \"a\" of kind mail: it is written without some of them"
        });
        let named = named.count();
        assert_eq!(named, usize::from(job.failures.is_empty()), "{losses:#?}");
        times_named += named;
    }
    assert_eq!(times_named, 1, "one table has the job");
}

#[test]
fn a_directory_in_use_is_refused_and_not_changed() {
    let path = std::env::temp_dir().join(format!("requeue-salvage-lock-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let store = DiskStore::open_with(&path, Options::default()).unwrap();
    let error = Salvage::open(&path, |_| ()).unwrap_err();
    assert!(matches!(error, DiskError::InUse { .. }), "{error}");
    drop(store);
    std::fs::write(path.join("lock"), "as it was").unwrap();
    let salvage = Salvage::open(&path, |_| ()).unwrap();
    let again = Salvage::open(&path, |_| ());
    assert!(again.is_ok(), "two can read");
    assert!(matches!(DiskStore::open(&path), Err(DiskError::InUse { .. })));
    assert_eq!(std::fs::read_to_string(path.join("lock")).unwrap(), "as it was");
    drop((salvage, again));
    let missing = Salvage::open(path.join("none"), |_| ());
    assert!(missing.is_err() && !path.join("none").exists());
    std::fs::remove_dir_all(&path).unwrap();
}
