//! Encodes jobs, settings and schedules as bytes. `docs/disk-format.md` specifies them.
//!
//! In tables, a record is complete. In the log, it is the difference to the job's record before: a
//! content that did not change is not written again, nor are failures that were there before.

mod settings;

use crate::bytes::{Bytes, Malformed, put_bytes, put_number, put_step};
use requeue_jobs::rules::{Lease, Record, Status, Successor};
use requeue_jobs::{
    Body, Content, DoneView, FailedAttempt, Fence, Generation, Head, HeadError, JobId, Missed,
    Priority, Schedule, Timestamp, Version, WorkerName,
};
pub(crate) use settings::{put_rate_use, put_settings, rate_use, settings};
use std::sync::{Arc, LazyLock};

/// The parts of a record that the log does not repeat if they are unchanged.
pub(crate) struct Parts {
    content: Content,
    next: Option<Content>,
    failures: Vec<FailedAttempt>,
}

impl Parts {
    pub(crate) fn of(record: &Record) -> Self {
        let next = match &record.status {
            Status::Leased(lease) => lease.next.as_ref().map(|next| next.version.content.clone()),
            Status::Pending | Status::Dead { .. } | Status::Done(_) => None,
        };
        Parts { content: record.version.content.clone(), next, failures: record.failures.clone() }
    }
}

// The flags of a record, from the lowest bit.
const PENDING: u64 = 0;
const LEASED: u64 = 1;
const DEAD: u64 = 2;
const DONE: u64 = 3;
const STATUS: u64 = 3;
/// The content follows, is unchanged, or is the previous content of the successor.
const CONTENT_SAME: u64 = 1 << 2;
const CONTENT_OF_NEXT: u64 = 2 << 2;
const CONTENT: u64 = 3 << 2;
const HAS_NEXT: u64 = 1 << 4;
const NEXT_SAME: u64 = 1 << 5;
const CANCELLED: u64 = 1 << 6;
/// The failures follow, are unchanged, or are unchanged with one more.
const FAILURES_NONE: u64 = 0;
const FAILURES_ALL: u64 = 1 << 7;
const FAILURES_SAME: u64 = 2 << 7;
const FAILURES_MORE: u64 = 3 << 7;
const FAILURES: u64 = 3 << 7;
const HAS_ATTEMPTS: u64 = 1 << 9;
const HAS_FLOOR: u64 = 1 << 10;
const HAS_DEATHS: u64 = 1 << 11;
const HAS_FIRST_PUT: u64 = 1 << 12;
/// The first put was at the time of creation.
const FIRST_PUT_CREATED: u64 = 1 << 13;
const HAS_PRIORITY: u64 = 1 << 14;
const HAS_NEXT_PRIORITY: u64 = 1 << 15;
const HAS_RESULT: u64 = 1 << 16;
/// The successor has the content of the job.
const NEXT_OF_JOB: u64 = 1 << 17;
/// The content that follows, or that of the successor, has a head.
const HAS_HEAD: u64 = 1 << 18;
const HAS_NEXT_HEAD: u64 = 1 << 19;
/// All other bits are invalid.
const KNOWN: u64 = (1 << 20) - 1;
/// All flags of complete records.
#[cfg(test)]
pub(crate) const ALL_IN_TABLES: u64 = KNOWN & !(CONTENT | NEXT_SAME | FAILURES_SAME);
/// The content of the successor follows, is unchanged, or is that of the job.
const NEXT_CONTENT: u64 = NEXT_SAME | NEXT_OF_JOB;

