//! Directories that are damaged in every way: whatever the files contain, nothing panics or hangs,
//! and nothing is returned that was never stored.
//!
//! `REQUEUE_DIRECTORIES` is the number of cases; `REQUEUE_SEED` is the seed of one of them.

use crate::support::forge::forge;
use crate::support::original::{Original, OriginalShape, Wrong, jobs};
use crate::support::simulated_disk::SimulatedDisk;
use crate::support::small;
use crate::support::workload::{View, clock_at};
use requeue_disk::{Disk, DiskError, DiskStore, verify_on};
use requeue_jobs::{Body, Claim, JobId, Put, Store, StoreError, WorkerName};
use requeue_testkit::{Random, block_on};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Stores of several shapes: many tables, few tables, a long log; closed and killed.
fn originals() -> Vec<Original> {
    let shape =
        |steps, memory, segment, closed| OriginalShape { steps, ids: 60, memory, segment, closed };
    let shapes = [
        shape(200, 12 << 10, 32 << 10, true),
        shape(200, 12 << 10, 32 << 10, false),
        shape(160, 4 << 10, 8 << 10, true),
        shape(130, 3 << 10, 8 << 10, false),
        shape(100, 1 << 20, 16 << 10, true),
        shape(60, 1 << 20, 16 << 10, false),
    ];
    let all = shapes.into_iter().enumerate();
    all.map(|(seed, shape)| Original::random(seed as u64 + 1, shape)).collect()
}

/// Damages a disk once. Returns how, and a description.
fn damage(disk: &SimulatedDisk, original: &Original, random: &mut Random) -> (Wrong, String) {
    let names = disk.names().expect("the power is on");
    let names: Vec<_> = names.into_iter().filter(|name| !name.starts_with("spare-")).collect();
    if names.is_empty() {
        return (Wrong::Detectable, String::new());
    }
    let (name, other) = (random.pick(&names).clone(), random.pick(&names).clone());
    let mut bytes = disk.bytes(&name);
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let at = random.below(used.max(1));
    let earlier = random.pick(&original.earlier);
    let has = |disk: &SimulatedDisk| disk.names().expect("the power is on").contains(&name);
    match random.below(9) {
        0 if used > 0 => {
            let bit = random.below(8);
            disk.flip(&name, at as u64, 1 << bit);
            (Wrong::Detectable, format!("flip bit {bit} of byte {at} of {name}"))
        }
        1 => {
            disk.truncate(&name, at as u64);
            (Wrong::Detectable, format!("truncate {name} to {at}"))
        }
        2 => {
            let contents = disk.bytes(&other);
            disk.put(&other, &bytes);
            disk.put(&name, &contents);
            (Wrong::RolledBack, format!("swap {name} and {other}"))
        }
        3 => {
            let prefix = other.split('-').next().expect("a prefix");
            let to = format!("{prefix}-{:010}", random.below(40));
            disk.put(&to, &bytes);
            (Wrong::RolledBack, format!("duplicate {name} as {to}"))
        }
        4 => {
            disk.remove(&name).expect("it is there");
            (Wrong::RolledBack, format!("delete {name}"))
        }
        5 => {
            // A write that never reached the disk: zeros, or what was there before.
            let (from, to) = (at / 512 * 512, (at / 512 * 512 + 512).min(bytes.len()));
            let old = if has(earlier) { earlier.bytes(&name) } else { Vec::new() };
            let old = |at: usize| old.get(at).copied().unwrap_or(0);
            (from..to).for_each(|at| bytes[at] = old(at));
            disk.put(&name, &bytes);
            (Wrong::RolledBack, format!("lose the write of sector {from} of {name}"))
        }
        6 if has(earlier) => {
            disk.put(&name, &earlier.bytes(&name));
            (Wrong::RolledBack, format!("roll back {name}"))
        }
        7 => {
            let end = (at + random.below(300)).min(bytes.len());
            bytes[at..end].fill_with(|| random.number() as u8);
            disk.put(&name, &bytes);
            (Wrong::Detectable, format!("overwrite {at} to {end} of {name}"))
        }
        _ if bytes == original_bytes(original, &name) && forge(disk, &name, random) => {
            (Wrong::Forged, format!("forge {name}"))
        }
        _ => (Wrong::Detectable, String::new()),
    }
}

/// The bytes of a file before it was damaged.
fn original_bytes(original: &Original, name: &str) -> Vec<u8> {
    let names = original.disk.names().expect("the power is on");
    names
        .iter()
        .find(|found| *found == name)
        .map_or_else(Vec::new, |name| original.disk.bytes(name))
}

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    NotOpened,
    NotRead,
    /// Everything is read, as it was at the end.
    Unchanged,
    /// Everything is read, as it was at an earlier time, because the end of the log is missing.
    Earlier,
    /// Everything is read. The checksums were forged, so it may be anything.
    Anything,
}

fn is_damage(text: &str) -> bool {
    text.contains("is damaged at byte ") || text.contains("has format")
}

/// Reads everything. If the checksums were forged, a job may be listed that is not found by its id.
fn read(store: &DiskStore, original: &Original, wrong: Wrong) -> Result<View, StoreError> {
    if wrong != Wrong::Forged {
        return View::of(store, original.now);
    }
    for job in jobs(store)? {
        block_on(store.get(job.kind.clone(), job.id.clone()))?;
    }
    Ok(original.last.clone())
}

