//! Writes the tables of a run from entries in the order of their keys.

use super::Options;
use super::block;
use super::files::TableFiles;
use super::filter::{self, Filter};
use super::index::Index;
use super::keys;
use super::table::{CRC, Footer, Section, Table, crc, damage, name};
use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are buffered before they are written.
const WRITE: usize = 1 << 20;

/// Which of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Due,
    Ids,
}

/// Creates the files of new tables.
#[derive(Clone)]
pub(super) struct Maker {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) files: Arc<TableFiles>,
    pub(super) options: Options,
    /// The number of the next file. No number is used twice, not even after a failure.
    pub(super) next: Arc<AtomicU64>,
}

/// Writes one run, in as many files as it takes.
///
/// If it is dropped without [`keep`](RunWriter::keep), its files are removed.
pub(super) struct RunWriter {
    maker: Maker,
    tree: Tree,
    /// The size at which the next file begins.
    file: u64,
    open: Option<TableWriter>,
    done: Vec<Arc<Table>>,
}

impl RunWriter {
    pub(super) fn new(maker: &Maker, tree: Tree, file: u64) -> Self {
        RunWriter { maker: maker.clone(), tree, file, open: None, done: Vec::new() }
    }

    /// Adds an entry whose key must be greater than all before. Without a value it is a tombstone.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DiskError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(TableWriter::create(&self.maker, self.tree)?),
        };
        open.push(key, value)?;
        if open.bytes() >= self.file {
            self.close()?;
        }
        Ok(())
    }

    /// The number of files that are written and synced.
    pub(super) fn closed(&self) -> usize {
        self.done.len()
    }

    fn close(&mut self) -> Result<(), DiskError> {
        if let Some(open) = &mut self.open {
            let mut table = open.finish()?;
            table.file = self.maker.files.add(table.number, table.file);
            self.done.push(Arc::new(table));
            self.open = None;
        }
        Ok(())
    }

    /// The tables. Their contents are synced, their names are not.
    pub(super) fn finish(&mut self) -> Result<Vec<Arc<Table>>, DiskError> {
        self.close()?;
        Ok(self.done.clone())
    }

    /// Keeps the files. To be called when a manifest lists the tables.
    pub(super) fn keep(mut self) {
        self.done.clear();
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        let open = self.open.as_ref().map(|open| open.number);
        for number in self.done.iter().map(|table| table.number).chain(open) {
            // If this fails, the next open removes the file.
            let _ = self.maker.disk.remove(&name(number));
        }
    }
}

struct TableWriter {
    number: u64,
    tree: Tree,
    /// The size at which a block ends.
    block: usize,
    file: Arc<dyn DiskFile>,
    /// Bytes that are not written yet: complete blocks, and the current one.
    buffer: Vec<u8>,
    /// The number of bytes written.
    written: u64,
    /// The offset in `buffer` at which the current block begins.
    block_at: usize,
    last: Vec<u8>,
    entries: u64,
    tombstones: u64,
    smallest: Vec<u8>,
    sections: Vec<Section>,
    index: Index,
    hashes: Vec<u64>,
}

impl TableWriter {
    fn create(maker: &Maker, tree: Tree) -> Result<Self, DiskError> {
        let number = maker.next.fetch_add(1, Ordering::Relaxed);
        let name = name(number);
        let file = maker.disk.create(&name).map_err(DiskError::io("create", &name))?;
        let block = match tree {
            Tree::Due => maker.options.due_block,
            Tree::Ids => maker.options.ids_block,
        };
        Ok(TableWriter {
            number,
            tree,
            block,
            file,
            buffer: Vec::with_capacity(WRITE + WRITE / 8),
            written: 0,
            block_at: 0,
            last: Vec::new(),
            entries: 0,
            tombstones: 0,
            smallest: Vec::new(),
            sections: Vec::new(),
            index: Index::default(),
            hashes: Vec::new(),
        })
    }

    fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DiskError> {
        if self.entries == 0 {
            self.smallest = key.to_vec();
        }
        let first = self.buffer.len() == self.block_at;
        let valid = self.tree == Tree::Ids || key.len() == keys::DUE_KEY;
        let appended = block::append(&mut self.buffer, first, &mut self.last, key, value);
        if !valid || appended.is_err() {
            let what = "its entries are out of order: a file that they were read from is damaged";
            return Err(damage(self.number, self.bytes(), what));
        }
        self.entries += 1;
        self.tombstones += u64::from(value.is_none());
        match self.tree {
            Tree::Ids => self.hashes.push(filter::hash(key)),
            Tree::Due => self.count(key),
        }
        if self.buffer.len() - self.block_at >= self.block {
            self.end_block()?;
        }
        Ok(())
    }

    fn count(&mut self, key: &[u8]) {
        let (prefix, order) = keys::split(key).expect("the length of the key was checked");
        match self.sections.last_mut() {
            Some(section) if section.prefix == prefix => {
                section.last = order;
                section.entries += 1;
            }
            _ => self.sections.push(Section { prefix, first: order, last: order, entries: 1 }),
        }
    }

    fn end_block(&mut self) -> Result<(), DiskError> {
        let length = self.seal(self.block_at);
        self.index.push(&self.last, length);
        self.block_at = self.buffer.len();
        if self.block_at >= WRITE { self.write() } else { Ok(()) }
    }

    /// Appends the checksum of the bytes from `start` on. Returns their length.
    fn seal(&mut self, start: usize) -> u64 {
        let crc = crc(self.number, self.written + start as u64, &self.buffer[start..]);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        (self.buffer.len() - start) as u64
    }

    fn write(&mut self) -> Result<(), DiskError> {
        let written = self.file.write_at(&self.buffer, self.written);
        written.map_err(DiskError::io("write", &name(self.number)))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.block_at = 0;
        Ok(())
    }

    fn finish(&mut self) -> Result<Table, DiskError> {
        if self.buffer.len() > self.block_at {
            self.end_block()?;
        }
        let start = self.buffer.len();
        self.index.encode(&mut self.buffer);
        let index_len = self.seal(start);
        let filter = (self.tree == Tree::Ids).then(|| Filter::new(&self.hashes));
        let start = self.buffer.len();
        let filter_len = match &filter {
            Some(filter) => {
                filter.encode(&mut self.buffer);
                self.seal(start)
            }
            None => 0,
        };
        debug_assert!(index_len > CRC as u64);
        let footer = Footer {
            number: self.number,
            entries: self.entries,
            tombstones: self.tombstones,
            index_len,
            filter_len,
            smallest: mem::take(&mut self.smallest),
            largest: mem::take(&mut self.last),
            sections: mem::take(&mut self.sections),
        };
        let (bytes, crc) = footer.encode(self.bytes());
        self.buffer.extend_from_slice(&bytes);
        self.write()?;
        self.file.sync().map_err(DiskError::io("sync", &name(self.number)))?;
        self.index.shrink();
        Ok(Table {
            number: self.number,
            file: self.file.clone(),
            bytes: self.written,
            crc,
            entries: footer.entries,
            tombstones: footer.tombstones,
            smallest: footer.smallest,
            largest: footer.largest,
            sections: footer.sections,
            index: mem::take(&mut self.index),
            filter,
        })
    }
}
