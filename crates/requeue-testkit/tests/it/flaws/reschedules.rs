//! Flaws of reschedules.

use super::store::{CorrectStore, Deviation, JobName};
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Due, Fence, Generation, Invalid, JobState,
    JobView, Kind, Mode, Placed, Put, PutError, PutOutcome, Reschedule, Restore, Store,
    StoreFuture, check_changes,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is wrong with reschedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RescheduleFlaw {
    /// The job loses a body that is not named.
    LosesTheBody,
    /// The job loses a priority that is not named.
    LosesThePriority,
    /// The job is due now if no due time is named.
    IsDueNow,
    /// The job loses its failures and is created again.
    CreatesAgain,
    /// A ready job moves behind the others.
    LosesThePosition,
    /// The generation stays.
    KeepsTheGeneration,
    /// A job whose backoff is not over is due.
    EndsTheBackoff,
    /// A leased job cannot be rescheduled.
    RefusesLeasedJobs,
    /// A successor gets the due time of the lease's job.
    SuccessorIsDueAsTheJob,
    /// A successor gets the body of the leased job.
    SuccessorHasTheBodyOfTheJob,
    /// A leased job that was cancelled gets a successor.
    FollowsACancel,
    /// A dead job stays dead.
    LeavesDeadJobs,
    /// A dead job is revived without a due time.
    RevivesAlways,
    /// A dead job that stays dead is kept for as long as if it had just died.
    RestartsTheRetention,
    /// A dead job that is revived keeps its attempts.
    KeepsTheAttempts,
    /// A done job is put again.
    RevivesDoneJobs,
    /// An absent job is created.
    CreatesAbsentJobs,
    /// Conditions are ignored.
    IgnoresConditions,
    /// A condition compares with the leased job, not with its successor.
    ComparesWithTheJob,
    /// A reschedule that names nothing succeeds.
    AcceptsNothing,
    /// A due time that is too far becomes the farthest.
    ShortensLongDelays,
}

use RescheduleFlaw as F;

impl RescheduleFlaw {
    fn reschedule(
        self,
        correct: &CorrectStore,
        name: &JobName,
        mut set: Reschedule,
    ) -> Result<Changed, ChangeError> {
        let job = correct.get(name);
        let state = job.as_ref().map(|job| job.state);
        let ready = state == Some(JobState::Ready);
        let is_pending = ready || state == Some(JobState::Waiting);
        let change = |set| correct.change(name, ChangeKind::Reschedule(set));
        let put = |body: Body| -> Result<Changed, ChangeError> {
            let put = Put::new(name.0.clone(), name.1.clone(), body);
            let placed = correct.put(put).expect("a put without a condition succeeds");
            Ok(Changed::Rescheduled(placed))
        };
        match (self, &job) {
            (F::LosesTheBody, _) => set.body = Some(set.body.unwrap_or_default()),
            (F::LosesThePriority, _) => {
                set.priority = Some(set.priority.unwrap_or_default());
            }
            (F::IsDueNow, _) if state == Some(JobState::Waiting) => {
                set.due = Some(set.due.unwrap_or(Due::Now));
            }
            (F::CreatesAgain, Some(job)) if is_pending && set.if_generation.is_none() => {
                let mut put = Put::new(name.0.clone(), name.1.clone(), job.body().clone());
                (put.due, put.priority) = (Due::At(job.version.due), job.version.priority);
                let _removed = correct.change(name, ChangeKind::Cancel);
                let _created = correct.put(put);
            }
            (F::LosesThePosition, _) if ready && set.if_generation.is_none() => {
                let due = Some(Due::After(Duration::from_millis(1)));
                change(Reschedule { due, ..Reschedule::default() })?;
                set.due = Some(set.due.unwrap_or(Due::Now));
            }
            (F::EndsTheBackoff, _) if set.due.is_some() && state == Some(JobState::Waiting) => {
                let changed = change(set)?;
                if correct.get(name).is_some_and(|job| job.attempts > 0) {
                    let _ready = correct.change(name, ChangeKind::RunNow);
                }
                return Ok(changed);
            }
            (F::RefusesLeasedJobs, _) if state == Some(JobState::Leased) => {
                let (kind, id) = name.clone();
                return Err(ChangeError::Leased { kind, id });
            }
            (F::SuccessorIsDueAsTheJob, Some(job)) if job.next.is_some() => {
                set.due = Some(set.due.unwrap_or(Due::At(job.version.due)));
            }
            (F::SuccessorHasTheBodyOfTheJob, Some(job)) if job.next.is_some() => {
                set.body = Some(set.body.unwrap_or_else(|| job.body().clone()));
            }
            (F::FollowsACancel, Some(job)) => {
                let cancelled = job.lease.as_ref().is_some_and(|lease| lease.cancelled);
                if cancelled && job.next.is_none() {
                    return put(set.body.unwrap_or_else(|| job.body().clone()));
                }
            }
            (F::LeavesDeadJobs, Some(job)) if state == Some(JobState::Dead) => {
                set.due = None;
                set.body = Some(set.body.unwrap_or_else(|| job.body().clone()));
            }
            (F::RevivesAlways, _) if state == Some(JobState::Dead) => {
                set.due = Some(set.due.unwrap_or(Due::Now));
            }
            (F::RestartsTheRetention, _) if state == Some(JobState::Dead) && set.due.is_none() => {
                let changed = change(set)?;
                replace(correct, name, |view| view.died_at = Some(correct.now()));
                return Ok(changed);
            }
            (F::KeepsTheAttempts, Some(job)) if state == Some(JobState::Dead) => {
                let attempts = job.attempts;
                let changed = change(set)?;
                if correct.get(name).is_some_and(|job| job.state != JobState::Dead) {
                    replace(correct, name, |view| view.attempts = attempts);
                }
                return Ok(changed);
            }
            (F::RevivesDoneJobs, _) if state == Some(JobState::Done) => {
                return put(set.body.unwrap_or_default());
            }
            (F::CreatesAbsentJobs, None) => return put(set.body.unwrap_or_default()),
            (F::IgnoresConditions, _) => set.if_generation = None,
            (F::ComparesWithTheJob, Some(job)) => {
                let newest = job.next.as_ref().map(|next| next.generation);
                if let (Some(newest), Some(expected)) = (newest, &mut set.if_generation) {
                    *expected = match *expected {
                        expected if expected == job.version.generation => newest,
                        Generation(other) => Generation(other + 1_000_000),
                    };
                }
            }
            (F::AcceptsNothing, Some(job)) if set.check() == Err(Invalid::NothingToChange) => {
                let (outcome, generation) = (PutOutcome::Updated, job.version.generation);
                return Ok(Changed::Rescheduled(Placed { outcome, generation }));
            }
            (F::ShortensLongDelays, _)
                if set.due.is_some_and(|due| due.at(correct.now()).is_err()) =>
            {
                set.due = Some(Due::After(MAX_DELAY));
            }
            (F::KeepsTheGeneration, Some(job)) => {
                let generation = job.version.generation;
                let changed = change(set)?;
                return Ok(match changed {
                    Changed::Rescheduled(placed) => {
                        Changed::Rescheduled(Placed { generation, ..placed })
                    }
                    changed => changed,
                });
            }
            _ => {}
        }
        change(set)
    }
}

