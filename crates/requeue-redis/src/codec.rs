//! Encoding of the values in Redis, as the scripts use them. `docs/redis-keys.md` describes every byte.

use crate::reply::unexpected;
use requeue_jobs::{
    Body, FailedAttempt, Generation, JobId, JobState, JobView, Kind, LeaseView, Missed, Receipt,
    Schedule, StoreError, SuccessorView, Timestamp, WorkerName,
};
use std::sync::Arc;

/// Content types that are stored as one byte: their index here.
const CONTENT_TYPES: [&str; 3] = ["application/octet-stream", "application/json", "text/plain"];
/// The byte for any other content type: its length and text follow.
const OTHER: u8 = 3;

/// Encodes flags, content type and body.
pub(crate) fn content(body: &Body) -> Vec<u8> {
    let known = CONTENT_TYPES.iter().position(|known| *known == body.content_type());
    let mut out = Vec::with_capacity(body.len() + 1);
    match known {
        Some(known) => out.push(known as u8),
        None => {
            out.extend([OTHER, body.content_type().len() as u8]);
            out.extend(body.content_type().as_bytes());
        }
    }
    out.extend(body.bytes());
    out
}

/// A cursor over bytes.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| unexpected("a record is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self, bytes: usize) -> Result<u64, StoreError> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        Ok(Timestamp::from_millis(self.number(TIME)?))
    }

    fn text(&mut self, len: usize) -> Result<&'a str, StoreError> {
        str::from_utf8(self.take(len)?).map_err(|_| unexpected("a text is not UTF-8"))
    }

    fn worker(&mut self, len: usize) -> Result<WorkerName, StoreError> {
        WorkerName::new(self.text(len)?).map_err(|_| unexpected("a worker name is invalid"))
    }

    /// Reads what [`content`] wrote, up to the end of the input.
    pub(crate) fn content(&mut self) -> Result<Body, StoreError> {
        let flags = self.take(1)?[0];
        let content_type = match CONTENT_TYPES.get(usize::from(flags)) {
            Some(known) => known,
            None if flags == OTHER => {
                let len = self.take(1)?[0];
                self.text(usize::from(len))?
            }
            None => return Err(unexpected("a record has flags of a newer version")),
        };
        let bytes = std::mem::take(&mut self.0);
        let body = match flags {
            0 => Body::octets(bytes),
            _ => Body::new(bytes, content_type),
        };
        body.map_err(|error| unexpected(&error.to_string()))
    }
}

const TIME: usize = 6;
const COUNTER: usize = 7;

pub(crate) fn push_number(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend(&number.to_be_bytes()[8 - bytes..]);
}

pub(crate) fn push_time(out: &mut Vec<u8>, time: Timestamp) {
    push_number(out, kept_time(time), TIME);
}

/// Limits a time to the largest that six bytes hold, in the year 10889.
pub(crate) fn kept_time(time: Timestamp) -> u64 {
    time.as_millis().min((1 << 48) - 1)
}

/// Encodes fence and nonce of a receipt: the first bytes of a lease.
pub(crate) fn proof(receipt: &Receipt) -> Vec<u8> {
    let mut out = Vec::with_capacity(COUNTER + 8);
    // No fence of this store is that high, so a receipt with one matches no lease.
    push_number(&mut out, receipt.fence().0.min((1 << 56) - 1), COUNTER);
    out.extend(receipt.nonce().to_be_bytes());
    out
}

/// The record of a job.
pub(crate) struct Record {
    pub(crate) generation: Generation,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) body: Body,
}

impl Record {
    pub(crate) fn read(bytes: &[u8]) -> Result<Record, StoreError> {
        let mut input = Input(bytes);
        let generation = Generation(input.number(COUNTER)?);
        let (created_at, updated_at) = (input.time()?, input.time()?);
        Ok(Record { generation, created_at, updated_at, body: input.content()? })
    }

    pub(crate) fn write(job: &JobView) -> Vec<u8> {
        let mut out = Vec::with_capacity(job.body.len() + 32);
        push_number(&mut out, job.generation.0, COUNTER);
        push_time(&mut out, job.created_at);
        push_time(&mut out, job.updated_at);
        out.extend(content(&job.body));
        out
    }
}

/// The past of a job. Jobs without one have the default.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) attempts: u32,
    pub(crate) deaths: u32,
    /// When a dead job was due.
    pub(crate) due: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) failures: Vec<FailedAttempt>,
}

impl Past {
    pub(crate) fn read(bytes: &[u8]) -> Result<Past, StoreError> {
        let mut input = Input(bytes);
        let (attempts, deaths) = (input.number(4)? as u32, input.number(4)? as u32);
        let (_floor, _first) = (input.time()?, input.time()?);
        let (due, updated_at) = (input.time()?, input.time()?);
        let count = input.take(1)?[0];
        let failures = (0..count).map(|_| read_failure(&mut input)).collect::<Result<_, _>>()?;
        Ok(Past { attempts, deaths, due, updated_at, failures })
    }