pub(crate) fn put_record(out: &mut Vec<u8>, record: &Record, before: Option<&Parts>) {
    let mut flags = match &record.status {
        Status::Pending => PENDING,
        Status::Leased(_) => LEASED,
        Status::Dead { .. } => DEAD,
        Status::Done(_) => DONE,
    };
    if let Some(before) = before {
        flags |= match () {
            () if same(&record.version.content, &before.content) => CONTENT_SAME,
            () if before.next.as_ref().is_some_and(|next| same(&record.version.content, next)) => {
                CONTENT_OF_NEXT
            }
            () => 0,
        };
    }
    if flags & CONTENT == 0 && !record.version.content.head.is_empty() {
        flags |= HAS_HEAD;
    }
    if let Status::Leased(lease) = &record.status {
        flags |= if lease.cancelled { CANCELLED } else { 0 };
        if let Some(next) = &lease.next {
            flags |= HAS_NEXT;
            let before = before.and_then(|before| before.next.as_ref());
            flags |= match () {
                () if before.is_some_and(|content| same(content, &next.version.content)) => {
                    NEXT_SAME
                }
                () if same(&record.version.content, &next.version.content) => NEXT_OF_JOB,
                () if next.version.content.head.is_empty() => 0,
                () => HAS_NEXT_HEAD,
            };
            flags |=
                if next.version.priority > Priority::default() { HAS_NEXT_PRIORITY } else { 0 };
        }
    }
    if let Status::Done(done) = &record.status {
        flags |= if done.result.is_some() { HAS_RESULT } else { 0 };
    }
    flags |= if record.version.priority > Priority::default() { HAS_PRIORITY } else { 0 };
    flags |= failures_flag(record, before);
    flags |= if record.attempts > 0 { HAS_ATTEMPTS } else { 0 };
    flags |= if record.floor > Timestamp::default() { HAS_FLOOR } else { 0 };
    flags |= if record.deaths > 0 { HAS_DEATHS } else { 0 };
    flags |= match record.first_put_at {
        None => 0,
        Some(at) if at == record.created_at => HAS_FIRST_PUT | FIRST_PUT_CREATED,
        Some(_) => HAS_FIRST_PUT,
    };
    put_number(out, flags);
    put_number(out, record.version.generation.0);
    put_number(out, record.seq);
    let created = record.created_at.as_millis();
    put_number(out, created);
    put_step(out, created, record.updated_at.as_millis());
    put_step(out, created, record.version.due.as_millis());
    if flags & HAS_ATTEMPTS != 0 {
        put_number(out, record.attempts.into());
    }
    if flags & HAS_FLOOR != 0 {
        put_step(out, created, record.floor.as_millis());
    }
    if flags & HAS_DEATHS != 0 {
        put_number(out, record.deaths.into());
    }
    if let Some(at) = record.first_put_at.filter(|_| flags & FIRST_PUT_CREATED == 0) {
        put_step(out, created, at.as_millis());
    }
    if flags & HAS_PRIORITY != 0 {
        out.push(record.version.priority.get());
    }
    match &record.status {
        Status::Pending => {}
        Status::Done(done) => put_done(out, done, created),
        Status::Dead { died_at } => put_step(out, created, died_at.as_millis()),
        Status::Leased(lease) => put_lease(out, lease, created, flags),
    }
    if flags & CONTENT == 0 {
        put_content(out, &record.version.content);
    }
    match flags & FAILURES {
        FAILURES_ALL => {
            put_number(out, record.failures.len() as u64);
            record.failures.iter().for_each(|failure| put_failure(out, failure));
        }
        FAILURES_MORE => record.failures.last().into_iter().for_each(|last| put_failure(out, last)),
        _ => {}
    }
}

fn failures_flag(record: &Record, before: Option<&Parts>) -> u64 {
    let now = &record.failures;
    if now.is_empty() {
        return FAILURES_NONE;
    }
    let Some(before) = before.map(|before| &before.failures) else { return FAILURES_ALL };
    if now == before {
        return FAILURES_SAME;
    }
    // One more; the first may have been dropped for it.
    let kept = now.len() - 1;
    let fits = before.len() >= kept && now[..kept] == before[before.len() - kept..];
    if fits && kept > 0 { FAILURES_MORE } else { FAILURES_ALL }
}

