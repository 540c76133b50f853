//! A version: what the tables hold at one moment. It never changes.
//!
//! Those who read keep the version they began with, whatever is flushed and merged meanwhile: a
//! table's file stays readable as long as it is open.

use super::filter;
use super::floors::{Floor, Floors};
use super::keys::{self, IdKey, Prefix, Spot};
use super::merge::Merge;
use super::run::{Run, RunCursor};
use super::table::{Table, damage};
use super::writer::Tree;
use crate::error::{Corrupt, DiskError};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Version {
    /// Runs of the due tree, the oldest first.
    pub(crate) due: Vec<Arc<Run>>,
    /// Runs of the ids tree, the oldest first.
    pub(crate) ids: Vec<Arc<Run>>,
    pub(crate) floors: Floors,
    /// The last group of the log that is in the tables.
    pub(crate) flushed_through: u64,
    /// How many jobs there were when that was flushed.
    pub(crate) live: u64,
    /// What the store keeps beside the tables: kinds, settings, counters.
    pub(crate) blob: Arc<[u8]>,
    pub(crate) next_flush: u64,
}

/// What a tree holds, dead entries included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: usize,
    pub(crate) tables: usize,
    /// Tombstones included.
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
            floors: Floors::default(),
            flushed_through: 0,
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

    /// Up to which flush floors can hold now: the last flush brought those of the flushes before.
    pub(super) fn applied_floors(&self) -> u64 {
        self.next_flush.saturating_sub(2)
    }

    /// Where a job is.
    pub(crate) fn find(&self, kind: u32, id: &str) -> Result<Option<Spot>, DiskError> {
        let Some(key) = IdKey::new(kind, id) else { return Ok(None) };
        let key = key.bytes();
        let hash = filter::hash(key);
        for run in self.ids.iter().rev() {
            let Some(table) = run.likely(key, hash) else { continue };
            if let Some((block, value)) = table.get(key)? {
                return match value {
                    Some(range) => self.spot(kind, &block[range], table, key),
                    None => Ok(None),
                };
            }
        }
        Ok(None)
    }

    /// The place that an entry of the ids tree names; `None` where that was consumed.
    fn spot(
        &self,
        kind: u32,
        value: &[u8],
        table: &Table,
        key: &[u8],
    ) -> Result<Option<Spot>, DiskError> {
        let spot = Spot::decode(value).ok_or_else(|| {
            damage(table.number, table.index.range(table.index.find(key)).start, "this is no place")
        })?;
        Ok((!self.consumed(kind, &spot)).then_some(spot))
    }

    pub(super) fn consumed(&self, kind: u32, spot: &Spot) -> bool {
        let prefix = keys::prefix(kind, spot.list);
        self.floors.covers(&prefix, &keys::order(spot.at, spot.seq), spot.flush)
    }

    /// What was flushed to a place that [`find`](Version::find) answered.
    pub(crate) fn read(&self, kind: u32, spot: &Spot) -> Result<Vec<u8>, DiskError> {
        let key = keys::due_key(keys::prefix(kind, spot.list), keys::order(spot.at, spot.seq));
        let mut looked_at = None;
        for table in self.runs_of(kind, spot).filter_map(|run| run.table(&key)) {
            if let Some((mut block, Some(range))) = table.get(&key)? {
                block.truncate(range.end);
                block.drain(..range.start);
                return Ok(block);
            }
            looked_at = Some(table);
        }
        Err(match looked_at {
            Some(table) => {
                let offset = table.index.range(table.index.find(&key)).start;
                damage(table.number, offset, "a job that the ids tree has is not here")
            }
            None => Corrupt {
                file: format!("the table of flush {}", spot.flush),
                offset: 0,
                what: "a job that the ids tree has is not here".into(),
            }
            .into(),
        })
    }

    /// The runs that may have what was flushed to a place. Where some are being merged, two may
    /// be of that flush; each key is in one of them.
    pub(super) fn runs_of(&self, kind: u32, spot: &Spot) -> impl Iterator<Item = &Arc<Run>> {
        let key = keys::due_key(keys::prefix(kind, spot.list), keys::order(spot.at, spot.seq));
        let flush = spot.flush;
        let of_flush = self.due.iter().filter(move |run| run.lo <= flush && flush <= run.hi);
        of_flush.filter(move |run| run.table(&key).is_some())
    }

    /// The jobs of a list from a place on, in order. Reads nothing yet.
    pub(crate) fn scan(&self, kind: u32, list: u8, from: (u64, u64)) -> Scan {
        let prefix = keys::prefix(kind, list);
        let from = keys::order(from.0, from.1);
        let source = |run: &Arc<Run>| {
            let floor = self.floors.at(&prefix, run.hi).copied().unwrap_or_default();
            RunCursor::new(run.clone(), &keys::due_key(prefix, from.max(floor)))
        };
        let sources = self.due.iter().rev().map(source).filter(|source| !source.is_at_end());
        Scan { merge: Merge::new(sources.collect(), after(&prefix)) }
    }

    /// The ids of a kind and where their jobs are, in the order of their bytes. Reads nothing yet.
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

    /// Drops what the floors leave nothing of, without reading it, and floors of no further use.
    pub(super) fn trim(&mut self) {
        let dead = |run: &Run, table: &Table| {
            table
                .sections
                .iter()
                .all(|section| self.floors.covers(&section.prefix, &section.last, run.hi))
        };
        for run in &mut self.due {
            if run.tables.iter().any(|table| dead(run, table)) {
                let tables = run.tables.iter().filter(|table| !dead(run, table)).cloned();
                *run = Arc::new(Run { tables: tables.collect(), ..Run::clone(run) });
            }
        }
        self.due.retain(|run| !run.tables.is_empty());
    }

    /// Drops the floors that nothing is left of.
    pub(super) fn drop_floors(&mut self) {
        let (due, ids) = (&self.due, &self.ids);
        let in_due = |floor: &Floor| {
            let tables = due.iter().filter(|run| run.hi <= floor.upto).flat_map(|run| &run.tables);
            tables.into_iter().any(|table| holds_below(table, &floor.prefix, floor))
        };
        let in_ids =
            |floor: &Floor| ids.iter().any(|run| run.lo <= floor.upto && run.clean < floor.upto);
        self.floors.retain(|floor| in_due(floor) || in_ids(floor));
    }
}

