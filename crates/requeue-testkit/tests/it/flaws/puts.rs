//! Flaws of puts.

use super::store::{CorrectStore, Deviation, JobName};
use requeue_jobs::limits::{MAX_DELAY, MAX_KINDS};
use requeue_jobs::{
    ChangeKind, Claim, Claimed, Condition, Due, Generation, Invalid, JobState, JobView, Kind, Mode,
    Placed, Put, PutError, PutOutcome, Settle, SettleError, Settled, Settlement, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

fn name(put: &Put) -> JobName {
    (put.kind.clone(), put.id.clone())
}

fn is_pending(view: &JobView) -> bool {
    matches!(view.state, JobState::Waiting | JobState::Ready)
}

/// A put replaces the whole record of a pending job, including its attempts.
pub(super) fn attempts_reset_by_put(correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
    let name = name(&put);
    let failed = |view: JobView| is_pending(&view) && view.attempts > 0;
    if put.condition.is_some() || !correct.get(&name).is_some_and(failed) {
        return correct.put(put);
    }
    let _removed = correct.change(&name, ChangeKind::Cancel);
    Ok(Placed { outcome: PutOutcome::Updated, ..correct.put(put)? })
}

/// A put that is due now moves a ready job behind the other ready jobs.
pub(super) fn order_lost_by_put(correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
    let ready = correct.get(&name(&put)).is_some_and(|view| view.state == JobState::Ready);
    if ready && put.mode == Mode::Replace && put.condition.is_none() {
        let due = Due::After(Duration::from_millis(1));
        correct.put(Put { due, ..put.clone() })?;
    }
    correct.put(put)
}

/// A put makes a job due at the time it specifies, even during the backoff after a failure.
pub(super) fn backoff_ended_by_put(correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
    let (name, due) = (name(&put), put.due.at(correct.now())?);
    let placed = correct.put(put)?;
    if placed.outcome == PutOutcome::Updated && due <= correct.now() {
        let _ready = correct.change(&name, ChangeKind::RunNow);
    }
    Ok(placed)
}

/// `if_absent` ignores existing jobs in this state.
pub(super) struct IfAbsentOverlooks(pub(super) JobState);

impl Deviation for IfAbsentOverlooks {
    fn put(&mut self, correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
        let overlooked = correct.get(&name(&put)).is_some_and(|view| view.state == self.0);
        if overlooked && put.condition == Some(Condition::IfAbsent) {
            put.condition = None;
        }
        correct.put(put)
    }
}

/// Puts are executed with another mode than they specify.
pub(super) struct WrongMode {
    pub(super) keep: Mode,
    pub(super) earliest: Mode,
    /// The shortest `max_wait` of a debounce.
    pub(super) max_wait: Duration,
}

impl WrongMode {
    pub(super) const KEEP_REPLACES: Self = WrongMode { keep: Mode::Replace, ..WrongMode::NONE };
    pub(super) const EARLIEST_REPLACES: Self =
        WrongMode { earliest: Mode::Replace, ..WrongMode::NONE };
    pub(super) const DEBOUNCE_WITHOUT_END: Self =
        WrongMode { max_wait: MAX_DELAY, ..WrongMode::NONE };
    const NONE: Self =
        WrongMode { keep: Mode::Keep, earliest: Mode::Earliest, max_wait: Duration::ZERO };
}

impl Deviation for WrongMode {
    fn put(&mut self, correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
        put.mode = match put.mode {
            Mode::Replace => Mode::Replace,
            Mode::Keep => self.keep,
            Mode::Earliest => self.earliest,
            Mode::Debounce { max_wait } => Mode::Debounce { max_wait: max_wait.max(self.max_wait) },
        };
        correct.put(put)
    }
}

/// Delays are rounded down to whole milliseconds.
pub(super) fn rounded_down(correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
    if let Due::After(delay) = put.due {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        put.due = Due::After(Duration::from_millis(millis));
    }
    correct.put(put)
}

/// Each job counts its generations from 1.
#[derive(Default)]
pub(super) struct GenerationsRepeat {
    /// The generation before the first one of each job.
    before: HashMap<JobName, u64>,
}

impl GenerationsRepeat {
    fn renumber(&self, name: &JobName, generation: &mut Generation) {
        generation.0 -= self.before.get(name).copied().unwrap_or_default();
    }
}

impl Deviation for GenerationsRepeat {
    fn put(&mut self, correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
        let name = name(&put);
        if let Some(Condition::IfGeneration(generation)) = &mut put.condition {
            generation.0 += self.before.get(&name).copied().unwrap_or_default();
        }
        let mut placed = correct.put(put)?;
        if placed.outcome == PutOutcome::Created {
            self.before.insert(name.clone(), placed.generation.0 - 1);
        }
        self.renumber(&name, &mut placed.generation);
        Ok(placed)
    }

    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = correct.claim(claim)?;
        for job in &mut claimed.jobs {
            let name = (job.kind().clone(), job.id().clone());
            self.renumber(&name, &mut job.version.generation);
        }
        Ok(claimed)
    }

    fn alter_view(&mut self, _: &CorrectStore, view: &mut JobView) {
        let name = (view.kind.clone(), view.id.clone());
        self.renumber(&name, &mut view.version.generation);
        if let Some(next) = &mut view.next {
            self.renumber(&name, &mut next.generation);
        }
    }
}

/// A put on a cancelled leased job removes the cancellation.
#[derive(Default)]
pub(super) struct CancelErasedByPut {
    erased: HashSet<JobName>,
}

impl Deviation for CancelErasedByPut {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        let lease = correct.get(&name(&put)).and_then(|view| view.lease);
        if lease.is_some_and(|lease| lease.cancelled) {
            self.erased.insert(name(&put));
        }
        correct.put(put)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let name = (settle.receipt.kind().clone(), settle.receipt.id().clone());
        let (erased, ack) = (self.erased.contains(&name), settle.action == Settlement::Ack);
        let settled = correct.settle(settle.receipt, settle.action)?;
        if erased && ack {
            self.erased.remove(&name);
            return Ok(Settled::Done);
        }
        Ok(settled)
    }
}

/// Every twentieth put is lost.
pub(super) fn puts_lost(correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
    let name = name(&put);
    let placed = correct.put(put)?;
    if placed.generation.0.is_multiple_of(20) {
        let _removed = correct.change(&name, ChangeKind::Cancel);
    }
    Ok(placed)
}

/// Kinds count towards the limit for ever.
#[derive(Default)]
pub(super) struct KindsCountForever(HashSet<Kind>);

impl Deviation for KindsCountForever {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        let limit = MAX_KINDS;
        if self.0.len() >= limit && !self.0.contains(&put.kind) {
            let (what, count) = ("kinds", limit + 1);
            return Err(Invalid::TooMany { what, count, limit }.into());
        }
        self.0.insert(put.kind.clone());
        correct.put(put)
    }
}
