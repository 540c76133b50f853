//! Putting a job: its arguments and its result.

use crate::content::Content;
use crate::error::Invalid;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind};
use crate::priority::Priority;
use crate::receipt::Generation;
use crate::time::Due;
use std::time::Duration;

/// A job to create, or to replace as a whole: one entry of [`Store::put`](crate::Store::put). To change only
/// the due time, the priority or the body of a job, use a [`Reschedule`](crate::Reschedule).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The kind of the job.
    pub kind: Kind,
    /// The id of the job. There is one job per kind and id.
    pub id: JobId,
    /// The payload, and optional fields.
    pub content: Content,
    /// When the job becomes due.
    pub due: Due,
    /// The priority of the job (default 0).
    pub priority: Priority,
    /// How the put changes a job that is already pending, or the successor of a leased one.
    pub mode: Mode,
    /// A condition. If it does not hold, the put fails and changes nothing.
    pub condition: Option<Condition>,
}

impl Put {
    /// Returns a put that is due now and replaces an existing job.
    pub fn new(kind: Kind, id: JobId, content: impl Into<Content>) -> Self {
        let (content, (due, priority, mode, condition)) = (content.into(), Default::default());
        Put { kind, id, content, due, priority, mode, condition }
    }
}

/// How a put changes a job that is already pending (waiting or ready), or the successor of a
/// leased one.
///
/// In every mode, a put that is due now does not change the position of a job that is already
/// ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Replaces content, due time and priority: the last write wins.
    #[default]
    Replace,
    /// Replaces the content and keeps the earlier due time, as client-go does, and the higher priority.
    Earliest,
    /// Changes nothing. A dead job stays dead. A leased job without a successor gets one.
    Keep,
    /// Replaces content and priority and moves the due time, but never past `max_wait` after the first put
    /// since the job was created or last acked.
    Debounce {
        /// The longest delay, counted from that first put.
        max_wait: Duration,
    },
}

/// A condition for a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// There is no such job, not even a leased or a dead one. A done job does not count.
    IfAbsent,
    /// There is no such job, and none that is done and [kept](crate::Settings::keep_done) either. So a
    /// put that is repeated after its job was done does not run the job again.
    IfNew,
    /// The newest generation of the job is this one. If the job has a successor, the successor's
    /// generation counts.
    IfGeneration(Generation),
}

/// The result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// What the put did.
    pub outcome: PutOutcome,
    /// The generation of the put, or the existing one if the put changed nothing
    /// ([`PutOutcome::Kept`]).
    pub generation: Generation,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PutOutcome {
    /// There was no such job: the put created it.
    Created,
    /// The job was waiting or ready: the put changed it.
    Updated,
    /// The put changed nothing, because of [`Mode::Keep`].
    Kept,
    /// The job is leased: the put is now its successor and replaces an earlier one.
    Coalesced,
    /// The job was dead: the put revived it.
    Revived,
}

/// Fails if a batch exceeds [`MAX_BATCH`] entries or [`MAX_BATCH_BYTES`] of contents. For stores.
pub fn check_batch(puts: &[Put]) -> Result<(), Invalid> {
    if puts.len() > MAX_BATCH {
        let (what, count) = ("entries in a batch", puts.len());
        return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
    }
    let len = puts.iter().map(|put| put.content.len()).sum();
    if len > MAX_BATCH_BYTES {
        let field = "the bodies of a batch";
        return Err(Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES });
    }
    Ok(())
}
