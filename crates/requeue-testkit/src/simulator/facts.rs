//! What the log contains so far: for each job the facts that the invariants need.

use super::event::{Action, Event};
use crate::tokens::Tokens;
use requeue_jobs::{
    Change, ChangeKind, Changed, ClaimedJob, Due, Fence, Generation, JobId, JobState, JobView,
    Kind, Mode, Placed, Put, PutOutcome, Rate, Receipt, Settings, Settle, Settled, Settlement,
    Ticked, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Facts {
    pub(super) jobs: BTreeMap<(Kind, JobId), JobFacts>,
    pub(super) fences: BTreeMap<Kind, Fence>,
    pub(super) settings: BTreeMap<Kind, Settings>,
    /// The times of schedules for which a job was put.
    pub(super) ticked: BTreeSet<(Kind, JobId, Timestamp)>,
    /// The tokens of each kind with a rate limit.
    tokens: BTreeMap<Kind, Tokens>,
    /// How many claims in a row could have returned a job of this kind, and returned none.
    pub(super) passed_over: BTreeMap<Kind, u32>,
}

/// The facts about a kind and id, including all jobs of that name before.
#[derive(Debug, Default, Clone)]
pub(super) struct JobFacts {
    /// The generation of the latest put.
    pub(super) newest: Generation,
    /// The latest generation that was cancelled.
    pub(super) cancelled: Generation,
    pub(super) acked: BTreeSet<Generation>,
    /// The job is not due before this. With a debounce, it may be due later.
    pub(super) not_before: Timestamp,
    /// The end of its backoff, if it has one.
    pub(super) backoff: Option<Backoff>,
    /// Its failures since the last reset, without the expiry of `lease`.
    pub(super) failures: u32,
    pub(super) lease: Option<Leased>,
    /// When it was done, if it is kept as a done job.
    pub(super) done_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Backoff {
    pub(super) ends_at: Timestamp,
    /// The backoff may end earlier: the due time of the successor was later and hides it.
    hidden: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Leased {
    pub(super) receipt: Receipt,
    pub(super) generation: Generation,
    pub(super) ends_at: Timestamp,
    pub(super) cancelled: bool,
    has_next: bool,
}

impl JobFacts {
    /// Returns the failures, including the expiry of the lease if there is one.
    pub(super) fn failures_after_expiry(&self) -> u32 {
        match &self.lease {
            Some(lease) if lease.cancelled => 0,
            Some(_) => self.failures + 1,
            None => self.failures,
        }
    }

    fn expire(&mut self) {
        self.failures = self.failures_after_expiry();
        self.lease = None;
    }

    /// Forgets failures, backoff and lease.
    fn reset(&mut self) {
        (self.failures, self.backoff, self.lease) = (0, None, None);
    }

    fn put(&mut self, mode: Mode, due: Timestamp, placed: &Placed, now: Timestamp) {
        self.done_at = None;
        let had_next = self.lease.as_ref().is_some_and(|lease| lease.has_next);
        match placed.outcome {
            PutOutcome::Kept => return,
            PutOutcome::Created | PutOutcome::Revived => self.reset(),
            // The job is pending: if it was leased, the lease has expired.
            PutOutcome::Updated => {
                self.expire();
                self.backoff = self.backoff.take().filter(|backoff| !backoff.hidden);
            }
            PutOutcome::Coalesced => {
                if let Some(lease) = &mut self.lease {
                    lease.has_next = true;
                }
            }
        }
        let is_new = matches!(placed.outcome, PutOutcome::Created | PutOutcome::Revived);
        let replaces = placed.outcome == PutOutcome::Updated || had_next;
        self.newest = placed.generation;
        self.not_before = match mode {
            Mode::Earliest if replaces => due.min(self.not_before),
            Mode::Debounce { max_wait } if is_new => due.min(now.saturating_add(max_wait)),
            // The wait may have begun with the first put of the job.
            Mode::Debounce { .. } => now,
            _ => due,
        };
    }

    fn claim(&mut self, job: &ClaimedJob) {
        self.expire();
        self.backoff = None;
        self.lease = Some(Leased {
            receipt: job.receipt.clone(),
            generation: job.version.generation,
            ends_at: job.lease_ends_at,
            cancelled: false,
            has_next: false,
        });
    }

    fn settle(&mut self, settle: &Settle, settled: Settled, done_at: Option<Timestamp>) {
        let Some(lease) = &mut self.lease else { return };
        if let Settled::Extended(ends_at) = settled {
            lease.ends_at = ends_at;
            return;
        }
        if settled == Settled::Cancelled && matches!(settle.action, Settlement::Extend(_)) {
            return;
        }
        let (generation, has_next) = (lease.generation, lease.has_next);
        self.lease = None;
        match settled {
            Settled::Done => {
                self.acked.insert(generation);
                self.reset();
                self.done_at = done_at.filter(|_| !has_next);
            }
            Settled::Cancelled => self.reset(),
            Settled::RetryAt(ends_at) => {
                self.failures += 1;
                self.backoff = Some(Backoff { ends_at, hidden: has_next });
            }
            Settled::Dead => self.failures += 1,
            _ => {}
        }
    }

    fn change(&mut self, action: &ChangeKind, changed: Changed) {
        match changed {
            Changed::Removed => {
                self.done_at = None;
                self.cancelled = self.newest;
                self.reset();
            }
            Changed::Ending => {
                self.cancelled = self.newest;
                if let Some(lease) = &mut self.lease {
                    (lease.cancelled, lease.has_next) = (true, false);
                }
            }
            Changed::Revived => {
                self.reset();
                self.not_before = Timestamp::default();
            }
            _ if *action == ChangeKind::RunNow => {
                (self.not_before, self.backoff) = (Timestamp::default(), None);
            }
            _ => {}
        }
    }
}

impl Facts {
    pub(super) fn of(&self, kind: &Kind, id: &JobId) -> JobFacts {
        self.jobs.get(&(kind.clone(), id.clone())).cloned().unwrap_or_default()
    }

    fn job(&mut self, kind: &Kind, id: &JobId) -> &mut JobFacts {
        self.jobs.entry((kind.clone(), id.clone())).or_default()
    }

    pub(super) fn add(&mut self, event: &Event) {
        let now = event.at;
        match &event.action {
            Action::Put { put, placed: Ok(placed), .. } => self.put(put, placed, now),
            Action::Claim { jobs, before } => {
                self.count_passed_over(jobs, before, now);
                for job in jobs {
                    if let Some((rate, tokens)) = self.rate(job.kind()) {
                        tokens.take(&rate, now);
                    }
                    self.fences.insert(job.kind().clone(), job.receipt.fence());
                    self.job(job.kind(), job.id()).claim(job);
                }
            }
            Action::Settle { settle, settled: Ok(settled), .. } => {
                let receipt = &settle.receipt;
                if settle.action == Settlement::Release
                    && let Some((rate, tokens)) = self.rate(receipt.kind())
                {
                    tokens.give_back(&rate, now);
                }
                let keeps =
                    self.settings.get(receipt.kind()).is_some_and(|s| s.keep_done.is_some());
                let is_last = !matches!(settle.action, Settlement::RequeueAfter(_));
                let done_at = (keeps && is_last).then_some(now);
                self.job(receipt.kind(), receipt.id()).settle(settle, *settled, done_at);
            }
            Action::Change { change: Change { kind, id, action }, changed: Ok(changed) } => {
                self.job(kind, id).change(action, *changed);
            }
            Action::Reap => {
                let expired = |job: &&mut JobFacts| {
                    job.lease.as_ref().is_some_and(|lease| lease.ends_at <= now)
                };
                self.jobs.values_mut().filter(expired).for_each(JobFacts::expire);
            }
            Action::Set { kind, settings } => {
                self.settings.insert(kind.clone(), settings.clone());
            }
            Action::Tick { tick, ticked: Ticked::Put(placed) } => {
                self.ticked.insert((tick.kind.clone(), tick.id.clone(), tick.expected));
                let due = tick.expected.max(now);
                let id = tick.put.as_ref().map_or(&tick.id, |job| &job.id);
                self.job(&tick.kind, id).put(Mode::Replace, due, placed, now);
            }
            _ => {}
        }
    }

    fn count_passed_over(&mut self, jobs: &[ClaimedJob], before: &[JobView], now: Timestamp) {
        let ready = before.iter().filter(|job| job.state == JobState::Ready);
        let kinds: BTreeSet<&Kind> = ready.map(|job| &job.kind).collect();
        for kind in kinds {
            let passed_over = self.has_room(kind, now) && jobs.iter().all(|job| job.kind() != kind);
            let count = self.passed_over.entry(kind.clone()).or_default();
            *count = if passed_over { *count + 1 } else { 0 };
        }
    }

    /// Returns the rate limit of a kind and its tokens, if it has one.
    fn rate(&mut self, kind: &Kind) -> Option<(Rate, &mut Tokens)> {
        let rate = self.settings.get(kind)?.rate?;
        Some((rate, self.tokens.entry(kind.clone()).or_default()))
    }

    /// Returns whether the rate limit of a kind allows a claim of so many of its jobs.
    pub(super) fn has_tokens(&self, kind: &Kind, count: usize, now: Timestamp) -> bool {
        let rate = self.settings.get(kind).and_then(|settings| settings.rate);
        let tokens = self.tokens.get(kind).copied().unwrap_or_default();
        rate.is_none_or(|rate| tokens.has(count, &rate, now))
    }

    /// Returns whether a claim may return a job of this kind.
    pub(super) fn has_room(&self, kind: &Kind, now: Timestamp) -> bool {
        let is_leased =
            |job: &JobFacts| job.lease.as_ref().is_some_and(|lease| lease.ends_at > now);
        let of_kind = self.jobs.iter().filter(|((of, _), _)| of == kind);
        let leased = of_kind.filter(|(_, job)| is_leased(job)).count();
        let settings = self.settings.get(kind).cloned().unwrap_or_default();
        !settings.paused
            && self.has_tokens(kind, 1, now)
            && settings.concurrency.is_none_or(|limit| leased < limit as usize)
    }

    fn put(&mut self, put: &Put, placed: &Placed, now: Timestamp) {
        let due = match put.due {
            Due::Now => now,
            Due::After(delay) => now.saturating_add(delay),
            Due::At(at) => at.max(now),
        };
        self.job(&put.kind, &put.id).put(put.mode, due, placed, now);
    }
}
