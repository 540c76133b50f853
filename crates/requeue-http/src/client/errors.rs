//! Converts error responses to the errors of a store.

use super::calls::CallError;
use crate::problem::{Problem, ProblemType};
use hyper::StatusCode;
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Condition, Generation, Invalid, Put, PutError, Receipt,
    SettleError, StoreError,
};

/// Converts the error of a call that changes something.
pub(super) fn change_error(error: CallError) -> StoreError {
    match error {
        CallError::Problem(problem) => problem_error(*problem),
        CallError::Unavailable { reason } => StoreError::Unavailable { reason },
        CallError::Unknown { reason } => StoreError::Unknown { reason },
        CallError::File(error) => StoreError::Unknown { reason: error.to_string() },
    }
}

/// Converts the error of a call that only reads: nothing was done in any case.
pub(super) fn read_error(error: CallError) -> StoreError {
    match change_error(error) {
        StoreError::Unknown { reason } => StoreError::Unavailable { reason },
        other => other,
    }
}

/// Converts the problem of a call, or of an entry of a batch.
pub(super) fn problem_error(problem: Problem) -> StoreError {
    // The detail is the text of the server's error, which adds a prefix to the reason. The error here
    // adds it again.
    let reason =
        |without_reason: StoreError| match problem.detail.strip_prefix(&without_reason.to_string())
        {
            Some(rest) => rest.to_owned(),
            None => problem.detail.clone(),
        };
    let empty = String::new;
    match problem.problem_type() {
        ProblemType::Busy
        | ProblemType::Stopping
        | ProblemType::Unavailable
        | ProblemType::TooSlow => {
            StoreError::Unavailable { reason: reason(StoreError::Unavailable { reason: empty() }) }
        }
        // Nothing was done, and the call itself is valid.
        ProblemType::Unauthorized | ProblemType::Forbidden => {
            StoreError::Unavailable { reason: format!("the token was refused: {}", problem.detail) }
        }
        ProblemType::Malformed
        | ProblemType::Invalid
        | ProblemType::TooLarge
        | ProblemType::NotJson
        | ProblemType::NoSuchPath
        | ProblemType::WrongMethod
        | ProblemType::NotAllowed
        | ProblemType::Reserved
        | ProblemType::Pushed => invalid(problem).into(),
        _ => StoreError::Unknown { reason: reason(StoreError::Unknown { reason: empty() }) },
    }
}

/// Converts the problem of a put.
pub(super) fn put_error(problem: Problem, put: SentPut) -> PutError {
    let SentPut { kind, id, condition } = put;
    let generation = problem.generation.map(Generation);
    match (problem.problem_type(), generation, condition) {
        (ProblemType::Exists, Some(generation), _) => PutError::Exists { kind, id, generation },
        (ProblemType::OtherGeneration, found, Some(Condition::IfGeneration(expected))) => {
            PutError::Generation { kind, id, expected, found }
        }
        _ => problem_error(problem).into(),
    }
}

/// The parts of a put that its error contains and the response does not repeat.
pub(super) struct SentPut {
    kind: requeue_jobs::Kind,
    id: requeue_jobs::JobId,
    condition: Option<Condition>,
}

impl From<&Put> for SentPut {
    fn from(put: &Put) -> Self {
        SentPut { kind: put.kind.clone(), id: put.id.clone(), condition: put.condition }
    }
}

/// Converts the problem of a settlement.
pub(super) fn settle_error(problem: Problem, receipt: Receipt) -> SettleError {
    match problem.problem_type() {
        ProblemType::LeaseLost => SettleError::LeaseLost { receipt },
        _ => problem_error(problem).into(),
    }
}

/// Converts the problem of a change to a job.
pub(super) fn job_change_error(problem: Problem, change: SentChange) -> ChangeError {
    let SentChange { kind, id, if_generation } = change;
    let found = problem.generation.map(Generation);
    match (problem.problem_type(), found, if_generation) {
        (ProblemType::Absent, ..) => ChangeError::Absent { kind, id },
        (ProblemType::Leased, ..) => ChangeError::Leased { kind, id },
        (ProblemType::Done, ..) => ChangeError::Done { kind, id },
        (ProblemType::NotDead, ..) => ChangeError::NotDead { kind, id },
        (ProblemType::OtherGeneration, Some(found), Some(expected)) => {
            ChangeError::Generation { kind, id, expected, found }
        }
        _ => problem_error(problem).into(),
    }
}

