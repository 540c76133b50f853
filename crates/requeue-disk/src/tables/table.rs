//! A table: one file of sorted entries that never changes.
//!
//! ```text
//!   block | crc    any number of blocks, in the order of their keys
//!   index | crc
//!   filter | crc   only in the ids tree
//!   footer:  file number, entries, tombstones, length of index, length of filter   u64 LE
//!            smallest key, largest key                                  varint length, bytes
//!            sections: number of them varint, then prefix, first, last; entries varint
//!   tail:    crc of footer and tail | length of footer | format   u32 LE,  magic 8 bytes
//! ```
//!
//! Each crc also covers the file's number and the offset of the covered bytes. So bytes that were
//! moved, within a file or to another, are detected like bytes that were changed.

use super::block::{self, Value};
use super::filter::Filter;
use super::index::Index;
use super::keys::{Order, Prefix, due_key};
use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError};
use crate::format::{self, FORMAT};
use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"rq-tab\r\n";

/// Bytes of the tail: crc, length, format and magic.
const TAIL: usize = 20;

/// Bytes of a checksum.
pub(super) const CRC: usize = 4;

pub(crate) fn name(number: u64) -> String {
    format!("table-{number:010}")
}

/// One table, open. Its index and filter are in memory; blocks are read when they are needed.
pub(crate) struct Table {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    /// The size of the file.
    pub(crate) bytes: u64,
    /// The crc in the tail, which identifies the table in manifests.
    pub(crate) crc: u32,
    /// Including tombstones.
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    /// The entries of each prefix, in order; empty in the ids tree.
    pub(super) sections: Vec<Section>,
    pub(super) index: Index,
    pub(super) filter: Option<Filter>,
}

/// The entries of one kind and list in a table of the due tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    pub(super) prefix: Prefix,
    pub(super) first: Order,
    pub(super) last: Order,
    pub(super) entries: u64,
}

pub(super) fn crc(number: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc_from(number, offset);
    hasher.update(bytes);
    hasher.finalize()
}

/// A checksum of bytes at an offset, before the first of them.
pub(super) fn crc_from(number: u64, offset: u64) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher
}

/// Fills `bytes` from the file. If the file ends too early, the error is damage and not an I/O
/// error.
pub(crate) fn read(
    file: &dyn DiskFile,
    name: impl Fn() -> String,
    bytes: &mut [u8],
    offset: u64,
) -> Result<(), DiskError> {
    file.read_at(bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Corrupt { file: name(), offset, what: "the file ends too early".into() }.into()
        }
        _ => DiskError::read(&name(), offset)(error),
    })
}

/// Opens a file. If it is missing, the error is damage and not an I/O error.
pub(crate) fn open(disk: &dyn Disk, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
    disk.open(name).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Corrupt { file: name.into(), offset: 0, what: "the file is missing".into() }.into()
        }
        _ => DiskError::io("open", name)(error),
    })
}

/// The end of a table, which is read first.
pub(super) struct TableEnd {
    pub(super) file: Arc<dyn DiskFile>,
    /// The size of the file.
    pub(super) bytes: u64,
    /// The crc in the tail.
    pub(super) crc: u32,
    pub(super) footer: Footer,
    /// Where the index, the filter and the footer begin.
    pub(super) index_at: u64,
    filter_at: u64,
    pub(super) footer_at: u64,
}

