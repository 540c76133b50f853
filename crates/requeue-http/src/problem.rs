//! Error responses: problem details (RFC 9457).
//!
//! This module alone decides which status an error has.

use crate::times::{self, TimeError};
use requeue_jobs::{
    ChangeError, CronTimesError, Generation, Invalid, JobId, PutError, ScheduleError, SettleError,
    StoreError,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::fmt;

/// The path under which problem types are explained. The name of the type follows.
const TYPE_PREFIX: &str = "/v1/problems/";

/// Maximum bytes of a request that a problem repeats. People read it, and a request can have
/// megabytes.
const MAX_REPEATED: usize = 1000;

/// A problem details document (RFC 9457), `application/problem+json`.
///
/// ```
/// use requeue_http::{Problem, ProblemType};
/// use requeue_jobs::Kind;
///
/// let invalid = Kind::new("order/close").unwrap_err();
/// let problem = Problem::from(invalid).at("kind");
/// assert_eq!((problem.problem_type(), problem.status), (ProblemType::Invalid, 422));
/// assert_eq!(problem.field.as_deref(), Some("kind"));
/// assert!(problem.detail.contains("'/'"));
/// ```
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(description = "An error, as problem details (RFC 9457)."))]
pub struct Problem {
    /// The type of the problem, `/v1/problems/NAME`. Programs decide by it. A GET of this path returns
    /// an explanation.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// A short summary of the type.
    pub title: String,
    /// The HTTP status. In the result of a batch entry: the status that the entry would have alone.
    pub status: u16,
    /// What is wrong with this request: the field, its value and the limit.
    pub detail: String,
    /// The field that is wrong, such as `jobs[3].delay`.
    pub field: Option<String>,
    /// The value of the field, or its length or number.
    pub value: Option<Value>,
    /// The lowest allowed value.
    pub min: Option<Value>,
    /// The highest allowed value, length or number.
    pub limit: Option<Value>,
    /// What the limit applies to, as named in `detail`.
    pub what: Option<String>,
    /// With `exists` and `other-generation`: the newest generation of the job.
    pub generation: Option<u64>,
}

/// The type of a problem. It determines the status, and what the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemType {
    /// The request is not valid JSON, or does not have the expected shape.
    Malformed,
    /// The value of a field is invalid.
    Invalid,
    /// The request has no valid token.
    Unauthorized,
    /// The token, or the origin of the request, does not permit it.
    Forbidden,
    /// No resource has this path.
    NoSuchPath,
    /// The path exists, but not with this method.
    WrongMethod,
    /// The job, schedule or backup does not exist.
    Absent,
    /// `if_absent` or `if_new`: the job exists.
    Exists,
    /// `if_generation`: the job has another generation, or does not exist.
    OtherGeneration,
    /// The receipt no longer leases a job.
    LeaseLost,
    /// The job is leased and has no successor.
    Leased,
    /// The job is done, so it cannot run or be rescheduled.
    Done,
    /// The job is not dead, so it cannot be revived.
    NotDead,
    /// The operator has not enabled this operation.
    NotAllowed,
    /// The server uses the kind for itself.
    Reserved,
    /// The server sends the jobs of the kind to a URL, so they cannot be claimed.
    Pushed,
    /// The client sent the request too slowly.
    TooSlow,
    /// The request is too large.
    TooLarge,
    /// The content type of the request is not JSON.
    NotJson,
    /// A limit on concurrent requests is reached. Nothing was done.
    Busy,
    /// The server is shutting down. Nothing was done.
    Stopping,
    /// The store is unavailable. Nothing was done.
    Unavailable,
    /// It is unknown whether the operation was done.
    Unknown,
    /// The server failed unexpectedly, because of a bug.
    Bug,
}

use ProblemType::*;

