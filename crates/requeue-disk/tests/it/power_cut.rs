//! The power is cut at every operation on the disk in turn, and the disk is opened again.
//!
//! All that was answered is there. What was under way is there whole, or not at all. And work
//! goes on as if nothing had been.

use crate::support::recording_disk::{Cut, RecordingDisk, Stage};
use crate::support::simulated_disk::SimulatedDisk;
use crate::support::workload::{Sequel, Sort, View, Workload, clock_at, id, kinds};
use crate::support::{seeds, small};
use requeue_disk::{Disk, DiskStore};
use requeue_jobs::{Body, Claim, Fence, Put, Settle, Settlement, Store, Timestamp, WorkerName};
use requeue_testkit::{Random, block_on};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// What is wrong.
type Checked = Result<(), String>;

/// Knows how things must stand after a cut.
struct Judge<'a> {
    workload: &'a Workload,
    /// How work goes on after so many steps, at the time of such a step.
    sequels: Mutex<BTreeMap<(usize, usize), Arc<Sequel>>>,
}

impl Judge<'_> {
    /// What may be found, after how many steps, and at the time of which.
    fn expected(&self, stage: Stage) -> Vec<(usize, usize, &View)> {
        let steps = &self.workload.steps;
        match stage {
            Stage::Answered(0) => vec![(0, 0, &steps[0].before)],
            Stage::Answered(done) => vec![(done, done - 1, &steps[done - 1].after)],
            Stage::Begun(done) => {
                vec![(done, done, &steps[done].before), (done + 1, done, &steps[done].after)]
            }
        }
    }

    fn sequel(&self, done: usize, at: usize) -> Arc<Sequel> {
        if let Some(known) = self.sequels.lock().expect("nobody panics with it").get(&(done, at)) {
            return known.clone();
        }
        let sequel = Arc::new(self.workload.sequel(done, at));
        self.sequels.lock().expect("nobody panics with it").insert((done, at), sequel.clone());
        sequel
    }

    fn now(&self, stage: Stage) -> Timestamp {
        self.workload.now(match stage {
            Stage::Answered(done) => done.saturating_sub(1),
            Stage::Begun(done) => done,
        })
    }

    /// Opens a disk, and checks that it has what it must.
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
        let goes_on = self.sequel(done, at).check(&store, &clock, &wall_clock);
        goes_on.map_err(|difference| format!("after {done} steps it does not go on: {difference}"))
    }

    /// What may be found after a cut, and after another while that was opened.
    fn judge(&self, cut: &Cut, seed: u64) -> Checked {
        let found = cut.disk.after_cut(seed);
        let mut random = Random::new(seed);
        let again = found.snapshot();
        again.cut_at(random.below(20) as u64);
        let (_, wall_clock) = clock_at(self.now(cut.stage));
        // It may open, or meet the cut: nobody is answered anything.
        drop(DiskStore::open_on(Arc::new(again.clone()), small(&wall_clock)));
        if again.is_cut() {
            let found = again.after_cut(random.number());
            self.check(cut.stage, found).map_err(|error| format!("cut again, {error}"))?;
        }
        self.check(cut.stage, found)
    }
}

/// Judges cuts as they come, on two threads.
fn judge_all(
    seed: u64,
    judge: impl Fn(&Cut, u64) -> Checked + Sync,
    work: impl FnOnce(Box<dyn Fn(Cut) + Send + Sync>),
) {
    let (sender, receiver) = sync_channel::<Cut>(64);
    let receiver = Mutex::new(receiver);
    let next =
        |receiver: &Mutex<Receiver<Cut>>| receiver.lock().expect("nobody panics with it").recv();
    thread::scope(|scope| {
        let judges = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut failed = None;
                while let Ok(cut) = next(&receiver) {
                    // After a failure the others are only let through.
                    if failed.is_none()
                        && let Err(error) = judge(&cut, seed ^ cut.operation)
                    {
                        let Cut { operation, stage, during, .. } = cut;
                        failed = Some(format!("cut {operation}, {stage:?}, {during}: {error}"));
                    }
                }
                failed
            })
        });
        work(Box::new(move |cut| sender.send(cut).expect("somebody judges")));
        for judge in judges {
            if let Some(failed) = judge.join().expect("judges do not panic") {
                panic!("seed {seed}: {failed}");
            }
        }
    });
}

/// Does all the work on a watched disk, and closes the store.
fn work(workload: &Workload, each: Box<dyn Fn(Cut) + Send + Sync>) -> RecordingDisk {
    let disk = RecordingDisk::new(SimulatedDisk::new(), each);
    let (clock, wall_clock) = clock_at(workload.now(0));
    let store = DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).expect("it opens");
    for step in &workload.steps {
        clock.advance(step.now.saturating_since(wall_clock.now()));
        assert_eq!(disk.step(&step.act, &store), step.told);
    }
    drop(store);
    disk
}

