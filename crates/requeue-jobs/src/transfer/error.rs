//! Errors of an export or an import.

use crate::error::StoreError;
use std::io;

/// An export or an import failed. The work done before the error is not undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The output could not be written and is incomplete. Export again.
    #[error("the export cannot be written")]
    Write(#[source] io::Error),
    /// The input could not be read. Import again.
    #[error("line {line} cannot be read")]
    Read {
        /// The line number, from 1.
        line: u64,
        /// The error of the reader.
        source: io::Error,
    },
    /// The store failed. Start again when the store works.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The store rejected the content of a line. Correct the line, or use another store.
    #[error("the store rejected line {line}")]
    Refused {
        /// The line number, from 1.
        line: u64,
        /// The error of the store.
        source: StoreError,
    },
    /// A newer version of this library wrote the export. Use that version to import it.
    #[error("the export has format version {found}; the newest supported version is {known}")]
    Version {
        /// The version of the export.
        found: u64,
        /// The newest version that this library reads.
        known: u64,
    },
    /// The last line, of type `end`, is missing: the export is incomplete.
    #[error("the export is incomplete: it ends after line {line} without an end line")]
    Incomplete {
        /// The number of the last line, or 0 if the input is empty.
        line: u64,
    },
    /// The counts in the `end` line differ from the lines that were read: lines are missing, or were
    /// added.
    #[error("line {line} gives a total of {stated} {what}, but the export contains {found}")]
    Count {
        /// The number of the `end` line.
        line: u64,
        /// What was counted: `kinds`, `schedules` or `jobs`.
        what: &'static str,
        /// The total according to the `end` line.
        stated: u64,
        /// The number of lines that were read.
        found: u64,
    },
    /// There is a line after the `end` line.
    #[error("line {line} follows the end line")]
    AfterEnd {
        /// The line number, from 1.
        line: u64,
    },
    /// A line is longer than any line that an export writes.
    #[error("line {line} is longer than {limit} bytes")]
    TooLong {
        /// The line number, from 1.
        line: u64,
        /// The maximum number of bytes.
        limit: usize,
    },
    /// A line is not a JSON object.
    #[error("line {line} is not a JSON object: {reason}")]
    NotJson {
        /// The line number, from 1.
        line: u64,
        /// What is wrong with the JSON.
        reason: String,
    },
    /// A required field is missing.
    #[error("line {line}: field {field} is missing")]
    Missing {
        /// The line number, from 1.
        line: u64,
        /// The path of the field, such as `settings.backoff.base`.
        field: String,
    },
    /// A field is unknown. It is rejected because ignoring it would lose its value.
    #[error("line {line}: unknown field {field} with value {value}")]
    Unknown {
        /// The line number, from 1.
        line: u64,
        /// The path of the field.
        field: String,
        /// The value, or its beginning if it is long.
        value: String,
    },
    /// The value of a field is invalid.
    #[error("line {line}: {field} is {value}: {reason}")]
    Field {
        /// The line number, from 1.
        line: u64,
        /// The path of the field.
        field: String,
        /// The value, or its beginning if it is long.
        value: String,
        /// What is wrong with the value.
        reason: String,
    },
}
