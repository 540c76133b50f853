//! Whether ids lead to jobs, and counts are of those there are.

use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::error::{Corrupt, DiskError};
use crate::job_table::{DiskJobTable, stand};
use crate::state::SCHEDULES;
use crate::tables::{Entry, Place, Tree, Version};
use requeue_jobs::Timestamp;
use requeue_jobs::rules::{JobTable, KindState, List};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// How many jobs of each kind the tables have.
pub(super) struct Counted {
    kinds: BTreeMap<u32, Sums>,
}

/// The jobs of one kind, added up.
#[derive(Default, Clone, Copy)]
pub(super) struct Sums {
    /// By list.
    jobs: [u64; 3],
    ids: [u64; 3],
    /// A number is drawn from each job: who it is, where it stands and which run it is in. Added
    /// for each job that is found by time, and taken away for each that is found by id, they leave
    /// nothing. Nobody chooses jobs to make them do so where they are not the same.
    difference: u128,
}

impl Counted {
    /// Goes through both trees. `read` is told how many bytes that were.
    pub(super) fn new(version: &Version, mut read: impl FnMut(u64)) -> Result<Self, DiskError> {
        let mut kinds: BTreeMap<u32, Sums> = BTreeMap::new();
        let mut wrong = None;
        version.walk(Tree::Due, |entry, flushes, damage| {
            let Entry::Due { kind, place, value: Some(value) } = entry else { return };
            read(value.len() as u64);
            let sums = kinds.entry(kind).or_default();
            let Some(count) = sums.jobs.get_mut(usize::from(place.list)) else { return };
            *count += 1;
            match codec::id(&mut Bytes::new(value)) {
                Ok(id) => add(sums, draw(kind, place, flushes, id.as_str())),
                Err(Malformed(what)) => drop(wrong.get_or_insert_with(|| damage(what))),
            }
        })?;
        version.walk(Tree::Ids, |entry, flushes, _| {
            let Entry::Id { kind, id, spot: Some(spot) } = entry else { return };
            read(id.len() as u64);
            let sums = kinds.entry(kind).or_default();
            if let Some(count) = sums.ids.get_mut(usize::from(spot.list)) {
                *count += 1;
            }
            take(sums, draw(kind, spot.place(), flushes, id));
        })?;
        wrong.map_or(Ok(Counted { kinds }), Err)
    }

    pub(super) fn of(&self, kind: u32) -> [u64; 3] {
        self.kinds.get(&kind).map_or([0; 3], |sums| sums.jobs)
    }

    /// Kinds whose ids and jobs do not fit each other.
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

fn draw(kind: u32, place: Place, flushes: Option<(u64, u64)>, id: &str) -> u128 {
    let (lo, hi) = flushes.unwrap_or_default();
    let mut bytes = Vec::with_capacity(64 + id.len());
    for number in [kind.into(), place.list.into(), place.at, place.seq, lo, hi] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(id.as_bytes());
    xxh3_128(&bytes)
}

/// Looks for each job by its id, and for each id's job, and tells what is not found.
pub(super) fn name_misfits(version: &Version, of: u32, mut tell: impl FnMut(Corrupt)) {
    let mut tell = |error: DiskError| {
        if let DiskError::Corrupt(corrupt) = error {
            tell(corrupt);
        }
    };
    let due = version.walk(Tree::Due, |entry, flushes, damage| {
        let Entry::Due { kind, place, value: Some(value) } = entry else { return };
        if kind != of || place.list == SCHEDULES {
            return;
        }
        let Ok(id) = codec::id(&mut Bytes::new(value)) else { return };
        let id = id.as_str();
        let what = match version.find(kind, id) {
            Ok(Some(spot)) if spot.place() != place => {
                format!("job {id:?} is here, and its id leads elsewhere")
            }
            Ok(Some(spot)) => {
                let (lo, hi) = flushes.unwrap_or_default();
                if (lo..=hi).contains(&spot.flush) {
                    return;
                }
                format!("job {id:?} is here, and its id leads to flush {}", spot.flush)
            }
            Ok(None) => format!("no id leads to job {id:?}"),
            Err(error) => return tell(error),
        };
        tell(damage(&what));
    });
    due.err().map(&mut tell);
    let ids = version.walk(Tree::Ids, |entry, _, damage| {
        let Entry::Id { kind, id, spot: Some(spot) } = entry else { return };
        if kind != of {
            return;
        }
        let there = match version.read(kind, &spot) {
            Ok(value) => codec::id(&mut Bytes::new(&value)).is_ok_and(|there| there.as_str() == id),
            Err(DiskError::Corrupt(_)) => false,
            Err(error) => return tell(error),
        };
        if !there {
            tell(damage(&format!("{id:?} leads to a place where there is another job, or none")));
        }
    });
    ids.err().map(&mut tell);
}

/// Whether a kind counts the jobs that tables and memory have. `tables` are those of the tables.
pub(super) fn check_kind(kind: &mut KindState<DiskJobTable>, tables: [u64; 3]) -> Option<String> {
    let mut found = tables.map(|count| count as i64);
    for (_, slot) in kind.table.all_in_memory() {
        if let Some((list, _)) = slot.below {
            found[list as usize] -= 1;
        }
        if let Some(record) = &slot.record {
            found[stand(record).0 as usize] += 1;
        }
    }
    let counted = kind.table.counts();
    for list in List::ALL {
        let (found, counted) = (found[list as usize], counted[list as usize]);
        if i64::try_from(counted) != Ok(found) {
            return Some(format!(
                "{} has {found} jobs in {list:?}, and counts {counted}",
                kind.name()
            ));
        }
    }
    let leases = kind.table.unexpired(Timestamp::default(), usize::MAX).unwrap_or(0) as u64;
    let counted = counted[List::Leased as usize];
    (leases != counted)
        .then(|| format!("{} has {leases} leases, and counts {counted}", kind.name()))
}
