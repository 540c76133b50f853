//! Converts the texts of a request to values.

use super::text::{DurationText, duration};
use crate::problem::{AtField, Problem, ProblemType};
use requeue_jobs::limits::{KEPT_ATTEMPTS, MAX_BATCH};
use requeue_jobs::{Due, Invalid, Timestamp, check_lease};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The context in which a request is parsed: `tomorrow` depends on the current time.
#[derive(Debug, Clone, Copy)]
pub struct ParseContext {
    /// The current time.
    pub now: Timestamp,
}

/// Creates the problem for an invalid value of a field.
pub(super) fn invalid(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(ProblemType::Invalid, detail).at(field)
}

/// Returns `due`, unless it is too far in the future.
pub(super) fn due_at(field: &str, due: Due, context: &ParseContext) -> Result<Due, Problem> {
    due.at(context.now).at(field)?;
    Ok(due)
}

/// Parses an optional lease duration, and checks its range.
pub(super) fn check_lease_in(
    field: &str,
    text: &Option<DurationText>,
) -> Result<Option<Duration>, Problem> {
    let lease = duration(field, text)?;
    lease.map_or(Ok(()), check_lease).at(field)?;
    Ok(lease)
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

/// Deserializes a field in which `null` differs from a missing field.
pub(super) fn nullable<'de, D, T>(input: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(input).map(Some)
}

/// Deserializes an object or `null`, where `null` differs from a missing field.
pub(super) fn nullable_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<Option<T>>, D::Error> {
    optional_object(input).map(Some)
}

/// Deserializes an optional field that must be an object or `null`.
pub(super) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<JsonObject<T>>::deserialize(input)?.map(|JsonObject(value)| value))
}

/// The lists of requests. Their error while they are read is exactly one of these, so that
/// [`list_limit`] recognises it.
const ENTRIES: Invalid = too_many("entries in a batch");
const KINDS: Invalid = too_many("kinds in a claim");

/// One more than allowed: how many there are in all is not known, because reading stops there.
const fn too_many(what: &'static str) -> Invalid {
    Invalid::TooMany { what, count: MAX_BATCH + 1, limit: MAX_BATCH }
}

/// Returns the limit that a request exceeded, if `error`, from reading its JSON, says that a list is
/// too long.
///
/// A list is rejected at its first entry beyond the limit, before the rest is read. serde knows only
/// errors in the form of text.
///
/// ```
/// use requeue_http::wire::{PutBatch, list_limit};
///
/// let batch = format!(r#"{{"jobs": [{}"#, "{},".repeat(1001));
/// let error = serde_json::from_str::<PutBatch>(&batch).unwrap_err();
/// assert!(list_limit(&error).is_some());
/// let error = serde_json::from_str::<PutBatch>("{}").unwrap_err();
/// assert!(list_limit(&error).is_none());
/// ```
pub fn list_limit(error: &serde_json::Error) -> Option<Invalid> {
    let text = error.to_string();
    [ENTRIES, KINDS].into_iter().find(|limit| text.starts_with(&limit.to_string()))
}

/// Deserializes a field that must be an array of objects, at most [`MAX_BATCH`].
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    input.deserialize_seq(ListVisitor::new(|JsonObject(value)| value, ENTRIES))
}

/// Deserializes an optional field that must be an array of ids, at most [`MAX_BATCH`], or `null`.
pub(super) fn optional_ids<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Vec<String>>, D::Error> {
    struct Ids(Vec<String>);

    impl<'de> Deserialize<'de> for Ids {
        fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
            input.deserialize_seq(ListVisitor::new(|id: String| id, ENTRIES)).map(Ids)
        }
    }

    Ok(Option::<Ids>::deserialize(input)?.map(|Ids(ids)| ids))
}

/// Deserializes a field that must be an array of kinds, at most [`MAX_BATCH`].
pub(super) fn kinds<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    input.deserialize_seq(ListVisitor::new(|kind: String| kind, KINDS))
}

/// Deserializes the failed attempts of a job. If there are too many, it keeps one more than is
/// allowed, for which the store rejects this job alone, and skips the rest.
pub(super) fn failures<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    let mut visitor = ListVisitor::new(|JsonObject(value)| value, ENTRIES);
    (visitor.limit, visitor.skips) = (KEPT_ATTEMPTS + 1, true);
    input.deserialize_seq(visitor)
}

