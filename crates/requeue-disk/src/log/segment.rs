//! A segment: one file of the log, and how it is read.

use super::frame::{self, BLOCK, FRAME, Frame, HEADER, Header, frame_len};
use super::last_block::LastBlock;
use super::segment_file::SegmentFile;
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError};
use crate::file_names::FileNames;
use std::sync::Arc;

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// A segment whose header was read or written.
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) file: Arc<SegmentFile>,
    pub(super) header: Header,
    /// The offset at which the last valid frame ends.
    pub(super) end: u64,
    /// The groups that share a block with the next one, if this process wrote them.
    pub(super) last_block: LastBlock,
    /// No group in the segment has a higher number.
    pub(super) last: u64,
    /// A write or a sync failed. The bytes after `end` are unknown, and nothing more is written.
    pub(super) failed: bool,
}

/// A view of a segment as it is now, for a backup or a verification.
///
/// While the view exists, the file of a released segment is neither used again nor removed, and can
/// still be read.
#[derive(Clone)]
pub(crate) struct SegmentView {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// The bytes after this are ignored: unused, an incomplete write, or of an earlier use.
    pub(crate) bytes: u64,
}

/// What follows the last valid frame.
pub(super) struct Tail {
    pub(super) end: u64,
    /// If a frame was begun there, what is wrong with it.
    pub(super) torn: Option<&'static str>,
    /// The highest number of a group that was begun there, but not the one right after the last
    /// valid frame. See [`scan`].
    pub(super) later: Option<u64>,
}

/// A frame in its segment.
pub(super) struct Found<'a> {
    pub(super) offset: u64,
    /// Damage before this frame: the offset of invalid bytes, and what is wrong with them. They are
    /// damage because a valid frame follows.
    pub(super) hole: Option<(u64, &'static str)>,
    pub(super) frame: Frame<'a>,
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("log-{number:010}")
}

/// The number in a name that [`segment_name`] made; `None` for all other names.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("log-")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

impl Segment {
    /// Opens a segment, reads its header and closes its file.
    pub(super) fn open(disk: &Arc<dyn Disk>, number: u64) -> Result<Segment, DiskError> {
        let name = segment_name(number);
        let file = disk.open(&name).map_err(DiskError::io("open", &name))?;
        let header = read_header(&name, file.as_ref())?;
        let file = SegmentFile::new(disk.clone(), &name, file);
        file.close();
        Ok(Segment::new(name, file, header))
    }

    /// A segment of which only the header is known.
    pub(super) fn new(name: String, file: Arc<SegmentFile>, header: Header) -> Segment {
        let (end, last) = (BLOCK as u64, header.first_group.saturating_sub(1));
        let last_block = LastBlock::default();
        Segment { name, file, header, end, last_block, last, failed: false }
    }

    pub(super) fn view(&self) -> SegmentView {
        SegmentView { name: self.name.clone(), file: self.file.clone(), bytes: self.end }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == BLOCK as u64
    }

    pub(super) fn fits(&self, frame: usize) -> bool {
        self.end + frame as u64 <= self.header.bytes
    }
}

impl SegmentView {
    /// All segments of a disk that is not in use, in order.
    pub(crate) fn all(disk: &dyn Disk) -> Result<Vec<SegmentView>, DiskError> {
        let open = |number| {
            let name = segment_name(number);
            let file = disk.open(&name).map_err(DiskError::io("open", &name))?;
            let bytes = file.size().map_err(DiskError::io("measure", &name))?;
            Ok(SegmentView { name, file, bytes })
        };
        FileNames::list(disk)?.segments.into_iter().map(open).collect()
    }

    /// Copies the segment to another disk, with the same name, and syncs the copy. Its name is not
    /// synced.
    pub(crate) fn copy_to(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let bytes = read(&self.name, self.file.as_ref(), self.bytes)?;
        let size = self.file.size().map_err(DiskError::io("measure", &self.name))?;
        let copy = disk.create(&self.name).map_err(DiskError::io("create", &self.name))?;
        copy.write_at(&bytes, 0).map_err(DiskError::io("write", &self.name))?;
        if size > self.bytes {
            // A segment that is shorter than its header specifies counts as damaged.
            copy.write_at(&[0], size - 1).map_err(DiskError::io("write", &self.name))?;
        }
        copy.sync().map_err(DiskError::io("sync", &self.name))
    }
}