impl TableEnd {
    /// Opens a table, and reads and checks its tail and footer.
    pub(super) fn read(disk: &dyn Disk, number: u64) -> Result<TableEnd, DiskError> {
        let name = name(number);
        let file = open(disk, &name)?;
        let bytes = file.size().map_err(DiskError::io("measure", &name))?;
        let damaged = |offset: u64, what: &str| damage(number, offset, what);

        let Some(tail_at) = bytes.checked_sub(TAIL as u64) else {
            return Err(damaged(bytes, "the file ends too early"));
        };
        let mut tail = [0; TAIL];
        read(&*file, || name.clone(), &mut tail, tail_at)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| tail[at + i]));
        let (tail_crc, footer_len, format) = (word(0), word(4), word(8));
        let Some(footer_at) = tail_at.checked_sub(footer_len.into()) else {
            return Err(damaged(tail_at, "the footer is longer than the file"));
        };
        let mut footer = vec![0; footer_len as usize];
        read(&*file, || name.clone(), &mut footer, footer_at)?;
        footer.extend_from_slice(&tail[CRC..]);
        if crc(number, footer_at, &footer) != tail_crc {
            return Err(damaged(footer_at, "the checksum of the footer is wrong"));
        }
        format::check(&name, MAGIC, &tail[12..], format)?;
        footer.truncate(footer_len as usize);
        let footer = Footer::decode(&footer)
            .ok()
            .filter(|footer| footer.number == number)
            .ok_or_else(|| damaged(footer_at, "the footer is malformed"))?;
        let filter_at = footer_at.checked_sub(footer.filter_len);
        let index_at = filter_at.and_then(|at| at.checked_sub(footer.index_len));
        let (Some(filter_at), Some(index_at)) = (filter_at, index_at) else {
            return Err(damaged(footer_at, "index and filter are longer than the file"));
        };
        Ok(TableEnd { file, bytes, crc: tail_crc, footer, index_at, filter_at, footer_at })
    }
}

impl Table {
    /// Opens a table and checks its footer, index and filter, but no block.
    pub(crate) fn open(disk: &dyn Disk, number: u64) -> Result<Table, DiskError> {
        Table::open_at(TableEnd::read(disk, number)?, number)
    }

    /// Checks index and filter of a table.
    pub(super) fn open_at(end: TableEnd, number: u64) -> Result<Table, DiskError> {
        let name = name(number);
        let damaged = |offset: u64, what: &str| damage(number, offset, what);
        let TableEnd { file, bytes, crc: tail_crc, footer, index_at, filter_at, footer_at } = end;
        let section = |offset: u64, end: u64, what: &str| {
            let mut bytes = vec![0; (end - offset) as usize];
            read(&*file, || name.clone(), &mut bytes, offset)?;
            check(number, offset, &mut bytes)
                .map_err(|()| damaged(offset, &format!("the checksum of the {what} is wrong")))?;
            Ok::<_, DiskError>(bytes)
        };
        let index = section(index_at, filter_at, "index")?;
        let index = Index::decode(&index)
            .filter(|index| index.end() == index_at && index.len() > 0)
            .ok_or_else(|| damaged(index_at, "the index is malformed"))?;
        let filter = if footer.filter_len == 0 {
            None
        } else {
            let filter = section(filter_at, footer_at, "filter")?;
            let filter = Filter::decode(&filter);
            Some(filter.ok_or_else(|| damaged(filter_at, "the filter is malformed"))?)
        };
        let last = index.key(index.len() - 1);
        let fits = *footer.largest == *last && *footer.smallest <= *index.key(0);
        if !fits || !footer.is_plausible(index_at, filter.is_some()) {
            return Err(damaged(footer_at, "the footer does not match the rest of the table"));
        }
        let mut table = Table {
            number,
            file,
            bytes,
            crc: tail_crc,
            entries: footer.entries,
            tombstones: footer.tombstones,
            smallest: footer.smallest,
            largest: footer.largest,
            sections: footer.sections,
            index,
            filter,
        };
        table.index.shrink();
        Ok(table)
    }

    /// Whether the key is between the smallest and the largest key of the table.
    pub(super) fn spans(&self, key: &[u8]) -> bool {
        *self.smallest <= *key && *key <= *self.largest
    }

    /// Reads the entries of a block into `bytes`, whose capacity is reused.
    pub(super) fn block(&self, block: usize, bytes: &mut Vec<u8>) -> Result<(), DiskError> {
        let range = self.index.range(block);
        bytes.resize((range.end - range.start) as usize, 0);
        read(&*self.file, || name(self.number), bytes, range.start)?;
        check(self.number, range.start, bytes)
            .map_err(|()| damage(self.number, range.start, "the checksum of the block is wrong"))
    }

