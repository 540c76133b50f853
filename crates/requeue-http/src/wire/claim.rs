//! Claiming jobs.

use super::job::is_zero;
use super::parse::{
    self, ParseContext, any_json, check, optional_time_text, parse, read_body, time_text,
};
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::json::BodyJson;
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    Claim, Claimed, ClaimedJob, Content, Generation, Kind, Priority, Receipt, Version, WorkerName,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// A request to claim jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The kinds to claim jobs of, at most 1000. Within a kind, jobs are claimed in due order. The kind that is
    /// tried first changes from claim to claim, so that all kinds get their turn.
    #[serde(deserialize_with = "parse::kinds")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub kinds: Vec<String>,
    /// The name of the worker, at most 128 bytes. It is shown with the jobs that the worker holds.
    /// Default: `nameless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub worker: Option<String>,
    /// The maximum number of jobs to return, up to 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub max: Option<usize>,
    /// The duration of the leases, from `10ms` to `1d`. Default: the `lease` setting of each kind.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease: Option<String>,
    /// Long polling: how long to wait for a job if none is ready, up to `1m`. Default: do not wait.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub wait: Option<String>,
    /// A random number of 1 to 16 hexadecimal digits that becomes part of every receipt. Default:
    /// the server generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-fA-F]{1,16}$"))]
    pub nonce: Option<String>,
}

/// The name of a worker that sends none.
const NAMELESS: &str = "nameless";

impl ClaimRequest {
    /// Converts this request to a claim, and returns how long to wait. `nonce` is used if the request
    /// has none.
    pub fn read(self, context: &ParseContext, nonce: u64) -> Result<(Claim, Duration), Problem> {
        let worker = self.worker.as_deref().unwrap_or(NAMELESS);
        let lease = context.lease("lease", self.lease.as_deref())?;
        let wait = context.optional_duration("wait", self.wait.as_deref())?.unwrap_or_default();
        let nonce = match self.nonce {
            None => nonce,
            Some(text) => hexadecimal(&text)?,
        };
        let max = self.max.unwrap_or(1);
        check("max", check_count("jobs in a claim", max))?;
        let claim = Claim {
            kinds: kinds(&self.kinds)?,
            max,
            lease,
            worker: parse("worker", worker, |text| WorkerName::new(text))?,
            nonce,
        };
        Ok((claim, wait))
    }
}

fn hexadecimal(text: &str) -> Result<u64, Problem> {
    // from_str_radix also accepts a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text);
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        let detail = format!("{text:?} is not a number of 1 to 16 hexadecimal digits");
        Problem::new(ProblemType::Invalid, detail).at("nonce")
    })
}

fn kinds(texts: &[String]) -> Result<Vec<Kind>, Problem> {
    check("kinds", check_count("kinds in a claim", texts.len()))?;
    let numbered = texts.iter().enumerate();
    numbered.map(|(n, text)| parse(&format!("kinds[{n}]"), text, |text| Kind::new(text))).collect()
}

fn texts(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

impl From<&Claim> for ClaimRequest {
    /// Returns a request that does not wait.
    fn from(claim: &Claim) -> Self {
        ClaimRequest {
            kinds: texts(&claim.kinds),
            worker: Some(claim.worker.as_str().to_owned()),
            max: Some(claim.max),
            lease: claim.lease.map(show_duration),
            wait: None,
            nonce: Some(format!("{:x}", claim.nonce)),
        }
    }
}

/// A request to wait until a claim may return a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// The kinds to wait for, at most 1000.
    #[serde(deserialize_with = "parse::kinds")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub kinds: Vec<String>,
    /// How long to wait at most, up to `1m`.
    #[serde(deserialize_with = "time_text")]
    pub wait: String,
}

impl WaitRequest {
    /// Waits for jobs of these kinds for at most this long.
    pub fn new(kinds: &[Kind], wait: Duration) -> Self {
        WaitRequest { kinds: texts(kinds), wait: show_duration(wait) }
    }

