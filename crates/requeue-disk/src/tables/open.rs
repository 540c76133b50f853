//! Opens the tables: finds the newest manifest that can be opened.

use super::files::TableFiles;
use super::ledger::Ledger;
use super::run::Run;
use super::table::{self, Table};
use super::version::Version;
use super::writer::Maker;
use super::{Options, Tables};
use crate::disk::Disk;
use crate::error::{Corrupt, DiskError};
use crate::file_names::FileNames;
use crate::manifest::{self, Manifest, RunRef, TableRef};
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

/// The result of opening the tables.
pub(crate) struct Opened {
    /// The last group of the log that the tables contain.
    pub(crate) flushed_through: u64,
    /// Kinds, settings and counters as bytes; empty in a new directory.
    pub(crate) blob: Arc<[u8]>,
    /// Why newer manifests were skipped. The log contains what they contained.
    pub(crate) notes: Vec<Corrupt>,
}

impl Tables {
    /// Opens the tables of a directory, or creates the first manifest in an empty one. Removes
    /// nothing.
    ///
    /// If a manifest or one of its tables is damaged, the manifest before is used. If none is left,
    /// fails with the damage of the newest.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Tables, Opened), DiskError> {
        let names = FileNames::list(&*disk)?;
        let files = TableFiles::new(disk.clone());
        let mut notes = Vec::new();
        let mut manifests = Vec::new();
        for &number in names.manifests.iter().rev() {
            match Manifest::read(&*disk, number) {
                Ok(manifest) => manifests.push(manifest),
                Err(DiskError::Corrupt(corrupt)) => notes.push((number, corrupt)),
                Err(error) => return Err(error),
            }
        }
        let mut chosen = None;
        for (at, manifest) in manifests.iter().enumerate() {
            match open_version(&*disk, &files, manifest, manifests.get(at + 1)) {
                Ok(version) => {
                    chosen = Some((at, version));
                    break;
                }
                Err(DiskError::Corrupt(corrupt)) => notes.push((manifest.number, corrupt)),
                Err(error) => return Err(error),
            }
        }
        notes.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let (next_manifest, next_table) = (
            after_last(&names.manifests, manifest::name)?,
            after_last(&names.tables, table::name)?,
        );
        let Some((at, version)) = chosen else {
            return match notes.into_iter().next() {
                _ if names.is_new() => Tables::create(files, disk, options),
                Some((_, corrupt)) => Err(corrupt.into()),
                None => Err(Corrupt {
                    file: manifest::name(1),
                    offset: 0,
                    what: "the file is missing, and so is every other manifest".into(),
                }
                .into()),
            };
        };
        // If the process that wrote it was killed, it may be in the page cache only.
        sync(&*disk, &manifest::name(manifests[at].number))?;
        let kept = &manifests[at..manifests.len().min(at + 2)];
        notes.retain(|(number, _)| *number > kept[0].number);
        let ledger = Ledger::new(next_manifest, kept.iter().rev(), garbage(&names, kept));
        let next_file = next_table.max(kept[0].next_file);
        let opened = Opened {
            flushed_through: version.flushed_through,
            blob: version.blob.clone(),
            notes: notes.into_iter().map(|(_, corrupt)| corrupt).collect(),
        };
        let maker = Maker { disk, files, options, next: Arc::new(AtomicU64::new(next_file)) };
        Ok((Tables::new(maker, version, ledger), opened))
    }

    /// Writes the first manifest, in place of one that is incomplete.
    fn create(
        files: Arc<TableFiles>,
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Tables, Opened), DiskError> {
        let ledger = Ledger::new(1, [], Vec::new());
        let maker = Maker { disk, files, options, next: Arc::new(AtomicU64::new(1)) };
        let tables = Tables::new(maker, Version::empty(), ledger);
        tables.commit(Version::clone)?;
        let opened = Opened { flushed_through: 0, blob: Arc::new([]), notes: Vec::new() };
        Ok((tables, opened))
    }

    fn new(maker: Maker, version: Version, ledger: Ledger) -> Tables {
        Tables {
            maker,
            current: RwLock::new(Arc::new(version)),
            released_through: AtomicU64::new(ledger.released_through()),
            ledger: Mutex::new(ledger),
            merging: Mutex::new(()),
        }
    }
}