    /// The entry of a key: its block, and the range of the value in the block.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Value)>, DiskError> {
        let number = self.index.find(key);
        if number == self.index.len() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.block(number, &mut bytes)?;
        let (mut at, mut found) = (0, Vec::with_capacity(key.len() + 64));
        while at < bytes.len() {
            let value = self.step(number, &bytes, &mut at, &mut found)?;
            match found.as_slice().cmp(key) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some((bytes, value))),
                Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    /// Reads the next entry of a block that [`block`](Table::block) read.
    #[inline]
    pub(super) fn step(
        &self,
        block: usize,
        bytes: &[u8],
        at: &mut usize,
        key: &mut Vec<u8>,
    ) -> Result<Value, DiskError> {
        let start = *at;
        block::step(bytes, at, key).map_err(|_| {
            damage(
                self.number,
                self.index.range(block).start + start as u64,
                "the entry is malformed",
            )
        })
    }

    /// Its size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::bytes);
        self.index.bytes() + filter + self.sections.len() * size_of::<Section>()
    }
}

pub(super) fn damage(number: u64, offset: u64, what: &str) -> DiskError {
    Corrupt { file: name(number), offset, what: what.into() }.into()
}

/// Removes the checksum from the end of `bytes`, which were read at `offset`, if it is correct.
pub(super) fn check(number: u64, offset: u64, bytes: &mut Vec<u8>) -> Result<(), ()> {
    let length = bytes.len().checked_sub(CRC).ok_or(())?;
    let expected = crc(number, offset, &bytes[..length]);
    if bytes[length..] != expected.to_le_bytes() {
        return Err(());
    }
    bytes.truncate(length);
    Ok(())
}

pub(super) struct Footer {
    pub(super) number: u64,
    pub(super) entries: u64,
    pub(super) tombstones: u64,
    /// Including its checksum.
    pub(super) index_len: u64,
    /// Including its checksum; 0 if there is none.
    pub(super) filter_len: u64,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    pub(super) sections: Vec<Section>,
}

impl Footer {
    /// The bytes of footer and tail, to be written at `offset`, and their checksum.
    pub(super) fn encode(&self, offset: u64) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        let numbers = [self.number, self.entries, self.tombstones, self.index_len, self.filter_len];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        for key in [&self.smallest, &self.largest] {
            put_bytes(&mut bytes, key);
        }
        put_number(&mut bytes, self.sections.len() as u64);
        for section in &self.sections {
            bytes.extend_from_slice(&section.prefix);
            bytes.extend_from_slice(&section.first);
            bytes.extend_from_slice(&section.last);
            put_number(&mut bytes, section.entries);
        }
        let length = bytes.len();
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        let crc = crc(self.number, offset, &bytes);
        bytes.splice(length..length, crc.to_le_bytes());
        (bytes, crc)
    }

    /// Whether the numbers can be those of a table with so many bytes of blocks. Others rely on
    /// it: that counts do not overflow, and that sections are sorted.
    fn is_plausible(&self, blocks: u64, has_filter: bool) -> bool {
        // An entry has at least three bytes.
        if self.entries == 0 || self.entries > blocks / 3 || self.tombstones > self.entries {
            return false;
        }
        let (Some(first), Some(last)) = (self.sections.first(), self.sections.last()) else {
            return has_filter;
        };
        let sorted = self.sections.windows(2).all(|pair| pair[0].prefix < pair[1].prefix);
        let ordered = self.sections.iter().all(|section| section.first <= section.last);
        let counts = self.sections.iter().map(|section| section.entries);
        let counted = counts.fold(0, u64::saturating_add) == self.entries;
        let ends = *self.smallest == due_key(first.prefix, first.first)
            && *self.largest == due_key(last.prefix, last.last);
        !has_filter && sorted && ordered && counted && ends
    }

    fn decode(bytes: &[u8]) -> Result<Footer, Malformed> {
        let mut bytes = Bytes::new(bytes);
        let mut number = || bytes.fixed().map(u64::from_le_bytes);
        let (file, entries, tombstones) = (number()?, number()?, number()?);
        let (index_len, filter_len) = (number()?, number()?);
        let (smallest, largest) = (bytes.bytes()?.to_vec(), bytes.bytes()?.to_vec());
        let mut sections = Vec::new();
        for _ in 0..bytes.number()? {
            let prefix = bytes.fixed()?;
            let (first, last) = (bytes.fixed()?, bytes.fixed()?);
            sections.push(Section { prefix, first, last, entries: bytes.number()? });
        }
        bytes.end()?;
        Ok(Footer {
            number: file,
            entries,
            tombstones,
            index_len,
            filter_len,
            smallest,
            largest,
            sections,
        })
    }
}
