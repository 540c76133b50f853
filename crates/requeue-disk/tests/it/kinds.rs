//! A kind without jobs gives its place to a new kind, also across restarts, and no number is assigned again.

use crate::support::sample_data::beginning;
use crate::support::simulated_disk::SimulatedDisk;
use requeue_disk::{DiskStore, Options, verify_on};
use requeue_jobs::limits::{MAX_BATCH, MAX_KINDS, MAX_RESTORED};
use requeue_jobs::{
    Body, Change, ChangeKind, Content, Fence, Generation, JobId, Kind, Missed, Put, Restore,
    Schedule, ScheduleCondition, Store, WallClock, transfer,
};
use requeue_testkit::block_on;
use std::sync::Arc;

fn open(disk: &SimulatedDisk, wall_clock: &WallClock) -> DiskStore {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    (options.memory, options.background) = (64 << 10, false);
    DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// The kind that takes the place of another. It is one of the service, to which every file has to permit its name.
const NEW: &str = "requeue.schedules";

fn kind(name: &str) -> Kind {
    Kind::with_reserved(name).unwrap()
}

fn put(store: &DiskStore, name: &str, body: &'static str) -> Generation {
    let put =
        Put::new(kind(name), JobId::new("a").unwrap(), Body::octets(body.as_bytes()).unwrap());
    block_on(store.put(vec![put])).unwrap().remove(0).unwrap().generation
}

fn cancel(store: &DiskStore, name: &str) {
    let (kind, id, action) = (kind(name), JobId::new("a").unwrap(), ChangeKind::Cancel);
    block_on(store.change(vec![Change { kind, id, action }])).unwrap().remove(0).unwrap();
}

/// Returns the body of the job of each of these kinds.
fn bodies(store: &DiskStore, names: &[&str]) -> Vec<Option<Vec<u8>>> {
    let get = |name: &&str| block_on(store.get(kind(name), JobId::new("a").unwrap())).unwrap();
    names.iter().map(|name| get(name).map(|job| job.body().bytes().to_vec())).collect()
}

#[test]
fn a_new_kind_takes_the_place_of_one_without_jobs() {
    let (_clock, wall_clock) = beginning();
    let disk = SimulatedDisk::new();
    let store = open(&disk, &wall_clock);
    let ids = ["a"].map(|id| JobId::new(id).unwrap());
    for thousand in 0..MAX_KINDS / MAX_BATCH {
        let kinds = thousand * MAX_BATCH..(thousand + 1) * MAX_BATCH;
        let puts = kinds.map(|n| Put::new(kind(&format!("{n}")), ids[0].clone(), Body::default()));
        assert!(block_on(store.put(puts.collect())).unwrap().iter().all(Result::is_ok));
    }
    let highest = (0..20).map(|_| put(&store, "7", "often")).max().unwrap();
    let schedule = Schedule {
        id: ids[0].clone(),
        when: "every 90s".to_owned(),
        time_zone: String::new(),
        content: Content::default(),
        missed: Missed::One,
        next: wall_clock.now(),
    };
    let set = store.set_schedule(kind("7"), schedule, ScheduleCondition::default());
    assert!(block_on(set).unwrap());
    drop(store);

    // The jobs are in tables now, and the schedule. That both are removed is not.
    let store = open(&disk, &wall_clock);
    cancel(&store, "7");
    assert!(block_on(store.remove_schedule(kind("7"), ids[0].clone())).unwrap());
    let first = put(&store, NEW, "in the log");
    assert!(first > highest, "{first:?}");
    assert_eq!(bodies(&store, &["7", NEW]), [None, Some(b"in the log".to_vec())]);

    // As after a crash: the log has it, and the manifest does not.
    let crashed = disk.after_kill();
    assert_eq!(verify_on(&crashed, |_| ()).unwrap().problems, []);
    let reopened = open(&crashed, &wall_clock);
    assert_eq!(bodies(&reopened, &["7", NEW]), [None, Some(b"in the log".to_vec())]);
    assert_eq!(block_on(reopened.schedules(kind(NEW))).unwrap(), []);
    cancel(&reopened, NEW);
    let second = put(&reopened, "7", "again");
    assert!(second > first, "{second:?}");
    drop(reopened);

    // After a proper end, and with everything in tables.
    let reopened = open(&crashed, &wall_clock);
    assert_eq!(bodies(&reopened, &["7", NEW]), [Some(b"again".to_vec()), None]);
    assert_eq!(block_on(reopened.schedules(kind("7"))).unwrap(), []);
    cancel(&reopened, "7");
    assert!(put(&reopened, "third", "") > second);
    let kinds = block_on(reopened.kinds()).unwrap();
    assert_eq!(kinds.len(), MAX_KINDS);
    assert_eq!(kinds.iter().map(|kind| kind.counts.pending).sum::<u64>(), MAX_KINDS as u64);
    drop(reopened);
    assert_eq!(verify_on(&crashed, |_| ()).unwrap().problems, []);
}

#[test]
fn an_export_with_numbers_above_the_limit_of_imports_can_be_imported() {
    let (_clock, wall_clock) = beginning();
    let store = open(&SimulatedDisk::new(), &wall_clock);
    let (generation, fence) = (Generation(MAX_RESTORED), Fence(MAX_RESTORED));
    let restore = Restore { kind: kind("mail"), generation, fence, jobs: Vec::new() };
    block_on(store.restore(restore)).unwrap();
    assert!(put(&store, "mail", "x") > generation);
    let mut export = Vec::new();
    block_on(transfer::export(&store, &mut export, |_| ())).unwrap();
    let other = open(&SimulatedDisk::new(), &wall_clock);
    let imported = block_on(transfer::import(&other, &mut &export[..], |_| ())).unwrap();
    assert_eq!(imported.jobs, 1);
    assert_eq!(bodies(&other, &["mail"]), [Some(b"x".to_vec())]);
    assert!(put(&other, "mail", "y") > generation);
}
