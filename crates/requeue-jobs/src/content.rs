//! The content of a job: its body and its head.

mod envelope;
mod head;

use crate::error::Invalid;
use crate::job::Body;
use crate::limits::MAX_CONTENT_LEN;
pub use envelope::Envelope;
pub use head::{Head, HeadError, HeadFields};

/// What a put sets apart from the due time and the priority. Everything below the API passes it on whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// The payload.
    pub body: Body,
    /// The optional fields.
    pub head: Head,
}

impl Content {
    /// Returns the number of bytes that count towards the limits of batches, claims and pages.
    pub fn len(&self) -> usize {
        let Content { body, head } = self;
        body.len() + head.len()
    }

    /// Returns `true` if there are no bytes that count towards the limits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the content with another body, as a [`Reschedule`](crate::Reschedule) sets it. The envelope goes with the
    /// old body, which it describes. The other fields of the head stay.
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        if self.head.envelope.is_some() {
            self.head.change(|fields| fields.envelope = None);
        }
        self
    }

    /// Fails if body and head together are longer than [`MAX_CONTENT_LEN`]. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        let (field, len, limit) = ("the body with its envelope", self.len(), MAX_CONTENT_LEN);
        if len > limit {
            return Err(Invalid::TooLong { field, len, limit });
        }
        Ok(())
    }
}

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        Content { body, head: Head::default() }
    }
}
