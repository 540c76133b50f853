//! Backup of a store that is in use.
//!
//! Between two groups the writer takes a snapshot: the list of tables, and the segments of the log
//! with their lengths. Files of a snapshot stay readable while they are open. So the caller's
//! thread does the copying, and the store's threads do not wait for it.
//!
//! ```text
//!   segments, tables ──▶ synced, their names too ──▶ read again ──▶ manifest ──▶ synced
//! ```
//!
//! A directory that has files but no manifest is not a store. If the copying ends early, for
//! whatever reason, opening the directory fails, or the directory is empty.

use crate::disk::{Directory, Disk, DiskFile};
use crate::error::DiskError;
use crate::lock::{self, Lock};
use crate::log::{self, SegmentView};
use crate::manifest;
use crate::progress::{ByteProgress, Meter};
use crate::tables::{Version, check_copy, table};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are copied with one read and one write.
const CHUNK: usize = 1 << 20;

/// The number of a backup's manifest. It must not be 1: if manifest 1 is incomplete, the directory
/// counts as a new store without jobs, because manifest 1 is the first file of a new store.
const MANIFEST: u64 = 2;

/// A completed backup, as returned by [`DiskStore::backup`](crate::DiskStore::backup).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The number of files.
    pub files: usize,
    /// The number of bytes that were copied.
    pub bytes: u64,
}

/// The files of the store between two groups.
pub(crate) struct Snapshot {
    pub(crate) version: Arc<Version>,
    /// The part of the log that is newer than the tables.
    pub(crate) segments: Vec<SegmentView>,
}

impl Snapshot {
    fn bytes(&self) -> u64 {
        let tables = self.version.tables().map(|table| table.bytes);
        let segments = self.segments.iter().map(|segment| segment.bytes);
        tables.chain(segments).sum()
    }

    /// Copies the snapshot to a directory, which must be empty or not exist.
    pub(crate) fn copy_into(
        &self,
        to: &Path,
        progress: impl FnMut(ByteProgress),
    ) -> Result<Backup, DiskError> {
        let name = to.display().to_string();
        // Before the lock is created: nothing is written to a directory that is not ours.
        let entries = || fs::read_dir(to)?.map(|entry| Ok(entry?.file_name())).collect();
        let names: io::Result<Vec<_>> = if to.exists() { entries() } else { Ok(Vec::new()) };
        if names.map_err(DiskError::io("read", &name))?.iter().any(|name| name != lock::NAME) {
            return Err(DiskError::NotEmpty { directory: name });
        }
        let disk = Directory::new(to).map_err(DiskError::io("create", &name))?;
        let _nobody_opens_half_of_it = Lock::take(to)?;
        self.copy_to(&disk, &name, progress)
    }

    /// Copies the snapshot to a disk, which must be empty.
    pub(crate) fn copy_to(
        &self,
        disk: &dyn Disk,
        name: &str,
        mut progress: impl FnMut(ByteProgress),
    ) -> Result<Backup, DiskError> {
        let names = disk.names().map_err(DiskError::io("list", name))?;
        if names.iter().any(|name| name != lock::NAME) {
            return Err(DiskError::NotEmpty { directory: name.to_owned() });
        }
        let (bytes, free) = (self.bytes(), disk.free().map_err(DiskError::io("measure", name))?);
        if free < bytes {
            let what = format!("the backup needs {bytes} bytes, but only {free} are free");
            let full = io::Error::new(io::ErrorKind::StorageFull, what);
            return Err(DiskError::io("copy to", name)(full));
        }
        let mut copy = Copy { disk, meter: Meter::new(bytes, &mut progress), made: Vec::new() };
        if let Err(error) = copy.run(self) {
            copy.undo();
            return Err(error);
        }
        let files = copy.made.len();
        copy.meter.end();
        Ok(Backup { files, bytes })
    }
}

struct Copy<'a> {
    disk: &'a dyn Disk,
    meter: Meter<'a>,
    /// The names of the files that were begun, in that order.
    made: Vec<String>,
}

impl Copy<'_> {
    fn run(&mut self, from: &Snapshot) -> Result<(), DiskError> {
        for segment in &from.segments {
            self.begin(&segment.name)?;
            segment.copy_to(self.disk)?;
            self.meter.add(segment.bytes);
        }
        for table in from.version.tables() {
            let name = table::name(table.number);
            self.begin(&name)?;
            self.copy(&*table.file, table.bytes, &name)?;
        }
        self.sync_names()?;
        self.check(from)?;
        let next_table = from.version.tables().map(|table| table.number + 1).max();
        let bytes = manifest::encode(MANIFEST, &from.version, next_table.unwrap_or(1));
        let name = manifest::name(MANIFEST);
        self.made.push(name.clone());
        let file = self.disk.create(&name).map_err(DiskError::io("create", &name))?;
        file.write_at(&bytes, 0).map_err(DiskError::io("write", &name))?;
        file.sync().map_err(DiskError::io("sync", &name))?;
        self.sync_names()
    }

    /// Notes the name of the next file. The name of the first file is synced immediately: from then
    /// on the directory does not look like an empty one.
    fn begin(&mut self, name: &str) -> Result<(), DiskError> {
        self.made.push(name.to_owned());
        if self.made.len() == 1 {
            self.disk.create(name).map_err(DiskError::io("create", name))?;
            self.sync_names()?;
        }
        Ok(())
    }

    fn copy(&mut self, from: &dyn DiskFile, bytes: u64, name: &str) -> Result<(), DiskError> {
        let to = self.disk.create(name).map_err(DiskError::io("create", name))?;
        let mut buffer = vec![0; CHUNK.min(bytes as usize)];
        let mut offset = 0;
        while offset < bytes {
            let chunk = &mut buffer[..CHUNK.min((bytes - offset) as usize)];
            from.read_at(chunk, offset).map_err(DiskError::read(name, offset))?;
            to.write_at(chunk, offset).map_err(DiskError::io("write", name))?;
            offset += chunk.len() as u64;
            self.meter.add(chunk.len() as u64);
        }
        to.sync().map_err(DiskError::io("sync", name))
    }

    /// Reads the copy, so that damage is found now and not when the backup is needed.
    fn check(&self, from: &Snapshot) -> Result<(), DiskError> {
        from.version.tables().try_for_each(|table| check_copy(self.disk, table))?;
        let mut wrong = None;
        let segments = SegmentView::all(self.disk)?;
        log::verify(&segments, from.version.flushed_through, |each| {
            wrong = wrong.take().or(each.err());
        })?;
        wrong.map_or(Ok(()), |corrupt| Err(corrupt.into()))
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        self.disk.sync_names().map_err(DiskError::io("sync", "the directory of the backup"))
    }

    /// Removes the copied files, the manifest first. Opening the files that cannot be removed
    /// fails.
    fn undo(&mut self) {
        for name in self.made.drain(..).rev() {
            let _ = self.disk.remove(&name);
        }
    }
}
