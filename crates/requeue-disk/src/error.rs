//! Errors of the disk store, and how they become errors of the `Store` contract.

use requeue_jobs::StoreError;
use std::io;
use std::path::PathBuf;

/// Damage in a file of the store: bytes that differ from what was written, or do not fit the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} is damaged at byte {offset}: {what}")]
pub struct Corrupt {
    /// The name of the damaged file.
    pub file: String,
    /// The offset in the file, in bytes. 0 if the damage concerns the file as a whole.
    pub offset: u64,
    /// A description of the damage, for people.
    pub what: String,
}

impl Corrupt {
    pub(crate) fn new(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}

/// An error while a store is opened, copied or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The file system reported an error.
    #[error("could not {verb} {file}")]
    Io {
        /// The action that failed: `read`, `write`, `sync` …
        verb: &'static str,
        /// The name of the file or directory.
        file: String,
        /// The error of the operating system. If a read failed, its text begins with the offset.
        source: io::Error,
    },
    /// A file is damaged, and the store cannot repair it from its log.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Another process, or another handle in this process, has the directory open.
    #[error("{} is in use by process {pid}", .directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The id of the process that has it open.
        pid: String,
    },
    /// The target directory of a backup is not empty.
    #[error("directory {directory} is not empty: a backup needs an empty directory")]
    NotEmpty {
        /// The directory.
        directory: String,
    },
    /// Another version of this crate wrote the file, in a format that this one does not read.
    /// Nothing was changed.
    #[error(
        "{file} has format {found}, but this version reads only format {expected}: export the \
         directory with the version that wrote it (`requeue export`), and import it with this one \
         (`requeue import`)"
    )]
    Format {
        /// The file's name.
        file: String,
        /// The number of its format, and its magic bytes.
        found: String,
        /// The number of the format that this version reads, and the magic bytes.
        expected: String,
    },
    /// A newer version of this crate has used a feature that this one does not know. Nothing was
    /// changed.
    #[error(
        "{file} lists features that this version does not know: {features}. Use the version that \
         wrote it, or a newer one"
    )]
    Features {
        /// The name of the manifest.
        file: String,
        /// The names of the unknown features, separated by commas.
        features: String,
    },
    /// The disk is full: new jobs are refused. A reserve in the log is kept for claiming and
    /// settling the jobs that are stored.
    #[error("no space for new jobs: only the log's reserve is left")]
    Full {
        /// Why the log could not get more space.
        source: io::Error,
    },
    /// Syncing an earlier group failed. The store writes it again before anything else.
    #[error("group {group} of the log is not synced: it may or may not be on disk")]
    InDoubt {
        /// The number of the group.
        group: u64,
    },
    /// A group is larger than the log allows.
    #[error("a group of {bytes} bytes is too large: the limit is {limit} bytes")]
    TooLarge {
        /// The size of the group.
        bytes: usize,
        /// The largest size that is allowed.
        limit: usize,
    },
}

impl DiskError {
    /// Whether another version wrote the file, so that it is neither readable nor damaged.
    pub(crate) fn is_other_version(&self) -> bool {
        matches!(self, DiskError::Format { .. } | DiskError::Features { .. })
    }

    /// The damage that it reports. An error that is none, for example of the disk, counts as damage
    /// of `file`.
    pub(crate) fn into_corrupt(self, file: &str, offset: u64) -> Corrupt {
        match self {
            DiskError::Corrupt(corrupt) => corrupt,
            error => Corrupt::new(file, offset, chain(&error)),
        }
    }

    /// For `map_err`: adds the action and the file to an I/O error.
    pub(crate) fn io(verb: &'static str, file: &str) -> impl FnOnce(io::Error) -> DiskError {
        let file = file.to_owned();
        move |source| DiskError::Io { verb, file, source }
    }

    /// For `map_err`: adds the file and the offset to the I/O error of a read.
    pub(crate) fn read(file: &str, offset: u64) -> impl FnOnce(io::Error) -> DiskError {
        let file = file.to_owned();
        move |source| {
            let source = io::Error::new(source.kind(), format!("at byte {offset}: {source}"));
            DiskError::Io { verb: "read", file, source }
        }
    }
}

/// An error and its causes in one line: a `StoreError` carries text only.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The error of an operation that was not executed.
pub(crate) fn unavailable(error: impl Into<Reason>) -> StoreError {
    StoreError::Unavailable { reason: error.into().0 }
}

/// The error of an operation that may or may not have been executed.
pub(crate) fn unknown(error: impl Into<Reason>) -> StoreError {
    StoreError::Unknown { reason: error.into().0 }
}

/// The reason in a `StoreError`.
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
