//! One file of the log, and how it is read.

use super::frame::{self, FRAME, Frame, HEADER, Header, frame_len};
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError};
use std::sync::Arc;

/// A segment whose header was read, or written.
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) header: Header,
    /// Where the last sound frame ends.
    pub(super) end: u64,
    /// No group in it has a higher number.
    pub(super) last: u64,
    /// A write or a sync failed. Nobody knows what it has past `end`, and it takes no more.
    pub(super) failed: bool,
}

/// A segment as it is now, to be copied or verified.
///
/// While one of these lives, its file is not used again: a released segment is removed instead,
/// and can still be read.
#[derive(Clone)]
pub(crate) struct SegmentView {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// What follows is of no interest: unused, torn, or of an earlier use.
    pub(crate) bytes: u64,
}

/// What comes after the last sound frame.
pub(super) struct Tail {
    pub(super) end: u64,
    /// Where a frame was begun there: what is wrong with it.
    pub(super) torn: Option<&'static str>,
}

/// A frame in its segment.
pub(super) struct Found<'a> {
    pub(super) offset: u64,
    /// What has to be damage, since a sound frame comes after it: where it begins, and why that
    /// is no frame.
    pub(super) hole: Option<(u64, &'static str)>,
    pub(super) frame: Frame<'a>,
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("log-{number:010}")
}

/// The number in a name of [`segment_name`]'s, and in no other.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("log-")?.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

impl Segment {
    /// Opens a segment and reads its header.
    pub(super) fn open(disk: &dyn Disk, number: u64) -> Result<Segment, DiskError> {
        let name = segment_name(number);
        let file = disk.open(&name).map_err(DiskError::io("open", &name))?;
        let header = read_header(&name, file.as_ref())?;
        let last = header.first_group.saturating_sub(1);
        Ok(Segment { name, file, header, end: HEADER as u64, last, failed: false })
    }

    pub(super) fn view(&self) -> SegmentView {
        SegmentView { name: self.name.clone(), file: self.file.clone(), bytes: self.end }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == HEADER as u64
    }

    pub(super) fn fits(&self, frame: usize) -> bool {
        self.end + frame as u64 <= self.header.bytes
    }
}

impl SegmentView {
    /// All segments of a disk that nobody writes to, in order.
    pub(crate) fn all(disk: &dyn Disk) -> Result<Vec<SegmentView>, DiskError> {
        let open = |number| {
            let name = segment_name(number);
            let file = disk.open(&name).map_err(DiskError::io("open", &name))?;
            let bytes = file.size().map_err(DiskError::io("measure", &name))?;
            Ok(SegmentView { name, file, bytes })
        };
        numbers(disk)?.into_iter().map(open).collect()
    }

    /// Writes a copy to another disk, under the same name, and syncs it. Its name is not synced.
    pub(crate) fn copy_to(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let bytes = read(&self.name, self.file.as_ref(), self.bytes)?;
        let size = self.file.size().map_err(DiskError::io("measure", &self.name))?;
        let copy = disk.create(&self.name).map_err(DiskError::io("create", &self.name))?;
        copy.write_at(&bytes, 0).map_err(DiskError::io("write", &self.name))?;
        if size > self.bytes {
            // A segment that is shorter than its header says counts as damaged.
            copy.write_at(&[0], size - 1).map_err(DiskError::io("write", &self.name))?;
        }
        copy.sync().map_err(DiskError::io("sync", &self.name))
    }
}

/// The numbers of all segments, in order.
pub(super) fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, DiskError> {
    let names = disk.names().map_err(DiskError::io("list", "the directory"))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn read_header(name: &str, file: &dyn DiskFile) -> Result<Header, DiskError> {
    let size = file.size().map_err(DiskError::io("measure", name))?;
    if size < HEADER as u64 {
        return Err(Corrupt::new(name, size, "it ends before its header does").into());
    }
    let mut bytes = [0; HEADER];
    file.read_at(&mut bytes, 0).map_err(DiskError::io("read", name))?;
    let header = Header::decode(name, &bytes)?;
    if segment_name(header.number) != name {
        let what = format!("it was written as {}", segment_name(header.number));
        return Err(Corrupt::new(name, 16, what).into());
    }
    if size < header.bytes {
        let what = format!("it ends here, and had {} bytes", header.bytes);
        return Err(Corrupt::new(name, size, what).into());
    }
    Ok(header)
}

pub(super) fn read(name: &str, file: &dyn DiskFile, bytes: u64) -> Result<Vec<u8>, DiskError> {
    let mut read = vec![0; bytes as usize];
    file.read_at(&mut read, 0).map_err(DiskError::io("read", name))?;
    Ok(read)
}

/// Hands out all sound frames of a segment, also those that come after damage.
pub(super) fn scan<'a, E>(
    bytes: &'a [u8],
    header: &Header,
    mut each: impl FnMut(Found<'a>) -> Result<(), E>,
) -> Result<Tail, E> {
    let (mut offset, mut end) = (HEADER, HEADER);
    let mut hole = None;
    while offset + FRAME <= bytes.len() {
        match frame::decode(&bytes[offset..], header) {
            Ok(frame) => {
                let hole = hole.take().map(|what| (end as u64, what));
                each(Found { offset: offset as u64, hole, frame })?;
                offset += frame_len(frame.payload.len());
                end = offset;
            }
            Err(what) => {
                hole.get_or_insert(what);
                offset += 8;
            }
        }
    }
    let begun = bytes.len() > end && frame::has_mark(&bytes[end..], header);
    Ok(Tail { end: end as u64, torn: hole.filter(|_| begun) })
}
