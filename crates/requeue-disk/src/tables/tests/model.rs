//! Random flushes, merges and reopenings, compared with a map of all jobs.

use super::super::MergeOptions;
use super::{names, open, position, small, with_seeds};
use crate::error::DiskError;
use crate::simulated_disk::SimulatedDisk;
use crate::tables::{Batch, ListPosition, Tables, Tree};
use requeue_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub(super) type Jobs = BTreeMap<(u32, String), (ListPosition, Vec<u8>)>;

const KINDS: u32 = 3;
const LISTS: u8 = 3;

#[test]
fn tables_hold_what_a_map_would() {
    with_seeds(40, |random| {
        let disk = SimulatedDisk::new();
        let mut tables = open(&disk, small());
        let (mut jobs, mut seq) = (Jobs::new(), 0);
        for _ in 0..40 {
            flush(&tables, &mut jobs, &mut seq, random).unwrap();
            while random.chance(70) {
                let patience = random.below(4);
                let looks = std::cell::Cell::new(0);
                let stop = || looks.replace(looks.get() + 1) == patience;
                if !tables.compact(stop, &mut MergeOptions::default()).unwrap() {
                    break;
                }
                check_some(&tables, &jobs, random);
            }
            if random.chance(20) {
                drop(tables);
                tables = open(&disk, small());
            }
            check_some(&tables, &jobs, random);
        }
        check_all(&tables, &jobs);
        while tables.compact(|| false, &mut MergeOptions::default()).unwrap() {}
        check_all(&tables, &jobs);
        check_dead(&tables);
        check_files(&tables, &disk);
        drop(tables);
        check_all(&open(&disk, small()), &jobs);
    });
}

/// Changes some jobs and flushes the changes.
pub(super) fn flush(
    tables: &Tables,
    jobs: &mut Jobs,
    seq: &mut u64,
    random: &mut Random,
) -> Result<(), DiskError> {
    let before = jobs.clone();
    let mut range_tombstones = BTreeMap::new();
    if random.chance(60) {
        let (kind, list) = (random.below(KINDS as usize) as u32, random.below(LISTS.into()) as u8);
        let below = (random.below(1000) as u64, random.below(*seq as usize) as u64);
        range_tombstones.insert((kind, list), below);
    }
    let covered = |kind, old: &ListPosition| {
        range_tombstones.get(&(kind, old.list)).is_some_and(|below| (old.at, old.seq) < *below)
    };
    // Entries below a range tombstone are deleted, or written again at the same position.
    let consumed: Vec<_> = jobs
        .iter()
        .filter(|((kind, _), (old, _))| covered(*kind, old))
        .map(|(key, _)| key.clone())
        .collect();
    let mut changed = BTreeSet::new();
    for key in consumed {
        if random.chance(10) {
            changed.insert(key.clone());
        } else {
            jobs.remove(&key);
        }
    }
    for _ in 0..random.below(60) {
        let key = (random.below(KINDS as usize) as u32, format!("id-{}", random.below(300)));
        *seq += 1;
        let at = random.below(1000) as u64;
        match random.below(10) {
            0..3 => drop(jobs.remove(&key)),
            3 if jobs.contains_key(&key) => drop(changed.insert(key)),
            _ => {
                let list = random.below(LISTS.into()) as u8;
                jobs.insert(key.clone(), (position(list, at, *seq), Vec::new()));
                changed.insert(key);
            }
        }
    }
    changed.retain(|key| jobs.contains_key(key));
    for key in &changed {
        let bytes = (0..random.below(80)).map(|_| random.number() as u8).collect();
        jobs.get_mut(key).unwrap().1 = bytes;
    }

    let mut due = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (key, (old, _)) in &before {
        let gone = jobs.get(key).is_none_or(|(new, _)| new != old);
        if gone && !covered(key.0, old) {
            due.insert((key.0, *old), None);
        }
        if !jobs.contains_key(key) && (!covered(key.0, old) || random.chance(30)) {
            ids.insert(key.clone(), None);
        }
    }
    for key in changed {
        let (position, value) = &jobs[&key];
        due.insert((key.0, *position), Some(value.clone()));
        ids.insert(key, Some(*position));
    }
    let mut flush = tables.flush();
    for ((kind, position), value) in due {
        flush.due(kind, position, value.as_deref())?;
    }
    for ((kind, id), position) in ids {
        flush.id(kind, &id, position)?;
    }
    let range_tombstones =
        range_tombstones.into_iter().map(|((kind, list), below)| (kind, list, below)).collect();
    let number = flush.number();
    let blob = number.to_le_bytes().to_vec();
    let live = jobs.len() as u64;
    flush.commit(Batch { range_tombstones, flushed_through: number * 7, live, blob })
}

