//! Settling leases: ack, retry, bury, requeue, release and extend.

use super::job::ResultJson;
use super::parse::{ParseContext, check, objects, optional_object, optional_time_text, parse};
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::rules::check_result;
use requeue_jobs::{Due, Receipt, Settle, Settled, Settlement};
use serde::{Deserialize, Serialize};

/// A batch of leases to settle.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleBatch {
    /// The leases, at most 1000.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub leases: Vec<SettleLease>,
}

/// A lease to settle.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleLease {
    /// The receipt of the lease, as the claim returned it.
    pub receipt: String,
    /// The operation. It is required unless the path contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<SettleVerb>,
    /// With `retry` and `bury`: why the attempt failed. The text is cut after 2 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With `ack`: the result, at most 64 KiB. It is kept with the done job if the kind keeps done jobs.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<ResultJson>,
    /// With `retry`: the delay until the job is due again; default: the backoff of the kind. With
    /// `requeue`, where it is required: the delay until the job runs again. At most 10 years.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub delay: Option<String>,
    /// With `extend`: the duration of the lease from now, from `10ms` to `1d`; default: the `lease`
    /// setting of the kind.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub lease: Option<String>,
}

/// How to settle a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "How to settle a lease: `ack`: the job is done; `retry`: the attempt failed, and the job is due again later, or dead if its attempts are used up; `bury`: the attempt failed, and the job is dead; `requeue`: the job is done and runs again after the delay; `release`: the job was not started and returns to the queue; `extend`: the lease is extended."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum SettleVerb {
    /// The job is done.
    Ack,
    /// The attempt failed. The job is due again later, or is dead if its attempts are used up.
    Retry,
    /// The attempt failed, and the job is dead, even if attempts are left.
    Bury,
    /// The job is done and runs again after the delay.
    Requeue,
    /// The job was not started. It returns to the queue with its due time, and no attempt is counted.
    Release,
    /// The job takes longer: the lease is extended.
    Extend,
}

impl SettleVerb {
    /// Returns the name of this verb on the wire.
    fn name(self) -> &'static str {
        match self {
            SettleVerb::Ack => "ack",
            SettleVerb::Retry => "retry",
            SettleVerb::Bury => "bury",
            SettleVerb::Requeue => "requeue",
            SettleVerb::Release => "release",
            SettleVerb::Extend => "extend",
        }
    }
}

impl SettleLease {
    /// Returns the length of the result as it is written in the request, in bytes.
    pub fn result_len(&self) -> usize {
        self.result.as_ref().map_or(0, ResultJson::len)
    }

    /// Converts this request to a settlement. `verb` comes from the URL path, if it contains one.
    /// `path` is the prefix of field names in errors.
    pub fn read(
        self,
        path: &str,
        verb: Option<SettleVerb>,
        context: &ParseContext,
    ) -> Result<Settle, Problem> {
        self.read_fields(verb, context).map_err(|problem| problem.within(path))
    }

    fn read_fields(
        self,
        verb: Option<SettleVerb>,
        context: &ParseContext,
    ) -> Result<Settle, Problem> {
        let wrong =
            |field: &str, detail: String| Problem::new(ProblemType::Invalid, detail).at(field);
        let receipt = parse("receipt", &self.receipt, str::parse::<Receipt>)?;
        let verb = match (verb, self.how) {
            (Some(verb), None) | (None, Some(verb)) => verb,
            (Some(_), Some(_)) => {
                return Err(wrong("how", "remove this field: the path contains it".to_owned()));
            }
            (None, None) => return Err(wrong("how", "this field is missing".to_owned())),
        };
        use SettleVerb::{Ack, Bury, Extend, Release, Requeue, Retry};
        for (field, there, verbs) in [
            ("result", self.result.is_some(), &[Ack][..]),
            ("error", self.error.is_some(), &[Retry, Bury]),
            ("delay", self.delay.is_some(), &[Retry, Requeue]),
            ("lease", self.lease.is_some(), &[Extend]),
        ] {
            if there && !verbs.contains(&verb) {
                return Err(wrong(field, format!("not allowed with {}", verb.name())));
            }
        }
        let delay = context.optional_duration("delay", self.delay.as_deref())?;
        if let Some(delay) = delay {
            context.due("delay", Due::After(delay))?;
        }
        let error = self.error.unwrap_or_default();
        let action = match verb {
            Ack => match self.result {
                None => Settlement::Ack,
                Some(result) => {
                    let result = result.read_new("result.")?;
                    check("result", check_result(&result))?;
                    Settlement::AckWith(result)
                }
            },
            Retry => Settlement::Retry { delay, error },
            Bury => Settlement::Bury { error },
            Requeue => match delay {
                Some(delay) => Settlement::RequeueAfter(delay),
                None => {
                    return Err(wrong("delay", "this field is required with requeue".to_owned()));
                }
            },
            Release => Settlement::Release,
            Extend => Settlement::Extend(context.lease("lease", self.lease.as_deref())?),
        };
        Ok(Settle { receipt, action })
    }
}

