//! A job in responses and restore requests.

use super::content::{BodyFields, read_body, with_content};
use super::parse::{ParseContext, failures, invalid, optional_object};
use super::text::{TimeText, time};
use super::word::words;
use crate::problem::{AtField, Problem};
use requeue_jobs::json::BodyJson;
use requeue_jobs::{
    Body, DoneView, FailedAttempt, Fence, Generation, JobId, JobState, JobView, Kind, LeaseView,
    Page, Priority, Version, WorkerName,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// The state of a job.
    pub enum StateJson as State, default Waiting, from JobState {
        /// The job is not due yet.
        Waiting = "waiting",
        /// The job is due and can be claimed.
        Ready = "ready",
        /// A worker has claimed the job and not settled it yet.
        Leased = "leased",
        /// The job has used up its attempts or was buried. It stays in the dead-letter queue until it is
        /// revived, cancelled or removed by retention.
        Dead = "dead",
        /// The job is done, and its kind keeps done jobs. The body is no longer there.
        Done = "done",
    }
}

pub(super) fn is_zero(level: &u8) -> bool {
    *level == 0
}

with_content! {
    /// A job.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Job))]
    pub struct JobJson {
        /// The kind of the job.
        pub kind: String,
        /// The id of the job.
        pub id: String,
        /// The state of the job.
        pub state: StateJson,
        ..version,
        /// The length of the body in bytes, if a list left it out because of its `body_limit`. Not
        /// allowed in requests.
        #[cfg_attr(feature = "openapi", schema(read_only))]
        pub body_bytes: Option<usize>,
        /// The number of failed attempts since the attempts were last reset.
        #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
        pub attempts: u32,
        /// The lease, if the job is leased.
        #[serde(default, deserialize_with = "optional_object")]
        pub lease: Option<LeaseJson>,
        /// The successor, if the job is leased and was put again since it was claimed.
        #[serde(default, deserialize_with = "optional_object")]
        pub next: Option<SuccessorJson>,
        /// The latest failed attempts, at most five, oldest first.
        #[serde(default, deserialize_with = "failures")]
        pub failures: Vec<FailureJson>,
        /// How often the job has become dead.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
        pub deaths: u32,
        /// The time at which the job became dead, in RFC 3339, if it is dead.
        pub died_at: Option<TimeText>,
        /// How the job was done, if it is done.
        #[serde(default, deserialize_with = "optional_object")]
        pub done: Option<DoneJson>,
        /// The time of the first put of this job, in RFC 3339.
        pub created_at: TimeText,
        /// The time of the last change to this job, in RFC 3339.
        pub updated_at: TimeText,
    }
}

/// A lease on a job. The receipt is not included.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Lease))]
pub struct LeaseJson {
    /// The name of the worker that holds the lease.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub claimed_at: TimeText,
    /// The time at which the lease expires unless it is extended, in RFC 3339.
    pub ends_at: TimeText,
    /// Whether the job was cancelled. A cancelled job is removed when its lease ends.
    #[serde(default)]
    pub cancelled: bool,
    /// The fencing token of the lease. Ignored in requests.
    #[serde(default)]
    pub fence: u64,
}

with_content! {
    /// The successor of a leased job: the put that is kept until the lease ends, and runs afterwards.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Successor))]
    pub struct SuccessorJson {
        ..version,
        /// The length of the body in bytes, if a list left it out because of its `body_limit`. Not
        /// allowed in requests.
        #[cfg_attr(feature = "openapi", schema(read_only))]
        pub body_bytes: Option<usize>,
    }
}

/// How a job was done.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Done))]
pub struct DoneJson {
    /// The name of the worker.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub started_at: TimeText,
    /// The time at which the job was acked, in RFC 3339.
    pub done_at: TimeText,
    /// The result of the ack, if it had one.
    #[serde(default, deserialize_with = "optional_object")]
    pub result: Option<ResultJson>,
}

with_content! {
    /// The result of an ack, in one of three forms, as the body of a job.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = JobResult))]
    pub struct ResultJson {
        ..body: Option<String>,
        /// The length of the result in bytes, if a list left it out because of its `body_limit`. Not
        /// allowed in requests.
        #[cfg_attr(feature = "openapi", schema(read_only))]
        pub body_bytes: Option<usize>,
    }
}

/// A failed attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Failure))]
pub struct FailureJson {
    /// The name of the worker.
    pub worker: String,
    /// The time at which the job was claimed, in RFC 3339.
    pub started_at: TimeText,
    /// The time at which the worker reported the failure, or the lease expired, in RFC 3339.
    pub ended_at: TimeText,
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
        JobJson {
            kind: kind.as_str().to_owned(),
            id: id.as_str().to_owned(),
            state: (*state).into(),
            body_bytes: None,
            attempts: *attempts,
            lease: lease.as_ref().map(LeaseJson::from),
            next: next.as_ref().map(SuccessorJson::from),
            failures: failures.iter().map(FailureJson::from).collect(),
            deaths: *deaths,
            died_at: died_at.map(TimeText::from),
            done: done.as_ref().map(DoneJson::from),
            created_at: (*created_at).into(),
            updated_at: (*updated_at).into(),
            ..version.into()
        }
    }
}

