//! Encoding of the values in Redis, as the scripts use them. `docs/redis-keys.md` describes every byte.

use crate::keys::Keys;
use requeue_jobs::{
    Body, Content, DoneView, FailedAttempt, Fence, Generation, Head, HeadError, JobId, JobState,
    JobView, Kind, LeaseView, Missed, Priority, Receipt, Schedule, StoreError, Timestamp, Version,
    WorkerName,
};
use std::borrow::Cow;
use std::sync::Arc;

/// What is wrong with a value in Redis: it is incomplete, or was not written by this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage(Cow<'static, str>);

/// What a script reports of a job that it cannot change.
pub(crate) const NO_RECORD: Damage = Damage::new("its record, lease or successor is incomplete");

impl Damage {
    const fn new(what: &'static str) -> Damage {
        Damage(Cow::Borrowed(what))
    }

    /// The error for a job or a schedule whose value in the hash `key` is damaged.
    pub(crate) fn of(self, key: &str, id: &str) -> StoreError {
        let Damage(what) = self;
        let reason = format!("the value of {id:?} in the Redis key {key} is damaged: {what}");
        StoreError::Unavailable { reason }
    }

    /// The error for a value that is longer than this version writes them. Scripts return the length
    /// in place of such a value.
    pub(crate) fn too_long(key: &str, id: &str, length: i64) -> StoreError {
        let reason = format!(
            "the value of {id:?} in the Redis key {key} is damaged: it has {length} bytes, which \
             is too long"
        );
        StoreError::Unavailable { reason }
    }
}

/// Content types that are stored as one byte: their index here.
const CONTENT_TYPES: [&str; 3] = ["application/octet-stream", "application/json", "text/plain"];
/// The number for any other content type: its length and text follow.
const OTHER: u8 = 3;
/// Where the priority begins in the flags. The content type has the bits below.
const PRIORITY_SHIFT: u8 = 2;
/// In the flags of a done job: the content is its result.
const HAS_RESULT: u8 = 64;
/// In the flags: a head follows.
const HAS_HEAD: u8 = 128;

/// Encodes flags, head, content type and body.
pub(crate) fn content(content: &Content, priority: Priority) -> Vec<u8> {
    let Content { body, head } = content;
    let known = CONTENT_TYPES.iter().position(|known| *known == body.content_type());
    let number = known.map_or(OTHER, |known| known as u8);
    let mut out = Vec::with_capacity(content.len() + 1);
    out.push(priority.get() << PRIORITY_SHIFT | number);
    if !head.is_empty() {
        out[0] |= HAS_HEAD;
        let encoding = head.encode();
        push_number(&mut out, head.len() as u64, HEAD_LEN);
        push_number(&mut out, encoding.len() as u64, HEAD_LEN);
        out.extend(encoding);
    }
    if known.is_none() {
        out.push(body.content_type().len() as u8);
        out.extend(body.content_type().as_bytes());
    }
    out.extend(body.bytes());
    out
}

/// Encodes the result of a job, or a body that replaces another.
pub(crate) fn body(body: &Body) -> Vec<u8> {
    content(&body.clone().into(), Priority::default())
}

/// A cursor over bytes.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Damage::new("a record is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn number(&mut self, bytes: usize) -> Result<u64, Damage> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, Damage> {
        Ok(Timestamp::from_millis(self.number(TIME)?))
    }

    fn text(&mut self, len: usize) -> Result<&'a str, Damage> {
        str::from_utf8(self.take(len)?).map_err(|_| Damage::new("a text is not UTF-8"))
    }

    fn worker(&mut self, len: usize) -> Result<WorkerName, Damage> {
        WorkerName::new(self.text(len)?).map_err(|_| Damage::new("a worker name is invalid"))
    }

    /// Reads what [`content`] wrote, up to the end of the input.
    fn content(&mut self) -> Result<(Content, Priority), Damage> {
        let flags = self.take(1)?[0];
        let priority = read_priority(flags & !HAS_HEAD)?;
        let head = match flags & HAS_HEAD {
            0 => Head::default(),
            _ => self.head()?,
        };
        Ok((Content { body: self.body(flags & OTHER)?, head }, priority))
    }

    fn head(&mut self) -> Result<Head, Damage> {
        let (counted, len) = (self.number(HEAD_LEN)?, self.number(HEAD_LEN)?);
        let head = Head::decode(self.take(len as usize)?)?;
        match head.len() as u64 == counted {
            true => Ok(head),
            false => Err(Damage::new("a head does not have as many bytes as it says")),
        }
    }

    /// Reads a body with this number of a content type, up to the end of the input.
    fn body(&mut self, number: u8) -> Result<Body, Damage> {
        let content_type = match CONTENT_TYPES.get(usize::from(number)) {
            Some(known) => known,
            None => {
                let len = self.take(1)?[0];
                self.text(usize::from(len))?
            }
        };
        let bytes = std::mem::take(&mut self.0);
        let body = match number {
            0 => Body::octets(bytes),
            _ => Body::new(bytes, content_type),
        };
        body.map_err(|_| Damage::new("a body is too long, or its content type is invalid"))
    }
}

