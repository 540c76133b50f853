//! Lists the files of a directory by type.

use crate::disk::{Disk, DiskFile, open_file};
use crate::error::DiskError;
use crate::file_names::FileNames;
use crate::lock;
use crate::log::segment_name;
use crate::manifest;
use crate::tables::table;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All files. Each list has (number, size) in ascending order.
pub(super) struct Files {
    /// Whether nothing was ever stored.
    pub(super) is_new: bool,
    pub(super) manifests: Vec<(u64, u64)>,
    pub(super) tables: Vec<(u64, u64)>,
    segments: Vec<(u64, u64)>,
    /// The names of all other files, except spare segments and the lock.
    pub(super) others: Vec<String>,
}

impl Files {
    pub(super) fn list(disk: &dyn Disk) -> Result<Files, DiskError> {
        let sized = |numbers: Vec<u64>, name: fn(u64) -> String| {
            let size = |number| {
                let name = name(number);
                let size = disk.open(&name).and_then(|file| file.size());
                Ok((number, size.map_err(DiskError::io("measure", &name))?))
            };
            numbers.into_iter().map(size).collect::<Result<_, DiskError>>()
        };
        let mut names = FileNames::list(disk)?;
        names.others.retain(|name| name != lock::NAME && !name.starts_with("spare-"));
        Ok(Files {
            is_new: names.is_new(),
            manifests: sized(names.manifests, manifest::name)?,
            tables: sized(names.tables, table::name)?,
            segments: sized(names.segments, segment_name)?,
            others: names.others,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        let all = self.manifests.iter().chain(&self.tables).chain(&self.segments);
        all.map(|(_, bytes)| bytes).sum()
    }

    /// The number of bytes to read. Tables are read twice.
    pub(super) fn to_read(&self) -> u64 {
        self.bytes() + self.tables.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    pub(super) fn last_segment(&self) -> Option<String> {
        self.segments.last().map(|(number, _)| segment_name(*number))
    }
}

/// A read-only directory of the file system.
pub(crate) struct ReadOnly {
    path: PathBuf,
}

impl ReadOnly {
    /// Fails if the directory does not exist: it is not created.
    pub(crate) fn new(path: &Path) -> Result<Self, DiskError> {
        fs::read_dir(path).map_err(DiskError::io("open", &path.display().to_string()))?;
        Ok(ReadOnly { path: path.to_owned() })
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "the directory was opened for reading only",
    ))
}

impl Disk for ReadOnly {
    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        refused()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(open_file(File::options().read(true), &self.path.join(name))?))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        fs::read_dir(&self.path)?.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn sync_names(&self) -> io::Result<()> {
        refused()
    }

    fn free(&self) -> io::Result<u64> {
        Ok(0)
    }
}
