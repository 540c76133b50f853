//! Bytes that are not what was written: named with file and place, and never served.
//!
//! Of a store that was closed, any bit of any file is flipped. Either it is noticed, when the
//! store is opened or when what is there is read; or it does no harm, and all is as it was.

use crate::support::simulated_disk::SimulatedDisk;
use crate::support::workload::{Sequel, Sort, View, Workload, clock_at};
use crate::support::{seeds, small};
use requeue_disk::{Corrupt, Disk, DiskError, DiskStore};
use requeue_jobs::StoreError;
use requeue_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A store that was closed, and what is in it.
struct Closed {
    disk: SimulatedDisk,
    workload: Workload,
    sequel: Sequel,
}

/// What came of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    NotOpened,
    NotRead,
    Harmless,
}

impl Closed {
    fn random(seed: u64) -> Closed {
        let workload = Workload::random(seed, Sort { steps: 200, ids: 60, body: 600 });
        let disk = SimulatedDisk::new();
        let (clock, wall_clock) = clock_at(workload.now(0));
        let mut options = small(&wall_clock);
        // Enough to leave several tables, and a log on top of them.
        (options.memory, options.segment) = (12 << 10, 32 << 10);
        let store = DiskStore::open_on(Arc::new(disk.clone()), options).expect("it opens");
        for step in &workload.steps {
            clock.advance(step.now.saturating_since(wall_clock.now()));
            let told = requeue_testkit::block_on(step.act.on(&store));
            assert_eq!(told, step.told);
        }
        drop(store);
        let done = workload.steps.len();
        Closed { disk, sequel: workload.sequel(done, done - 1), workload }
    }

    /// Opens a damaged copy, and does all that can be done with it.
    fn check(&self, damaged: &SimulatedDisk, name: &str) -> Result<Outcome, String> {
        let last = self.workload.steps.last().expect("there are steps");
        let (clock, wall_clock) = clock_at(last.now);
        let store = match DiskStore::open_on(Arc::new(damaged.clone()), small(&wall_clock)) {
            Ok(store) => store,
            Err(DiskError::Corrupt(Corrupt { file, .. })) if file == name => {
                return Ok(Outcome::NotOpened);
            }
            Err(error) => return Err(format!("it is not named: {error}")),
        };
        let named = |text: &str| text.contains(&format!("{name} is damaged at byte "));
        match View::of(&store, last.now) {
            Ok(found) if found == last.after => {}
            Ok(found) => return Err(found.difference(&last.after)),
            Err(StoreError::Unavailable { reason }) if named(&reason) => {
                return Ok(Outcome::NotRead);
            }
            Err(error) => return Err(format!("it is not named: {error}")),
        }
        match self.sequel.check(&store, &clock, &wall_clock) {
            Ok(()) => Ok(Outcome::Harmless),
            Err(difference) if named(&difference) => Ok(Outcome::NotRead),
            Err(difference) => Err(difference),
        }
    }

    /// How many bytes of a file are worth damaging: of a segment, what was written to it.
    fn used(&self, name: &str) -> usize {
        let bytes = self.disk.bytes(name);
        if name.starts_with("spare-") {
            return 4;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        (used + 100).min(bytes.len())
    }

    /// Does something to each of many copies, and counts what came of it.
    fn check_all(
        &self,
        seed: u64,
        damage: &[(String, u64)],
        act: impl Fn(&SimulatedDisk, &str, u64) + Sync,
    ) {
        let counts = [const { AtomicUsize::new(0) }; 3];
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((name, at)) = damage.get(next.fetch_add(1, Ordering::Relaxed)) {
                let copy = self.disk.snapshot();
                act(&copy, name, *at);
                match self.check(&copy, name) {
                    Ok(outcome) => counts[outcome as usize].fetch_add(1, Ordering::Relaxed),
                    Err(error) => panic!("seed {seed}, {name} at {at}: {error}"),
                };
            }
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            for thread in threads {
                thread.join().expect("damage is named or does no harm");
            }
        });
        let [not_opened, not_read, harmless] = counts.map(AtomicUsize::into_inner);
        println!("{not_opened} not opened, {not_read} not read, {harmless} harmless");
        // A table that is cut off has no end to begin with, and is not even opened.
        assert!(not_opened > 10 && not_opened + not_read > 100 && harmless > 10);
    }
}

/// Every byte of every file, or as many as the variable says, of those that are random.
fn places(closed: &Closed, random: &mut Random, most: usize) -> Vec<(String, u64)> {
    let names = closed.disk.names().expect("the power is on");
    for prefix in ["log-", "table-", "manifest-", "spare-"] {
        assert!(names.iter().any(|name| name.starts_with(prefix)), "there is no {prefix}");
    }
    let mut places = Vec::new();
    for name in &names {
        places.extend((0..closed.used(name) as u64).map(|at| (name.clone(), at)));
    }
    println!("{} files, {} bytes", names.len(), places.len());
    for at in 0..most.min(places.len()) {
        let other = at + random.below(places.len() - at);
        places.swap(at, other);
    }
    places.truncate(most);
    places
}

fn most(otherwise: usize) -> usize {
    let most = std::env::var("REQUEUE_FLIPS").ok();
    most.map_or(otherwise, |most| most.parse().expect("a number"))
}

#[test]
fn a_flipped_bit_is_named_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let places = places(&closed, &mut random, most(3000));
        closed.check_all(seed, &places, |disk, name, at| {
            disk.flip(name, at, 1 << (Random::new(seed ^ at).below(8)));
        });
    }
}

#[test]
fn a_file_that_ends_early_is_named_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let places = places(&closed, &mut random, most(1000));
        closed.check_all(seed, &places, |disk, name, at| disk.truncate(name, at));
    }
}

#[test]
fn a_sector_of_zeros_is_named_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let mut places = places(&closed, &mut random, most(1000));
        // In the last segment of the log one sector may hold both the last group and the end
        // after it. Without both, that group was never there.
        let logs = places.iter().map(|(name, _)| name).filter(|name| name.starts_with("log-"));
        let last = logs.max().expect("there is a log").clone();
        places.retain(|(name, _)| *name != last);
        closed.check_all(seed, &places, |disk, name, at| {
            let (from, size) = (at / 512 * 512, disk.bytes(name).len() as u64);
            let zeros = vec![0; 512.min(size - from) as usize];
            disk.open(name).expect("it is there").write_at(&zeros, from).expect("it is written");
        });
    }
}

#[test]
fn a_file_that_is_missing_is_named_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 5) {
        let closed = Closed::random(seed);
        let mut names = closed.disk.names().expect("the power is on");
        // Nothing tells of the last segment of the log but that itself.
        let last = names.iter().rposition(|name| name.starts_with("log-"));
        names.remove(last.expect("there is a log"));
        for name in names {
            let copy = closed.disk.snapshot();
            copy.remove(&name).expect("it is there");
            if let Err(error) = closed.check(&copy, &name) {
                panic!("seed {seed}, without {name}: {error}");
            }
        }
    }
}
