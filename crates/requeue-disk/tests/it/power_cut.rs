//! The power is cut at every operation on the disk in turn, and the store is opened again.
//!
//! Every operation that returned must be there. The operation in flight must be there completely or
//! not at all. After that, the store must work as if nothing had happened.

use crate::support::recording_disk::{Cut, RecordingDisk, Stage};
use crate::support::simulated_disk::SimulatedDisk;
use crate::support::workload::{
    Continuation, View, Workload, WorkloadShape, clock_at, content, id, kinds,
};
use crate::support::{seeds, small};
use requeue_disk::{Disk, DiskStore};
use requeue_jobs::{Body, Claim, Fence, Put, Settle, Settlement, Store, Timestamp, WorkerName};
use requeue_testkit::{Random, block_on};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// The error describes what is wrong.
type Checked = Result<(), String>;

/// Checks the store after a cut.
struct CutChecker<'a> {
    workload: &'a Workload,
    /// Continuations by the number of steps done and the step whose time it is.
    continuations: Mutex<BTreeMap<(usize, usize), Arc<Continuation>>>,
}

impl CutChecker<'_> {
    /// The states that may be found: the number of steps, the step whose time it is, and the view.
    fn expected(&self, stage: Stage) -> Vec<(usize, usize, &View)> {
        let steps = &self.workload.steps;
        match stage {
            Stage::Returned(0) => vec![(0, 0, &steps[0].before)],
            Stage::Returned(done) => vec![(done, done - 1, &steps[done - 1].after)],
            Stage::Begun(done) => {
                vec![(done, done, &steps[done].before), (done + 1, done, &steps[done].after)]
            }
        }
    }

    fn continuation(&self, done: usize, at: usize) -> Arc<Continuation> {
        if let Some(known) =
            self.continuations.lock().expect("the lock is not poisoned").get(&(done, at))
        {
            return known.clone();
        }
        let continuation = Arc::new(self.workload.continuation(done, at));
        self.continuations
            .lock()
            .expect("the lock is not poisoned")
            .insert((done, at), continuation.clone());
        continuation
    }

    fn now(&self, stage: Stage) -> Timestamp {
        self.workload.now(match stage {
            Stage::Returned(done) => done.saturating_sub(1),
            Stage::Begun(done) => done,
        })
    }

    /// Opens the store on a disk and checks its contents.
    fn check(&self, stage: Stage, disk: SimulatedDisk) -> Checked {
        let (clock, wall_clock) = clock_at(self.now(stage));
        let store = DiskStore::open_on(Arc::new(disk), small(&wall_clock))
            .map_err(|error| format!("it does not open: {error}"))?;
        let found = View::of(&store, wall_clock.now()).map_err(|error| error.to_string())?;
        store.check();
        let expected = self.expected(stage);
        let Some(&(done, at, _)) = expected.iter().find(|(_, _, view)| **view == found) else {
            let differences = expected.iter().map(|(done, _, view)| {
                format!("it is not as after {done} steps: {}", found.difference(view))
            });
            return Err(differences.collect::<Vec<_>>().join("\n"));
        };
        let goes_on = self.continuation(done, at).check(&store, &clock, &wall_clock);
        goes_on.map_err(|difference| format!("after {done} steps it does not go on: {difference}"))
    }

    /// Checks a cut, and another cut while the store is opened after it.
    fn check_cut(&self, cut: &Cut, seed: u64) -> Checked {
        let found = cut.disk.after_cut(seed);
        let mut random = Random::new(seed);
        let again = found.snapshot();
        again.cut_at(random.below(20) as u64);
        let (_, wall_clock) = clock_at(self.now(cut.stage));
        // Opening succeeds or fails because of the cut; no operation runs.
        drop(DiskStore::open_on(Arc::new(again.clone()), small(&wall_clock)));
        if again.is_cut() {
            let found = again.after_cut(random.number());
            self.check(cut.stage, found).map_err(|error| format!("cut again, {error}"))?;
        }
        self.check(cut.stage, found)
    }
}

/// Checks all cuts on two threads while the workload runs.
fn check_all_cuts(
    seed: u64,
    checker: impl Fn(&Cut, u64) -> Checked + Sync,
    work: impl FnOnce(Box<dyn Fn(Cut) + Send + Sync>),
) {
    let (sender, receiver) = sync_channel::<Cut>(64);
    let receiver = Mutex::new(receiver);
    let next =
        |receiver: &Mutex<Receiver<Cut>>| receiver.lock().expect("the lock is not poisoned").recv();
    thread::scope(|scope| {
        let checkers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut failed = None;
                while let Ok(cut) = next(&receiver) {
                    // After a failure the other cuts are received but not checked.
                    if failed.is_none()
                        && let Err(error) = checker(&cut, seed ^ cut.operation)
                    {
                        let Cut { operation, stage, during, .. } = cut;
                        failed = Some(format!("cut {operation}, {stage:?}, {during}: {error}"));
                    }
                }
                failed
            })
        });
        work(Box::new(move |cut| sender.send(cut).expect("the checkers are running")));
        for checker in checkers {
            if let Some(failed) = checker.join().expect("checkers do not panic") {
                panic!("seed {seed}: {failed}");
            }
        }
    });
}

