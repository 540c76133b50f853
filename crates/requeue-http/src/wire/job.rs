//! A job, as it is told.

use super::body::{BodyText, any_json};
use super::reading::{Reading, maybe_object, named, objects};
use crate::problem::Problem;
use crate::times::show_time;
use requeue_jobs::{
    FailedAttempt, Generation, JobId, JobState, JobView, Kind, LeaseView, Page, SuccessorView,
    WorkerName,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// In what state a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is not due yet.
    Waiting,
    /// It is due, and nobody has claimed it.
    Ready,
    /// Somebody has claimed it, and not settled it.
    Leased,
    /// Its attempts are used up.
    Dead,
}

const STATES: [(JobState, State); 4] = [
    (JobState::Waiting, State::Waiting),
    (JobState::Ready, State::Ready),
    (JobState::Leased, State::Leased),
    (JobState::Dead, State::Dead),
];

impl From<JobState> for State {
    fn from(state: JobState) -> Self {
        STATES[state as usize].1
    }
}

impl From<State> for JobState {
    fn from(state: State) -> Self {
        STATES[state as usize].0
    }
}

/// What is known of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its kind.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// What it carries, where it is JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// What it carries, where it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// What it carries, where it is anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// What the body is.
    pub content_type: String,
    /// When it is due, or was.
    pub due: String,
    /// Which put it is of.
    pub generation: u64,
    /// How often it has failed since that was last reset.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub attempts: u32,
    /// Who has claimed it, where it is leased.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// What was put meanwhile, where it is leased.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Its latest failed attempts, the latest last.
    #[serde(default, deserialize_with = "objects")]
    pub failures: Vec<Failure>,
    /// How often it has died.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub deaths: u32,
    /// When it last died, where it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_at: Option<String>,
    /// When it was first put.
    pub created_at: String,
    /// When it was last changed, by whomever.
    pub updated_at: String,
}

/// A lease, as others see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Who has it.
    pub worker: String,
    /// Since when.
    pub claimed_at: String,
    /// Until when, unless it is extended.
    pub ends_at: String,
    /// The job was cancelled: it ends with its lease.
    #[serde(default)]
    pub cancelled: bool,
}

/// A successor: what was put while the job was leased.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Next {
    /// What it carries, where it is JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// What it carries, where it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// What it carries, where it is anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// What the body is.
    pub content_type: String,
    /// When it is due, at the soonest.
    pub due: String,
    /// Which put it is of.
    pub generation: u64,
}

/// An attempt that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Whose it was.
    pub worker: String,
    /// When it was claimed.
    pub started_at: String,
    /// When it was retried, or its lease expired.
    pub ended_at: String,
    /// What its worker said. `null`: it said nothing, and the lease expired.
    pub error: Option<String>,
}

/// Some of the jobs that were asked for, by id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins: send it as `after`. `null`: there is none.
    pub cursor: Option<String>,
}

impl From<Page> for JobPage {
    fn from(page: Page) -> Self {
        JobPage {
            jobs: page.jobs.iter().map(Job::from).collect(),
            cursor: page.cursor.map(|id| id.as_str().to_owned()),
        }
    }
}

impl From<&JobView> for Job {
    fn from(job: &JobView) -> Self {
        let BodyText { body, body_text, body_base64, .. } = (&job.body).into();
        Job {
            kind: job.kind.as_str().to_owned(),
            id: job.id.as_str().to_owned(),
            state: job.state.into(),
            body,
            body_text,
            body_base64,
            content_type: job.body.content_type().to_owned(),
            due: show_time(job.due),
            generation: job.generation.0,
            attempts: job.attempts,
            lease: job.lease.as_ref().map(Lease::from),
            next: job.next.as_ref().map(Next::from),
            failures: job.failures.iter().map(Failure::from).collect(),
            deaths: job.deaths,
            died_at: job.died_at.map(show_time),
            created_at: show_time(job.created_at),
            updated_at: show_time(job.updated_at),
        }
    }
}