/// The number after the last of these. Numbers that are close to their limit were never assigned.
fn after_last(numbers: &[u64], name: fn(u64) -> String) -> Result<u64, DiskError> {
    let Some(&last) = numbers.last() else { return Ok(1) };
    if last > manifest::MAX_NUMBER {
        let what = "the number of the file is too large: no store made it";
        return Err(Corrupt::new(&name(last), 0, what).into());
    }
    Ok(last + 1)
}

/// Names of manifests and tables that the kept manifests do not need.
fn garbage(names: &FileNames, kept: &[Manifest]) -> Vec<String> {
    let needed: HashSet<u64> =
        kept.iter().flat_map(Manifest::tables).map(|table| table.number).collect();
    let tables = names.tables.iter().filter(|number| !needed.contains(number));
    let is_kept = |number: &u64| kept.iter().any(|manifest| manifest.number == *number);
    let manifests = names.manifests.iter().filter(|number| !is_kept(number));
    let tables = tables.map(|&number| table::name(number));
    tables.chain(manifests.map(|&number| manifest::name(number))).collect()
}

/// Opens all tables. Those that are not in `before` are read completely, because a crash may have
/// damaged them.
fn open_version(
    disk: &dyn Disk,
    files: &Arc<TableFiles>,
    manifest: &Manifest,
    before: Option<&Manifest>,
) -> Result<Version, DiskError> {
    manifest.check().into_iter().next().map_or(Ok(()), Err)?;
    let known: HashSet<u64> =
        before.into_iter().flat_map(Manifest::tables).map(|table| table.number).collect();
    let open = |reference: &TableRef| {
        let mut table = open_table(disk, reference)?;
        table.file = files.add(table.number, table.file);
        if !known.contains(&reference.number) {
            let mut wrong = None;
            table.verify(|error| wrong = wrong.take().or(Some(error)));
            wrong.map_or(Ok(()), Err)?;
        }
        Ok::<_, DiskError>(Arc::new(table))
    };
    let version = version_of(manifest, open)?;
    version.verify_runs().into_iter().next().map_or(Ok(version), |corrupt| Err(corrupt.into()))
}

/// The version that a manifest describes, with its tables as `open` opens them.
pub(super) fn version_of<E>(
    manifest: &Manifest,
    open: impl Fn(&TableRef) -> Result<Arc<Table>, E>,
) -> Result<Version, E> {
    let open_run = |reference: &RunRef| {
        let tables = reference.tables.iter().map(&open).collect::<Result<_, E>>()?;
        Ok(Arc::new(Run { tables, ..reference.run.clone() }))
    };
    Ok(Version {
        due: manifest.due.iter().map(open_run).collect::<Result<_, E>>()?,
        ids: manifest.ids.iter().map(open_run).collect::<Result<_, E>>()?,
        range_tombstones: manifest.range_tombstones.clone(),
        flushed_through: manifest.flushed_through,
        log_end: manifest.log_end,
        live: manifest.live,
        blob: manifest.blob.clone(),
        next_flush: manifest.next_flush,
    })
}

fn sync(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    table::open(disk, name)?.sync().map_err(DiskError::io("sync", name))?;
    disk.sync_names().map_err(DiskError::io("sync", "the directory"))
}

/// Opens a table, which must be the one that the manifest lists.
pub(super) fn open_table(disk: &dyn Disk, reference: &TableRef) -> Result<Table, DiskError> {
    let table = Table::open(disk, reference.number)?;
    if (table.bytes, table.crc) != (reference.bytes, reference.crc) {
        return Err(table::damage(
            reference.number,
            0,
            "size or checksum differ from those in the manifest",
        ));
    }
    Ok(table)
}
