//! A job as a line of an export.

use super::error::TransferError;
use super::importable;
use super::object::{ObjectReader, ObjectWriter};
use crate::content::Content;
use crate::job::{Body, DoneView, FailedAttempt, JobView, LeaseView};
use crate::json::{BodyJson, HeadJson, state_by_name, state_name};
use crate::names::{JobId, Kind, WorkerName};
use crate::priority::Priority;
use crate::receipt::{Fence, Generation};
use crate::version::Version;
use serde_json::value::RawValue;
use std::sync::Arc;

pub(super) fn write_job(job: &JobView) -> ObjectWriter {
    // Every field is named, so that a new field of JobView does not compile until it is written.
    let JobView {
        kind,
        id,
        state,
        version,
        attempts,
        lease,
        next,
        failures,
        deaths,
        died_at,
        done,
        created_at,
        updated_at,
    } = job;
    let line = ObjectWriter::with_type("job").with("kind", kind.as_str()).with("id", id.as_str());
    let line = write_version(line.with("state", state_name(*state)), version);
    let mut line = line.with("attempts", attempts);
    // The fence belongs to the store that the job leaves.
    if let Some(LeaseView { worker, claimed_at, ends_at, cancelled, fence: _ }) = lease {
        let lease = ObjectWriter::new().with("worker", worker.as_str());
        let lease = lease.time("claimed_at_ms", *claimed_at).time("ends_at_ms", *ends_at);
        line = line.object("lease", lease.with("cancelled", cancelled));
    }
    if let Some(next) = next {
        line = line.object("next", write_version(ObjectWriter::new(), next));
    }
    let failures = failures.iter().map(|failure| {
        let FailedAttempt { worker, started_at, ended_at, error } = failure;
        let failure = ObjectWriter::new().with("worker", worker.as_str());
        let failure = failure.time("started_at_ms", *started_at).time("ended_at_ms", *ended_at);
        failure.with("error", error.as_deref())
    });
    let mut line = line.objects("failures", failures).with("deaths", deaths);
    if let Some(died_at) = died_at {
        line = line.time("died_at_ms", *died_at);
    }
    if let Some(DoneView { worker, started_at, done_at, result }) = done {
        let done = ObjectWriter::new().with("worker", worker.as_str());
        let done = done.time("started_at_ms", *started_at).time("done_at_ms", *done_at);
        line = line.object(
            "done",
            match result {
                Some(result) => done.object("result", write_body(ObjectWriter::new(), result)),
                None => done,
            },
        );
    }
    line.time("created_at_ms", *created_at).time("updated_at_ms", *updated_at)
}

/// Reads the fields of a job line, except `type` and `kind`.
pub(super) fn read_job(
    kind: Kind,
    fields: &mut ObjectReader<'_>,
) -> Result<JobView, TransferError> {
    let id = fields.parse("id", JobId::new)?;
    let state: String = fields.take("state")?;
    let Some(state) = state_by_name(&state) else {
        return Err(fields.unexpected("state", &state, "waiting, ready, leased, dead or done"));
    };
    let mut job = JobView::new(kind, id, read_version(fields)?);
    job.state = state;
    job.attempts = fields.take("attempts")?;
    if let Some(mut lease) = fields.find_object("lease")? {
        job.lease = Some(LeaseView {
            worker: lease.parse("worker", WorkerName::new)?,
            claimed_at: lease.time("claimed_at_ms")?,
            ends_at: lease.time("ends_at_ms")?,
            cancelled: lease.take("cancelled")?,
            fence: Fence::default(),
        });
        lease.finish()?;
    }
    if let Some(mut next) = fields.find_object("next")? {
        job.next = Some(read_version(&mut next)?);
        next.finish()?;
    }
    for mut failure in fields.objects("failures")? {
        job.failures.push(FailedAttempt {
            worker: failure.parse("worker", WorkerName::new)?,
            started_at: failure.time("started_at_ms")?,
            ended_at: failure.time("ended_at_ms")?,
            error: failure.find::<String>("error")?.map(Arc::from),
        });
        failure.finish()?;
    }
    job.deaths = fields.take("deaths")?;
    if fields.has("died_at_ms") {
        job.died_at = Some(fields.time("died_at_ms")?);
    }
    if let Some(mut done) = fields.find_object("done")? {
        let mut result = done.find_object("result")?;
        job.done = Some(DoneView {
            worker: done.parse("worker", WorkerName::new)?,
            started_at: done.time("started_at_ms")?,
            done_at: done.time("done_at_ms")?,
            result: result.as_mut().map(read_body).transpose()?,
        });
        for fields in [result, Some(done)].into_iter().flatten() {
            fields.finish()?;
        }
    }
    job.created_at = fields.time("created_at_ms")?;
    job.updated_at = fields.time("updated_at_ms")?;
    Ok(job)
}

fn write_version(object: ObjectWriter, version: &Version) -> ObjectWriter {
    let Version { content, due, priority, generation } = version;
    let mut object = write_content(object, content).time("due_ms", *due);
    if *priority != Priority::default() {
        object = object.with("priority", priority.get());
    }
    object.with("generation", importable(generation.0))
}

fn read_version(fields: &mut ObjectReader<'_>) -> Result<Version, TransferError> {
    let (content, due) = (read_content(fields)?, fields.time("due_ms")?);
    let level: u8 = fields.find("priority")?.unwrap_or_default();
    let priority = Priority::new(level)
        .map_err(|error| fields.error("priority", level.to_string(), error.to_string()))?;
    let generation = Generation(fields.take("generation")?);
    Ok(Version { content, due, priority, generation })
}

pub(super) fn write_content(object: ObjectWriter, content: &Content) -> ObjectWriter {
    let Content { body, head } = content;
    let object = write_body(object, body);
    if head.is_empty() { object } else { object.with("head", HeadJson::from(head)) }
}

pub(super) fn read_content(fields: &mut ObjectReader<'_>) -> Result<Content, TransferError> {
    let (body, head) = (read_body(fields)?, fields.find::<HeadJson>("head")?.unwrap_or_default());
    let head = head.into_head();
    let head =
        head.map_err(|error| fields.error(error.field, error.value, error.reason.to_string()))?;
    Ok(Content { body, head })
}

fn write_body(object: ObjectWriter, body: &Body) -> ObjectWriter {
    let BodyJson { body, body_text, body_base64, content_type } = BodyJson::on_one_line(body);
    let object = object.with("content_type", content_type);
    match (body, body_text) {
        (Some(json), _) => object.with("body", json),
        (None, Some(text)) => object.with("body_text", text),
        (None, None) => object.with("body_base64", body_base64),
    }
}

fn read_body(fields: &mut ObjectReader<'_>) -> Result<Body, TransferError> {
    let mut body =
        BodyJson { content_type: Some(fields.take("content_type")?), ..BodyJson::default() };
    let other = fields.has("body_text") || fields.has("body_base64");
    // A JSON `null` is a body.
    if fields.has("body") || !other {
        body.body = Some(fields.take::<&RawValue>("body")?.to_owned());
    }
    if fields.has("body_text") {
        body.body_text = Some(fields.take("body_text")?);
    }
    if fields.has("body_base64") {
        body.body_base64 = Some(fields.take("body_base64")?);
    }
    body.into_body()
        .map_err(|error| fields.error(error.field, error.value, error.reason.to_string()))
}
