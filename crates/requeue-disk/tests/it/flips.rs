//! Bytes that were changed on disk are reported with file and offset, and never returned.
//!
//! Any bit of any file of a closed store is flipped. Either the damage is detected, when the store
//! is opened or when the damaged part is read; or it does no harm, and all contents are unchanged.

use crate::support::simulated_disk::SimulatedDisk;
use crate::support::workload::{Continuation, View, Workload, WorkloadShape, clock_at, content};
use crate::support::{seeds, small};
use requeue_disk::{Corrupt, Disk, DiskError, DiskStore};
use requeue_jobs::StoreError;
use requeue_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A closed store and its contents.
struct Closed {
    disk: SimulatedDisk,
    workload: Workload,
    continuation: Continuation,
}

/// The effect of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    NotOpened,
    NotRead,
    Harmless,
}

impl Closed {
    fn random(seed: u64) -> Closed {
        let workload =
            Workload::random(seed, WorkloadShape { steps: 200, ids: 60, content: content::<600> });
        let disk = SimulatedDisk::new();
        let (clock, wall_clock) = clock_at(workload.now(0));
        let mut options = small(&wall_clock);
        // Enough for several tables and a log that is newer.
        (options.memory, options.segment) = (12 << 10, 32 << 10);
        let store = DiskStore::open_on(Arc::new(disk.clone()), options).expect("it opens");
        for step in &workload.steps {
            clock.advance(step.now.saturating_since(wall_clock.now()));
            assert_eq!(step.operation.run(&store), step.result);
        }
        drop(store);
        let done = workload.steps.len();
        Closed { disk, continuation: workload.continuation(done, done - 1), workload }
    }

    /// Opens a damaged copy, and reads and changes everything in it.
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
        match self.continuation.check(&store, &clock, &wall_clock) {
            Ok(()) => Ok(Outcome::Harmless),
            Err(difference) if named(&difference) => Ok(Outcome::NotRead),
            Err(difference) => Err(difference),
        }
    }

    /// How many bytes of a file are in use: of a segment, those that were written.
    fn used(&self, name: &str) -> usize {
        let bytes = self.disk.bytes(name);
        if name.starts_with("spare-") {
            return 4;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        (used + 100).min(bytes.len())
    }

    /// Damages many copies in different ways, and counts the effects.
    fn check_all(
        &self,
        seed: u64,
        damage: &[(String, u64)],
        call: impl Fn(&SimulatedDisk, &str, u64) + Sync,
    ) {
        let counts = [const { AtomicUsize::new(0) }; 3];
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((name, at)) = damage.get(next.fetch_add(1, Ordering::Relaxed)) {
                let copy = self.disk.snapshot();
                call(&copy, name, *at);
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
        // A table that is cut off has no tail, and is not opened at all.
        assert!(not_opened > 10 && not_opened + not_read > 100 && harmless > 10);
    }
}

/// Every byte of every file, or a random selection of at most `most`.
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
fn a_flipped_bit_is_reported_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let places = places(&closed, &mut random, most(3000));
        closed.check_all(seed, &places, |disk, name, at| {
            disk.flip(name, at, 1 << (Random::new(seed ^ at).below(8)));
        });
    }
}

#[test]
fn a_file_that_ends_early_is_reported_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let places = places(&closed, &mut random, most(1000));
        closed.check_all(seed, &places, |disk, name, at| disk.truncate(name, at));
    }
}

#[test]
fn a_sector_of_zeros_is_reported_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 1) {
        let (closed, mut random) = (Closed::random(seed), Random::new(seed));
        let places = places(&closed, &mut random, most(1000));
        closed.check_all(seed, &places, |disk, name, at| {
            let (from, size) = (at / 512 * 512, disk.bytes(name).len() as u64);
            let zeros = vec![0; 512.min(size - from) as usize];
            disk.open(name).expect("it is there").write_at(&zeros, from).expect("it is written");
        });
    }
}

#[test]
fn a_file_that_is_missing_is_reported_or_does_no_harm() {
    for seed in seeds("REQUEUE_FLIPPED", 5) {
        let closed = Closed::random(seed);
        for name in closed.disk.names().expect("the power is on") {
            let copy = closed.disk.snapshot();
            copy.remove(&name).expect("it is there");
            if let Err(error) = closed.check(&copy, &name) {
                panic!("seed {seed}, without {name}: {error}");
            }
        }
    }
}
