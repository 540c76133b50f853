//! The operations that change the store, each defined in one place.
//!
//! An [`Operation`] is a plain value. It knows how many entries it has, how much space it needs
//! in the log, and how it runs against the state. Everything else is the same for all of them:
//! [`Submitted`] carries the operation to the writer and its result back to the caller, and the
//! writer decides whether it is admitted.
//!
//! To add an operation, implement [`Operation`] here, and pass the value to `DiskStore::run` in
//! the implementation of `Store`.

use crate::log::Purpose;
use crate::reply::{Reply, Waiting, reply};
use crate::state::State;
use crate::writer::GROUP_BYTES;
use requeue_jobs::limits::{MAX_ERROR_LEN, MAX_RESULT_BYTES};
use requeue_jobs::rules::{check_count, check_settlements};
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobView, Kind, Placed, Put,
    PutError, Reaped, Restore, Restored, Schedule, ScheduleCondition, Settings, Settle,
    SettleError, Settled, Settlement, StoreError, Tick, Ticked, Timestamp, check_batch,
    check_changes,
};

/// An operation that the writer runs.
pub(crate) trait Operation: Send + 'static {
    /// The result that the caller gets.
    type Output: Send + 'static;

    /// Checks the arguments on the caller's thread, before the operation is queued.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How many entries it counts for in a group.
    fn entries(&self) -> usize {
        1
    }

    /// The size of its arguments, about, if they may be large.
    fn bytes(&self) -> usize {
        0
    }

    /// The space that it needs in the log at most. An operation that needs none is always
    /// admitted, also if the disk is full or failed.
    fn log_space(&self, state: &State) -> LogSpace;

    /// Applies the operation to the state in memory. The caller gets the result when the change
    /// is synced.
    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError>;
}

/// Space in the log that an operation needs, estimated from above.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSpace {
    /// Whether the operation may use the log's reserve on a full disk.
    pub(crate) purpose: Purpose,
    pub(crate) bytes: usize,
    /// Whether the operation reads jobs into the memory, which may be full.
    pub(crate) fills_memory: bool,
}

impl LogSpace {
    /// For an operation that adds data: refused if only the reserve is left.
    fn new_jobs(bytes: usize) -> Self {
        LogSpace { purpose: Purpose::NewJobs, bytes, fills_memory: true }
    }

    /// For an operation on data that is stored already: may use the reserve.
    fn existing_jobs(bytes: usize) -> Self {
        LogSpace { purpose: Purpose::ExistingJobs, bytes, fills_memory: false }
    }
}

/// Bytes of an entry besides its id, body and error: times, numbers, names.
const ENTRY_BYTES: usize = 400;

// The way to the writer and back.

/// An operation in the writer's queue, of whatever type.
pub(crate) trait QueuedOperation: Send {
    /// See [`Operation::entries`].
    fn entries(&self) -> usize;

    /// See [`Operation::bytes`].
    fn bytes(&self) -> usize;

    /// See [`Operation::log_space`].
    fn log_space(&self, state: &State) -> LogSpace;

    /// Runs the operation and keeps its result. To be called once.
    fn run(&mut self, state: &mut State, now: Timestamp);

    /// Delivers the result of [`run`](Self::run). If the change was not synced, or the operation
    /// was refused and did not run, delivers that error instead.
    fn finish(self: Box<Self>, synced: Result<(), StoreError>);
}

/// An operation together with the caller that waits for it.
///
/// If it is dropped before it is finished, the caller gets [`StoreError::Unknown`].
struct Submitted<O: Operation> {
    step: Step<O>,
    reply: Reply<O::Output>,
}

enum Step<O: Operation> {
    Queued(O),
    Ran(Result<O::Output, StoreError>),
    /// While it runs.
    Running,
}

/// An operation to be queued, and its future result.
pub(crate) fn submit<O: Operation>(operation: O) -> (Box<dyn QueuedOperation>, Waiting<O::Output>) {
    let (reply, result) = reply();
    (Box::new(Submitted { step: Step::Queued(operation), reply }), result)
}

impl<O: Operation> QueuedOperation for Submitted<O> {
    fn entries(&self) -> usize {
        match &self.step {
            Step::Queued(operation) => operation.entries(),
            Step::Running | Step::Ran(_) => 0,
        }
    }

    fn bytes(&self) -> usize {
        match &self.step {
            Step::Queued(operation) => operation.bytes(),
            Step::Running | Step::Ran(_) => 0,
        }
    }

    fn log_space(&self, state: &State) -> LogSpace {
        match &self.step {
            Step::Queued(operation) => operation.log_space(state),
            Step::Running | Step::Ran(_) => LogSpace::existing_jobs(0),
        }
    }

