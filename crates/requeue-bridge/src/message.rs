//! [`Message`]: what brokers have in common, and how a job carries it.
//!
//! The payload of a message is the body of its job. Key, headers and properties are in the envelope of the
//! job, as JSON. When the job is due, the message is published again as it came in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use requeue_jobs::limits::MAX_CONTENT_TYPE_LEN;
use requeue_jobs::{Body, Content, Envelope, Invalid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The type of the envelope: JSON that describes the message apart from its payload.
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

/// What the envelope contains.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
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

    /// Returns the message as the content of a job. Fails if it is too long.
    ///
    /// ```
    /// use requeue_bridge::{MESSAGE_TYPE, Message};
    ///
    /// let mut message = Message::new(*b"{}");
    /// message.headers.push(("tenant".to_owned(), "a".into()));
    /// let content = message.to_content()?;
    /// assert_eq!(content.body.bytes(), b"{}");
    /// let envelope = content.head.envelope.as_ref().expect("there is a header");
    /// assert_eq!(envelope.of_type(), MESSAGE_TYPE);
    /// assert_eq!(envelope.bytes(), b"{\"headers\":[[\"tenant\",\"a\"]]}");
    /// assert_eq!(Message::from_content(&content), Ok(message));
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn to_content(&self) -> Result<Content, Invalid> {
        let Message { payload, content_type, key, headers, properties } = self;
        // A content type that is too long for a body is only in the envelope.
        let short = content_type.as_deref().filter(|found| found.len() <= MAX_CONTENT_TYPE_LEN);
        let body = Body::new(payload.clone(), short.unwrap_or(OCTETS))?;
        let description = Description {
            key: key.as_deref().map(HeaderValue::from_bytes),
            content_type: content_type.clone(),
            headers: headers.clone(),
            properties: properties.clone(),
        };
        let bytes = serde_json::to_vec(&description).expect("texts and numbers are valid JSON");
        let head = Envelope::new(bytes, MESSAGE_TYPE)?.into();
        let content = Content { body, head };
        content.check()?;
        Ok(content)
    }

    /// Returns the message of a job: the one that [`to_content`](Self::to_content) stored. A job without an
    /// envelope of this type is a message with the payload and content type of its body. Fails with a text for
    /// people if an envelope cannot be read.
    pub fn from_content(content: &Content) -> Result<Self, String> {
        let Content { body, head } = content;
        let payload = body.bytes().to_vec();
        let Some(envelope) =
            head.envelope.as_ref().filter(|envelope| envelope.of_type() == MESSAGE_TYPE)
        else {
            let content_type = Some(body.content_type().to_owned());
            return Ok(Message { content_type, ..Message::new(payload) });
        };
        let description = serde_json::from_slice(envelope.bytes());
        let Description { key, content_type, headers, properties } = description
            .map_err(|error| format!("the envelope is not a {MESSAGE_TYPE}: {error}"))?;
        let key = key.as_ref().map(HeaderValue::to_bytes);
        Ok(Message { payload, content_type, key, headers, properties })
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
        assert_eq!(Message::from_content(&message.to_content().unwrap()), Ok(message.clone()));
        message.content_type = Some("x".repeat(200));
        assert_eq!(Message::from_content(&message.to_content().unwrap()), Ok(message));
        let plain = Message::new(*b"x");
        assert_eq!(Message::from_content(&plain.to_content().unwrap()), Ok(plain));
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
    fn a_job_without_an_envelope_of_the_bridge_is_a_payload() {
        let mut content = Content::from(Body::new(*b"{}", "application/json").unwrap());
        for of_type in [None, Some("application/x-other"), Some(MESSAGE_TYPE)] {
            let envelope =
                of_type.map(|of_type| Envelope::new(*b"{\"headers\":1}", of_type).unwrap());
            content.head = envelope.map(Into::into).unwrap_or_default();
            let message = Message::from_content(&content);
            if of_type == Some(MESSAGE_TYPE) {
                assert!(message.unwrap_err().contains("is not a"));
                continue;
            }
            let message = message.unwrap();
            let found = (&*message.payload, message.content_type.as_deref());
            assert_eq!(found, (&b"{}"[..], Some("application/json")));
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_an_error() {
        let mut message = Message::new(vec![0; 1 << 20]);
        message.headers.push(("x".to_owned(), HeaderValue::Text("x".repeat(16 << 10))));
        let error = message.to_content().unwrap_err().to_string();
        assert!(error.contains("the body with its envelope has"), "{error}");
    }
}
