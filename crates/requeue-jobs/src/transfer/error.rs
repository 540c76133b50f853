//! What can go wrong, by what the caller does next.

use crate::error::StoreError;
use std::io;

/// Why an export or an import did not end well. What was done before stays done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// What was written is not whole: export again.
    #[error("the export cannot be written")]
    Write(#[source] io::Error),
    /// Import again.
    #[error("line {line} cannot be read")]
    Read {
        /// Which, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// Begin again, when the store is well.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The store does not take what a line says: mend it, or the store.
    #[error("the store does not take what is in line {line}")]
    Refused {
        /// Which.
        line: u64,
        /// Why.
        source: StoreError,
    },
    /// It was written by a later version of this program: use that.
    #[error("the export has version {found}, and versions up to {known} are known")]
    Version {
        /// Which it has.
        found: u64,
        /// The latest that can be read.
        known: u64,
    },
    /// There is no last line: the rest is missing.
    #[error("the input ends after line {line}, and was cut: its last line is missing")]
    Cut {
        /// The last that there is; 0 if there is none.
        line: u64,
    },
    /// The last line counts others than there were: lines are missing, or were added.
    #[error("line {line} says that there are {said} {what}, and there were {found}")]
    Count {
        /// The last.
        line: u64,
        /// Of what.
        what: &'static str,
        /// How many there should be.
        said: u64,
        /// How many there were.
        found: u64,
    },
    /// There is more behind the last line.
    #[error("line {line} is behind the one that ends the export")]
    AfterEnd {
        /// Which.
        line: u64,
    },
    /// No job makes so long a line.
    #[error("line {line} has more than {limit} bytes")]
    TooLong {
        /// Which.
        line: u64,
        /// How many it may have.
        limit: usize,
    },
    /// A line is no JSON object.
    #[error("line {line} is no JSON object: {reason}")]
    NotJson {
        /// Which.
        line: u64,
        /// Why.
        reason: String,
    },
    /// A line lacks something.
    #[error("line {line} has no {field}")]
    Missing {
        /// Which.
        line: u64,
        /// What.
        field: String,
    },
    /// A line says something that is not known, so that it would be lost.
    #[error("line {line} has a field {field}, which is not known: {value}")]
    Unknown {
        /// Which.
        line: u64,
        /// What.
        field: String,
        /// What it is, or how it begins.
        value: String,
    },
    /// A line says something that cannot be.
    #[error("line {line}: {field} is {value}: {reason}")]
    Field {
        /// Which.
        line: u64,
        /// What.
        field: String,
        /// What it is, or how it begins.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}