impl From<&LeaseView> for Lease {
    fn from(lease: &LeaseView) -> Self {
        Lease {
            worker: lease.worker.as_str().to_owned(),
            claimed_at: show_time(lease.claimed_at),
            ends_at: show_time(lease.ends_at),
            cancelled: lease.cancelled,
        }
    }
}

impl From<&SuccessorView> for Next {
    fn from(next: &SuccessorView) -> Self {
        let BodyText { body, body_text, body_base64, .. } = (&next.body).into();
        Next {
            body,
            body_text,
            body_base64,
            content_type: next.body.content_type().to_owned(),
            due: show_time(next.due),
            generation: next.generation.0,
        }
    }
}

impl From<&FailedAttempt> for Failure {
    fn from(failure: &FailedAttempt) -> Self {
        Failure {
            worker: failure.worker.as_str().to_owned(),
            started_at: show_time(failure.started_at),
            ended_at: show_time(failure.ended_at),
            error: failure.error.as_deref().map(str::to_owned),
        }
    }
}

impl Job {
    /// The job that this tells of. `path` is what the names of fields begin with.
    pub fn read(self, path: &str, reading: &Reading) -> Result<JobView, Problem> {
        let at = |field: &str| format!("{path}{field}");
        let time = |field: &str, text: &str| reading.time(&at(field), text);
        let kind = named(&at("kind"), &self.kind, |text| Kind::new(text))?;
        let id = named(&at("id"), &self.id, |text| JobId::new(text))?;
        let Job { body, body_text, body_base64, content_type, .. } = self;
        let content_type = Some(content_type);
        let body = BodyText { body, body_text, body_base64, content_type }.read(path)?;
        let due = time("due", &self.due)?;
        let mut job = JobView::new(kind, id, body, due, Generation(self.generation));
        job.state = self.state.into();
        job.attempts = self.attempts;
        job.lease = self.lease.map(|lease| lease.read(&at("lease."), reading)).transpose()?;
        job.next = self.next.map(|next| next.read(&at("next."), reading)).transpose()?;
        let failures = self.failures.into_iter().enumerate();
        let failures =
            failures.map(|(n, failure)| failure.read(&at(&format!("failures[{n}].")), reading));
        job.failures = failures.collect::<Result<_, _>>()?;
        job.deaths = self.deaths;
        job.died_at = self.died_at.map(|text| time("died_at", &text)).transpose()?;
        job.created_at = time("created_at", &self.created_at)?;
        job.updated_at = time("updated_at", &self.updated_at)?;
        Ok(job)
    }
}

impl Lease {
    fn read(self, path: &str, reading: &Reading) -> Result<LeaseView, Problem> {
        let at = |field: &str| format!("{path}{field}");
        Ok(LeaseView {
            worker: named(&at("worker"), &self.worker, |text| WorkerName::new(text))?,
            claimed_at: reading.time(&at("claimed_at"), &self.claimed_at)?,
            ends_at: reading.time(&at("ends_at"), &self.ends_at)?,
            cancelled: self.cancelled,
        })
    }
}

impl Next {
    fn read(self, path: &str, reading: &Reading) -> Result<SuccessorView, Problem> {
        let Next { body, body_text, body_base64, content_type, due, generation } = self;
        let content_type = Some(content_type);
        let body = BodyText { body, body_text, body_base64, content_type }.read(path)?;
        let due = reading.time(&format!("{path}due"), &due)?;
        Ok(SuccessorView { body, due, generation: Generation(generation) })
    }
}

impl Failure {
    fn read(self, path: &str, reading: &Reading) -> Result<FailedAttempt, Problem> {
        let at = |field: &str| format!("{path}{field}");
        Ok(FailedAttempt {
            worker: named(&at("worker"), &self.worker, |text| WorkerName::new(text))?,
            started_at: reading.time(&at("started_at"), &self.started_at)?,
            ended_at: reading.time(&at("ended_at"), &self.ended_at)?,
            error: self.error.map(Arc::from),
        })
    }
}
