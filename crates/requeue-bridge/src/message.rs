//! [`Message`]: what brokers have in common, and how a job carries it.
//!
//! A job has a body and a content type, and no headers. The bridge therefore stores a message as the body of
//! its job: one line of JSON with key, content type, headers and properties, then the payload as it was. The
//! content type of such a job is [`MESSAGE_TYPE`]. When the job is due, the message is published again as it
//! came in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use requeue_jobs::{Body, Invalid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The content type of a job whose body is a whole message: a line of JSON that describes it, and its payload.
pub const MESSAGE_TYPE: &str = "application/vnd.requeue.message";

/// The header with the reason for which a message was rejected.
const ERROR: &str = "requeue-error";

/// The content type of a payload that has none.
const OCTETS: &str = "application/octet-stream";

/// A message of any broker.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Message {
    /// The content.
    pub payload: Vec<u8>,
    /// The type of the content, if the publisher specified it.
    pub content_type: Option<String>,
    /// What the broker routes or partitions by: the routing key of RabbitMQ, the subject of NATS, or the key
    /// of Kafka.
    pub key: Option<Vec<u8>>,
    /// The headers, in their order. A name may occur several times.
    pub headers: Vec<(String, HeaderValue)>,
    /// What only one broker has: for RabbitMQ, the properties of the message by name.
    pub properties: BTreeMap<String, HeaderValue>,
}

/// The value of a header. NATS knows only texts, Kafka and Redis only bytes, and RabbitMQ has types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum HeaderValue {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<HeaderValue>),
    /// A number that is not an integer.
    Float {
        /// The number.
        float: f64,
    },
    /// Bytes that are not UTF-8.
    Bytes {
        /// The bytes in base64.
        base64: String,
    },
    /// A time.
    Timestamp {
        /// Seconds since 1970.
        timestamp: u64,
    },
    /// Named values.
    Table {
        /// The names with their values.
        table: Vec<(String, HeaderValue)>,
    },
}

impl HeaderValue {
    /// Returns a text if the bytes are UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => HeaderValue::Text(text.to_owned()),
            Err(_) => HeaderValue::Bytes { base64: STANDARD.encode(bytes) },
        }
    }

    /// Returns the bytes of the value, for brokers without types: a list or a table as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            HeaderValue::Null => Vec::new(),
            HeaderValue::Text(text) => text.clone().into_bytes(),
            HeaderValue::Bytes { base64 } => STANDARD.decode(base64).unwrap_or_default(),
            HeaderValue::Float { float } => float.to_string().into_bytes(),
            HeaderValue::Timestamp { timestamp } => timestamp.to_string().into_bytes(),
            other => serde_json::to_vec(other).unwrap_or_default(),
        }
    }

    /// Returns the value as a text, for brokers whose headers are texts.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.to_bytes()).into_owned()
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        HeaderValue::Text(text.to_owned())
    }
}

/// The line of JSON before the payload.
#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<HeaderValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, HeaderValue)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, HeaderValue>,
}

