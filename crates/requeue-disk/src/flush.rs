//! Writes a frozen layer to tables.

use crate::bytes::put_bytes;
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::DiskError;
use crate::job_table::{LayerEntry, ListAndKey, position_of};
use crate::state::{Frozen, FrozenKind, SCHEDULES};
use crate::tables::{Batch, Flush, ListPosition, Tables};
use requeue_jobs::rules::{List, Record};
use requeue_jobs::{JobId, Schedule};
use xxhash_rust::xxh3::xxh3_128;

/// Writes a frozen layer to tables, and syncs them.
pub(crate) fn flush(tables: &Tables, frozen: &Frozen) -> Result<(), DiskError> {
    let mut flush = tables.flush();
    let mut value = Vec::new();
    let mut range_tombstones = Vec::new();
    for kind in &frozen.kinds {
        write_due(&mut flush, kind, &mut value)?;
        write_ids(&mut flush, kind)?;
        let tombstone = |(list, at): (List, ListKey)| (kind.number, list.index() as u8, at);
        range_tombstones.extend(
            kind.consumed_below.iter().copied().filter(|(_, at)| *at > (0, 0)).map(tombstone),
        );
    }
    let (flushed_through, blob) = (frozen.through, frozen.blob.clone());
    flush.commit(Batch { range_tombstones, flushed_through, live: frozen.live, blob })
}

enum Entry<'a> {
    Job(&'a JobId, &'a Record),
    Schedule(&'a Schedule),
    Nothing,
}

/// Writes the due tree: jobs at their positions, and tombstones at positions that they left.
fn write_due(
    flush: &mut Flush<'_>,
    kind: &FrozenKind,
    value: &mut Vec<u8>,
) -> Result<(), DiskError> {
    let mut entries: Vec<(u8, ListKey, Entry<'_>)> = Vec::with_capacity(kind.jobs.len());
    for (id, entry) in &*kind.jobs {
        let now = entry.record.as_deref().map(|record| (position_of(record), record));
        if let Some(((list, at), record)) = now {
            entries.push((list.index() as u8, at, Entry::Job(id, record)));
        }
        let moved = entry.below.filter(|below| now.is_none_or(|(position, _)| position != *below));
        if let Some((list, at)) = moved.filter(|below| !is_consumed(kind, below)) {
            entries.push((list.index() as u8, at, Entry::Nothing));
        }
    }
    for (id, schedule) in &kind.schedules {
        let entry = schedule.as_ref().map_or(Entry::Nothing, Entry::Schedule);
        entries.push((SCHEDULES, schedule_at(id), entry));
    }
    entries.sort_unstable_by_key(|(list, at, _)| (*list, *at));
    for (list, (at, seq), entry) in entries {
        value.clear();
        match entry {
            Entry::Job(id, record) => {
                put_bytes(value, id.as_str().as_bytes());
                codec::put_record(value, record, None);
            }
            Entry::Schedule(schedule) => codec::put_schedule(value, schedule),
            Entry::Nothing => {}
        }
        let there = !matches!(entry, Entry::Nothing);
        flush.due(kind.number, ListPosition { list, at, seq }, there.then_some(value))?;
    }
    Ok(())
}

/// Whether a position in the tables is consumed. It needs no tombstone, a range tombstone covers
/// it.
fn is_consumed(kind: &FrozenKind, (list, at): &ListAndKey) -> bool {
    kind.consumed_below.iter().any(|(of, consumed)| of == list && at < consumed)
}

/// The key of a schedule in its list. A schedule has no time, so the key is a hash of its id.
pub(crate) fn schedule_at(id: &JobId) -> ListKey {
    let hash = xxh3_128(id.as_str().as_bytes());
    ((hash >> 64) as u64, hash as u64)
}

/// The first bytes of an id, as a number that sorts like the id and is cheap to compare.
fn beginning(id: &JobId) -> u128 {
    let mut bytes = [0; 16];
    let len = id.as_str().len().min(16);
    bytes[..len].copy_from_slice(&id.as_str().as_bytes()[..len]);
    u128::from_be_bytes(bytes)
}

/// Writes the ids tree: the position of each job by its id.
fn write_ids(flush: &mut Flush<'_>, kind: &FrozenKind) -> Result<(), DiskError> {
    let needed = |entry: &LayerEntry| {
        entry.record.is_some() || entry.below.is_some_and(|below| !is_consumed(kind, &below))
    };
    let ids = kind.jobs.iter().filter(|(_, entry)| needed(entry));
    let mut ids: Vec<_> = ids.map(|(id, entry)| (beginning(id), id, entry)).collect();
    ids.sort_unstable_by_key(|(beginning, id, _)| (*beginning, *id));
    for (_, id, entry) in ids {
        let position = entry.record.as_deref().map(|record| {
            let (list, (at, seq)) = position_of(record);
            ListPosition { list: list.index() as u8, at, seq }
        });
        flush.id(kind.number, id.as_str(), position)?;
    }
    Ok(())
}
