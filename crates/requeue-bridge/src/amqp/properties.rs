//! The properties and headers of AMQP messages.

use crate::message::{HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use std::collections::BTreeMap;

/// The longest short string, in bytes.
const MAX_SHORT: usize = 255;

/// The deepest header that is kept. RabbitMQ does not limit it, and JSON parsers do.
const MAX_DEPTH: usize = 16;

/// Messages with this mode are on disk. Publishers that specify none get messages that a restart loses.
const PERSISTENT: u8 = 2;

/// Returns the message of a delivery.
pub(super) fn message(
    routing_key: &str,
    properties: &BasicProperties,
    payload: Vec<u8>,
) -> Message {
    let mut kept = BTreeMap::new();
    let text =
        |value: &Option<ShortString>| value.as_ref().map(|text| HeaderValue::from(text.as_str()));
    let number = |value: &Option<u8>| value.map(|value| HeaderValue::Int(value.into()));
    let timestamp = properties.timestamp().map(|timestamp| HeaderValue::Timestamp { timestamp });
    // Not the user: RabbitMQ accepts only that of the connection.
    for (name, value) in [
        ("app_id", text(properties.app_id())),
        ("content_encoding", text(properties.content_encoding())),
        ("correlation_id", text(properties.correlation_id())),
        ("delivery_mode", number(properties.delivery_mode())),
        ("expiration", text(properties.expiration())),
        ("message_id", text(properties.message_id())),
        ("priority", number(properties.priority())),
        ("reply_to", text(properties.reply_to())),
        ("timestamp", timestamp),
        ("type", text(properties.kind())),
    ] {
        if let Some(value) = value {
            kept.insert(name.to_owned(), value);
        }
    }
    let headers =
        properties.headers().as_ref().map(|table| table_values(table, 0)).unwrap_or_default();
    let mut message = Message::new(payload);
    message.content_type = properties.content_type().as_ref().map(|text| text.as_str().to_owned());
    message.key = Some(routing_key.as_bytes().to_vec());
    message.headers = headers;
    message.properties = kept;
    message
}

/// Returns the properties of a message. `id` is its id if it has none, and with which a plugin of RabbitMQ
/// removes duplicates.
pub(super) fn properties(message: &Message, id: Option<&str>) -> BasicProperties {
    let text = |name: &str| match message.properties.get(name) {
        Some(HeaderValue::Text(text)) => short(text),
        _ => None,
    };
    let number = |name: &str| match message.properties.get(name) {
        Some(HeaderValue::Int(number)) => u8::try_from(*number).ok(),
        _ => None,
    };
    let mut table = field_table(&message.headers);
    let mut properties = BasicProperties::default()
        .with_delivery_mode(number("delivery_mode").unwrap_or(PERSISTENT));
    let message_id = text("message_id").or_else(|| id.and_then(short));
    if let Some(id) = id {
        table.insert("x-deduplication-header".into(), AMQPValue::LongString(id.into()));
    }
    properties = properties.with_headers(table);
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    let content_type = message.content_type.as_deref().and_then(short);
    let texts: [(Option<ShortString>, Set); 8] = [
        (text("app_id"), BasicProperties::with_app_id),
        (content_type, BasicProperties::with_content_type),
        (text("content_encoding"), BasicProperties::with_content_encoding),
        (text("correlation_id"), BasicProperties::with_correlation_id),
        (text("expiration"), BasicProperties::with_expiration),
        (message_id, BasicProperties::with_message_id),
        (text("reply_to"), BasicProperties::with_reply_to),
        (text("type"), BasicProperties::with_type),
    ];
    for (value, set) in texts {
        if let Some(value) = value {
            properties = set(properties, value);
        }
    }
    if let Some(priority) = number("priority") {
        properties = properties.with_priority(priority);
    }
    if let Some(HeaderValue::Timestamp { timestamp }) = message.properties.get("timestamp") {
        properties = properties.with_timestamp(*timestamp);
    }
    properties
}

/// Returns a short string, or `None` if the text is too long.
pub(super) fn short(text: &str) -> Option<ShortString> {
    (text.len() <= MAX_SHORT).then(|| text.into())
}

fn table_values(table: &FieldTable, depth: usize) -> Vec<(String, HeaderValue)> {
    let values = table.inner().iter();
    values.map(|(name, value)| (name.as_str().to_owned(), header_value(value, depth))).collect()
}

fn header_value(value: &AMQPValue, depth: usize) -> HeaderValue {
    if depth > MAX_DEPTH {
        return HeaderValue::Null;
    }
    match value {
        AMQPValue::Boolean(value) => HeaderValue::Bool(*value),
        AMQPValue::ShortShortInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::ShortShortUInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::ShortInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::ShortUInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::LongInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::LongUInt(value) => HeaderValue::Int((*value).into()),
        AMQPValue::LongLongInt(value) => HeaderValue::Int(*value),
        AMQPValue::Float(value) => HeaderValue::Float { float: (*value).into() },
        AMQPValue::Double(value) => HeaderValue::Float { float: *value },
        AMQPValue::DecimalValue(value) => {
            let float = f64::from(value.value) / 10f64.powi(value.scale.into());
            HeaderValue::Float { float }
        }
        AMQPValue::ShortString(text) => HeaderValue::from(text.as_str()),
        AMQPValue::LongString(text) => HeaderValue::from_bytes(text.as_bytes()),
        AMQPValue::FieldArray(values) => {
            let values = values.as_slice().iter();
            HeaderValue::List(values.map(|value| header_value(value, depth + 1)).collect())
        }
        AMQPValue::Timestamp(timestamp) => HeaderValue::Timestamp { timestamp: *timestamp },
        AMQPValue::FieldTable(table) => {
            HeaderValue::Table { table: table_values(table, depth + 1) }
        }
        AMQPValue::ByteArray(bytes) => {
            HeaderValue::Bytes { base64: STANDARD.encode(bytes.as_slice()) }
        }
        AMQPValue::Void => HeaderValue::Null,
    }
}

/// Returns a table. A header whose name is too long is left out: no broker with AMQP can have sent it.
fn field_table(values: &[(String, HeaderValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in values {
        if let Some(name) = short(name) {
            table.insert(name, amqp_value(value));
        }
    }
    table
}

fn amqp_value(value: &HeaderValue) -> AMQPValue {
    match value {
        HeaderValue::Null => AMQPValue::Void,
        HeaderValue::Bool(value) => AMQPValue::Boolean(*value),
        // The type that most clients use for a number of this size.
        HeaderValue::Int(value) => match i32::try_from(*value) {
            Ok(value) => AMQPValue::LongInt(value),
            Err(_) => AMQPValue::LongLongInt(*value),
        },
        HeaderValue::Text(text) => AMQPValue::LongString(text.as_str().into()),
        HeaderValue::List(values) => {
            AMQPValue::FieldArray(values.iter().map(amqp_value).collect::<Vec<_>>().into())
        }
        HeaderValue::Float { float } => AMQPValue::Double(*float),
        HeaderValue::Bytes { .. } => AMQPValue::LongString(LongString::from(value.to_bytes())),
        HeaderValue::Timestamp { timestamp } => AMQPValue::Timestamp(*timestamp),
        HeaderValue::Table { table } => AMQPValue::FieldTable(field_table(table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_and_headers_survive() {
        let mut headers = FieldTable::default();
        let mut inner = FieldTable::default();
        inner.insert("n".into(), AMQPValue::LongLongInt(1 << 40));
        headers.insert("text".into(), AMQPValue::LongString("é".into()));
        headers.insert("bytes".into(), AMQPValue::LongString(LongString::from(vec![0xff])));
        headers.insert("int".into(), AMQPValue::LongInt(-5));
        headers.insert("table".into(), AMQPValue::FieldTable(inner));
        headers.insert("list".into(), AMQPValue::FieldArray(vec![AMQPValue::Void].into()));
        headers.insert("time".into(), AMQPValue::Timestamp(7));
        let before = BasicProperties::default()
            .with_headers(headers.clone())
            .with_content_type("text/plain".into())
            .with_correlation_id("c".into())
            .with_message_id("m".into())
            .with_type("t".into())
            .with_priority(3)
            .with_timestamp(9)
            .with_delivery_mode(1);
        let stored = message("orders.eu", &before, b"x".to_vec());
        assert_eq!(stored.key.as_deref(), Some(&b"orders.eu"[..]));
        let content = stored.to_content().unwrap();
        let after = properties(&Message::from_content(&content).unwrap(), Some("kind/id/1"));
        headers.insert("x-deduplication-header".into(), AMQPValue::LongString("kind/id/1".into()));
        assert_eq!(after, before.with_headers(headers));
    }

    #[test]
    fn a_message_without_an_id_gets_one_and_is_persistent() {
        let after = properties(&Message::new(*b"x"), Some("kind/id/1"));
        assert_eq!(after.message_id().as_ref().map(|id| id.as_str()), Some("kind/id/1"));
        assert_eq!(*after.delivery_mode(), Some(2));
        let long = "x".repeat(300);
        let after = properties(&Message::new(*b"x"), Some(&long));
        assert_eq!(*after.message_id(), None);
    }
}
