//! What can go wrong with files.

use requeue_jobs::StoreError;
use std::io;
use std::path::PathBuf;

/// Bytes on disk that are not what was written there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}: {what}")]
pub struct Corrupt {
    /// The file's name.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

impl Corrupt {
    pub(crate) fn new(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}

/// Why a directory could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The disk failed.
    #[error("could not {verb} {file}")]
    Io {
        /// What was tried: `read`, `write`, `sync` …
        verb: &'static str,
        /// With which file.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The files are not as they were left.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Another process has it open.
    #[error("{} is in use by process {pid}", .directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process that has it open.
        pid: String,
    },
    /// A copy goes into a directory of its own.
    #[error("{directory} is not empty, and a copy would mix with what is there")]
    NotEmpty {
        /// The directory.
        directory: String,
    },
    /// A newer version of this program wrote it.
    #[error("{file} has format {found}, and this program reads up to {known}")]
    Newer {
        /// The file's name.
        file: String,
        /// Its format.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// There is no space for new jobs. What is left is kept for settling those there are.
    #[error("no space for new jobs: only the log's reserve is left")]
    Full {
        /// Why no more could be had.
        source: io::Error,
    },
    /// An earlier group could not be synced, and has to be written again first.
    #[error("group {group} of the log may or may not be on disk")]
    InDoubt {
        /// The group's number.
        group: u64,
    },
    /// More than the log takes at once.
    #[error("a group of {bytes} bytes is more than the log takes at once: {limit}")]
    TooLarge {
        /// How much it was.
        bytes: usize,
        /// How much may be.
        limit: usize,
    },
}

impl DiskError {
    /// For `map_err`: names what was tried.
    pub(crate) fn io(verb: &'static str, file: &str) -> impl FnOnce(io::Error) -> DiskError {
        let file = file.to_owned();
        move |source| DiskError::Io { verb, file, source }
    }
}

/// An error and what caused it, in one line: those who are answered see no more of it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Nothing was done.
pub(crate) fn unavailable(error: impl Into<Reason>) -> StoreError {
    StoreError::Unavailable { reason: error.into().0 }
}

/// It may have been done.
pub(crate) fn unknown(error: impl Into<Reason>) -> StoreError {
    StoreError::Unknown { reason: error.into().0 }
}

/// Why something was not done.
pub(crate) struct Reason(String);

impl From<DiskError> for Reason {
    fn from(error: DiskError) -> Self {
        Reason(chain(&error))
    }
}

impl From<&str> for Reason {
    fn from(reason: &str) -> Self {
        Reason(reason.to_owned())
    }
}

impl From<String> for Reason {
    fn from(reason: String) -> Self {
        Reason(reason)
    }
}
