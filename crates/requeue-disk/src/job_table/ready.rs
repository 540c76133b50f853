//! How many jobs of a kind are ready, without a table being read under the lock of the state.
//!
//! Each kind keeps the number of its pending jobs up to some key. Puts, claims and changes update
//! that number. When someone asks for the ready jobs, only those are counted that have become due
//! since the last time:
//!
//! ```text
//!   pending jobs, by key    |==== counted ====|-- due since then --|.... not due yet ....
//!                                          through                now
//! ```
//!
//! These jobs are in memory and in tables. Keys in tables are read without the lock, a few at a
//! time; then, with the lock, those are counted that no job in memory hides. If a flush has changed
//! the tables meanwhile, they are read again.

use super::DiskJobTable;
use super::layers::{Layer, in_frozen, is_at};
use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::DiskError;
use crate::tables::Version;
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::rules::List;
use requeue_jobs::{JobId, Timestamp};
use std::sync::Arc;

/// How many jobs of a layer, or of the tables, are counted under the lock at a time: as many as an
/// operation looks at, so that the writer does not wait longer than for itself.
pub(crate) const STEP: usize = 512;

/// The number of pending jobs of a kind and priority up to a key.
#[derive(Default)]
pub(crate) struct DueCount {
    /// Invariant: the number of pending jobs, in memory or in tables, with a key of at most
    /// `through`.
    pub(crate) jobs: u64,
    pub(crate) through: ListKey,
    /// Invariant: no job in the tables that the memory does not hide has a key after `through` and
    /// before this.
    pub(crate) next_in_tables: ListKey,
    /// The first pending job in the tables that the memory does not hide, if it was looked up.
    pub(crate) first_in_tables: Option<ListKey>,
    /// Invariant: no job in the tables that the memory does not hide has a key of at most this.
    pub(crate) none_in_tables: ListKey,
}

impl DueCount {
    /// Whether the job at this key is one of those that are counted.
    pub(crate) fn includes(&self, at: ListKey) -> bool {
        at <= self.through
    }
}

/// What is known of the ready jobs of a kind.
pub(crate) enum ReadyStep {
    /// Their number, and the due time of the oldest.
    Done(u64, Option<Timestamp>),
    /// There are more to count, in memory.
    Again,
    /// These keys have to be read first, without the lock.
    Read(KeysToRead),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFor {
    Counting,
    Oldest,
}

/// The jobs of a list in the tables after the key `after`. There is none before `from`.
pub(crate) struct KeysToRead {
    pub(crate) version: Arc<Version>,
    pub(crate) kind: u32,
    pub(crate) list: List,
    pub(crate) reason: ReadFor,
    pub(crate) after: ListKey,
    pub(crate) from: ListKey,
}

/// Pending jobs in the tables that are due, and were read without the lock.
pub(crate) struct TableKeys {
    flushes: u64,
    pub(crate) list: List,
    pub(crate) reason: ReadFor,
    /// `keys` has all jobs with a key after this …
    pub(crate) after: ListKey,
    /// … up to this.
    pub(crate) through: ListKey,
    pub(crate) keys: Vec<(ListKey, JobId)>,
    /// No job in the tables has a key between `through` and this.
    pub(crate) next: ListKey,
}

impl KeysToRead {
    /// Reads the next few jobs that are due.
    pub(crate) fn read(self, now: Timestamp) -> Result<TableKeys, DiskError> {
        let KeysToRead { version, kind, list, reason, after, from } = self;
        let from = from.max((after.0, after.1.saturating_add(1)));
        let mut scan = version.scan(kind, list.index() as u8, from);
        let end = (now.as_millis(), u64::MAX);
        let (mut keys, mut through, mut next) = (Vec::new(), end, (u64::MAX, u64::MAX));
        while let Some((at, value)) = scan.next()? {
            if at > end {
                next = at;
                break;
            }
            let id = codec::id(&mut Bytes::new(value));
            let id = id.map_err(|Malformed(what)| scan.damage(what))?;
            keys.push((at, id));
            if keys.len() == STEP {
                (through, next) = (at, at);
                break;
            }
        }
        Ok(TableKeys { flushes: version.next_flush, list, reason, after, through, keys, next })
    }
}

impl TableKeys {
    /// Whether this version has the same jobs as the one that was read: merges do not change that.
    pub(crate) fn is_of(&self, version: &Version) -> bool {
        self.flushes == version.next_flush
    }
}

/// The key before this one.
pub(crate) fn before((at, seq): ListKey) -> ListKey {
    match seq.checked_sub(1) {
        Some(seq) => (at, seq),
        None => (at.saturating_sub(1), if at == 0 { 0 } else { u64::MAX }),
    }
}

impl DiskJobTable {
    /// The number of ready jobs, counted up to [`READY_COUNT_CAP`], and the due time of the oldest.
    /// Reads no table: if that is necessary, the caller does it without the lock, and passes the
    /// keys. Looks at no more than `budget` jobs of each layer in memory, and reduces the budget.
    pub(crate) fn ready(
        &mut self,
        now: Timestamp,
        read: Option<TableKeys>,
        budget: &mut usize,
    ) -> ReadyStep {
        self.finish();
        let read = read.filter(|read| read.is_of(&self.version));
        let (mut count, mut oldest) = (0, None);
        for list in self.priorities.iter().map(List::Pending) {
            let read = read.as_ref().filter(|read| read.list == list);
            if let Some(step) = self.count_due(list, now, read, budget) {
                return step;
            }
            let jobs = self.due.of(list).jobs;
            count += jobs;
            if jobs > 0 {
                match self.oldest(list, now, read) {
                    Ok(first) => oldest = first.into_iter().chain(oldest).min(),
                    Err(step) => return step,
                }
            }
        }
        let oldest = oldest.map(|(at, _)| Timestamp::from_millis(at));
        ReadyStep::Done(count.min(READY_COUNT_CAP), oldest.filter(|at| *at <= now))
    }