/// Opens a copy as a store, and reads and changes everything.
fn open(original: &Original, disk: &SimulatedDisk, wrong: Wrong) -> Result<Outcome, String> {
    let (_, wall_clock) = clock_at(original.now);
    let opened = DiskStore::open_on(Arc::new(disk.snapshot()), small(&wall_clock));
    let store = match opened {
        Ok(store) => store,
        Err(DiskError::Corrupt(_) | DiskError::Format { .. } | DiskError::Features { .. }) => {
            return Ok(Outcome::NotOpened);
        }
        // A directory without its first file is missing something.
        Err(error) => return Err(format!("neither opened nor damaged: {error}")),
    };
    let view = match read(&store, original, wrong) {
        Ok(view) => view,
        Err(StoreError::Unavailable { reason }) if is_damage(&reason) => {
            return Ok(Outcome::NotRead);
        }
        Err(error) => return Err(format!("not read, and not damaged: {error}")),
    };
    let outcome = match () {
        () if wrong == Wrong::Forged => Outcome::Anything,
        () if view.jobs == original.last.jobs => Outcome::Unchanged,
        () if original.is_earlier(&view.jobs) => Outcome::Earlier,
        () => return Err(format!("never was like this: {}", view.difference(&original.last))),
    };
    for kind in crate::support::workload::kinds() {
        let worker = WorkerName::new("later").expect("a valid name");
        let claim = Claim { kinds: vec![kind.clone()], max: 50, lease: None, worker, nonce: 7 };
        let id = JobId::new("id-1").expect("a valid id");
        let put = Put::new(kind, id, Body::octets(*b"later").expect("a small body"));
        let done = block_on(store.claim(claim)).map(|claimed| claimed.errors);
        let put = block_on(store.put(vec![put])).map(drop);
        for error in [done.map(drop), put].into_iter().filter_map(Result::err) {
            if !is_damage(&error.to_string()) {
                return Err(format!("a call failed: {error}"));
            }
        }
    }
    drop(store);
    Ok(outcome)
}

fn check(originals: &[Original], seed: u64) -> Result<(Outcome, bool), String> {
    let mut random = Random::new(seed);
    let original = random.pick(originals);
    let disk = original.disk.snapshot();
    let (mut wrong, mut how) = (Wrong::Detectable, Vec::new());
    let times = *random.pick(&[1, 1, 1, 2, 3]);
    for _ in 0..times {
        let (next, text) = damage(&disk, original, &mut random);
        wrong = wrong.max(next);
        how.push(text);
    }
    let failed = |error: String| format!("{how:?}: {error}");
    let outcome = open(original, &disk, wrong).map_err(failed)?;
    let verified = verify_on(&disk, |_| ()).map(|verified| verified.is_sound());
    let sound = match verified {
        Ok(sound) => sound,
        Err(DiskError::Format { .. } | DiskError::Features { .. }) => false,
        Err(error) => return Err(failed(format!("not verified: {error}"))),
    };
    let read = !matches!(outcome, Outcome::NotOpened | Outcome::NotRead);
    if wrong != Wrong::Forged && sound != read {
        let what = format!("{outcome:?}, but verify reports that it is sound: {sound}");
        // Damage to a part that is not needed is reported, and does no harm.
        if sound {
            return Err(failed(what));
        }
    }
    let salvaged = match original
        .check_salvaged(&disk, if times > 1 { wrong.max(Wrong::RolledBack) } else { wrong })
    {
        Ok(salvaged) => salvaged,
        Err(error) if error.contains("has format") => return Ok((outcome, false)),
        Err(error) => return Err(failed(format!("salvage: {error}"))),
    };
    // What a store reads without an error, a salvage reads too, and nothing is lost.
    if outcome == Outcome::Unchanged && salvaged.jobs != original.last.jobs {
        return Err(failed(format!("a store reads everything: {:#?}", salvaged.losses)));
    }
    // Only the end of the log can be missing without a trace.
    let rolled_back = times > 1 || how[0].starts_with("swap") || how[0].starts_with("duplicate");
    if outcome == Outcome::Earlier && !rolled_back && !original.end_differs(&disk) {
        return Err(failed("acknowledged operations are gone".to_owned()));
    }
    if std::env::var("REQUEUE_SHOW").is_ok() && outcome >= Outcome::Unchanged {
        println!("{outcome:?} {how:?} {:?}", salvaged.losses);
    }
    drop(jobs(&salvaged.salvage).map_err(|error| failed(error.to_string()))?);
    Ok((outcome, salvaged.losses.is_empty()))
}

#[test]
fn damaged_directories_never_panic_and_return_nothing_that_was_never_stored() {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let asked = number("REQUEUE_DIRECTORIES");
    let first = asked.map_or(1, |_| RandomState::new().hash_one(()) >> 16);
    let (first, count) = match number("REQUEUE_SEED") {
        Some(seed) => (seed, 1),
        None => (first, asked.unwrap_or(400)),
    };
    println!("{count} cases from REQUEUE_SEED={first} on");
    let originals = originals();
    let next = AtomicU64::new(0);
    let counts: Mutex<BTreeMap<(Outcome, bool), u64>> = Mutex::default();
    let failures: Mutex<Vec<String>> = Mutex::default();
    let work = || {
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= count || failures.lock().expect("no panic").len() > 20 {
                break;
            }
            let seed = first + case;
            let checked = catch_unwind(AssertUnwindSafe(|| check(&originals, seed)));
            match checked {
                Ok(Ok(outcome)) => {
                    *counts.lock().expect("no panic").entry(outcome).or_default() += 1;
                }
                Ok(Err(error)) => {
                    failures.lock().expect("no panic").push(format!("seed {seed}: {error}"));
                }
                Err(_) => failures.lock().expect("no panic").push(format!("seed {seed}: panic")),
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    for ((outcome, whole), count) in counts.into_inner().expect("no panic") {
        println!(
            "{count:8} {outcome:?}, salvaged {}",
            if whole { "completely" } else { "in part" }
        );
    }
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
