//! Reads what is left of damaged tables.
//!
//! ```text
//!   keys of a run   ........|........|XXXXXXXX|........|........XXXXXXXX|........
//!                     block    block    lost     block    block    lost    block
//! ```
//!
//! A run becomes a sequence of parts, each with its last key. A part is a block that was read and
//! checked, or it is lost. So for each key it is known whether its entry may be lost. If an entry
//! of the ids tree may be lost, older entries of the same id prove nothing.
//!
//! A table whose index, filter or footer is damaged loses nothing: its blocks are found one after
//! the other, because a block ends where its checksum matches.

use super::block::{self, Value};
use super::index::Index;
use super::keys::{self, IdKey, JobLocation, ListPosition};
use super::range_tombstones::RangeTombstones;
use super::table::{self, CRC, Table, TableEnd};
use super::writer::Tree;
use crate::bytes::varint;
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError, chain};
use crate::manifest::{Manifest, RunRef, TableRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The largest block that is searched for without an index: a job with its successor, and the
/// other jobs of a block.
const MAX_BLOCK: u64 = 16 << 20;

/// The largest index, filter and footer together that is searched without a footer.
const MAX_END: u64 = 64 << 20;

/// Bytes of a table that cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct LostPart {
    pub(crate) file: String,
    pub(crate) bytes: Range<u64>,
    pub(crate) what: String,
    pub(crate) tree: Tree,
    /// The lost keys are greater than this one, and not greater than `upto`. `None`: unknown.
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) upto: Option<Vec<u8>>,
}

/// What is left of the tables of a manifest.
#[derive(Default)]
pub(crate) struct SalvagedTables {
    /// The oldest run first.
    due: Vec<SalvagedRun>,
    ids: Vec<SalvagedRun>,
    range_tombstones: RangeTombstones,
    pub(crate) lost: Vec<LostPart>,
    /// Damage that loses nothing.
    pub(crate) harmless: Vec<Corrupt>,
}

struct SalvagedRun {
    lo: u64,
    hi: u64,
    /// Keys below this one are in another run.
    from: Vec<u8>,
    /// Sorted by their last keys.
    parts: Vec<Part>,
}

struct Part {
    last: Vec<u8>,
    /// `None`: lost.
    block: Option<Block>,
}

#[derive(Clone)]
struct Block {
    file: Arc<dyn DiskFile>,
    table: u64,
    bytes: Range<u64>,
}

/// The entry of an id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundId {
    At(JobLocation),
    Absent,
    /// The entry may be lost.
    Unknown,
}

/// The value at a location.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundJob {
    Value(Vec<u8>),
    /// It is in a part that is lost.
    Lost,
    /// It is not where the ids tree refers to, though nothing is lost there.
    Absent,
}

/// Tables that were read, by number. Manifests share most of their tables.
#[derive(Default)]
pub(crate) struct TableCache {
    tables: HashMap<(u64, u64, u32), Arc<TableParts>>,
}

impl SalvagedTables {
    /// Reads all tables of a manifest. Fails if a newer version wrote one of them.
    pub(crate) fn read(
        disk: &dyn Disk,
        manifest: &Manifest,
        cache: &mut TableCache,
    ) -> Result<SalvagedTables, DiskError> {
        let mut tables = SalvagedTables {
            due: Vec::new(),
            ids: Vec::new(),
            range_tombstones: manifest.range_tombstones.clone(),
            lost: Vec::new(),
            harmless: Vec::new(),
        };
        for run in &manifest.due {
            let run = tables.read_run(disk, Tree::Due, run, cache)?;
            tables.due.push(run);
        }
        for run in &manifest.ids {
            let run = tables.read_run(disk, Tree::Ids, run, cache)?;
            tables.ids.push(run);
        }
        Ok(tables)
    }

