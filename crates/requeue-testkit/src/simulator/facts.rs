//! What the log says so far: of each job only what the invariants ask about.

use super::event::{Event, Happened};
use requeue_jobs::{
    Change, ChangeKind, Changed, ClaimedJob, Due, Fence, Generation, JobId, JobState, JobView,
    Kind, Mode, Placed, Put, PutOutcome, Receipt, Settings, Settle, Settled, Settlement, Ticked,
    Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Facts {
    pub(super) jobs: BTreeMap<(Kind, JobId), Known>,
    pub(super) fences: BTreeMap<Kind, Fence>,
    pub(super) settings: BTreeMap<Kind, Settings>,
    /// Times of schedules for which a job was put.
    pub(super) ticked: BTreeSet<(Kind, JobId, Timestamp)>,
    /// How many claims in a row that could have got a job of this kind got none.
    pub(super) passed_over: BTreeMap<Kind, u32>,
}

/// What is known of a job, over all of its lives.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    /// The latest put's.
    pub(super) newest: Generation,
    /// The latest that a cancel covered.
    pub(super) cancelled: Generation,
    pub(super) acked: BTreeSet<Generation>,
    /// It is not due before this; less than the whole truth where a debounce was asked for.
    pub(super) not_before: Timestamp,
    /// The end of its backoff, where it has one.
    pub(super) backoff: Option<Backoff>,
    /// Its failures since they were last reset, but for the expiry of `lease`.
    pub(super) failures: u32,
    pub(super) lease: Option<Leased>,
}

#[derive(Debug, Clone)]
pub(super) struct Backoff {
    pub(super) ends_at: Timestamp,
    /// It may end sooner: the successor's due time was later, and hides it.
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

impl Known {
    /// Failures, if the lease that there still is has expired.
    pub(super) fn failures_after_expiry(&self) -> u32 {
        match &self.lease {
            Some(lease) if lease.cancelled => 0,
            Some(_) => self.failures + 1,
            None => self.failures,
        }
    }

    fn expiry(&mut self) {
        self.failures = self.failures_after_expiry();
        self.lease = None;
    }

    /// Begins anew.
    fn reset(&mut self) {
        (self.failures, self.backoff, self.lease) = (0, None, None);
    }

    fn put(&mut self, mode: Mode, asked: Timestamp, placed: &Placed, now: Timestamp) {
        let had_next = self.lease.as_ref().is_some_and(|lease| lease.has_next);
        match placed.outcome {
            PutOutcome::Kept => return,
            PutOutcome::Created | PutOutcome::Revived => self.reset(),
            // It is pending: if it was leased, that has expired.
            PutOutcome::Updated => {
                self.expiry();
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
            Mode::Earliest if replaces => asked.min(self.not_before),
            Mode::Debounce { max_wait } if is_new => asked.min(now.saturating_add(max_wait)),
            // It may have waited since the first put of the job.
            Mode::Debounce { .. } => now,
            _ => asked,
        };
    }

    fn claim(&mut self, job: &ClaimedJob) {
        self.expiry();
        self.backoff = None;
        self.lease = Some(Leased {
            receipt: job.receipt.clone(),
            generation: job.generation,
            ends_at: job.lease_ends_at,
            cancelled: false,
            has_next: false,
        });
    }

    fn settle(&mut self, settle: &Settle, settled: Settled) {
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

    fn change(&mut self, action: ChangeKind, changed: Changed) {
        match changed {
            Changed::Removed => {
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
            _ if action == ChangeKind::RunNow => {
                (self.not_before, self.backoff) = (Timestamp::default(), None);
            }
            _ => {}
        }
    }
}

impl Facts {
    pub(super) fn of(&self, kind: &Kind, id: &JobId) -> Known {
        self.jobs.get(&(kind.clone(), id.clone())).cloned().unwrap_or_default()
    }

    fn known(&mut self, kind: &Kind, id: &JobId) -> &mut Known {
        self.jobs.entry((kind.clone(), id.clone())).or_default()
    }

    pub(super) fn note(&mut self, event: &Event) {
        let now = event.at;
        match &event.what {
            Happened::Put { put, placed: Ok(placed), .. } => self.put(put, placed, now),
            Happened::Claim { jobs, before } => {
                self.count_passed_over(jobs, before, now);
                for job in jobs {
                    self.fences.insert(job.kind().clone(), job.receipt.fence());
                    self.known(job.kind(), job.id()).claim(job);
                }
            }
            Happened::Settle { settle, settled: Ok(settled), .. } => {
                let receipt = &settle.receipt;
                self.known(receipt.kind(), receipt.id()).settle(settle, *settled);
            }
            Happened::Change { change: Change { kind, id, action }, changed: Ok(changed) } => {
                self.known(kind, id).change(*action, *changed);
            }
            Happened::Reap => {
                let expired = |known: &&mut Known| {
                    known.lease.as_ref().is_some_and(|lease| lease.ends_at <= now)
                };
                self.jobs.values_mut().filter(expired).for_each(Known::expiry);
            }
            Happened::Set { kind, settings } => {
                self.settings.insert(kind.clone(), settings.clone());
            }
            Happened::Tick { tick, ticked: Ticked::Put(placed) } => {
                self.ticked.insert((tick.kind.clone(), tick.id.clone(), tick.expected));
                let asked = tick.expected.max(now);
                self.known(&tick.kind, &tick.id).put(Mode::Replace, asked, placed, now);
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

    /// Whether a claim may get a job of this kind.
    pub(super) fn has_room(&self, kind: &Kind, now: Timestamp) -> bool {
        let is_leased =
            |known: &Known| known.lease.as_ref().is_some_and(|lease| lease.ends_at > now);
        let of_kind = self.jobs.iter().filter(|((of, _), _)| of == kind);
        let leased = of_kind.filter(|(_, known)| is_leased(known)).count();
        let settings = self.settings.get(kind).cloned().unwrap_or_default();
        !settings.paused && settings.concurrency.is_none_or(|limit| leased < limit as usize)
    }

    fn put(&mut self, put: &Put, placed: &Placed, now: Timestamp) {
        let asked = match put.due {
            Due::Now => now,
            Due::After(delay) => now.saturating_add(delay),
            Due::At(at) => at.max(now),
        };
        self.known(&put.kind, &put.id).put(put.mode, asked, placed, now);
    }
}
