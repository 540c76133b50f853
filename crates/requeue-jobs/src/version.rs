//! What one put sets: the content of a job, its due time, its priority and its generation.

use crate::content::Content;
use crate::job::Body;
use crate::priority::Priority;
use crate::receipt::Generation;
use crate::time::Timestamp;

/// What a put has set, as one value: a job has one [`Version`], and if it is leased and was put again, its
/// successor has another. Rules, stores and views pass it on whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// The content. Empty if the job is done.
    pub content: Content,
    /// When the job is due. For a leased, dead or done job, when it was due. For a successor, the earliest
    /// time at which it is due.
    pub due: Timestamp,
    /// The priority.
    pub priority: Priority,
    /// The generation of the put.
    pub generation: Generation,
}

impl Version {
    /// Returns a version of priority 0.
    pub fn new(content: impl Into<Content>, due: Timestamp, generation: Generation) -> Self {
        let (content, priority) = (content.into(), Priority::default());
        Version { content, due, priority, generation }
    }
}

/// A version with this payload: due at time zero, of priority 0 and generation 0. For tests of handlers.
impl From<Body> for Version {
    fn from(body: Body) -> Self {
        Version { content: body.into(), ..Version::default() }
    }
}