    fn read_run(
        &mut self,
        disk: &dyn Disk,
        tree: Tree,
        reference: &RunRef,
        cache: &mut TableCache,
    ) -> Result<SalvagedRun, DiskError> {
        let mut parts: Vec<Part> = Vec::new();
        // Where parts begin that reach up to the next table.
        let mut open_from: Option<usize> = None;
        for table in &reference.tables {
            let key = (table.number, table.bytes, table.crc);
            let read = match cache.tables.get(&key) {
                Some(read) => read.clone(),
                None => {
                    let read = Arc::new(TableParts::read(disk, tree, table)?);
                    cache.tables.insert(key, read.clone());
                    read
                }
            };
            self.harmless.extend(read.harmless.iter().cloned());
            if let (Some(first), Some(open)) = (&read.first, open_from.take()) {
                let upto = below(first);
                parts[open..].iter_mut().for_each(|part| part.last.clone_from(&upto));
            }
            for part in &read.parts {
                let mut last_key = parts.last().map(|part| part.last.clone());
                if open_from.is_some() {
                    last_key = None;
                }
                if part.block.is_none() {
                    self.lost.push(LostPart {
                        file: table::name(table.number),
                        bytes: part.bytes.clone(),
                        what: part.what.clone(),
                        tree,
                        after: last_key,
                        upto: part.last.clone(),
                    });
                }
                if part.last.is_none() {
                    open_from.get_or_insert(parts.len());
                }
                let last = part.last.clone().unwrap_or_default();
                parts.push(Part { last, block: part.block.clone() });
            }
        }
        if let Some(open) = open_from {
            parts[open..].iter_mut().for_each(|part| part.last = vec![u8::MAX; 1024]);
        }
        // Tables that overlap cannot be searched. Only a crafted manifest has them.
        let mut highest: Vec<u8> = Vec::new();
        for part in &mut parts {
            if part.last < highest {
                part.last.clone_from(&highest);
                part.block = None;
            }
            highest.clone_from(&part.last);
        }
        let run = &reference.run;
        Ok(SalvagedRun { lo: run.lo, hi: run.hi, from: run.from.clone(), parts })
    }