    /// Reads only the number of failed attempts.
    pub(crate) fn attempts(bytes: &[u8]) -> Result<u32, StoreError> {
        Ok(Input(bytes).number(4)? as u32)
    }

    pub(crate) fn write(job: &JobView, floor: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        push_number(&mut out, job.attempts.into(), 4);
        push_number(&mut out, job.deaths.into(), 4);
        for time in [floor, job.created_at, job.due, job.updated_at] {
            push_time(&mut out, time);
        }
        out.push(job.failures.len() as u8);
        for failure in &job.failures {
            push_time(&mut out, failure.started_at);
            push_time(&mut out, failure.ended_at);
            let worker = failure.worker.as_str();
            out.push(worker.len() as u8);
            out.extend(worker.as_bytes());
            let error = failure.error.as_deref();
            push_number(&mut out, error.map_or(0, |error| error.len() as u64 + 1), 2);
            out.extend(error.unwrap_or_default().as_bytes());
        }
        out
    }
}

fn read_failure(input: &mut Input<'_>) -> Result<FailedAttempt, StoreError> {
    let (started_at, ended_at) = (input.time()?, input.time()?);
    let len = input.take(1)?[0];
    let worker = input.worker(usize::from(len))?;
    let error = match input.number(2)? as usize {
        0 => None,
        more => Some(Arc::from(input.text(more - 1)?)),
    };
    Ok(FailedAttempt { worker, started_at, ended_at, error })
}

/// A job as `view.lua` returns it.
pub(crate) struct StoredJob {
    pub(crate) id: JobId,
    pub(crate) state: JobState,
    /// Its score: due time, end of the lease, or time of death.
    pub(crate) at: Timestamp,
    pub(crate) record: Vec<u8>,
    pub(crate) lease: Vec<u8>,
    pub(crate) next: Vec<u8>,
    pub(crate) past: Vec<u8>,
}

impl StoredJob {
    pub(crate) fn view(&self, kind: &Kind) -> Result<JobView, StoreError> {
        let Record { generation, created_at, updated_at, body } = Record::read(&self.record)?;
        let past = match self.past.is_empty() {
            true => Past::default(),
            false => Past::read(&self.past)?,
        };
        let mut view = JobView::new(kind.clone(), self.id.clone(), body, self.at, generation);
        view.state = self.state;
        (view.attempts, view.deaths, view.failures) = (past.attempts, past.deaths, past.failures);
        (view.created_at, view.updated_at) = (created_at, updated_at.max(past.updated_at));
        match self.state {
            JobState::Waiting | JobState::Ready => {}
            JobState::Leased => self.read_lease(&mut view)?,
            JobState::Dead => (view.due, view.died_at) = (past.due, Some(self.at)),
        }
        Ok(view)
    }

    fn read_lease(&self, view: &mut JobView) -> Result<(), StoreError> {
        let mut input = Input(&self.lease);
        input.take(COUNTER + 8)?;
        view.due = input.time()?;
        let claimed_at = input.time()?;
        view.updated_at = input.time()?;
        let cancelled = input.take(1)?[0] == 1;
        let worker = input.worker(input.0.len())?;
        view.lease = Some(LeaseView { worker, claimed_at, ends_at: self.at, cancelled });
        if !self.next.is_empty() {
            let mut input = Input(&self.next);
            let due = input.time()?;
            let generation = Generation(input.number(COUNTER)?);
            input.time()?;
            view.next = Some(SuccessorView { body: input.content()?, due, generation });
        }
        Ok(())
    }
}

/// Encodes a schedule without its id.
pub(crate) fn write_schedule(schedule: &Schedule) -> Vec<u8> {
    let mut out = Vec::new();
    push_time(&mut out, schedule.next);
    let (when, zone) = (schedule.when.as_bytes(), schedule.time_zone.as_bytes());
    // Lua counts positions from 1.
    let begins = TIME + 2 + 1 + 2 + when.len() + 2 + zone.len() + 1;
    push_number(&mut out, begins as u64, 2);
    out.push(match schedule.missed {
        Missed::One => 0,
        Missed::Skip => 1,
    });
    for text in [when, zone] {
        push_number(&mut out, text.len() as u64, 2);
        out.extend(text);
    }
    out.extend(content(&schedule.body));
    out
}

pub(crate) fn read_schedule(id: JobId, bytes: &[u8]) -> Result<Schedule, StoreError> {
    let mut input = Input(bytes);
    let next = input.time()?;
    input.number(2)?;
    let missed = match input.take(1)?[0] {
        0 => Missed::One,
        1 => Missed::Skip,
        _ => return Err(unexpected("a schedule was written by a newer version")),
    };
    let mut text = || {
        let len = input.number(2)?;
        Ok::<_, StoreError>(input.text(len as usize)?.to_owned())
    };
    let (when, time_zone) = (text()?, text()?);
    let body = input.content()?;
    Ok(Schedule { id, when, time_zone, body, missed, next })
}