fn check_some(tables: &Tables, jobs: &Jobs, random: &mut Random) {
    let version = tables.version();
    for _ in 0..10 {
        let key = (random.below(KINDS as usize) as u32, format!("id-{}", random.below(300)));
        let found = version.find(key.0, &key.1).unwrap();
        let expected = jobs.get(&key);
        assert_eq!(
            found.map(|location| location.position()),
            expected.map(|(position, _)| *position),
            "{key:?}"
        );
        if let Some((location, (_, value))) = found.zip(expected) {
            assert_eq!(version.read(key.0, &location).unwrap(), *value);
        }
    }
    let (kind, list) = (random.below(KINDS as usize) as u32, random.below(LISTS.into()) as u8);
    let from = (random.below(1000) as u64, random.below(3000) as u64);
    check_scan(tables, jobs, kind, list, from);
    // Also the positions of single jobs, and those right beside them.
    let positions = jobs.values().map(|(position, _)| (position.at, position.seq));
    let near = positions.skip(jobs.len() / 2).take(3);
    for (at, seq) in near.chain([from]) {
        for last in [(at, seq), (at, seq - seq.min(1)), (at, seq + 1), (u64::MAX, u64::MAX)] {
            check_reverse(tables, jobs, (kind, list), (0, 0), last);
            check_reverse(tables, jobs, (kind, list), from, last);
        }
    }
    let id = format!("id-{}", random.below(300));
    check_ids(tables, jobs, kind, Bound::Included(&id));
    check_ids(tables, jobs, kind, Bound::Excluded(&id));
}

pub(super) fn check_all(tables: &Tables, jobs: &Jobs) {
    for kind in 0..KINDS {
        for list in 0..LISTS {
            check_scan(tables, jobs, kind, list, (0, 0));
            check_reverse(tables, jobs, (kind, list), (0, 0), (u64::MAX, u64::MAX));
        }
        check_ids(tables, jobs, kind, Bound::Unbounded);
    }
    let version = tables.version();
    assert!(version.verify().is_empty());
    assert_eq!(*version.blob, (version.next_flush - 1).to_le_bytes());
    assert_eq!(version.flushed_through, (version.next_flush - 1) * 7);
    assert_eq!(version.live, jobs.len() as u64);
}

fn check_scan(tables: &Tables, jobs: &Jobs, kind: u32, list: u8, from: (u64, u64)) {
    let of_list =
        jobs.iter().filter(|((of, _), (position, _))| (*of, position.list) == (kind, list));
    let expected: BTreeMap<_, _> =
        of_list.map(|(_, (position, value))| ((position.at, position.seq), value)).collect();
    let mut expected = expected.range(from..);
    let mut scan = tables.version().scan(kind, list, from);
    while let Some((position, value)) = scan.next().unwrap() {
        let (expected_place, expected_value) = expected.next().expect("the list ends here");
        assert_eq!((position, value), (*expected_place, expected_value.as_slice()));
    }
    assert_eq!(expected.next(), None, "kind {kind}, list {list}, from {from:?}");
}

fn check_reverse(
    tables: &Tables,
    jobs: &Jobs,
    (kind, list): (u32, u8),
    first: (u64, u64),
    last: (u64, u64),
) {
    let of_list =
        jobs.iter().filter(|((of, _), (position, _))| (*of, position.list) == (kind, list));
    let expected: BTreeMap<_, _> =
        of_list.map(|(_, (position, value))| ((position.at, position.seq), value)).collect();
    let expected = expected.iter().filter(|(at, _)| (first..=last).contains(*at));
    let mut expected = expected.rev();
    let mut scan = tables.version().scan_reverse(kind, list, first, last);
    while let Some((position, value)) = scan.next().unwrap() {
        let (expected_place, expected_value) = expected.next().expect("the list ends here");
        assert_eq!((position, value), (*expected_place, expected_value.as_slice()));
    }
    assert_eq!(expected.next(), None, "kind {kind}, list {list}, {first:?} to {last:?}");
}

fn check_ids(tables: &Tables, jobs: &Jobs, kind: u32, from: Bound<&str>) {
    let start = from.map(|id| (kind, id.to_owned()));
    let start =
        if start == Bound::Unbounded { Bound::Included((kind, String::new())) } else { start };
    let mut expected = jobs.range((start, Bound::Excluded((kind + 1, String::new()))));
    let mut ids = tables.version().ids(kind, from);
    while let Some((id, location)) = ids.next().unwrap() {
        let ((_, expected_id), (position, _)) = expected.next().expect("the ids end here");
        assert_eq!((id, location.position()), (expected_id.as_str(), *position));
    }
    assert_eq!(expected.next(), None, "kind {kind}, ids from {from:?}");
}

/// When no merge is needed any more, there are few runs and few deleted entries.
fn check_dead(tables: &Tables) {
    let version = tables.version();
    for (tree, runs, dead) in [(Tree::Due, 3, 2048), (Tree::Ids, 2, 512)] {
        let counts = version.counts(tree);
        assert!(counts.runs <= runs, "{counts:?}");
        let data = counts.entries - counts.tombstones;
        let dead_bytes = (data - version.live) * counts.bytes / data.max(1);
        assert!(dead_bytes <= counts.bytes * 3 / 10 + dead, "{counts:?}");
    }
}

/// There is no file that the last two manifests do not need.
fn check_files(tables: &Tables, disk: &SimulatedDisk) {
    tables.commit(Clone::clone).unwrap();
    tables.commit(Clone::clone).unwrap();
    let needed = tables.version().tables().count();
    assert_eq!(names(disk).len(), needed + 2, "{:?}", names(disk));
}
