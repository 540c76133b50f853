//! What went wrong, as RFC 9457 has it.
//!
//! Which status an error has is decided here, and nowhere else.

use crate::times::{self, TimeError};
use requeue_jobs::{ChangeError, Generation, Invalid, JobId, PutError, SettleError, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Where a problem's type is explained: its name follows.
const TYPES: &str = "/v1/problems/";

/// Bytes of a request that an answer repeats: people read it, and a request has megabytes.
const MAX_REPEATED: usize = 1000;

/// A problem document, `application/problem+json`.
///
/// ```
/// use requeue_http::{Problem, Sort};
/// use requeue_jobs::Kind;
///
/// let invalid = Kind::new("order/close").unwrap_err();
/// let problem = Problem::from(invalid).at("kind");
/// assert_eq!((problem.sort(), problem.status), (Sort::Invalid, 422));
/// assert_eq!(problem.field.as_deref(), Some("kind"));
/// assert!(problem.detail.contains("'/'"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(description = "What went wrong, as RFC 9457 has it."))]
pub struct Problem {
    /// Which sort it is: `/v1/problems/NAME`, where it is explained.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same in a few words.
    pub title: String,
    /// The status of the answer, or what it would be of an entry of a batch.
    pub status: u16,
    /// What is wrong with this very request: the thing, its value, the limit.
    pub detail: String,
    /// Which field of the request is wrong, such as `jobs[3].delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the field is, or how large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The lowest that it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    /// The highest, longest or most that it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
    /// What is limited, in the words of the detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The newest generation of the job, where that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// What sort of problem it is, by what the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sort {
    /// The request cannot be read: mend it.
    Malformed,
    /// The request says something that cannot be: mend it.
    Invalid,
    /// It has to say who sends it.
    Unauthorized,
    /// Who sends it may only read.
    Forbidden,
    /// There is nothing at this path.
    NoSuchPath,
    /// There is something at this path, and not for this method.
    WrongMethod,
    /// There is no such job, schedule or backup.
    Absent,
    /// `if_absent`: there is such a job.
    Exists,
    /// `if_generation`: it has another, or there is no such job.
    OtherGeneration,
    /// The receipt leases no job any more.
    LeaseLost,
    /// The job is leased, and has no successor.
    Leased,
    /// Only a dead job can be revived.
    NotDead,
    /// The operator has not allowed it.
    NotAllowed,
    /// It took too long to send the request.
    TooSlow,
    /// The request is too large.
    TooLarge,
    /// The request is not JSON.
    NotJson,
    /// Too much is asked for at once: try again later.
    Busy,
    /// The server is being shut down: try again, with another or later.
    Stopping,
    /// Nothing was done: try again later.
    Unavailable,
    /// It may have been done or not.
    Unknown,
    /// Nobody thought of this: a bug.
    Bug,
}

use Sort::*;

/// Sort, name, status, title, and what to do.
const SORTS: [(Sort, &str, u16, &str, &str); 21] = [
    (
        Malformed,
        "malformed",
        400,
        "the request cannot be read",
        "Mend the request: `detail` says where it is broken. Sending it again as it is will not help.",
    ),
    (
        Invalid,
        "invalid",
        422,
        "the request says what cannot be",
        "Mend the field that is named. Sending it again as it is will not help. What is the matter with one entry of a batch does not touch the others.",
    ),
    (
        Unauthorized,
        "unauthorized",
        401,
        "a token is needed",
        "Send `Authorization: Bearer TOKEN`, with one of the tokens that the server was started with.",
    ),
    (
        Forbidden,
        "forbidden",
        403,
        "this is not for you",
        "A token that may only read was sent to change something: use a full one. Or a browser sent it for a page of another site, or to another name than this machine's: `detail` says which.",
    ),
    (
        NoSuchPath,
        "no-such-path",
        404,
        "there is nothing at this path",
        "See /v1/openapi.json for what there is.",
    ),
    (
        WrongMethod,
        "wrong-method",
        405,
        "this path has no such method",
        "The header `Allow` says which it has.",
    ),
    (
        Absent,
        "absent",
        404,
        "there is no such thing",
        "It was never put, is done, was cancelled, or is not kept any more.",
    ),
    (
        Exists,
        "exists",
        409,
        "there is such a job already",
        "`if_absent` was asked for. `generation` is that of the job that there is.",
    ),
    (
        OtherGeneration,
        "other-generation",
        409,
        "the job has another generation",
        "`if_generation` was asked for. `generation` is the newest one; without it there is no such job. Look at the job, and decide anew.",
    ),
    (
        LeaseLost,
        "lease-lost",
        409,
        "the lease is lost",
        "The receipt leases no job any more: the lease expired and the job was given to another, or it was settled before. Stop working on it, and do not undo what is finished.",
    ),
    (
        Leased,
        "leased",
        409,
        "the job is leased",
        "It is being worked on now, and has no successor that could run.",
    ),
    (
        NotDead,
        "not-dead",
        409,
        "the job is not dead",
        "Only a dead job can be revived; `run-now` makes a waiting one due.",
    ),
    (
        NotAllowed,
        "not-allowed",
        409,
        "this server was not told to do so",
        "The operator has to start the server with the option that `detail` names.",
    ),
    (TooSlow, "too-slow", 408, "the request came too slowly", "Send it again. Nothing was done."),
    (
        TooLarge,
        "too-large",
        413,
        "the request is too large",
        "Send less at once. What is larger than a body may be belongs elsewhere, with a reference in the job.",
    ),
    (NotJson, "not-json", 415, "the request is not JSON", "Send `Content-Type: application/json`."),
    (
        Busy,
        "busy",
        503,
        "too much is asked for at once",
        "Nothing was done. Try again after what `Retry-After` says.",
    ),
    (
        Stopping,
        "stopping",
        503,
        "the server is being shut down",
        "Nothing was done. Try again: another server, or this one when it is back.",
    ),
    (
        Unavailable,
        "unavailable",
        503,
        "the store is not available",
        "Nothing was done. Try again later.",
    ),
    (
        Unknown,
        "unknown",
        504,
        "it is not known whether it was done",
        "It may have been done or not. Look, or do it again where twice equals once. Never undo finished work because of this.",
    ),
    (
        Bug,
        "bug",
        500,
        "the server made a mistake",
        "It may have been done or not. Please report it, with what the server logged.",
    ),
];

impl Sort {
    fn row(self) -> &'static (Sort, &'static str, u16, &'static str, &'static str) {
        let row = &SORTS[self as usize];
        debug_assert_eq!(row.0, self, "the table is in the order of the sorts");
        row
    }

    /// What it is called in [`Problem::kind`].
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Its status.
    pub fn status(self) -> u16 {
        self.row().2
    }

    /// It in a few words.
    pub fn title(self) -> &'static str {
        self.row().3
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        self.row().4
    }

    /// The sort that is called so.
    pub fn named(name: &str) -> Option<Self> {
        SORTS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        SORTS.iter().map(|row| row.0)
    }
}