/// Whether these have the same body in memory, and not only an equal one: comparing pointers is cheap.
/// A content without bytes is short enough to be written again.
fn same(a: &Content, b: &Content) -> bool {
    let (Content { body, head }, Content { body: other, head: other_head }) = (a, b);
    let same_bytes =
        std::ptr::eq(body.bytes(), other.bytes()) || body.is_empty() && other.is_empty();
    same_bytes && body.content_type() == other.content_type() && head == other_head && !a.is_empty()
}

fn put_lease(out: &mut Vec<u8>, lease: &Lease, created: u64, flags: u64) {
    put_number(out, lease.fence.0);
    out.extend_from_slice(&lease.nonce.to_le_bytes());
    put_bytes(out, lease.worker.as_str().as_bytes());
    put_step(out, created, lease.claimed_at.as_millis());
    put_step(out, created, lease.ends_at.as_millis());
    if let Some(next) = &lease.next {
        put_number(out, next.version.generation.0);
        put_step(out, created, next.version.due.as_millis());
        put_step(out, created, next.put_at.as_millis());
        if flags & HAS_NEXT_PRIORITY != 0 {
            out.push(next.version.priority.get());
        }
        if flags & NEXT_CONTENT == 0 {
            put_content(out, &next.version.content);
        }
    }
}

fn put_done(out: &mut Vec<u8>, done: &DoneView, created: u64) {
    put_bytes(out, done.worker.as_str().as_bytes());
    put_step(out, created, done.started_at.as_millis());
    put_step(out, created, done.done_at.as_millis());
    if let Some(result) = &done.result {
        put_body(out, result);
    }
}

fn put_failure(out: &mut Vec<u8>, failure: &FailedAttempt) {
    put_bytes(out, failure.worker.as_str().as_bytes());
    let started = failure.started_at.as_millis();
    put_number(out, started);
    put_step(out, started, failure.ended_at.as_millis());
    match &failure.error {
        None => put_number(out, 0),
        Some(error) => {
            put_number(out, error.len() as u64 + 1);
            out.extend_from_slice(error.as_bytes());
        }
    }
}

/// The most common content types, by number. All jobs share their texts.
static CONTENT_TYPES: LazyLock<[Arc<str>; 3]> =
    LazyLock::new(|| ["application/octet-stream", "application/json", "text/plain"].map(Arc::from));

/// The encoding of a head does not say where it ends. One without fields is not written.
fn put_content(out: &mut Vec<u8>, content: &Content) {
    let Content { body, head } = content;
    if !head.is_empty() {
        put_bytes(out, &head.encode());
    }
    put_body(out, body);
}

fn content(bytes: &mut Bytes<'_>, has_head: bool) -> Result<Content, Malformed> {
    let head = if has_head { head(bytes.bytes()?)? } else { Head::default() };
    Ok(Content { head, body: body(bytes)? })
}

fn head(bytes: &[u8]) -> Result<Head, Malformed> {
    Head::decode(bytes).map_err(|error| match error {
        HeadError::UnknownTag { .. } => Malformed("a content has an unknown field"),
        _ => Malformed("the head of a content is damaged"),
    })
}

pub(crate) fn put_body(out: &mut Vec<u8>, body: &Body) {
    let known = CONTENT_TYPES.iter().position(|known| **known == *body.content_type());
    match known {
        Some(number) => put_number(out, number as u64),
        None => {
            put_number(out, (CONTENT_TYPES.len() + body.content_type().len()) as u64);
            out.extend_from_slice(body.content_type().as_bytes());
        }
    }
    put_bytes(out, body.bytes());
}

fn body(bytes: &mut Bytes<'_>) -> Result<Body, Malformed> {
    let number = bytes.number32()? as usize;
    let content_type = match CONTENT_TYPES.get(number) {
        Some(known) => known.clone(),
        None => {
            let text = bytes.take(number - CONTENT_TYPES.len())?;
            Arc::from(str::from_utf8(text).map_err(|_| Malformed("a text is not valid UTF-8"))?)
        }
    };
    Body::new(bytes.bytes()?, content_type).map_err(|_| Malformed("a body is too large"))
}

