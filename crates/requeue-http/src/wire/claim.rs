//! Claiming jobs.

use super::body::{BodyText, any_json};
use super::reading::{Reading, allowed, named};
use crate::problem::{Problem, Sort};
use crate::times::{show_duration, show_time};
use requeue_jobs::rules::check_count;
use requeue_jobs::{Claim, Claimed, ClaimedJob, Generation, Kind, Receipt, WorkerName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// A wish for jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Of these kinds, each in its own order. Which of them is first changes from claim to claim.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub kinds: Vec<String>,
    /// Who claims: people see it where they ask who holds a job. At most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub worker: Option<String>,
    /// At most so many, and at most 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub max: Option<usize>,
    /// For how long, from `10ms` to `1d`. Default: as the settings of each kind say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// How long to wait where there is nothing to claim, at most `1m`. Default: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Made up by the caller at random: 1 to 16 hexadecimal digits. It becomes part of every
    /// receipt. Default: the server makes one up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-fA-F]{1,16}$"))]
    pub nonce: Option<String>,
}

/// Who claims without a name.
const NAMELESS: &str = "nameless";

impl ClaimRequest {
    /// The claim that this means, and how long it is to wait. Without a nonce, `nonce` is taken.
    pub fn read(self, reading: &Reading, nonce: u64) -> Result<(Claim, Duration), Problem> {
        let worker = self.worker.as_deref().unwrap_or(NAMELESS);
        let lease = reading.lease("lease", self.lease.as_deref())?;
        let wait = reading.maybe("wait", self.wait.as_deref())?.unwrap_or_default();
        let nonce = match self.nonce {
            None => nonce,
            Some(text) => hexadecimal(&text)?,
        };
        let max = self.max.unwrap_or(1);
        allowed("max", check_count("jobs in a claim", max))?;
        let claim = Claim {
            kinds: kinds(&self.kinds)?,
            max,
            lease,
            worker: named("worker", worker, |text| WorkerName::new(text))?,
            nonce,
        };
        Ok((claim, wait))
    }
}

fn hexadecimal(text: &str) -> Result<u64, Problem> {
    // A sign is no digit, though it would be read.
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text);
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        let detail = format!("{text:?} is no hexadecimal number of 64 bits");
        Problem::new(Sort::Invalid, detail).at("nonce")
    })
}

fn kinds(texts: &[String]) -> Result<Vec<Kind>, Problem> {
    allowed("kinds", check_count("kinds in a claim", texts.len()))?;
    let numbered = texts.iter().enumerate();
    numbered.map(|(n, text)| named(&format!("kinds[{n}]"), text, |text| Kind::new(text))).collect()
}

fn texts(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

impl From<&Claim> for ClaimRequest {
    /// One that does not wait.
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

/// A wish to know when there is something to claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// Of these kinds.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub kinds: Vec<String>,
    /// How long at most, and at most `1m`.
    pub wait: String,
}

impl WaitRequest {
    /// For these kinds, so long.
    pub fn new(kinds: &[Kind], wait: Duration) -> Self {
        WaitRequest { kinds: texts(kinds), wait: show_duration(wait) }
    }

    /// The kinds, and how long.
    pub fn read(&self, reading: &Reading) -> Result<(Vec<Kind>, Duration), Problem> {
        Ok((kinds(&self.kinds)?, reading.duration("wait", &self.wait)?))
    }
}

/// What a claim got.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimAnswer {
    /// The jobs, by kind, each kind in due order.
    pub jobs: Vec<ClaimedView>,
    /// Kinds that could not be asked. The jobs of others are claimed all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<KindProblem>,
}

/// A kind that could not be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KindProblem {
    /// Which.
    pub kind: String,
    /// Why.
    pub error: Problem,
}

/// A job that is yours until its lease ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimedView {
    /// Proof of the lease. Opaque: send it back as it is.
    pub receipt: String,
    /// Its kind.
    pub kind: String,
    /// Its id.
    pub id: String,
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
    /// When it was due.
    pub due: String,
    /// Which put it is of.
    pub generation: u64,
    /// Which lease it is: it rises with every lease of the kind. Pass it on to what you write to,
    /// and refuse there what is older.
    #[serde(default)]
    pub fence: u64,
    /// 1 for the first, one more for every failure since that was last reset.
    #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
    pub attempt: u32,
    /// When the lease ends, unless it is extended.
    pub lease_ends_at: String,
    /// When it was first put.
    pub created_at: String,
}

impl From<ClaimedJob> for ClaimedView {
    fn from(job: ClaimedJob) -> Self {
        let BodyText { body, body_text, body_base64, .. } = (&job.body).into();
        ClaimedView {
            receipt: job.receipt.to_string(),
            kind: job.kind().as_str().to_owned(),
            id: job.id().as_str().to_owned(),
            body,
            body_text,
            body_base64,
            content_type: job.body.content_type().to_owned(),
            due: show_time(job.due),
            generation: job.generation.0,
            fence: job.receipt.fence().0,
            attempt: job.attempt,
            lease_ends_at: show_time(job.lease_ends_at),
            created_at: show_time(job.created_at),
        }
    }
}

impl ClaimedView {
    /// The job that this tells of.
    pub fn read(self, reading: &Reading) -> Result<ClaimedJob, Problem> {
        let receipt: Receipt = named("receipt", &self.receipt, str::parse)?;
        let ClaimedView { body, body_text, body_base64, content_type, .. } = self;
        let content_type = Some(content_type);
        let body = BodyText { body, body_text, body_base64, content_type }.read("")?;
        let mut job = ClaimedJob::new(receipt, body, Generation(self.generation));
        job.due = reading.time("due", &self.due)?;
        job.attempt = self.attempt;
        job.lease_ends_at = reading.time("lease_ends_at", &self.lease_ends_at)?;
        job.created_at = reading.time("created_at", &self.created_at)?;
        Ok(job)
    }
}

impl From<Claimed> for ClaimAnswer {
    fn from(claimed: Claimed) -> Self {
        let problem = |(kind, error): (Kind, requeue_jobs::StoreError)| KindProblem {
            kind: kind.as_str().to_owned(),
            error: error.into(),
        };
        ClaimAnswer {
            jobs: claimed.jobs.into_iter().map(ClaimedView::from).collect(),
            errors: claimed.errors.into_iter().map(problem).collect(),
        }
    }
}