    /// How many bytes are lost.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|part| part.bytes.end.saturating_sub(part.bytes.start).max(1)).sum()
    }

    /// Whether a part of the ids tree is lost.
    pub(crate) fn lacks_ids(&self) -> bool {
        self.ids.iter().any(SalvagedRun::lacks_any)
    }

    fn is_deleted(&self, kind: u32, location: &JobLocation) -> bool {
        let order = keys::order(location.at, location.seq);
        self.range_tombstones.covers(&keys::prefix(kind, location.list), &order, location.flush)
    }

    /// Searches a job by its id.
    pub(crate) fn find(&self, kind: u32, id: &str) -> Result<FoundId, DiskError> {
        let Some(key) = IdKey::new(kind, id) else { return Ok(FoundId::Absent) };
        for run in self.ids.iter().rev() {
            match run.get(key.bytes())? {
                Got::Nothing => {}
                Got::Lost => return Ok(FoundId::Unknown),
                Got::Tombstone => return Ok(FoundId::Absent),
                Got::Value(value) => {
                    let Some(location) = JobLocation::decode(&value) else {
                        return Ok(FoundId::Unknown);
                    };
                    let deleted = self.is_deleted(kind, &location);
                    return Ok(if deleted { FoundId::Absent } else { FoundId::At(location) });
                }
            }
        }
        Ok(FoundId::Absent)
    }

    /// Whether the entry of this id may be lost.
    fn is_unknown(&self, kind: u32, id: &str) -> Result<bool, DiskError> {
        let Some(key) = IdKey::new(kind, id) else { return Ok(false) };
        // Most ids are not near a lost part, which is known without reading anything.
        if !self.ids.iter().any(|run| run.lacks(key.bytes())) {
            return Ok(false);
        }
        Ok(self.find(kind, id)? == FoundId::Unknown)
    }

    /// Reads the value at a location.
    pub(crate) fn read_job(
        &self,
        kind: u32,
        location: &JobLocation,
    ) -> Result<FoundJob, DiskError> {
        let order = keys::order(location.at, location.seq);
        let key = keys::due_key(keys::prefix(kind, location.list), order);
        let mut found = FoundJob::Absent;
        for run in self.due.iter().filter(|run| (run.lo..=run.hi).contains(&location.flush)) {
            match run.get(&key)? {
                Got::Value(value) => return Ok(FoundJob::Value(value)),
                Got::Lost => found = FoundJob::Lost,
                Got::Nothing | Got::Tombstone => {}
            }
        }
        Ok(found)
    }

    /// The ids of a kind that are greater than `after`, with their locations, in order. Ids whose
    /// entries may be lost are left out.
    pub(crate) fn ids<'a>(&'a self, kind: u32, after: Option<&str>) -> SalvagedIds<'a> {
        let mut key = kind.to_be_bytes().to_vec();
        if let Some(after) = after {
            key.extend_from_slice(after.as_bytes());
            key.push(0);
        }
        SalvagedIds { tables: self, kind, merge: RunMerge::new(&self.ids, &key) }
    }

    /// The entries of a kind in the due tree that are not deleted, in order.
    pub(crate) fn entries<'a>(&'a self, kind: u32) -> SalvagedEntries<'a> {
        let merge = RunMerge::new(&self.due, &kind.to_be_bytes());
        SalvagedEntries { tables: self, kind, merge }
    }

    /// The same entries, beginning with those of this list.
    pub(crate) fn entries_of<'a>(&'a self, kind: u32, list: u8) -> SalvagedEntries<'a> {
        let merge = RunMerge::new(&self.due, &keys::prefix(kind, list));
        SalvagedEntries { tables: self, kind, merge }
    }

    /// Passes the jobs of a kind whose ids may be lost to `each`: the number of the run, the larger
    /// the newer, the id as bytes, and the location.
    pub(crate) fn unindexed(
        &self,
        kind: u32,
        id_of: impl Fn(&[u8]) -> Option<String>,
        mut each: impl FnMut(usize, String, JobLocation),
    ) -> Result<(), DiskError> {
        if !self.lacks_ids() {
            return Ok(());
        }
        let mut entries = self.entries(kind);
        while let Some(entry) = entries.next()? {
            let Some(id) = id_of(entry.value) else { continue };
            if entry.position.list != crate::state::SCHEDULES && self.is_unknown(kind, &id)? {
                each(entry.age, id, entry.position.in_flush(entry.flush));
            }
        }
        Ok(())
    }
}

/// The greatest key that is less than this one and can be in a table.
fn below(key: &[u8]) -> Vec<u8> {
    let mut below = key.to_vec();
    if let Some(last) = below.pop().filter(|last| *last > 0) {
        below.push(last - 1);
        below.extend_from_slice(&[u8::MAX; 600]);
    }
    below
}

enum Got {
    Value(Vec<u8>),
    Tombstone,
    Nothing,
    /// The key is in a part that is lost.
    Lost,
}

impl SalvagedRun {
    fn lacks_any(&self) -> bool {
        self.parts.iter().any(|part| part.block.is_none())
    }

    fn part(&self, key: &[u8]) -> Option<&Part> {
        if !self.from.is_empty() && *key < *self.from {
            return None;
        }
        self.parts.get(self.parts.partition_point(|part| *part.last < *key))
    }

    /// Whether the entry of this key may be lost.
    fn lacks(&self, key: &[u8]) -> bool {
        self.part(key).is_some_and(|part| part.block.is_none())
    }

