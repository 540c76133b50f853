//! The headers of NATS messages.

use crate::message::{HeaderValue, Message};
use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue as NatsValue};

/// Headers that begin with this are instructions to the server: deduplication, expected sequences, schedules.
/// They are about the message that came in, not about the one that is published.
const CONTROL_PREFIX: &str = "nats-";

/// The header of the content type, as HTTP spells it.
const CONTENT_TYPE: &str = "Content-Type";

/// Returns a message from its parts.
pub(super) fn message(subject: &str, headers: Option<&HeaderMap>, payload: Vec<u8>) -> Message {
    let mut message = Message::new(payload);
    message.key = Some(subject.as_bytes().to_vec());
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        for value in values {
            message.headers.push((name.to_string(), HeaderValue::from(value.as_str())));
        }
    }
    // A map has no order: without this, the same message would be stored in different ways.
    message.headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    message.content_type = message.header(CONTENT_TYPE).map(HeaderValue::to_text);
    message
}

/// Returns the headers of a message that is published. Line breaks in values become spaces, and names that
/// NATS does not accept are left out.
pub(super) fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type =
        message.content_type.iter().filter(|_| message.header(CONTENT_TYPE).is_none());
    let content_type = content_type.map(|text| (CONTENT_TYPE, text.clone()));
    let own = message.headers.iter().map(|(name, value)| (name.as_str(), value.to_text()));
    for (name, value) in own.chain(content_type) {
        if name.to_ascii_lowercase().starts_with(CONTROL_PREFIX) {
            continue;
        }
        let value = value.replace(['\r', '\n'], " ");
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<NatsValue>()) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_except_those_for_the_server() {
        let mut map = HeaderMap::new();
        map.append("tenant", "b");
        map.append("tenant", "a");
        map.append("Content-Type", "text/plain");
        map.append("Nats-Msg-Id", "m-1");
        let stored = message("orders.eu", Some(&map), b"x".to_vec());
        assert_eq!(stored.content_type.as_deref(), Some("text/plain"));
        assert_eq!(stored.header("nats-msg-id"), Some(&HeaderValue::from("m-1")));
        let content = stored.to_content().unwrap();
        let after = headers(&Message::from_content(&content).unwrap());
        let values: Vec<_> = after.get_all("tenant").map(|value| value.as_str()).collect();
        assert_eq!((values, after.len()), (vec!["b", "a"], 2));
    }

    #[test]
    fn headers_that_nats_does_not_accept_are_changed_or_left_out() {
        let mut message = Message::new(*b"x");
        message.content_type = Some("application/json".to_owned());
        message.headers.push(("a b:".to_owned(), "x".into()));
        message.headers.push(("text".to_owned(), "a\r\nb".into()));
        let headers = headers(&message);
        assert_eq!(headers.get("text").unwrap().as_str(), "a  b");
        assert_eq!(headers.get("Content-Type").unwrap().as_str(), "application/json");
        assert_eq!(headers.len(), 2);
    }
}
