//! A job in responses and restore requests.

use super::parse::{
    ParseContext, any_json, check, failures, fields_len, optional_object, parse, read_body,
    read_new_body,
};
use crate::problem::{Problem, ProblemType};
use crate::times::show_time;
use requeue_jobs::json::BodyJson;
use requeue_jobs::{
    Body, Content, DoneView, FailedAttempt, Fence, Generation, JobId, JobState, JobView, Kind,
    LeaseView, Page, Priority, Version, WorkerName,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = State))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "The state of a job: `waiting`: not due yet; `ready`: due, and can be claimed; `leased`: claimed and not settled yet; `dead`: its attempts are used up, or it was buried; `done`: acked, and kept by its kind."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum StateJson {
    /// The job is not due yet.
    Waiting,
    /// The job is due and can be claimed.
    Ready,
    /// A worker has claimed the job and not settled it yet.
    Leased,
    /// The job has used up its attempts or was buried. It stays in the dead-letter queue until it is
    /// revived, cancelled or removed by retention.
    Dead,
    /// The job is done, and its kind keeps done jobs. The body is no longer there.
    Done,
}

const STATES: [(JobState, StateJson); 5] = [
    (JobState::Waiting, StateJson::Waiting),
    (JobState::Ready, StateJson::Ready),
    (JobState::Leased, StateJson::Leased),
    (JobState::Dead, StateJson::Dead),
    (JobState::Done, StateJson::Done),
];

impl From<JobState> for StateJson {
    fn from(state: JobState) -> Self {
        STATES[state as usize].1
    }
}

impl From<StateJson> for JobState {
    fn from(state: StateJson) -> Self {
        STATES[state as usize].0
    }
}

pub(super) fn is_zero(level: &u8) -> bool {
    *level == 0
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Job))]
#[serde(deny_unknown_fields)]
pub struct JobJson {
    /// The kind of the job.
    pub kind: String,
    /// The id of the job.
    pub id: String,
    /// The state of the job.
    pub state: StateJson,
    /// The body, if it is JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The body, if it is other text in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The body in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The length of the body in bytes, if a list left it out because of its `body_limit`. Not allowed in
    /// requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(read_only))]
    pub body_bytes: Option<usize>,
    /// The content type of the body.
    pub content_type: String,
    /// The due time, in RFC 3339 (UTC, milliseconds).
    pub due: String,
    /// The priority, 0 to 9; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: u8,
    /// The generation: the number of the put that created this version of the job.
    pub generation: u64,
    /// The number of failed attempts since the attempts were last reset.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub attempts: u32,
    /// The lease, if the job is leased.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease: Option<LeaseJson>,
    /// The successor, if the job is leased and was put again since it was claimed.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub next: Option<SuccessorJson>,
    /// The latest failed attempts, at most five, oldest first.
    #[serde(default, deserialize_with = "failures")]
    pub failures: Vec<FailureJson>,
    /// How often the job has become dead.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub deaths: u32,
    /// The time at which the job became dead, in RFC 3339, if it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_at: Option<String>,
    /// How the job was done, if it is done.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub done: Option<DoneJson>,
    /// The time of the first put of this job, in RFC 3339.
    pub created_at: String,
    /// The time of the last change to this job, in RFC 3339.
    pub updated_at: String,
}

/// A lease on a job. The receipt is not included.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Lease))]
#[serde(deny_unknown_fields)]
pub struct LeaseJson {
    /// The name of the worker that holds the lease.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub claimed_at: String,
    /// The time at which the lease expires unless it is extended, in RFC 3339.
    pub ends_at: String,
    /// Whether the job was cancelled. A cancelled job is removed when its lease ends.
    #[serde(default)]
    pub cancelled: bool,
    /// The fencing token of the lease. Ignored in requests.
    #[serde(default)]
    pub fence: u64,
}

/// The successor of a leased job: the put that is kept until the lease ends, and runs afterwards.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Successor))]
#[serde(deny_unknown_fields)]
pub struct SuccessorJson {
    /// The body, if it is JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The body, if it is other text in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The body in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The length of the body in bytes, if a list left it out because of its `body_limit`. Not allowed in
    /// requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(read_only))]
    pub body_bytes: Option<usize>,
    /// The content type of the body.
    pub content_type: String,
    /// The due time of the successor, in RFC 3339. The successor becomes due at this time, but not
    /// before the lease ends.
    pub due: String,
    /// The priority of the successor, 0 to 9; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: u8,
    /// The generation of the successor.
    pub generation: u64,
}

/// How a job was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Done))]
#[serde(deny_unknown_fields)]
pub struct DoneJson {
    /// The name of the worker.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub started_at: String,
    /// The time at which the job was acked, in RFC 3339.
    pub done_at: String,
    /// The result of the ack, if it had one.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<ResultJson>,
}