    /// Counts pending jobs until all that are due are counted, or so many that no more count.
    /// Returns `None` when that is done.
    fn count_due(
        &mut self,
        list: List,
        now: Timestamp,
        read: Option<&TableKeys>,
        budget: &mut usize,
    ) -> Option<ReadyStep> {
        let end = (now.as_millis(), u64::MAX);
        let mut read = read.filter(|read| read.reason == ReadFor::Counting);
        loop {
            let all = self.counts[list.index()];
            let due = self.due.of(list);
            if due.jobs >= READY_COUNT_CAP.min(all) || due.through >= end {
                return None;
            }
            if *budget == 0 {
                return Some(ReadyStep::Again);
            }
            let read = read.take().filter(|read| read.after == due.through);
            let known = match read {
                Some(read) => read.through,
                None if before(due.next_in_tables) > due.through => before(due.next_in_tables),
                None => {
                    let through = due.through;
                    return Some(self.read_keys(list, ReadFor::Counting, through));
                }
            };
            let (mut jobs, through) = self.count_in_memory(list, known.min(end), budget);
            let keys = read.map_or(&[][..], |read| &read.keys);
            let counted = keys.partition_point(|(at, _)| *at <= through);
            let in_tables = keys[..counted].iter();
            jobs += in_tables.filter(|(_, id)| self.in_memory(id).is_none()).count() as u64;
            let due = self.due.of(list);
            due.jobs += jobs;
            due.through = through;
            if let Some(read) = read {
                due.next_in_tables = keys.get(counted).map_or(read.next, |(at, _)| *at);
            }
        }
    }

    /// Counts the pending jobs in memory after those that are counted, up to a key. There may be
    /// too many at a time: returns the key up to which they are counted.
    fn count_in_memory(
        &mut self,
        list: List,
        through: ListKey,
        budget: &mut usize,
    ) -> (u64, ListKey) {
        let after = self.due.of(list).through;
        let Layer { jobs: active, buckets } = &mut self.active;
        let active_pending = buckets.of(list);
        let Layer { jobs: frozen, buckets } = &mut self.frozen;
        let frozen_pending = buckets.of(list);
        let here = |at, id: &JobId| is_at(active, list, at, id);
        let there = in_frozen(active, frozen, list);
        let active = active_pending.range(after, through, false).map(|(at, id)| (at, here(at, id)));
        let frozen =
            frozen_pending.range(after, through, false).map(|(at, id)| (at, there(at, id)));
        let (mut end, mut found, limit) = (through, Vec::new(), *budget);
        let mut look_at = |entries: &mut dyn Iterator<Item = (ListKey, bool)>| {
            let (mut count, mut last) = (0, after);
            for (at, is_valid) in entries.take(limit) {
                // Buckets may have a job twice, but a key belongs to one job.
                if is_valid && found.last() != Some(&at) {
                    found.push(at);
                }
                (count, last) = (count + 1, at);
            }
            if count == limit {
                end = end.min(last);
            }
            *budget = (*budget).min(limit - count);
        };
        look_at(&mut { active });
        look_at(&mut { frozen });
        (found.iter().filter(|at| **at <= end).count() as u64, end)
    }

    /// The key of the first job of a list of pending jobs.
    fn oldest(
        &mut self,
        list: List,
        now: Timestamp,
        read: Option<&TableKeys>,
    ) -> Result<Option<ListKey>, ReadyStep> {
        let (active, frozen) = (&mut self.active, &mut self.frozen);
        let buckets = active.buckets.of(list);
        let first = buckets.first(|at, id| is_at(&active.jobs, list, at, id));
        let buckets = frozen.buckets.of(list);
        let second = buckets.first(in_frozen(&active.jobs, &frozen.jobs, list));
        let in_memory = first.into_iter().chain(second).map(|(at, _)| at).min();
        let read_ahead = self.read_ahead.of(list);
        let (due, end) = (self.due.of(list), (now.as_millis(), u64::MAX));
        let none = due.none_in_tables;
        let in_tables = if read_ahead.is_read() {
            read_ahead.first().map(|(at, _)| at)
        } else if due.first_in_tables.is_some() || none >= end {
            due.first_in_tables
        } else {
            let is_next = |read: &&TableKeys| read.reason == ReadFor::Oldest && read.after <= none;
            let Some(read) = read.filter(is_next) else {
                return Err(self.read_keys(list, ReadFor::Oldest, none));
            };
            let first = read.keys.iter().find(|(_, id)| self.in_memory(id).is_none());
            let first = first.map(|(at, _)| *at);
            // Also that there is none: the other lists are read before this one is asked again.
            let none = if first.is_none() { none.max(read.through) } else { none };
            let due = self.due.of(list);
            (due.first_in_tables, due.none_in_tables) = (first, none);
            if first.is_none() && none < end {
                return Err(self.read_keys(list, ReadFor::Oldest, none));
            }
            first
        };
        Ok(in_memory.into_iter().chain(in_tables).min())
    }

    fn read_keys(&self, list: List, reason: ReadFor, after: ListKey) -> ReadyStep {
        let (version, kind) = (self.version.clone(), self.number);
        let from = self.consumed_below(list);
        ReadyStep::Read(KeysToRead { version, kind, list, reason, after, from })
    }
}
