//! What can go wrong, by what the caller does next.

use crate::names::{JobId, Kind};
use crate::receipt::{Generation, Receipt};
use std::time::Duration;

/// The call cannot be obeyed as it is: mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Too many bytes.
    #[error("{field} has {len} bytes, and may have {limit}")]
    TooLong {
        /// Of what.
        field: &'static str,
        /// How many it has.
        len: usize,
        /// How many it may have.
        limit: usize,
    },
    /// Nothing at all.
    #[error("{field} must not be empty")]
    Empty {
        /// What.
        field: &'static str,
    },
    /// A kind is made of `A-Z a-z 0-9 . _ -`.
    #[error("kind {kind:?} has the character {found:?}; allowed are A-Z a-z 0-9 . _ -")]
    KindCharacter {
        /// The kind.
        kind: String,
        /// The character.
        found: char,
    },
    /// Too long or too short a time.
    #[error("{field} is {value:?}, and may be from {min:?} to {max:?}")]
    OutOfRange {
        /// What.
        field: &'static str,
        /// What it is.
        value: Duration,
        /// The shortest that it may be.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// Too many of something.
    #[error("{count} {what} are too many; the limit is {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too high a number.
    #[error("{field} is {value}, and may be {limit} at most")]
    TooHigh {
        /// Of what.
        field: &'static str,
        /// What it is.
        value: u64,
        /// The highest that it may be.
        limit: u64,
    },
    /// A job that no store can have told.
    #[error("job {id:?} cannot be as it is said to be: {reason}")]
    NoSuchJob {
        /// Its id.
        id: JobId,
        /// Why.
        reason: &'static str,
    },
    /// A receipt that no store wrote.
    #[error("{text:?} is no receipt")]
    NoReceipt {
        /// What it is.
        text: String,
    },
    /// A body that cannot be written, or read, as JSON.
    #[error("the body is not what was expected of its JSON: {reason}")]
    NotJson {
        /// Why.
        reason: String,
    },
    /// What a store elsewhere refuses, by a rule that is not known here.
    #[error("{reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
}

/// Why a store did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Mend the call: it will never succeed as it is.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Nothing was done: try again later.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// It may have been done or not: look, or do it again where twice equals once. Never undo
    /// finished work because of this.
    #[error("it is not known whether it was done: {reason}")]
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Why a put did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// [`Condition::IfAbsent`](crate::Condition::IfAbsent): there is such a job, perhaps leased
    /// or dead.
    #[error("job {id:?} of kind {kind} exists, with generation {generation}")]
    Exists {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: JobId,
        /// Its newest generation.
        generation: Generation,
    },
    /// [`Condition::IfGeneration`](crate::Condition::IfGeneration): it has another, or there is
    /// no such job.
    #[error("job {id:?} of kind {kind} has not generation {expected}, but {found:?}")]
    Generation {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: JobId,
        /// What was asked for.
        expected: Generation,
        /// Its newest generation. `None`: there is no such job.
        found: Option<Generation>,
    },
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a lease was not settled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The job is not leased under this receipt: it may be running elsewhere, or done. Stop,
    /// and do not undo what is finished.
    #[error("{receipt} leases no job any more")]
    LeaseLost {
        /// Whose.
        receipt: Receipt,
    },
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no such job.
    #[error("there is no job {id:?} of kind {kind}")]
    Absent {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
    },
    /// It runs now, and has no successor that could.
    #[error("job {id:?} of kind {kind} is leased, and has no successor")]
    Leased {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
    },
    /// Only a dead job can be revived.
    #[error("job {id:?} of kind {kind} is not dead")]
    NotDead {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
    },
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Invalid> for PutError {
    fn from(invalid: Invalid) -> Self {
        PutError::Store(invalid.into())
    }
}

impl From<Invalid> for SettleError {
    fn from(invalid: Invalid) -> Self {
        SettleError::Store(invalid.into())
    }
}

impl From<Invalid> for ChangeError {
    fn from(invalid: Invalid) -> Self {
        ChangeError::Store(invalid.into())
    }
}