/// The result of an ack, in one of three forms, as the body of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = AckResult))]
#[serde(deny_unknown_fields)]
pub struct ResultJson {
    /// The result as any JSON value.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The result as text, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The result as any bytes, in base64 with padding, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The length of the result in bytes, if a list left it out because of its `body_limit`. Not allowed in
    /// requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(read_only))]
    pub body_bytes: Option<usize>,
    /// The content type of the result. The default is that of a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub content_type: Option<String>,
}

impl From<&Body> for ResultJson {
    fn from(result: &Body) -> Self {
        let BodyJson { body, body_text, body_base64, .. } = BodyJson::new(result);
        let content_type = Some(result.content_type().to_owned());
        ResultJson { body, body_text, body_base64, body_bytes: None, content_type }
    }
}

impl ResultJson {
    /// Returns the fields of the body. Fails if a list left it out.
    fn fields(self, path: &str) -> Result<BodyJson, Problem> {
        let ResultJson { body, body_text, body_base64, body_bytes, content_type } = self;
        check_not_left_out(path, body_bytes)?;
        Ok(BodyJson { body, body_text, body_base64, content_type })
    }

    /// Returns the length of the result as it is written in the request, in bytes.
    pub(super) fn len(&self) -> usize {
        fields_len(&self.body, &self.body_text, &self.body_base64)
    }

    /// Converts the result in a request. `path` is the prefix of field names in errors.
    pub(super) fn read_new(self, path: &str) -> Result<Body, Problem> {
        read_new_body(path, self.fields(path)?)
    }
}

/// A failed attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Failure))]
#[serde(deny_unknown_fields)]
pub struct FailureJson {
    /// The name of the worker.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub started_at: String,
    /// The time at which the worker reported the failure, or the lease expired, in RFC 3339.
    pub ended_at: String,
    /// The error that the worker reported; `null` if the lease expired.
    pub error: Option<String>,
}

/// A page of jobs, in the order of their ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPage {
    /// The jobs of this page. A page may be shorter than the limit, or empty, and still have a
    /// cursor.
    pub jobs: Vec<JobJson>,
    /// The value to send as `after` to get the next page; `null` on the last page.
    pub cursor: Option<String>,
}

impl From<Page> for JobPage {
    fn from(page: Page) -> Self {
        JobPage {
            jobs: page.jobs.iter().map(JobJson::from).collect(),
            cursor: page.cursor.map(|id| id.as_str().to_owned()),
        }
    }
}

impl From<&JobView> for JobJson {
    fn from(job: &JobView) -> Self {
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
        // The fields of the version are those of a successor.
        let version = SuccessorJson::from(version);
        let SuccessorJson { body, body_text, body_base64, body_bytes, content_type, .. } = version;
        JobJson {
            kind: kind.as_str().to_owned(),
            id: id.as_str().to_owned(),
            state: (*state).into(),
            body,
            body_text,
            body_base64,
            body_bytes,
            content_type,
            due: version.due,
            priority: version.priority,
            generation: version.generation,
            attempts: *attempts,
            lease: lease.as_ref().map(LeaseJson::from),
            next: next.as_ref().map(SuccessorJson::from),
            failures: failures.iter().map(FailureJson::from).collect(),
            deaths: *deaths,
            died_at: died_at.map(show_time),
            done: done.as_ref().map(DoneJson::from),
            created_at: show_time(*created_at),
            updated_at: show_time(*updated_at),
        }
    }
}

impl From<&LeaseView> for LeaseJson {
    fn from(lease: &LeaseView) -> Self {
        LeaseJson {
            worker: lease.worker.as_str().to_owned(),
            claimed_at: show_time(lease.claimed_at),
            ends_at: show_time(lease.ends_at),
            cancelled: lease.cancelled,
            fence: lease.fence.0,
        }
    }
}

impl From<&Version> for SuccessorJson {
    fn from(version: &Version) -> Self {
        let Version { content: Content { body: own, head: _ }, due, priority, generation } =
            version;
        let BodyJson { body, body_text, body_base64, .. } = BodyJson::new(own);
        SuccessorJson {
            body,
            body_text,
            body_base64,
            body_bytes: None,
            content_type: own.content_type().to_owned(),
            due: show_time(*due),
            priority: priority.get(),
            generation: generation.0,
        }
    }
}

impl From<&DoneView> for DoneJson {
    fn from(done: &DoneView) -> Self {
        DoneJson {
            worker: done.worker.as_str().to_owned(),
            started_at: show_time(done.started_at),
            done_at: show_time(done.done_at),
            result: done.result.as_ref().map(ResultJson::from),
        }
    }
}

impl From<&FailedAttempt> for FailureJson {
    fn from(failure: &FailedAttempt) -> Self {
        FailureJson {
            worker: failure.worker.as_str().to_owned(),
            started_at: show_time(failure.started_at),
            ended_at: show_time(failure.ended_at),
            error: failure.error.as_deref().map(str::to_owned),
        }
    }
}

