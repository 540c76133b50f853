//! The interface to the file system. It is small, so that tests can replace it by a simulated
//! disk.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A flat directory of files: what a [`DiskStore`](crate::DiskStore) needs of a file system.
///
/// The contents of a file survive a power cut once the file is [synced](DiskFile::sync). Creating,
/// renaming and removing files survive it once the [names are synced](Disk::sync_names). Before
/// that, a power cut may undo any part of these changes, in any order.
///
/// Implement it to test a store on a disk that fails; [`Directory`] is the real one.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file. Replaces a file that has this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing. Fails with `NotFound` if it does not exist.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file. Replaces a file that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Handles that are open stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all files, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Syncs the directory: files that were created, renamed or removed before stay so after a
    /// power cut.
    fn sync_names(&self) -> io::Result<()>;

    /// Returns how many bytes are free.
    fn free(&self) -> io::Result<u64>;

    /// Returns where the disk is, for messages. By default, `the disk`.
    fn location(&self) -> String {
        "the disk".to_owned()
    }
}

/// A file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Fills `bytes` from the file, beginning at `offset`. Fails if the file ends before `bytes`
    /// is full.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes`, beginning at `offset`. The file grows if necessary.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Syncs the file: everything written before survives a power cut.
    fn sync(&self) -> io::Result<()>;

    /// Returns the size of the file in bytes.
    fn size(&self) -> io::Result<u64>;
}

/// The permissions of new directories and files: jobs may contain anything, so only the user that
/// runs the store can read them.
const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;

/// Opens a file of a store. A symbolic link is not followed: a store creates none, and one that somebody
/// else placed there could lead to a file of another program.
pub(crate) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path);
    opened.map_err(|error| {
        if Errno::from_io_error(&error) == Some(Errno::LOOP) {
            return io::Error::new(error.kind(), "it is a symbolic link, which is not followed");
        }
        error
    })
}

/// A directory of the file system, as a [`Disk`].
///
/// Directories and files that it creates can be accessed only by their owner (0700 and 0600). The
/// permissions of those that exist are not changed. A file that is a symbolic link is not opened. The
/// directory itself can be one.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Opens the directory at `path`, and creates it, and its parents, if it does not exist.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make(&path)?;
        Ok(Directory { path })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a directory and its parents, and syncs their names: if a power cut loses the name of a
/// directory, everything in it is lost, synced or not.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make(parent)?;
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if !path.is_dir() => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        Ok(Arc::new(open_file(options, &self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        Ok(Arc::new(open_file(options.read(true).write(true), &self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
        fs::read_dir(&self.path)?.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }
}

impl DiskFile for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
