//! Putting a job.

use crate::error::Invalid;
use crate::job::Body;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind};
use crate::receipt::Generation;
use crate::time::Due;
use std::time::Duration;

/// A job to be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: JobId,
    /// What it carries.
    pub body: Body,
    /// When it is due.
    pub due: Due,
    /// What becomes of a job that is pending already, or of a successor.
    pub mode: Mode,
    /// Where it does not hold, nothing happens.
    pub condition: Option<Condition>,
}

impl Put {
    /// Due now, replacing what is there.
    pub fn new(kind: Kind, id: JobId, body: Body) -> Self {
        Put { kind, id, body, due: Due::Now, mode: Mode::Replace, condition: None }
    }
}

/// What a put does to a job that waits or is ready, and to the successor of a leased one.
///
/// A put that is due now, on a job that is ready, keeps its place in line in any mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The last write wins: body and due time are replaced.
    #[default]
    Replace,
    /// The body is replaced, and the sooner time stays: client-go's rule.
    Earliest,
    /// Nothing changes. A dead job stays dead.
    Keep,
    /// The body is replaced, and the due time too, but never past `max_wait` after the first
    /// put since the job was created or last acked.
    Debounce {
        /// Counted from that first put.
        max_wait: Duration,
    },
}

/// What must hold for a put to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// There is no such job: not even a leased or a dead one.
    IfAbsent,
    /// Its newest generation, the successor's where there is one, is this.
    IfGeneration(Generation),
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// What happened.
    pub outcome: PutOutcome,
    /// The put's generation; where the job was kept, the old one.
    pub generation: Generation,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PutOutcome {
    /// There was no such job.
    Created,
    /// There was, waiting or ready.
    Updated,
    /// Nothing changed.
    Kept,
    /// It is leased: this is its successor now, in place of an earlier one.
    Coalesced,
    /// It was dead.
    Revived,
}

/// Whether a batch is not too large; for stores.
pub fn check_batch(puts: &[Put]) -> Result<(), Invalid> {
    if puts.len() > MAX_BATCH {
        let (what, count) = ("entries in a batch", puts.len());
        return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
    }
    let len = puts.iter().map(|put| put.body.len()).sum();
    if len > MAX_BATCH_BYTES {
        let field = "the bodies of a batch";
        return Err(Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES });
    }
    Ok(())
}