/// Type, name, status, title, and what the caller can do.
const TYPES: [(ProblemType, &str, u16, &str, &str); 24] = [
    (
        Malformed,
        "malformed",
        400,
        "malformed request",
        "The request is not valid JSON, lacks a required field, or contains an unknown one. `detail` says where. Correct the request; repeating it unchanged fails again.",
    ),
    (
        Invalid,
        "invalid",
        422,
        "invalid request",
        "The value of a field is invalid. `detail` and `field` name the field. Correct it; repeating the request unchanged fails again. In a batch, an invalid entry does not affect the other entries.",
    ),
    (
        Unauthorized,
        "unauthorized",
        401,
        "authentication required",
        "Send `Authorization: Bearer TOKEN` with one of the tokens that the server was started with.",
    ),
    (
        Forbidden,
        "forbidden",
        403,
        "permission denied",
        "The token is read-only: use a full token for requests that change something. Or a browser sent the request from a page of another site, or to a host name that is not this machine's. `detail` says which of these it is.",
    ),
    (
        NoSuchPath,
        "no-such-path",
        404,
        "path not found",
        "No resource has this path. `/v1/openapi.json` lists all paths.",
    ),
    (
        WrongMethod,
        "wrong-method",
        405,
        "method not allowed",
        "The path does not support this method. The `Allow` header lists the methods that it supports.",
    ),
    (
        Absent,
        "absent",
        404,
        "not found",
        "The job, schedule or backup does not exist: it was never created, is done, was cancelled, or was removed by retention.",
    ),
    (
        Exists,
        "exists",
        409,
        "job already exists",
        "The put has `if_absent` or `if_new`, and a job with this kind and id exists; with `if_new`, it may be done. `generation` is the generation of that job.",
    ),
    (
        OtherGeneration,
        "other-generation",
        409,
        "generation conflict",
        "The request has `if_generation`, and the job has another generation. `generation` is the newest one; if it is missing, the job does not exist. Read the job and decide again.",
    ),
    (
        LeaseLost,
        "lease-lost",
        409,
        "lease lost",
        "The receipt no longer leases a job: the lease expired and another worker may have the job, or the job was already settled. Stop working on it, and do not undo completed work.",
    ),
    (
        Leased,
        "leased",
        409,
        "job is leased",
        "A worker is running the job, and the job has no successor that could be made due.",
    ),
    (
        Done,
        "done",
        409,
        "job is done",
        "The job is done, and its body is no longer there. Put it again to run it again.",
    ),
    (
        NotDead,
        "not-dead",
        409,
        "job is not dead",
        "Only a dead job can be revived. Use `run-now` to make a waiting job due.",
    ),
    (
        NotAllowed,
        "not-allowed",
        409,
        "operation not enabled",
        "The operator must start the server with the option that `detail` names.",
    ),
    (
        Reserved,
        "reserved",
        409,
        "kind is reserved",
        "Kinds whose names begin with requeue. are for the service itself. Their jobs can be read, but not put, claimed, changed or imported, and they have no settings or schedules of their own. Use another kind.",
    ),
    (
        Pushed,
        "pushed",
        409,
        "kind is pushed",
        "The server sends the jobs of this kind to a URL, so workers cannot claim them. Claim other kinds, or remove the setting `push` of the kind.",
    ),
    (
        TooSlow,
        "too-slow",
        408,
        "request timeout",
        "The client sent the request too slowly. Nothing was done. Send it again.",
    ),
    (
        TooLarge,
        "too-large",
        413,
        "request too large",
        "Send smaller batches. Store data that exceeds the limit of a body elsewhere, and put a reference into the job.",
    ),
    (NotJson, "not-json", 415, "unsupported media type", "Send `Content-Type: application/json`."),
    (
        Busy,
        "busy",
        503,
        "too many requests in flight",
        "Nothing was done. Try again after the time in the `Retry-After` header.",
    ),
    (
        Stopping,
        "stopping",
        503,
        "server shutting down",
        "Nothing was done. Try again with another server, or with this one after its restart.",
    ),
    (Unavailable, "unavailable", 503, "store unavailable", "Nothing was done. Try again later."),
    (
        Unknown,
        "unknown",
        504,
        "outcome unknown",
        "The operation may or may not have been done. Check, or repeat it if it is idempotent. Never undo completed work because of this.",
    ),
    (
        Bug,
        "bug",
        500,
        "internal error",
        "The operation may or may not have been done. Please report this bug, with what the server logged.",
    ),
];

impl ProblemType {
    fn row(self) -> &'static (ProblemType, &'static str, u16, &'static str, &'static str) {
        let row = &TYPES[self as usize];
        debug_assert_eq!(row.0, self, "the table has the order of the enum");
        row
    }

    /// Returns the name of this type, the last segment of [`Problem::type_uri`].
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the HTTP status of this type.
    pub fn status(self) -> u16 {
        self.row().2
    }

    /// Returns a short summary of this type.
    pub fn title(self) -> &'static str {
        self.row().3
    }

    /// Returns what the caller can do about this type of problem.
    pub fn advice(self) -> &'static str {
        self.row().4
    }

    /// Returns the type with this name, or `None` if there is none.
    pub fn by_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns all types.
    pub fn all() -> impl Iterator<Item = Self> {
        TYPES.iter().map(|row| row.0)
    }
}

