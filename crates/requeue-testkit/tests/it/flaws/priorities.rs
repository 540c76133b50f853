//! Flaws of stores that store a record changed: priorities and done jobs.

use super::store::{CorrectStore, Deviation, JobName};
use requeue_jobs::rules::{Record, Status};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Condition, JobState, Placed, Priority, Put,
    PutError, Reaped, Settle, SettleError, Settled, Settlement,
};
use std::time::Duration;

type Before<'a> = Option<&'a Record>;

fn is_leased(record: &Record) -> bool {
    matches!(record.status, Status::Leased(_))
}

pub(super) fn priorities_ignored(_: Before<'_>, after: &mut Record) {
    after.version.priority = Priority::default();
}

pub(super) fn high_priorities_are_due(before: Before<'_>, after: &mut Record) {
    if before.is_none() && after.version.priority > Priority::default() {
        after.version.due = after.created_at;
    }
}

pub(super) fn puts_keep_the_priority(before: Before<'_>, after: &mut Record) {
    if let Some(before) = before
        && matches!((&before.status, &after.status), (Status::Pending, Status::Pending))
    {
        after.version.priority = before.version.priority;
    }
}

pub(super) fn successors_share_the_priority(_: Before<'_>, after: &mut Record) {
    let priority = after.version.priority;
    if let Status::Leased(lease) = &mut after.status
        && let Some(next) = &mut lease.next
    {
        next.version.priority = priority;
    }
}

/// When a lease ends and the job is pending.
pub(super) fn a_failure_loses_the_priority(before: Before<'_>, after: &mut Record) {
    if before.is_some_and(is_leased) && after.attempts > before.map_or(0, |job| job.attempts) {
        after.version.priority = Priority::default();
    }
}

pub(super) fn a_release_loses_the_priority(before: Before<'_>, after: &mut Record) {
    if let Some(before) = before.filter(|before| is_leased(before))
        && matches!(after.status, Status::Pending)
        && (after.attempts, after.version.generation)
            == (before.attempts, before.version.generation)
    {
        after.version.priority = Priority::default();
    }
}

pub(super) fn death_loses_the_priority(_: Before<'_>, after: &mut Record) {
    if matches!(after.status, Status::Dead { .. }) {
        after.version.priority = Priority::default();
    }
}

/// *Run now* changes the due time, and nothing that a put changes.
pub(super) fn run_now_loses_the_priority(before: Before<'_>, after: &mut Record) {
    if let Some(before) = before
        && matches!((&before.status, &after.status), (Status::Pending, Status::Pending))
        && before.version.generation == after.version.generation
        && before.version.due != after.version.due
    {
        after.version.priority = Priority::default();
    }
}

pub(super) fn done_jobs_lose_the_priority(_: Before<'_>, after: &mut Record) {
    if matches!(after.status, Status::Done(_)) {
        after.version.priority = Priority::default();
    }
}

pub(super) fn results_lost(_: Before<'_>, after: &mut Record) {
    if let Status::Done(done) = &mut after.status {
        done.result = None;
    }
}

pub(super) fn start_of_the_run_lost(_: Before<'_>, after: &mut Record) {
    if let Status::Done(done) = &mut after.status {
        done.started_at = done.done_at;
    }
}

pub(super) fn done_jobs_keep_their_bodies(before: Before<'_>, after: &mut Record) {
    if let (Some(before), Status::Done(_)) = (before, &after.status) {
        after.version.content.body = before.version.content.body.clone();
    }
}

/// A condition is treated as another.
pub(super) struct ConditionIs(pub(super) Condition, pub(super) Condition);

impl Deviation for ConditionIs {
    fn put(&mut self, correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
        if put.condition == Some(self.0) {
            put.condition = Some(self.1);
        }
        correct.put(put)
    }
}

/// A put without a condition keeps a done job.
pub(super) fn puts_keep_done(correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
    let view = correct.get(&(put.kind.clone(), put.id.clone()));
    if view.is_some_and(|view| view.state == JobState::Done) {
        put.condition = Some(Condition::IfNew);
    }
    correct.put(put)
}

/// *Run now* reports success for a done job.
pub(super) fn done_can_run(correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
    let name: JobName = (change.kind, change.id);
    match correct.change(&name, change.action) {
        Err(ChangeError::Done { .. }) => Ok(Changed::Ready),
        changed => changed,
    }
}

/// A done job cannot be removed.
pub(super) fn done_stays(correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
    let name: JobName = (change.kind, change.id);
    let done = correct.get(&name).is_some_and(|view| view.state == JobState::Done);
    if done && change.action == ChangeKind::Cancel {
        return Err(ChangeError::Absent { kind: name.0, id: name.1 });
    }
    correct.change(&name, change.action)
}

/// A result that is too long is discarded.
pub(super) fn long_results_discarded(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let action = match settle.action {
        Settlement::AckWith(result) if result.len() > 1000 => Settlement::AckWith(Body::default()),
        action => action,
    };
    correct.settle(settle.receipt, action)
}

/// While a kind has no token, nothing is reaped.
pub(super) struct ReapNeedsAToken;

impl Deviation for ReapNeedsAToken {
    fn reap(&mut self, correct: &CorrectStore, max: usize) -> Reaped {
        match correct.kinds().iter().any(|kind| kind.throttled_until.is_some()) {
            true => Reaped::default(),
            false => correct.reap(max),
        }
    }
}

/// A released job keeps the token of its rate limit.
pub(super) fn release_takes_a_token(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let Settlement::Release = settle.action else {
        return correct.settle(settle.receipt, settle.action);
    };
    let (delay, error) = (Some(Duration::ZERO), String::new());
    correct.settle(settle.receipt, Settlement::Retry { delay, error })?;
    Ok(Settled::Released)
}