/// The parts of a change that its error contains and the response does not repeat.
pub(super) struct SentChange {
    kind: requeue_jobs::Kind,
    id: requeue_jobs::JobId,
    if_generation: Option<Generation>,
}

impl From<&Change> for SentChange {
    fn from(change: &Change) -> Self {
        let if_generation = match &change.action {
            ChangeKind::Reschedule(set) => set.if_generation,
            ChangeKind::Cancel | ChangeKind::RunNow | ChangeKind::Revive => None,
        };
        SentChange { kind: change.kind.clone(), id: change.id.clone(), if_generation }
    }
}

/// Returns whether the server reports that the job or schedule does not exist. A 404 of a proxy does
/// not count.
pub(super) fn is_absent(error: &CallError) -> bool {
    matches!(error, CallError::Problem(problem) if problem.problem_type() == ProblemType::Absent)
}

/// Returns whether the server rejects the cursor of a list.
pub(super) fn is_wrong_cursor(error: &CallError) -> bool {
    let is_wrong = |problem: &Problem| {
        problem.problem_type() == ProblemType::Invalid && problem.field.as_deref() == Some("after")
    };
    matches!(error, CallError::Problem(problem) if is_wrong(problem))
}

/// The path that the problem types of a requeue server contain.
const TYPE_PREFIX: &str = "/v1/problems/";

/// Characters of an invalid response that an error repeats.
const SHOWN: usize = 200;

/// Returns the problem of an error response. If the response is not from a requeue server, but for
/// example from a proxy, its status determines the type.
pub(super) fn problem_of(url: &str, status: StatusCode, bytes: &[u8]) -> Problem {
    if let Ok(problem) = serde_json::from_slice::<Problem>(bytes)
        && problem.type_uri.contains(TYPE_PREFIX)
    {
        return problem;
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN * 4)]);
    let words: Vec<_> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(SHOWN).collect();
    let (problem_type, hint) = match status.as_u16() {
        300..=399 => (ProblemType::Unavailable, " (redirects are not followed)"),
        401 => (ProblemType::Unauthorized, ""),
        403 => (ProblemType::Forbidden, ""),
        404 => (ProblemType::Unavailable, " (is this the URL of a requeue server?)"),
        413 => (ProblemType::TooLarge, " (the limit of a proxy is lower than that of the server)"),
        400..=499 => (ProblemType::Unavailable, ""),
        // Also 502 and 503: a proxy returns these also after it has forwarded the request.
        _ => (ProblemType::Unknown, ""),
    };
    Problem::new(problem_type, format!("{url} returned {status}{hint}: {text}"))
}