fn holds_below(table: &Table, prefix: &Prefix, floor: &Floor) -> bool {
    let section = table.sections.binary_search_by(|section| section.prefix.cmp(prefix));
    section.is_ok_and(|at| table.sections[at].first < floor.below)
}

/// The first key behind all that begin with `prefix`; empty where there is none.
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

/// The jobs of a list, in order.
pub(crate) struct Scan {
    merge: Merge,
}

impl Scan {
    /// What was flushed at this place makes no sense.
    pub(crate) fn damage(&self, what: &str) -> DiskError {
        self.merge.source().damage(what)
    }

    /// The next job's place in the list, and what was flushed there.
    #[expect(clippy::type_complexity, reason = "a pair of pairs, as the caller wants it")]
    pub(crate) fn next(&mut self) -> Result<Option<((u64, u64), &[u8])>, DiskError> {
        while self.merge.next()? {
            if self.merge.source().value().is_some() {
                let source = self.merge.source();
                let Some((_, order)) = keys::split(source.key()) else {
                    return Err(source.damage("this is no place"));
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
    merge: Merge,
}

impl Ids {
    /// The next id, and where its job is.
    pub(crate) fn next(&mut self) -> Result<Option<(&str, Spot)>, DiskError> {
        while self.merge.next()? {
            let source = self.merge.source();
            let Some(value) = source.value() else { continue };
            let spot = Spot::decode(value).ok_or_else(|| source.damage("this is no place"))?;
            if !self.version.consumed(self.kind, &spot) {
                let source = self.merge.source();
                let id = str::from_utf8(&source.key()[4..]);
                let id = id.map_err(|_| source.damage("this is no id"))?;
                return Ok(Some((id, spot)));
            }
        }
        Ok(None)
    }
}
