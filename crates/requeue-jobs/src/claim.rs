//! Claiming jobs, settling their leases, and changing jobs: arguments and results.

use crate::error::{Invalid, StoreError};
use crate::job::Body;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind, WorkerName};
use crate::priority::Priority;
use crate::put::Placed;
use crate::receipt::{Generation, Receipt};
use crate::time::{Due, Timestamp};
use crate::version::Version;
use std::time::Duration;

/// A request for jobs: the argument of [`Store::claim`](crate::Store::claim).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The kinds to claim from. The store begins with another one at each claim, so that no kind
    /// starves.
    pub kinds: Vec<Kind>,
    /// The largest number of jobs to return, at most [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub max: usize,
    /// The length of the leases. `None` uses each kind's [`Settings::lease`](crate::Settings).
    pub lease: Option<Duration>,
    /// The name of the worker, for people who look up who holds a job.
    pub worker: WorkerName,
    /// A random number that the caller generates for this claim. It becomes part of every receipt,
    /// so that two claims never share one.
    pub nonce: u64,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The jobs, grouped by kind, each kind in the order of priority and due time.
    pub jobs: Vec<ClaimedJob>,
    /// The kinds that could not be read, for example because their Redis node is down. The jobs of
    /// the other kinds are claimed nevertheless.
    pub errors: Vec<(Kind, StoreError)>,
    /// The expired leases that this claim ended, also those whose jobs it does not return because
    /// they died, wait or were cancelled. Empty if the store is at the other end of an HTTP
    /// connection: responses do not contain it.
    pub expired: Vec<ExpiredLease>,
}

/// The result of [`Store::reap`](crate::Store::reap).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reaped {
    /// How many expired leases were ended, and dead and done jobs dropped, together.
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

/// A claimed job. The worker holds it until the lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    /// The proof of the lease, which settling requires. It contains kind, id and fence.
    pub receipt: Receipt,
    /// What the put that this job comes from has set. Its due time is when the job became due.
    pub version: Version,
    /// The number of this attempt: 1 for the first, and one more for every failure since the
    /// attempts were last reset.
    pub attempt: u32,
    /// When the lease ends, unless it is extended.
    pub lease_ends_at: Timestamp,
    /// When the job was first put.
    pub created_at: Timestamp,
}

impl ClaimedJob {
    /// Returns a first attempt whose other times are zero. For stores, which set the other fields, and
    /// for tests.
    pub fn new(receipt: Receipt, version: impl Into<Version>) -> Self {
        ClaimedJob {
            receipt,
            version: version.into(),
            attempt: 1,
            lease_ends_at: Timestamp::default(),
            created_at: Timestamp::default(),
        }
    }

    /// Returns the payload.
    pub fn body(&self) -> &Body {
        &self.version.content.body
    }

    /// Returns the kind of the job.
    pub fn kind(&self) -> &Kind {
        self.receipt.kind()
    }

    /// Returns the id of the job.
    pub fn id(&self) -> &JobId {
        self.receipt.id()
    }
}

/// A lease and how to settle it: one entry of [`Store::settle`](crate::Store::settle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The receipt of the lease.
    pub receipt: Receipt,
    /// How to settle it.
    pub action: Settlement,
}

/// How to settle a lease: end it, or extend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The job is done: removes it. If it has a successor, that becomes pending as a new job.
    Ack,
    /// The attempt failed: counts it, and makes the job pending again after a delay, or dead if
    /// this was the last attempt (a nack).
    Retry {
        /// The delay. `None` uses the kind's [backoff](crate::Backoff).
        delay: Option<Duration>,
        /// Why the attempt failed. Only the first
        /// [`MAX_ERROR_LEN`](crate::limits::MAX_ERROR_LEN) bytes are kept.
        error: String,
    },
    /// The job is done, as with [`Ack`](Settlement::Ack), and this is its result, of at most
    /// [`MAX_ACK_RESULT_LEN`](crate::limits::MAX_ACK_RESULT_LEN) bytes. It is kept with the done job
    /// if the kind [keeps done jobs](crate::Settings::keep_done), and otherwise discarded.
    AckWith(Body),
    /// The attempt failed and further attempts are useless: makes the job dead, even if attempts
    /// are left. If the job has a successor, the store then applies it as a put on the dead job,
    /// which revives it.
    Bury {
        /// Why the attempt failed, truncated in the same way as for a retry.
        error: String,
    },
    /// The job is done and runs again after this delay: an ack and a put of the same body, in one
    /// atomic step. If the job has a successor, that runs instead, at its own due time.
    ///
    /// With two calls, the put would undo a cancel that came between them.
    RequeueAfter(Duration),
    /// The job was not started: returns it to its old position. No attempt is counted.
    Release,
    /// The job takes longer: the lease ends this long after now, unless it already ends later.
    /// `None` uses the lease of the kind's settings. Also called a heartbeat.
    Extend(Option<Duration>),
}

