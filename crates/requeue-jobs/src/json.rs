//! The parts of a job's JSON form that the HTTP API and the [export format](crate::transfer) share:
//! how a body is written, the names of states, and errors that name a field. Needs the feature
//! `serde`.
//!
//! The two formats write times differently (`due` in RFC 3339, `due_ms` in milliseconds), so each
//! has its own list of fields.

use crate::content::{Envelope, Head, HeadFields};
use crate::error::Invalid;
use crate::job::{Body, JobState};
use crate::limits::{MAX_JSON_DEPTH, MAX_JSON_NUMBER_LEN};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
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
///   around it that common parsers can read ([`check_portable`]);
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
            (None, None, Some(text)) => ("body_base64", from_base64("body_base64", &text)?, OCTETS),
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

/// The fields of a [`Head`], as JSON: the one form in which exports, the HTTP API and Postgres contain them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadJson {
    /// What a protocol has attached to the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeJson>,
}

/// An [`Envelope`] as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeJson {
    /// The content type that names the protocol.
    #[serde(rename = "type")]
    pub of_type: String,
    /// The bytes in base64, with padding.
    pub base64: String,
}

impl From<&Head> for HeadJson {
    fn from(head: &Head) -> Self {
        let HeadFields { envelope } = &**head;
        let envelope = envelope.as_ref().map(|envelope| EnvelopeJson {
            of_type: envelope.of_type().to_owned(),
            base64: BASE64.encode(envelope.bytes()),
        });
        HeadJson { envelope }
    }
}

impl HeadJson {
    /// Returns the head. Fails if a field has an invalid value.
    pub fn into_head(self) -> Result<Head, FieldError> {
        let HeadJson { envelope } = self;
        let envelope = envelope.map(EnvelopeJson::into_envelope).transpose()?;
        Ok(HeadFields { envelope }.into())
    }
}

impl EnvelopeJson {
    fn into_envelope(self) -> Result<Envelope, FieldError> {
        let EnvelopeJson { of_type, base64 } = self;
        let bytes = from_base64("envelope.base64", &base64)?;
        let len = bytes.len();
        Envelope::new(bytes, &*of_type).map_err(|invalid| {
            let (field, value) = match Envelope::new([], &*of_type) {
                Ok(_) => ("envelope.base64", format!("{len} bytes")),
                Err(_) => ("envelope.type", quote(&of_type)),
            };
            FieldError { field, value, reason: FieldErrorReason::Invalid(invalid) }
        })
    }
}

fn from_base64(field: &'static str, text: &str) -> Result<Vec<u8>, FieldError> {
    BASE64.decode(text).map_err(|error| FieldError {
        field,
        value: quote(text),
        reason: FieldErrorReason::Format(format!("not valid base64: {error}")),
    })
}

/// Returns the body as a JSON value, if that keeps all of its bytes: white space around the value
/// would be lost.
fn as_json(body: &Body) -> Option<&RawValue> {
    if body.content_type() != JSON {
        return None;
    }
    let json: &RawValue = serde_json::from_slice(body.bytes()).ok()?;
    (json.get().len() == body.len() && check_portable(json).is_ok()).then_some(json)
}

