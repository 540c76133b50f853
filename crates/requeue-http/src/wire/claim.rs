//! Claiming jobs.

use super::content::with_content;
use super::job::is_zero;
use super::parse::{self, ParseContext, check_lease_in, invalid};
use super::text::{DurationText, TimeText, duration};
use crate::problem::{AtField, Problem};
use requeue_jobs::rules::check_count;
use requeue_jobs::{
    Claim, Claimed, ClaimedJob, Generation, Kind, Priority, Receipt, Version, WorkerName,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

/// A request to claim jobs.
#[skip_serializing_none]
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
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub worker: Option<String>,
    /// The maximum number of jobs to return, up to 1000. Default: 1.
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub max: Option<usize>,
    /// The duration of the leases, from `10ms` to `1d`. Default: the `lease` setting of each kind.
    pub lease: Option<DurationText>,
    /// Long polling: how long to wait for a job if none is ready, up to `1m`. Default: do not wait.
    pub wait: Option<DurationText>,
    /// A random number of 1 to 16 hexadecimal digits that becomes part of every receipt. Default:
    /// the server generates one.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-fA-F]{1,16}$"))]
    pub nonce: Option<String>,
    /// Whether to return the envelopes of the jobs. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub envelope: bool,
}

/// The name of a worker that sends none.
const NAMELESS: &str = "nameless";

impl ClaimRequest {
    /// Converts this request to a claim, and returns how long to wait. `nonce` is used if the request
    /// has none.
    pub fn read(self, new_nonce: u64) -> Result<(Claim, Duration), Problem> {
        let ClaimRequest { kinds: texts, worker, max, lease, wait, nonce, envelope: _ } = self;
        let max = max.unwrap_or(1);
        check_count("jobs in a claim", max).at("max")?;
        let claim = Claim {
            kinds: kinds(texts)?,
            max,
            lease: check_lease_in("lease", &lease)?,
            worker: WorkerName::new(worker.as_deref().unwrap_or(NAMELESS)).at("worker")?,
            nonce: nonce.map_or(Ok(new_nonce), |text| hexadecimal(&text))?,
        };
        Ok((claim, duration("wait", &wait)?.unwrap_or_default()))
    }
}

fn hexadecimal(text: &str) -> Result<u64, Problem> {
    // from_str_radix also accepts a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text);
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        invalid("nonce", format!("{text:?} is not a number of 1 to 16 hexadecimal digits"))
    })
}

fn kinds(texts: Vec<String>) -> Result<Vec<Kind>, Problem> {
    check_count("kinds in a claim", texts.len()).at("kinds")?;
    let kind = |(n, text): (usize, String)| {
        Kind::new(text).map_err(|invalid| Problem::from(invalid).at(format!("kinds[{n}]")))
    };
    texts.into_iter().enumerate().map(kind).collect()
}

fn texts(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

impl From<&Claim> for ClaimRequest {
    /// Returns a request that does not wait, and returns the whole jobs.
    fn from(claim: &Claim) -> Self {
        let Claim { kinds, max, lease, worker, nonce } = claim;
        ClaimRequest {
            kinds: texts(kinds),
            worker: Some(worker.as_str().to_owned()),
            max: Some(*max),
            lease: lease.map(DurationText::from),
            wait: None,
            nonce: Some(format!("{nonce:x}")),
            envelope: true,
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
    pub wait: DurationText,
}

impl WaitRequest {
    /// Waits for jobs of these kinds for at most this long.
    pub fn new(kinds: &[Kind], wait: Duration) -> Self {
        WaitRequest { kinds: texts(kinds), wait: wait.into() }
    }

    /// Returns the kinds, and how long to wait.
    pub fn read(self) -> Result<(Vec<Kind>, Duration), Problem> {
        Ok((kinds(self.kinds)?, self.wait.read("wait")?))
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

with_content! {
    /// A claimed job. It belongs to the caller until its lease ends.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ClaimedJob))]
    pub struct ClaimedView {
        /// The receipt, which proves the lease. It is opaque: send it back unchanged to settle the job.
        pub receipt: String,
        /// The kind of the job.
        pub kind: String,
        /// The id of the job.
        pub id: String,
        ..version,
        /// The fencing token, which increases with every lease of the kind. Pass it to the systems that
        /// you write to, and reject writes with a lower one there.
        #[serde(default)]
        pub fence: u64,
        /// The number of this attempt: 1, plus the number of failures since the attempts were last reset.
        #[cfg_attr(feature = "openapi", schema(format = "uint32"))]
        pub attempt: u32,
        /// The time at which the lease expires unless it is extended, in RFC 3339.
        pub lease_ends_at: TimeText,
        /// The time of the first put of this job, in RFC 3339.
        pub created_at: TimeText,
    }
}

impl From<&ClaimedJob> for ClaimedView {
    fn from(job: &ClaimedJob) -> Self {
        let ClaimedJob { receipt, version, attempt, lease_ends_at, created_at } = job;
        ClaimedView {
            receipt: receipt.to_string(),
            kind: receipt.kind().as_str().to_owned(),
            id: receipt.id().as_str().to_owned(),
            fence: receipt.fence().0,
            attempt: *attempt,
            lease_ends_at: (*lease_ends_at).into(),
            created_at: (*created_at).into(),
            ..version.into()
        }
    }
}

impl ClaimedView {
    /// Converts this response to a claimed job. The receipt contains kind, id and fence.
    pub fn read(mut self, context: &ParseContext) -> Result<ClaimedJob, Problem> {
        Ok(ClaimedJob {
            receipt: self.receipt.parse::<Receipt>().at("receipt")?,
            version: self.take_version(context)?,
            attempt: self.attempt,
            lease_ends_at: self.lease_ends_at.read("lease_ends_at", context)?,
            created_at: self.created_at.read("created_at", context)?,
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
            jobs: claimed.jobs.iter().map(ClaimedView::from).collect(),
            errors: claimed.errors.into_iter().map(problem).collect(),
        }
    }
}
