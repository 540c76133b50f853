//! Reads tables completely and reports all damage.

use super::keys::{self, JobLocation, ListPosition};
use super::merge::{Merge, Source};
use super::open::{open_table, version_of};
use super::run::{Run, RunCursor};
use super::table::{self, Section, Table, damage};
use super::version::Version;
use super::{Tree, filter};
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::manifest::{Manifest, TableRef};
use std::collections::HashMap;
use std::sync::Arc;

/// A decoded entry of a table.
pub(crate) enum Entry<'a> {
    /// An entry of the due tree; without a value it is a tombstone.
    Due { kind: u32, position: ListPosition, value: Option<&'a [u8]> },
    /// An entry of the ids tree; without a location it is a tombstone.
    Id { kind: u32, id: &'a str, location: Option<JobLocation> },
}

impl<'a> Entry<'a> {
    fn decode(tree: Tree, key: &'a [u8], value: Option<&'a [u8]>) -> Result<Self, &'static str> {
        match tree {
            Tree::Due => {
                let (prefix, order) =
                    keys::split(key).ok_or("the key is not valid in the due tree")?;
                let ([a, b, c, d, list], (at, seq)) = (prefix, keys::at_and_seq(order));
                let kind = u32::from_be_bytes([a, b, c, d]);
                Ok(Entry::Due { kind, position: ListPosition { list, at, seq }, value })
            }
            Tree::Ids => {
                let (kind, id) =
                    key.split_first_chunk().ok_or("the key is not valid in the ids tree")?;
                let id = str::from_utf8(id).map_err(|_| "the id is not valid UTF-8")?;
                let location = value.map(|value| {
                    JobLocation::decode(value).ok_or("the location of a job is malformed")
                });
                Ok(Entry::Id {
                    kind: u32::from_be_bytes(*kind),
                    id,
                    location: location.transpose()?,
                })
            }
        }
    }
}

/// The tables of several manifests, each read completely, and their damage.
#[derive(Default)]
pub(crate) struct Checked {
    /// The tables that can be opened.
    tables: HashMap<u64, Arc<Table>>,
    wrong: HashMap<u64, Wrong>,
}

/// The damage of a table.
#[derive(Default)]
struct Wrong {
    all: Vec<Corrupt>,
    /// Whether some of it is found without decoding entries. A store that opens the table does not
    /// decode them either.
    torn: bool,
}