impl Message {
    /// Returns a message with this payload and nothing else.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Message { payload: payload.into(), ..Message::default() }
    }

    /// Returns the value of the first header with this name. Upper and lower case are the same: client
    /// libraries differ in how they write names.
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        let mut headers = self.headers.iter();
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns this message for the place for rejected messages: as it was, with the reason in the header
    /// `requeue-error`.
    pub(crate) fn rejected(&self, reason: &str) -> Message {
        self.with_only(ERROR, HeaderValue::from(reason))
    }

    /// Returns this message with a header, and without those of the publisher that have the same name in upper or
    /// lower case: whoever reads the first one would read those.
    pub(crate) fn with_only(&self, name: &str, value: HeaderValue) -> Message {
        let mut message = self.clone();
        // As for the headers of jobs, spaces make no other name: NATS removes them.
        message.headers.retain(|(found, _)| !found.trim().eq_ignore_ascii_case(name));
        message.headers.push((name.to_owned(), value));
        message
    }

    /// Returns the whole message as the body of a job. Fails if it is too long.
    ///
    /// ```
    /// use requeue_bridge::{MESSAGE_TYPE, Message};
    ///
    /// let mut message = Message::new(*b"{}");
    /// message.headers.push(("tenant".to_owned(), "a".into()));
    /// let body = message.to_body()?;
    /// assert_eq!(body.content_type(), MESSAGE_TYPE);
    /// assert_eq!(body.bytes(), b"{\"headers\":[[\"tenant\",\"a\"]]}\n{}");
    /// assert_eq!(Message::from_body(&body), Ok(message));
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn to_body(&self) -> Result<Body, Invalid> {
        let head = Head {
            key: self.key.as_deref().map(HeaderValue::from_bytes),
            content_type: self.content_type.clone(),
            headers: self.headers.clone(),
            properties: self.properties.clone(),
        };
        let mut bytes = serde_json::to_vec(&head).expect("texts and numbers are valid JSON");
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.payload);
        Body::new(bytes, MESSAGE_TYPE)
    }

    /// Returns the payload and its type as the body of a job, without key, headers and properties. Fails if
    /// it is too long.
    pub fn to_plain_body(&self) -> Result<Body, Invalid> {
        Body::new(self.payload.clone(), self.content_type.as_deref().unwrap_or(OCTETS))
    }

    /// Returns the message of a job: the one that [`to_body`](Self::to_body) stored, or for other content
    /// types one with this payload. Fails with a text for people if a stored message cannot be read.
    pub fn from_body(body: &Body) -> Result<Self, String> {
        if body.content_type() != MESSAGE_TYPE {
            let content_type = Some(body.content_type().to_owned());
            return Ok(Message { content_type, ..Message::new(body.bytes()) });
        }
        let bytes = body.bytes();
        let wrong = |reason: &str| format!("the body is not a {MESSAGE_TYPE}: {reason}");
        let end =
            bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| wrong("it has no line"))?;
        let head: Head =
            serde_json::from_slice(&bytes[..end]).map_err(|error| wrong(&error.to_string()))?;
        Ok(Message {
            payload: bytes[end + 1..].to_vec(),
            content_type: head.content_type,
            key: head.key.as_ref().map(HeaderValue::to_bytes),
            headers: head.headers,
            properties: head.properties,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_stored_as_it_is() {
        let table =
            vec![("a".to_owned(), HeaderValue::Int(-1)), ("b".to_owned(), HeaderValue::Null)];
        let mut message = Message::new(*b"\n\xff\n");
        message.content_type = Some("text/plain".to_owned());
        message.key = Some(vec![0xff, 0]);
        message.headers = vec![
            ("x".to_owned(), "é\n".into()),
            ("x".to_owned(), HeaderValue::Bool(true)),
            ("y".to_owned(), HeaderValue::from_bytes(&[0xff])),
            ("z".to_owned(), HeaderValue::Table { table }),
            ("l".to_owned(), HeaderValue::List(vec![HeaderValue::Float { float: 1.5 }])),
            ("t".to_owned(), HeaderValue::Timestamp { timestamp: 7 }),
        ];
        message.properties.insert("priority".to_owned(), HeaderValue::Int(3));
        assert_eq!(Message::from_body(&message.to_body().unwrap()), Ok(message));
    }

    #[test]
    fn the_reason_of_a_rejection_is_the_only_one() {
        let mut message = Message::new(*b"x");
        for name in ["requeue-error", "Requeue-Error", " requeue-error", "requeue-delay"] {
            message.headers.push((name.to_owned(), "forged".into()));
        }
        let rejected = message.rejected("too long");
        let headers = [("requeue-delay", "forged"), ("requeue-error", "too long")];
        let headers = headers.map(|(name, value)| (name.to_owned(), HeaderValue::from(value)));
        assert_eq!(rejected.headers, headers);
        assert_eq!(rejected.payload, b"x");
    }

    #[test]
    fn a_body_of_another_type_is_a_payload() {
        let body = Body::new(*b"{}", "application/json").unwrap();
        let message = Message::from_body(&body).unwrap();
        assert_eq!(
            (&*message.payload, message.content_type.as_deref()),
            (&b"{}"[..], Some("application/json"))
        );
        for bytes in [&b""[..], b"{}", b"x\n", b"{\"headers\":1}\n"] {
            let body = Body::new(bytes, MESSAGE_TYPE).unwrap();
            assert!(Message::from_body(&body).unwrap_err().contains("is not a"), "{bytes:?}");
        }
    }
}