fn read_priority(flags: u8) -> Result<Priority, Damage> {
    let priority = Priority::new(flags >> PRIORITY_SHIFT);
    priority.map_err(|_| Damage::new("a record has flags of a newer version"))
}

impl From<HeadError> for Damage {
    fn from(error: HeadError) -> Self {
        Damage(error.to_string().into())
    }
}

const TIME: usize = 6;
const COUNTER: usize = 7;
const HEAD_LEN: usize = 4;

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
    pub(crate) priority: Priority,
    pub(crate) content: Content,
    /// The result, if the job is done and has one.
    pub(crate) result: Option<Body>,
}

impl Record {
    /// Reads a record. That of a done job has a result, or nothing, in place of the content.
    pub(crate) fn read(bytes: &[u8], is_done: bool) -> Result<Record, Damage> {
        let mut input = Input(bytes);
        let generation = Generation(input.number(COUNTER)?);
        let (created_at, updated_at) = (input.time()?, input.time()?);
        let (mut content, mut result) = (Content::default(), None);
        let priority;
        if is_done {
            let flags = input.take(1)?[0];
            priority = read_priority(flags & !HAS_RESULT)?;
            if flags & HAS_RESULT != 0 {
                result = Some(input.body(flags & OTHER)?);
            }
        } else {
            (content, priority) = input.content()?;
        }
        Ok(Record { generation, created_at, updated_at, priority, content, result })
    }

    pub(crate) fn write(job: &JobView) -> Vec<u8> {
        let Version { content: of_job, due: _, priority, generation } = &job.version;
        let mut out = Vec::with_capacity(of_job.len() + 32);
        push_number(&mut out, generation.0, COUNTER);
        push_time(&mut out, job.created_at);
        push_time(&mut out, job.updated_at);
        let flags = out.len();
        match job.done.as_ref().map(|done| done.result.as_ref()) {
            None => out.extend(content(of_job, *priority)),
            Some(None) => out.push(priority.get() << PRIORITY_SHIFT),
            Some(Some(result)) => {
                out.extend(content(&result.clone().into(), *priority));
                out[flags] |= HAS_RESULT;
            }
        }
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
    /// What follows: of a done job, when it was claimed, and the worker.
    rest: Vec<u8>,
}

impl Past {
    pub(crate) fn read(bytes: &[u8]) -> Result<Past, Damage> {
        let mut input = Input(bytes);
        let (attempts, deaths) = (input.number(4)? as u32, input.number(4)? as u32);
        let (_floor, _first) = (input.time()?, input.time()?);
        let (due, updated_at) = (input.time()?, input.time()?);
        let count = input.take(1)?[0];
        let failures = (0..count).map(|_| read_failure(&mut input)).collect::<Result<_, _>>()?;
        Ok(Past { attempts, deaths, due, updated_at, failures, rest: input.0.to_vec() })
    }

    /// Reads only the number of failed attempts.
    pub(crate) fn attempts(bytes: &[u8]) -> Result<u32, Damage> {
        Ok(Input(bytes).number(4)? as u32)
    }