impl Checked {
    /// Reads the tables of a manifest, except those that were read for another. Calls `check` for
    /// every entry, with its run.
    pub(crate) fn read(
        &mut self,
        disk: &dyn Disk,
        manifest: &Manifest,
        mut check: impl FnMut(&Run, Entry<'_>) -> Result<(), String>,
        mut read: impl FnMut(u64),
    ) {
        for (tree, runs) in [(Tree::Due, &manifest.due), (Tree::Ids, &manifest.ids)] {
            for run in runs {
                for reference in &run.tables {
                    if self.wrong.contains_key(&reference.number) {
                        continue;
                    }
                    let mut wrong = Wrong::default();
                    let check = |entry: Entry<'_>| check(&run.run, entry);
                    let table = check_table(disk, tree, reference, check, &mut wrong);
                    self.tables.extend(table.map(|table| (reference.number, Arc::new(table))));
                    self.wrong.insert(reference.number, wrong);
                    read(reference.bytes);
                }
            }
        }
    }

    /// The number of tables.
    pub(crate) fn count(&self) -> usize {
        self.wrong.len()
    }

    /// The damage of a table.
    pub(crate) fn wrong(&self, table: u64) -> &[Corrupt] {
        self.wrong.get(&table).map_or(&[], |wrong| &wrong.all)
    }

    /// The version that a store would open with this manifest; `None` if it would skip it. `before`
    /// is the manifest before, whose tables a store does not read completely.
    pub(crate) fn version(
        &self,
        manifest: &Manifest,
        before: Option<&Manifest>,
    ) -> Option<Version> {
        let trusted = |table: &TableRef| {
            before.is_some_and(|before| before.tables().any(|other| other.number == table.number))
        };
        let torn = |table: &TableRef| self.wrong.get(&table.number).is_none_or(|wrong| wrong.torn);
        let sound = |table: TableRef| trusted(&table) || !torn(&table);
        let open = |table: &TableRef| self.tables.get(&table.number).cloned().ok_or(());
        manifest.tables().all(sound).then(|| version_of(manifest, open).ok()).flatten()
    }
}

fn check_table(
    disk: &dyn Disk,
    tree: Tree,
    reference: &TableRef,
    mut check: impl FnMut(Entry<'_>) -> Result<(), String>,
    wrong: &mut Wrong,
) -> Option<Table> {
    let name = table::name(reference.number);
    let table = match open_table(disk, reference) {
        Ok(table) => table,
        Err(error) => {
            (wrong.torn, wrong.all) = (true, vec![error.into_corrupt(&name, 0)]);
            return None;
        }
    };
    if table.tree() != tree {
        (wrong.torn, wrong.all) =
            (true, vec![Corrupt::new(&name, 0, "the table belongs to the other tree")]);
        return None;
    }
    let mut senseless = 0;
    let check = |entry: Entry<'_>| check(entry).inspect_err(|_| senseless += 1);
    table.verify_entries(check, |error, at| wrong.all.push(error.into_corrupt(&name, at)));
    wrong.torn = wrong.all.len() > senseless;
    Some(table)
}

/// Checks the copy of a table on another disk. Fails with the first damage.
pub(crate) fn check_copy(disk: &dyn Disk, table: &Table) -> Result<(), DiskError> {
    let Table { number, bytes, crc, .. } = *table;
    let mut wrong = None;
    open_table(disk, &TableRef { number, bytes, crc })?
        .verify(|error| wrong = wrong.take().or(Some(error)));
    wrong.map_or(Ok(()), Err)
}

impl Version {
    /// The damage of all tables: checksums, the order of keys, and the counts of footers.
    pub(crate) fn verify(&self) -> Vec<DiskError> {
        let mut wrong = Vec::new();
        for run in self.due.iter().chain(&self.ids) {
            run.tables.iter().for_each(|table| table.verify(|error| wrong.push(error)));
        }
        wrong.extend(self.verify_runs().into_iter().map(DiskError::from));
        wrong
    }

    /// Errors in the order of tables within their runs.
    pub(crate) fn verify_runs(&self) -> Vec<Corrupt> {
        let pairs = self.due.iter().chain(&self.ids).flat_map(|run| run.tables.windows(2));
        let overlap = pairs.filter(|pair| pair[0].largest >= pair[1].smallest);
        let what = "the table overlaps with the table before it";
        overlap.map(|pair| Corrupt::new(&table::name(pair[1].number), 0, what)).collect()
    }

    /// Passes every entry of a tree that is not deleted to `each`, in the order of keys. For an
    /// entry of the ids tree it adds the first and last flush of the run that contains the job, if
    /// any.
    pub(crate) fn walk(
        &self,
        tree: Tree,
        mut each: impl FnMut(Entry<'_>, Option<(u64, u64)>, &dyn Fn(&str) -> DiskError),
    ) -> Result<(), DiskError> {
        let source = |run: &Arc<Run>| RunCursor::new(run.clone(), &[]);
        let sources = self.runs(tree).iter().rev().map(source);
        let mut merge = Merge::new(sources.collect(), Vec::new());
        while merge.next()? {
            let source = merge.source();
            let entry = Entry::decode(tree, source.key(), source.value());
            let entry = entry.map_err(|what| source.damage(what))?;
            let flushes = match &entry {
                Entry::Due { value: None, .. } | Entry::Id { location: None, .. } => continue,
                Entry::Due { kind, position, .. } => {
                    if self.is_deleted(*kind, &position.in_flush(source.run().hi)) {
                        continue;
                    }
                    Some((source.run().lo, source.run().hi))
                }
                Entry::Id { kind, location: Some(location), .. } => {
                    if self.is_deleted(*kind, location) {
                        continue;
                    }
                    self.runs_of(*kind, location).next().map(|run| (run.lo, run.hi))
                }
            };
            each(entry, flushes, &|what| source.damage(what));
        }
        Ok(())
    }
}

impl Table {
    /// Reads the whole table and passes all damage to `wrong`.
    pub(crate) fn verify(&self, mut wrong: impl FnMut(DiskError)) {
        self.verify_entries(|_| Ok(()), |error, _| wrong(error));
    }

    /// The same, and calls `check` for every entry. Damage comes with its offset.
    pub(crate) fn verify_entries(
        &self,
        mut check: impl FnMut(Entry<'_>) -> Result<(), String>,
        mut wrong: impl FnMut(DiskError, u64),
    ) {
        let mut sums = Sums::default();
        let mut sound = true;
        let (mut bytes, mut key, mut last) = (Vec::new(), Vec::new(), None::<Vec<u8>>);
        for block in 0..self.index.len() {
            let offset = self.index.range(block).start;
            if let Err(error) = self.block(block, &mut bytes) {
                sound = false;
                wrong(error, offset);
                continue;
            }
            let mut at = 0;
            key.clear();
            while at < bytes.len() {
                let here = offset + at as u64;
                let value = match self.step(block, &bytes, &mut at, &mut key) {
                    Ok(value) => value,
                    Err(error) => {
                        sound = false;
                        wrong(error, here);
                        break;
                    }
                };
                if last.as_ref().is_some_and(|last| *last >= key) {
                    let what = "the key is not greater than the key before";
                    wrong(damage(self.number, here, what), here);
                }
                let entry = Entry::decode(self.tree(), &key, value.clone().map(|at| &bytes[at]));
                let checked = entry.map_err(str::to_owned).and_then(&mut check);
                if let Err(what) = self.in_filter(&key).map_err(str::to_owned).and(checked) {
                    wrong(damage(self.number, here, &what), here);
                }
                sums.add(&key, value.is_none(), !self.sections.is_empty());
                last.get_or_insert_default().clone_from(&key);
            }
            if last.as_deref() != Some(self.index.key(block)) {
                let what = "the last key differs from the one in the index";
                wrong(damage(self.number, offset, what), offset);
                last = Some(self.index.key(block).to_vec());
            }
        }
        let counted = (sums.entries, sums.tombstones) == (self.entries, self.tombstones);
        let ends =
            (&sums.first, last) == (&Some(self.smallest.clone()), Some(self.largest.clone()));
        if sound && !(counted && ends && sums.sections == self.sections) {
            let end = self.index.end();
            wrong(
                damage(self.number, end, "the counts in the footer do not match the entries"),
                end,
            );
        }
    }

    /// Only tables of the ids tree have a filter.
    fn tree(&self) -> Tree {
        if self.filter.is_some() { Tree::Ids } else { Tree::Due }
    }

    fn in_filter(&self, key: &[u8]) -> Result<(), &'static str> {
        match &self.filter {
            Some(filter) if !filter.has(filter::hash(key)) => {
                Err("the key is missing in the filter")
            }
            _ => Ok(()),
        }
    }
}

/// The counts of the footer, computed from the entries.
#[derive(Default)]
struct Sums {
    entries: u64,
    tombstones: u64,
    first: Option<Vec<u8>>,
    sections: Vec<Section>,
}

impl Sums {
    fn add(&mut self, key: &[u8], tombstone: bool, sections: bool) {
        self.entries += 1;
        self.tombstones += u64::from(tombstone);
        self.first.get_or_insert_with(|| key.to_vec());
        let Some((prefix, order)) = keys::split(key).filter(|_| sections) else { return };
        match self.sections.last_mut() {
            Some(section) if section.prefix == prefix => {
                section.last = order;
                section.entries += 1;
            }
            _ => self.sections.push(Section { prefix, first: order, last: order, entries: 1 }),
        }
    }
}
