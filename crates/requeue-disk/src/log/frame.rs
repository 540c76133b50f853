//! The bytes of a segment: a header, then frames of one group each.
//!
//! ```text
//!   header, 64 bytes at 0                    frame, a multiple of 8 bytes, from 4096 on
//!    0  "rq-seg\r\n"                          0  mark of the segment    u32
//!    8  format: 1               u32           4  checksum of the rest   u32
//!   12  checksum of the rest    u32           8  bytes of payload       u32
//!   16  number of the segment   u64          12  1 data, 2 closing      u32
//!   24  number of its 1st group u64          16  number of the group    u64
//!   32  bytes of the segment    u64          24  payload
//!   40  mark                    u32              zeros, to the next multiple of 8
//!   44  zeros
//! ```
//!
//! All numbers are little endian. Segments are not erased before they are used again. A frame of an
//! earlier use has a different mark, which is random for every use, and a different seed of the
//! checksum. So have bytes in a job's body that look like a frame.

use crate::error::{Corrupt, DiskError};
use crate::format::{self, FORMAT};
use crc32fast::Hasher;

const MAGIC: [u8; 8] = *b"rq-seg\r\n";

pub(super) const HEADER: usize = 64;

/// The largest unit that a disk is expected to write completely or not at all, and to destroy if it
/// fails to write it. The header has a block of its own, so that no failed write of a group can
/// destroy it: frames begin at this offset.
pub(super) const BLOCK: usize = 4096;

/// The largest number of groups at the beginning of a segment that are copies of groups in segments
/// before: those that share a block.
pub(super) const MAX_COPIES: u64 = 256;

/// Bytes of a frame before its payload.
pub(super) const FRAME: usize = 24;

/// The largest payload of a group, in bytes. A batch has at most 16 MiB, and the writer puts few
/// of them into one group. This limit keeps lengths far below the largest `u32`.
pub(crate) const MAX_PAYLOAD: usize = 256 << 20;

/// The first bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u64,
    /// When the segment began, all groups before this one were synced.
    pub(super) first_group: u64,
    /// The size of the file, which never shrinks.
    pub(super) bytes: u64,
    pub(super) mark: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_group.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.mark.to_le_bytes());
        let sum = header_sum(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A segment gets its name after its header is synced. So an invalid header is always damage,
    /// and never the effect of a power cut.
    pub(super) fn decode(file: &str, bytes: &[u8; HEADER]) -> Result<Header, DiskError> {
        if header_sum(bytes) != u32_at(bytes, 12) {
            return Err(Corrupt::new(file, 0, "the checksum of the header is wrong").into());
        }
        format::check(file, MAGIC, &bytes[..8], u32_at(bytes, 8))?;
        Ok(Header {
            number: u64_at(bytes, 16),
            first_group: u64_at(bytes, 24),
            bytes: u64_at(bytes, 32),
            mark: u32_at(bytes, 40),
        })
    }
}

fn header_sum(bytes: &[u8; HEADER]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Data = 1,
    /// The last frame of a log that was closed. It has no payload. Because of it, damage to the
    /// group before cannot be mistaken for an incomplete write.
    Closing = 2,
}

/// A valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) group: u64,
    pub(super) kind: FrameKind,
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    /// The size of the frame.
    pub(super) fn len(&self) -> usize {
        frame_len(self.payload.len())
    }
}

/// The size of a frame with a payload of this length.
pub(super) fn frame_len(payload: usize) -> usize {
    (FRAME + payload).next_multiple_of(8)
}

/// Builds a frame in `frame`, whose contents are replaced. [`seal`] completes it.
pub(super) fn encode(frame: &mut Vec<u8>, group: u64, kind: FrameKind, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("no payload is longer than MAX_PAYLOAD");
    frame.clear();
    frame.extend_from_slice(&[0; 8]);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&(kind as u32).to_le_bytes());
    frame.extend_from_slice(&group.to_le_bytes());
    frame.extend_from_slice(payload);
    frame.resize(frame_len(payload.len()), 0);
}

/// Sets the mark and the checksum, which belong to one segment.
pub(super) fn seal(frame: &mut [u8], header: &Header) {
    let sum = frame_sum(header, &frame[8..]);
    frame[..4].copy_from_slice(&header.mark.to_le_bytes());
    frame[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// The frame at the beginning of `bytes`. The error describes why there is none.
pub(super) fn decode<'a>(bytes: &'a [u8], header: &Header) -> Result<Frame<'a>, &'static str> {
    if bytes.len() < FRAME || !has_mark(bytes, header) {
        return Err("no frame begins here");
    }
    let length = u32_at(bytes, 8) as usize;
    if length > MAX_PAYLOAD || frame_len(length) > bytes.len() {
        return Err("the frame is longer than the rest of the segment");
    }
    let bytes = &bytes[..frame_len(length)];
    if frame_sum(header, &bytes[8..]) != u32_at(bytes, 4) {
        return Err("the checksum of the frame is wrong");
    }
    let kind = match u32_at(bytes, 12) {
        1 => FrameKind::Data,
        2 => FrameKind::Closing,
        _ => return Err("the frame has an unknown type"),
    };
    Ok(Frame { group: u64_at(bytes, 16), kind, payload: &bytes[FRAME..FRAME + length] })
}

/// Whether `bytes` begin with the mark of this segment.
pub(super) fn has_mark(bytes: &[u8], header: &Header) -> bool {
    // Compared as a number, because a damaged segment is searched at every eighth byte.
    bytes.first_chunk().is_some_and(|mark| u32::from_le_bytes(*mark) == header.mark)
}

/// The number of the group whose frame begins `bytes`, if they begin with the mark of this segment.
/// The rest of the frame may be damaged.
pub(super) fn begun(bytes: &[u8], header: &Header) -> Option<u64> {
    (bytes.len() >= FRAME && has_mark(bytes, header)).then(|| u64_at(bytes, 16))
}

/// The size that the frame at the beginning of `bytes` claims to have, valid or not.
pub(super) fn claimed_len(bytes: &[u8]) -> usize {
    bytes.get(8..12).map_or(0, |_| frame_len(u32_at(bytes, 8) as usize).min(bytes.len()))
}

fn frame_sum(header: &Header, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header.number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"))
}
