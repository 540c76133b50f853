//! Jobs as rows of the table `job`.

use crate::columns::StoredJob;
use crate::head::{StoredHead, head, stored_head};
use crate::text::{escape, unescape};
use requeue_jobs::rules::{Lease, Record, Status, Successor};
use requeue_jobs::{
    Body, Content, DoneView, FailedAttempt, Fence, Generation, JobId, Priority, StoreError,
    Timestamp, Version, WorkerName,
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

/// The content of the job or schedule `id`.
pub(crate) fn content(
    bytes: &[u8],
    content_type: Option<&str>,
    stored: Option<&StoredHead>,
    id: &str,
) -> Result<Content, StoreError> {
    Ok(Content { body: body(bytes, content_type)?, head: head(stored, id)? })
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

/// Reads the columns of a job, after `skip` others.
pub(crate) fn read(row: &Row, skip: usize) -> Result<(JobId, Record), StoreError> {
    let row = StoredJob::read(row, skip);
    let required = |column: Option<i64>, what: &str| column.ok_or_else(|| damaged(what));
    let claimed_at = || required(row.claimed_at, "a lease without a start").map(time);
    let content_type = row.content_type.as_deref();
    let own = || content(row.body.unwrap_or_default(), content_type, row.head.as_ref(), &row.id);
    let place = time(row.at);
    let (status, content) = match row.list {
        LEASED..DEAD => {
            let next = match row.next_generation {
                None => None,
                Some(generation) => {
                    let (bytes, of_type) =
                        (row.next_body.unwrap_or_default(), row.next_content_type.as_deref());
                    let version = Version {
                        content: content(bytes, of_type, row.next_head.as_ref(), &row.id)?,
                        due: time(required(row.next_due, "a successor without a due time")?),
                        priority: priority(row.next_priority.unwrap_or(0))?,
                        generation: Generation(number(generation)),
                    };
                    let put_at = time(required(row.next_put_at, "a successor without a time")?);
                    Some(Successor { version, put_at })
                }
            };
            let lease = Lease {
                fence: Fence(number(required(row.fence, "a lease without a fence")?)),
                nonce: required(row.nonce, "a lease without a nonce")?.cast_unsigned(),
                worker: worker(row.worker.as_deref())?,
                claimed_at: claimed_at()?,
                ends_at: place,
                cancelled: row.cancelled.unwrap_or(false),
                next,
            };
            (Status::Leased(Box::new(lease)), own()?)
        }
        DONE => {
            let done = DoneView {
                worker: worker(row.worker.as_deref())?,
                started_at: claimed_at()?,
                done_at: place,
                result: row.result.map(|bytes| body(bytes, content_type)).transpose()?,
            };
            (Status::Done(Box::new(done)), Content::default())
        }
        DEAD => (Status::Dead { died_at: place }, own()?),
        _ => (Status::Pending, own()?),
    };
    let record = Record {
        version: Version {
            content,
            due: time(row.due.unwrap_or(row.at)),
            priority: priority(row.priority.unwrap_or(0))?,
            generation: Generation(number(row.generation)),
        },
        seq: number(row.place),
        attempts: row.attempts.unwrap_or(0).cast_unsigned(),
        deaths: row.deaths.unwrap_or(0).cast_unsigned(),
        floor: time(row.floor.unwrap_or(0)),
        first_put_at: match row.first_put_at {
            None => Some(time(row.created_at)),
            Some(0) => None,
            Some(at) => Some(time(at)),
        },
        status,
        failures: row.failures.as_deref().map_or(Ok(Vec::new()), failures)?,
        created_at: time(row.created_at),
        updated_at: time(row.updated_at.unwrap_or(row.created_at)),
    };
    Ok((id(&row.id)?, record))
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

/// The number of the list that a job is in.
pub(crate) fn list_of(record: &Record) -> i16 {
    let priority = i16::from(record.version.priority.get());
    match &record.status {
        Status::Pending => priority,
        Status::Leased(_) => LEASED + priority,
        Status::Dead { .. } => DEAD,
        Status::Done(_) => DONE,
    }
}

/// A column that is null if it has its usual value.
fn unless<T: PartialEq>(value: T, usual: T) -> Option<T> {
    (value != usual).then_some(value)
}

/// Returns the row of a job. `before` is the job as it was; if its content is the same, that is not written.
pub(crate) fn stored<'a>(id: &JobId, record: &'a Record, before: Option<&Record>) -> StoredJob<'a> {
    // A forgotten field does not compile.
    let Record {
        version,
        seq,
        attempts,
        deaths,
        floor,
        first_put_at,
        status,
        failures,
        created_at,
        updated_at,
    } = record;
    let Version { content, due, priority, generation } = version;
    let Content { body, head } = content;
    let (_, position) = record.position();
    let (mut lease, mut done) = (None, None);
    match status {
        Status::Leased(of) => lease = Some(&**of),
        Status::Done(of) => done = Some(&**of),
        Status::Pending | Status::Dead { .. } => {}
    }
    let next = lease.and_then(|lease| lease.next.as_ref());
    let claimed_at = lease.map(|lease| lease.claimed_at).or(done.map(|done| done.started_at));
    let worker = lease.map(|lease| &lease.worker).or(done.map(|done| &done.worker));
    let result = done.and_then(|done| done.result.as_ref());
    let is_same = before.is_some_and(|before| before.version.content == *content);
    let next_content = next.map(|next| &next.version.content);
    StoredJob {
        list: list_of(record),
        priority: unless(priority.get().into(), 0),
        at: stored_time(position.at),
        place: stored_number(*seq),
        due: match status {
            Status::Pending => None,
            _ => Some(stored_time(*due)),
        },
        generation: stored_number(generation.0),
        created_at: stored_time(*created_at),
        updated_at: unless(stored_time(*updated_at), stored_time(*created_at)),
        attempts: unless(attempts.cast_signed(), 0),
        deaths: unless(deaths.cast_signed(), 0),
        floor: (*floor > Timestamp::default()).then(|| stored_time(*floor)),
        first_put_at: match first_put_at {
            None => Some(0),
            Some(at) if at == created_at => None,
            Some(at) => Some(stored_time(*at)),
        },
        fence: lease.map(|lease| stored_number(lease.fence.0)),
        nonce: lease.map(|lease| lease.nonce.cast_signed()),
        claimed_at: claimed_at.map(stored_time),
        cancelled: lease.and_then(|lease| lease.cancelled.then_some(true)),
        next_generation: next.map(|next| stored_number(next.version.generation.0)),
        next_due: next.map(|next| stored_time(next.version.due)),
        next_put_at: next.map(|next| stored_time(next.put_at)),
        next_priority: next.map(|next| next.version.priority.get().into()),
        id: escape(id.as_str()).into_owned(),
        worker: worker.map(|worker| escape(worker.as_str()).into_owned()),
        content_type: stored_type(result.unwrap_or(body)),
        next_content_type: next_content.and_then(|next| stored_type(&next.body)),
        failures: (!failures.is_empty()).then(|| failures_text(failures)),
        body: (!is_same).then(|| body.bytes()),
        next_body: next_content.map(|next| next.body.bytes()),
        result: result.map(Body::bytes),
        head: if is_same { None } else { stored_head(head) },
        next_head: next_content.and_then(|next| stored_head(&next.head)),
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
