//! Claiming jobs, and settling their leases.

use crate::error::StoreError;
use crate::job::Body;
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::{Generation, Receipt};
use crate::time::Timestamp;
use std::time::Duration;

/// A wish for jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Of these kinds, each in its own order. Which of them is first changes from claim to claim.
    pub kinds: Vec<Kind>,
    /// At most so many.
    pub max: usize,
    /// For how long. `None`: as the settings of each kind say.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker: WorkerName,
    /// Made up by the caller, at random: it becomes part of every receipt.
    pub nonce: u64,
}

/// What a claim got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The jobs, by kind, each kind in due order.
    pub jobs: Vec<ClaimedJob>,
    /// Kinds that could not be asked. The jobs of others are claimed all the same.
    pub errors: Vec<(Kind, StoreError)>,
    /// The expired leases that this claim ended, also those whose jobs it does not return because
    /// they died, wait or were cancelled. Empty if the store is at the other end of an HTTP
    /// connection: responses do not contain it.
    pub expired: Vec<ExpiredLease>,
}

/// The result of [`Store::reap`](crate::Store::reap).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reaped {
    /// How many expired leases were ended and dead jobs dropped, together.
    pub count: usize,
    /// The expired leases that were ended, by kind. Empty if the store is at the other end of an
    /// HTTP connection: responses do not contain it.
    pub expired: Vec<ExpiredLease>,
}

impl Reaped {
    /// Adds up what was reaped of each kind. For stores. Fails with the first error, if there is
    /// one.
    pub fn sum(
        kinds: impl IntoIterator<Item = Result<Reaped, StoreError>>,
    ) -> Result<Self, StoreError> {
        let mut all = Reaped::default();
        for kind in kinds {
            let kind = kind?;
            all.count = all.count.saturating_add(kind.count);
            all.expired.extend(kind.expired);
        }
        all.expired.sort_by(|a, b| a.kind.cmp(&b.kind));
        Ok(all)
    }
}

/// A lease that was not settled before its end, and that a claim or a reap ended. Unless the job
/// was cancelled, this counts as a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiredLease {
    /// The kind of the job.
    pub kind: Kind,
    /// The id of the job.
    pub id: JobId,
    /// The worker that held the lease.
    pub worker: WorkerName,
    /// Which attempt the lease was: the [`ClaimedJob::attempt`] that the worker was given.
    pub attempt: u32,
    /// Whether the job is dead now, because this was its last attempt.
    pub died: bool,
}

impl ExpiredLease {
    /// An expired lease whose job has not died. For stores.
    pub fn new(kind: Kind, id: JobId, worker: WorkerName, attempt: u32) -> Self {
        ExpiredLease { kind, id, worker, attempt, died: false }
    }
}

/// A job that is yours until its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimedJob {
    /// Proof of the lease; it names kind and id.
    pub receipt: Receipt,
    /// What it carries.
    pub body: Body,
    /// When it was due.
    pub due: Timestamp,
    /// Which put it is of.
    pub generation: Generation,
    /// 1 for the first, one more for every failure since that was last reset.
    pub attempt: u32,
    /// When the lease ends, unless it is extended.
    pub lease_ends_at: Timestamp,
    /// When it was first put.
    pub created_at: Timestamp,
}

impl ClaimedJob {
    /// For stores.
    pub fn new(receipt: Receipt, body: Body, generation: Generation) -> Self {
        ClaimedJob {
            receipt,
            body,
            due: Timestamp::default(),
            generation,
            attempt: 1,
            lease_ends_at: Timestamp::default(),
            created_at: Timestamp::default(),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> &Kind {
        self.receipt.kind()
    }

    /// Its id.
    pub fn id(&self) -> &JobId {
        self.receipt.id()
    }
}

/// What is to become of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Which lease.
    pub receipt: Receipt,
    /// What.
    pub action: Settlement,
}

/// What is to become of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is done.
    Ack,
    /// It failed.
    Retry {
        /// When it may come back. `None`: as the kind's backoff says.
        delay: Option<Duration>,
        /// Why; what is longer than [`MAX_ERROR_LEN`](crate::limits::MAX_ERROR_LEN) is cut.
        error: String,
    },
    /// It failed, and trying again is of no use: it is dead, whatever attempts are left. With a
    /// successor, it is as if that was put on the dead job: it is revived.
    Bury {
        /// Why; cut as that of a retry.
        error: String,
    },
    /// It is done, and is to be done again after this long: an ack, and a put of the same body, in
    /// one step. What was put meanwhile takes its place, due when that is.
    ///
    /// Two calls would not do: a cancel in between would be undone by the put.
    RequeueAfter(Duration),
    /// It was not begun: it goes back to its place, and no attempt is counted.
    Release,
    /// It takes longer. The lease ends this long after now, or when it ended before, if
    /// that is later. `None`: as the kind's settings say.
    Extend(Option<Duration>),
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It is over. There may be a successor.
    Done,
    /// It failed, and is due again at this time.
    RetryAt(Timestamp),
    /// It failed for the last time. There may be a successor, if it was buried.
    Dead,
    /// It went back to its place.
    Released,
    /// It goes on, until this time.
    Extended(Timestamp),
    /// The job was cancelled meanwhile: it is over, whatever was wanted; an extended lease
    /// stays as it was, and the work may stop.
    Cancelled,
}

/// A change of a job by its name, whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind.
    pub kind: Kind,
    /// The id.
    pub id: JobId,
    /// What.
    pub action: ChangeKind,
}

/// A change of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Removes it, also if it is dead. A leased one ends with its lease, and has no successor.
    Cancel,
    /// Makes it due now, whatever its backoff; the successor of a leased one; revives a dead one.
    RunNow,
    /// Lets a dead job start again: due now, with no attempts counted.
    Revive,
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Changed {
    /// It is gone.
    Removed,
    /// It is leased, and ends with its lease.
    Ending,
    /// It is due now.
    Ready,
    /// It was dead, and is due now.
    Revived,
}