    fn run(&mut self, state: &mut State, now: Timestamp) {
        if let Step::Queued(operation) = std::mem::replace(&mut self.step, Step::Running) {
            self.step = Step::Ran(operation.run(state, now));
        }
    }

    fn finish(self: Box<Self>, synced: Result<(), StoreError>) {
        match (synced, self.step) {
            (Err(error), _) => self.reply.send(Err(error)),
            (Ok(()), Step::Ran(result)) => self.reply.send(result),
            // Dropping the reply reports an unknown outcome.
            (Ok(()), Step::Queued(_) | Step::Running) => debug_assert!(false, "it ran before"),
        }
    }
}

// Jobs.

impl Operation for Vec<Put> {
    type Output = BatchResults<Placed, PutError>;

    fn check(&self) -> Result<(), StoreError> {
        Ok(check_batch(self)?)
    }

    fn entries(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.iter().map(|put| ENTRY_BYTES + put.id.as_str().len() + put.content.len()).sum()
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::new_jobs(self.bytes())
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let put = |put: Put| {
            state.touch(&put.kind);
            state.kinds.put(put, now)
        };
        Ok(self.into_iter().map(put).collect())
    }
}

impl Operation for Claim {
    type Output = Claimed;

    fn check(&self) -> Result<(), StoreError> {
        check_count("kinds in a claim", self.kinds.len())?;
        Ok(check_count("jobs in a claim", self.max)?)
    }

    fn entries(&self) -> usize {
        self.max
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace { fills_memory: true, ..LogSpace::existing_jobs(self.max * ENTRY_BYTES) }
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        self.kinds.iter().for_each(|kind| state.touch(kind));
        Ok(state.kinds.claim(&self, now)?)
    }
}

/// The space that a settlement needs in the log at most.
fn settle_bytes(settle: &Settle) -> usize {
    let more = match &settle.action {
        Settlement::Retry { error, .. } | Settlement::Bury { error } => {
            error.len().min(MAX_ERROR_LEN)
        }
        action => action.result_len(),
    };
    ENTRY_BYTES + settle.receipt.id().as_str().len() + more
}

impl Operation for Vec<Settle> {
    type Output = BatchResults<Settled, SettleError>;

    fn check(&self) -> Result<(), StoreError> {
        Ok(check_settlements(self)?)
    }

    fn entries(&self) -> usize {
        self.len()
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::existing_jobs(self.iter().map(settle_bytes).sum())
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let settle = |settle: Settle| {
            state.touch(settle.receipt.kind());
            state.kinds.settle(settle, now)
        };
        Ok(self.into_iter().map(settle).collect())
    }
}

impl Operation for Vec<Change> {
    type Output = BatchResults<Changed, ChangeError>;

    fn check(&self) -> Result<(), StoreError> {
        Ok(check_changes(self)?)
    }

    fn entries(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        let each =
            |change: &Change| ENTRY_BYTES + change.id.as_str().len() + change.action.body_len();
        self.iter().map(each).sum()
    }

    fn log_space(&self, _: &State) -> LogSpace {
        if self.iter().any(|change| change.action.body_len() > 0) {
            return LogSpace::new_jobs(self.bytes());
        }
        LogSpace::existing_jobs(self.bytes())
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let change = |change: Change| {
            state.touch(&change.kind);
            state.kinds.change(change, now)
        };
        Ok(self.into_iter().map(change).collect())
    }
}

impl Operation for Restore {
    type Output = BatchResults<Restored, StoreError>;

    fn entries(&self) -> usize {
        self.jobs.len()
    }

    fn bytes(&self) -> usize {
        let failures = |job: &JobView| {
            let errors = job.failures.iter().filter_map(|failure| failure.error.as_ref());
            errors.map(|error| ENTRY_BYTES + error.len()).sum::<usize>()
        };
        let each = |job: &JobView| {
            let next = job.next.as_ref().map_or(0, |next| next.content.len());
            ENTRY_BYTES + job.id.as_str().len() + job.version.content.len() + next + failures(job)
        };
        ENTRY_BYTES + self.jobs.iter().map(each).sum::<usize>()
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::new_jobs(self.bytes())
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let kind = self.kind.clone();
        let restored = state.kinds.restore(self, now)?;
        state.counters_changed(&kind);
        Ok(restored)
    }
}

/// Ends expired leases and removes dead jobs past their retention, at most so many of each kind.
pub(crate) struct Reap(pub(crate) usize);

impl Operation for Reap {
    type Output = Reaped;

    fn entries(&self) -> usize {
        self.0
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::existing_jobs(self.0.saturating_mul(ENTRY_BYTES).min(GROUP_BYTES))
    }

