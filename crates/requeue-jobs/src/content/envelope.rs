//! The envelope: what a protocol attaches to a message.

use crate::error::Invalid;
use crate::limits::{MAX_CONTENT_LEN, MAX_CONTENT_TYPE_LEN};
use std::fmt;
use std::sync::Arc;

/// What a protocol attaches to a message, such as the properties of AMQP: bytes with a type.
///
/// Stores return it unchanged and do not look into it. Handlers and webhooks do not receive it. It belongs to
/// the body: a put, or a reschedule that sets a body, removes it, unless the put has an envelope of its own.
///
/// Cloning is cheap: clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    bytes: Arc<[u8]>,
    of_type: Arc<str>,
}

impl Envelope {
    /// Returns an envelope. `of_type` is a content type that names the protocol. Fails if it is empty or longer
    /// than [`MAX_CONTENT_TYPE_LEN`], or if `bytes` is longer than [`MAX_CONTENT_LEN`].
    pub fn new(bytes: impl Into<Arc<[u8]>>, of_type: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let (bytes, of_type) = (bytes.into(), of_type.into());
        let (field, len, limit) = ("the type of the envelope", of_type.len(), MAX_CONTENT_TYPE_LEN);
        if len == 0 {
            return Err(Invalid::Empty { field });
        }
        if len > limit {
            return Err(Invalid::TooLong { field, len, limit });
        }
        let (field, len, limit) = ("the envelope", bytes.len(), MAX_CONTENT_LEN);
        if len > limit {
            return Err(Invalid::TooLong { field, len, limit });
        }
        Ok(Envelope { bytes, of_type })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the type, such as `application/vnd.requeue.message`.
    pub fn of_type(&self) -> &str {
        &self.of_type
    }

    /// Returns the number of bytes, with those of the type.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.of_type.len()
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({} bytes of {})", self.bytes.len(), self.of_type)
    }
}
