//! Times and durations as texts.
//!
//! A request contains them as people write them, and they are parsed after its shape was checked: then
//! an error can name the field, its value and what to write instead.

use super::ParseContext;
use crate::problem::{AtField, Problem};
use crate::times::{parse_duration, parse_time, show_duration, show_time};
use requeue_jobs::Timestamp;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

macro_rules! text {
    ($(#[$meta:meta])* $name:ident, from $value:ty, with $show:path, format $format:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub struct $name(String);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                input.deserialize_any(TextVisitor).map($name)
            }
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                $name($show(value))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(text)
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self)
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
                let format = SchemaFormat::Custom($format.to_owned());
                ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}
    };
}

text! {
    /// A time. In a response it is in RFC 3339, in UTC, with milliseconds. A request can contain any text
    /// that [`parse_time`] accepts and that has a time zone.
    TimeText, from Timestamp, with show_time, format "time-text"
}

text! {
    /// A duration, such as `1h30m`. A request can contain any text that [`parse_duration`] accepts.
    DurationText, from Duration, with show_duration, format "duration-text"
}

impl TimeText {
    /// Parses the time. Fails with a problem that names `field`, also for a time without a time zone.
    pub fn read(&self, field: &str, context: &ParseContext) -> Result<Timestamp, Problem> {
        parse_time(self, context.now, None).at(field)
    }
}

impl DurationText {
    /// Parses the duration. Fails with a problem that names `field`.
    pub fn read(&self, field: &str) -> Result<Duration, Problem> {
        parse_duration(self).at(field)
    }
}

/// Parses an optional time. Fails with a problem that names `field`.
pub(super) fn time(
    field: &str,
    text: &Option<TimeText>,
    context: &ParseContext,
) -> Result<Option<Timestamp>, Problem> {
    text.as_ref().map(|text| text.read(field, context)).transpose()
}

/// Parses an optional duration. Fails with a problem that names `field`.
pub(super) fn duration(
    field: &str,
    text: &Option<DurationText>,
) -> Result<Option<Duration>, Problem> {
    text.as_ref().map(|text| text.read(field)).transpose()
}

/// Reads a text. A number becomes a text as well, so that it is rejected where the text is parsed: with
/// the field, its value and the units to choose from.
struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}