impl Problem {
    /// Creates a problem of this type. A long `detail` is cut.
    pub fn new(problem_type: ProblemType, detail: impl Into<String>) -> Self {
        Problem {
            type_uri: format!("{TYPE_PREFIX}{}", problem_type.name()),
            title: problem_type.title().to_owned(),
            status: problem_type.status(),
            detail: cut(detail.into()),
            field: None,
            value: None,
            min: None,
            limit: None,
            what: None,
            generation: None,
        }
    }

    /// Returns the type of this problem. An unknown type is derived from the status.
    pub fn problem_type(&self) -> ProblemType {
        let named = self.type_uri.rsplit('/').next().and_then(ProblemType::by_name);
        named.unwrap_or(match self.status {
            401 => ProblemType::Unauthorized,
            403 => ProblemType::Forbidden,
            404 => ProblemType::Absent,
            400..=499 => ProblemType::Invalid,
            502 | 503 => ProblemType::Unavailable,
            504 => ProblemType::Unknown,
            _ => ProblemType::Bug,
        })
    }

    /// Sets the field that this problem is about, and puts its name in front of the detail.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        let field = cut(field.into());
        self.detail = format!("{field}: {}", self.detail);
        self.field = Some(field);
        self
    }

    /// Puts the name of the field in front of the detail, if a limit names the field.
    pub(crate) fn at_its_field(self) -> Self {
        match self.field.clone() {
            Some(field) => self.at(field),
            None => self,
        }
    }

    /// Puts `path`, such as `jobs[3].`, in front of the name of the field, if the problem is about
    /// one. So the names of valid fields need not be formatted.
    #[must_use]
    pub fn within(mut self, path: &str) -> Self {
        if let Some(field) = self.field.take() {
            let field = format!("{path}{field}");
            if let Some(rest) = self.detail.strip_prefix(&field[path.len()..]) {
                self.detail = format!("{field}{rest}");
            }
            self.field = Some(cut(field));
        }
        self
    }

    fn limited(mut self, what: &str, value: impl Into<Value>, limit: impl Into<Value>) -> Self {
        self.field = field_of(what).map(str::to_owned);
        self.what = Some(what.to_owned());
        (self.value, self.limit) = (Some(value.into()), Some(limit.into()));
        self
    }
}

/// Says where in a request an error is. The names are put together only if there is an error.
///
/// ```
/// use requeue_http::{AtField, Problem};
/// use requeue_jobs::Kind;
///
/// let read = || -> Result<Kind, Problem> { Kind::new("a b").at("kind").within("jobs[3].") };
/// assert_eq!(read().unwrap_err().field.as_deref(), Some("jobs[3].kind"));
/// ```
pub trait AtField<T> {
    /// Converts an error to a problem with this field.
    fn at(self, field: &str) -> Result<T, Problem>;

    /// Puts `path`, such as `lease.`, in front of the field of a problem.
    fn within(self, path: &str) -> Result<T, Problem>;
}

impl<T, E: Into<Problem>> AtField<T> for Result<T, E> {
    fn at(self, field: &str) -> Result<T, Problem> {
        self.map_err(|error| error.into().at(field))
    }

    fn within(self, path: &str) -> Result<T, Problem> {
        self.map_err(|error| error.into().within(path))
    }
}

