//! The key, headers and payload of Kafka's records.

use crate::message::{HeaderValue, Message};
use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The header with the id of a message, which is the same for every attempt to deliver it.
pub(super) const MESSAGE_ID: &str = "requeue-message-id";

/// The header with the type of the payload.
const CONTENT_TYPE: &str = "content-type";

/// The property of a message whose record has no payload: in a compacted topic, it deletes its key.
const TOMBSTONE: &str = "tombstone";

/// Returns the message of a record.
pub(super) fn message(record: &BorrowedMessage<'_>) -> Message {
    let mut message = Message::new(record.payload().unwrap_or_default());
    message.key = record.key().map(<[u8]>::to_vec);
    if let Some(found) = record.headers() {
        message.headers = headers(found);
    }
    let content_type = message.header(CONTENT_TYPE).map(HeaderValue::to_text);
    message.content_type = content_type.filter(|text| !text.is_empty());
    if record.payload().is_none() {
        message.properties.insert(TOMBSTONE.to_owned(), HeaderValue::Bool(true));
    }
    message
}

fn headers(found: &impl Headers) -> Vec<(String, HeaderValue)> {
    let header = |n| {
        // The library panics if a name is not UTF-8. Kafka requires it, and brokers do not check it.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let header = found.try_get(n)?;
            let value = header.value.map_or(HeaderValue::Null, HeaderValue::from_bytes);
            Some((header.key.to_owned(), value))
        }));
        read.unwrap_or_else(|_| {
            tracing::warn!("a header was left out, because its name is not UTF-8");
            None
        })
    };
    (0..found.count()).filter_map(header).collect()
}

/// Returns the payload of the record: `None` if it deletes its key.
pub(super) fn payload(message: &Message) -> Option<&[u8]> {
    let is_tombstone = message.properties.get(TOMBSTONE) == Some(&HeaderValue::Bool(true));
    (!is_tombstone || !message.payload.is_empty()).then_some(&*message.payload)
}

/// Returns the headers of the record: those of the message, its content type, and its id if it is published for a
/// job.
pub(super) fn record_headers(message: &Message, id: Option<&str>) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 2);
    for (name, value) in &message.headers {
        let bytes = (*value != HeaderValue::Null).then(|| value.to_bytes());
        headers = headers.insert(Header { key: name, value: bytes.as_ref() });
    }
    if let Some(content_type) = &message.content_type
        && message.header(CONTENT_TYPE).is_none()
    {
        headers = headers.insert(Header { key: CONTENT_TYPE, value: Some(content_type) });
    }
    match id {
        Some(id) => headers.insert(Header { key: MESSAGE_ID, value: Some(id) }),
        None => headers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &Message, id: Option<&str>) -> Vec<(String, HeaderValue)> {
        headers(&record_headers(message, id))
    }

    #[test]
    fn headers_survive() {
        let mut message = Message::new(*b"x");
        message.headers = vec![
            ("x".to_owned(), "1".into()),
            ("x".to_owned(), "2".into()),
            ("empty".to_owned(), "".into()),
            ("null".to_owned(), HeaderValue::Null),
            ("bytes".to_owned(), HeaderValue::from_bytes(&[0xff])),
        ];
        assert_eq!(of(&message, None), message.headers);
        let mut expected = message.headers.clone();
        expected.push((MESSAGE_ID.to_owned(), "kind/id/1".into()));
        assert_eq!(of(&message, Some("kind/id/1")), expected);
    }

    #[test]
    fn a_content_type_is_a_header() {
        let mut message = Message::new(*b"{}");
        message.content_type = Some("application/json".to_owned());
        let header = (CONTENT_TYPE.to_owned(), "application/json".into());
        assert_eq!(of(&message, None), [header]);
        message.headers.push(("Content-Type".to_owned(), "text/plain".into()));
        assert_eq!(of(&message, None), message.headers);
    }

    #[test]
    fn only_a_tombstone_has_no_payload() {
        let mut message = Message::new(*b"");
        assert_eq!(payload(&message), Some(&b""[..]));
        message.properties.insert(TOMBSTONE.to_owned(), HeaderValue::Bool(true));
        assert_eq!(payload(&message), None);
    }
}