/// Reads a record. `before` has the parts of the record before, for those that are unchanged.
pub(crate) fn record(bytes: &mut Bytes<'_>, before: Option<&Parts>) -> Result<Record, Malformed> {
    Draft::read(bytes)?.complete(before)
}

/// A record as the log has it: parts that are unchanged are missing.
pub(crate) struct Draft {
    flags: u64,
    /// With an empty content and without failures where those of the record before are meant.
    record: Record,
}

impl Draft {
    /// Reads a record without the record before.
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<Draft, Malformed> {
        let flags = bytes.number()?;
        if flags & !KNOWN != 0 {
            return Err(Malformed("a record has unknown flags"));
        }
        if flags & HAS_NEXT == 0 && flags & NEXT_CONTENT != 0 {
            return Err(Malformed("a record refers to a successor that does not exist"));
        }
        if flags & NEXT_CONTENT == NEXT_CONTENT {
            return Err(Malformed("a successor has two sources of its content"));
        }
        let next_follows = flags & HAS_NEXT != 0 && flags & NEXT_CONTENT == 0;
        if (flags & HAS_HEAD != 0 && flags & CONTENT != 0)
            || (flags & HAS_NEXT_HEAD != 0 && !next_follows)
        {
            return Err(Malformed("a record has a head without a body"));
        }
        let generation = Generation(bytes.counter()?);
        let seq = bytes.counter()?;
        let created = bytes.number()?;
        let updated_at = time(bytes.step(created)?);
        let due = time(bytes.step(created)?);
        let attempts = if flags & HAS_ATTEMPTS != 0 { bytes.number32()? } else { 0 };
        let floor = if flags & HAS_FLOOR != 0 { bytes.step(created)? } else { 0 };
        let deaths = if flags & HAS_DEATHS != 0 { bytes.number32()? } else { 0 };
        let first_put_at = match flags & (HAS_FIRST_PUT | FIRST_PUT_CREATED) {
            0 => None,
            HAS_FIRST_PUT => Some(time(bytes.step(created)?)),
            _ => Some(time(created)),
        };
        let record_priority =
            if flags & HAS_PRIORITY != 0 { priority(bytes)? } else { Priority::default() };
        let status = match flags & STATUS {
            PENDING => Status::Pending,
            DEAD => Status::Dead { died_at: time(bytes.step(created)?) },
            LEASED => Status::Leased(Box::new(lease(bytes, created, flags)?)),
            _ => Status::Done(Box::new(done(bytes, created, flags)?)),
        };
        let content = match flags & CONTENT {
            0 => content(bytes, flags & HAS_HEAD != 0)?,
            CONTENT_SAME | CONTENT_OF_NEXT => Content::default(),
            _ => return Err(Malformed("a record has an unknown source of its content")),
        };
        let failures = match flags & FAILURES {
            FAILURES_ALL => {
                let count = bytes.number()?;
                (0..count).map(|_| failure(bytes)).collect::<Result<_, _>>()?
            }
            FAILURES_MORE => vec![failure(bytes)?],
            _ => Vec::new(),
        };
        let record = Record {
            version: Version { content, due, priority: record_priority, generation },
            seq,
            attempts,
            deaths,
            floor: time(floor),
            first_put_at,
            status,
            failures,
            created_at: time(created),
            updated_at,
        };
        Ok(Draft { flags, record })
    }

