//! Bodies, in three ways: JSON as JSON, text as text, the rest in base64.

use crate::problem::{Problem, Sort};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use requeue_jobs::{Body, Invalid};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const OCTETS: &str = "application/octet-stream";

/// A body and what it is, in the fields that JSON has for it. At most one of the three is there.
///
/// ```
/// use requeue_http::wire::BodyText;
/// use requeue_jobs::Body;
///
/// let body = Body::new(*br#"{"order": 42}"#, "application/json")?;
/// let text = BodyText::from(&body);
/// assert_eq!(text.body.as_ref().map(|json| json.get()), Some(r#"{"order": 42}"#));
/// assert_eq!(text.read("")?, body);
///
/// let body = Body::octets([0xFF])?;
/// let text = BodyText::from(&body);
/// assert_eq!(text.body_base64.as_deref(), Some("/w=="));
/// assert_eq!(text.read("")?, body);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BodyText {
    /// JSON, as it was written.
    pub body: Option<Box<RawValue>>,
    /// Text.
    pub body_text: Option<String>,
    /// Any bytes.
    pub body_base64: Option<String>,
    /// What it is.
    pub content_type: Option<String>,
}

impl From<&Body> for BodyText {
    /// In the way in which it is read as the very same bytes.
    fn from(body: &Body) -> Self {
        let content_type = Some(body.content_type().to_owned());
        let mut text = BodyText { content_type, ..BodyText::default() };
        let utf8 = || str::from_utf8(body.bytes()).ok();
        if let Some(json) = as_json(body) {
            text.body = Some(json);
        } else if let Some(utf8) = utf8().filter(|_| body.content_type().starts_with("text/")) {
            text.body_text = Some(utf8.to_owned());
        } else if !body.is_empty() || body.content_type() != OCTETS {
            text.body_base64 = Some(BASE64.encode(body.bytes()));
        }
        text
    }
}

/// JSON with nothing around it, which would be lost.
fn as_json(body: &Body) -> Option<Box<RawValue>> {
    if body.content_type() != JSON {
        return None;
    }
    let json: &RawValue = serde_json::from_slice(body.bytes()).ok()?;
    (json.get().len() == body.len()).then(|| json.to_owned())
}

impl BodyText {
    /// The body. None of the three is an empty one. `path` is what the names of fields begin with.
    pub fn read(self, path: &str) -> Result<Body, Problem> {
        let BodyText { body, body_text, body_base64, content_type } = self;
        let (field, bytes, default) = match (body, body_text, body_base64) {
            (None, None, None) => ("body", Vec::new(), OCTETS),
            (Some(json), None, None) => {
                ("body", Box::<str>::from(json).into_string().into_bytes(), JSON)
            }
            (None, Some(text), None) => ("body_text", text.into_bytes(), TEXT),
            (None, None, Some(base64)) => {
                let bytes = BASE64.decode(&base64).map_err(|error| {
                    let detail = format!("this is no base64: {error}");
                    Problem::new(Sort::Invalid, detail).at(format!("{path}body_base64"))
                })?;
                ("body_base64", bytes, OCTETS)
            }
            _ => {
                let detail = "only one of body, body_text and body_base64 may be there";
                return Err(Problem::new(Sort::Invalid, detail).at(format!("{path}body")));
            }
        };
        let content_type = content_type.as_deref().unwrap_or(default);
        Body::new(bytes, content_type).map_err(|invalid| {
            let is_type = matches!(invalid, Invalid::TooLong { field: "the content type", .. });
            let field = if is_type { "content_type" } else { field };
            Problem::from(invalid).at(format!("{path}{field}"))
        })
    }
}

/// A field of any JSON: `null` is a value, too.
pub(super) fn any_json<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}