/// Runs the workload on a recording disk, and closes the store.
fn work(workload: &Workload, each: Box<dyn Fn(Cut) + Send + Sync>) -> RecordingDisk {
    let disk = RecordingDisk::new(SimulatedDisk::new(), each);
    let (clock, wall_clock) = clock_at(workload.now(0));
    let store = DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).expect("it opens");
    for step in &workload.steps {
        clock.advance(step.now.saturating_since(wall_clock.now()));
        assert_eq!(disk.step(&step.operation, &store), step.result);
    }
    drop(store);
    disk
}

const SHAPE: WorkloadShape = WorkloadShape { steps: 250, ids: 40, content: content::<3000> };

/// The tables that were created after a manifest and before the next.
fn made_after(names: &[String], made: &BTreeMap<String, u64>, manifest: u64) -> Vec<String> {
    let is_it = |name: &&String| made.get(*name) == Some(&manifest);
    names.iter().filter(is_it).cloned().collect()
}

fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest-")?.parse().ok()
}

/// Damages a file as a disk may do that reported a sync and did not do it.
fn spoil(disk: &SimulatedDisk, name: &str, random: &mut Random) {
    let size = disk.bytes(name).len();
    match random.below(4) {
        0 => disk.remove(name).expect("it is there"),
        1 => disk.truncate(name, random.below(size) as u64),
        2 => disk.flip(name, random.below(size) as u64, 1 << random.below(8)),
        _ => {
            let sector = random.below(size) / 512 * 512;
            let file = disk.open(name).expect("it is there");
            let zeros = vec![0; 512.min(size - sector)];
            file.write_at(&zeros, sector as u64).expect("nothing is wrong with it");
        }
    }
}

#[test]
fn acknowledged_operations_survive_a_cut_at_any_disk_operation() {
    for seed in seeds("REQUEUE_CUTS", 2) {
        let workload = Workload::random(seed, SHAPE);
        let checker = CutChecker { workload: &workload, continuations: Mutex::default() };
        check_all_cuts(
            seed,
            |cut, seed| checker.check_cut(cut, seed),
            |each| {
                let disk = work(&workload, each);
                println!("{} operations", disk.operations());
                for (what, least) in [
                    ("create spare", 3),
                    ("rename spare", 10),
                    ("rename log", 3),
                    ("create table", 20),
                    ("remove table", 20),
                    ("create manifest", 20),
                    ("remove manifest", 20),
                ] {
                    println!("{what}: {}", disk.count(what));
                    assert!(disk.count(what) >= least, "too little work to test anything");
                }
            },
        );
    }
}

/// Tables that only the newest manifest lists may be missing or incomplete: the log has their
/// contents.
#[test]
fn missing_or_incomplete_tables_are_rebuilt_from_the_log() {
    for seed in seeds("REQUEUE_CUTS", 1) {
        let workload = Workload::random(seed, WorkloadShape { steps: 120, ..SHAPE });
        let checker = CutChecker { workload: &workload, continuations: Mutex::default() };
        // The manifest after which each table was created.
        let (made, spoilt) = (Arc::new(Mutex::new(BTreeMap::new())), AtomicUsize::new(0));
        let check_damaged = |cut: &Cut, seed: u64| {
            let (disk, mut random) = (cut.disk.after_cut(seed), Random::new(seed));
            let names = disk.names().expect("the power is on");
            let newest = names.iter().filter_map(|name| manifest_number(name)).max();
            let Some(newest) = newest else { return Ok(()) };
            for table in
                made_after(&names, &made.lock().expect("the lock is not poisoned"), newest - 1)
            {
                if random.chance(60) {
                    spoil(&disk, &table, &mut random);
                    spoilt.fetch_add(1, Ordering::Relaxed);
                }
            }
            checker.check(cut.stage, disk)
        };
        check_all_cuts(seed, check_damaged, |each| {
            let (last, made) = (AtomicU64::new(0), made.clone());
            let each = move |cut: Cut| {
                if let Some(name) = cut.during.strip_prefix("create ") {
                    match manifest_number(name) {
                        Some(number) => last.store(number, Ordering::Relaxed),
                        None => {
                            let last = last.load(Ordering::Relaxed);
                            made.lock()
                                .expect("the lock is not poisoned")
                                .insert(name.to_owned(), last);
                        }
                    }
                }
                each(cut);
            };
            work(&workload, Box::new(each));
        });
        println!("{spoilt:?} tables were spoilt");
        assert!(spoilt.into_inner() > 100, "too few to test anything");
    }
}