impl JobJson {
    /// Returns the length of the body as it is written in the request, in bytes, with those of the
    /// successor and the result. Converting this JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        let result = self.done.as_ref().and_then(|done| done.result.as_ref());
        let next = self
            .next
            .as_ref()
            .map(|next| fields_len(&next.body, &next.body_text, &next.body_base64));
        let other = next.unwrap_or(0) + result.map_or(0, ResultJson::len);
        fields_len(&self.body, &self.body_text, &self.body_base64) + other
    }

    /// Converts this JSON to a job. `path` is the prefix of field names in errors.
    pub fn read(self, path: &str, context: &ParseContext) -> Result<JobView, Problem> {
        let at = |field: &str| format!("{path}{field}");
        let time = |field: &str, text: &str| context.time(&at(field), text);
        let kind = parse(&at("kind"), &self.kind, |text| Kind::with_reserved(text))?;
        let id = parse(&at("id"), &self.id, |text| JobId::new(text))?;
        let JobJson { body, body_text, body_base64, body_bytes, content_type, .. } = self;
        let (due, priority, generation) = (self.due, self.priority, self.generation);
        let version = SuccessorJson {
            body,
            body_text,
            body_base64,
            body_bytes,
            content_type,
            due,
            priority,
            generation,
        };
        let mut job = JobView::new(kind, id, version.read(path, context)?);
        job.state = self.state.into();
        job.attempts = self.attempts;
        job.lease = self.lease.map(|lease| lease.read(&at("lease."), context)).transpose()?;
        job.next = self.next.map(|next| next.read(&at("next."), context)).transpose()?;
        let failures = self.failures.into_iter().enumerate();
        let failures =
            failures.map(|(n, failure)| failure.read(&at(&format!("failures[{n}].")), context));
        job.failures = failures.collect::<Result<_, _>>()?;
        job.deaths = self.deaths;
        job.done = self.done.map(|done| done.read(&at("done."), context)).transpose()?;
        job.died_at = self.died_at.map(|text| time("died_at", &text)).transpose()?;
        job.created_at = time("created_at", &self.created_at)?;
        job.updated_at = time("updated_at", &self.updated_at)?;
        Ok(job)
    }
}

/// Fails if a list left out the body: the job would be restored without it.
fn check_not_left_out(path: &str, body_bytes: Option<usize>) -> Result<(), Problem> {
    let Some(bytes) = body_bytes else { return Ok(()) };
    let detail = format!("a list left out this body of {bytes} bytes; read it without body_limit");
    Err(Problem::new(ProblemType::Invalid, detail).at(format!("{path}body_bytes")))
}

impl LeaseJson {
    fn read(self, path: &str, context: &ParseContext) -> Result<LeaseView, Problem> {
        let at = |field: &str| format!("{path}{field}");
        Ok(LeaseView {
            worker: parse(&at("worker"), &self.worker, |text| WorkerName::new(text))?,
            claimed_at: context.time(&at("claimed_at"), &self.claimed_at)?,
            ends_at: context.time(&at("ends_at"), &self.ends_at)?,
            cancelled: self.cancelled,
            fence: Fence(self.fence),
        })
    }
}

impl SuccessorJson {
    fn read(self, path: &str, context: &ParseContext) -> Result<Version, Problem> {
        check_not_left_out(path, self.body_bytes)?;
        let SuccessorJson { body, body_text, body_base64, content_type, .. } = self;
        let content_type = Some(content_type);
        let body = read_body(path, BodyJson { body, body_text, body_base64, content_type })?;
        let due = context.time(&format!("{path}due"), &self.due)?;
        let priority = check(&format!("{path}priority"), Priority::new(self.priority))?;
        let generation = Generation(self.generation);
        Ok(Version { content: body.into(), due, priority, generation })
    }
}

impl DoneJson {
    fn read(self, path: &str, context: &ParseContext) -> Result<DoneView, Problem> {
        let at = |field: &str| format!("{path}{field}");
        let result_path = at("result.");
        let read = |result: ResultJson| read_body(&result_path, result.fields(&result_path)?);
        let result = self.result.map(read);
        Ok(DoneView {
            worker: parse(&at("worker"), &self.worker, |text| WorkerName::new(text))?,
            started_at: context.time(&at("started_at"), &self.started_at)?,
            done_at: context.time(&at("done_at"), &self.done_at)?,
            result: result.transpose()?,
        })
    }
}

impl FailureJson {
    fn read(self, path: &str, context: &ParseContext) -> Result<FailedAttempt, Problem> {
        let at = |field: &str| format!("{path}{field}");
        Ok(FailedAttempt {
            worker: parse(&at("worker"), &self.worker, |text| WorkerName::new(text))?,
            started_at: context.time(&at("started_at"), &self.started_at)?,
            ended_at: context.time(&at("ended_at"), &self.ended_at)?,
            error: self.error.map(Arc::from),
        })
    }
}
