//! The few things that are asked of a disk, so that a test's twin can do them too.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of files, without directories in it.
///
/// What a file holds is safe once [synced](DiskFile::sync); that it exists under its name, once
/// the [directory is](Disk::sync_names). Until then a power cut may undo any part of it, in any
/// order.
pub trait Disk: Send + Sync + 'static {
    /// Makes an empty file, in place of one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file to read and write it.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Those who have it open may go on reading it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, in no order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes names that were made, changed and removed survive a power cut.
    fn sync_names(&self) -> io::Result<()>;

    /// How many bytes can still be written.
    fn free(&self) -> io::Result<u64>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Fills `bytes` from `offset` on. Fails at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on; the file grows where needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all that was written survive a power cut.
    fn sync(&self) -> io::Result<()>;

    /// How many bytes it has.
    fn size(&self) -> io::Result<u64>;
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory of this path, which is made if there is none.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make(&path)?;
        Ok(Directory { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory, and those it is in. Their names are safe then: what is synced in one whose
/// own name is lost is lost with it.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make(parent)?;
    match fs::create_dir(path) {
        Err(error) if !path.is_dir() => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        Ok(Arc::new(options.open(self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(File::options().read(true).write(true).open(self.path.join(name))?))
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
