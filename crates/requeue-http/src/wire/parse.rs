//! Converts the texts of a request to values.

use crate::problem::{Problem, ProblemType};
use crate::times::{self, Zone};
use requeue_jobs::json::{BodyJson, FieldErrorReason};
use requeue_jobs::{Body, Due, Invalid, Timestamp, check_lease};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The context in which a request is parsed: `tomorrow` depends on the current time.
#[derive(Debug, Clone, Copy)]
pub struct ParseContext {
    /// The current time.
    pub now: Timestamp,
}

impl ParseContext {
    /// Parses a time. A time without a time zone is in UTC. Fails with a problem that names `field`.
    pub fn time(&self, field: &str, text: &str) -> Result<Timestamp, Problem> {
        times::parse_time(text, self.now, &Zone::UTC)
            .map_err(|error| Problem::from(error).at(field))
    }

    /// Parses a duration. Fails with a problem that names `field`.
    pub fn duration(&self, field: &str, text: &str) -> Result<Duration, Problem> {
        times::parse_duration(text).map_err(|error| Problem::from(error).at(field))
    }

    /// Parses an optional duration. Fails with a problem that names `field`.
    pub fn optional_duration(
        &self,
        field: &str,
        text: Option<&str>,
    ) -> Result<Option<Duration>, Problem> {
        text.map(|text| self.duration(field, text)).transpose()
    }

    /// Returns `due`, unless it is too far in the future.
    pub(super) fn due(&self, field: &str, due: Due) -> Result<Due, Problem> {
        check(field, due.at(self.now))?;
        Ok(due)
    }

    /// Parses an optional lease duration, and checks its range.
    pub(super) fn lease(
        &self,
        field: &str,
        text: Option<&str>,
    ) -> Result<Option<Duration>, Problem> {
        let lease = self.optional_duration(field, text)?;
        check(field, lease.map_or(Ok(()), check_lease))?;
        Ok(lease)
    }
}

/// Converts a text. Fails with a problem that names `field`.
pub(super) fn parse<T>(
    field: &str,
    text: &str,
    convert: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<T, Problem> {
    check(field, convert(text))
}

/// Adds the name of the field to an error. A store would reject the value as well, but does not know
/// the names of fields.
pub(super) fn check<T>(field: &str, value: Result<T, Invalid>) -> Result<T, Problem> {
    value.map_err(|invalid| Problem::from(invalid).at(field))
}

/// Reads a body. `path` is the prefix of its field names, such as `jobs[3].`.
pub(super) fn read_body(path: &str, body: BodyJson) -> Result<Body, Problem> {
    body.into_body().map_err(|error| {
        let problem = match error.reason {
            FieldErrorReason::Invalid(invalid) => Problem::from(invalid),
            reason => Problem::new(ProblemType::Invalid, reason.to_string()),
        };
        problem.at(format!("{path}{}", error.field))
    })
}

/// Deserializes a field that can be any JSON, also `null`.
pub(crate) fn any_json<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}

/// A `T` that must be a JSON object.
///
/// Without this wrapper, a struct that derives `Deserialize` can also be read from a JSON array with
/// its fields in the order of the source code. The API rejects that.
///
/// ```
/// use requeue_http::wire::{ChangeIds, JsonObject};
///
/// assert!(serde_json::from_str::<ChangeIds>("[]").is_ok());
/// assert!(serde_json::from_str::<JsonObject<ChangeIds>>("[]").is_err());
/// let JsonObject(change) = serde_json::from_str::<JsonObject<ChangeIds>>(r#"{"ids": []}"#)?;
/// assert_eq!(change.ids, Some(vec![]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
            }
        }

        input.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Deserializes an optional field that must be an object or `null`.
pub(super) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<JsonObject<T>>::deserialize(input)?.map(|JsonObject(value)| value))
}

/// Deserializes a field that must be an array of objects.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<JsonObject<T>>::deserialize(input)?;
    Ok(objects.into_iter().map(|JsonObject(value)| value).collect())
}
