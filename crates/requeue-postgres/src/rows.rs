//! Jobs as rows of the table `job`.

use crate::text::{escape, unescape};
use requeue_jobs::rules::{Lease, Record, Status, Successor};
use requeue_jobs::{
    Body, DoneView, FailedAttempt, Fence, Generation, JobId, Priority, StoreError, Timestamp,
    WorkerName,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

/// The lists of the table.
pub(crate) const LEASED: i16 = 10;
pub(crate) const DEAD: i16 = 20;
pub(crate) const DONE: i16 = 21;

const OCTETS: &str = "application/octet-stream";

/// A failed attempt in the column `failures`.
#[derive(Serialize, Deserialize)]
struct StoredFailure {
    worker: String,
    started_at: u64,
    ended_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A row that has other contents than a store writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Unavailable { reason: format!("a row has unexpected contents: {what}") }
}

pub(crate) fn stored_time(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds, rounded up as due times are.
pub(crate) fn stored_duration(duration: Duration) -> i64 {
    stored_time(Timestamp::default().saturating_add(duration))
}

pub(crate) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(crate) fn stored_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn number(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// The column `content_type`: most bodies have the default type.
pub(crate) fn stored_type(body: &Body) -> Option<String> {
    (body.content_type() != OCTETS).then(|| escape(body.content_type()).into_owned())
}

pub(crate) fn body(bytes: &[u8], content_type: Option<&str>) -> Result<Body, StoreError> {
    let body = match content_type {
        None => Body::octets(bytes),
        Some(content_type) => Body::new(bytes, &*unescape(content_type)),
    };
    body.map_err(|error| damaged(&error.to_string()))
}

pub(crate) fn id(stored: &str) -> Result<JobId, StoreError> {
    JobId::new(&*unescape(stored)).map_err(|error| damaged(&error.to_string()))
}

pub(crate) fn priority(stored: i16) -> Result<Priority, StoreError> {
    let level = u8::try_from(stored).map_err(|_| damaged("a negative priority"))?;
    Priority::new(level).map_err(|error| damaged(&error.to_string()))
}

fn worker(stored: Option<&str>) -> Result<WorkerName, StoreError> {
    let name = stored.ok_or_else(|| damaged("no worker"))?;
    WorkerName::new(&*unescape(name)).map_err(|error| damaged(&error.to_string()))
}

/// Reads a row with the [columns](crate::statements::COLUMNS) of a job, after `skip` others.
pub(crate) fn read(row: &Row, skip: usize) -> Result<(JobId, Record), StoreError> {
    let at = |n: usize| n + skip;
    let list: i16 = row.get(at(0));
    let required =
        |n: usize, what: &str| row.get::<_, Option<i64>>(at(n)).ok_or_else(|| damaged(what));
    let content_type: Option<&str> = row.get(at(22));
    let created_at: i64 = row.get(at(6));
    let place = time(row.get(at(2)));
    let is_done = list == DONE;
    let own = match is_done {
        true => Body::default(),
        false => body(row.get(at(25)), content_type)?,
    };
    let mut record = Record::new(
        own,
        time(row.get(at(4))),
        Generation(number(row.get(at(5)))),
        number(row.get(at(3))),
        time(created_at),
    );
    record.priority = priority(row.get(at(1)))?;
    record.updated_at = time(row.get(at(7)));
    record.attempts = row.get::<_, i32>(at(8)).cast_unsigned();
    record.deaths = row.get::<_, i32>(at(9)).cast_unsigned();
    record.floor = time(row.get::<_, Option<i64>>(at(10)).unwrap_or(0));
    record.first_put_at = match row.get::<_, Option<i64>>(at(11)) {
        None => Some(time(created_at)),
        Some(0) => None,
        Some(at) => Some(time(at)),
    };
    if let Some(text) = row.get::<_, Option<&str>>(at(24)) {
        record.failures = failures(text)?;
    }
    record.status = match list {
        LEASED..DEAD => {
            let next = match row.get::<_, Option<i64>>(at(16)) {
                None => None,
                Some(generation) => Some(Successor {
                    body: body(
                        row.get::<_, Option<&[u8]>>(at(26)).unwrap_or_default(),
                        row.get(at(23)),
                    )?,
                    due: time(required(17, "a successor without a due time")?),
                    priority: priority(row.get::<_, Option<i16>>(at(19)).unwrap_or(0))?,
                    generation: Generation(number(generation)),
                    put_at: time(required(18, "a successor without a time")?),
                }),
            };
            Status::Leased(Box::new(Lease {
                fence: Fence(number(required(12, "a lease without a fence")?)),
                nonce: required(13, "a lease without a nonce")?.cast_unsigned(),
                worker: worker(row.get(at(21)))?,
                claimed_at: time(required(14, "a lease without a start")?),
                ends_at: place,
                cancelled: row.get::<_, Option<bool>>(at(15)).unwrap_or(false),
                next,
            }))
        }
        DEAD => Status::Dead { died_at: place },
        DONE => {
            let result = row.get::<_, Option<&[u8]>>(at(27));
            Status::Done(Box::new(DoneView {
                worker: worker(row.get(at(21)))?,
                started_at: time(required(14, "a done job without a start")?),
                done_at: place,
                result: result.map(|bytes| body(bytes, content_type)).transpose()?,
            }))
        }
        _ => Status::Pending,
    };
    Ok((id(row.get(at(20)))?, record))
}

fn failures(text: &str) -> Result<Vec<FailedAttempt>, StoreError> {
    let stored: Vec<StoredFailure> =
        serde_json::from_str(text).map_err(|error| damaged(&format!("failures: {error}")))?;
    let read = |failure: StoredFailure| {
        Ok(FailedAttempt {
            worker: WorkerName::new(failure.worker).map_err(|error| damaged(&error.to_string()))?,
            started_at: Timestamp::from_millis(failure.started_at),
            ended_at: Timestamp::from_millis(failure.ended_at),
            error: failure.error.map(Arc::from),
        })
    };
    stored.into_iter().map(read).collect()
}

/// Rows to write, by column.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) ids: Vec<String>,
    pub(crate) are_new: Vec<bool>,
    pub(crate) lists: Vec<i16>,
    pub(crate) priorities: Vec<i16>,
    pub(crate) ats: Vec<i64>,
    pub(crate) places: Vec<i64>,
    pub(crate) dues: Vec<i64>,
    pub(crate) generations: Vec<i64>,
    pub(crate) created_ats: Vec<i64>,
    pub(crate) updated_ats: Vec<i64>,
    pub(crate) attempts: Vec<i32>,
    pub(crate) deaths: Vec<i32>,
    pub(crate) floors: Vec<Option<i64>>,
    pub(crate) first_put_ats: Vec<Option<i64>>,
    pub(crate) fences: Vec<Option<i64>>,
    pub(crate) nonces: Vec<Option<i64>>,
    pub(crate) claimed_ats: Vec<Option<i64>>,
    pub(crate) cancelled: Vec<Option<bool>>,
    pub(crate) next_generations: Vec<Option<i64>>,
    pub(crate) next_dues: Vec<Option<i64>>,
    pub(crate) next_put_ats: Vec<Option<i64>>,
    pub(crate) next_priorities: Vec<Option<i16>>,
    pub(crate) workers: Vec<Option<String>>,
    pub(crate) content_types: Vec<Option<String>>,
    pub(crate) next_content_types: Vec<Option<String>>,
    pub(crate) failures: Vec<Option<String>>,
    pub(crate) bodies: Vec<Option<Vec<u8>>>,
    pub(crate) next_bodies: Vec<Option<Vec<u8>>>,
    pub(crate) results: Vec<Option<Vec<u8>>>,
}

/// The number of the list that a job is in.
pub(crate) fn list_of(record: &Record) -> i16 {
    let priority = i16::from(record.priority.get());
    match &record.status {
        Status::Pending => priority,
        Status::Leased(_) => LEASED + priority,
        Status::Dead { .. } => DEAD,
        Status::Done(_) => DONE,
    }
}

impl Columns {
    /// Adds a job. `before` is the job as it was; if its body is the same, that is not written.
    pub(crate) fn add(&mut self, id: &JobId, record: &Record, before: Option<&Record>) {
        let (_, position) = record.position();
        self.ids.push(escape(id.as_str()).into_owned());
        self.are_new.push(before.is_none());
        self.lists.push(list_of(record));
        self.priorities.push(record.priority.get().into());
        self.ats.push(stored_time(position.at));
        self.places.push(stored_number(record.seq));
        self.dues.push(stored_time(record.due));
        self.generations.push(stored_number(record.generation.0));
        self.created_ats.push(stored_time(record.created_at));
        self.updated_ats.push(stored_time(record.updated_at));
        self.attempts.push(record.attempts.cast_signed());
        self.deaths.push(record.deaths.cast_signed());
        self.floors.push((record.floor > Timestamp::default()).then(|| stored_time(record.floor)));
        self.first_put_ats.push(match record.first_put_at {
            None => Some(0),
            Some(at) if at == record.created_at => None,
            Some(at) => Some(stored_time(at)),
        });
        let lease = match &record.status {
            Status::Leased(lease) => Some(&**lease),
            _ => None,
        };
        let done = match &record.status {
            Status::Done(done) => Some(&**done),
            _ => None,
        };
        self.fences.push(lease.map(|lease| stored_number(lease.fence.0)));
        self.nonces.push(lease.map(|lease| lease.nonce.cast_signed()));
        let claimed_at = lease.map(|lease| lease.claimed_at).or(done.map(|done| done.started_at));
        self.claimed_ats.push(claimed_at.map(stored_time));
        self.cancelled.push(lease.and_then(|lease| lease.cancelled.then_some(true)));
        let next = lease.and_then(|lease| lease.next.as_ref());
        self.next_generations.push(next.map(|next| stored_number(next.generation.0)));
        self.next_dues.push(next.map(|next| stored_time(next.due)));
        self.next_put_ats.push(next.map(|next| stored_time(next.put_at)));
        self.next_priorities.push(next.map(|next| next.priority.get().into()));
        let worker = lease.map(|lease| &lease.worker).or(done.map(|done| &done.worker));
        self.workers.push(worker.map(|worker| escape(worker.as_str()).into_owned()));
        let result = done.and_then(|done| done.result.as_ref());
        self.content_types.push(stored_type(result.unwrap_or(&record.body)));
        self.next_content_types.push(next.and_then(|next| stored_type(&next.body)));
        self.failures.push((!record.failures.is_empty()).then(|| failures_text(&record.failures)));
        let same = before.is_some_and(|before| before.body.bytes() == record.body.bytes());
        self.bodies.push((!same).then(|| record.body.bytes().to_vec()));
        self.next_bodies.push(next.map(|next| next.body.bytes().to_vec()));
        self.results.push(result.map(|result| result.bytes().to_vec()));
    }
}

fn failures_text(failures: &[FailedAttempt]) -> String {
    let stored = |failure: &FailedAttempt| StoredFailure {
        worker: failure.worker.as_str().to_owned(),
        started_at: failure.started_at.as_millis(),
        ended_at: failure.ended_at.as_millis(),
        error: failure.error.as_deref().map(str::to_owned),
    };
    let stored: Vec<StoredFailure> = failures.iter().map(stored).collect();
    serde_json::to_string(&stored).expect("texts and numbers are JSON")
}
