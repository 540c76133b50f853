//! The column `head`: the optional fields of a content, as JSON.

use crate::rows::damaged;
use crate::text::{escape, unescape};
use requeue_jobs::json::HeadJson;
use requeue_jobs::{Head, StoreError};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tokio_postgres::types::Json;

/// The JSON of a head. Its texts are escaped.
pub(crate) type StoredHead = Json<Box<RawValue>>;

/// Returns the column: most contents have no head.
pub(crate) fn stored_head(head: &Head) -> Option<StoredHead> {
    if head.is_empty() {
        return None;
    }
    let json = serde_json::to_value(HeadJson::from(head)).expect("texts are JSON");
    let json = serde_json::value::to_raw_value(&with_texts(json, escape));
    Some(Json(json.expect("a value is JSON")))
}

/// Reads the column, in the row of this job or schedule.
pub(crate) fn head(stored: Option<&StoredHead>, id: &str) -> Result<Head, StoreError> {
    let Some(Json(json)) = stored else { return Ok(Head::default()) };
    let read = |json: &RawValue| {
        let json = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
        let json: HeadJson = serde_json::from_value(with_texts(json, unescape))
            .map_err(|error| error.to_string())?;
        json.into_head().map_err(|error| format!("{}: {}", error.field, error.reason))
    };
    read(json).map_err(|error| damaged(&format!("the head of {:?}: {error}", unescape(id))))
}

fn with_texts(json: Value, change: fn(&str) -> Cow<'_, str>) -> Value {
    match json {
        Value::String(text) => Value::String(change(&text).into_owned()),
        Value::Array(values) => values.into_iter().map(|value| with_texts(value, change)).collect(),
        Value::Object(fields) => {
            let each = |(name, value): (String, Value)| {
                (change(&name).into_owned(), with_texts(value, change))
            };
            fields.into_iter().map(each).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Envelope;

    #[test]
    fn a_head_with_nul_characters_is_stored_and_read_back() {
        assert!(stored_head(&Head::default()).is_none());
        let envelope = Envelope::new(*b"\0\xff", "a\0\u{1}\\u0000").expect("it is short");
        let head = Head::from(envelope);
        let stored = stored_head(&head).expect("it is not empty");
        let text = serde_json::from_str::<Value>(stored.0.get()).expect("it is JSON").to_string();
        assert!(!text.replace("\\\\", "").contains("\\u0000"), "{text}");
        assert_eq!(super::head(Some(&stored), "a"), Ok(head));
    }

    #[test]
    fn a_head_that_cannot_be_read_is_an_error_that_names_the_row() {
        for json in [
            "\"text\"",
            "{\"unknown\": 1}",
            "{\"envelope\": {\"type\": \"a\"}}",
            "{\"envelope\": {\"type\": \"\", \"base64\": \"\"}}",
            "{\"envelope\": {\"type\": \"a\", \"base64\": \"?\"}}",
        ] {
            let stored = Json(RawValue::from_string(json.to_owned()).expect("it is JSON"));
            let error = head(Some(&stored), "job-7").expect_err(json).to_string();
            assert!(error.contains("the head of \"job-7\": "), "{error}");
        }
    }
}
