//! How texts of a request become what they mean.

use crate::problem::Problem;
use crate::times::{self, Zone};
use requeue_jobs::{Due, Invalid, Timestamp, check_lease};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// What it takes to read a request: `tomorrow` depends on what day it is.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The time.
    pub now: Timestamp,
}

impl Reading {
    /// A time. Without a zone it is one of UTC: a server has no other of its own.
    pub fn time(&self, field: &str, text: &str) -> Result<Timestamp, Problem> {
        times::parse_time(text, self.now, &Zone::UTC)
            .map_err(|error| Problem::from(error).at(field))
    }

    /// A duration.
    pub fn duration(&self, field: &str, text: &str) -> Result<Duration, Problem> {
        times::parse_duration(text).map_err(|error| Problem::from(error).at(field))
    }

    /// When a job is due, and whether that is not too far away.
    pub(super) fn due(&self, field: &str, due: Due) -> Result<Due, Problem> {
        allowed(field, due.at(self.now))?;
        Ok(due)
    }

    /// How long a lease is, where that is said.
    pub(super) fn lease(
        &self,
        field: &str,
        text: Option<&str>,
    ) -> Result<Option<Duration>, Problem> {
        let lease = self.maybe(field, text)?;
        allowed(field, lease.map_or(Ok(()), check_lease))?;
        Ok(lease)
    }

    /// A duration that need not be said.
    pub fn maybe(&self, field: &str, text: Option<&str>) -> Result<Option<Duration>, Problem> {
        text.map(|text| self.duration(field, text)).transpose()
    }
}

/// A name that is checked by who makes it.
pub(super) fn named<T>(
    field: &str,
    text: &str,
    make: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<T, Problem> {
    allowed(field, make(text))
}

/// What a store would refuse, refused here: it does not know the names of fields.
pub(super) fn allowed<T>(field: &str, value: Result<T, Invalid>) -> Result<T, Problem> {
    value.map_err(|invalid| Problem::from(invalid).at(field))
}

/// A `T`, written as an object. What serde makes of a struct can also be written as an array of
/// its fields, in the order of the source: nobody means that.
///
/// ```
/// use requeue_http::wire::{ChangeIds, Object};
///
/// assert!(serde_json::from_str::<ChangeIds>("[]").is_ok());
/// assert!(serde_json::from_str::<Object<ChangeIds>>("[]").is_err());
/// let Object(change) = serde_json::from_str::<Object<ChangeIds>>(r#"{"ids": []}"#)?;
/// assert_eq!(change.ids, Some(vec![]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        input.deserialize_map(Fields(PhantomData))
    }
}

/// For a field: an object, or nothing.
pub(super) fn maybe_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(input)?.map(|Object(value)| value))
}

/// For a field: any number of objects.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(input)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}
