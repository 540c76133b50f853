//! A version: an immutable snapshot of the tables.
//!
//! A reader keeps the version that it began with, whatever is flushed and merged meanwhile. The
//! file of a table stays readable as long as it is open.

use super::filter;
use super::keys::{self, IdKey, JobLocation, Prefix};
use super::merge::{Merge, Source};
use super::range_tombstones::{RangeTombstone, RangeTombstones};
use super::reverse::ReverseCursor;
use super::run::{Run, RunCursor};
use super::table::{Table, damage};
use super::writer::Tree;
use crate::error::{Corrupt, DiskError};
use crate::log::LogEnd;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Version {
    /// Runs of the due tree, the oldest first.
    pub(crate) due: Vec<Arc<Run>>,
    /// Runs of the ids tree, the oldest first.
    pub(crate) ids: Vec<Arc<Run>>,
    pub(crate) range_tombstones: RangeTombstones,
    /// The last group of the log that the tables contain.
    pub(crate) flushed_through: u64,
    /// A group that the log reached, unless the tables contain it.
    pub(crate) log_end: LogEnd,
    /// The number of jobs after the last flush.
    pub(crate) live: u64,
    /// Kinds, settings and counters as bytes.
    pub(crate) blob: Arc<[u8]>,
    pub(crate) next_flush: u64,
}

/// The size of a tree, including deleted entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: usize,
    pub(crate) tables: usize,
    /// Including tombstones.
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) bytes: u64,
    /// Bytes of indexes and filters in memory.
    pub(crate) memory: u64,
}

impl Version {
    pub(crate) fn empty() -> Version {
        Version {
            due: Vec::new(),
            ids: Vec::new(),
            range_tombstones: RangeTombstones::default(),
            flushed_through: 0,
            log_end: LogEnd::default(),
            live: 0,
            blob: Arc::new([]),
            next_flush: 1,
        }
    }

    pub(crate) fn runs(&self, tree: Tree) -> &[Arc<Run>] {
        match tree {
            Tree::Due => &self.due,
            Tree::Ids => &self.ids,
        }
    }

    pub(super) fn runs_mut(&mut self, tree: Tree) -> &mut Vec<Arc<Run>> {
        match tree {
            Tree::Due => &mut self.due,
            Tree::Ids => &mut self.ids,
        }
    }

