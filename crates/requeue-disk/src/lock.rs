//! One process per directory.

use crate::error::DiskError;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Held as long as the directory is open. The system gives it up when the process ends, however
/// that happens.
pub(crate) struct Lock {
    _file: File,
}

pub(crate) const NAME: &str = "lock";

impl Lock {
    /// For those who only read. Where nobody can write, nobody has to be kept from it.
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

    pub(crate) fn take(directory: &Path) -> Result<Self, DiskError> {
        let path = directory.join(NAME);
        let name = path.display().to_string();
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(DiskError::io("open", &name))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(DiskError::io("lock", &name)(source)),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(DiskError::io("read", &name))?;
                let (directory, pid) = (directory.to_owned(), pid.trim().to_owned());
                return Err(DiskError::InUse { directory, pid });
            }
        }
        // Always as long, and over the last one: on a full disk there is no space for it anew.
        let pid = format!("{:<10}\n", std::process::id());
        let written = file.rewind().and_then(|()| file.write_all(pid.as_bytes()));
        written.map_err(DiskError::io("write", &name))?;
        Ok(Lock { _file: file })
    }
}
