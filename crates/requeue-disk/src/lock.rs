//! The lock of a directory: one process may have it open.

use crate::disk::{FILE_MODE, open_file};
use crate::error::DiskError;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Held as long as the directory is open. The operating system releases it when the process ends,
/// for whatever reason.
pub(crate) struct Lock {
    file: File,
}

/// Closing the file is not enough: a process that is being started by another thread has a
/// duplicate of it until it executes its program, and the lock would last as long.
impl Drop for Lock {
    fn drop(&mut self) {
        // If it fails, closing the file is all that is left.
        let _ = self.file.unlock();
    }
}

pub(crate) const NAME: &str = "lock";

/// How much is read of a lock. A process id is shorter.
const MAX_PID_LEN: u64 = 32;

impl Lock {
    /// Locks a directory for reading. On a read-only file system no lock is needed: returns `None`.
    pub(crate) fn take_to_read(directory: &Path) -> Result<Option<Self>, DiskError> {
        match Lock::take(directory) {
            Ok(lock) => Ok(Some(lock)),
            Err(DiskError::Io { source, .. })
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Locks a directory. Fails with [`DiskError::InUse`] if it is locked already.
    pub(crate) fn take(directory: &Path) -> Result<Self, DiskError> {
        let path = directory.join(NAME);
        let name = path.display().to_string();
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let mut file = open_file(options, &path).map_err(DiskError::io("open", &name))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(DiskError::io("lock", &name)(source)),
            Err(TryLockError::WouldBlock) => {
                return Err(in_use(directory, file)?);
            }
        }
        // Always the same length, written over the previous one: that works on a full disk.
        let pid = format!("{:<10}\n", std::process::id());
        let written = file.rewind().and_then(|()| file.write_all(pid.as_bytes()));
        written.map_err(DiskError::io("write", &name))?;
        Ok(Lock { file })
    }
}

/// The error for a directory whose lock, which is this file, another process holds.
pub(crate) fn in_use(directory: &Path, lock: File) -> Result<DiskError, DiskError> {
    let mut pid = String::new();
    let read = lock.take(MAX_PID_LEN).read_to_string(&mut pid);
    read.map_err(DiskError::io("read", &directory.join(NAME).display().to_string()))?;
    Ok(DiskError::InUse { directory: directory.to_owned(), pid: pid.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A new, empty directory.
    fn directory(name: &str) -> std::path::PathBuf {
        let name = format!("requeue-lock-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_lock_that_is_a_symbolic_link_is_not_written_to() {
        let directory = directory("link");
        std::fs::write(directory.join("victim"), "kept").unwrap();
        symlink("victim", directory.join(NAME)).unwrap();
        let error = Lock::take(&directory).err().expect("it is not taken");
        let text = crate::error::chain(&error);
        assert!(text.contains("lock: it is a symbolic link"), "{text}");
        assert_eq!(std::fs::read_to_string(directory.join("victim")).unwrap(), "kept");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_released_lock_can_be_taken_while_a_duplicate_of_its_file_is_open() {
        let directory = directory("released");
        let lock = Lock::take(&directory).unwrap();
        let duplicate = lock.file.try_clone().unwrap();
        drop(lock);
        let again = Lock::take(&directory);
        drop(duplicate);
        assert!(again.is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
