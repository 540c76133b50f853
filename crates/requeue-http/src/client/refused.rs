//! What was refused, as the errors of a store tell it.

use super::calls::CallError;
use crate::problem::{Problem, Sort};
use crate::times::parse_duration;
use hyper::StatusCode;
use requeue_jobs::{
    Change, ChangeError, Condition, Generation, Invalid, Put, PutError, Receipt, SettleError,
    StoreError,
};
use serde_json::Value;

/// What it means for a call that changes something.
pub(super) fn of_a_change(error: CallError) -> StoreError {
    match error {
        CallError::Problem(problem) => of_a_problem(*problem),
        CallError::Unavailable { reason } => StoreError::Unavailable { reason },
        CallError::Unknown { reason } => StoreError::Unknown { reason },
        CallError::File(error) => StoreError::Unknown { reason: error.to_string() },
    }
}

/// What it means for a call that changes nothing.
pub(super) fn of_a_look(error: CallError) -> StoreError {
    match of_a_change(error) {
        StoreError::Unknown { reason } => StoreError::Unavailable { reason },
        other => other,
    }
}

/// What a problem means, of a call or of an entry of a batch.
pub(super) fn of_a_problem(problem: Problem) -> StoreError {
    let reason = |prefix: &str| match problem.detail.strip_prefix(prefix) {
        Some(rest) => rest.to_owned(),
        None => problem.detail.clone(),
    };
    match problem.sort() {
        Sort::Busy | Sort::Stopping | Sort::Unavailable | Sort::TooSlow => {
            StoreError::Unavailable { reason: reason("the store is unavailable: ") }
        }
        // Nothing was done, and nothing is wrong with the call.
        Sort::Unauthorized | Sort::Forbidden => {
            StoreError::Unavailable { reason: format!("the token was refused: {}", problem.detail) }
        }
        Sort::Malformed
        | Sort::Invalid
        | Sort::TooLarge
        | Sort::NotJson
        | Sort::NoSuchPath
        | Sort::WrongMethod
        | Sort::NotAllowed => invalid(problem).into(),
        _ => StoreError::Unknown { reason: reason("the outcome is unknown: ") },
    }
}

/// Why a put did not happen.
pub(super) fn of_a_put(problem: Problem, put: Asked) -> PutError {
    let Asked { kind, id, condition } = put;
    let generation = problem.generation.map(Generation);
    match (problem.sort(), generation, condition) {
        (Sort::Exists, Some(generation), _) => PutError::Exists { kind, id, generation },
        (Sort::OtherGeneration, found, Some(Condition::IfGeneration(expected))) => {
            PutError::Generation { kind, id, expected, found }
        }
        _ => of_a_problem(problem).into(),
    }
}

/// What the answer to a put does not say again.
pub(super) struct Asked {
    kind: requeue_jobs::Kind,
    id: requeue_jobs::JobId,
    condition: Option<Condition>,
}

impl From<&Put> for Asked {
    fn from(put: &Put) -> Self {
        Asked { kind: put.kind.clone(), id: put.id.clone(), condition: put.condition }
    }
}

/// Why a lease was not settled.
pub(super) fn of_a_settlement(problem: Problem, receipt: Receipt) -> SettleError {
    match problem.sort() {
        Sort::LeaseLost => SettleError::LeaseLost { receipt },
        _ => of_a_problem(problem).into(),
    }
}

/// Why a job was not changed.
pub(super) fn of_a_changed_job(problem: Problem, change: Change) -> ChangeError {
    let Change { kind, id, .. } = change;
    match problem.sort() {
        Sort::Absent => ChangeError::Absent { kind, id },
        Sort::Leased => ChangeError::Leased { kind, id },
        Sort::NotDead => ChangeError::NotDead { kind, id },
        _ => of_a_problem(problem).into(),
    }
}

/// Whether it says that there is no such thing, and not merely no such page.
pub(super) fn is_absent(error: &CallError) -> bool {
    matches!(error, CallError::Problem(problem) if problem.sort() == Sort::Absent)
}

/// Where the types of problems are explained.
const TYPES: &str = "/v1/problems/";

/// Characters of an answer that cannot be read, of those that are told.
const TOLD: usize = 200;

/// The problem that an answer tells. Not every answer is of a server of ours: what a proxy says is
/// told by its status.
pub(super) fn problem_of(url: &str, status: StatusCode, bytes: &[u8]) -> Problem {
    if let Ok(problem) = serde_json::from_slice::<Problem>(bytes)
        && problem.kind.contains(TYPES)
    {
        return problem;
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TOLD * 4)]);
    let words: Vec<_> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(TOLD).collect();
    let (sort, hint) = match status.as_u16() {
        300..=399 => (Sort::Unavailable, " (redirects are not followed)"),
        401 => (Sort::Unauthorized, ""),
        403 => (Sort::Forbidden, ""),
        404 => (Sort::Unavailable, " (is this the address of a requeue server?)"),
        413 => (Sort::TooLarge, " (a proxy takes less than the server)"),
        400..=499 => (Sort::Unavailable, ""),
        // Also a 502 and a 503: a proxy says so, too, where it had sent the request.
        _ => (Sort::Unknown, ""),
    };
    Problem::new(sort, format!("{url} answered {status}{hint}: {text}"))
}