impl From<&LeaseView> for LeaseJson {
    fn from(lease: &LeaseView) -> Self {
        let LeaseView { worker, claimed_at, ends_at, cancelled, fence } = lease;
        LeaseJson {
            worker: worker.as_str().to_owned(),
            claimed_at: (*claimed_at).into(),
            ends_at: (*ends_at).into(),
            cancelled: *cancelled,
            fence: fence.0,
        }
    }
}

impl From<&DoneView> for DoneJson {
    fn from(done: &DoneView) -> Self {
        let DoneView { worker, started_at, done_at, result } = done;
        DoneJson {
            worker: worker.as_str().to_owned(),
            started_at: (*started_at).into(),
            done_at: (*done_at).into(),
            result: result.as_ref().map(ResultJson::from),
        }
    }
}

impl From<&Body> for ResultJson {
    fn from(result: &Body) -> Self {
        BodyJson::new(result).into()
    }
}

impl From<&FailedAttempt> for FailureJson {
    fn from(failure: &FailedAttempt) -> Self {
        let FailedAttempt { worker, started_at, ended_at, error } = failure;
        FailureJson {
            worker: worker.as_str().to_owned(),
            started_at: (*started_at).into(),
            ended_at: (*ended_at).into(),
            error: error.as_deref().map(str::to_owned),
        }
    }
}

impl JobJson {
    /// Returns the length of the body as it is written here, in bytes, with those of the successor and
    /// the result. Converting this JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        let next = self.next.as_ref().map(SuccessorJson::body_fields);
        let result = self.done.as_ref().and_then(|done| done.result.as_ref());
        let bodies = [Some(self.body_fields()), next, result.map(ResultJson::body_fields)];
        bodies.iter().flatten().map(BodyFields::len).sum()
    }

    /// Removes the envelopes of the job and of its successor, unless they are `wanted`.
    #[must_use]
    pub fn with_envelope(mut self, wanted: bool) -> Self {
        if !wanted {
            self.envelope = None;
            self.next.iter_mut().for_each(|next| next.envelope = None);
        }
        self
    }

    /// Converts this JSON to a job. An error names its field.
    pub fn read(mut self, context: &ParseContext) -> Result<JobView, Problem> {
        check_not_left_out(self.body_bytes)?;
        let failures = std::mem::take(&mut self.failures).into_iter().enumerate();
        let failures = failures.map(|(n, failure)| {
            failure.read(context).map_err(|problem| problem.within(&format!("failures[{n}].")))
        });
        let failures = failures.collect::<Result<_, _>>()?;
        Ok(JobView {
            version: self.take_version(context)?,
            kind: Kind::with_reserved(self.kind).at("kind")?,
            id: JobId::new(self.id).at("id")?,
            state: self.state.into(),
            attempts: self.attempts,
            lease: self.lease.map(|lease| lease.read(context)).transpose().within("lease.")?,
            next: self.next.map(|next| next.read(context)).transpose().within("next.")?,
            failures,
            deaths: self.deaths,
            died_at: time("died_at", &self.died_at, context)?,
            done: self.done.map(|done| done.read(context)).transpose().within("done.")?,
            created_at: self.created_at.read("created_at", context)?,
            updated_at: self.updated_at.read("updated_at", context)?,
        })
    }
}

/// Fails if a list left out the body: the job would be restored without it.
fn check_not_left_out(body_bytes: Option<usize>) -> Result<(), Problem> {
    let Some(bytes) = body_bytes else { return Ok(()) };
    let detail = format!("a list left out this body of {bytes} bytes; read it without body_limit");
    Err(invalid("body_bytes", detail))
}

impl LeaseJson {
    fn read(self, context: &ParseContext) -> Result<LeaseView, Problem> {
        let LeaseJson { worker, claimed_at, ends_at, cancelled, fence } = self;
        Ok(LeaseView {
            worker: WorkerName::new(worker).at("worker")?,
            claimed_at: claimed_at.read("claimed_at", context)?,
            ends_at: ends_at.read("ends_at", context)?,
            cancelled,
            fence: Fence(fence),
        })
    }
}

impl SuccessorJson {
    fn read(mut self, context: &ParseContext) -> Result<Version, Problem> {
        check_not_left_out(self.body_bytes)?;
        self.take_version(context)
    }
}

impl DoneJson {
    fn read(self, context: &ParseContext) -> Result<DoneView, Problem> {
        let DoneJson { worker, started_at, done_at, result } = self;
        let result = result.map(|result| read_body(result.fields()?)).transpose();
        Ok(DoneView {
            worker: WorkerName::new(worker).at("worker")?,
            started_at: started_at.read("started_at", context)?,
            done_at: done_at.read("done_at", context)?,
            result: result.within("result.")?,
        })
    }
}

impl ResultJson {
    /// Returns the fields of the body. Fails if a list left it out.
    fn fields(mut self) -> Result<BodyJson, Problem> {
        check_not_left_out(self.body_bytes)?;
        Ok(self.take_body())
    }
}

impl FailureJson {
    fn read(self, context: &ParseContext) -> Result<FailedAttempt, Problem> {
        let FailureJson { worker, started_at, ended_at, error } = self;
        Ok(FailedAttempt {
            worker: WorkerName::new(worker).at("worker")?,
            started_at: started_at.read("started_at", context)?,
            ended_at: ended_at.read("ended_at", context)?,
            error: error.map(Into::into),
        })
    }
}