/// Reads a list whose length is limited, so that its memory is limited before it is taken.
struct ListVisitor<T, F> {
    convert: F,
    limit: usize,
    /// Skips the entries beyond the limit instead of failing with `error`.
    skips: bool,
    error: Invalid,
    entries: PhantomData<T>,
}

impl<T, F> ListVisitor<T, F> {
    fn new(convert: F, error: Invalid) -> Self {
        ListVisitor { convert, limit: MAX_BATCH, skips: false, error, entries: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, U, F: FnMut(T) -> U> Visitor<'de> for ListVisitor<T, F> {
    type Value = Vec<U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Vec<U>, A::Error> {
        let mut entries = Vec::new();
        while entries.len() < self.limit {
            match list.next_element()? {
                Some(entry) => entries.push((self.convert)(entry)),
                None => return Ok(entries),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            if !self.skips {
                return Err(A::Error::custom(&self.error));
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::*;
    use serde::de::DeserializeOwned;
    use std::io::Read;

    /// The beginning of a list, and then the same entry without end. Counts what is read of it.
    struct Endless<'a> {
        text: &'a [u8],
        entry: &'a [u8],
        read: usize,
    }

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.text.is_empty() {
                self.text = self.entry;
            }
            let read = self.text.read(&mut buffer[..1])?;
            self.read += read;
            Ok(read)
        }
    }

    /// Returns the error of reading a request with an endless list, and how many bytes were read.
    fn read<T: DeserializeOwned>(head: &str, entry: &str) -> (String, usize) {
        let mut input = Endless { text: head.as_bytes(), entry: entry.as_bytes(), read: 0 };
        let read = serde_json::from_reader::<_, T>(&mut input);
        let error = read.err().expect("the list is too long");
        (list_limit(&error).expect("and so says the error").to_string(), input.read - head.len())
    }

    #[test]
    fn a_list_that_is_too_long_is_rejected_at_its_first_entry_beyond_the_limit() {
        let entries = "1001 entries in a batch are too many; the limit is 1000";
        let kinds = "1001 kinds in a claim are too many; the limit is 1000";
        let job = r#"{"kind":"k","id":"i","state":"ready","content_type":"","due":"","generation":1,
            "attempts":0,"created_at":"","updated_at":""},"#;
        for ((error, bytes), entry, expected) in [
            (read::<PutBatch>(r#"{"jobs":["#, "{},"), "{},", entries),
            (
                read::<SettleBatch>(r#"{"leases":["#, r#"{"receipt":""},"#),
                r#"{"receipt":""},"#,
                entries,
            ),
            (
                read::<ChangeBatch>(r#"{"jobs":["#, r#"{"kind":"","id":"","what":"cancel"},"#),
                r#"{"kind":"","id":"","what":"cancel"},"#,
                entries,
            ),
            (read::<ChangeIds>(r#"{"ids":["#, r#""","#), r#""","#, entries),
            (read::<RestoreRequest>(r#"{"generation":1,"fence":1,"jobs":["#, job), job, entries),
            (read::<ClaimRequest>(r#"{"kinds":["#, r#""","#), r#""","#, kinds),
            (read::<WaitRequest>(r#"{"wait":"1s","kinds":["#, r#""","#), r#""","#, kinds),
        ] {
            assert_eq!(error, expected);
            assert!(bytes < 1002 * entry.len(), "{bytes} bytes of {entry} were read");
        }
    }

    #[test]
    fn failed_attempts_beyond_the_limit_are_not_kept_in_memory() {
        let failure = r#"{"worker":"w","started_at":"","ended_at":"","error":null}"#;
        let job = |count: usize| {
            format!(
                r#"{{"kind":"k","id":"i","state":"ready","content_type":"","due":"","generation":1,
                "attempts":0,"created_at":"","updated_at":"","failures":[{}]}}"#,
                vec![failure; count].join(",")
            )
        };
        for (count, kept) in [(0, 0), (5, 5), (6, 6), (7, 6), (1000, 6)] {
            let job: JobJson = serde_json::from_str(&job(count)).expect("it is a job");
            assert_eq!(job.failures.len(), kept, "of {count}");
        }
    }
}
