//! Tracks which manifests can be opened, and which files can be removed.

use super::table;
use super::version::Version;
use super::writer::Maker;
use crate::disk::Disk;
use crate::error::DiskError;
use crate::manifest::{self, Manifest};
use std::collections::{HashSet, VecDeque};

/// Manifests that can be opened: the newest, and the one before.
const KEPT: usize = 2;

pub(super) struct Ledger {
    /// The number of the next manifest. No number is used twice, not even after a failure.
    next: u64,
    /// The newest last.
    kept: VecDeque<Kept>,
    /// Names of files that nothing needs.
    garbage: Vec<String>,
    /// Numbers of tables that no manifest needs. A version may still contain them.
    old_tables: Vec<u64>,
}

struct Kept {
    number: u64,
    flushed_through: u64,
    tables: HashSet<u64>,
}

impl Ledger {
    /// `kept` has the newest manifest last.
    pub(super) fn new<'a>(
        next: u64,
        kept: impl IntoIterator<Item = &'a Manifest>,
        garbage: Vec<String>,
    ) -> Ledger {
        let kept = kept.into_iter().map(|manifest| Kept {
            number: manifest.number,
            flushed_through: manifest.flushed_through,
            tables: manifest.tables().map(|table| table.number).collect(),
        });
        Ledger { next, kept: kept.collect(), garbage, old_tables: Vec::new() }
    }

    /// If only one manifest is kept, no group of the log is released.
    pub(super) fn released_through(&self) -> u64 {
        let oldest = self.kept.front().filter(|_| self.kept.len() == KEPT);
        oldest.map_or(0, |kept| kept.flushed_through)
    }

    /// Whether another manifest like the newest would make files free: those that only the manifest
    /// before it needs.
    pub(super) fn keeps_old_files(&self) -> bool {
        let (Some(old), Some(newest)) = (self.kept.front(), self.kept.back()) else { return false };
        old.flushed_through < newest.flushed_through || !old.tables.is_subset(&newest.tables)
    }

    /// Writes and syncs a manifest, its name, and the names of its tables, whose contents must be
    /// synced. If a crash leaves the manifest but not a table, the manifest is skipped, in the same
    /// way as one whose table is incomplete.
    pub(super) fn write(
        &mut self,
        disk: &dyn Disk,
        version: &Version,
        next_file: u64,
    ) -> Result<(), DiskError> {
        let new = self.write_new(disk, version, next_file)?;
        self.kept.push_back(new);
        while self.kept.len() > KEPT {
            let Some(old) = self.kept.pop_front() else { break };
            self.garbage.push(manifest::name(old.number));
            let needed = |table: &u64| self.kept.iter().any(|kept| kept.tables.contains(table));
            let unneeded = old.tables.iter().filter(|table| !needed(table));
            self.old_tables.extend(unneeded);
        }
        Ok(())
    }

    /// Writes and syncs a manifest in place of the newest one, whose tables it has. The manifest
    /// before the newest is still the second of the two that can be opened.
    pub(super) fn replace(
        &mut self,
        disk: &dyn Disk,
        version: &Version,
        next_file: u64,
    ) -> Result<(), DiskError> {
        let new = self.write_new(disk, version, next_file)?;
        let old = self.kept.pop_back();
        self.garbage.extend(old.map(|old| manifest::name(old.number)));
        self.kept.push_back(new);
        Ok(())
    }

    fn write_new(
        &mut self,
        disk: &dyn Disk,
        version: &Version,
        next_file: u64,
    ) -> Result<Kept, DiskError> {
        let number = self.next;
        self.next += 1;
        let name = manifest::name(number);
        if let Err(error) = write(disk, &name, &manifest::encode(number, version, next_file)) {
            self.garbage.push(name);
            return Err(error);
        }
        Ok(Kept {
            number,
            flushed_through: version.flushed_through,
            tables: version.tables().map(|table| table.number).collect(),
        })
    }

    /// Removes files that nothing needs. If removing a file fails, it is tried again next time.
    pub(super) fn sweep(&mut self, maker: &Maker) {
        let unused = self.old_tables.extract_if(.., |table| !maker.files.is_used(*table));
        self.garbage.extend(unused.map(table::name));
        self.garbage.retain(|name| match maker.disk.remove(name) {
            Ok(()) => false,
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        });
    }
}

fn write(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
    let file = disk.create(name).map_err(DiskError::io("create", name))?;
    file.write_at(bytes, 0).map_err(DiskError::io("write", name))?;
    file.sync().map_err(DiskError::io("sync", name))?;
    disk.sync_names().map_err(DiskError::io("sync", "the directory"))
}
