//! Checks that ids refer to their jobs, and that counts are correct.

use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::error::{Corrupt, DiskError};
use crate::job_table::{DiskJobTable, ListCounts, position_of, totals};
use crate::state::SCHEDULES;
use crate::tables::{Entry, ListPosition, Tree, Version};
use requeue_jobs::Timestamp;
use requeue_jobs::rules::{JobTable, KindState, List};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// The number of jobs of each kind in the tables.
pub(super) struct Counted {
    kinds: BTreeMap<u32, Sums>,
}

/// Counts and checksums of the jobs of one kind.
#[derive(Default, Clone, Copy)]
pub(super) struct Sums {
    /// By list.
    jobs: ListCounts,
    ids: ListCounts,
    /// The sum of a hash of each job in the due tree (its id, position and run), minus the sum of
    /// the same hash for each entry of the ids tree. It is 0 if they match. Jobs are not chosen by
    /// an adversary, so a difference does not cancel out.
    difference: u128,
}

impl Counted {
    /// Reads both trees. Passes the number of bytes read to `read`.
    pub(super) fn new(version: &Version, mut read: impl FnMut(u64)) -> Result<Self, DiskError> {
        let mut kinds: BTreeMap<u32, Sums> = BTreeMap::new();
        let mut wrong = None;
        version.walk(Tree::Due, |entry, flushes, damage| {
            let Entry::Due { kind, position, value: Some(value) } = entry else { return };
            read(value.len() as u64);
            let sums = kinds.entry(kind).or_default();
            if position.list == SCHEDULES {
                return;
            }
            let Some(count) = sums.jobs.get_mut(usize::from(position.list)) else { return };
            *count += 1;
            match codec::id(&mut Bytes::new(value)) {
                Ok(id) => add(sums, draw(kind, position, flushes, id.as_str())),
                Err(Malformed(what)) => drop(wrong.get_or_insert_with(|| damage(what))),
            }
        })?;
        version.walk(Tree::Ids, |entry, flushes, _| {
            let Entry::Id { kind, id, location: Some(location) } = entry else { return };
            read(id.len() as u64);
            let sums = kinds.entry(kind).or_default();
            if let Some(count) = sums.ids.get_mut(usize::from(location.list)) {
                *count += 1;
            }
            take(sums, draw(kind, location.position(), flushes, id));
        })?;
        wrong.map_or(Ok(Counted { kinds }), Err)
    }

    pub(super) fn of(&self, kind: u32) -> ListCounts {
        self.kinds.get(&kind).map_or([0; List::END], |sums| sums.jobs)
    }

    /// Kinds whose ids and jobs do not match.
    pub(super) fn misfits(&self) -> impl Iterator<Item = u32> {
        let misfit = |sums: &Sums| sums.difference != 0 || sums.jobs != sums.ids;
        self.kinds.iter().filter(move |(_, sums)| misfit(sums)).map(|(kind, _)| *kind)
    }
}

fn add(sums: &mut Sums, number: u128) {
    sums.difference = sums.difference.wrapping_add(number);
}

fn take(sums: &mut Sums, number: u128) {
    sums.difference = sums.difference.wrapping_sub(number);
}

fn draw(kind: u32, position: ListPosition, flushes: Option<(u64, u64)>, id: &str) -> u128 {
    let (lo, hi) = flushes.unwrap_or_default();
    let mut bytes = Vec::with_capacity(64 + id.len());
    for number in [kind.into(), position.list.into(), position.at, position.seq, lo, hi] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(id.as_bytes());
    xxh3_128(&bytes)
}

/// Searches each job by its id, and the job of each id, and reports those that are not found.
pub(super) fn name_misfits(version: &Version, of: u32, mut report: impl FnMut(Corrupt)) {
    let mut report = |error: DiskError| {
        if let DiskError::Corrupt(corrupt) = error {
            report(corrupt);
        }
    };
    let due = version.walk(Tree::Due, |entry, flushes, damage| {
        let Entry::Due { kind, position, value: Some(value) } = entry else { return };
        if kind != of || position.list == SCHEDULES {
            return;
        }
        let Ok(id) = codec::id(&mut Bytes::new(value)) else { return };
        let id = id.as_str();
        let what = match version.find(kind, id) {
            Ok(Some(location)) if location.position() != position => {
                format!("job {id:?} is here, but its id refers to another position")
            }
            Ok(Some(location)) => {
                let (lo, hi) = flushes.unwrap_or_default();
                if (lo..=hi).contains(&location.flush) {
                    return;
                }
                format!("job {id:?} is here, but its id refers to flush {}", location.flush)
            }
            Ok(None) => format!("no id refers to job {id:?}"),
            Err(error) => return report(error),
        };
        report(damage(&what));
    });
    due.err().map(&mut report);
    let ids = version.walk(Tree::Ids, |entry, _, damage| {
        let Entry::Id { kind, id, location: Some(location) } = entry else { return };
        if kind != of {
            return;
        }
        let there = match version.read(kind, &location) {
            Ok(value) => codec::id(&mut Bytes::new(&value)).is_ok_and(|there| there.as_str() == id),
            Err(DiskError::Corrupt(_)) => false,
            Err(error) => return report(error),
        };
        if !there {
            report(damage(&format!(
                "id {id:?} refers to a position that has another job, or none"
            )));
        }
    });
    ids.err().map(&mut report);
}

/// Checks the counts of a kind against its jobs in tables and memory. `tables` are the counts of
/// the tables. Returns a description of the first difference.
pub(super) fn check_kind(kind: &mut KindState<DiskJobTable>, tables: ListCounts) -> Option<String> {
    let mut found = tables.map(|count| count as i64);
    for (_, entry) in kind.table.all_in_memory() {
        if let Some((list, _)) = entry.below {
            found[list.index()] -= 1;
        }
        if let Some(record) = &entry.record {
            found[position_of(record).0.index()] += 1;
        }
    }
    let counted = kind.table.counts();
    for list in List::all() {
        let (found, counted) = (found[list.index()], counted[list.index()]);
        if i64::try_from(counted) != Ok(found) {
            return Some(format!(
                "kind {} has {found} {} jobs, but counts {counted}",
                kind.name(),
                match list {
                    List::Pending(_) => "pending",
                    List::Leased(_) => "leased",
                    List::Dead => "dead",
                    List::Done => "done",
                }
            ));
        }
    }
    let mut leases = 0;
    for priority in kind.table.priorities().iter() {
        let all = kind.table.unexpired(priority, Timestamp::default(), usize::MAX);
        leases += all.unwrap_or(0) as u64;
    }
    let counted = totals(&counted).leased;
    (leases != counted)
        .then(|| format!("kind {} has {leases} leases, but counts {counted}", kind.name()))
}
