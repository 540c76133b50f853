//! Reading what scripts answer.

use redis::Value;
use requeue_jobs::StoreError;

/// What a script run_batch, read from its beginning.
pub(crate) struct Reply {
    values: std::vec::IntoIter<Value>,
}

/// The answer of another program: not one of our scripts', whatever the outcome.
pub(crate) fn unexpected(what: &str) -> StoreError {
    let reason = format!("Redis answered something that is no answer: {what}");
    StoreError::Unknown { reason }
}

impl Reply {
    pub(crate) fn of(value: Value) -> Result<Reply, StoreError> {
        match value {
            Value::Array(values) => Ok(Reply { values: values.into_iter() }),
            other => Err(unexpected(&format!("{other:?} is no array"))),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    pub(crate) fn next(&mut self) -> Result<Value, StoreError> {
        self.values.next().ok_or_else(|| unexpected("it ends too soon"))
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
        // Scores are told as text.
        Value::BulkString(digits) => {
            let digits = str::from_utf8(digits).ok();
            let number = digits.and_then(|digits| digits.parse().ok());
            number.ok_or_else(|| unexpected("it is no whole number"))
        }
        other => Err(unexpected(&format!("{other:?} is no number"))),
    }
}

pub(crate) fn number(value: &Value) -> Result<u64, StoreError> {
    u64::try_from(signed(value)?).map_err(|_| unexpected("a number is below zero"))
}

pub(crate) fn bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        other => Err(unexpected(&format!("{other:?} is no text"))),
    }
}

pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    String::from_utf8(bytes(value)?).map_err(|_| unexpected("a text is not in UTF-8"))
}