impl Problem {
    /// A problem of this sort.
    pub fn new(sort: Sort, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("{TYPES}{}", sort.name()),
            title: sort.title().to_owned(),
            status: sort.status(),
            detail: cut(detail.into()),
            field: None,
            value: None,
            min: None,
            limit: None,
            what: None,
            generation: None,
        }
    }

    /// Which sort it is. One that is not known is told by its status.
    pub fn sort(&self) -> Sort {
        let named = self.kind.rsplit('/').next().and_then(Sort::named);
        named.unwrap_or(match self.status {
            401 => Sort::Unauthorized,
            403 => Sort::Forbidden,
            404 => Sort::Absent,
            400..=499 => Sort::Invalid,
            502 | 503 => Sort::Unavailable,
            504 => Sort::Unknown,
            _ => Sort::Bug,
        })
    }

    /// Says which field of the request it is about.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        let field = cut(field.into());
        self.detail = format!("{field}: {}", self.detail);
        self.field = Some(field);
        self
    }

    fn limited(mut self, what: &str, value: impl Into<Value>, limit: impl Into<Value>) -> Self {
        self.field = field_of(what).map(str::to_owned);
        self.what = Some(what.to_owned());
        (self.value, self.limit) = (Some(value.into()), Some(limit.into()));
        self
    }
}