/// Returns the error that a local store would return, or else one with the detail of the response.
fn invalid(problem: Problem) -> Invalid {
    problem.exceeded().unwrap_or(Invalid::Refused { reason: problem.detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::limits::MAX_DELAY;
    use std::time::Duration;

    #[test]
    fn errors_of_a_store_survive_the_round_trip() {
        for invalid in [
            Invalid::TooLong { field: "the bodies of a batch", len: 7, limit: 5 },
            Invalid::TooMany { what: "kinds", count: 10_001, limit: 10_000 },
            Invalid::TooHigh { field: "the kind's fence", value: u64::MAX, limit: 1 << 52 },
            Invalid::TooHigh { field: "the jitter in percent", value: 101, limit: 100 },
            Invalid::TooLow { field: "the concurrency", value: 0, limit: 1 },
            Invalid::TooLong { field: "the result", len: 65_537, limit: 65_536 },
            Invalid::TooHigh { field: "the priority", value: 10, limit: 9 },
            Invalid::TooHigh { field: "the number of jobs of the rate", value: 7, limit: 6 },
            Invalid::TooLow { field: "the burst of the rate", value: 0, limit: 1 },
            Invalid::TooLong { field: "the schedule", len: 1025, limit: 1024 },
            Invalid::TooLong {
                field: "the id of a schedule whose runs overlap",
                len: 500,
                limit: 487,
            },
            Invalid::OutOfRange {
                field: "the period of the schedule",
                value: Duration::from_millis(500),
                min: Duration::from_secs(1),
                max: MAX_DELAY,
            },
            Invalid::OutOfRange {
                field: "the ageing",
                value: Duration::ZERO,
                min: Duration::from_millis(1),
                max: MAX_DELAY,
            },
            Invalid::OutOfRange {
                field: "the delay",
                value: MAX_DELAY + Duration::from_millis(1),
                min: Duration::ZERO,
                max: MAX_DELAY,
            },
        ] {
            let problem = Problem::from(invalid.clone()).at("jobs[3].delay");
            assert_eq!(problem_error(problem), StoreError::Invalid(invalid));
        }
        for error in [
            StoreError::Unavailable { reason: "no".into() },
            StoreError::Unknown { reason: "who knows".into() },
        ] {
            assert_eq!(problem_error(error.clone().into()), error);
        }
    }

    /// Errors are for people: they contain no values in the syntax of Rust.
    #[test]
    fn no_error_shows_the_syntax_of_rust() {
        use requeue_jobs::{JobId, Kind};
        let (kind, id) = (Kind::new("mail").unwrap(), JobId::new("a \u{1b}[2J").unwrap());
        let (job, of) = (|| id.clone(), || kind.clone());
        let receipt = Receipt::new(of(), job(), requeue_jobs::Fence(7), 9);
        let (field, what) = ("the lease", "kinds");
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let expected = Generation(21);
        let invalid = [
            Invalid::TooLong { field, len: 7, limit: 5 },
            Invalid::Empty { field },
            Kind::new("a\u{1b}b").unwrap_err(),
            Invalid::OutOfRange { field, value: hour, min: second, max: second },
            Invalid::TooMany { what, count: 3, limit: 2 },
            Invalid::TooHigh { field, value: 3, limit: 2 },
            Invalid::TooLow { field, value: 0, limit: 1 },
            Invalid::InconsistentJob { id: job(), reason: "it is leased" },
            "x\u{1b}".parse::<Receipt>().unwrap_err(),
            Invalid::MalformedCursor { text: "x\u{1b}".into() },
            Invalid::NotJson { reason: "a number".into() },
            Invalid::NothingToChange,
            Invalid::Refused { reason: "no".into() },
        ];
        let puts = [None, Some(Generation(22))].map(|found| PutError::Generation {
            kind: of(),
            id: job(),
            expected,
            found,
        });
        let exists = PutError::Exists { kind: of(), id: job(), generation: expected };
        let change = |error: fn(_, _) -> ChangeError| error(of(), job());
        let changes = [
            change(|kind, id| ChangeError::Absent { kind, id }),
            change(|kind, id| ChangeError::Leased { kind, id }),
            change(|kind, id| ChangeError::Done { kind, id }),
            change(|kind, id| ChangeError::NotDead { kind, id }),
            ChangeError::Generation { kind: of(), id: job(), expected, found: Generation(22) },
        ];
        let settle = crate::wire::SettleLease {
            receipt: receipt.to_string(),
            how: Some(crate::wire::SettleVerb::Requeue),
            error: Some("no".into()),
            ..Default::default()
        };
        let context = crate::wire::ParseContext { now: requeue_jobs::Timestamp::default() };
        let problems = invalid.into_iter().map(Problem::from);
        let problems = problems.chain(puts.map(Problem::from)).chain([exists.into()]);
        let problems = problems.chain(changes.map(Problem::from));
        let problems = problems.chain([
            SettleError::LeaseLost { receipt }.into(),
            StoreError::Unavailable { reason: "busy".into() }.into(),
            settle.read(None, &context).unwrap_err(),
            crate::times::parse_duration("5 parsecs").unwrap_err().into(),
        ]);
        for problem in problems {
            let text = problem.detail;
            let rust = ["Some(", "None", "Ok(", "Err(", "Generation", "Kind", "JobId", "::", " { "];
            let leak = rust.iter().find(|word| text.contains(**word));
            assert_eq!(leak, None, "{text}");
            assert!(!text.contains("Requeue"), "{text}");
        }
    }

    #[test]
    fn an_unknown_limit_keeps_the_detail_of_the_response() {
        let other = Invalid::TooMany { what: "unicorns", count: 3, limit: 2 };
        let reason = other.to_string();
        assert_eq!(problem_error(other.into()), Invalid::Refused { reason }.into());
        let problem = Problem::new(ProblemType::NotJson, "send JSON");
        assert_eq!(problem_error(problem), Invalid::Refused { reason: "send JSON".into() }.into());
    }

    #[test]
    fn the_status_determines_the_error_of_a_proxy() {
        let of = |status: u16, text: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            problem_error(problem_of("http://q", status, text.as_bytes()))
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
        // A problem document of another server.
        let theirs = r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"absent"}"#;
        let status = StatusCode::NOT_FOUND;
        let problem = problem_of("http://q", status, theirs.as_bytes());
        assert!(!is_absent(&CallError::Problem(Box::new(problem))));
    }
}
