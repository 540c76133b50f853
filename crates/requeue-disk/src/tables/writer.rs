//! Writes tables: entries come in the order of their keys, files come out.

use super::Options;
use super::block;
use super::filter::{self, Filter};
use super::index::Index;
use super::keys;
use super::table::{CRC, Footer, Section, Table, crc, name};
use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are gathered before they are written.
const WRITE: usize = 1 << 20;

/// Which of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Due,
    Ids,
}

/// Where new tables get their files and numbers.
#[derive(Clone)]
pub(super) struct Maker {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: Options,
    /// The number of the next file. None is used twice, not even of a file that failed.
    pub(super) next: Arc<AtomicU64>,
}

/// Writes one run, in as many files as it takes.
///
/// Dropped without [`keep`](RunWriter::keep) it takes its files with it.
pub(super) struct RunWriter {
    maker: Maker,
    tree: Tree,
    /// Bytes beyond which it goes on in another file.
    file: u64,
    open: Option<TableWriter>,
    done: Vec<Arc<Table>>,
}

impl RunWriter {
    pub(super) fn new(maker: &Maker, tree: Tree, file: u64) -> Self {
        RunWriter { maker: maker.clone(), tree, file, open: None, done: Vec::new() }
    }

    /// Adds an entry whose key is greater than all before; no value is a tombstone.
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

    /// How many files are written and synced.
    pub(super) fn closed(&self) -> usize {
        self.done.len()
    }

    fn close(&mut self) -> Result<(), DiskError> {
        if let Some(open) = &mut self.open {
            let table = open.finish()?;
            self.done.push(Arc::new(table));
            self.open = None;
        }
        Ok(())
    }

    /// The tables, synced; their names are not.
    pub(super) fn finish(&mut self) -> Result<Vec<Arc<Table>>, DiskError> {
        self.close()?;
        Ok(self.done.clone())
    }

    /// To be called once a manifest has the tables: they stay.
    pub(super) fn keep(mut self) {
        self.done.clear();
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        let open = self.open.as_ref().map(|open| open.number);
        for number in self.done.iter().map(|table| table.number).chain(open) {
            // Where this fails the file is found, and removed, when the directory is opened.
            let _ = self.maker.disk.remove(&name(number));
        }
    }
}

struct TableWriter {
    number: u64,
    tree: Tree,
    /// How large a block may get.
    block: usize,
    file: Arc<dyn DiskFile>,
    /// What is not written yet: whole blocks, and the one that grows.
    buffer: Vec<u8>,
    /// How much is written.
    written: u64,
    /// Where in `buffer` the block that grows begins.
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
        block::append(&mut self.buffer, first, &mut self.last, key, value);
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
        let (prefix, order) = keys::split(key).expect("only due keys are put into the due tree");
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

    /// Puts the checksum behind what the buffer holds from `start` on; answers how long that is.
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