/// Checks that common JSON parsers can read a value.
///
/// A client parses a response as a whole: a body that its parser rejects would make it lose the other
/// jobs of the response, too. Therefore such a body is written as text or base64. Fails if
///
/// - arrays and objects are nested deeper than [`MAX_JSON_DEPTH`];
/// - a number is longer than [`MAX_JSON_NUMBER_LEN`], or larger than a 64-bit float can be;
/// - a string contains half of a surrogate pair (`\ud800`), which is not a character.
///
/// ```
/// use requeue_jobs::json::check_portable;
///
/// assert!(check_portable(serde_json::from_str(r#"{"a": [1e308, "\ud83d\ude00"]}"#)?).is_ok());
/// for json in ["1e309", &"9".repeat(101), r#""\ud83d""#, &("[".repeat(61) + &"]".repeat(61))] {
///     assert!(check_portable(serde_json::from_str(json)?).is_err());
/// }
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn check_portable(json: &RawValue) -> Result<(), FieldErrorReason> {
    let text = json.get().as_bytes();
    let (mut depth, mut at) = (0, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    let (what, limit) = ("levels of nesting in JSON", MAX_JSON_DEPTH);
                    let too_many = Invalid::TooMany { what, count: depth, limit };
                    return Err(FieldErrorReason::Invalid(too_many));
                }
            }
            b']' | b'}' => depth -= 1,
            b'"' => at += string_len(&text[at + 1..])?,
            b'-' | b'0'..=b'9' => {
                at += number_len(&json.get()[at..])?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Checks the string that a text of valid JSON begins with, after its first quotation mark. Returns
/// its length with the second.
fn string_len(text: &[u8]) -> Result<usize, FieldErrorReason> {
    let code = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    loop {
        match text.get(at) {
            Some(b'"') | None => return Ok(at + 1),
            Some(b'\\') => match (code(at), code(at + 6)) {
                (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
                (Some(half @ 0xD800..=0xDFFF), _) => {
                    let reason =
                        format!("\\u{half:x} is half of a surrogate pair, not a character");
                    return Err(FieldErrorReason::Format(reason));
                }
                (Some(_), _) => at += 6,
                (None, _) => at += 2,
            },
            Some(_) => at += 1,
        }
    }
}

/// Checks the number that a text of valid JSON begins with. Returns its length.
fn number_len(text: &str) -> Result<usize, FieldErrorReason> {
    let part = |byte: u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let len = text.bytes().position(|byte| !part(byte)).unwrap_or(text.len());
    if len > MAX_JSON_NUMBER_LEN {
        let (field, limit) = ("a number in JSON", MAX_JSON_NUMBER_LEN);
        return Err(FieldErrorReason::Invalid(Invalid::TooLong { field, len, limit }));
    }
    let number = &text[..len];
    let is_large = |number: &str| number.parse().is_ok_and(f64::is_infinite);
    if number.contains(['e', 'E']) && is_large(number) {
        let reason = format!("the number {number} is larger than a 64-bit float can be");
        return Err(FieldErrorReason::Format(reason));
    }
    Ok(len)
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

const STATES: [(JobState, &str); 5] = [
    (JobState::Waiting, "waiting"),
    (JobState::Ready, "ready"),
    (JobState::Leased, "leased"),
    (JobState::Dead, "dead"),
    (JobState::Done, "done"),
];

/// Returns the name of a state in JSON: `waiting`, `ready`, `leased`, `dead` or `done`.
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
    fn a_body_that_parsers_reject_is_written_as_text() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let objects = |depth: usize| r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
        let (long, longer) = ("9".repeat(100), "-".to_owned() + &"9".repeat(100));
        for (json, portable) in [
            (nested(60), true),
            (nested(61), false),
            (nested(100_000), false),
            (objects(60), true),
            (objects(61), false),
            // Not nested, but many, and brackets in a string.
            (format!("[{}]", vec!["[]"; 1000].join(",")), true),
            (format!("[\"{}\"]", "[".repeat(1000)), true),
            (format!(r#"["\"{}"]"#, "[".repeat(1000)), true),
            (long.clone(), true),
            (longer.clone(), false),
            (format!(r#"{{"a":[1,{longer} ]}}"#), false),
            (format!("\"{longer}\""), true),
            ("9".repeat(5000), false),
            ("1e308".to_owned(), true),
            ("1E400".to_owned(), false),
            ("[-1e+999999]".to_owned(), false),
            ("[1e-999999, 0e999999]".to_owned(), true),
            (r#""\ud83d\ude00 \u0000 \\ud800""#.to_owned(), true),
            (r#"{"a\ud800":1}"#.to_owned(), false),
            (r#""\ud800\n""#.to_owned(), false),
            (r#""\ud800\ud800\udc00""#.to_owned(), false),
            (r#""\uDC00""#.to_owned(), false),
        ] {
            let body = Body::new(json.clone().into_bytes(), JSON).expect("a valid body");
            for fields in [BodyJson::new(&body), BodyJson::on_one_line(&body)] {
                assert_eq!(fields.body.is_some(), portable, "{}", shorten(&json));
                assert_eq!(fields.body_text.is_some(), !portable, "{}", shorten(&json));
                // What is written can be parsed, also inside of a response, and is the same body.
                let response = serde_json::json!([[[[fields.body, fields.body_text]]]]).to_string();
                serde_json::from_str::<serde_json::Value>(&response).expect("it can be parsed");
                assert_eq!(fields.into_body().expect("a body"), body);
            }
        }
    }

    #[test]
    fn a_state_and_its_name_belong_together() {
        for (state, name) in STATES {
            assert_eq!(state_name(state), name);
            assert_eq!(state_by_name(name), Some(state));
        }
        assert_eq!(state_by_name("dying"), None);
    }
}