/// Works until the power is cut or the process is killed, reopens the store, and continues, many
/// times.
fn work_over_many_restarts(seed: u64, background: bool) {
    let workload = Workload::random(seed, WorkloadShape { steps: 400, ..SHAPE });
    let mut random = Random::new(seed);
    let (clock, wall_clock) = clock_at(workload.now(0));
    let mut options = small(&wall_clock);
    options.background = background;
    let (mut disk, mut done, mut lives) = (SimulatedDisk::new(), 0, 0);
    while done < workload.steps.len() {
        lives += 1;
        disk.cut_at(disk.operations() + random.below(400) as u64);
        if let Ok(store) = DiskStore::open_on(Arc::new(disk.clone()), options.clone()) {
            while let Some(step) = workload.steps.get(done) {
                clock.advance(step.now.saturating_since(wall_clock.now()));
                let result = step.operation.run(&store);
                if result != step.result {
                    assert!(disk.is_cut(), "{:?}: {result:?}, {:?}", step.operation, step.result);
                    break;
                }
                done += 1;
            }
        } else {
            assert!(disk.is_cut(), "it opens");
        }
        disk = match random.chance(70) {
            true => disk.after_cut(random.number()),
            // Only the process was killed. What it wrote is there, but not all of it is synced.
            false => disk.snapshot(),
        };
        disk.cut_at(u64::MAX);
        let store = DiskStore::open_on(Arc::new(disk.clone()), options.clone());
        let store = store.unwrap_or_else(|error| panic!("restart {lives}: {error}"));
        let found = View::of(&store, wall_clock.now()).expect("the power is on");
        store.check();
        // The step that did not return is done, or is not done and tried again.
        let before = match workload.steps.get(done) {
            Some(step) if step.now == wall_clock.now() && found == step.after => {
                done += 1;
                continue;
            }
            Some(step) if step.now == wall_clock.now() => &step.before,
            _ => &workload.steps[done - 1].after,
        };
        assert!(found == *before, "restart {lives}, step {done}: {}", found.difference(before));
    }
    println!("{lives} lives");
    assert!(lives > 5);
}

#[test]
fn work_goes_on_over_many_cuts() {
    seeds("REQUEUE_CUTS", 20).for_each(|seed| work_over_many_restarts(seed, false));
}

#[test]
fn work_goes_on_over_many_cuts_with_all_threads() {
    seeds("REQUEUE_CUTS", 20).for_each(|seed| work_over_many_restarts(seed, true));
}

/// If the clock is set back, no fence is assigned twice.
#[test]
fn fences_rise_over_cuts_whatever_the_clock_says() {
    for seed in seeds("REQUEUE_CUTS", 50) {
        let (mut random, mut disk) = (Random::new(seed), SimulatedDisk::new());
        let (mut highest, mut lives) = (Fence(0), 0);
        let kind = kinds().remove(0);
        while lives < 10 {
            lives += 1;
            let now = Timestamp::from_millis(1_700_000_000_000 - lives * 1_000_000);
            let (_, wall_clock) = clock_at(now);
            let found = disk.after_cut(random.number());
            let store = DiskStore::open_on(Arc::new(found.clone()), small(&wall_clock));
            let store = store.expect("it opens");
            disk = found;
            disk.cut_at(disk.operations() + random.below(100) as u64);
            while !disk.is_cut() {
                let id = id(format!("id-{}", random.below(20)));
                let put = Put::new(kind.clone(), id, Body::default());
                let worker = WorkerName::new("worker").expect("a valid name");
                let max = random.below(3);
                let claim = Claim { kinds: vec![kind.clone()], max, lease: None, worker, nonce: 1 };
                drop(block_on(store.put(vec![put])));
                let Ok(claimed) = block_on(store.claim(claim)) else { break };
                for job in claimed.jobs {
                    assert!(job.receipt.fence() > highest, "seed {seed}, restart {lives}");
                    highest = job.receipt.fence();
                    let settle = Settle { receipt: job.receipt, action: Settlement::Ack };
                    drop(block_on(store.settle(vec![settle])));
                }
            }
        }
        assert!(highest > Fence(0), "something was claimed");
    }
}