    fn get(&self, key: &[u8]) -> Result<Got, DiskError> {
        let Some(part) = self.part(key) else { return Ok(Got::Nothing) };
        let Some(block) = &part.block else { return Ok(Got::Lost) };
        let bytes = block.read()?;
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let Ok(value) = block::step(&bytes, &mut at, &mut found) else { break };
            if found.as_slice() == key {
                return Ok(match value {
                    Some(range) => Got::Value(bytes[range].to_vec()),
                    None => Got::Tombstone,
                });
            }
        }
        Ok(Got::Nothing)
    }
}

impl Block {
    fn read(&self) -> Result<Vec<u8>, DiskError> {
        let name = table::name(self.table);
        let mut bytes = vec![0; (self.bytes.end - self.bytes.start) as usize];
        table::read(&*self.file, || name.clone(), &mut bytes, self.bytes.start)?;
        table::check(self.table, self.bytes.start, &mut bytes).map_err(|()| {
            table::damage(self.table, self.bytes.start, "the checksum of the block is wrong")
        })?;
        Ok(bytes)
    }
}

// Merging runs.

/// Iterates over the readable parts of several runs as if they were one.
struct RunMerge<'a> {
    runs: &'a [SalvagedRun],
    /// One for each run.
    cursors: Vec<PartCursor<'a>>,
    /// The key of the last entry that was returned; at first, the key to begin with.
    key: Vec<u8>,
    begun: bool,
}

struct PartCursor<'a> {
    run: &'a SalvagedRun,
    part: usize,
    bytes: Vec<u8>,
    at: usize,
    /// The key of the current entry; `None` at the end.
    key: Option<Vec<u8>>,
    value: Value,
}

impl<'a> PartCursor<'a> {
    fn new(run: &'a SalvagedRun, from: &[u8]) -> Self {
        let part = run.parts.partition_point(|part| *part.last < *from.max(&run.from));
        PartCursor { run, part, bytes: Vec::new(), at: 0, key: Some(Vec::new()), value: None }
    }

    fn advance(&mut self) -> Result<(), DiskError> {
        while let Some(key) = &mut self.key {
            if self.at < self.bytes.len() {
                if let Ok(value) = block::step(&self.bytes, &mut self.at, key) {
                    self.value = value;
                    return Ok(());
                }
                self.at = self.bytes.len();
            }
            key.clear();
            let Some(part) = self.run.parts.get(self.part) else {
                self.key = None;
                break;
            };
            self.part += 1;
            self.at = 0;
            self.bytes.clear();
            if let Some(block) = &part.block {
                self.bytes = block.read()?;
            }
        }
        Ok(())
    }

    /// Moves to the first entry whose key is at least `from`.
    fn begin(&mut self, from: &[u8]) -> Result<(), DiskError> {
        let from = from.max(&self.run.from);
        self.advance()?;
        while self.key.as_deref().is_some_and(|key| key < from) {
            self.advance()?;
        }
        Ok(())
    }
}

impl<'a> RunMerge<'a> {
    fn new(runs: &'a [SalvagedRun], from: &[u8]) -> Self {
        let cursors = runs.iter().map(|run| PartCursor::new(run, from)).collect();
        RunMerge { runs, cursors, key: from.to_vec(), begun: false }
    }

    /// The number of the newest run that has the next key.
    fn next(&mut self) -> Result<Option<usize>, DiskError> {
        let begun = std::mem::replace(&mut self.begun, true);
        for cursor in &mut self.cursors {
            if !begun {
                cursor.begin(&self.key)?;
            } else if cursor.key.as_ref() == Some(&self.key) {
                cursor.advance()?;
            }
        }
        let keys = self.cursors.iter().enumerate();
        let keys = keys.filter_map(|(run, cursor)| Some((cursor.key.as_ref()?, run)));
        let Some((key, run)) = keys.min_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1))) else {
            return Ok(None);
        };
        self.key.clone_from(key);
        Ok(Some(run))
    }

    fn value(&self, run: usize) -> Option<&[u8]> {
        let cursor = &self.cursors[run];
        cursor.value.clone().map(|range| &cursor.bytes[range])
    }
}

