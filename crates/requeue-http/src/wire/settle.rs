//! Settling leases.

use super::reading::{Reading, named, objects};
use crate::problem::{Problem, Sort};
use crate::times::{show_duration, show_time};
use requeue_jobs::{Due, Receipt, Settle, Settled, Settlement};
use serde::{Deserialize, Serialize};

/// What is to become of leases.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleBatch {
    /// At most 1000.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub leases: Vec<SettleLease>,
}

/// What is to become of a lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleLease {
    /// Which lease: as the claim answered it.
    pub receipt: String,
    /// What. Where the path does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<SettleVerb>,
    /// With `retry` and `bury`: why. What is longer than 2 KiB is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With `retry`: when it may come back; default: as the kind's backoff says. With `requeue`:
    /// when it is to be done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// With `extend`: how long the lease is from now; default: as the kind's settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// What is to become of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SettleVerb {
    /// It is done.
    Ack,
    /// It failed: it comes back, or is dead.
    Retry,
    /// It failed, and is dead, whatever attempts are left.
    Bury,
    /// It is done, and is to be done again after the delay.
    Requeue,
    /// It was not begun: it goes back to its place.
    Release,
    /// It takes longer.
    Extend,
}

impl SettleLease {
    /// What this means. The verb is that of the path, where it has one.
    pub fn read(
        self,
        path: &str,
        verb: Option<SettleVerb>,
        reading: &Reading,
    ) -> Result<Settle, Problem> {
        let at = |field: &str| format!("{path}{field}");
        let wrong = |field: &str, detail: String| Problem::new(Sort::Invalid, detail).at(at(field));
        let receipt = named(&at("receipt"), &self.receipt, str::parse::<Receipt>)?;
        let verb = match (verb, self.how) {
            (Some(verb), None) | (None, Some(verb)) => verb,
            (Some(_), Some(_)) => return Err(wrong("how", "the path says it already".to_owned())),
            (None, None) => return Err(wrong("how", "this is missing".to_owned())),
        };
        use SettleVerb::{Ack, Bury, Extend, Release, Requeue, Retry};
        for (field, there, verbs) in [
            ("error", self.error.is_some(), &[Retry, Bury][..]),
            ("delay", self.delay.is_some(), &[Retry, Requeue]),
            ("lease", self.lease.is_some(), &[Extend]),
        ] {
            if there && !verbs.contains(&verb) {
                return Err(wrong(field, format!("{verb:?} has no {field}").to_lowercase()));
            }
        }
        let delay = reading.maybe(&at("delay"), self.delay.as_deref())?;
        if let Some(delay) = delay {
            reading.due(&at("delay"), Due::After(delay))?;
        }
        let error = self.error.unwrap_or_default();
        let action = match verb {
            Ack => Settlement::Ack,
            Retry => Settlement::Retry { delay, error },
            Bury => Settlement::Bury { error },
            Requeue => match delay {
                Some(delay) => Settlement::RequeueAfter(delay),
                None => return Err(wrong("delay", "requeue needs it".to_owned())),
            },
            Release => Settlement::Release,
            Extend => Settlement::Extend(reading.lease(&at("lease"), self.lease.as_deref())?),
        };
        Ok(Settle { receipt, action })
    }
}

impl From<Settle> for SettleLease {
    fn from(settle: Settle) -> Self {
        let receipt = settle.receipt.to_string();
        let lease =
            |how| SettleLease { receipt, how: Some(how), error: None, delay: None, lease: None };
        match settle.action {
            Settlement::Ack => lease(SettleVerb::Ack),
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

/// What became of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleDone {
    /// What happened.
    pub result: SettleResult,
    /// When it is due again, or when the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SettleResult {
    /// It is over. There may be a successor.
    Done,
    /// It failed, and is due again.
    Retry,
    /// It failed for the last time.
    Dead,
    /// It went back to its place.
    Released,
    /// It goes on.
    Extended,
    /// The job was cancelled meanwhile: stop working on it.
    Cancelled,
    /// Something that this version does not know.
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
    /// What this tells.
    pub fn read(self, reading: &Reading) -> Result<Settled, Problem> {
        let at = || match &self.at {
            Some(at) => reading.time("at", at),
            None => Err(Problem::new(Sort::Bug, "this is missing").at("at")),
        };
        Ok(match self.result {
            SettleResult::Done => Settled::Done,
            SettleResult::Retry => Settled::RetryAt(at()?),
            SettleResult::Dead => Settled::Dead,
            SettleResult::Released => Settled::Released,
            SettleResult::Extended => Settled::Extended(at()?),
            SettleResult::Cancelled => Settled::Cancelled,
            SettleResult::Other => return Err(Problem::new(Sort::Bug, "an unknown result")),
        })
    }
}
