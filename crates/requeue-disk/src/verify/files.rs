//! Lists the files of a directory by type.

use crate::disk::{Disk, DiskFile, open_file};
use crate::error::DiskError;
use crate::lock;
use crate::manifest;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::log::segment_name;
use crate::tables::table;

/// All files. Each list has (number, size) in ascending order.
#[derive(Default)]
pub(super) struct Files {
    pub(super) manifests: Vec<(u64, u64)>,
    pub(super) tables: Vec<(u64, u64)>,
    segments: Vec<(u64, u64)>,
    /// The names of all other files, except spare segments and the lock.
    pub(super) others: Vec<String>,
}

impl Files {
    pub(super) fn list(disk: &dyn Disk) -> Result<Files, DiskError> {
        let mut files = Files::default();
        for name in disk.names().map_err(DiskError::io("list", "the directory"))? {
            let of = |prefix: &str, named: &dyn Fn(u64) -> String| {
                let number = name.strip_prefix(prefix)?.parse().ok()?;
                (named(number) == name).then_some(number)
            };
            let (list, number) = if let Some(number) = of("manifest-", &manifest::name) {
                (&mut files.manifests, number)
            } else if let Some(number) = of("table-", &table::name) {
                (&mut files.tables, number)
            } else if let Some(number) = of("log-", &segment_name) {
                (&mut files.segments, number)
            } else {
                if name != lock::NAME && !name.starts_with("spare-") {
                    files.others.push(name);
                }
                continue;
            };
            let size = disk.open(&name).and_then(|file| file.size());
            list.push((number, size.map_err(DiskError::io("measure", &name))?));
        }
        for list in [&mut files.manifests, &mut files.tables, &mut files.segments] {
            list.sort_unstable();
        }
        files.others.sort_unstable();
        Ok(files)
    }

    /// Whether nothing was ever stored: there is at most an incomplete first manifest.
    pub(super) fn is_new(&self) -> bool {
        let first = self.manifests.iter().all(|(number, _)| *number == 1);
        first && self.tables.is_empty() && self.segments.is_empty()
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