    /// Every table of both trees.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.due.iter().chain(&self.ids).flat_map(|run| &run.tables)
    }

    pub(crate) fn counts(&self, tree: Tree) -> Counts {
        let runs = self.runs(tree);
        let mut counts = Counts { runs: runs.len(), ..Counts::default() };
        for table in runs.iter().flat_map(|run| &run.tables) {
            counts.tables += 1;
            counts.entries += table.entries;
            counts.tombstones += table.tombstones;
            counts.bytes += table.bytes;
            counts.memory += table.memory() as u64;
        }
        counts
    }

    /// The last flush to which range tombstones can apply now: a flush adds those for the flushes
    /// before it.
    pub(super) fn applied_range_tombstones(&self) -> u64 {
        self.next_flush.saturating_sub(2)
    }

    /// Searches a job by its id.
    pub(crate) fn find(&self, kind: u32, id: &str) -> Result<Option<JobLocation>, DiskError> {
        let Some(key) = IdKey::new(kind, id) else { return Ok(None) };
        let key = key.bytes();
        let hash = filter::hash(key);
        for run in self.ids.iter().rev() {
            let Some(table) = run.likely(key, hash) else { continue };
            if let Some((block, value)) = table.get(key)? {
                return match value {
                    Some(range) => self.location(kind, &block[range], table, key),
                    None => Ok(None),
                };
            }
        }
        Ok(None)
    }

    /// The location in an entry of the ids tree; `None` if a range tombstone deletes it.
    fn location(
        &self,
        kind: u32,
        value: &[u8],
        table: &Table,
        key: &[u8],
    ) -> Result<Option<JobLocation>, DiskError> {
        let location = JobLocation::decode(value).ok_or_else(|| {
            damage(
                table.number,
                table.index.range(table.index.find(key)).start,
                "the location of a job is malformed",
            )
        })?;
        Ok((!self.is_deleted(kind, &location)).then_some(location))
    }

    pub(super) fn is_deleted(&self, kind: u32, location: &JobLocation) -> bool {
        let prefix = keys::prefix(kind, location.list);
        self.range_tombstones.covers(
            &prefix,
            &keys::order(location.at, location.seq),
            location.flush,
        )
    }

    /// Reads the value at a location that [`find`](Version::find) returned.
    pub(crate) fn read(&self, kind: u32, location: &JobLocation) -> Result<Vec<u8>, DiskError> {
        let key = keys::due_key(
            keys::prefix(kind, location.list),
            keys::order(location.at, location.seq),
        );
        let mut searched = None;
        for table in self.runs_of(kind, location).filter_map(|run| run.table(&key)) {
            if let Some((mut block, Some(range))) = table.get(&key)? {
                block.truncate(range.end);
                block.drain(..range.start);
                return Ok(block);
            }
            searched = Some(table);
        }
        Err(match searched {
            Some(table) => {
                let offset = table.index.range(table.index.find(&key)).start;
                damage(table.number, offset, "a job is missing that the ids tree refers to")
            }
            None => Corrupt {
                file: format!("the table of flush {}", location.flush),
                offset: 0,
                what: "a job is missing that the ids tree refers to".into(),
            }
            .into(),
        })
    }

    /// The runs that may contain the job at a location. During a merge, two runs may cover the
    /// flush; each key is in one of them.
    pub(super) fn runs_of(
        &self,
        kind: u32,
        location: &JobLocation,
    ) -> impl Iterator<Item = &Arc<Run>> {
        let key = keys::due_key(
            keys::prefix(kind, location.list),
            keys::order(location.at, location.seq),
        );
        let flush = location.flush;
        let of_flush = self.due.iter().filter(move |run| run.lo <= flush && flush <= run.hi);
        of_flush.filter(move |run| run.table(&key).is_some())
    }

    /// Iterates over the jobs of a list, in order, beginning at `from`. Reads nothing yet.
    pub(crate) fn scan(&self, kind: u32, list: u8, from: (u64, u64)) -> Scan<RunCursor> {
        let prefix = keys::prefix(kind, list);
        let from = keys::order(from.0, from.1);
        let source = |run: &Arc<Run>| {
            let tombstone = self.range_tombstones.at(&prefix, run.hi).copied().unwrap_or_default();
            RunCursor::new(run.clone(), &keys::due_key(prefix, from.max(tombstone)))
        };
        let sources = self.due.iter().rev().map(source).filter(|source| !source.is_at_end());
        Scan { merge: Merge::new(sources.collect(), after(&prefix)) }
    }

    /// Iterates over the jobs of a list backwards, from the last up to `last` to the first from
    /// `first` on. Reads nothing yet.
    pub(crate) fn scan_reverse(
        &self,
        kind: u32,
        list: u8,
        first: (u64, u64),
        last: (u64, u64),
    ) -> Scan<ReverseCursor> {
        let prefix = keys::prefix(kind, list);
        let (first, last) = (keys::order(first.0, first.1), keys::order(last.0, last.1));
        let source = |run: &Arc<Run>| {
            let tombstone = self.range_tombstones.at(&prefix, run.hi).copied().unwrap_or_default();
            let low = keys::due_key(prefix, first.max(tombstone));
            ReverseCursor::new(run.clone(), &low, &keys::due_key(prefix, last))
        };
        Scan { merge: Merge::new(self.due.iter().rev().map(source).collect(), Vec::new()) }
    }

    /// Iterates over the ids of a kind and the locations of their jobs, in the order of their
    /// bytes. Reads nothing yet.
    pub(crate) fn ids(self: &Arc<Self>, kind: u32, from: Bound<&str>) -> Ids {
        let mut key = kind.to_be_bytes().to_vec();
        if let Bound::Included(id) | Bound::Excluded(id) = from {
            key.extend_from_slice(id.as_bytes());
        }
        if let Bound::Excluded(_) = from {
            key.push(0);
        }
        let source = |run: &Arc<Run>| RunCursor::new(run.clone(), &key);
        let sources = self.ids.iter().rev().map(source).filter(|source| !source.is_at_end());
        let merge = Merge::new(sources.collect(), after(&kind.to_be_bytes()));
        Ids { version: self.clone(), kind, merge }
    }

    /// Drops tables whose entries are all deleted by range tombstones, without reading them.
    pub(super) fn trim(&mut self) {
        let dead = |run: &Run, table: &Table| {
            table
                .sections
                .iter()
                .all(|section| self.range_tombstones.covers(&section.prefix, &section.last, run.hi))
        };
        for run in &mut self.due {
            if run.tables.iter().any(|table| dead(run, table)) {
                let tables = run.tables.iter().filter(|table| !dead(run, table)).cloned();
                *run = Arc::new(Run { tables: tables.collect(), ..Run::clone(run) });
            }
        }
        self.due.retain(|run| !run.tables.is_empty());
    }

    /// Drops the range tombstones that apply to no entry any more.
    pub(super) fn drop_range_tombstones(&mut self) {
        let (due, ids) = (&self.due, &self.ids);
        let in_due = |tombstone: &RangeTombstone| {
            let tables =
                due.iter().filter(|run| run.hi <= tombstone.upto).flat_map(|run| &run.tables);
            tables.into_iter().any(|table| holds_below(table, &tombstone.prefix, tombstone))
        };
        let in_ids = |tombstone: &RangeTombstone| {
            ids.iter().any(|run| run.lo <= tombstone.upto && run.clean < tombstone.upto)
        };
        self.range_tombstones.retain(|tombstone| in_due(tombstone) || in_ids(tombstone));
    }
}

