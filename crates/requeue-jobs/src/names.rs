//! The names of kinds, jobs and workers.

use crate::error::Invalid;
use crate::limits::{MAX_ID_LEN, MAX_KIND_LEN, MAX_WORKER_LEN};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The kind of a job: other systems call it queue, task type, topic or tube.
///
/// Each kind has its own settings, due order, counters and schedules.
///
/// ```
/// use requeue_jobs::Kind;
///
/// assert_eq!(Kind::new("order.close")?.as_str(), "order.close");
/// let error = Kind::new("order/close").unwrap_err();
/// assert!(error.to_string().contains("'/'"));
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(Arc<str>);

/// The id of a job: any text, unique within its kind. Other systems call it deduplication id or
/// unique key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Arc<str>);

/// The name of a worker, for people who look up who holds a job. It does not have to be unique.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName(Arc<str>);

/// Checks the length of a text. `field` names it in the error.
pub(crate) fn checked(field: &'static str, text: &str, limit: usize) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::Empty { field });
    }
    if text.len() > limit {
        return Err(Invalid::TooLong { field, len: text.len(), limit });
    }
    Ok(())
}

/// Kinds whose names begin with this are reserved.
const RESERVED: &str = "requeue.";

impl Kind {
    /// Returns a kind. Fails if the text is empty, longer than [`MAX_KIND_LEN`] bytes, or contains
    /// other characters than `A-Z a-z 0-9 . _ -`; and with [`Invalid::ReservedKind`] if it begins with
    /// `requeue.`.
    ///
    /// ```
    /// use requeue_jobs::{Invalid, Kind};
    ///
    /// let error = Kind::new("requeue.schedules").unwrap_err();
    /// assert!(matches!(error, Invalid::ReservedKind { .. }));
    /// ```
    pub fn new(kind: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let kind = Kind::with_reserved(kind)?;
        if kind.is_reserved() {
            return Err(Invalid::ReservedKind { kind });
        }
        Ok(kind)
    }

    /// Returns a kind that may also be a reserved one, such as [`SCHEDULE_TIMERS`](crate::SCHEDULE_TIMERS):
    /// for stores, which read names that they have stored, and to look at what such a kind contains.
    ///
    /// A name that comes from outside, and for which anything is changed, is read with
    /// [`new`](Self::new): whoever changes the jobs of a reserved kind stops what depends on them.
    pub fn with_reserved(kind: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let kind = kind.into();
        checked("the kind", &kind, MAX_KIND_LEN)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match kind.chars().find(|&c| !allowed(c)) {
            Some(found) => Err(Invalid::KindCharacter { kind: kind.to_string(), found }),
            None => Ok(Kind(kind)),
        }
    }

    /// Returns whether the kind is reserved: the service and the workers use it for themselves.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED)
    }
}

impl JobId {
    /// Returns an id. Fails if the text is empty or longer than [`MAX_ID_LEN`] bytes.
    pub fn new(id: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let id = id.into();
        checked("the id", &id, MAX_ID_LEN)?;
        Ok(JobId(id))
    }
}

impl WorkerName {
    /// Returns a name. Fails if the text is empty or longer than [`MAX_WORKER_LEN`] bytes.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let name = name.into();
        checked("the worker's name", &name, MAX_WORKER_LEN)?;
        Ok(WorkerName(name))
    }
}

macro_rules! name {
    ($name:ident) => {
        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;

            fn try_from(text: &str) -> Result<Self, Invalid> {
                $name::new(text)
            }
        }
    };
}

name!(Kind);
name!(JobId);
name!(WorkerName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_they_may_be_and_no_longer() {
        assert!(Kind::new("k".repeat(MAX_KIND_LEN)).is_ok());
        let error = Kind::new("k".repeat(MAX_KIND_LEN + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the kind has 129 bytes; the limit is 128");
        assert!(JobId::new("ü".repeat(MAX_ID_LEN / 2)).is_ok());
        assert!(JobId::new("ü".repeat(MAX_ID_LEN / 2 + 1)).is_err());
        assert_eq!(JobId::new("").unwrap_err().to_string(), "the id must not be empty");
        assert!(WorkerName::new("w".repeat(MAX_WORKER_LEN + 1)).is_err());
    }

    #[test]
    fn a_kind_is_made_of_few_characters() {
        assert!(Kind::new("AZaz09._-").is_ok());
        for reserved in ["requeue.", "requeue.schedules", "requeue.x"] {
            let error = Kind::new(reserved).unwrap_err().to_string();
            assert!(error.contains(reserved) && error.contains("reserved"), "{error}");
            assert!(Kind::with_reserved(reserved).unwrap().is_reserved());
        }
        for free in ["requeue", "requeue-x", "requeues.x", "Requeue.x", "my.requeue.x"] {
            assert!(!Kind::new(free).unwrap().is_reserved(), "{free}");
        }
        for bad in [" ", "a b", "ä", "a/b", "a{b}", "a:b", "a\0"] {
            assert!(Kind::new(bad).is_err(), "{bad:?}");
        }
    }
}
