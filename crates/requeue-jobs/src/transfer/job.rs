//! A job as a line.

use super::error::TransferError;
use super::object::{Fields, Object, quoted};
use crate::job::{Body, FailedAttempt, JobState, JobView, LeaseView, SuccessorView};
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::Generation;
use base64::engine::general_purpose::STANDARD as BASE64;
use base64::{DecodeError, Engine};
use serde_json::value::RawValue;
use std::sync::Arc;

const STATES: [(JobState, &str); 4] = [
    (JobState::Waiting, "waiting"),
    (JobState::Ready, "ready"),
    (JobState::Leased, "leased"),
    (JobState::Dead, "dead"),
];

pub(super) fn written(job: &JobView) -> Object {
    // All of them by name: one that is new is not forgotten.
    let JobView {
        kind,
        id,
        state,
        body,
        due,
        generation,
        attempts,
        lease,
        next,
        failures,
        deaths,
        died_at,
        created_at,
        updated_at,
    } = job;
    let (_, state) = STATES[*state as usize];
    let line = Object::of_type("job").with("kind", kind.as_str()).with("id", id.as_str());
    let line = with_body(line.with("state", state), body).at("due_ms", *due);
    let mut line = line.with("generation", generation.0).with("attempts", attempts);
    if let Some(LeaseView { worker, claimed_at, ends_at, cancelled }) = lease {
        let lease = Object::new().with("worker", worker.as_str()).at("claimed_at_ms", *claimed_at);
        line = line.object("lease", lease.at("ends_at_ms", *ends_at).with("cancelled", cancelled));
    }
    if let Some(SuccessorView { body, due, generation }) = next {
        let next = with_body(Object::new(), body).at("due_ms", *due);
        line = line.object("next", next.with("generation", generation.0));
    }
    let failures = failures.iter().map(|failure| {
        let FailedAttempt { worker, started_at, ended_at, error } = failure;
        let failure =
            Object::new().with("worker", worker.as_str()).at("started_at_ms", *started_at);
        failure.at("ended_at_ms", *ended_at).with("error", error.as_deref())
    });
    let mut line = line.objects("failures", failures).with("deaths", deaths);
    if let Some(died_at) = died_at {
        line = line.at("died_at_ms", *died_at);
    }
    line.at("created_at_ms", *created_at).at("updated_at_ms", *updated_at)
}

/// The rest of a line of this kind.
pub(super) fn read(kind: Kind, fields: &mut Fields<'_>) -> Result<JobView, TransferError> {
    let id = fields.made("id", JobId::new)?;
    let state: String = fields.take("state")?;
    let Some((state, _)) = STATES.into_iter().find(|(_, name)| *name == state) else {
        return Err(fields.wrong("state", &state, "waiting, ready, leased or dead"));
    };
    let (body, due) = (read_body(fields)?, fields.at("due_ms")?);
    let mut job = JobView::new(kind, id, body, due, Generation(fields.take("generation")?));
    job.state = state;
    job.attempts = fields.take("attempts")?;
    if let Some(mut lease) = fields.find_object("lease")? {
        job.lease = Some(LeaseView {
            worker: lease.made("worker", WorkerName::new)?,
            claimed_at: lease.at("claimed_at_ms")?,
            ends_at: lease.at("ends_at_ms")?,
            cancelled: lease.take("cancelled")?,
        });
        lease.finish()?;
    }
    if let Some(mut next) = fields.find_object("next")? {
        let (body, due) = (read_body(&mut next)?, next.at("due_ms")?);
        job.next =
            Some(SuccessorView { body, due, generation: Generation(next.take("generation")?) });
        next.finish()?;
    }
    for mut failure in fields.objects("failures")? {
        job.failures.push(FailedAttempt {
            worker: failure.made("worker", WorkerName::new)?,
            started_at: failure.at("started_at_ms")?,
            ended_at: failure.at("ended_at_ms")?,
            error: failure.find::<String>("error")?.map(Arc::from),
        });
        failure.finish()?;
    }
    job.deaths = fields.take("deaths")?;
    if fields.has("died_at_ms") {
        job.died_at = Some(fields.at("died_at_ms")?);
    }
    (job.created_at, job.updated_at) = (fields.at("created_at_ms")?, fields.at("updated_at_ms")?);
    Ok(job)
}

/// A body is read as the very bytes that it was. JSON is written as it is, other text as text:
/// that can be searched and mended. The rest is base64.
pub(super) fn with_body(object: Object, body: &Body) -> Object {
    let object = object.with("content_type", body.content_type());
    if let Some(json) = as_json(body) {
        return object.with("body", json);
    }
    match str::from_utf8(body.bytes()) {
        Ok(text) => object.with("body_text", text),
        Err(_) => object.with("body_base64", BASE64.encode(body.bytes())),
    }
}

/// The body, if it can be part of a line as it is: JSON on one line, with no space around it, which
/// would be lost.
fn as_json(body: &Body) -> Option<&RawValue> {
    let bytes = body.bytes();
    if body.content_type() != "application/json" || bytes.iter().any(|b| b"\r\n".contains(b)) {
        return None;
    }
    let json: &RawValue = serde_json::from_slice(bytes).ok()?;
    (json.get().len() == bytes.len()).then_some(json)
}

pub(super) fn read_body(fields: &mut Fields<'_>) -> Result<Body, TransferError> {
    let empty = fields.made("content_type", |content_type| Body::new([], content_type))?;
    // Where there are two, the other is left, and is not known.
    let (name, bytes) = if fields.has("body_text") {
        ("body_text", fields.take::<String>("body_text")?.into_bytes())
    } else if fields.has("body_base64") {
        let text: String = fields.take("body_base64")?;
        let wrong =
            |error: DecodeError| fields.error("body_base64", quoted(&text), error.to_string());
        ("body_base64", BASE64.decode(&text).map_err(wrong)?)
    } else {
        ("body", fields.take::<&RawValue>("body")?.get().as_bytes().to_vec())
    };
    let shown = format!("{} bytes", bytes.len());
    let body = Body::new(bytes, empty.content_type());
    body.map_err(|invalid| fields.error(name, shown, invalid.to_string()))
}
