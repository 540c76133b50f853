//! Iterates over one run backwards.
//!
//! An entry of a block is written as its difference from the one before, so a block can only be
//! decoded forwards. It is decoded as a whole, and its entries are taken from the end.

use super::block::Value;
use super::merge::Source;
use super::run::Run;
use super::table::damage;
use crate::error::DiskError;
use std::ops::Range;
use std::sync::Arc;

/// Reads a block only when an entry of it is needed.
pub(crate) struct ReverseCursor {
    run: Arc<Run>,
    /// The iteration ends before the first key below this.
    low: Vec<u8>,
    table: usize,
    block: usize,
    bytes: Vec<u8>,
    /// The keys of the entries of the block, concatenated.
    keys: Vec<u8>,
    /// The entries of the block that are left: the ranges of the key and of the value. The last is
    /// the current one.
    entries: Vec<(Range<usize>, Value)>,
    /// Before the block is read: the key of the current entry is at most this.
    high: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The block is not read yet.
    Before,
    /// There is a current entry.
    At,
    End,
}

impl ReverseCursor {
    /// Begins at the last entry whose key is at most `high`, and ends with the first whose key is
    /// at least `low`. Reads nothing.
    pub(super) fn new(run: Arc<Run>, low: &[u8], high: &[u8]) -> ReverseCursor {
        let low = low.max(&run.from).to_vec();
        let tables = run.tables.partition_point(|table| *table.smallest <= *high);
        let mut cursor = ReverseCursor {
            low,
            table: tables.saturating_sub(1),
            block: 0,
            bytes: Vec::new(),
            keys: Vec::new(),
            entries: Vec::new(),
            high: Vec::new(),
            state: State::End,
            run,
        };
        if tables > 0 {
            let table = &cursor.run.tables[cursor.table];
            let high = high.min(&table.largest);
            // The last key of the block may be above `high`, and all others may be, too.
            cursor.block = table.index.find(high);
            cursor.high.extend_from_slice(high);
            cursor.state = if *high < *cursor.low { State::End } else { State::Before };
        }
        cursor
    }

    fn previous_block(&mut self) {
        self.state = State::End;
        if self.block > 0 {
            self.block -= 1;
        } else if self.table > 0 {
            self.table -= 1;
            self.block = self.run.tables[self.table].index.len() - 1;
        } else {
            return;
        }
        let last = self.run.tables[self.table].index.key(self.block);
        if *last >= *self.low {
            self.high.clear();
            self.high.extend_from_slice(last);
            self.state = State::Before;
        }
    }
}

impl Source for ReverseCursor {
    const DESCENDING: bool = true;

    fn key(&self) -> &[u8] {
        match self.entries.last() {
            Some((key, _)) => &self.keys[key.clone()],
            None => &self.high,
        }
    }

    fn value(&self) -> Option<&[u8]> {
        debug_assert!(self.state == State::At);
        let value = self.entries.last().and_then(|(_, value)| value.clone());
        value.map(|range| &self.bytes[range])
    }

    fn is_loaded(&self) -> bool {
        self.state == State::At
    }

    fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// Reads a block. The current entry may turn out to be in the block before.
    fn load(&mut self) -> Result<(), DiskError> {
        debug_assert!(self.state == State::Before);
        let table = &self.run.tables[self.table];
        table.block(self.block, &mut self.bytes)?;
        let (mut at, mut key) = (0, Vec::with_capacity(32));
        self.keys.clear();
        let mut count = 0;
        while at < self.bytes.len() {
            let value = table.step(self.block, &self.bytes, &mut at, &mut key)?;
            if count == 0 && self.block > 0 && *key <= *table.index.key(self.block - 1) {
                return Err(self.damage("the first key is not greater than the last key before"));
            }
            count += 1;
            if (&*self.low..=&*self.high).contains(&&*key) {
                let start = self.keys.len();
                self.keys.extend_from_slice(&key);
                self.entries.push((start..self.keys.len(), value));
            }
        }
        if *key != *table.index.key(self.block) {
            return Err(self.damage("the last key differs from the one in the index"));
        }
        self.state = State::At;
        if self.entries.is_empty() {
            self.previous_block();
        }
        Ok(())
    }

    /// Reads nothing.
    fn advance(&mut self) -> Result<(), DiskError> {
        debug_assert!(self.state == State::At);
        self.entries.pop();
        if self.entries.is_empty() {
            self.previous_block();
        }
        Ok(())
    }

    fn damage(&self, what: &str) -> DiskError {
        let table = &self.run.tables[self.table];
        damage(table.number, table.index.range(self.block).start, what)
    }
}
