//! A simple model of the contract: a list of jobs that is searched from its beginning.
//!
//! It was written from the contract and not from a store. Its results are compared with those of a
//! store, call by call. Where the contract leaves a choice to the store, the model gets the choice
//! from the result of the store: generations, fences, jitter, when dead jobs are dropped, and, if
//! the store does not order ties, which of several jobs in the same millisecond came first. If the
//! choice is allowed, the model follows it. If not, the model returns another result.

mod job;
mod schedules;
mod views;

use crate::tokens::Tokens;
use job::Job;
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, Condition, ExpiredLease,
    Fence, Generation, JobId, JobState, JobView, Kind, Mode, Placed, Put, PutError, PutOutcome,
    Reaped, Receipt, Reschedule, Retention, Schedule, Settings, Settle, SettleError, Settled,
    Settlement, Timestamp, Version, kept_error,
};
use std::cmp::Reverse;
use std::time::Duration;

/// A model of a whole store.
///
/// ```
/// use requeue_jobs::{Body, JobId, Kind, Put, PutOutcome, Timestamp};
/// use requeue_testkit::Model;
///
/// let mut model = Model::default();
/// let put = Put::new(Kind::new("mail")?, JobId::new("a")?, Body::default());
/// let now = Timestamp::from_millis(1000);
/// let placed = model.put(&put, None, now).expect("there is no condition");
/// assert_eq!(placed.outcome, PutOutcome::Created);
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Model {
    jobs: Vec<Job>,
    kinds: Vec<KindFacts>,
    /// The number of positions that were assigned to jobs.
    positions: u64,
    /// Whether any of several jobs in the same millisecond may come first.
    any_of_ties: bool,
}

/// Everything about a kind except its jobs.
#[derive(Debug, Clone)]
struct KindFacts {
    name: Kind,
    settings: Settings,
    schedules: Vec<Schedule>,
    generation: Generation,
    fence: Fence,
    /// The tokens of the present rate limit.
    tokens: Tokens,
}

impl Model {
    /// Creates a model of a store that does not order ties: jobs that are due, leases that end and
    /// jobs that died in the same millisecond. It follows the choice of the store.
    pub fn of_unordered_ties() -> Self {
        Model { any_of_ties: true, ..Model::default() }
    }

    fn facts(&mut self, kind: &Kind) -> &mut KindFacts {
        let at = self.kinds.iter().position(|facts| facts.name == *kind).unwrap_or_else(|| {
            let (settings, schedules) = (Settings::default(), Vec::new());
            let (generation, fence) = (Generation(0), Fence(0));
            let name = kind.clone();
            let tokens = Tokens::default();
            self.kinds.push(KindFacts { name, settings, schedules, generation, fence, tokens });
            self.kinds.len() - 1
        });
        &mut self.kinds[at]
    }

    fn find(&self, kind: &Kind, id: &JobId) -> Option<usize> {
        self.jobs.iter().position(|job| job.is(kind, id))
    }

    fn of<'a>(&'a self, kind: &'a Kind) -> impl Iterator<Item = &'a Job> {
        self.jobs.iter().filter(move |job| job.view.kind == *kind)
    }

    fn next_place(&mut self) -> u64 {
        self.positions += 1;
        self.positions
    }

    /// Returns the `given` generation if it is higher than all before it.
    fn next_generation(&mut self, kind: &Kind, given: Option<Generation>) -> Generation {
        let last = &mut self.facts(kind).generation;
        *last = given.filter(|given| given > last).unwrap_or(Generation(last.0 + 1));
        *last
    }

    /// Executes a put. If it gets a generation, it is the one `given`.
    pub fn put(
        &mut self,
        put: &Put,
        given: Option<Generation>,
        now: Timestamp,
    ) -> Result<Placed, PutError> {
        let due = put.due.at(now)?;
        let found = self.find(&put.kind, &put.id);
        self.check_condition(put, found)?;
        // For puts, a done job is absent.
        let found = match found {
            Some(at) if self.jobs[at].view.done.is_some() => {
                self.jobs.remove(at);
                None
            }
            found => found,
        };
        if put.mode == Mode::Keep
            && let Some(generation) = found.and_then(|at| self.jobs[at].kept_generation())
        {
            return Ok(Placed { outcome: PutOutcome::Kept, generation });
        }
        let generation = self.next_generation(&put.kind, given);
        let place = self.next_place();
        let outcome = match found {
            Some(at) => self.jobs[at].put(put, due, generation, place, now),
            None => {
                let due = job::merged(put.mode, due, None, now, now);
                let (kind, id) = (put.kind.clone(), put.id.clone());
                let (content, priority) = (put.content.clone(), put.priority);
                let view = JobView::new(kind, id, Version { content, due, priority, generation });
                self.jobs.push(Job::new(view, place, now, now));
                PutOutcome::Created
            }
        };
        Ok(Placed { outcome, generation })
    }

