//! Parsing of script replies.

use redis::Value;
use requeue_jobs::StoreError;

/// A reply, read value by value.
pub(crate) struct Reply {
    values: std::vec::IntoIter<Value>,
}

/// The error for a reply that none of our scripts sends. Whether the call was done is unknown.
pub(crate) fn unexpected(what: &str) -> StoreError {
    let reason = format!("unexpected reply from Redis: {what}");
    StoreError::Unknown { reason }
}

/// The type of a value, for people. An error does not repeat the value, which can be megabytes long.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "an array",
        _ => "another type of value",
    }
}

impl Reply {
    pub(crate) fn of(value: Value) -> Result<Reply, StoreError> {
        match value {
            Value::Array(values) => Ok(Reply { values: values.into_iter() }),
            other => Err(unexpected(&format!("{} instead of an array", type_of(&other)))),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    pub(crate) fn next(&mut self) -> Result<Value, StoreError> {
        self.values.next().ok_or_else(|| unexpected("it is too short"))
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        number(&self.next()?)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, StoreError> {
        signed(&self.next()?)
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        bytes(self.next()?)
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        text(self.next()?)
    }

    pub(crate) fn array(&mut self) -> Result<Reply, StoreError> {
        Reply::of(self.next()?)
    }
}

pub(crate) fn signed(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        // Scores are text.
        Value::BulkString(digits) => {
            let digits = str::from_utf8(digits).ok();
            let number = digits.and_then(|digits| digits.parse().ok());
            number.ok_or_else(|| unexpected("it is not a whole number"))
        }
        other => Err(unexpected(&format!("{} instead of a number", type_of(other)))),
    }
}

pub(crate) fn number(value: &Value) -> Result<u64, StoreError> {
    u64::try_from(signed(value)?).map_err(|_| unexpected("a number is negative"))
}

pub(crate) fn bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(unexpected(&format!("{} instead of a text", type_of(&other)))),
    }
}

pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    String::from_utf8(bytes(value)?).map_err(|_| unexpected("a text is not UTF-8"))
}
