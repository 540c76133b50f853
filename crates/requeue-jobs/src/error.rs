//! The errors, grouped by what the caller does next.

use crate::names::{JobId, Kind};
use crate::put::Placed;
use crate::receipt::{Generation, Receipt};
use std::fmt;
use std::time::Duration;

/// An invalid argument. The store has changed nothing. Repeating the call does not help: correct it
/// first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A text or a body has too many bytes.
    #[error("{field} has {len} bytes; the limit is {limit}")]
    TooLong {
        /// The name of the argument.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The largest length in bytes.
        limit: usize,
    },
    /// A name is empty.
    #[error("{field} must not be empty")]
    Empty {
        /// The name of the argument.
        field: &'static str,
    },
    /// A kind contains other characters than `A-Z a-z 0-9 . _ -`.
    #[error("kind {kind:?} contains the character {found:?}; allowed are A-Z a-z 0-9 . _ -")]
    KindCharacter {
        /// The kind.
        kind: String,
        /// The first invalid character.
        found: char,
    },
    /// The service and the workers use this kind for themselves. It can be read, and not changed.
    #[error(
        "kind {kind} is reserved: names that begin with \"requeue.\" are for the service itself; use another name"
    )]
    ReservedKind {
        /// The kind.
        kind: Kind,
    },
    /// A duration is too short or too long.
    #[error("{field} is {value:?}; the range is {min:?} to {max:?}")]
    OutOfRange {
        /// The name of the argument.
        field: &'static str,
        /// Its value.
        value: Duration,
        /// The shortest valid duration.
        min: Duration,
        /// The longest valid duration.
        max: Duration,
    },
    /// There are too many of something, such as entries in a batch.
    #[error("{count} {what} are too many; the limit is {limit}")]
    TooMany {
        /// What there are too many of, in the plural.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A number is too high.
    #[error("{field} is {value}; the limit is {limit}")]
    TooHigh {
        /// The name of the argument.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The highest valid value.
        limit: u64,
    },
    /// A number is too low.
    #[error("{field} is {value}; the lowest allowed value is {limit}")]
    TooLow {
        /// The name of the argument.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The lowest valid value.
        limit: u64,
    },
    /// A job to restore is inconsistent, for example leased without a lease.
    #[error("job {id:?} is inconsistent: {reason}")]
    InconsistentJob {
        /// The id of the job.
        id: JobId,
        /// What is inconsistent.
        reason: &'static str,
    },
    /// A text is not a receipt.
    #[error("{text:?} is not a receipt")]
    MalformedReceipt {
        /// The text.
        text: String,
    },
    /// A text is not a cursor that the store returned for such a list.
    #[error(
        "{text:?} is not a cursor of this list; send the cursor of the previous page unchanged"
    )]
    MalformedCursor {
        /// The text.
        text: String,
    },
    /// A value cannot be written as JSON, or a body cannot be read as JSON of the expected type.
    #[error("the body is not the expected JSON: {reason}")]
    NotJson {
        /// The error of the JSON library.
        reason: String,
    },
    /// A reschedule sets neither a due time nor a priority nor a body.
    #[error("nothing to change: set a due time, a priority or a body")]
    NothingToChange,
    /// A remote store rejected the call by a rule that this version does not know.
    #[error("{reason}")]
    Refused {
        /// The message of the remote store.
        reason: String,
    },
}

/// Why a store did not perform a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An argument is invalid. Nothing was changed. Correct the call: it never succeeds as it is.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The store is unavailable. Nothing was changed. Try again later.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// Why, for people.
        reason: String,
    },
    /// The store may or may not have applied the call, for example because the connection broke.
    /// Look up the state, or repeat the call if it is idempotent. Never undo finished work because
    /// of this error.
    #[error("the outcome is unknown: {reason}")]
    Unknown {
        /// Why, for people.
        reason: String,
    },
}

/// Some of the jobs of [`Jobs::put_all`](crate::Jobs::put_all) were not put. The others were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutAllError {
    /// The result of each job, in order.
    pub results: Vec<Result<Placed, PutError>>,
}

impl fmt::Display for PutAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = |result: &Result<Placed, PutError>| result.as_ref().err().cloned();
        let mut errors = self.results.iter().map(failed).enumerate();
        let first = errors.find_map(|(number, error)| Some((number, error?)));
        let failed = self.results.iter().filter(|result| result.is_err()).count();
        write!(f, "{failed} of {} jobs were not put", self.results.len())?;
        match first {
            Some((number, error)) => write!(f, "; the first is number {number}: {error}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PutAllError {}

/// Why a put failed. It has changed nothing, except possibly after [`StoreError::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The put has [`Condition::IfAbsent`](crate::Condition::IfAbsent), and the job exists, possibly
    /// leased or dead; or it has [`Condition::IfNew`](crate::Condition::IfNew), and the job exists or
    /// is done.
    #[error("job {id:?} of kind {kind} already exists, with generation {generation}")]
    Exists {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
        /// The newest generation of the job.
        generation: Generation,
    },
    /// The put has [`Condition::IfGeneration`](crate::Condition::IfGeneration), and the job has
    /// another generation or does not exist.
    #[error("job {id:?} of kind {kind} {}; expected generation {expected}", found_text(*.found))]
    Generation {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
        /// The generation that the put expected.
        expected: Generation,
        /// The newest generation of the job. `None` if there is no such job.
        found: Option<Generation>,
    },
    /// The store did not perform the put.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a lease was not settled. Nothing has changed, except possibly after
/// [`StoreError::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The receipt is not the current one: the lease expired and the job was claimed again, or the
    /// lease was settled before. Stop working on the job, and do not undo finished work.
    #[error("the lease of receipt {receipt} is lost")]
    LeaseLost {
        /// The receipt that is no longer valid.
        receipt: Receipt,
    },
    /// The store did not perform the settlement.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a job was not changed. Nothing has changed, except possibly after
/// [`StoreError::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no such job.
    #[error("there is no job {id:?} of kind {kind}")]
    Absent {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
    },
    /// *Run now* on a leased job without a successor: the job is already running.
    #[error("job {id:?} of kind {kind} is leased and has no successor")]
    Leased {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
    },
    /// *Run now* or a reschedule of a done job, whose body is no longer there. Put it again.
    #[error("job {id:?} of kind {kind} is done")]
    Done {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
    },
    /// *Revive* on a job that is not dead.
    #[error("job {id:?} of kind {kind} is not dead")]
    NotDead {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
    },
    /// The reschedule has [`if_generation`](crate::Reschedule::if_generation), and the job has
    /// another generation.
    #[error("job {id:?} of kind {kind} has generation {found}; expected generation {expected}")]
    Generation {
        /// The kind of the job.
        kind: Kind,
        /// The id of the job.
        id: JobId,
        /// The generation that the reschedule expected.
        expected: Generation,
        /// The newest generation of the job.
        found: Generation,
    },
    /// The store did not perform the change.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn found_text(found: Option<Generation>) -> String {
    found.map_or_else(
        || "does not exist".to_owned(),
        |generation| format!("has generation {generation}"),
    )
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