    /// Returns the kinds, and how long to wait.
    pub fn read(&self, context: &ParseContext) -> Result<(Vec<Kind>, Duration), Problem> {
        Ok((kinds(&self.kinds)?, context.duration("wait", &self.wait)?))
    }
}

/// The response to a claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimResponse {
    /// The claimed jobs, grouped by kind, and in the order of priority and due time within a kind.
    pub jobs: Vec<ClaimedView>,
    /// The kinds that failed, for example because their Redis node is down. The jobs of the other
    /// kinds are still claimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<KindProblem>,
}

/// A kind of a claim that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindProblem {
    /// The name of the kind.
    pub kind: String,
    /// The problem.
    pub error: Problem,
}

/// A claimed job. It belongs to the caller until its lease ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ClaimedJob))]
pub struct ClaimedView {
    /// The receipt, which proves the lease. It is opaque: send it back unchanged to settle the job.
    pub receipt: String,
    /// The kind of the job.
    pub kind: String,
    /// The id of the job.
    pub id: String,
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
    /// The content type of the body.
    pub content_type: String,
    /// The time at which the job was due, in RFC 3339 (UTC, milliseconds).
    pub due: String,
    /// The priority, 0 to 9; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: u8,
    /// The generation: the number of the put that created this version of the job.
    pub generation: u64,
    /// The fencing token, which increases with every lease of the kind. Pass it to the systems that
    /// you write to, and reject writes with a lower one there.
    #[serde(default)]
    pub fence: u64,
    /// The number of this attempt: 1, plus the number of failures since the attempts were last reset.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub attempt: u32,
    /// The time at which the lease expires unless it is extended, in RFC 3339.
    pub lease_ends_at: String,
    /// The time of the first put of this job, in RFC 3339.
    pub created_at: String,
}

impl From<ClaimedJob> for ClaimedView {
    fn from(job: ClaimedJob) -> Self {
        let ClaimedJob { receipt, version, attempt, lease_ends_at, created_at } = job;
        let Version { content: Content { body: own, head: _ }, due, priority, generation } =
            version;
        let BodyJson { body, body_text, body_base64, .. } = BodyJson::new(&own);
        ClaimedView {
            receipt: receipt.to_string(),
            kind: receipt.kind().as_str().to_owned(),
            id: receipt.id().as_str().to_owned(),
            body,
            body_text,
            body_base64,
            content_type: own.content_type().to_owned(),
            due: show_time(due),
            priority: priority.get(),
            generation: generation.0,
            fence: receipt.fence().0,
            attempt,
            lease_ends_at: show_time(lease_ends_at),
            created_at: show_time(created_at),
        }
    }
}

impl ClaimedView {
    /// Converts this response to a claimed job.
    pub fn read(self, context: &ParseContext) -> Result<ClaimedJob, Problem> {
        let receipt: Receipt = parse("receipt", &self.receipt, str::parse)?;
        let ClaimedView { body, body_text, body_base64, content_type, .. } = self;
        let content_type = Some(content_type);
        let body = read_body("", BodyJson { body, body_text, body_base64, content_type })?;
        let version = Version {
            content: body.into(),
            due: context.time("due", &self.due)?,
            priority: check("priority", Priority::new(self.priority))?,
            generation: Generation(self.generation),
        };
        Ok(ClaimedJob {
            receipt,
            version,
            attempt: self.attempt,
            lease_ends_at: context.time("lease_ends_at", &self.lease_ends_at)?,
            created_at: context.time("created_at", &self.created_at)?,
        })
    }
}

impl From<Claimed> for ClaimResponse {
    fn from(claimed: Claimed) -> Self {
        let problem = |(kind, error): (Kind, requeue_jobs::StoreError)| KindProblem {
            kind: kind.as_str().to_owned(),
            error: error.into(),
        };
        ClaimResponse {
            jobs: claimed.jobs.into_iter().map(ClaimedView::from).collect(),
            errors: claimed.errors.into_iter().map(problem).collect(),
        }
    }
}
