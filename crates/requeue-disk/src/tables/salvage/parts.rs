//! Reads the parts of one table that are left.
//!
//! If the index, the filter or the footer is damaged, the blocks are found one after the other,
//! because a block ends where its checksum matches.

use crate::bytes::varint;
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError, chain};
use crate::manifest::TableRef;
use crate::tables::block;
use crate::tables::index::Index;
use crate::tables::keys;
use crate::tables::table::{self, CRC, Table, TableEnd};
use crate::tables::writer::Tree;
use std::ops::Range;
use std::sync::Arc;

/// The largest block that is searched for without an index: a job with its successor, and the
/// other jobs of a block.
const MAX_BLOCK: u64 = 16 << 20;

/// The largest index, filter and footer together that is searched without a footer.
const MAX_END: u64 = 64 << 20;

/// The parts of a table.
pub(super) struct TableParts {
    /// The smallest key, if it is known.
    pub(super) first: Option<Vec<u8>>,
    pub(super) parts: Vec<TablePart>,
    pub(super) harmless: Vec<Corrupt>,
}

pub(super) struct TablePart {
    /// `None`: unknown, because the rest of the table is lost.
    pub(super) last: Option<Vec<u8>>,
    pub(super) bytes: Range<u64>,
    /// `None`: lost, for the reason in `what`.
    pub(super) block: Option<Block>,
    pub(super) what: String,
}

#[derive(Clone)]
pub(super) struct Block {
    file: Arc<dyn DiskFile>,
    pub(super) table: u64,
    pub(super) bytes: Range<u64>,
}

impl Block {
    pub(super) fn read(&self) -> Result<Vec<u8>, DiskError> {
        let name = table::name(self.table);
        let mut bytes = vec![0; (self.bytes.end - self.bytes.start) as usize];
        table::read(&*self.file, || name.clone(), &mut bytes, self.bytes.start)?;
        table::check(self.table, self.bytes.start, &mut bytes).map_err(|()| {
            table::damage(self.table, self.bytes.start, "the checksum of the block is wrong")
        })?;
        Ok(bytes)
    }
}

impl TableParts {
    /// A table of which nothing can be read.
    fn lost(bytes: u64, what: String) -> TableParts {
        let part = TablePart { last: None, bytes: 0..bytes, block: None, what };
        TableParts { first: None, parts: vec![part], harmless: Vec::new() }
    }

    /// Fails only if a version with another format wrote the table.
    pub(super) fn read(
        disk: &dyn Disk,
        tree: Tree,
        reference: &TableRef,
    ) -> Result<TableParts, DiskError> {
        let number = reference.number;
        let end = match TableEnd::read(disk, number) {
            Ok(end) => end,
            Err(error) if error.is_other_version() => return Err(error),
            Err(DiskError::Corrupt(corrupt)) if corrupt.what != "the file is missing" => {
                return Ok(TableParts::without_footer(disk, tree, reference, corrupt));
            }
            Err(DiskError::Corrupt(corrupt)) => {
                return Ok(TableParts::lost(reference.bytes, corrupt.what));
            }
            Err(error) => return Ok(TableParts::lost(reference.bytes, chain(&error))),
        };
        if (end.bytes, end.crc) != (reference.bytes, reference.crc) {
            let what = "size or checksum differ from those in the manifest";
            return Ok(TableParts::lost(end.bytes, what.to_owned()));
        }
        let mut reader = TableReader::new(tree, number, end.file.clone());
        let (index_at, footer_at) = (end.index_at, end.footer_at);
        let (smallest, largest) = (end.footer.smallest.clone(), end.footer.largest.clone());
        match Table::open_at(end, number) {
            Ok(table) => {
                for block in 0..table.index.len() {
                    reader.block(table.index.range(block), Some(table.index.key(block)));
                }
            }
            Err(error) => {
                let stopped = reader.search(index_at);
                reader.harmless.push(error.into_corrupt(&table::name(number), index_at));
                if stopped < index_at {
                    let what = "without the index, nothing behind a damaged block can be found";
                    reader.lose(stopped..footer_at, Some(&largest), what.to_owned());
                }
            }
        }
        let (parts, harmless) = (reader.parts, reader.harmless);
        Ok(TableParts { first: Some(smallest), parts, harmless })
    }

    /// The blocks of a table whose footer is damaged.
    fn without_footer(
        disk: &dyn Disk,
        tree: Tree,
        reference: &TableRef,
        corrupt: Corrupt,
    ) -> TableParts {
        let opened = disk.open(&table::name(reference.number));
        let Ok((file, size)) = opened.and_then(|file| file.size().map(|size| (file, size))) else {
            return TableParts::lost(reference.bytes, corrupt.what);
        };
        let mut reader = TableReader::new(tree, reference.number, file);
        let stopped = reader.search(size);
        if stopped > 0 && reader.is_index(stopped, size) {
            reader.harmless.push(corrupt);
        } else {
            reader.lose(stopped..size.max(reference.bytes), None, corrupt.what);
        }
        let TableReader { first, parts, harmless, .. } = reader;
        TableParts { first, parts, harmless }
    }
}