    /// The record, with the parts that are unchanged from the record before.
    pub(crate) fn complete(self, before: Option<&Parts>) -> Result<Record, Malformed> {
        let Draft { flags, mut record } = self;
        let before =
            || before.ok_or(Malformed("a record refers to the record before, and there is none"));
        let next_before = || {
            let next = before()?.next.clone();
            next.ok_or(Malformed("a record refers to a successor that does not exist"))
        };
        if let (Status::Leased(lease), true) = (&mut record.status, flags & NEXT_SAME != 0)
            && let Some(next) = &mut lease.next
        {
            next.version.content = next_before()?;
        }
        match flags & CONTENT {
            CONTENT_SAME => record.version.content = before()?.content.clone(),
            CONTENT_OF_NEXT => record.version.content = next_before()?,
            _ => {}
        }
        take_content_of_job(&mut record, flags);
        match flags & FAILURES {
            FAILURES_SAME => record.failures = before()?.failures.clone(),
            FAILURES_MORE => add_failures(&before()?.failures, &mut record.failures),
            _ => {}
        }
        Ok(record)
    }

    /// The generation of the job, and of its successor if there is one.
    pub(crate) fn newest_generation(&self) -> Generation {
        self.record.newest_generation()
    }

    /// Whether failed attempts of the record before are meant, of which there is at least one.
    pub(crate) fn repeats_failures(&self) -> bool {
        matches!(self.flags & FAILURES, FAILURES_SAME | FAILURES_MORE)
    }

    /// The record, if its contents are known although changes just before this one are lost.
    ///
    /// `before` is the latest record that is known. A generation has one content, so a content is taken
    /// from `before` only if that has one of the same generation. Failed attempts may be missing.
    pub(crate) fn complete_after_gap(self, before: Option<&Record>) -> Option<Record> {
        let Draft { flags, mut record } = self;
        let content_of = |generation: Generation| {
            let before = before?;
            if before.version.generation == generation {
                return Some(before.version.content.clone());
            }
            let Status::Leased(lease) = &before.status else { return None };
            let next = lease.next.as_ref().filter(|next| next.version.generation == generation)?;
            Some(next.version.content.clone())
        };
        if let (Status::Leased(lease), true) = (&mut record.status, flags & NEXT_SAME != 0)
            && let Some(next) = &mut lease.next
        {
            next.version.content = content_of(next.version.generation)?;
        }
        if flags & CONTENT != 0 {
            record.version.content = content_of(record.version.generation)?;
        }
        take_content_of_job(&mut record, flags);
        let failures = before.map_or(&[][..], |before| &before.failures);
        match flags & FAILURES {
            FAILURES_SAME => record.failures = failures.to_vec(),
            FAILURES_MORE => add_failures(failures, &mut record.failures),
            _ => {}
        }
        Some(record)
    }
}

/// Gives the successor the content of the job, if that is meant.
fn take_content_of_job(record: &mut Record, flags: u64) {
    if let (Status::Leased(lease), true) = (&mut record.status, flags & NEXT_OF_JOB != 0)
        && let Some(next) = &mut lease.next
    {
        next.version.content = record.version.content.clone();
    }
}

/// Puts earlier failures before the newest, and drops the first if there are too many.
fn add_failures(before: &[FailedAttempt], newest: &mut Vec<FailedAttempt>) {
    let dropped = (before.len() + 1).saturating_sub(requeue_jobs::limits::KEPT_ATTEMPTS);
    newest.splice(..0, before.iter().skip(dropped).cloned());
}

fn lease(bytes: &mut Bytes<'_>, created: u64, flags: u64) -> Result<Lease, Malformed> {
    let fence = Fence(bytes.counter()?);
    let nonce = fixed(bytes)?;
    let worker = worker(bytes)?;
    let claimed_at = time(bytes.step(created)?);
    let ends_at = time(bytes.step(created)?);
    let mut next = None;
    if flags & HAS_NEXT != 0 {
        let generation = Generation(bytes.counter()?);
        let due = time(bytes.step(created)?);
        let put_at = time(bytes.step(created)?);
        let priority =
            if flags & HAS_NEXT_PRIORITY != 0 { priority(bytes)? } else { Priority::default() };
        let content = match flags & NEXT_CONTENT {
            0 => content(bytes, flags & HAS_NEXT_HEAD != 0)?,
            _ => Content::default(),
        };
        let version = Version { content, due, priority, generation };
        next = Some(Successor { version, put_at });
    }
    let cancelled = flags & CANCELLED != 0;
    Ok(Lease { fence, nonce, worker, claimed_at, ends_at, cancelled, next })
}