/// The ids of a kind. See [`SalvagedTables::ids`].
pub(crate) struct SalvagedIds<'a> {
    tables: &'a SalvagedTables,
    kind: u32,
    merge: RunMerge<'a>,
}

impl SalvagedIds<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<(String, JobLocation)>, DiskError> {
        while let Some(run) = self.merge.next()? {
            let key = &self.merge.key;
            let Some(id) = key.strip_prefix(&self.kind.to_be_bytes()[..]) else { break };
            // A newer entry may be lost.
            if self.merge.runs[run + 1..].iter().any(|newer| newer.lacks(key)) {
                continue;
            }
            let location = self.merge.value(run).and_then(JobLocation::decode);
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
    flush: u64,
    pub(crate) value: &'a [u8],
}

/// The entries of a kind. See [`SalvagedTables::entries`].
pub(crate) struct SalvagedEntries<'a> {
    tables: &'a SalvagedTables,
    kind: u32,
    merge: RunMerge<'a>,
}

impl SalvagedEntries<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<SalvagedEntry<'_>>, DiskError> {
        while let Some(run) = self.merge.next()? {
            let Some((prefix, order)) = keys::split(&self.merge.key) else { continue };
            if prefix[..4] != self.kind.to_be_bytes() {
                break;
            }
            let (at, seq) = keys::at_and_seq(order);
            let position = ListPosition { list: prefix[4], at, seq };
            let flush = self.merge.runs[run].hi;
            let deleted = self.tables.is_deleted(self.kind, &position.in_flush(flush));
            if deleted || self.merge.value(run).is_none() {
                continue;
            }
            let value = self.merge.value(run).unwrap_or_default();
            return Ok(Some(SalvagedEntry { position, age: run, flush, value }));
        }
        Ok(None)
    }
}

// Reading one table.

/// The parts of a table.
struct TableParts {
    /// The smallest key, if it is known.
    first: Option<Vec<u8>>,
    parts: Vec<TablePart>,
    harmless: Vec<Corrupt>,
}

struct TablePart {
    /// `None`: unknown, because the rest of the table is lost.
    last: Option<Vec<u8>>,
    bytes: Range<u64>,
    /// `None`: lost, for the reason in `what`.
    block: Option<Block>,
    what: String,
}

impl TableParts {
    /// A table of which nothing can be read.
    fn lost(bytes: u64, what: String) -> TableParts {
        let part = TablePart { last: None, bytes: 0..bytes, block: None, what };
        TableParts { first: None, parts: vec![part], harmless: Vec::new() }
    }

    /// Fails only if a version with another format wrote the table.
    fn read(disk: &dyn Disk, tree: Tree, reference: &TableRef) -> Result<TableParts, DiskError> {
        let number = reference.number;
        let end = match TableEnd::read(disk, number) {
            Ok(end) => Some(end),
            Err(error) if error.is_other_version() => return Err(error),
            Err(DiskError::Corrupt(corrupt)) if corrupt.what != "the file is missing" => {
                return Ok(TableParts::without_footer(disk, tree, reference, corrupt));
            }
            Err(DiskError::Corrupt(corrupt)) => {
                return Ok(TableParts::lost(reference.bytes, corrupt.what));
            }
            Err(error) => return Ok(TableParts::lost(reference.bytes, chain(&error))),
        };
        let Some(end) = end else { return Ok(TableParts::lost(reference.bytes, String::new())) };
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
                if stopped == index_at {
                    reader.harmless.push(named(error, number, index_at));
                } else {
                    let corrupt = named(error, number, index_at);
                    reader.harmless.push(corrupt);
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

fn named(error: DiskError, number: u64, offset: u64) -> Corrupt {
    match error {
        DiskError::Corrupt(corrupt) => corrupt,
        error => Corrupt::new(&table::name(number), offset, chain(&error)),
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