/// Collects the parts of a table.
struct TableReader {
    tree: Tree,
    number: u64,
    file: Arc<dyn DiskFile>,
    /// The first key of the first block.
    first: Option<Vec<u8>>,
    /// The last key so far.
    last: Option<Vec<u8>>,
    parts: Vec<TablePart>,
    harmless: Vec<Corrupt>,
}

impl TableReader {
    fn new(tree: Tree, number: u64, file: Arc<dyn DiskFile>) -> Self {
        let (first, last, parts, harmless) = (None, None, Vec::new(), Vec::new());
        TableReader { tree, number, file, first, last, parts, harmless }
    }

    fn lose(&mut self, bytes: Range<u64>, last: Option<&[u8]>, what: String) {
        self.last = last.map(<[u8]>::to_vec).or(self.last.take());
        self.parts.push(TablePart { last: last.map(<[u8]>::to_vec), bytes, block: None, what });
    }

    /// Reads a block. If it cannot be used, it is lost up to `last`.
    fn block(&mut self, bytes: Range<u64>, last: Option<&[u8]>) {
        let block = Block { file: self.file.clone(), table: self.number, bytes: bytes.clone() };
        let checked = match block.read() {
            Ok(read) => self.check(&read, last).map_err(str::to_owned),
            Err(DiskError::Corrupt(corrupt)) => Err(corrupt.what),
            Err(error) => Err(chain(&error)),
        };
        match checked {
            Ok((first, found)) => {
                self.first.get_or_insert(first);
                self.last = Some(found.clone());
                let (last, what) = (Some(found), String::new());
                self.parts.push(TablePart { last, bytes, block: Some(block), what });
            }
            Err(what) => self.lose(bytes, last, what),
        }
    }

    /// The first and the last key of a block, if its entries are valid and follow those before.
    fn check(
        &self,
        bytes: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let (mut at, mut key, mut first) = (0, Vec::new(), None);
        let mut before = self.last.clone();
        while at < bytes.len() {
            block::step(bytes, &mut at, &mut key).map_err(|_| "the entry is malformed")?;
            if before.as_ref().is_some_and(|before| *before >= key) {
                return Err("the key is not greater than the key before");
            }
            let valid = match self.tree {
                Tree::Due => key.len() == keys::DUE_KEY,
                Tree::Ids => key.len() > 4 && str::from_utf8(&key[4..]).is_ok(),
            };
            if !valid {
                return Err("the key is not valid in this tree");
            }
            first.get_or_insert_with(|| key.clone());
            before.get_or_insert_default().clone_from(&key);
        }
        let first = first.ok_or("the block is empty")?;
        if expected.is_some_and(|expected| *expected != *key) {
            return Err("the last key differs from the one in the index");
        }
        Ok((first, key))
    }

    /// Searches blocks without an index, one after the other, up to `end`. Returns where it stops.
    fn search(&mut self, end: u64) -> u64 {
        let mut at = 0;
        while at < end {
            let Some(length) = self.block_at(at, end) else { break };
            self.block(at..at + length, None);
            if self.parts.last().is_some_and(|part| part.block.is_none()) {
                self.parts.pop();
                break;
            }
            at += length;
        }
        at
    }

    /// The length of the block that begins here: it ends after the entry behind which its checksum
    /// follows.
    fn block_at(&self, start: u64, end: u64) -> Option<u64> {
        let limit = (end - start).min(MAX_BLOCK) as usize;
        let mut window = Vec::new();
        let (mut at, mut key) = (0, Vec::new());
        let mut sum = table::crc_from(self.number, start);
        let grow = |window: &mut Vec<u8>| {
            let (have, want) = (window.len(), (window.len() * 2).max(32 << 10).min(limit));
            window.resize(want, 0);
            let read = self.file.read_at(&mut window[have..], start + have as u64);
            (want > have && read.is_ok()).then_some(())
        };
        loop {
            let mut next = at;
            if block::step(&window, &mut next, &mut key).is_err() {
                grow(&mut window)?;
                continue;
            }
            sum.update(&window[at..next]);
            at = next;
            while window.len() < at + CRC {
                grow(&mut window)?;
            }
            if window[at..at + CRC] == sum.clone().finalize().to_le_bytes() {
                return Some((at + CRC) as u64);
            }
        }
    }

    /// Whether the index begins here: then all blocks were found.
    fn is_index(&self, start: u64, end: u64) -> bool {
        let mut bytes = vec![0; (end - start).min(MAX_END) as usize];
        if self.file.read_at(&mut bytes, start).is_err() {
            return false;
        }
        let mut sum = table::crc_from(self.number, start);
        let mut at = 0;
        loop {
            let mut next = at;
            let entry = || -> Option<usize> {
                let key = usize::try_from(varint(&bytes, &mut next)?).ok()?;
                next = next.checked_add(key)?;
                varint(&bytes, &mut next)?;
                Some(next)
            };
            let Some(next) = { entry }() else { return false };
            sum.update(&bytes[at..next]);
            at = next;
            let Some(found) = bytes.get(at..at + CRC) else { return false };
            if *found == sum.clone().finalize().to_le_bytes() {
                return Index::decode(&bytes[..at]).is_some_and(|index| index.end() == start);
            }
        }
    }
}
