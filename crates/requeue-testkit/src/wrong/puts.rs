//! Puts done wrong.

use super::store::{Name, Right, Wrong};
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    ChangeKind, Claim, Claimed, Condition, Due, Generation, JobState, JobView, Mode, Placed, Put,
    PutError, PutOutcome, Settle, SettleError, Settled, Settlement, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

fn name(put: &Put) -> Name {
    (put.kind.clone(), put.id.clone())
}

fn is_pending(view: &JobView) -> bool {
    matches!(view.state, JobState::Waiting | JobState::Ready)
}

/// What was put replaces the record, with the attempts in it.
pub(super) struct AttemptsResetByPut;

impl Wrong for AttemptsResetByPut {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let name = name(&put);
        let failed = |view: JobView| is_pending(&view) && view.attempts > 0;
        if put.condition.is_some() || !right.get(&name).is_some_and(failed) {
            return right.put(put);
        }
        let _removed = right.change(&name, ChangeKind::Cancel);
        Ok(Placed { outcome: PutOutcome::Updated, ..right.put(put)? })
    }
}

/// The score is set to now by every put.
pub(super) struct PlaceLostByPut;

impl Wrong for PlaceLostByPut {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let ready = right.get(&name(&put)).is_some_and(|view| view.state == JobState::Ready);
        if ready && put.mode == Mode::Replace && put.condition.is_none() {
            let due = Due::After(Duration::from_millis(1));
            right.put(Put { due, ..put.clone() })?;
        }
        right.put(put)
    }
}

/// A put makes a job due when it says, also one that has just failed.
pub(super) struct FloorIgnored;

impl Wrong for FloorIgnored {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let (name, due) = (name(&put), put.due.at(right.now())?);
        let placed = right.put(put)?;
        if placed.outcome == PutOutcome::Updated && due <= right.now() {
            let _ready = right.change(&name, ChangeKind::RunNow);
        }
        Ok(placed)
    }
}

/// `if_absent` looks among the pending jobs, and not among those in this state.
pub(super) struct IfAbsentOverlooks(pub(super) JobState);

impl Wrong for IfAbsentOverlooks {
    fn put(&mut self, right: &Right, mut put: Put) -> Result<Placed, PutError> {
        let overlooked = right.get(&name(&put)).is_some_and(|view| view.state == self.0);
        if overlooked && put.condition == Some(Condition::IfAbsent) {
            put.condition = None;
        }
        right.put(put)
    }
}

/// Each mode is a wrong one.
pub(super) struct WrongMode {
    pub(super) keep: Mode,
    pub(super) earliest: Mode,
    /// At least so long.
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

impl Wrong for WrongMode {
    fn put(&mut self, right: &Right, mut put: Put) -> Result<Placed, PutError> {
        put.mode = match put.mode {
            Mode::Replace => Mode::Replace,
            Mode::Keep => self.keep,
            Mode::Earliest => self.earliest,
            Mode::Debounce { max_wait } => Mode::Debounce { max_wait: max_wait.max(self.max_wait) },
        };
        right.put(put)
    }
}

/// Delays are cut to whole milliseconds.
pub(super) struct RoundedDown;

impl Wrong for RoundedDown {
    fn put(&mut self, right: &Right, mut put: Put) -> Result<Placed, PutError> {
        if let Due::After(delay) = put.due {
            let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            put.due = Due::After(Duration::from_millis(millis));
        }
        right.put(put)
    }
}

/// Each job counts its own puts, from 1.
#[derive(Default)]
pub(super) struct GenerationsRepeat {
    /// The generation before a job's first.
    before: HashMap<Name, u64>,
}

impl GenerationsRepeat {
    fn told(&self, name: &Name, generation: &mut Generation) {
        generation.0 -= self.before.get(name).copied().unwrap_or_default();
    }
}

impl Wrong for GenerationsRepeat {
    fn put(&mut self, right: &Right, mut put: Put) -> Result<Placed, PutError> {
        let name = name(&put);
        if let Some(Condition::IfGeneration(generation)) = &mut put.condition {
            generation.0 += self.before.get(&name).copied().unwrap_or_default();
        }
        let mut placed = right.put(put)?;
        if placed.outcome == PutOutcome::Created {
            self.before.insert(name.clone(), placed.generation.0 - 1);
        }
        self.told(&name, &mut placed.generation);
        Ok(placed)
    }

    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = right.claim(claim)?;
        for job in &mut claimed.jobs {
            let name = (job.kind().clone(), job.id().clone());
            self.told(&name, &mut job.generation);
        }
        Ok(claimed)
    }

    fn tell(&mut self, _: &Right, view: &mut JobView) {
        let name = (view.kind.clone(), view.id.clone());
        self.told(&name, &mut view.generation);
        if let Some(next) = &mut view.next {
            self.told(&name, &mut next.generation);
        }
    }
}

/// A put on a leased job that was cancelled takes the mark away.
#[derive(Default)]
pub(super) struct CancelErasedByPut {
    erased: HashSet<Name>,
}

impl Wrong for CancelErasedByPut {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let lease = right.get(&name(&put)).and_then(|view| view.lease);
        if lease.is_some_and(|lease| lease.cancelled) {
            self.erased.insert(name(&put));
        }
        right.put(put)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let name = (settle.receipt.kind().clone(), settle.receipt.id().clone());
        let (erased, ack) = (self.erased.contains(&name), settle.action == Settlement::Ack);
        let settled = right.settle(settle.receipt, settle.action)?;
        if erased && ack {
            self.erased.remove(&name);
            return Ok(Settled::Done);
        }
        Ok(settled)
    }
}
