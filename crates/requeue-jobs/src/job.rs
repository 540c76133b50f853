//! A job as it is told: what it carries, in what state it is, what has happened to it.

use crate::error::Invalid;
use crate::limits::{MAX_BODY_LEN, MAX_CONTENT_TYPE_LEN, MAX_ERROR_LEN};
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::Generation;
use crate::time::Timestamp;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// What a job carries: bytes, and what they are.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    bytes: Arc<[u8]>,
    content_type: Arc<str>,
}

/// What most bodies are: one text for all of them.
static OCTETS: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("application/octet-stream"));

impl Body {
    /// At most [`MAX_BODY_LEN`] bytes, and a content type of at most [`MAX_CONTENT_TYPE_LEN`].
    pub fn new(
        bytes: impl Into<Arc<[u8]>>,
        content_type: impl Into<Arc<str>>,
    ) -> Result<Self, Invalid> {
        let (bytes, content_type) = (bytes.into(), content_type.into());
        let (field, len, limit) = ("the body", bytes.len(), MAX_BODY_LEN);
        if len > limit {
            return Err(Invalid::TooLong { field, len, limit });
        }
        let (field, len, limit) = ("the content type", content_type.len(), MAX_CONTENT_TYPE_LEN);
        if len > limit {
            return Err(Invalid::TooLong { field, len, limit });
        }
        Ok(Body { bytes, content_type })
    }

    /// Bytes that are what they are.
    pub fn octets(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Invalid> {
        Body::new(bytes, OCTETS.clone())
    }

    /// The same bytes, said to be something else.
    pub(crate) fn of_type(self, content_type: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        Body::new(self.bytes, content_type)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What they are.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Default for Body {
    fn default() -> Self {
        Body { bytes: Arc::new([]), content_type: OCTETS.clone() }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes of {})", self.len(), self.content_type)
    }
}

/// In what state a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It is not due yet.
    Waiting,
    /// It is due, and nobody has claimed it.
    Ready,
    /// Somebody has claimed it, and not settled it.
    Leased,
    /// Its attempts are used up.
    Dead,
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobView {
    /// Its kind.
    pub kind: Kind,
    /// Its id.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
    /// What it carries.
    pub body: Body,
    /// When it is due, or was.
    pub due: Timestamp,
    /// Which put it is of.
    pub generation: Generation,
    /// How often it has failed since that was last reset.
    pub attempts: u32,
    /// Who has claimed it, where it is leased.
    pub lease: Option<LeaseView>,
    /// What was put meanwhile, where it is leased.
    pub next: Option<NextView>,
    /// Its latest failed attempts, the latest last.
    pub failures: Vec<FailedAttempt>,
    /// How often it has died.
    pub deaths: u32,
    /// When it last died, where it is dead.
    pub died_at: Option<Timestamp>,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it was last changed, by whomever.
    pub updated_at: Timestamp,
}

impl JobView {
    /// For stores: a job that waits or is ready, and has not failed.
    pub fn new(kind: Kind, id: JobId, body: Body, due: Timestamp, generation: Generation) -> Self {
        JobView {
            kind,
            id,
            state: JobState::Waiting,
            body,
            due,
            generation,
            attempts: 0,
            lease: None,
            next: None,
            failures: Vec::new(),
            deaths: 0,
            died_at: None,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        }
    }

    /// The newest generation: the successor's, where there is one.
    pub fn newest_generation(&self) -> Generation {
        self.next.as_ref().map_or(self.generation, |next| next.generation)
    }
}

/// A lease, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Who has it.
    pub worker: WorkerName,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Until when, unless it is extended.
    pub ends_at: Timestamp,
    /// The job was cancelled: it ends with its lease.
    pub cancelled: bool,
}

/// A successor: what was put while the job was leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextView {
    /// What it carries.
    pub body: Body,
    /// When it is due, at the soonest.
    pub due: Timestamp,
    /// Which put it is of.
    pub generation: Generation,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Whose it was.
    pub worker: WorkerName,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it was retried, or its lease expired.
    pub ended_at: Timestamp,
    /// What its worker said, at most [`MAX_ERROR_LEN`] bytes. `None`: it said nothing, and
    /// the lease expired.
    pub error: Option<Arc<str>>,
}

/// What is kept of an error: its first [`MAX_ERROR_LEN`] bytes, cut at a character.
pub fn kept_error(error: &str) -> Arc<str> {
    let mut end = error.len().min(MAX_ERROR_LEN);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(&error[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_large_as_it_may_be_and_no_larger() {
        assert!(Body::octets(vec![0; MAX_BODY_LEN]).is_ok());
        let error = Body::octets(vec![0; MAX_BODY_LEN + 1]).unwrap_err();
        assert_eq!(error.to_string(), "the body has 1048577 bytes, and may have 1048576");
        assert!(Body::new([], "t".repeat(MAX_CONTENT_TYPE_LEN + 1)).is_err());
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let error = format!("{}ü", "x".repeat(MAX_ERROR_LEN - 1));
        assert_eq!(kept_error(&error).len(), MAX_ERROR_LEN - 1);
        assert_eq!(&*kept_error("short"), "short");
    }
}