    /// Stops when the group is full, or when much was read. The next reap begins with the kinds that
    /// are left.
    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let (mut by_kind, mut bytes) = (Vec::new(), MAX_RESULT_BYTES);
        for (number, name) in state.kinds_to_reap() {
            state.touch(&name);
            // If one kind cannot be read, the others are reaped all the same.
            let kind = state.kinds.kind_mut(&name);
            by_kind.extend(kind.map(|kind| kind.reap(self.0, &mut bytes, now)));
            if bytes == 0 || state.end() >= GROUP_BYTES {
                state.reap_first = number.saturating_add(1);
                break;
            }
        }
        Reaped::sum(by_kind)
    }
}

// Settings and schedules.

/// Sets the settings of a kind.
pub(crate) struct Set(pub(crate) Kind, pub(crate) Settings);

impl Operation for Set {
    type Output = ();

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::new_jobs(4 * ENTRY_BYTES)
    }

    fn run(self, state: &mut State, _: Timestamp) -> Result<(), StoreError> {
        state.kinds.set(&self.0, self.1)?;
        state.settings_changed(&self.0);
        Ok(())
    }
}

/// Adds or replaces a schedule of a kind, if the condition holds. Returns whether it did.
pub(crate) struct SetSchedule(pub(crate) Kind, pub(crate) Schedule, pub(crate) ScheduleCondition);

impl Operation for SetSchedule {
    type Output = bool;

    fn bytes(&self) -> usize {
        4 * ENTRY_BYTES + self.1.content.len()
    }

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::new_jobs(self.bytes())
    }

    fn run(self, state: &mut State, _: Timestamp) -> Result<bool, StoreError> {
        let id = self.1.id.clone();
        let was_set = state.kinds.set_schedule(&self.0, self.1, self.2)?;
        if was_set {
            state.schedule_changed(&self.0, &id);
        }
        Ok(was_set)
    }
}

/// Removes a schedule of a kind. Returns whether there was one.
pub(crate) struct RemoveSchedule(pub(crate) Kind, pub(crate) JobId);

impl Operation for RemoveSchedule {
    type Output = bool;

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::new_jobs(4 * ENTRY_BYTES)
    }

    fn run(self, state: &mut State, _: Timestamp) -> Result<bool, StoreError> {
        let removed = state.kinds.remove_schedule(&self.0, &self.1);
        if removed {
            state.schedule_changed(&self.0, &self.1);
        }
        Ok(removed)
    }
}

impl Operation for Tick {
    type Output = Ticked;

    fn log_space(&self, state: &State) -> LogSpace {
        let schedules = state.kinds.kind(&self.kind).map(|kind| &kind.schedules);
        let schedule = schedules.and_then(|schedules| schedules.get(&self.id));
        // Two bodies are logged: that of the job, and that of the schedule with its new time.
        let bodies = schedule.map_or(0, |schedule| schedule.content.len())
            + self.put.as_ref().map_or(0, |job| job.content.len());
        LogSpace::new_jobs(4 * ENTRY_BYTES + bodies)
    }

    fn run(self, state: &mut State, now: Timestamp) -> Result<Self::Output, StoreError> {
        let (kind, id) = (self.kind.clone(), self.id.clone());
        let ticked = state.kinds.tick(self, now)?;
        if let Ticked::Put(_) | Ticked::Skipped = ticked {
            state.schedule_changed(&kind, &id);
        }
        Ok(ticked)
    }
}

// Operations that change nothing.

/// Finds out when the next claim of these kinds can return a job, and publishes it to those who
/// wait.
pub(crate) struct ReadNextClaims(pub(crate) Vec<Kind>);

impl Operation for ReadNextClaims {
    type Output = ();

    fn log_space(&self, _: &State) -> LogSpace {
        LogSpace::existing_jobs(0)
    }

    fn run(self, state: &mut State, _: Timestamp) -> Result<(), StoreError> {
        self.0.iter().for_each(|kind| state.touch(kind));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Body, Fence, Receipt};

    #[test]
    fn a_settlement_needs_space_for_its_error_or_result() {
        let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
        let receipt = Receipt::new(kind, id, Fence(1), 7);
        let bytes = |action| settle_bytes(&Settle { receipt: receipt.clone(), action });
        let plain = bytes(Settlement::Ack);
        let result = Body::octets(vec![0; 5000]).expect("a short body");
        assert_eq!(bytes(Settlement::AckWith(result)), plain + 5000);
        assert_eq!(bytes(Settlement::Bury { error: "x".repeat(500) }), plain + 500);
        let long = "x".repeat(2 * MAX_ERROR_LEN);
        assert_eq!(bytes(Settlement::Retry { delay: None, error: long }), plain + MAX_ERROR_LEN);
    }
}
