//! Settling leases: ack, retry, bury, requeue, release and extend.

use super::content::{read_new_body, with_content};
use super::parse::{ParseContext, check_lease_in, due_at, invalid, objects, optional_object};
use super::text::{DurationText, TimeText, duration};
use super::word::{Word, words};
use crate::problem::{AtField, Problem, ProblemType};
use requeue_jobs::json::BodyJson;
use requeue_jobs::rules::check_result;
use requeue_jobs::{Due, Receipt, Settle, Settled, Settlement};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

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
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleLease {
    /// The receipt of the lease, as the claim returned it.
    pub receipt: String,
    /// The operation. It is required unless the path contains it.
    pub how: Option<SettleVerb>,
    /// With `retry` and `bury`: why the attempt failed. The text is cut after 2 KiB.
    pub error: Option<String>,
    /// With `ack`: the result, at most 64 KiB. It is kept with the done job if the kind keeps done jobs.
    #[serde(default, deserialize_with = "optional_object")]
    pub result: Option<AckResult>,
    /// With `retry`: the delay until the job is due again; default: the backoff of the kind. With
    /// `requeue`, where it is required: the delay until the job runs again. At most 10 years.
    pub delay: Option<DurationText>,
    /// With `extend`: the duration of the lease from now, from `10ms` to `1d`; default: the `lease`
    /// setting of the kind.
    pub lease: Option<DurationText>,
}

with_content! {
    /// The result of an ack, in one of three forms, as the body of a job.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(default, deny_unknown_fields)]
    pub struct AckResult {
        ..body: Option<String>,
    }
}

words! {
    /// How to settle a lease.
    pub enum SettleVerb as SettleVerb {
        /// The job is done.
        Ack = "ack",
        /// The attempt failed. The job is due again later, or is dead if its attempts are used up.
        Retry = "retry",
        /// The attempt failed, and the job is dead, even if attempts are left.
        Bury = "bury",
        /// The job is done and runs again after the delay.
        Requeue = "requeue",
        /// The job was not started. It returns to the queue with its due time, and no attempt is counted.
        Release = "release",
        /// The job takes longer: the lease is extended.
        Extend = "extend",
    }
}

impl SettleLease {
    /// Returns the length of the result as it is written in the request, in bytes.
    pub fn result_len(&self) -> usize {
        self.result.as_ref().map_or(0, |result| result.body_fields().len())
    }

    /// Converts this request to a settlement. `verb` comes from the URL path, if it contains one. An error
    /// names its field.
    pub fn read(self, verb: Option<SettleVerb>, context: &ParseContext) -> Result<Settle, Problem> {
        let SettleLease { receipt, how, error, result, delay, lease } = self;
        let receipt = receipt.parse::<Receipt>().at("receipt")?;
        let verb = match (verb, how) {
            (Some(verb), None) | (None, Some(verb)) => verb,
            (Some(_), Some(_)) => {
                return Err(invalid("how", "remove this field: the path contains it"));
            }
            (None, None) => return Err(invalid("how", "this field is missing")),
        };
        use SettleVerb::{Ack, Bury, Extend, Release, Requeue, Retry};
        for (field, there, verbs) in [
            ("result", result.is_some(), &[Ack][..]),
            ("error", error.is_some(), &[Retry, Bury]),
            ("delay", delay.is_some(), &[Retry, Requeue]),
            ("lease", lease.is_some(), &[Extend]),
        ] {
            if there && !verbs.contains(&verb) {
                return Err(invalid(field, format!("not allowed with {}", verb.name())));
            }
        }
        let delay = duration("delay", &delay)?;
        if let Some(delay) = delay {
            due_at("delay", Due::After(delay), context)?;
        }
        let error = error.unwrap_or_default();
        let action = match verb {
            Ack => match result {
                None => Settlement::Ack,
                Some(mut result) => {
                    let result = read_new_body(result.take_body()).within("result.")?;
                    check_result(&result).at("result")?;
                    Settlement::AckWith(result)
                }
            },
            Retry => Settlement::Retry { delay, error },
            Bury => Settlement::Bury { error },
            Requeue => match delay {
                Some(delay) => Settlement::RequeueAfter(delay),
                None => return Err(invalid("delay", "this field is required with requeue")),
            },
            Release => Settlement::Release,
            Extend => Settlement::Extend(check_lease_in("lease", &lease)?),
        };
        Ok(Settle { receipt, action })
    }
}

impl From<Settle> for SettleLease {
    fn from(settle: Settle) -> Self {
        let Settle { receipt, action } = settle;
        let mut lease = SettleLease { receipt: receipt.to_string(), ..SettleLease::default() };
        lease.how = Some(match action {
            Settlement::Ack => SettleVerb::Ack,
            Settlement::AckWith(result) => {
                lease.result = Some(BodyJson::new(&result).into());
                SettleVerb::Ack
            }
            Settlement::Retry { delay, error } => {
                (lease.delay, lease.error) = (delay.map(DurationText::from), Some(error));
                SettleVerb::Retry
            }
            Settlement::Bury { error } => {
                lease.error = Some(error);
                SettleVerb::Bury
            }
            Settlement::RequeueAfter(delay) => {
                lease.delay = Some(delay.into());
                SettleVerb::Requeue
            }
            Settlement::Release => SettleVerb::Release,
            Settlement::Extend(length) => {
                lease.lease = length.map(DurationText::from);
                SettleVerb::Extend
            }
        });
        lease
    }
}

/// The result of settling a lease.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleDone {
    /// What the settlement did.
    pub result: SettleResult,
    /// With `retry`, the time at which the job is due again. With `extended`, the time at which the
    /// lease expires. In RFC 3339.
    pub at: Option<TimeText>,
}

words! {
    /// What a settlement did.
    pub enum SettleResult as SettleResult {
        /// The lease has ended, and this job is done. A successor may be pending.
        Done = "done",
        /// The attempt failed, and the job is due again at `at`.
        Retry = "retry",
        /// The attempt failed, and the job is dead.
        Dead = "dead",
        /// The job returned to the queue.
        Released = "released",
        /// The lease was extended until `at`.
        Extended = "extended",
        /// The job was cancelled while it was leased, and is removed. Stop working on it.
        Cancelled = "cancelled",
        /// A result that this version does not know.
        Other = "other",
    }
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
        SettleDone { result, at: at.map(TimeText::from) }
    }
}

impl SettleDone {
    /// Converts this response to the result of a settlement.
    pub fn read(self, context: &ParseContext) -> Result<Settled, Problem> {
        let bug = |detail| Problem::new(ProblemType::Bug, detail);
        let lacks = || bug("the response lacks this field").at("at");
        let at = || self.at.as_ref().ok_or_else(lacks)?.read("at", context);
        Ok(match self.result {
            SettleResult::Done => Settled::Done,
            SettleResult::Retry => Settled::RetryAt(at()?),
            SettleResult::Dead => Settled::Dead,
            SettleResult::Released => Settled::Released,
            SettleResult::Extended => Settled::Extended(at()?),
            SettleResult::Cancelled => Settled::Cancelled,
            SettleResult::Other => return Err(bug("the result is unknown to this version")),
        })
    }
}