const SORT: Sort = Sort { steps: 250, ids: 40, body: 3000 };

/// Which tables were made after a manifest, and before the next.
fn made_after(names: &[String], made: &BTreeMap<String, u64>, manifest: u64) -> Vec<String> {
    let is_it = |name: &&String| made.get(*name) == Some(&manifest);
    names.iter().filter(is_it).cloned().collect()
}

fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest-")?.parse().ok()
}

/// Does to a file what a disk may do that lied when it was synced.
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
fn what_was_answered_survives_a_cut_at_any_operation() {
    for seed in seeds("REQUEUE_CUTS", 2) {
        let workload = Workload::random(seed, SORT);
        let judge = Judge { workload: &workload, sequels: Mutex::default() };
        judge_all(
            seed,
            |cut, seed| judge.judge(cut, seed),
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

/// Tables that no manifest but the newest has may be missing or torn: what they hold is in the
/// log.
#[test]
fn tables_that_are_missing_or_torn_are_made_again_from_the_log() {
    for seed in seeds("REQUEUE_CUTS", 1) {
        let workload = Workload::random(seed, Sort { steps: 120, ..SORT });
        let judge = Judge { workload: &workload, sequels: Mutex::default() };
        // The manifest after which each table was made.
        let (made, spoilt) = (Arc::new(Mutex::new(BTreeMap::new())), AtomicUsize::new(0));
        let judge_torn = |cut: &Cut, seed: u64| {
            let (disk, mut random) = (cut.disk.after_cut(seed), Random::new(seed));
            let names = disk.names().expect("the power is on");
            let newest = names.iter().filter_map(|name| manifest_number(name)).max();
            let Some(newest) = newest else { return Ok(()) };
            for table in
                made_after(&names, &made.lock().expect("nobody panics with it"), newest - 1)
            {
                if random.chance(60) {
                    spoil(&disk, &table, &mut random);
                    spoilt.fetch_add(1, Ordering::Relaxed);
                }
            }
            judge.check(cut.stage, disk)
        };
        judge_all(seed, judge_torn, |each| {
            let (last, made) = (AtomicU64::new(0), made.clone());
            let each = move |cut: Cut| {
                if let Some(name) = cut.during.strip_prefix("create ") {
                    match manifest_number(name) {
                        Some(number) => last.store(number, Ordering::Relaxed),
                        None => {
                            let last = last.load(Ordering::Relaxed);
                            made.lock()
                                .expect("nobody panics with it")
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

/// Works until the power is cut or the process dies, opens again, and goes on from there, over
/// and over.
fn live_many_lives(seed: u64, background: bool) {
    let workload = Workload::random(seed, Sort { steps: 400, ..SORT });
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
                let told = block_on(step.act.on(&store));
                if told != step.told {
                    assert!(disk.is_cut(), "{:?}: {told:?}, {:?}", step.act, step.told);
                    break;
                }
                done += 1;
            }
        } else {
            assert!(disk.is_cut(), "it opens");
        }
        disk = match random.chance(70) {
            true => disk.after_cut(random.number()),
            // Only the process died. What it wrote is there, and not all of it is safe.
            false => disk.snapshot(),
        };
        disk.cut_at(u64::MAX);
        let store = DiskStore::open_on(Arc::new(disk.clone()), options.clone());
        let store = store.unwrap_or_else(|error| panic!("life {lives}: {error}"));
        let found = View::of(&store, wall_clock.now()).expect("the power is on");
        store.check();
        // The step that was not answered is done, or is not and is tried again.
        let before = match workload.steps.get(done) {
            Some(step) if step.now == wall_clock.now() && found == step.after => {
                done += 1;
                continue;
            }
            Some(step) if step.now == wall_clock.now() => &step.before,
            _ => &workload.steps[done - 1].after,
        };
        assert!(found == *before, "life {lives}, step {done}: {}", found.difference(before));
    }
    println!("{lives} lives");
    assert!(lives > 5);
}

#[test]
fn work_goes_on_over_many_cuts() {
    seeds("REQUEUE_CUTS", 20).for_each(|seed| live_many_lives(seed, false));
}

#[test]
fn work_goes_on_over_many_cuts_with_all_threads() {
    seeds("REQUEUE_CUTS", 20).for_each(|seed| live_many_lives(seed, true));
}

/// A clock that was set back must not give out again what was given out.
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
                    assert!(job.receipt.fence() > highest, "seed {seed}, life {lives}");
                    highest = job.receipt.fence();
                    let settle = Settle { receipt: job.receipt, action: Settlement::Ack };
                    drop(block_on(store.settle(vec![settle])));
                }
            }
        }
        assert!(highest > Fence(0), "something was claimed");
    }
}