/// What is limited, in the words of the stores: they are static, and so must be what is made of
/// an answer.
const LENGTHS: [&str; 8] = [
    "the kind",
    "the id",
    "the worker's name",
    "the body",
    "the content type",
    "the bodies of a batch",
    "the schedule",
    "the time zone",
];
const COUNTS: [&str; 7] = [
    "entries in a batch",
    "kinds in a claim",
    "jobs in a claim",
    "kinds",
    "spans",
    "schedules of a kind",
    "failed attempts of a job",
];
const NUMBERS: [&str; 3] = ["the kind's generation", "the kind's fence", "the generation"];
const TIMES: [&str; 13] = [
    "the lease",
    "the delay",
    "the backoff's first delay",
    "the backoff's longest delay",
    "the due time",
    "the time of creation",
    "the time of the last change",
    "the time of death",
    "the start of the lease",
    "the end of the lease",
    "the start of an attempt",
    "its end",
    "the successor's due time",
];

/// What is wrong with a call: as a store here would say it, or else in the words of the answer.
fn invalid(problem: Problem) -> Invalid {
    rebuilt(&problem).unwrap_or(Invalid::Refused { reason: problem.detail })
}

fn rebuilt(problem: &Problem) -> Option<Invalid> {
    let Problem { what, value, min, limit, .. } = problem;
    let known =
        |texts: &[&'static str]| texts.iter().copied().find(|text| Some(*text) == what.as_deref());
    let number = |value: &Option<Value>| value.as_ref()?.as_u64();
    let size = |value: &Option<Value>| usize::try_from(number(value)?).ok();
    let time = |value: &Option<Value>| parse_duration(value.as_ref()?.as_str()?).ok();
    if let Some(field) = known(&LENGTHS) {
        Some(Invalid::TooLong { field, len: size(value)?, limit: size(limit)? })
    } else if let Some(what) = known(&COUNTS) {
        Some(Invalid::TooMany { what, count: size(value)?, limit: size(limit)? })
    } else if let Some(field) = known(&NUMBERS) {
        Some(Invalid::TooHigh { field, value: number(value)?, limit: number(limit)? })
    } else {
        let field = known(&TIMES)?;
        Some(Invalid::OutOfRange { field, value: time(value)?, min: time(min)?, max: time(limit)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::limits::MAX_DELAY;
    use std::time::Duration;

    #[test]
    fn what_a_store_says_is_told_as_it_said_it() {
        for invalid in [
            Invalid::TooLong { field: "the bodies of a batch", len: 7, limit: 5 },
            Invalid::TooMany { what: "kinds", count: 10_001, limit: 10_000 },
            Invalid::TooHigh { field: "the kind's fence", value: u64::MAX, limit: 1 << 52 },
            Invalid::OutOfRange {
                field: "the delay",
                value: MAX_DELAY + Duration::from_millis(1),
                min: Duration::ZERO,
                max: MAX_DELAY,
            },
        ] {
            let problem = Problem::from(invalid.clone()).at("jobs[3].delay");
            assert_eq!(of_a_problem(problem), StoreError::Invalid(invalid));
        }
        for error in [
            StoreError::Unavailable { reason: "no".into() },
            StoreError::Unknown { reason: "who knows".into() },
        ] {
            assert_eq!(of_a_problem(error.clone().into()), error);
        }
    }

    #[test]
    fn what_no_store_here_says_keeps_its_words() {
        let other = Invalid::TooMany { what: "unicorns", count: 3, limit: 2 };
        let reason = other.to_string();
        assert_eq!(of_a_problem(other.into()), Invalid::Refused { reason }.into());
        let problem = Problem::new(Sort::NotJson, "send JSON");
        assert_eq!(of_a_problem(problem), Invalid::Refused { reason: "send JSON".into() }.into());
    }

    #[test]
    fn what_a_proxy_says_is_told_by_its_status() {
        let of = |status: u16, text: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            of_a_problem(problem_of("http://q", status, text.as_bytes()))
        };
        for (status, not_done) in [
            (301, true),
            (401, true),
            (403, true),
            (404, true),
            (429, true),
            (500, false),
            (502, false),
            (503, false),
            (504, false),
        ] {
            let error = of(status, "<h1>Nope</h1>\n<hr>");
            assert_eq!(matches!(error, StoreError::Unavailable { .. }), not_done, "{error}");
            assert_eq!(matches!(error, StoreError::Unknown { .. }), !not_done, "{error}");
            assert!(error.to_string().contains("<h1>Nope</h1> <hr>"), "{error}");
        }
        assert!(of(401, "").to_string().contains("the token was refused"));
        assert!(matches!(of(413, ""), StoreError::Invalid(Invalid::Refused { .. })));
        // A problem document that is not of ours.
        let theirs = r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"absent"}"#;
        let status = StatusCode::NOT_FOUND;
        let problem = problem_of("http://q", status, theirs.as_bytes());
        assert!(!is_absent(&CallError::Problem(Box::new(problem))));
    }
}