    pub(crate) fn write(job: &JobView, floor: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        push_number(&mut out, job.attempts.into(), 4);
        push_number(&mut out, job.deaths.into(), 4);
        for time in [floor, job.created_at, job.version.due, job.updated_at] {
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
        if let Some(done) = &job.done {
            push_time(&mut out, done.started_at);
            out.extend(done.worker.as_str().as_bytes());
        }
        out
    }
}

fn read_failure(input: &mut Input<'_>) -> Result<FailedAttempt, Damage> {
    let (started_at, ended_at) = (input.time()?, input.time()?);
    let len = input.take(1)?[0];
    let worker = input.worker(usize::from(len))?;
    let error = match input.number(2)? as usize {
        0 => None,
        more => Some(Arc::from(input.text(more - 1)?)),
    };
    Ok(FailedAttempt { worker, started_at, ended_at, error })
}

/// A job as the scripts `view` and `list_by_time` return it.
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
    pub(crate) fn view(&self, kind: &Kind, keys: &Keys) -> Result<JobView, StoreError> {
        let in_key = |key| move |damage: Damage| damage.of(key, self.id.as_str());
        let record = Record::read(&self.record, self.state == JobState::Done);
        let Record { generation, created_at, updated_at, priority, content, result } =
            record.map_err(in_key(keys.job()))?;
        let past = match self.past.is_empty() {
            true => Past::default(),
            false => Past::read(&self.past).map_err(in_key(keys.past()))?,
        };
        let version = Version { content, due: self.at, priority, generation };
        let mut view = JobView::new(kind.clone(), self.id.clone(), version);
        view.state = self.state;
        (view.attempts, view.deaths, view.failures) = (past.attempts, past.deaths, past.failures);
        (view.created_at, view.updated_at) = (created_at, updated_at.max(past.updated_at));
        match self.state {
            JobState::Waiting | JobState::Ready => {}
            JobState::Leased => {
                self.read_lease(&mut view).map_err(in_key(keys.lease()))?;
                view.next = self.read_next().map_err(in_key(keys.next()))?;
            }
            JobState::Dead => (view.version.due, view.died_at) = (past.due, Some(self.at)),
            JobState::Done => {
                let mut input = Input(&past.rest);
                let mut read = || Ok((input.time()?, input.worker(input.0.len())?));
                let (started_at, worker) = read().map_err(in_key(keys.past()))?;
                view.version.due = past.due;
                view.done = Some(DoneView { worker, started_at, done_at: self.at, result });
            }
        }
        Ok(view)
    }

    fn read_lease(&self, view: &mut JobView) -> Result<(), Damage> {
        let mut input = Input(&self.lease);
        let fence = Fence(input.number(COUNTER)?);
        input.take(8)?;
        view.version.due = input.time()?;
        let claimed_at = input.time()?;
        view.updated_at = input.time()?;
        let cancelled = input.take(1)?[0] == 1;
        let worker = input.worker(input.0.len())?;
        view.lease = Some(LeaseView { worker, claimed_at, ends_at: self.at, cancelled, fence });
        Ok(())
    }

