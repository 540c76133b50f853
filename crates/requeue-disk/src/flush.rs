//! Writes a frozen layer into tables.

use crate::bytes::put_bytes;
use crate::codec;
use crate::due_buckets::At;
use crate::error::DiskError;
use crate::job_table::{Slot, Stand, stand};
use crate::state::{Frozen, FrozenKind, SCHEDULES};
use crate::tables::{Batch, Flush, Place, Tables};
use requeue_jobs::rules::Record;
use requeue_jobs::{JobId, Schedule};
use xxhash_rust::xxh3::xxh3_128;

/// Writes it, and makes it safe.
pub(crate) fn flush(tables: &Tables, frozen: &Frozen) -> Result<(), DiskError> {
    let mut flush = tables.flush();
    let mut value = Vec::new();
    let mut floors = Vec::new();
    for kind in &frozen.kinds {
        write_due(&mut flush, kind, &mut value)?;
        write_ids(&mut flush, kind)?;
        let floor = |(list, at)| (kind.number, list as u8, at);
        floors.extend(kind.floors.into_iter().filter(|(_, at)| *at > (0, 0)).map(floor));
    }
    let (flushed_through, blob) = (frozen.through, frozen.blob.clone());
    flush.commit(Batch { floors, flushed_through, live: frozen.live, blob })
}

enum Entry<'a> {
    Job(&'a JobId, &'a Record),
    Schedule(&'a Schedule),
    Nothing,
}

/// What stands where, and where nothing stands any more.
fn write_due(
    flush: &mut Flush<'_>,
    kind: &FrozenKind,
    value: &mut Vec<u8>,
) -> Result<(), DiskError> {
    let mut entries: Vec<(u8, At, Entry<'_>)> = Vec::with_capacity(kind.jobs.len());
    for (id, slot) in &*kind.jobs {
        let now = slot.record.as_deref().map(|record| (stand(record), record));
        if let Some(((list, at), record)) = now {
            entries.push((list as u8, at, Entry::Job(id, record)));
        }
        let moved = slot.below.filter(|below| now.is_none_or(|(stand, _)| stand != *below));
        if let Some((list, at)) = moved.filter(|below| !is_below_floor(kind, below)) {
            entries.push((list as u8, at, Entry::Nothing));
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
        flush.due(kind.number, Place { list, at, seq }, there.then_some(value))?;
    }
    Ok(())
}

/// What stands below its list's floor needs no tombstone.
fn is_below_floor(kind: &FrozenKind, (list, at): &Stand) -> bool {
    kind.floors.iter().any(|(floored, floor)| floored == list && at < floor)
}

/// A schedule has no time to stand at; its id gives it a place that no other has.
pub(crate) fn schedule_at(id: &JobId) -> At {
    let hash = xxh3_128(id.as_str().as_bytes());
    ((hash >> 64) as u64, hash as u64)
}

/// The first bytes of an id: they sort as ids do, and are at hand.
fn beginning(id: &JobId) -> u128 {
    let mut bytes = [0; 16];
    let len = id.as_str().len().min(16);
    bytes[..len].copy_from_slice(&id.as_str().as_bytes()[..len]);
    u128::from_be_bytes(bytes)
}

/// Where jobs are found by id.
fn write_ids(flush: &mut Flush<'_>, kind: &FrozenKind) -> Result<(), DiskError> {
    let needed = |slot: &Slot| {
        slot.record.is_some() || slot.below.is_some_and(|below| !is_below_floor(kind, &below))
    };
    let ids = kind.jobs.iter().filter(|(_, slot)| needed(slot));
    let mut ids: Vec<_> = ids.map(|(id, slot)| (beginning(id), id, slot)).collect();
    ids.sort_unstable_by_key(|(beginning, id, _)| (*beginning, *id));
    for (_, id, slot) in ids {
        let place = slot.record.as_deref().map(|record| {
            let (list, (at, seq)) = stand(record);
            Place { list: list as u8, at, seq }
        });
        flush.id(kind.number, id.as_str(), place)?;
    }
    Ok(())
}