/// Replaces a job by another view of it.
fn replace(correct: &CorrectStore, name: &JobName, alter: impl FnOnce(&mut JobView)) {
    let mut view = correct.get(name).expect("the job exists");
    alter(&mut view);
    let _removed = correct.change(name, ChangeKind::Cancel);
    let (kind, generation, fence) = (name.0.clone(), Generation(0), Fence(0));
    let restored = correct.restore(Restore { kind, generation, fence, jobs: vec![view] });
    assert!(restored.is_ok_and(|each| each.iter().all(Result::is_ok)), "the view is consistent");
}

/// The time of a debounce does not begin with a reschedule.
#[derive(Default)]
pub(super) struct NotDebounced {
    rescheduled: HashSet<JobName>,
}

impl Deviation for NotDebounced {
    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        let name = (change.kind, change.id);
        let changed = correct.change(&name, change.action)?;
        if matches!(changed, Changed::Rescheduled(_)) {
            self.rescheduled.insert(name);
        }
        Ok(changed)
    }

    fn put(&mut self, correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
        let is_first = self.rescheduled.remove(&(put.kind.clone(), put.id.clone()));
        if let (true, Mode::Debounce { max_wait }) = (is_first, &mut put.mode) {
            *max_wait = MAX_DELAY;
        }
        correct.put(put)
    }
}

/// A wait continues although a job was rescheduled.
#[derive(Default)]
pub(super) struct WakesNobody {
    reschedules: Arc<AtomicU64>,
}

impl Deviation for WakesNobody {
    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        if matches!(change.action, ChangeKind::Reschedule(_)) {
            self.reschedules.fetch_add(1, Ordering::Relaxed);
        }
        correct.change(&(change.kind, change.id), change.action)
    }

    fn wait<'a>(
        &mut self,
        correct: &'a CorrectStore,
        kinds: Vec<Kind>,
        limit: Duration,
    ) -> StoreFuture<'a, ()> {
        let reschedules = Arc::clone(&self.reschedules);
        let before = reschedules.load(Ordering::Relaxed);
        Box::pin(async move {
            correct.store.wait(kinds, limit).await?;
            if reschedules.load(Ordering::Relaxed) == before {
                return Ok(());
            }
            correct.store.wait(Vec::new(), limit).await
        })
    }
}

impl Deviation for RescheduleFlaw {
    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        let name = (change.kind, change.id);
        match change.action {
            ChangeKind::Reschedule(set) => self.reschedule(correct, &name, set),
            action => correct.change(&name, action),
        }
    }

    fn check_changes(&self, changes: &[Change]) -> Result<(), Invalid> {
        match check_changes(changes) {
            Err(Invalid::NothingToChange) if *self == F::AcceptsNothing => Ok(()),
            checked => checked,
        }
    }
}