    fn read_next(&self) -> Result<Option<Version>, Damage> {
        if self.next.is_empty() {
            return Ok(None);
        }
        let mut input = Input(&self.next);
        let due = input.time()?;
        let generation = Generation(input.number(COUNTER)?);
        input.time()?;
        let (content, priority) = input.content()?;
        Ok(Some(Version { content, due, priority, generation }))
    }
}

/// Encodes a schedule without its id.
pub(crate) fn write_schedule(schedule: &Schedule) -> Vec<u8> {
    let Schedule { id: _, when, time_zone, content: of_jobs, missed, next } = schedule;
    let mut out = Vec::new();
    push_time(&mut out, *next);
    let (when, zone) = (when.as_bytes(), time_zone.as_bytes());
    // Lua counts positions from 1.
    let begins = TIME + 2 + 1 + 2 + when.len() + 2 + zone.len() + 1;
    push_number(&mut out, begins as u64, 2);
    out.push(match missed {
        Missed::One => 0,
        Missed::Skip => 1,
        Missed::All => 2,
    });
    for text in [when, zone] {
        push_number(&mut out, text.len() as u64, 2);
        out.extend(text);
    }
    out.extend(content(of_jobs, Priority::default()));
    out
}

pub(crate) fn read_schedule(id: JobId, bytes: &[u8]) -> Result<Schedule, Damage> {
    let mut input = Input(bytes);
    let next = input.time()?;
    input.number(2)?;
    let missed = match input.take(1)?[0] {
        0 => Missed::One,
        1 => Missed::Skip,
        2 => Missed::All,
        _ => return Err(Damage::new("a schedule was written by a newer version")),
    };
    let mut text = || {
        let len = input.number(2)?;
        Ok::<_, Damage>(input.text(len as usize)?.to_owned())
    };
    let (when, time_zone) = (text()?, text()?);
    let (content, _) = input.content()?;
    Ok(Schedule { id, when, time_zone, content, missed, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_testkit::{Random, check_seeds, random_head};

    fn random_bytes(random: &mut Random, max: usize) -> Vec<u8> {
        (0..random.below(max + 1)).map(|_| random.below(256) as u8).collect()
    }

    fn schedule(id: JobId, content: Content) -> Schedule {
        let (when, time_zone) = ("0 6 * * *".to_owned(), "Europe/Berlin".to_owned());
        let (missed, next) = (Missed::Skip, Timestamp::from_millis(7));
        Schedule { id, when, time_zone, content, missed, next }
    }

    #[test]
    fn a_damaged_head_is_named_with_the_key_and_the_id() {
        for (head, expected) in [
            (&b"\0\0\0\0\0\0\0\x02\x08\0"[..], "unknown tag 8"),
            (b"\0\0\0\0\0\0\0\x02\x07", "too short"),
            (b"\0\0\0\0\0\0\0\x01\x07", "ends within a field"),
            (b"\0\0\0\x03\0\0\0\x04\x07\x02\x01x", "as many bytes as it says"),
            (b"\0\0\0\x01\xff\xff\xff\xff", "too short"),
        ] {
            let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
            let record = [&[0; 19][..], &[HAS_HEAD], head].concat();
            let (state, at) = (JobState::Ready, Timestamp::default());
            let (lease, next, past) = Default::default();
            let stored = StoredJob { id, state, at, record, lease, next, past };
            let error = stored.view(&kind, &Keys::of("requeue", &kind)).expect_err("it is damaged");
            let error = error.to_string();
            for part in [expected, "\"a\"", "{requeue:mail}:job"] {
                assert!(error.contains(part), "{error} does not contain {part}");
            }
        }
    }

    #[test]
    fn damaged_values_are_errors_and_never_panics() {
        check_seeds(&[], "REQUEUE_CODEC", 2000, |seed| {
            let mut random = Random::new(seed);
            let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
            let keys = Keys::of("requeue", &kind);
            let content_type = ["text/plain", "image/x-odd", ""][random.below(3)];
            let body = Body::new(random_bytes(&mut random, 50), content_type).expect("a body");
            let due = Timestamp::from_millis(5);
            let mut job = JobView::new(
                kind.clone(),
                id.clone(),
                Version::new(body.clone(), due, Generation(9)),
            );
            let of_job = Content { body: body.clone(), head: random_head(&mut random) };
            job.version.content = of_job.clone();
            let worker = WorkerName::new("w").expect("a name");
            let error = Some(Arc::from("why"));
            job.failures = vec![FailedAttempt { worker, started_at: due, ended_at: due, error }; 3];
            let mut lease = vec![0; 33];
            lease.extend([1, b'w']);
            let next = [&[0; 19][..], &content(&of_job, Priority::MAX)].concat();
            job.version.priority = Priority::MAX;
            let schedule = schedule(id.clone(), of_job.clone());
            let (result, started_at, done_at) = (Some(body.clone()), due, due);
            let mut done = job.clone();
            let worker = WorkerName::new("w").expect("a name");
            done.done = Some(DoneView { worker, started_at, done_at, result });
            let mut values = [
                Record::write(&job),
                Past::write(&job, due),
                Record::write(&done),
                Past::write(&done, due),
                lease,
                next,
                write_schedule(&schedule),
            ];
            let read = Record::read(&values[0], false);
            assert!(
                read.is_ok_and(|read| (read.content, read.priority) == (of_job, Priority::MAX))
            );
            assert!(Past::read(&values[1]).is_ok_and(|past| past.failures == job.failures));
            let read = Record::read(&values[2], true);
            assert!(
                read.is_ok_and(|record| record.result == done.done.and_then(|done| done.result))
            );
            assert!(read_schedule(id.clone(), &values[6]).is_ok_and(|read| read == schedule));
            for value in &mut values {
                match random.below(3) {
                    0 => value.truncate(random.below(value.len())),
                    1 => *value = random_bytes(&mut random, 80),
                    _ => {
                        let at = random.below(value.len());
                        value[at] = random.below(256) as u8;
                    }
                }
            }
            let _ = Past::attempts(&values[1]);
            drop(read_schedule(id.clone(), &values[6]));
            let [record, past, done, done_past, lease, next, _] = values;
            for state in [JobState::Ready, JobState::Leased, JobState::Dead, JobState::Done] {
                let (record, past) = match state {
                    JobState::Done => (done.clone(), done_past.clone()),
                    _ => (record.clone(), past.clone()),
                };
                let (lease, next, id) = (lease.clone(), next.clone(), id.clone());
                let stored = StoredJob { id, state, at: due, record, lease, next, past };
                if let Err(error) = stored.view(&kind, &keys) {
                    assert!(error.to_string().contains("{requeue:mail}:"), "{error}");
                }
            }
            Ok(())
        });
    }
}
