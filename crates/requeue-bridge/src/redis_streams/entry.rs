//! The entries of a stream: fields with values, in an order.
//!
//! One field is the payload, by default the one with the name `payload`. The others are the headers.

use crate::message::{HeaderValue, Message};
use redis::Value;

/// The field with the payload, unless the URL names another one.
pub(super) const PAYLOAD: &str = "payload";

/// The field with the content type.
const CONTENT_TYPE: &str = "content-type";

/// The property of a message with the name of the field that was its payload.
const PAYLOAD_FIELD: &str = "payload_field";

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Such as `1796112000000-0`: milliseconds since 1970 and a number, if Redis has assigned it.
    pub(super) id: String,
    /// Empty if the entry was deleted and is only known to have been delivered.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Returns the message. `payload` is the name of the field with the payload. Without such a field, the
    /// payload is empty.
    pub(super) fn into_message(self, payload: &str) -> Message {
        let mut message = Message::new([]);
        for (name, value) in self.fields {
            let name = String::from_utf8_lossy(&name).into_owned();
            let is_first = !message.properties.contains_key(PAYLOAD_FIELD);
            if name == payload && is_first {
                message.properties.insert(PAYLOAD_FIELD.to_owned(), HeaderValue::Text(name));
                message.payload = value;
            } else if name.eq_ignore_ascii_case(CONTENT_TYPE) && message.content_type.is_none() {
                message.content_type = Some(String::from_utf8_lossy(&value).into_owned());
            } else {
                message.headers.push((name, HeaderValue::from_bytes(&value)));
            }
        }
        message
    }
}

/// Returns the fields of a message that is added to a stream. A message that came from a stream without a
/// payload gets none.
pub(super) fn fields(message: &Message) -> Vec<(String, Vec<u8>)> {
    let own = match message.properties.get(PAYLOAD_FIELD) {
        Some(HeaderValue::Text(name)) => name.as_str(),
        _ => PAYLOAD,
    };
    let mut fields = Vec::new();
    if !message.payload.is_empty() || message.properties.contains_key(PAYLOAD_FIELD) {
        fields.push((own.to_owned(), message.payload.clone()));
    }
    if let Some(content_type) = &message.content_type {
        fields.push((CONTENT_TYPE.to_owned(), content_type.clone().into_bytes()));
    }
    fields.extend(message.headers.iter().map(|(name, value)| (name.clone(), value.to_bytes())));
    fields
}

/// Returns the entries of a response, or `None` if it has another form.
pub(super) fn entries(value: Value) -> Option<Vec<Entry>> {
    match value {
        Value::Array(entries) => entries.into_iter().map(entry).collect(),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}

/// Returns the entries of the only stream in the response of `XREADGROUP`. There are none after a timeout.
pub(super) fn entries_of_stream(value: Value) -> Option<Vec<Entry>> {
    match value {
        Value::Nil => Some(Vec::new()),
        Value::Array(mut streams) => match streams.pop()? {
            Value::Array(mut stream) if stream.len() == 2 => entries(stream.pop()?),
            _ => None,
        },
        _ => None,
    }
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(pair) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(pair).ok()?;
    let id = String::from_utf8(bytes(id)?).ok()?;
    let values = match fields {
        Value::Nil => Vec::new(),
        Value::Array(values) => values.into_iter().map(bytes).collect::<Option<Vec<_>>>()?,
        _ => return None,
    };
    let fields = values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    Some(Entry { id, fields })
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn pairs(fields: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        fields
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_response_is_read() {
        let fields = Value::Array(vec![text("payload"), text("{}"), text("a"), text("1")]);
        let found = Value::Array(vec![
            Value::Array(vec![text("7-0"), fields]),
            Value::Array(vec![text("8-0"), Value::Nil]),
        ]);
        let expected = vec![
            Entry { id: "7-0".to_owned(), fields: pairs(&[("payload", "{}"), ("a", "1")]) },
            Entry { id: "8-0".to_owned(), fields: Vec::new() },
        ];
        let stream = Value::Array(vec![text("orders"), found]);
        assert_eq!(entries_of_stream(Value::Array(vec![stream])), Some(expected));
        assert_eq!(entries_of_stream(Value::Nil), Some(Vec::new()));
        for wrong in [
            Value::Int(1),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![text("x"), text("y")]),
        ] {
            assert_eq!(entries(Value::Array(vec![wrong])), None);
        }
    }

    #[test]
    fn an_entry_survives() {
        let before =
            pairs(&[("data", "{}"), ("content-type", "text/plain"), ("a", "1"), ("a", "2")]);
        let message = Entry { id: String::new(), fields: before.clone() }.into_message("data");
        let after = Message::from_content(&message.to_content().unwrap()).unwrap();
        let after: Vec<_> =
            fields(&after).into_iter().map(|(name, value)| (name.into_bytes(), value)).collect();
        assert_eq!(after, before);
        let without =
            Entry { id: String::new(), fields: pairs(&[("a", "1")]) }.into_message(PAYLOAD);
        assert_eq!(fields(&without), [("a".to_owned(), b"1".to_vec())]);
    }
}