fn priority(bytes: &mut Bytes<'_>) -> Result<Priority, Malformed> {
    Priority::new(bytes.byte()?).map_err(|_| Malformed("a priority is too high"))
}

fn done(bytes: &mut Bytes<'_>, created: u64, flags: u64) -> Result<DoneView, Malformed> {
    let worker = worker(bytes)?;
    let (started_at, done_at) = (time(bytes.step(created)?), time(bytes.step(created)?));
    let result = if flags & HAS_RESULT != 0 { Some(body(bytes)?) } else { None };
    Ok(DoneView { worker, started_at, done_at, result })
}

fn failure(bytes: &mut Bytes<'_>) -> Result<FailedAttempt, Malformed> {
    let worker = worker(bytes)?;
    let started = bytes.number()?;
    let ended_at = time(bytes.step(started)?);
    let error = match bytes.number32()? {
        0 => None,
        len => {
            let text = bytes.take(len as usize - 1)?;
            Some(Arc::from(
                str::from_utf8(text).map_err(|_| Malformed("a text is not valid UTF-8"))?,
            ))
        }
    };
    Ok(FailedAttempt { worker, started_at: time(started), ended_at, error })
}

fn time(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn fixed(bytes: &mut Bytes<'_>) -> Result<u64, Malformed> {
    let eight = bytes.take(8)?;
    Ok(u64::from_le_bytes(eight.try_into().expect("eight bytes were taken")))
}

fn worker(bytes: &mut Bytes<'_>) -> Result<WorkerName, Malformed> {
    WorkerName::new(bytes.text()?).map_err(|_| Malformed("a worker name is invalid"))
}

/// Reads the id and the record of a job in a table. Returns `None` if `here` holds for the id.
pub(crate) fn job_unless(
    value: &[u8],
    here: impl Fn(&JobId) -> bool,
) -> Result<Option<(JobId, Box<Record>)>, Malformed> {
    let mut bytes = Bytes::new(value);
    let id = id(&mut bytes)?;
    if here(&id) {
        return Ok(None);
    }
    let record = record(&mut bytes, None)?;
    bytes.end()?;
    Ok(Some((id, Box::new(record))))
}

pub(crate) fn id(bytes: &mut Bytes<'_>) -> Result<JobId, Malformed> {
    JobId::new(bytes.text()?).map_err(|_| Malformed("a job id is invalid"))
}

// Schedules.

pub(crate) fn put_schedule(out: &mut Vec<u8>, schedule: &Schedule) {
    put_bytes(out, schedule.id.as_str().as_bytes());
    put_bytes(out, schedule.when.as_bytes());
    put_bytes(out, schedule.time_zone.as_bytes());
    out.push(match schedule.missed {
        Missed::One => 0,
        Missed::Skip => 1,
        Missed::All => 2,
    });
    put_number(out, schedule.next.as_millis());
    let Content { body, head } = &schedule.content;
    put_bytes(out, &head.encode());
    put_body(out, body);
}

pub(crate) fn schedule(bytes: &mut Bytes<'_>) -> Result<Schedule, Malformed> {
    let id = id(bytes)?;
    let when = bytes.text()?.to_owned();
    let time_zone = bytes.text()?.to_owned();
    let missed = match bytes.byte()? {
        0 => Missed::One,
        1 => Missed::Skip,
        2 => Missed::All,
        _ => return Err(Malformed("a schedule has an unknown rule for missed runs")),
    };
    let next = time(bytes.number()?);
    Ok(Schedule { id, when, time_zone, content: content(bytes, true)?, missed, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_table::LayerEntry;

    /// An allocator that rounds up to multiples of 16 bytes takes 160 for a record.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn records_in_memory_are_small() {
        assert_eq!(size_of::<Record>(), 160);
        assert_eq!(size_of::<LayerEntry>(), 32);
    }
}
