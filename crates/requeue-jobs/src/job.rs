//! A job as the store shows it: its body, its state and its history.

use crate::error::Invalid;
use crate::limits::{MAX_BODY_LEN, MAX_CONTENT_TYPE_LEN, MAX_ERROR_LEN};
use crate::names::{JobId, Kind, WorkerName};
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
use crate::version::Version;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The payload of a job: bytes and their content type.
///
/// Cloning a body is cheap: clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    bytes: Arc<[u8]>,
    content_type: Arc<str>,
}

/// The default content type, shared by all bodies that have it.
static OCTETS: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("application/octet-stream"));

impl Body {
    /// Returns a body. Fails if `bytes` is longer than [`MAX_BODY_LEN`] or `content_type` longer
    /// than [`MAX_CONTENT_TYPE_LEN`].
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

    /// Returns a body of the content type `application/octet-stream`. Fails if `bytes` is longer
    /// than [`MAX_BODY_LEN`].
    pub fn octets(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Invalid> {
        Body::new(bytes, OCTETS.clone())
    }

    /// Returns the same bytes with another content type.
    pub(crate) fn of_type(self, content_type: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        Body::new(self.bytes, content_type)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the content type, such as `application/json`.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if there are no bytes.
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

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// The job is not due yet.
    Waiting,
    /// The job is due, and no worker has claimed it.
    Ready,
    /// A worker has claimed the job and not settled it yet.
    Leased,
    /// The job's attempts are used up, or a worker has buried it. A claim never returns it.
    Dead,
    /// The job is done, and the kind [keeps done jobs](crate::Settings::keep_done). Puts, claims and
    /// *run now* treat it as absent, except for [`Condition::IfNew`](crate::Condition::IfNew).
    Done,
}

/// A job as the store shows it: the result of [`Store::get`](crate::Store::get) and
/// [`Store::list`](crate::Store::list).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// The kind of the job.
    pub kind: Kind,
    /// The id of the job.
    pub id: JobId,
    /// The state of the job at the time of the call.
    pub state: JobState,
    /// What the put that the job comes from has set.
    pub version: Version,
    /// The number of failed attempts since the count was last reset.
    pub attempts: u32,
    /// The lease, if the job is leased.
    pub lease: Option<LeaseView>,
    /// The successor: the latest put since the job was leased, if there is one. It runs after the lease
    /// has ended.
    pub next: Option<Version>,
    /// The latest failed attempts, at most
    /// [`KEPT_ATTEMPTS`](crate::limits::KEPT_ATTEMPTS), the most recent last.
    pub failures: Vec<FailedAttempt>,
    /// How often the job has become dead.
    pub deaths: u32,
    /// When the job became dead, if it is dead.
    pub died_at: Option<Timestamp>,
    /// How the job was done, if it is done.
    pub done: Option<DoneView>,
    /// When the job was first put.
    pub created_at: Timestamp,
    /// When the job was last changed, by any operation.
    pub updated_at: Timestamp,
}

impl JobView {
    /// Returns the payload.
    pub fn body(&self) -> &Body {
        &self.version.content.body
    }

    /// Returns the number of bytes in the content of the job, in that of its successor and in its
    /// result. They count towards [`MAX_RESULT_BYTES`](crate::limits::MAX_RESULT_BYTES).
    pub fn content_bytes(&self) -> usize {
        let result = self.done.as_ref().and_then(|done| done.result.as_ref());
        let versions = [Some(&self.version), self.next.as_ref()];
        let contents = versions.into_iter().flatten().map(|version| version.content.len());
        contents.chain(result.map(Body::len)).sum()
    }

    /// Returns a waiting job that has not failed. For stores, which set the other fields.
    pub fn new(kind: Kind, id: JobId, version: Version) -> Self {
        JobView {
            kind,
            id,
            state: JobState::Waiting,
            version,
            attempts: 0,
            lease: None,
            next: None,
            failures: Vec::new(),
            deaths: 0,
            died_at: None,
            done: None,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        }
    }

    /// Returns the generation of the newest put: the successor's, if there is one.
    pub fn newest_generation(&self) -> Generation {
        self.next.as_ref().unwrap_or(&self.version).generation
    }
}

/// A lease, without the receipt that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// The name of the worker that holds the lease.
    pub worker: WorkerName,
    /// When the worker claimed the job.
    pub claimed_at: Timestamp,
    /// When the lease ends, unless it is extended.
    pub ends_at: Timestamp,
    /// Whether the job was cancelled. It is then removed when the lease ends.
    pub cancelled: bool,
    /// The fencing token of the lease. 0 in a view that was read from an export.
    pub fence: Fence,
}

/// How a job was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneView {
    /// The name of the worker.
    pub worker: WorkerName,
    /// When the worker claimed the job.
    pub started_at: Timestamp,
    /// When the worker acked the job.
    pub done_at: Timestamp,
    /// The result, if the ack [contained one](crate::Settlement::AckWith).
    pub result: Option<Body>,
}

impl DoneView {
    /// Returns how long the job ran: from the claim to the ack.
    pub fn took(&self) -> Duration {
        self.done_at.saturating_since(self.started_at)
    }
}

/// A failed attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The name of the worker.
    pub worker: WorkerName,
    /// When the worker claimed the job.
    pub started_at: Timestamp,
    /// When the worker settled the lease, or when the lease expired.
    pub ended_at: Timestamp,
    /// The error that the worker reported, at most [`MAX_ERROR_LEN`] bytes. `None` if the lease
    /// expired and the worker reported nothing.
    pub error: Option<Arc<str>>,
}

/// Truncates an error to at most [`MAX_ERROR_LEN`] bytes, at a character boundary. For stores.
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
        assert_eq!(error.to_string(), "the body has 1048577 bytes; the limit is 1048576");
        assert!(Body::new([], "t".repeat(MAX_CONTENT_TYPE_LEN + 1)).is_err());
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let error = format!("{}ü", "x".repeat(MAX_ERROR_LEN - 1));
        assert_eq!(kept_error(&error).len(), MAX_ERROR_LEN - 1);
        assert_eq!(&*kept_error("short"), "short");
    }
}