    fn check_condition(&self, put: &Put, found: Option<usize>) -> Result<(), PutError> {
        let is_new = put.condition == Some(Condition::IfNew);
        let found = found.map(|at| &self.jobs[at].view).filter(|job| job.done.is_none() || is_new);
        let found = found.map(JobView::newest_generation);
        let (kind, id) = (put.kind.clone(), put.id.clone());
        match put.condition {
            Some(Condition::IfAbsent | Condition::IfNew) => match found {
                Some(generation) => Err(PutError::Exists { kind, id, generation }),
                None => Ok(()),
            },
            Some(Condition::IfGeneration(expected)) if found != Some(expected) => {
                Err(PutError::Generation { kind, id, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Executes a claim of `kinds` in this order. The fences are those of the jobs `given`, and
    /// `shown` are all jobs of the store afterwards.
    pub fn claim(
        &mut self,
        claim: &Claim,
        kinds: &[Kind],
        given: &[ClaimedJob],
        shown: &[JobView],
        now: Timestamp,
    ) -> Claimed {
        let Claimed { jobs: mut claimed, mut expired, errors } = Claimed::default();
        for kind in kinds {
            while claimed.len() < claim.max && self.has_room(kind, now) {
                let given = given.get(claimed.len()..).unwrap_or_default();
                let Some(at) = self.first(kind, given, shown, now) else { break };
                if self.jobs[at].view.state != JobState::Leased
                    || self.expire(at, &mut expired, now)
                {
                    let fence = given.first().map(|job| job.receipt.fence());
                    claimed.push(self.lease(at, claim, fence, now));
                }
            }
        }
        Claimed { jobs: claimed, errors, expired }
    }

    /// Returns whether one more job may be leased. An expired lease does not count.
    fn has_room(&mut self, kind: &Kind, now: Timestamp) -> bool {
        let leases = self.of(kind).filter(|job| job.lease_ends_at().is_some_and(|end| end > now));
        let leased = leases.count();
        let KindFacts { settings, tokens, .. } = self.facts(kind);
        let has_token = settings.rate.is_none_or(|rate| tokens.has(1, &rate, now));
        let may_lease = settings.concurrency.is_none_or(|limit| leased < limit as usize);
        !settings.paused && may_lease && has_token
    }

    /// Returns the first job that is due or whose lease has expired. `given` are the jobs that the
    /// store returned from here on.
    fn first(
        &self,
        kind: &Kind,
        given: &[ClaimedJob],
        shown: &[JobView],
        now: Timestamp,
    ) -> Option<usize> {
        let choice = |job: &Job| {
            let is_it = |given: &ClaimedJob| job.is(given.kind(), given.id());
            match given.iter().position(is_it) {
                Some(0) => Choice::Next,
                // Its lease has ended, and the job cannot be claimed.
                None if job.lease_ends_at().is_some() && !is_expired(shown, job, now) => {
                    Choice::Before
                }
                _ => Choice::Behind,
            }
        };
        let facts = self.kinds.iter().find(|facts| facts.name == *kind);
        let ageing = facts.and_then(|facts| facts.settings.ageing);
        let level = |job: &Job| {
            let (ready_since, _) = job.position()?;
            let mut level = u64::from(job.view.version.priority.get());
            if let Some(ageing) = ageing {
                level +=
                    (now.saturating_since(ready_since).as_millis() / ageing.as_millis()) as u64;
            }
            Some(level)
        };
        self.first_of(level, choice, |job| {
            job.view.kind == *kind && job.position().is_some_and(|(at, _)| at <= now)
        })
    }

    /// Returns the first of `these`: of those with the highest level. Of jobs with the same time it is
    /// the one that the store chose.
    fn first_of(
        &self,
        level: impl Fn(&Job) -> Option<u64>,
        choice: impl Fn(&Job) -> Choice,
        these: impl Fn(&Job) -> bool,
    ) -> Option<usize> {
        let among = (0..self.jobs.len()).filter(|at| these(&self.jobs[*at]));
        among.min_by_key(|at| {
            let job = &self.jobs[*at];
            let choice = if self.any_of_ties { choice(job) } else { Choice::Next };
            job.position().map(|(at, place)| (Reverse(level(job)), at, choice, place))
        })
    }

    fn lease(
        &mut self,
        at: usize,
        claim: &Claim,
        fence: Option<Fence>,
        now: Timestamp,
    ) -> ClaimedJob {
        let (kind, id) = (self.jobs[at].view.kind.clone(), self.jobs[at].view.id.clone());
        let facts = self.facts(&kind);
        let ends_at = now.saturating_add(claim.lease.unwrap_or(facts.settings.lease));
        if let Some(rate) = &facts.settings.rate {
            facts.tokens.take(rate, now);
        }
        let last = &mut facts.fence;
        *last = fence.filter(|fence| fence > last).unwrap_or(Fence(last.0 + 1));
        let receipt = Receipt::new(kind, id, *last, claim.nonce);
        self.jobs[at].lease(receipt, claim.worker.clone(), ends_at, now)
    }

    /// Ends an expired lease. Returns whether the job can be claimed now. If not, it may no longer
    /// exist.
    fn expire(&mut self, at: usize, expired: &mut Vec<ExpiredLease>, now: Timestamp) -> bool {
        expired.push(self.jobs[at].expired_lease());
        let place = self.next_place();
        if self.jobs[at].is_cancelled() {
            self.end(at, place, now);
            return false;
        }
        let job = &mut self.jobs[at];
        let ended_at = job.lease_ends_at().expect("only a leased job expires");
        let next = job.fail(ended_at, None, now);
        // There is no backoff after an expiry.
        job.view.version.due = ended_at;
        let priority = job.view.version.priority;
        if let Some(next) = next {
            let due = if next.due > now { next.due } else { ended_at };
            job.take_over(next, due, place);
        }
        let same = job.view.version.priority == priority;
        if self.dies(at, now) {
            expired.last_mut().expect("it was just added").died = true;
            return false;
        }
        // With another priority it is no longer necessarily the first.
        same && self.jobs[at].view.version.due <= now
    }

    /// Returns whether its attempts are used up. If so, the job is dead now.
    fn dies(&mut self, at: usize, now: Timestamp) -> bool {
        let kind = self.jobs[at].view.kind.clone();
        let max_attempts = self.facts(&kind).settings.max_attempts.max(1);
        let place = self.next_place();
        let dies = self.jobs[at].view.attempts >= max_attempts;
        if dies {
            self.jobs[at].die(place, now);
        }
        dies
    }

    /// Ends the job. Its successor, if there is one, becomes a new job.
    fn end(&mut self, at: usize, place: u64, now: Timestamp) {
        let old = self.jobs.remove(at);
        if let (Some(next), Some(put_at)) = (old.view.next, old.next_put_at) {
            let JobView { kind, id, .. } = old.view;
            self.jobs.push(Job::new(JobView::new(kind, id, next), place, put_at, now));
        }
    }

    /// Executes a settlement. A retry with jitter is due at the time `given`, and the job of a *requeue
    /// after* has the generation `assigned`, if that is higher than the latest one.
    pub fn settle(
        &mut self,
        settle: &Settle,
        given: Option<Timestamp>,
        assigned: Option<Generation>,
        now: Timestamp,
    ) -> Result<Settled, SettleError> {
        let receipt = &settle.receipt;
        let at = self.jobs.iter().position(|job| job.receipt.as_ref() == Some(receipt));
        let Some(at) = at else {
            return Err(SettleError::LeaseLost { receipt: receipt.clone() });
        };
        let place = self.next_place();
        let KindFacts { settings, tokens, .. } = self.facts(receipt.kind());
        if let (Settlement::Release, Some(rate)) = (&settle.action, &settings.rate) {
            tokens.give_back(rate, now);
        }
        let settings = settings.clone();
        let job = &mut self.jobs[at];
        if job.is_cancelled() {
            if !matches!(settle.action, Settlement::Extend(_)) {
                self.end(at, place, now);
            }
            return Ok(Settled::Cancelled);
        }
        job.view.updated_at = now;
        Ok(match &settle.action {
            Settlement::Extend(lease) => {
                let wanted = now.saturating_add(lease.unwrap_or(settings.lease));
                Settled::Extended(job.extend(wanted))
            }
            Settlement::RequeueAfter(delay) if job.view.next.is_none() => {
                let JobView { kind, id, version, .. } = job.view.clone();
                self.jobs.remove(at);
                let (due, generation) =
                    (now.saturating_add(*delay), self.next_generation(&kind, assigned));
                let version = Version { due, generation, ..version };
                let mut again = Job::new(JobView::new(kind, id, version), place, now, now);
                again.first_put_at = None;
                self.jobs.push(again);
                Settled::Done
            }
            Settlement::Ack | Settlement::AckWith(_)
                if job.view.next.is_none() && settings.keep_done.is_some() =>
            {
                let result = match &settle.action {
                    Settlement::AckWith(result) => Some(result.clone()),
                    _ => None,
                };
                job.finish(result, place, now);
                Settled::Done
            }
            Settlement::Ack | Settlement::AckWith(_) | Settlement::RequeueAfter(_) => {
                let has_next = job.view.next.is_some();
                self.end(at, place, now);
                if has_next && let Some(next) = self.jobs.last_mut() {
                    // The first put after the ack counts as its first put.
                    next.first_put_at = None;
                }
                Settled::Done
            }
            Settlement::Release => {
                if let Some(next) = job.unlease() {
                    job.view.version.priority = next.priority;
                    job.replace(next.content, next.due, next.generation, place, now);
                }
                Settled::Released
            }
            Settlement::Bury { error } => {
                let put_at = job.next_put_at;
                match job.fail(now, Some(kept_error(error)), now) {
                    None => job.die(place, now),
                    // Like a put on the dead job.
                    Some(next) => {
                        job.view.deaths += 1;
                        job.revive(next.due, place, now);
                        (job.view.version.content, job.view.version.generation) =
                            (next.content, next.generation);
                        (job.view.version.priority, job.first_put_at) = (next.priority, put_at);
                    }
                }
                Settled::Dead
            }
            Settlement::Retry { delay, error } => {
                let next = job.fail(now, Some(kept_error(error)), now);
                let (soonest, latest) = match delay {
                    Some(delay) => (*delay, *delay),
                    None => job::backoff(&settings.backoff, job.view.attempts),
                };
                let range = now.saturating_add(soonest)..=now.saturating_add(latest);
                let until = given.filter(|given| range.contains(given)).unwrap_or(*range.end());
                job.floor = until;
                job.move_to(until, place);
                if let Some(next) = next {
                    let due = next.due.max(until);
                    job.take_over(next, due, place);
                }
                let due = job.view.version.due;
                if self.dies(at, now) { Settled::Dead } else { Settled::RetryAt(due) }
            }
        })
    }

    /// Executes a change. If a reschedule gets a generation, it is the one `given`.
    pub fn change(
        &mut self,
        change: &Change,
        given: Option<Generation>,
        now: Timestamp,
    ) -> Result<Changed, ChangeError> {
        let (kind, id) = (change.kind.clone(), change.id.clone());
        let Some(at) = self.find(&kind, &id) else {
            return Err(ChangeError::Absent { kind, id });
        };
        let place = self.next_place();
        let job = &mut self.jobs[at];
        match (&change.action, job.view.state) {
            (ChangeKind::Reschedule(set), _) => {
                self.reschedule(at, set, given, place, now).map(Changed::Rescheduled)
            }
            (ChangeKind::Cancel, JobState::Leased) => {
                job.cancel(now);
                Ok(Changed::Ending)
            }
            (ChangeKind::Cancel, _) => {
                self.jobs.remove(at);
                Ok(Changed::Removed)
            }
            (ChangeKind::Revive | ChangeKind::RunNow, JobState::Dead) => {
                job.revive(now, place, now);
                Ok(Changed::Revived)
            }
            (ChangeKind::RunNow, JobState::Done) => Err(ChangeError::Done { kind, id }),
            (ChangeKind::Revive, _) => Err(ChangeError::NotDead { kind, id }),
            (ChangeKind::RunNow, JobState::Leased) => match &mut job.view.next {
                Some(next) => {
                    next.due = next.due.min(now);
                    job.view.updated_at = now;
                    Ok(Changed::Ready)
                }
                None => Err(ChangeError::Leased { kind, id }),
            },
            (ChangeKind::RunNow, _) => {
                job.floor = Timestamp::default();
                job.view.updated_at = now;
                if job.view.version.due > now {
                    job.move_to(now, place);
                }
                Ok(Changed::Ready)
            }
        }
    }

    fn reschedule(
        &mut self,
        at: usize,
        set: &Reschedule,
        given: Option<Generation>,
        place: u64,
        now: Timestamp,
    ) -> Result<Placed, ChangeError> {
        let job = &self.jobs[at];
        let (kind, id) = (job.view.kind.clone(), job.view.id.clone());
        if job.view.done.is_some() {
            return Err(ChangeError::Done { kind, id });
        }
        if job.is_cancelled() && job.view.next.is_none() {
            return Err(ChangeError::Absent { kind, id });
        }
        let due = set.due.map(|due| due.at(now)).transpose()?;
        let found = job.view.newest_generation();
        if let Some(expected) = set.if_generation.filter(|expected| *expected != found) {
            return Err(ChangeError::Generation { kind, id, expected, found });
        }
        let generation = self.next_generation(&kind, given);
        let outcome = self.jobs[at].reschedule(set, due, generation, place, now);
        Ok(Placed { outcome, generation })
    }

    /// Ends up to `max` expired leases of each kind, those of the highest priority first, each in the
    /// order of their ends, and returns their number. `shown` are all jobs of the store afterwards.
    pub fn reap(&mut self, max: usize, shown: &[JobView], now: Timestamp) -> Reaped {
        let mut reaped = Reaped::default();
        for kind in self.names() {
            for _ in 0..max {
                let choice = |job: &Job| match is_expired(shown, job, now) {
                    true => Choice::Behind,
                    false => Choice::Next,
                };
                let priority = |job: &Job| Some(job.view.version.priority.get().into());
                let first = self.first_of(priority, choice, |job| {
                    job.view.kind == kind && job.lease_ends_at().is_some_and(|end| end <= now)
                });
                let Some(at) = first else { break };
                self.expire(at, &mut reaped.expired, now);
                reaped.count += 1;
            }
        }
        reaped
    }

    /// Drops dead and done jobs beyond their retention, by age or by number, if the store has dropped
    /// them too: `shown` are all of its jobs. Returns their number, and whether any are left.
    pub fn drop_old(&mut self, shown: &[JobView], now: Timestamp) -> (usize, bool) {
        let mut left = false;
        let before = self.jobs.len();
        let is_kept = |job: &Job| shown.iter().any(|shown| job.is(&shown.kind, &shown.id));
        let any_of_ties = self.any_of_ties;
        let end = |job: &Job, done: bool| {
            let (at, place) = if done { job.completion() } else { job.death() }?;
            let choice = match any_of_ties && is_kept(job) {
                true => Choice::Behind,
                false => Choice::Next,
            };
            Some((at, choice, place))
        };
        for (kind, done) in
            self.names().into_iter().flat_map(|kind| [(kind.clone(), false), (kind, true)])
        {
            let settings = &self.facts(&kind).settings;
            let none = Retention { age: Duration::ZERO, count: 0 };
            let retention =
                if done { settings.keep_done.unwrap_or(none) } else { settings.retention };
            let mut ends: Vec<_> = self.of(&kind).filter_map(|job| end(job, done)).collect();
            ends.sort_unstable();
            let too_many = ends.len().saturating_sub(retention.count);
            let (too_old, first_kept) = (retention.oldest(now), ends.get(too_many).copied());
            self.jobs.retain(|job| {
                let Some(end) = end(job, done).filter(|_| job.view.kind == kind) else {
                    return true;
                };
                let past = end.0 < too_old || first_kept.is_none_or(|first| end < first);
                let keep = !past || is_kept(job);
                left |= past && keep;
                keep
            });
        }
        (before - self.jobs.len(), left)
    }

    /// Returns the names of all kinds so far.
    fn names(&self) -> Vec<Kind> {
        self.kinds.iter().map(|facts| facts.name.clone()).collect()
    }
}

/// The position that the store chose for a job among those with the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    Before,
    Next,
    Behind,
}

/// Returns whether the store still shows an expired lease of this job.
fn is_expired(shown: &[JobView], job: &Job, now: Timestamp) -> bool {
    let expired = |view: &JobView| view.lease.as_ref().is_some_and(|lease| lease.ends_at <= now);
    shown.iter().any(|shown| job.is(&shown.kind, &shown.id) && expired(shown))
}
