//! The rules of one kind, without lock or clock: the contract, in code.

use super::record::{Lease, Next, Record, Status};
use crate::claim::{Change, Changed, Claim, ClaimedJob, How, Settle, Settled, What};
use crate::cron::Schedule;
use crate::error::{ChangeError, Invalid, PutError, SettleError};
use crate::job::{Body, JobView, kept_error};
use crate::limits::{MAX_BATCH, READY_COUNT_CAP};
use crate::names::{JobId, Kind};
use crate::put::{Condition, Mode, Placed, Put, PutOutcome};
use crate::query::{Counts, Page, Query};
use crate::receipt::{Fence, Generation, Receipt};
use crate::settings::{Settings, check_lease};
use crate::time::{Due, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Where a job stands: by time, then in the order of puts.
type Place = (Timestamp, u64, JobId);

pub(super) struct KindState {
    name: Kind,
    pub(super) settings: Settings,
    pub(super) schedules: BTreeMap<JobId, Schedule>,
    jobs: BTreeMap<JobId, Record>,
    /// Invariant: exactly the jobs that are pending, by due time.
    pending: BTreeSet<Place>,
    /// Invariant: exactly the jobs that are leased, by the end of their leases.
    leases: BTreeSet<Place>,
    /// Invariant: exactly the jobs that are dead, by the time of their death.
    dead: BTreeSet<Place>,
    /// The latest. They outlive the jobs: nothing that was given out is given out again.
    generation: u64,
    fence: u64,
    seq: u64,
    /// The last claim in which it was the first of the kinds.
    pub(super) last_first: u64,
}

impl KindState {
    pub(super) fn new(name: Kind) -> Self {
        KindState {
            name,
            settings: Settings::default(),
            schedules: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pending: BTreeSet::new(),
            leases: BTreeSet::new(),
            dead: BTreeSet::new(),
            generation: 0,
            fence: 0,
            seq: 0,
            last_first: 0,
        }
    }

    /// Takes a job out, with its place, to be changed and [put back](Self::keep).
    fn take(&mut self, id: &JobId) -> Option<Record> {
        let record = self.jobs.remove(id)?;
        let (places, place) = self.place(id, &record);
        places.remove(&place);
        Some(record)
    }

    fn keep(&mut self, id: JobId, record: Record) {
        let (places, place) = self.place(&id, &record);
        places.insert(place);
        self.jobs.insert(id, record);
    }

    fn place(&mut self, id: &JobId, record: &Record) -> (&mut BTreeSet<Place>, Place) {
        let (places, at) = match &record.status {
            Status::Pending => (&mut self.pending, record.due),
            Status::Leased(lease) => (&mut self.leases, lease.ends_at),
            Status::Dead { died_at } => (&mut self.dead, *died_at),
        };
        (places, (at, record.seq, id.clone()))
    }

    fn next_generation(&mut self) -> Generation {
        self.generation += 1;
        Generation(self.generation)
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Rises strictly, and over restarts too unless the clock went back by more than was
    /// claimed since.
    fn next_fence(&mut self, now: Timestamp) -> Fence {
        // A clock that is far off must leave room to rise.
        let clock = now.as_millis().saturating_mul(1000).min(u64::MAX / 2);
        self.fence = (self.fence + 1).max(clock);
        Fence(self.fence)
    }

    // Put.

    pub(super) fn put(&mut self, put: Put, now: Timestamp) -> Result<Placed, PutError> {
        let due = put.due.at(now)?;
        self.check_condition(&put)?;
        let Put { id, body, mode, .. } = put;
        let Some(mut record) = self.take(&id) else {
            let due = merged(mode, due, None, now, now);
            let (generation, seq) = (self.next_generation(), self.next_seq());
            self.keep(id, Record::new(body, due, generation, seq, now));
            return Ok(Placed { outcome: PutOutcome::Created, generation });
        };
        let kept = |generation| Placed { outcome: PutOutcome::Kept, generation };
        let placed = match (&mut record.status, mode) {
            (Status::Pending | Status::Dead { .. }, Mode::Keep) => kept(record.generation),
            (Status::Leased(Lease { next: Some(next), .. }), Mode::Keep) => kept(next.generation),
            (Status::Pending, _) => {
                let base = *record.first_put_at.get_or_insert(now);
                let asked = merged(mode, due, Some(record.due), base, now);
                let generation = self.next_generation();
                self.replace(&mut record, body, asked, now);
                record.generation = generation;
                Placed { outcome: PutOutcome::Updated, generation }
            }
            (Status::Leased(lease), _) => {
                let generation = self.next_generation();
                let (put_at, old) = match &lease.next {
                    Some(next) => (next.put_at, Some(next.due)),
                    None => (now, None),
                };
                // What is put after a cancel is another job, and counts for itself.
                let base = match lease.cancelled {
                    true => put_at,
                    false => *record.first_put_at.get_or_insert(now),
                };
                let asked = merged(mode, due, old, base, now);
                lease.next = Some(Next { body, due: asked, generation, put_at });
                Placed { outcome: PutOutcome::Coalesced, generation }
            }
            (Status::Dead { .. }, _) => {
                record.status = Status::Pending;
                record.reset();
                record.first_put_at = Some(now);
                record.due = merged(mode, due, None, now, now);
                (record.seq, record.body) = (self.next_seq(), body);
                record.generation = self.next_generation();
                Placed { outcome: PutOutcome::Revived, generation: record.generation }
            }
        };
        if placed.outcome != PutOutcome::Kept {
            record.updated_at = now;
        }
        self.keep(id, record);
        Ok(placed)
    }

    /// Gives a pending job another body and time. Due now and due before, it keeps its place.
    fn replace(&mut self, record: &mut Record, body: Body, asked: Timestamp, now: Timestamp) {
        let due = asked.max(record.floor);
        let stays = due == record.due || (due <= now && record.due <= now);
        if !stays {
            (record.due, record.seq) = (due.max(now), self.next_seq());
        }
        record.body = body;
    }

    fn check_condition(&self, put: &Put) -> Result<(), PutError> {
        let found = self.jobs.get(&put.id).map(Record::newest_generation);
        let (kind, id) = (put.kind.clone(), put.id.clone());
        match (put.condition, found) {
            (Some(Condition::IfAbsent), Some(generation)) => {
                Err(PutError::Exists { kind, id, generation })
            }
            (Some(Condition::IfGeneration(expected)), found) if found != Some(expected) => {
                Err(PutError::Generation { kind, id, expected, found })
            }
            _ => Ok(()),
        }
    }

    // Claim.

    /// Leases up to `max` jobs.
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
        max: usize,
        now: Timestamp,
        out: &mut Vec<ClaimedJob>,
    ) -> Result<(), Invalid> {
        let lease = claim.lease.unwrap_or(self.settings.lease);
        check_lease(lease)?;
        let before = out.len();
        while out.len() - before < max && !self.settings.paused && !self.is_full(now) {
            let Some(id) = self.first(now) else { break };
            let Some(record) = self.take(&id) else { break };
            if let Some(record) = self.end_lapsed(&id, record, now) {
                out.push(self.lease(id, record, claim, now.saturating_add(lease), now));
            }
        }
        Ok(())
    }

    /// The first that is due, or whose lease lapsed.
    fn first(&self, now: Timestamp) -> Option<JobId> {
        let pending = self.pending.first().filter(|(due, ..)| *due <= now);
        let lapsed = self.leases.first().filter(|(ends_at, ..)| *ends_at <= now);
        pending.into_iter().chain(lapsed).min().map(|(.., id)| id.clone())
    }

    /// Whether as many are leased as may be; lapsed leases do not count.
    fn is_full(&self, now: Timestamp) -> bool {
        let limit = self.settings.concurrency.map(|limit| limit as usize);
        limit.is_some_and(|limit| {
            self.leases.iter().rev().take_while(|(ends_at, ..)| *ends_at > now).count() >= limit
        })
    }

    fn lease(
        &mut self,
        id: JobId,
        mut record: Record,
        claim: &Claim,
        ends_at: Timestamp,
        now: Timestamp,
    ) -> ClaimedJob {
        let fence = self.next_fence(now);
        record.status = Status::Leased(Lease {
            fence,
            nonce: claim.nonce,
            worker: claim.worker.clone(),
            claimed_at: now,
            ends_at,
            cancelled: false,
            next: None,
        });
        record.updated_at = now;
        let receipt = Receipt::new(self.name.clone(), id.clone(), fence, claim.nonce);
        let mut job = ClaimedJob::new(receipt, record.body.clone(), record.generation);
        job.due = record.due;
        job.attempt = record.attempts.saturating_add(1);
        job.lease_ends_at = ends_at;
        job.created_at = record.created_at;
        self.keep(id, record);
        job
    }

    /// Ends the lease of a job that was taken out, where it has one: it lapsed, and that is a
    /// failed attempt. Answers the job if it can be claimed now; otherwise it is seen to.
    fn end_lapsed(&mut self, id: &JobId, mut record: Record, now: Timestamp) -> Option<Record> {
        let Status::Leased(lease) = std::mem::replace(&mut record.status, Status::Pending) else {
            return Some(record);
        };
        record.updated_at = now;
        if lease.cancelled {
            self.start_afresh(id.clone(), lease.next, now);
            return None;
        }
        record.fail(&lease, lease.ends_at, None);
        // The lease was the wait: it needs no further backoff.
        record.due = lease.ends_at;
        if let Some(next) = lease.next {
            (record.body, record.generation) = (next.body, next.generation);
            if next.due > now {
                (record.due, record.seq) = (next.due, self.next_seq());
            }
        }
        if record.attempts >= self.settings.max_attempts {
            self.bury(id.clone(), record, now);
            return None;
        }
        if record.due > now {
            self.keep(id.clone(), record);
            return None;
        }
        Some(record)
    }

    /// What was put after a leased job was cancelled is a new one.
    fn start_afresh(&mut self, id: JobId, next: Option<Next>, now: Timestamp) {
        if let Some(Next { body, due, generation, put_at }) = next {
            let seq = self.next_seq();
            let mut record = Record::new(body, due, generation, seq, put_at);
            record.updated_at = now;
            self.keep(id, record);
        }
    }

    fn bury(&mut self, id: JobId, mut record: Record, now: Timestamp) {
        record.status = Status::Dead { died_at: now };
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.keep(id, record);
        self.drop_dead(now, 1);
    }

    /// Buries a job whose holder says so. The successor was put on it, and revives it.
    fn bury_by_will(&mut self, id: JobId, record: Record, next: Option<Next>, now: Timestamp) {
        let Some(Next { body, due, generation, put_at }) = next else {
            return self.bury(id, record, now);
        };
        let mut record = Record { body, due, generation, first_put_at: Some(put_at), ..record };
        record.reset();
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.keep(id, record);
    }

    // Settle.

    pub(super) fn settle(
        &mut self,
        settle: Settle,
        now: Timestamp,
    ) -> Result<Settled, SettleError> {
        let Settle { receipt, how } = settle;
        if let How::Extend(Some(lease)) = &how {
            check_lease(*lease)?;
        }
        let delay = match &how {
            How::Retry { delay: Some(delay), .. } | How::RequeueAfter(delay) => {
                Some(Due::After(*delay).at(now)?)
            }
            _ => None,
        };
        let id = receipt.id().clone();
        let is_current = |record: &Record| match &record.status {
            Status::Leased(lease) => {
                lease.fence == receipt.fence() && lease.nonce == receipt.nonce()
            }
            Status::Pending | Status::Dead { .. } => false,
        };
        if !self.jobs.get(&id).is_some_and(is_current) {
            return Err(SettleError::LeaseLost { receipt });
        }
        let Some(mut record) = self.take(&id) else {
            return Err(SettleError::LeaseLost { receipt });
        };
        let Status::Leased(mut lease) = std::mem::replace(&mut record.status, Status::Pending)
        else {
            return Err(SettleError::LeaseLost { receipt });
        };
        let updated_at = std::mem::replace(&mut record.updated_at, now);
        Ok(match how {
            How::Extend(_) if lease.cancelled => {
                record.updated_at = updated_at;
                record.status = Status::Leased(lease);
                self.keep(id, record);
                Settled::Cancelled
            }
            How::Extend(length) => {
                let ends_at = now.saturating_add(length.unwrap_or(self.settings.lease));
                lease.ends_at = lease.ends_at.max(ends_at);
                let ends_at = lease.ends_at;
                record.status = Status::Leased(lease);
                self.keep(id, record);
                Settled::Extended(ends_at)
            }
            _ if lease.cancelled => {
                self.start_afresh(id, lease.next, now);
                Settled::Cancelled
            }
            How::Ack | How::RequeueAfter(_) => {
                let next = match (lease.next, delay) {
                    (None, Some(due)) => {
                        let generation = self.next_generation();
                        Some(Next { body: record.body, due, generation, put_at: now })
                    }
                    (next, _) => next,
                };
                if let Some(Next { body, due, generation, put_at }) = next {
                    let seq = self.next_seq();
                    let mut next = Record::new(body, due, generation, seq, put_at);
                    next.first_put_at = None;
                    next.updated_at = now;
                    self.keep(id, next);
                }
                Settled::Done
            }
            How::Release => {
                if let Some(next) = lease.next {
                    self.replace(&mut record, next.body, next.due, now);
                    record.generation = next.generation;
                }
                self.keep(id, record);
                Settled::Released
            }
            How::Bury { error } => {
                record.fail(&lease, now, Some(kept_error(&error)));
                self.bury_by_will(id, record, lease.next, now);
                Settled::Dead
            }
            How::Retry { error, .. } => {
                record.fail(&lease, now, Some(kept_error(&error)));
                self.retry(id, record, lease, delay, now)
            }
        })
    }

    fn retry(
        &mut self,
        id: JobId,
        mut record: Record,
        lease: Lease,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Settled {
        let backoff = || self.settings.backoff.delay(record.attempts, lease.fence.0 ^ lease.nonce);
        let until = until.unwrap_or_else(|| now.saturating_add(backoff()));
        (record.floor, record.due) = (until, until);
        if let Some(next) = lease.next {
            record.due = next.due.max(until);
            (record.body, record.generation) = (next.body, next.generation);
        }
        if record.attempts >= self.settings.max_attempts {
            self.bury(id, record, now);
            return Settled::Dead;
        }
        record.seq = self.next_seq();
        let due = record.due;
        self.keep(id, record);
        Settled::RetryAt(due)
    }

    // Change.

    pub(super) fn change(
        &mut self,
        change: Change,
        now: Timestamp,
    ) -> Result<Changed, ChangeError> {
        let Change { kind, id, what } = change;
        let Some(mut record) = self.take(&id) else {
            return Err(ChangeError::Absent { kind, id });
        };
        let answer = match (what, &mut record.status) {
            (What::Cancel, Status::Pending | Status::Dead { .. }) => return Ok(Changed::Removed),
            (What::Cancel, Status::Leased(lease)) => {
                (lease.cancelled, lease.next) = (true, None);
                Ok(Changed::Ending)
            }
            (What::RunNow, Status::Pending) => {
                record.floor = Timestamp::default();
                if record.due > now {
                    (record.due, record.seq) = (now, self.next_seq());
                }
                Ok(Changed::Ready)
            }
            (What::RunNow, Status::Leased(Lease { next: Some(next), .. })) => {
                next.due = next.due.min(now);
                Ok(Changed::Ready)
            }
            (What::RunNow, Status::Leased(_)) => Err(ChangeError::Leased { kind, id: id.clone() }),
            (What::RunNow | What::Revive, Status::Dead { .. }) => {
                record.status = Status::Pending;
                record.reset();
                (record.due, record.seq) = (now, self.next_seq());
                Ok(Changed::Revived)
            }
            (What::Revive, _) => Err(ChangeError::NotDead { kind, id: id.clone() }),
        };
        if answer.is_ok() {
            record.updated_at = now;
        }
        self.keep(id, record);
        answer
    }

    // Upkeep.

    /// Ends up to `max` leases that lapsed, and drops up to `max` dead jobs.
    pub(super) fn reap(&mut self, max: usize, now: Timestamp) -> usize {
        let mut reaped = 0;
        while reaped < max {
            let lapsed = self.leases.first().filter(|(ends_at, ..)| *ends_at <= now);
            let Some(id) = lapsed.map(|(.., id)| id.clone()) else { break };
            let Some(record) = self.take(&id) else { break };
            if let Some(record) = self.end_lapsed(&id, record, now) {
                self.keep(id, record);
            }
            reaped += 1;
        }
        reaped + self.drop_dead(now, max)
    }

    fn drop_dead(&mut self, now: Timestamp, max: usize) -> usize {
        let retention = self.settings.retention;
        let oldest = retention.oldest(now);
        let mut dropped = 0;
        while dropped < max
            && let Some((died_at, _, id)) = self.dead.first()
            && (*died_at < oldest || self.dead.len() > retention.count)
        {
            let id = id.clone();
            self.take(&id);
            dropped += 1;
        }
        dropped
    }

    /// When a claim may next get something, if nobody changes anything.
    pub(super) fn next_claimable(&self, now: Timestamp) -> Option<Timestamp> {
        if self.settings.paused {
            return None;
        }
        let lapse = self.leases.first().map(|(ends_at, ..)| *ends_at);
        if self.is_full(now) {
            let first_to_end = self.leases.iter().map(|(ends_at, ..)| *ends_at);
            return first_to_end.filter(|ends_at| *ends_at > now).min();
        }
        self.pending.first().map(|(due, ..)| *due).into_iter().chain(lapse).min()
    }

    // Questions.

    pub(super) fn get(&self, id: &JobId, now: Timestamp) -> Option<JobView> {
        Some(self.jobs.get(id)?.view(&self.name, id, now))
    }

    pub(super) fn list(&self, query: &Query, now: Timestamp) -> Page {
        let limit = query.limit.clamp(1, MAX_BATCH);
        let from = match &query.after {
            Some(after) if after.as_str() >= query.prefix.as_str() => {
                Bound::Excluded(after.as_str())
            }
            _ => Bound::Included(query.prefix.as_str()),
        };
        let jobs = self.jobs.range::<str, _>((from, Bound::Unbounded));
        let jobs = jobs.take_while(|(id, _)| id.as_str().starts_with(&query.prefix));
        let views = jobs.map(|(id, record)| record.view(&self.name, id, now));
        let mut views = views.filter(|view| query.state.is_none_or(|state| view.state == state));
        let jobs: Vec<JobView> = views.by_ref().take(limit).collect();
        let more = views.next().is_some();
        let cursor = jobs.last().filter(|_| more).map(|job| job.id.clone());
        Page { jobs, cursor }
    }

    pub(super) fn counts(&self, now: Timestamp) -> Counts {
        let ready = self.pending.iter().take_while(|(due, ..)| *due <= now);
        Counts {
            pending: self.pending.len() as u64,
            leased: self.leases.len() as u64,
            dead: self.dead.len() as u64,
            ready: ready.take(READY_COUNT_CAP as usize).count() as u64,
        }
    }

    pub(super) fn oldest_ready(&self, now: Timestamp) -> Option<Timestamp> {
        self.pending.first().map(|(due, ..)| *due).filter(|due| *due <= now)
    }

    /// How many pending jobs are due in `length` from each of `count` times, one after the other.
    pub(super) fn upcoming(&self, from: Timestamp, length: Duration, count: usize) -> Vec<u64> {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut spans = vec![0; count];
        for (due, ..) in &self.pending {
            let Some(since) = due.as_millis().checked_sub(from.as_millis()) else { continue };
            match usize::try_from(since / length).ok().and_then(|span| spans.get_mut(span)) {
                Some(span) => *span += 1,
                None => break,
            }
        }
        spans
    }

    /// Whether there is anything to keep of this kind.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.schedules.is_empty() && self.settings == Settings::default()
    }

    /// Checks everything that the fields promise.
    pub(super) fn check(&self) {
        let mut places = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for (id, record) in &self.jobs {
            let (list, at) = match &record.status {
                Status::Pending => (0, record.due),
                Status::Leased(lease) => (1, lease.ends_at),
                Status::Dead { died_at } => (2, *died_at),
            };
            places[list].insert((at, record.seq, id.clone()));
        }
        assert_eq!([&places[0], &places[1], &places[2]], [&self.pending, &self.leases, &self.dead]);
    }
}

/// The time that a put asks for, given that of what is there already.
fn merged(
    mode: Mode,
    due: Timestamp,
    old: Option<Timestamp>,
    first_put_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match mode {
        Mode::Replace | Mode::Keep => due,
        Mode::Earliest => old.map_or(due, |old| old.min(due)),
        // Not before now: it would overtake what has been ready for longer.
        Mode::Debounce { max_wait } => due.min(first_put_at.saturating_add(max_wait).max(now)),
    }
}
