//! Iterates over the readable parts of several runs as if they were one.

use super::{SalvagedRun, SalvagedTables};
use crate::error::DiskError;
use crate::tables::block::{self, Value};
use crate::tables::keys::{self, JobLocation, ListPosition};
use crate::tables::merge::{Merge, Source};
use crate::tables::table;

/// Iterates over the parts of one run that are not lost.
pub(super) struct PartCursor<'a> {
    run: &'a SalvagedRun,
    /// The number of the run: the larger, the newer.
    age: usize,
    /// The part after the current one.
    part: usize,
    bytes: Vec<u8>,
    at: usize,
    /// The key of the current entry; before it is loaded, a lower bound.
    key: Vec<u8>,
    value: Value,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Before,
    At,
    End,
}

/// Merges runs, of which the oldest comes first, from a key on.
fn merge<'a>(runs: &'a [SalvagedRun], from: &[u8]) -> Merge<PartCursor<'a>> {
    let cursor = |(age, run): (usize, &'a SalvagedRun)| {
        let key = from.max(&run.from).to_vec();
        let part = run.parts.partition_point(|part| *part.last < *key);
        let state = if part < run.parts.len() { State::Before } else { State::End };
        PartCursor { run, age, part, bytes: Vec::new(), at: 0, key, value: None, state }
    };
    Merge::new(runs.iter().enumerate().rev().map(cursor).collect(), Vec::new())
}

impl Source for PartCursor<'_> {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> Option<&[u8]> {
        self.value.clone().map(|range| &self.bytes[range])
    }

    fn is_loaded(&self) -> bool {
        self.state == State::At
    }

    fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    fn load(&mut self) -> Result<(), DiskError> {
        let from = std::mem::take(&mut self.key);
        self.state = State::At;
        self.advance()?;
        while self.state == State::At && self.key < from {
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), DiskError> {
        loop {
            if self.at < self.bytes.len()
                && let Ok(value) = block::step(&self.bytes, &mut self.at, &mut self.key)
            {
                self.value = value;
                return Ok(());
            }
            self.at = 0;
            self.key.clear();
            self.bytes.clear();
            let Some(part) = self.run.parts.get(self.part) else {
                self.state = State::End;
                return Ok(());
            };
            self.part += 1;
            if let Some(block) = &part.block {
                self.bytes = block.read()?;
            }
        }
    }

    fn damage(&self, what: &str) -> DiskError {
        let block = self.run.parts[self.part - 1].block.as_ref();
        block.map_or_else(
            || table::damage(0, 0, what),
            |block| table::damage(block.table, block.bytes.start, what),
        )
    }
}

impl SalvagedTables {
    /// The ids of a kind that are greater than `after`, with their locations, in order. Ids whose
    /// entries may be lost are left out.
    pub(crate) fn ids<'a>(&'a self, kind: u32, after: Option<&str>) -> SalvagedIds<'a> {
        let mut key = kind.to_be_bytes().to_vec();
        if let Some(after) = after {
            key.extend_from_slice(after.as_bytes());
            key.push(0);
        }
        SalvagedIds { tables: self, kind, merge: merge(&self.ids, &key) }
    }

    /// The entries of a kind in the due tree that are not deleted, in order.
    pub(crate) fn entries<'a>(&'a self, kind: u32) -> SalvagedEntries<'a> {
        SalvagedEntries { tables: self, kind, merge: merge(&self.due, &kind.to_be_bytes()) }
    }

    /// The same entries, beginning with those of this list.
    pub(crate) fn entries_of<'a>(&'a self, kind: u32, list: u8) -> SalvagedEntries<'a> {
        SalvagedEntries { tables: self, kind, merge: merge(&self.due, &keys::prefix(kind, list)) }
    }
}

/// The ids of a kind. See [`SalvagedTables::ids`].
pub(crate) struct SalvagedIds<'a> {
    tables: &'a SalvagedTables,
    kind: u32,
    merge: Merge<PartCursor<'a>>,
}

impl SalvagedIds<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<(String, JobLocation)>, DiskError> {
        while self.merge.next()? {
            let source = self.merge.source();
            let key = source.key();
            let Some(id) = key.strip_prefix(&self.kind.to_be_bytes()[..]) else { break };
            // A newer entry may be lost.
            if self.tables.ids[source.age + 1..].iter().any(|newer| newer.lacks(key)) {
                continue;
            }
            let location = source.value().and_then(JobLocation::decode);
            if let (Ok(id), Some(location)) = (str::from_utf8(id), location)
                && !self.tables.is_deleted(self.kind, &location)
            {
                return Ok(Some((id.to_owned(), location)));
            }
        }
        Ok(None)
    }
}

/// An entry of the due tree.
pub(crate) struct SalvagedEntry<'a> {
    pub(crate) position: ListPosition,
    /// The number of its run: the larger, the newer.
    pub(crate) age: usize,
    /// A flush of that run.
    pub(super) flush: u64,
    pub(crate) value: &'a [u8],
}

/// The entries of a kind. See [`SalvagedTables::entries`].
pub(crate) struct SalvagedEntries<'a> {
    tables: &'a SalvagedTables,
    kind: u32,
    merge: Merge<PartCursor<'a>>,
}

impl SalvagedEntries<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<SalvagedEntry<'_>>, DiskError> {
        while self.merge.next()? {
            let source = self.merge.source();
            let Some((prefix, order)) = keys::split(source.key()) else { continue };
            if prefix[..4] != self.kind.to_be_bytes() {
                break;
            }
            let (at, seq) = keys::at_and_seq(order);
            let position = ListPosition { list: prefix[4], at, seq };
            let (age, flush) = (source.age, source.run.hi);
            let deleted = self.tables.is_deleted(self.kind, &position.in_flush(flush));
            if deleted || source.value().is_none() {
                continue;
            }
            let value = self.merge.source().value().unwrap_or_default();
            return Ok(Some(SalvagedEntry { position, age, flush, value }));
        }
        Ok(None)
    }
}