impl Settlement {
    /// Returns the number of bytes in the result of an ack, or 0.
    pub fn result_len(&self) -> usize {
        match self {
            Settlement::AckWith(result) => result.len(),
            _ => 0,
        }
    }
}

/// The result of settling a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The job is done. Its successor, if there is one, is pending.
    Done,
    /// The attempt failed, and the job is due again at this time.
    RetryAt(Timestamp),
    /// The attempt failed and the job is dead. If it was buried and had a successor, that has
    /// revived it.
    Dead,
    /// The job is pending again, at its old position.
    Released,
    /// The lease ends at this time.
    Extended(Timestamp),
    /// The job was cancelled meanwhile. Whatever the settlement was, the job is removed; only
    /// [`Extend`](Settlement::Extend) leaves the lease as it is. The worker may stop.
    Cancelled,
}

/// A change of a job that needs no receipt: one entry of
/// [`Store::change`](crate::Store::change).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of the job.
    pub kind: Kind,
    /// The id of the job.
    pub id: JobId,
    /// What to change.
    pub action: ChangeKind,
}

/// What a [`Change`] does to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// Removes the job, also if it is dead or done. If it is leased, it is removed when the lease ends,
    /// and its successor is removed immediately.
    Cancel,
    /// Makes a pending job due now, even if its backoff is not over. Makes the successor of a leased
    /// job due now. Revives a dead job.
    RunNow,
    /// Makes a dead job due now and resets its attempts. Fails for any other job.
    Revive,
    /// Changes the due time, the priority or the body of a job, and leaves the rest as it is. Changes
    /// the successor of a leased job, or makes one. With a due time, revives a dead job.
    Reschedule(Reschedule),
}

impl ChangeKind {
    /// Returns the number of bytes in the body that a reschedule sets, or 0.
    pub fn body_len(&self) -> usize {
        match self {
            ChangeKind::Reschedule(set) => set.body.as_ref().map_or(0, Body::len),
            ChangeKind::Cancel | ChangeKind::RunNow | ChangeKind::Revive => 0,
        }
    }
}

/// What a reschedule sets: at least one of due time, priority and body. What is `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reschedule {
    /// When the job becomes due.
    pub due: Option<Due>,
    /// The priority.
    pub priority: Option<Priority>,
    /// The payload, with its content type.
    pub body: Option<Body>,
    /// If it is set, the newest generation of the job must be this one. Otherwise the reschedule
    /// fails and changes nothing.
    pub if_generation: Option<Generation>,
}

impl Reschedule {
    /// Fails with [`Invalid::NothingToChange`] if due time, priority and body are all `None`.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Reschedule { due: None, priority: None, body: None, .. } => {
                Err(Invalid::NothingToChange)
            }
            _ => Ok(()),
        }
    }
}

/// Fails if a batch has more than [`MAX_BATCH`] changes or [`MAX_BATCH_BYTES`] of bodies, or a
/// reschedule that sets nothing. For stores.
pub fn check_changes(changes: &[Change]) -> Result<(), Invalid> {
    if changes.len() > MAX_BATCH {
        let (what, count) = ("entries in a batch", changes.len());
        return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
    }
    let len = changes.iter().map(|change| change.action.body_len()).sum();
    if len > MAX_BATCH_BYTES {
        let field = "the bodies of a batch";
        return Err(Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES });
    }
    let mut reschedules = changes.iter().filter_map(|change| match &change.action {
        ChangeKind::Reschedule(set) => Some(set),
        ChangeKind::Cancel | ChangeKind::RunNow | ChangeKind::Revive => None,
    });
    reschedules.try_for_each(Reschedule::check)
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// The job is removed.
    Removed,
    /// The job is leased and will be removed when its lease ends.
    Ending,
    /// The job, or the successor of the leased job, is due now.
    Ready,
    /// The job was dead and is due now.
    Revived,
    /// The job was rescheduled, and has a new generation. The outcome is that of a put:
    /// [`Updated`](crate::PutOutcome::Updated), [`Coalesced`](crate::PutOutcome::Coalesced) or
    /// [`Revived`](crate::PutOutcome::Revived).
    Rescheduled(Placed),
}
