//! The parts of a job's JSON form that the HTTP API and the [export format](crate::transfer) share:
//! how a body is written, the names of states, and errors that name a field. Needs the feature
//! `serde`.
//!
//! The two formats write times differently (`due` in RFC 3339, `due_ms` in milliseconds), so each
//! has its own list of fields.

use crate::error::Invalid;
use crate::job::{Body, JobState};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const OCTETS: &str = "application/octet-stream";

/// Characters of a value that an error message repeats.
const SHOWN: usize = 100;

/// A body and its content type, as the JSON fields of a job. At most one of the three body fields
/// is set.
///
/// - `body`, if the content type is `application/json` and the bytes are JSON without white space
///   around it;
/// - otherwise `body_text`, if the bytes are UTF-8;
/// - otherwise `body_base64`.
///
/// Reading the fields back returns exactly the same bytes.
///
/// ```
/// use requeue_jobs::Body;
/// use requeue_jobs::json::BodyJson;
///
/// let body = Body::new(*br#"{"order": 42}"#, "application/json")?;
/// let json = BodyJson::new(&body);
/// assert_eq!(json.body.as_ref().map(|json| json.get()), Some(r#"{"order": 42}"#));
/// assert_eq!(json.into_body()?, body);
///
/// assert_eq!(BodyJson::new(&Body::octets(*b"hello")?).body_text.as_deref(), Some("hello"));
/// assert_eq!(BodyJson::new(&Body::octets([0xFF])?).body_base64.as_deref(), Some("/w=="));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BodyJson {
    /// The body as a JSON value, byte for byte as it was put.
    pub body: Option<Box<RawValue>>,
    /// The body as text.
    pub body_text: Option<String>,
    /// The body in base64, with padding.
    pub body_base64: Option<String>,
    /// The content type. If it is `None`, [`into_body`](BodyJson::into_body) uses
    /// `application/json`, `text/plain; charset=utf-8` or `application/octet-stream`, depending on
    /// the field that is set.
    pub content_type: Option<String>,
}

impl BodyJson {
    /// Returns the fields of a body. An empty body of type `application/octet-stream`, which is what
    /// a job without a body has, sets none of the three.
    pub fn new(body: &Body) -> Self {
        if body.is_empty() && body.content_type() == OCTETS {
            let content_type = Some(OCTETS.to_owned());
            return BodyJson { content_type, ..BodyJson::default() };
        }
        BodyJson::with_json(body, as_json(body))
    }

    /// Like [`new`](BodyJson::new), for a format of one object per line: JSON that contains a line
    /// break becomes `body_text`, and one of the three fields is always set.
    pub fn on_one_line(body: &Body) -> Self {
        let line_break = |json: &&RawValue| json.get().contains(['\r', '\n']);
        BodyJson::with_json(body, as_json(body).filter(|json| !line_break(json)))
    }

    fn with_json(body: &Body, json: Option<&RawValue>) -> Self {
        let content_type = Some(body.content_type().to_owned());
        let mut fields = BodyJson { content_type, ..BodyJson::default() };
        match (json, str::from_utf8(body.bytes())) {
            (Some(json), _) => fields.body = Some(json.to_owned()),
            (None, Ok(text)) => fields.body_text = Some(text.to_owned()),
            (None, Err(_)) => fields.body_base64 = Some(BASE64.encode(body.bytes())),
        }
        fields
    }

    /// Returns the body. If none of the three fields is set, it is empty.
    ///
    /// Fails if more than one is set, if `body_base64` is not base64, or if the body or its content
    /// type is too long.
    pub fn into_body(self) -> Result<Body, FieldError> {
        let BodyJson { body, body_text, body_base64, content_type } = self;
        let (field, bytes, default) = match (body, body_text, body_base64) {
            (None, None, None) => ("body", Vec::new(), OCTETS),
            (Some(json), None, None) => {
                ("body", Box::<str>::from(json).into_string().into_bytes(), JSON)
            }
            (None, Some(text), None) => ("body_text", text.into_bytes(), TEXT),
            (None, None, Some(text)) => {
                let bytes = BASE64.decode(&text).map_err(|error| FieldError {
                    field: "body_base64",
                    value: quote(&text),
                    reason: FieldErrorReason::Format(format!("not valid base64: {error}")),
                })?;
                ("body_base64", bytes, OCTETS)
            }
            (body, text, base64) => {
                let json = body.map(|json| shorten(json.get()));
                let value = json.or(text.or(base64).as_deref().map(quote)).unwrap_or_default();
                let reason = "only one of body, body_text and body_base64 is allowed".to_owned();
                let reason = FieldErrorReason::Format(reason);
                return Err(FieldError { field: "body", value, reason });
            }
        };
        let content_type = content_type.as_deref().unwrap_or(default);
        let len = bytes.len();
        Body::new(bytes, content_type).map_err(|invalid| {
            let (field, value) = match Body::new([], content_type) {
                Ok(_) => (field, format!("{len} bytes")),
                Err(_) => ("content_type", quote(content_type)),
            };
            FieldError { field, value, reason: FieldErrorReason::Invalid(invalid) }
        })
    }
}

/// Returns the body as a JSON value, if that keeps all of its bytes: white space around the value
/// would be lost.
fn as_json(body: &Body) -> Option<&RawValue> {
    if body.content_type() != JSON {
        return None;
    }
    let json: &RawValue = serde_json::from_slice(body.bytes()).ok()?;
    (json.get().len() == body.len()).then_some(json)
}

/// The value of a JSON field is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {reason}")]
pub struct FieldError {
    /// The name of the field.
    pub field: &'static str,
    /// The value, or its beginning if it is long, or its length if it is a body.
    pub value: String,
    /// What is wrong with the value.
    pub reason: FieldErrorReason,
}

/// What is wrong with the value of a JSON field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldErrorReason {
    /// The value does not have the format of the field.
    #[error("{0}")]
    Format(String),
    /// The value goes beyond a limit.
    #[error(transparent)]
    Invalid(Invalid),
}

const STATES: [(JobState, &str); 4] = [
    (JobState::Waiting, "waiting"),
    (JobState::Ready, "ready"),
    (JobState::Leased, "leased"),
    (JobState::Dead, "dead"),
];

/// Returns the name of a state in JSON: `waiting`, `ready`, `leased` or `dead`.
pub fn state_name(state: JobState) -> &'static str {
    STATES[state as usize].1
}

/// Returns the state with this name in JSON, or `None` if there is none.
pub fn state_by_name(name: &str) -> Option<JobState> {
    STATES.into_iter().find(|(_, known)| *known == name).map(|(state, _)| state)
}

/// Returns the first 100 characters of a value, for an error message.
pub(crate) fn shorten(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// Returns a shortened text in quotation marks, for an error message.
pub(crate) fn quote(text: &str) -> String {
    format!("{:?}", shorten(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_and_its_name_belong_together() {
        for (state, name) in STATES {
            assert_eq!(state_name(state), name);
            assert_eq!(state_by_name(name), Some(state));
        }
        assert_eq!(state_by_name("dying"), None);
    }
}