pub(super) fn read_header(name: &str, file: &dyn DiskFile) -> Result<Header, DiskError> {
    let size = file.size().map_err(DiskError::io("measure", name))?;
    if size < HEADER as u64 {
        return Err(Corrupt::new(name, size, "the file ends inside its header").into());
    }
    let mut bytes = [0; HEADER];
    file.read_at(&mut bytes, 0).map_err(DiskError::read(name, 0))?;
    let header = Header::decode(name, &bytes)?;
    if segment_name(header.number) != name {
        let what = format!("the header is that of {}", segment_name(header.number));
        return Err(Corrupt::new(name, 16, what).into());
    }
    if size < header.bytes {
        let what = format!("the file ends here, but the header specifies {} bytes", header.bytes);
        return Err(Corrupt::new(name, size, what).into());
    }
    Ok(header)
}

pub(super) fn read(name: &str, file: &dyn DiskFile, bytes: u64) -> Result<Vec<u8>, DiskError> {
    let mut read = vec![0; bytes as usize];
    let mut offset = 0;
    // In pieces, so that an error names the place.
    for piece in read.chunks_mut(PIECE) {
        file.read_at(piece, offset).map_err(DiskError::read(name, offset))?;
        offset += piece.len() as u64;
    }
    Ok(read)
}

/// How often the size of a segment is checksummed in vain before only short frames are tried. Bytes
/// that look like the beginning of a long frame everywhere would otherwise take hours.
const MAX_IN_VAIN: usize = 32;
const SHORT: usize = 4 << 10;

/// Passes all valid frames of a segment to `each`, including those after damage.
///
/// A group is written after the one before it is synced. So if the beginnings of two groups follow
/// the last valid frame, the first of them was synced, and is damaged: only the last group of a
/// segment can be an incomplete write. The beginning of a frame is its mark, which no client knows,
/// together with a number that is possible at this place: higher than those of all groups before,
/// including the ones of an earlier use of the file, and not too high for the bytes between them.
pub(super) fn scan<'a, E>(
    bytes: &'a [u8],
    header: &Header,
    mut each: impl FnMut(Found<'a>) -> Result<(), E>,
) -> Result<Tail, E> {
    let (mut offset, mut end) = (BLOCK, BLOCK);
    let (mut hole, mut later) = (None, None);
    let mut last = header.first_group.saturating_sub(1);
    let mut budget = bytes.len().saturating_mul(MAX_IN_VAIN);
    while offset + FRAME <= bytes.len() {
        let most =
            if budget == 0 { (bytes.len() - offset).min(SHORT) } else { bytes.len() - offset };
        match frame::decode(&bytes[offset..offset + most], header) {
            Ok(frame) => {
                let hole = hole.take().map(|what| (end as u64, what));
                each(Found { offset: offset as u64, hole, frame })?;
                offset += frame_len(frame.payload.len());
                (end, last, later) = (offset, frame.group, None);
            }
            Err(what) => {
                if frame::has_mark(&bytes[offset..], header) {
                    budget = budget.saturating_sub(frame::claimed_len(&bytes[offset..]));
                }
                hole.get_or_insert(what);
                let group = frame::begun(&bytes[offset..], header);
                let skipped = group.and_then(|group| group.checked_sub(last.saturating_add(1)));
                if skipped.is_some_and(|n| n > 0 && n <= ((offset - end) / FRAME) as u64) {
                    later = later.max(group);
                }
                offset += 8;
            }
        }
    }
    let begun = bytes.len() > end && frame::has_mark(&bytes[end..], header);
    Ok(Tail { end: end as u64, torn: hole.filter(|_| begun), later })
}
