//! A run: what an interval of flushes wrote to one tree.

use super::block::Value;
use super::merge::Source;
use super::table::{Table, damage};
use crate::error::DiskError;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Run {
    /// The first flush in the run.
    pub(crate) lo: u64,
    /// The last flush in the run.
    pub(crate) hi: u64,
    /// How often its entries were merged at most.
    pub(crate) generation: u8,
    /// Range tombstones up to this flush have been applied to the locations in its ids.
    pub(crate) clean: u64,
    /// Entries below this key have been merged into another run, and are ignored here. Empty unless
    /// the run is being merged.
    pub(crate) from: Vec<u8>,
    /// Sorted by their keys, which do not overlap.
    pub(crate) tables: Vec<Arc<Table>>,
}

impl Run {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.tables.iter().map(|table| table.entries).sum()
    }

    pub(crate) fn tombstones(&self) -> u64 {
        self.tables.iter().map(|table| table.tombstones).sum()
    }

    /// The only table that can contain this key.
    #[inline]
    pub(super) fn table(&self, key: &[u8]) -> Option<&Arc<Table>> {
        if !self.from.is_empty() && *key < *self.from {
            return None;
        }
        let at = self.tables.partition_point(|table| *table.largest < *key);
        self.tables.get(at).filter(|table| table.spans(key))
    }
}

impl Run {
    /// The table that probably contains this key, according to its filter.
    ///
    /// Most searches are for absent keys. If there is only one table, its filter is checked first.
    #[inline]
    pub(super) fn likely(&self, key: &[u8], hash: u64) -> Option<&Arc<Table>> {
        let has = |table: &&Arc<Table>| table.filter.as_ref().is_none_or(|filter| filter.has(hash));
        match &*self.tables {
            [table] if !has(&table) => None,
            [_] => self.table(key),
            _ => self.table(key).filter(has),
        }
    }
}

/// Iterates over one run. Reads a block only when an entry of it is needed.
pub(crate) struct RunCursor {
    run: Arc<Run>,
    table: usize,
    block: usize,
    bytes: Vec<u8>,
    /// Where in `bytes` the next entry begins.
    at: usize,
    key: Vec<u8>,
    value: Value,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// No entry is read yet. The key of the next one is at least `key`.
    Before,
    /// `key` and `value` are those of the current entry.
    At,
    End,
}

impl RunCursor {
    /// Begins at the first entry whose key is at least `from`. Reads nothing.
    pub(super) fn new(run: Arc<Run>, from: &[u8]) -> RunCursor {
        let mut cursor = RunCursor {
            run,
            table: 0,
            block: 0,
            bytes: Vec::new(),
            at: 0,
            key: Vec::with_capacity(32),
            value: None,
            state: State::End,
        };
        cursor.seek(from);
        cursor
    }

    /// Moves to the first entry whose key is at least `from`. Reads nothing.
    pub(super) fn seek(&mut self, from: &[u8]) {
        let from = from.max(&self.run.from);
        self.table = self.run.tables.partition_point(|table| *table.largest < *from);
        self.state = State::End;
        if let Some(table) = self.run.tables.get(self.table) {
            let key = from.max(&table.smallest);
            self.block = table.index.find(key);
            self.key.clear();
            self.key.extend_from_slice(key);
            self.state = State::Before;
        }
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    fn read_block(&mut self) -> Result<(), DiskError> {
        self.at = 0;
        self.key.clear();
        self.run.tables[self.table].block(self.block, &mut self.bytes)
    }

    #[inline]
    fn read_entry(&mut self) -> Result<(), DiskError> {
        let table = &self.run.tables[self.table];
        self.value = table.step(self.block, &self.bytes, &mut self.at, &mut self.key)?;
        Ok(())
    }
}

impl Source for RunCursor {
    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        debug_assert!(self.state == State::At);
        self.value.clone().map(|range| &self.bytes[range])
    }

    fn is_loaded(&self) -> bool {
        self.state == State::At
    }

    fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    fn load(&mut self) -> Result<(), DiskError> {
        debug_assert!(self.state == State::Before);
        let from = std::mem::take(&mut self.key);
        self.read_block()?;
        loop {
            self.read_entry()?;
            if self.key >= from {
                self.state = State::At;
                return Ok(());
            }
            if self.at == self.bytes.len() {
                return Err(self.damage("the block ends before its last key"));
            }
        }
    }

    /// Reads nothing if the next entry is in another table.
    #[inline]
    fn advance(&mut self) -> Result<(), DiskError> {
        debug_assert!(self.state == State::At);
        if self.at < self.bytes.len() {
            return self.read_entry();
        }
        let tables = &self.run.tables;
        let index = &tables[self.table].index;
        // Keys within a block are in order. So are all, if each block ends with its key in the index
        // and begins behind that of the block before.
        if *self.key != *index.key(self.block) {
            return Err(self.damage("the last key differs from the one in the index"));
        }
        if self.block + 1 < index.len() {
            self.block += 1;
            self.read_block()?;
            self.read_entry()?;
            let index = &self.run.tables[self.table].index;
            if *self.key <= *index.key(self.block - 1) {
                return Err(self.damage("the first key is not greater than the last key before"));
            }
            return Ok(());
        }
        self.table += 1;
        self.block = 0;
        self.state = State::End;
        if let Some(table) = tables.get(self.table) {
            self.key.clear();
            self.key.extend_from_slice(&table.smallest);
            self.state = State::Before;
        }
        Ok(())
    }

    fn damage(&self, what: &str) -> DiskError {
        let table = &self.run.tables[self.table];
        damage(table.number, table.index.range(self.block).start, what)
    }
}