/// Cuts a long text.
fn cut(mut text: String) -> String {
    if text.len() > MAX_REPEATED {
        let end = (0..=MAX_REPEATED).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// What limits apply to, as [`Invalid`] names it, and the field of a request, if it is always the same one.
/// In a batch, [`Problem::at`] sets the field of the entry instead.
const LIMITED: [(&str, &str); 53] = [
    ("entries in a batch", ""),
    ("failed attempts of a job", ""),
    ("its end", ""),
    ("jobs in a claim", "max"),
    ("kinds", ""),
    ("kinds in a claim", "kinds"),
    ("schedules of a kind", ""),
    ("spans", "count"),
    ("the ageing", "ageing"),
    ("the backoff's first delay", "backoff.base"),
    ("the backoff's longest delay", "backoff.max"),
    ("the bodies of a batch", ""),
    ("the bodies of the kind's schedules", ""),
    ("the body", ""),
    ("the body with its envelope", "envelope"),
    ("the burst of the rate", "rate.burst"),
    ("the catch-up window", "catch_up"),
    ("the concurrency", "concurrency"),
    ("the content type", "content_type"),
    ("the cursor", ""),
    ("the delay", "delay"),
    ("the due time", ""),
    ("the end of the lease", ""),
    ("the envelope", ""),
    ("the generation", ""),
    ("the id", ""),
    ("the id of a schedule whose runs overlap", "overlap"),
    ("the jitter in percent", "backoff.jitter_percent"),
    ("the jitter of the schedule", "jitter"),
    ("the kind", ""),
    ("the kind's fence", ""),
    ("the kind's generation", ""),
    ("the lease", "lease"),
    ("the number of jobs of the rate", "rate.jobs"),
    ("the period of the rate", "rate.per"),
    ("the period of the schedule", "every"),
    ("the priority", "priority"),
    ("the push secrets", "push.secrets"),
    ("the push setting", "push"),
    ("the result", "result"),
    ("the results of a batch", ""),
    ("the schedule", "cron"),
    ("the start of an attempt", ""),
    ("the start of the attempt", ""),
    ("the start of the lease", ""),
    ("the successor's due time", ""),
    ("the time of creation", ""),
    ("the time of death", ""),
    ("the time of the last change", ""),
    ("the time when it was done", ""),
    ("the time zone", "time_zone"),
    ("the type of the envelope", ""),
    ("the worker's name", ""),
];

fn field_of(what: &str) -> Option<&'static str> {
    let (_, field) = LIMITED.iter().find(|(name, _)| *name == what)?;
    Some(*field).filter(|field| !field.is_empty())
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let problem_type = match invalid {
            Invalid::ReservedKind { .. } => ProblemType::Reserved,
            _ => ProblemType::Invalid,
        };
        let problem = Problem::new(problem_type, invalid.to_string());
        match invalid {
            Invalid::TooLong { field, len, limit } => problem.limited(field, len, limit),
            Invalid::TooMany { what, count, limit } => problem.limited(what, count, limit),
            Invalid::TooHigh { field, value, limit } => problem.limited(field, value, limit),
            Invalid::TooLow { field, value, limit } => {
                let problem = problem.limited(field, value, limit);
                Problem { min: problem.limit, limit: None, ..problem }
            }
            Invalid::OutOfRange { field, value, min, max } => {
                let show = times::show_duration;
                let min = Some(show(min).into());
                Problem { min, ..problem.limited(field, show(value), show(max)) }
            }
            Invalid::KindCharacter { kind: text, .. }
            | Invalid::MalformedReceipt { text }
            | Invalid::MalformedCursor { text } => {
                Problem { value: Some(cut(text).into()), ..problem }
            }
            _ => problem,
        }
    }
}

impl Problem {
    /// Returns the limit that a request exceeded, as the store of the server reported it. `None` if it is
    /// none that this version knows.
    #[cfg(feature = "client")]
    pub(crate) fn exceeded(&self) -> Option<Invalid> {
        let (field, _) = LIMITED.iter().find(|(name, _)| Some(*name) == self.what.as_deref())?;
        let number = |value: &Option<Value>| value.as_ref()?.as_u64();
        let size = |value: &Option<Value>| usize::try_from(number(value)?).ok();
        let time = |value: &Option<Value>| times::parse_duration(value.as_ref()?.as_str()?).ok();
        let Problem { value, min, limit, .. } = self;
        // The detail tells them apart.
        let possible = [
            (|| Some(Invalid::TooLong { field, len: size(value)?, limit: size(limit)? }))(),
            (|| Some(Invalid::TooMany { what: field, count: size(value)?, limit: size(limit)? }))(),
            (|| Some(Invalid::TooHigh { field, value: number(value)?, limit: number(limit)? }))(),
            (|| Some(Invalid::TooLow { field, value: number(value)?, limit: number(min)? }))(),
            (|| {
                let (value, min, max) = (time(value)?, time(min)?, time(limit)?);
                Some(Invalid::OutOfRange { field, value, min, max })
            })(),
        ];
        let is_this = |invalid: &Invalid| self.detail.ends_with(&invalid.to_string());
        possible.into_iter().flatten().find(is_this)
    }
}

