//! The groups of a segment that share its last block with the next group.
//!
//! A disk writes whole blocks. If writing a group fails, the disk may have destroyed the block in
//! which the group begins, and with it groups that were synced long before. So these are kept, and
//! written again together with the group that failed.

use super::frame::{self, BLOCK, Header};
use crate::disk::DiskFile;
use std::collections::VecDeque;

/// The frames that reach into the last, incomplete block of a segment.
#[derive(Default)]
pub(super) struct LastBlock {
    /// The offset of the block.
    from: u64,
    /// The bytes of the segment from there to the end of its last frame: less than a block.
    bytes: Vec<u8>,
    /// The offsets and lengths of the frames. The first may begin before the block.
    frames: VecDeque<(u64, usize)>,
}

impl LastBlock {
    /// Adds a frame that was written and synced at this offset, where the one before ends.
    pub(super) fn push(&mut self, offset: u64, frame: &[u8]) {
        let end = offset + frame.len() as u64;
        let from = end - end % BLOCK as u64;
        if from > offset {
            self.frames.clear();
            self.bytes.clear();
            self.bytes.extend_from_slice(&frame[(from - offset) as usize..]);
        } else {
            debug_assert!(self.frames.is_empty() || self.from == from);
            self.bytes.extend_from_slice(frame);
        }
        self.from = from;
        if end > from {
            self.frames.push_back((offset, frame.len()));
        }
    }

    /// The frames. The part of the first that is before the block is read from the file: no write
    /// to the block can have destroyed it. If it cannot be read all the same, the frame is left out.
    pub(super) fn frames(&self, file: &dyn DiskFile, header: &Header) -> Vec<Vec<u8>> {
        let mut frames = Vec::with_capacity(self.frames.len());
        for &(offset, len) in &self.frames {
            let mut frame = vec![0; len];
            let outside = self.from.saturating_sub(offset) as usize;
            let at = offset.saturating_sub(self.from) as usize;
            frame[outside..].copy_from_slice(&self.bytes[at..at + len - outside]);
            let read = outside == 0 || file.read_at(&mut frame[..outside], offset).is_ok();
            if read && frame::decode(&frame, header).is_ok() {
                frames.push(frame);
            }
        }
        frames
    }
}
