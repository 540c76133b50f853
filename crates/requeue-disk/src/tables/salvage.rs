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

mod parts;
mod scan;

use super::block;
use super::keys::{self, IdKey, JobLocation};
use super::range_tombstones::RangeTombstones;
use super::table;
use super::writer::Tree;
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::manifest::{Manifest, RunRef};
use parts::{Block, TableParts};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

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
    /// Reads all tables of a manifest. Fails if a version with another format wrote one of them.
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