impl From<TimeError> for Problem {
    fn from(error: TimeError) -> Self {
        Problem::new(ProblemType::Invalid, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Invalid(invalid) => invalid.into(),
            StoreError::Unavailable { .. } => Problem::new(ProblemType::Unavailable, detail),
            // An error that this version does not know may mean that the operation was done.
            _ => Problem::new(ProblemType::Unknown, detail),
        }
    }
}

impl From<PutError> for Problem {
    fn from(error: PutError) -> Self {
        let detail = error.to_string();
        let with = |problem_type, generation: Option<Generation>| {
            let generation = generation.map(|Generation(number)| number);
            Problem { generation, ..Problem::new(problem_type, detail) }
        };
        match error {
            PutError::Exists { generation, .. } => with(ProblemType::Exists, Some(generation)),
            PutError::Generation { found, .. } => with(ProblemType::OtherGeneration, found),
            PutError::Store(error) => error.into(),
            _ => {
                Problem::new(ProblemType::Bug, "an error of a put that this version does not know")
            }
        }
    }
}

impl From<SettleError> for Problem {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Store(error) => error.into(),
            SettleError::LeaseLost { .. } => {
                Problem::new(ProblemType::LeaseLost, error.to_string())
            }
            _ => Problem::new(ProblemType::Bug, error.to_string()),
        }
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let mut generation = None;
        let problem_type = match error {
            ChangeError::Store(error) => return error.into(),
            ChangeError::Generation { found: Generation(number), .. } => {
                generation = Some(number);
                ProblemType::OtherGeneration
            }
            ChangeError::Absent { .. } => ProblemType::Absent,
            ChangeError::Leased { .. } => ProblemType::Leased,
            ChangeError::Done { .. } => ProblemType::Done,
            ChangeError::NotDead { .. } => ProblemType::NotDead,
            _ => ProblemType::Bug,
        };
        Problem { generation, ..Problem::new(problem_type, error.to_string()) }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        let problem = |problem_type| Problem::new(problem_type, error.to_string());
        match error {
            ScheduleError::Times(CronTimesError::Zone { .. }) => {
                problem(ProblemType::Invalid).at("time_zone")
            }
            ScheduleError::Times(_) => problem(ProblemType::Invalid).at("cron"),
            ScheduleError::Invalid(invalid) => Problem::from(invalid).at_its_field(),
            ScheduleError::NothingToCatchUp => problem(ProblemType::Invalid).at("catch_up"),
            ScheduleError::Over => problem(ProblemType::Invalid).at("ends_at"),
            ScheduleError::Rule(_) => {
                let problem = problem(ProblemType::Invalid);
                let detail = format!("{}; set the schedule again", problem.detail);
                Problem { detail, ..problem }
            }
            ScheduleError::Absent { .. } => problem(ProblemType::Absent),
            ScheduleError::Put(error) => error.into(),
            ScheduleError::Store(error) => error.into(),
            _ => problem(ProblemType::Bug),
        }
    }
}

impl Problem {
    /// Creates the problem for a schedule that does not exist.
    pub fn no_schedule(kind: &requeue_jobs::Kind, id: &JobId) -> Self {
        ScheduleError::Absent { kind: kind.clone(), id: id.clone() }.into()
    }

    /// Creates the problem for a job that does not exist.
    pub fn no_job(kind: &requeue_jobs::Kind, id: &JobId) -> Self {
        ChangeError::Absent { kind: kind.clone(), id: id.clone() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_in_front_of_the_field() {
        let problem = |detail| Problem::new(ProblemType::Invalid, detail);
        let expected = problem("too long").at("jobs[3].id");
        assert_eq!(problem("too long").at("id").within("jobs[3]."), expected);
        assert_eq!(problem("too long").within("jobs[3]."), problem("too long"));
        assert_eq!(problem("too long").at("id").within(""), problem("too long").at("id"));
    }

    #[test]
    fn the_table_has_the_order_of_the_enum() {
        for (index, (problem_type, name, ..)) in TYPES.iter().enumerate() {
            assert_eq!(*problem_type as usize, index);
            assert_eq!(ProblemType::by_name(name), Some(*problem_type));
            assert_eq!(Problem::new(*problem_type, "").problem_type(), *problem_type);
        }
    }
}