fn holds_below(table: &Table, prefix: &Prefix, tombstone: &RangeTombstone) -> bool {
    let section = table.sections.binary_search_by(|section| section.prefix.cmp(prefix));
    section.is_ok_and(|at| table.sections[at].first < tombstone.below)
}

/// The first key after all keys that begin with `prefix`; empty if there is none.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The jobs of a list, in order or in reverse order.
pub(crate) struct Scan<S> {
    merge: Merge<S>,
}

impl<S: Source> Scan<S> {
    /// The error for a malformed current entry.
    pub(crate) fn damage(&self, what: &str) -> DiskError {
        self.merge.source().damage(what)
    }

    /// The position of the next job in the list, and its value.
    #[expect(clippy::type_complexity, reason = "a pair of a position and a value")]
    pub(crate) fn next(&mut self) -> Result<Option<((u64, u64), &[u8])>, DiskError> {
        while self.merge.next()? {
            if self.merge.source().value().is_some() {
                let source = self.merge.source();
                let Some((_, order)) = keys::split(source.key()) else {
                    return Err(source.damage("the entry has an invalid key"));
                };
                return Ok(source.value().map(|value| (keys::at_and_seq(order), value)));
            }
        }
        Ok(None)
    }
}

/// The ids of a kind, in order.
pub(crate) struct Ids {
    version: Arc<Version>,
    kind: u32,
    merge: Merge<RunCursor>,
}

impl Ids {
    /// The next id, and the location of its job.
    pub(crate) fn next(&mut self) -> Result<Option<(&str, JobLocation)>, DiskError> {
        while self.merge.next()? {
            let source = self.merge.source();
            let Some(value) = source.value() else { continue };
            let location = JobLocation::decode(value)
                .ok_or_else(|| source.damage("the location of a job is malformed"))?;
            if !self.version.is_deleted(self.kind, &location) {
                let source = self.merge.source();
                let id = source.key().get(4..).and_then(|id| str::from_utf8(id).ok());
                let id = id.ok_or_else(|| source.damage("the id is not valid UTF-8"))?;
                return Ok(Some((id, location)));
            }
        }
        Ok(None)
    }
}
