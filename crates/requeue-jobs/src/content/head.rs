//! The head of a content: its optional fields.
//!
//! Stores keep the encoding of a head and do not look into it. It is a sequence of fields. Tags ascend, and none
//! occurs twice. A head without fields has no bytes.
//!
//! ```text
//!   field      tag varint | length varint | bytes
//!   varint     7 bits per byte, the lowest first; bit 7 is set if another byte follows
//!   envelope   length of the type u8 | type | bytes
//! ```
//!
//! `docs/content-format.md` lists the tags, also those that are reserved for fields to come.

use super::envelope::Envelope;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// The tags of the fields.
mod tag {
    pub(super) const ENVELOPE: u32 = 7;
}

/// The optional fields of a [`Content`](crate::Content). It dereferences to [`HeadFields`]. Most jobs have none: their
/// head takes no memory beyond a pointer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Head(Option<Arc<HeadFields>>);

/// The fields of a [`Head`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeadFields {
    /// What a protocol has attached to the message.
    pub envelope: Option<Envelope>,
}

static NO_FIELDS: LazyLock<HeadFields> = LazyLock::new(HeadFields::default);

impl Deref for Head {
    type Target = HeadFields;

    fn deref(&self) -> &HeadFields {
        self.0.as_deref().unwrap_or(&NO_FIELDS)
    }
}

impl From<HeadFields> for Head {
    fn from(fields: HeadFields) -> Self {
        Head((fields != *NO_FIELDS).then(|| Arc::new(fields)))
    }
}

/// A head with nothing but an envelope.
impl From<Envelope> for Head {
    fn from(envelope: Envelope) -> Self {
        let mut head = Head::default();
        head.change(|fields| fields.envelope = Some(envelope));
        head
    }
}

/// Lists the fields that are set.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

/// Why the bytes of a head cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The bytes end within a field.
    #[error("the head of a content ends within a field")]
    Truncated,
    /// A newer version has written a field that this version does not know. It is not skipped, because the next
    /// write of the job would lose it.
    #[error("the head of a content has a field with the unknown tag {tag}")]
    UnknownTag {
        /// The tag.
        tag: u32,
    },
    /// A field has the same tag as the one before it, or a lower one.
    #[error(
        "in the head of a content, a field with the tag {tag} follows one with the tag {after}"
    )]
    Order {
        /// The tag.
        tag: u32,
        /// The tag of the field before.
        after: u32,
    },
    /// The value of a field is invalid.
    #[error("in the head of a content, the field with the tag {tag} has an invalid value")]
    Value {
        /// The tag.
        tag: u32,
    },
}

impl Head {
    /// Returns `true` if no field is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the number of bytes that count towards the limits of a content, batches, claims and pages.
    pub fn len(&self) -> usize {
        let HeadFields { envelope } = &**self;
        envelope.as_ref().map_or(0, Envelope::len)
    }

    /// Changes fields.
    pub fn change(&mut self, change: impl FnOnce(&mut HeadFields)) {
        let mut fields = HeadFields::clone(self);
        change(&mut fields);
        *self = fields.into();
    }

    /// Returns name and text of each field that is set, for people.
    pub fn entries(&self) -> Vec<(&'static str, String)> {
        let HeadFields { envelope } = &**self;
        let envelope = envelope.as_ref().map(|envelope| {
            ("envelope", format!("{} bytes of {}", envelope.bytes().len(), envelope.of_type()))
        });
        envelope.into_iter().collect()
    }

    /// Returns the encoding.
    pub fn encode(&self) -> Vec<u8> {
        let HeadFields { envelope } = &**self;
        let mut out = Vec::new();
        if let Some(envelope) = envelope {
            let of_type = envelope.of_type().as_bytes();
            let type_len = u8::try_from(of_type.len()).expect("Envelope::new limits the type");
            put_field(&mut out, tag::ENVELOPE, &[&[type_len], of_type, envelope.bytes()]);
        }
        out
    }

    /// Reads an encoding.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, HeadError> {
        let (mut fields, mut last) = (HeadFields::default(), None);
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes)?;
            if let Some(after) = last.replace(tag).filter(|after| *after >= tag) {
                return Err(HeadError::Order { tag, after });
            }
            let len = take_varint(&mut bytes)? as usize;
            let (value, rest) = bytes.split_at_checked(len).ok_or(HeadError::Truncated)?;
            bytes = rest;
            match tag {
                tag::ENVELOPE => {
                    fields.envelope = Some(envelope(value).ok_or(HeadError::Value { tag })?);
                }
                tag => return Err(HeadError::UnknownTag { tag }),
            }
        }
        Ok(fields.into())
    }
}

fn envelope(value: &[u8]) -> Option<Envelope> {
    let (len, value) = value.split_first()?;
    let (of_type, bytes) = value.split_at_checked(usize::from(*len))?;
    Envelope::new(bytes, str::from_utf8(of_type).ok()?).ok()
}

/// Appends a field whose value consists of these parts.
fn put_field(out: &mut Vec<u8>, tag: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    put_varint(out, tag);
    put_varint(out, u32::try_from(len).expect("a content is far shorter"));
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u32, HeadError> {
    let mut number = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, rest) = bytes.split_first().ok_or(HeadError::Truncated)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(number).map_err(|_| HeadError::Truncated);
        }
    }
    Err(HeadError::Truncated)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn with_envelope(bytes: &[u8]) -> Head {
        Envelope::new(bytes, "application/x").unwrap().into()
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        assert_eq!(Head::default().encode(), b"");
        for head in [Head::default(), with_envelope(b""), with_envelope(&[7; 300])] {
            assert_eq!(Head::decode(&head.encode()), Ok(head.clone()));
        }
        assert_eq!(with_envelope(b"ab").encode(), b"\x07\x10\x0dapplication/xab");
    }

    #[test]
    fn a_damaged_head_is_rejected_and_nothing_in_it_is_skipped() {
        let whole = with_envelope(b"ab").encode();
        for end in 1..whole.len() {
            assert!(Head::decode(&whole[..end]).is_err(), "the first {end} bytes");
        }
        assert_eq!(Head::decode(b"\x08\x00"), Err(HeadError::UnknownTag { tag: 8 }));
        let twice = [whole.as_slice(), &whole].concat();
        assert_eq!(Head::decode(&twice), Err(HeadError::Order { tag: 7, after: 7 }));
        assert_eq!(Head::decode(b"\x07\x01\x00"), Err(HeadError::Value { tag: 7 }));
        assert_eq!(Head::decode(b"\x07\x02\x01\xff"), Err(HeadError::Value { tag: 7 }));
        assert_eq!(Head::decode(&[0xff; 6]), Err(HeadError::Truncated));
    }

    #[test]
    fn a_head_without_fields_is_the_default() {
        let mut head = with_envelope(b"ab");
        assert_eq!(head.len(), 15);
        head.change(|fields| fields.envelope = None);
        assert_eq!(head, Head::default());
        assert!(head.is_empty() && head.entries().is_empty());
    }
}