/// No more of a text than is of use.
fn cut(mut text: String) -> String {
    if text.len() > MAX_REPEATED {
        text.truncate(text.floor_char_boundary(MAX_REPEATED));
        text.push('…');
    }
    text
}

/// Which field of a request the words of a limit are about, where it is always the same. Of an
/// entry of a batch it is that of the entry.
fn field_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "jobs in a claim" => "max",
        "kinds in a claim" => "kinds",
        "spans" => "count",
        "the backoff's first delay" => "backoff.base",
        "the backoff's longest delay" => "backoff.max",
        "the content type" => "content_type",
        "the delay" => "delay",
        "the lease" => "lease",
        "the schedule" => "when",
        "the time zone" => "time_zone",
        _ => return None,
    })
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let problem = Problem::new(Sort::Invalid, invalid.to_string());
        match invalid {
            Invalid::TooLong { field, len, limit } => problem.limited(field, len, limit),
            Invalid::TooMany { what, count, limit } => problem.limited(what, count, limit),
            Invalid::TooHigh { field, value, limit } => problem.limited(field, value, limit),
            Invalid::OutOfRange { field, value, min, max } => {
                let show = times::show_duration;
                let min = Some(show(min).into());
                Problem { min, ..problem.limited(field, show(value), show(max)) }
            }
            Invalid::KindCharacter { kind: text, .. } | Invalid::MalformedReceipt { text } => {
                Problem { value: Some(cut(text).into()), ..problem }
            }
            _ => problem,
        }
    }
}

impl From<TimeError> for Problem {
    fn from(error: TimeError) -> Self {
        Problem::new(Sort::Invalid, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Invalid(invalid) => invalid.into(),
            StoreError::Unavailable { .. } => Problem::new(Sort::Unavailable, detail),
            // What is not known yet may have been done.
            _ => Problem::new(Sort::Unknown, detail),
        }
    }
}

impl From<PutError> for Problem {
    fn from(error: PutError) -> Self {
        let detail = error.to_string();
        let with = |sort, generation: Option<Generation>| {
            let generation = generation.map(|Generation(number)| number);
            Problem { generation, ..Problem::new(sort, detail) }
        };
        match error {
            PutError::Exists { generation, .. } => with(Sort::Exists, Some(generation)),
            PutError::Generation { found, .. } => with(Sort::OtherGeneration, found),
            PutError::Store(error) => error.into(),
            _ => Problem::new(Sort::Bug, "an unknown error of a put"),
        }
    }
}

impl From<SettleError> for Problem {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Store(error) => error.into(),
            SettleError::LeaseLost { .. } => Problem::new(Sort::LeaseLost, error.to_string()),
            _ => Problem::new(Sort::Bug, error.to_string()),
        }
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let sort = match error {
            ChangeError::Store(error) => return error.into(),
            ChangeError::Absent { .. } => Sort::Absent,
            ChangeError::Leased { .. } => Sort::Leased,
            ChangeError::NotDead { .. } => Sort::NotDead,
            _ => Sort::Bug,
        };
        Problem::new(sort, error.to_string())
    }
}

impl Problem {
    /// There is no such job.
    pub fn no_job(kind: &requeue_jobs::Kind, id: &JobId) -> Self {
        ChangeError::Absent { kind: kind.clone(), id: id.clone() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_sorts() {
        for (place, (sort, name, ..)) in SORTS.iter().enumerate() {
            assert_eq!(*sort as usize, place);
            assert_eq!(Sort::named(name), Some(*sort));
            assert_eq!(Problem::new(*sort, "").sort(), *sort);
        }
    }
}