impl From<Settle> for SettleLease {
    fn from(settle: Settle) -> Self {
        let receipt = settle.receipt.to_string();
        let lease = |how| {
            let (how, error, delay, lease, result) = (Some(how), None, None, None, None);
            SettleLease { receipt, how, result, error, delay, lease }
        };
        match settle.action {
            Settlement::Ack => lease(SettleVerb::Ack),
            Settlement::AckWith(result) => {
                SettleLease { result: Some(ResultJson::from(&result)), ..lease(SettleVerb::Ack) }
            }
            Settlement::Retry { delay, error } => SettleLease {
                error: Some(error),
                delay: delay.map(show_duration),
                ..lease(SettleVerb::Retry)
            },
            Settlement::Bury { error } => {
                SettleLease { error: Some(error), ..lease(SettleVerb::Bury) }
            }
            Settlement::RequeueAfter(delay) => {
                SettleLease { delay: Some(show_duration(delay)), ..lease(SettleVerb::Requeue) }
            }
            Settlement::Release => lease(SettleVerb::Release),
            Settlement::Extend(length) => {
                SettleLease { lease: length.map(show_duration), ..lease(SettleVerb::Extend) }
            }
        }
    }
}

/// The result of settling a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleDone {
    /// What the settlement did.
    pub result: SettleResult,
    /// With `retry`, the time at which the job is due again. With `extended`, the time at which the
    /// lease expires. In RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What a settlement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What a settlement did: `done`: this job is done; `retry`: the job is due again at `at`; `dead`: the job is dead; `released`: the job returned to the queue; `extended`: the lease expires at `at`; `cancelled`: the job was cancelled while it was leased, stop working on it; `other`: a result that this version does not know."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum SettleResult {
    /// The lease has ended, and this job is done. A successor may be pending.
    Done,
    /// The attempt failed, and the job is due again at `at`.
    Retry,
    /// The attempt failed, and the job is dead.
    Dead,
    /// The job returned to the queue.
    Released,
    /// The lease was extended until `at`.
    Extended,
    /// The job was cancelled while it was leased, and is removed. Stop working on it.
    Cancelled,
    /// A result that this version does not know.
    Other,
}

impl From<Settled> for SettleDone {
    fn from(settled: Settled) -> Self {
        let (result, at) = match settled {
            Settled::Done => (SettleResult::Done, None),
            Settled::RetryAt(at) => (SettleResult::Retry, Some(at)),
            Settled::Dead => (SettleResult::Dead, None),
            Settled::Released => (SettleResult::Released, None),
            Settled::Extended(at) => (SettleResult::Extended, Some(at)),
            Settled::Cancelled => (SettleResult::Cancelled, None),
            _ => (SettleResult::Other, None),
        };
        SettleDone { result, at: at.map(show_time) }
    }
}

impl SettleDone {
    /// Converts this response to the result of a settlement.
    pub fn read(self, context: &ParseContext) -> Result<Settled, Problem> {
        let at = || match &self.at {
            Some(at) => context.time("at", at),
            None => Err(Problem::new(ProblemType::Bug, "the response lacks this field").at("at")),
        };
        Ok(match self.result {
            SettleResult::Done => Settled::Done,
            SettleResult::Retry => Settled::RetryAt(at()?),
            SettleResult::Dead => Settled::Dead,
            SettleResult::Released => Settled::Released,
            SettleResult::Extended => Settled::Extended(at()?),
            SettleResult::Cancelled => Settled::Cancelled,
            SettleResult::Other => {
                return Err(Problem::new(
                    ProblemType::Bug,
                    "the result is unknown to this version",
                ));
            }
        })
    }
}
