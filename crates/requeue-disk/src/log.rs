//! The write-ahead log: all changes, in order, since the last flush.
//!
//! A *group* of changes is one frame in a file, a *segment*: one write and one sync. Groups have
//! consecutive numbers over all segments.
//!
//! ```text
//!              append: written and synced                  release
//!   (nothing) ---------------------------> synced ---------> (its segment is used again)
//!        |                                    ^
//!        | append: write or sync failed       | retry: written again, to a new segment
//!        +------------------------------> in doubt
//! ```
//!
//! - A segment that another process wrote, or whose write or sync failed, is never written to
//!   again.
//! - No group is written while another is in doubt. So at most the last group is in doubt.
//! - A failed write may destroy the block in which the group begins. So groups that share this block
//!   are written again too, before the one in doubt.
//! - A segment gets its name after its header is synced, and its first group after its name is
//!   synced. So a power cut cannot leave a segment that looks damaged.

mod chain;
mod frame;
mod last_block;
mod salvage;
mod segment;
mod segment_file;
mod spares;
#[cfg(test)]
mod tests;

pub(crate) use chain::{Group, LogEnd, verify};
pub(crate) use frame::MAX_PAYLOAD;
pub(crate) use salvage::{LogDamage, SalvagedLog};
pub(crate) use segment::{SegmentView, segment_name};
pub(crate) use spares::{Maker, Purpose, RESERVE, Spares};

use crate::disk::{Disk, DiskFile};
use crate::error::DiskError;
use crate::file_names::FileNames;
use chain::Chain;
use frame::{BLOCK, Frame, FrameKind, Header, MAX_COPIES, frame_len};
use segment::{Found, Segment};
use segment_file::SegmentFile;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::io;
use std::mem;
use std::sync::Arc;

/// How much of the buffer is kept after a large group.
const KEEP_BUFFER: usize = 1 << 20;

/// Sizes of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    /// Bytes of a segment.
    pub(crate) segment_bytes: u64,
    /// The largest number of spare segments that is kept.
    pub(crate) keep: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        // A flush uses up to two segments and releases two later. If fewer were kept, segments
        // would be removed only to be created again, byte by byte.
        LogOptions { segment_bytes: 16 << 20, keep: RESERVE + 4 }
    }
}

/// Why writing a group failed.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Nothing was written.
    Refused(DiskError),
    /// The group may or may not be on disk. It keeps its number, and [`Log::retry`] writes it
    /// again.
    InDoubt(DiskError),
}

/// Whether the last group is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Synced,
    /// An earlier process wrote it, and may have failed to sync it. The bytes that the kernel shows
    /// need not be on disk then, and a second sync proves nothing. So the group is written again
    /// before the next one, and so are those that share a block with it.
    Unproven,
    InDoubt,
}

/// The log. The writer thread owns it.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    spares: Arc<Spares>,
    /// Segments that are no longer written to, in order.
    sealed: VecDeque<Segment>,
    /// The segment for the next group. `None` if the next group begins a new one.
    current: Option<Segment>,
    next_segment: u64,
    last_group: u64,
    last: Last,
    /// The last group with data that is synced, or that was found at open.
    end: LogEnd,
    /// The frame of the last group, as long as it may have to be written again.
    frame: Vec<u8>,
    /// The frames of the groups before it that have to be written again with it. Usually empty.
    before: Vec<Vec<u8>>,
    /// Whether the log ends with a closing frame, or is empty.
    closed: bool,
}

impl Log {
    /// Opens the log, and passes the data of all groups after the group `after` to `each`, in
    /// order.
    ///
    /// Fails with [`DiskError::Corrupt`] if a group between them is missing, or if the log does not
    /// reach the end that a manifest recorded. Other invalid bytes after the last group are an
    /// incomplete write, and are ignored.
    ///
    /// All of these groups are on disk, except perhaps the last and those that share a block with
    /// it: an earlier process may have failed to sync it. The next group, or
    /// [`retry`](Log::retry), writes them again.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        after: u64,
        recorded: LogEnd,
        mut each: impl FnMut(Group<'_>) -> Result<(), DiskError>,
    ) -> Result<Log, DiskError> {
        let least = 2 * BLOCK as u64;
        let segment_bytes = options.segment_bytes.next_multiple_of(8).max(least);
        let spares = Spares::open(disk.clone(), segment_bytes, options.keep)?;
        let numbers = FileNames::list(disk.as_ref())?.segments;
        let mut log = Log {
            spares: Arc::new(spares),
            sealed: VecDeque::with_capacity(numbers.len()),
            current: None,
            next_segment: numbers.last().map_or(0, |last| last.saturating_add(1)),
            last_group: after,
            last: Last::Synced,
            end: LogEnd::default(),
            frame: Vec::new(),
            before: Vec::new(),
            closed: true,
            disk,
        };
        for number in numbers {
            log.sealed.push_back(Segment::open(&log.disk, number)?);
        }
        log.read(after, recorded, &mut each)?;
        // A process that was killed may have left names that are not synced.
        log.disk.sync_names().map_err(DiskError::io("sync", "the directory"))?;
        Ok(log)
    }

    fn read(
        &mut self,
        after: u64,
        recorded: LogEnd,
        each: &mut impl FnMut(Group<'_>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut chain = Chain::new(after);
        // The frames that may have to be written again.
        let mut unproven = BTreeMap::new();
        let first_groups: Vec<u64> = self.sealed.iter().map(|s| s.header.first_group).collect();
        for (index, segment) in self.sealed.iter_mut().enumerate() {
            // The last group may be in the next segment too, and so may those that share a block.
            if let Some(&next) = first_groups.get(index + 1)
                && next.saturating_add(MAX_COPIES) <= after
            {
                (segment.end, segment.last) = (segment.header.bytes, after);
                continue;
            }
            chain.begin(&segment.header, first_groups.get(index + 1).copied())?;
            let bytes = segment::read(&segment.name, segment.file.as_ref(), segment.header.bytes)?;
            let mut tail = Tail::default();
            let ended = segment::scan(&bytes, &segment.header, |found| {
                segment.last = segment.last.max(found.frame.group);
                tail.push(&found);
                if !chain.group(&segment.name, &segment.header, &found)? {
                    return Ok(());
                }
                match found.frame.kind {
                    FrameKind::Data => each(Group {
                        file: &segment.name,
                        offset: found.offset,
                        number: found.frame.group,
                        payload: found.frame.payload,
                        is_new: true,
                        behind_gap: false,
                    }),
                    FrameKind::Closing => Ok(()),
                }
            })?;
            chain.end(&segment.name, &segment.header, &ended);
            segment.end = ended.end;
            tail.add_to(&mut unproven, chain.last);
            // What was read now must not be lost by a later power cut.
            segment.file.sync().map_err(DiskError::io("sync", &segment.name))?;
        }
        chain.finish()?;
        self.last_group = chain.last;
        self.closed = chain.closing || self.last_group == after;
        let found = chain.found();
        found.check(recorded)?;
        self.end = found.end;
        let mut expected = self.last_group;
        while expected > after && (self.before.len() as u64) < MAX_COPIES {
            let Some(frame) = unproven.remove(&expected) else { break };
            self.before.insert(0, frame);
            expected -= 1;
        }
        if let Some(frame) = self.before.pop() {
            (self.frame, self.last) = (frame, Last::Unproven);
        }
        Ok(())
    }

    /// The number of the last group, synced or in doubt.
    pub(crate) fn last_group(&self) -> u64 {
        self.last_group
    }

    /// The last group with data that is on disk.
    pub(crate) fn end(&self) -> LogEnd {
        self.end
    }

    /// Whether the last group is in doubt: it may or may not be on disk. Nothing else is written
    /// until [`retry`](Log::retry) succeeds.
    pub(crate) fn in_doubt(&self) -> bool {
        self.last == Last::InDoubt
    }

    /// The spare segments. Another thread [fills them up](Spares::fill).
    pub(crate) fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// Whether there is space for a group of at most `payload` bytes. If not, [`reserve`] makes some,
    /// unless this fails already: then the group is refused. Neither writes nor waits.
    ///
    /// [`reserve`]: Log::reserve
    pub(crate) fn has_space(&self, purpose: Purpose, payload: usize) -> Result<bool, DiskError> {
        if payload > MAX_PAYLOAD {
            return Err(DiskError::TooLarge { bytes: payload, limit: MAX_PAYLOAD });
        }
        if self.in_doubt() {
            return Err(DiskError::InDoubt { group: self.last_group });
        }
        let (fits, beside_reserve) = self.needs(payload);
        let spared = purpose == Purpose::ExistingJobs || self.spares.has(beside_reserve)?;
        Ok(spared && fits && self.last == Last::Synced)
    }

    /// Whether a group fits into the current segment, and how many spares it takes for new jobs.
    fn needs(&self, payload: usize) -> (bool, usize) {
        let length = frame_len(payload);
        let fits = self.current.as_ref().is_some_and(|current| current.fits(length));
        let large = (BLOCK + length) as u64 > self.spares.segment_bytes();
        (fits, usize::from(!fits && !large))
    }

    /// Reserves space for a group of at most `payload` bytes: after this, [`append`](Log::append)
    /// is not refused. It is called before the changes are applied that the group records.
    ///
    /// Fails with [`DiskError::Full`] if only the reserve is left and `purpose` is
    /// [`Purpose::NewJobs`].
    pub(crate) fn reserve(&mut self, purpose: Purpose, payload: usize) -> Result<(), DiskError> {
        if payload > MAX_PAYLOAD {
            return Err(DiskError::TooLarge { bytes: payload, limit: MAX_PAYLOAD });
        }
        if self.in_doubt() {
            return Err(DiskError::InDoubt { group: self.last_group });
        }
        self.retry()?;
        let (fits, beside_reserve) = self.needs(payload);
        if purpose == Purpose::NewJobs {
            // Also if the current segment has room: it may be one of the reserve.
            self.spares.check(beside_reserve)?;
        }
        if !fits {
            self.begin(self.last_group + 1, frame_len(payload))?;
        }
        Ok(())
    }

    /// Writes a group and syncs it. Returns its number.
    pub(crate) fn append(&mut self, payload: &[u8], purpose: Purpose) -> Result<u64, AppendError> {
        self.reserve(purpose, payload.len()).map_err(AppendError::Refused)?;
        self.push(FrameKind::Data, payload).map_err(AppendError::InDoubt)
    }

    /// Writes the last group again, with the same number and to a new segment, unless it is known
    /// to be synced.
    pub(crate) fn retry(&mut self) -> Result<(), DiskError> {
        if self.last == Last::Synced {
            return Ok(());
        }
        self.write(self.last_group)
    }

    /// Makes the next group begin a new segment.
    pub(crate) fn roll(&mut self) {
        if self.current.as_ref().is_some_and(|current| !current.is_empty()) {
            self.sealed.extend(self.current.take());
        }
    }

    /// Releases the segments that contain no group after `through`. The next [`Spares::fill`]
    /// renames or removes their files.
    pub(crate) fn release(&mut self, through: u64) {
        let count = self.sealed.iter().take_while(|segment| segment.last <= through).count();
        self.spares.release(self.sealed.drain(..count));
    }

    /// The number of segments, and their size in bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        let all = self.sealed.iter().chain(&self.current);
        all.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.header.bytes))
    }

    /// The segments that may contain groups after the group `after`, as they are now.
    pub(crate) fn segments(&self, after: u64) -> Vec<SegmentView> {
        let all = self.sealed.iter().chain(&self.current);
        all.filter(|segment| segment.last > after).map(Segment::view).collect()
    }

    /// Writes a closing frame, which distinguishes the end of the log from damage. It uses up a
    /// group number.
    pub(crate) fn close(&mut self) -> Result<(), DiskError> {
        if self.in_doubt() || !self.closed {
            self.retry()?;
        }
        if !self.closed {
            self.push(FrameKind::Closing, &[])?;
        }
        Ok(())
    }

    fn push(&mut self, kind: FrameKind, payload: &[u8]) -> Result<u64, DiskError> {
        debug_assert_eq!(self.last, Last::Synced, "the frame before is not needed any more");
        let group = self.last_group + 1;
        frame::encode(&mut self.frame, group, kind, payload);
        self.closed = kind == FrameKind::Closing;
        self.write(group)?;
        Ok(group)
    }

    /// Writes the frame of this group, which is the last one or the next. If that fails, the group
    /// is in doubt.
    fn write(&mut self, group: u64) -> Result<(), DiskError> {
        self.last_group = group;
        self.last = Last::InDoubt;
        let length = self.before.iter().map(Vec::len).sum::<usize>() + self.frame.len();
        if !self.current.as_ref().is_some_and(|current| current.fits(length)) {
            self.begin(group - self.before.len() as u64, length)?;
        }
        let current = self.current.as_mut().expect("there is a segment, or one was begun");
        frame::seal(&mut self.frame, &current.header);
        self.before.iter_mut().for_each(|frame| frame::seal(frame, &current.header));
        let together = match &*self.before {
            [] => None,
            before => Some([&before.concat(), &*self.frame].concat()),
        };
        current.last = group;
        let written = current
            .file
            .write_at(together.as_ref().unwrap_or(&self.frame), current.end)
            .map_err(DiskError::io("write", &current.name))
            .and_then(|()| current.file.sync().map_err(DiskError::io("sync", &current.name)));
        if written.is_err() {
            self.abandon();
        } else {
            for frame in self.before.drain(..).chain([mem::take(&mut self.frame)]) {
                current.last_block.push(current.end, &frame);
                current.end += frame.len() as u64;
                self.frame = frame;
            }
            self.frame.clear();
            self.frame.shrink_to(KEEP_BUFFER);
            self.last = Last::Synced;
            if !self.closed {
                self.end = LogEnd { group, segment: current.header.number };
            }
        }
        written
    }

    /// Turns a spare segment into the current one.
    fn begin(&mut self, first_group: u64, frame: usize) -> Result<(), DiskError> {
        self.sealed.extend(self.current.take());
        let (spare, bytes) = self.spares.take((BLOCK + frame) as u64)?;
        let number = self.next_segment;
        self.next_segment += 1;
        let name = segment_name(number);
        // Never 0: unused bytes are 0.
        let mark = RandomState::new().hash_one(number) as u32 | 1;
        let header = Header { number, first_group, bytes, mark };
        let named = || -> io::Result<()> {
            spare.file.write_at(&header.encode(), 0)?;
            spare.file.sync()?;
            self.disk.rename(&spare.name, &name)?;
            self.disk.sync_names()
        };
        if let Err(source) = named() {
            // It is unknown which of the two names the file has. Either does no harm.
            let _ = self.disk.remove(&spare.name);
            let _ = self.disk.remove(&name);
            return Err(DiskError::io("begin segment", &name)(source));
        }
        self.sealed.iter().for_each(|segment| segment.file.close());
        let file = SegmentFile::new(self.disk.clone(), &name, spare.file);
        self.current = Some(Segment::new(name, file, header));
        Ok(())
    }

    /// Abandons the current segment after an error.
    fn abandon(&mut self) {
        let Some(mut segment) = self.current.take() else { return };
        segment.failed = true;
        let shared = segment.last_block.frames(segment.file.as_ref(), &segment.header);
        // If there are some already, they were to be written to this segment, and it had no others.
        if self.before.is_empty() {
            self.before = shared;
        }
        // Without a synced group it is useless, and on a disk that keeps failing there would be
        // more and more of these.
        if !segment.is_empty() || self.disk.remove(&segment.name).is_err() {
            self.sealed.push_back(segment);
        }
    }
}

/// The frames of a segment that share a block with the last one, while the segment is read.
#[derive(Default)]
struct Tail<'a> {
    frames: VecDeque<(u64, Frame<'a>)>,
    /// Whether a frame before them is invalid.
    has_hole: bool,
}

impl<'a> Tail<'a> {
    fn push(&mut self, found: &Found<'a>) {
        self.has_hole |= found.hole.is_some();
        let block = found.offset - found.offset % BLOCK as u64;
        let ends_before =
            |(offset, frame): &mut (u64, Frame<'_>)| *offset + frame.len() as u64 <= block;
        while self.frames.front_mut().is_some_and(ends_before) {
            self.frames.pop_front();
        }
        self.frames.push_back((found.offset, found.frame));
    }

    /// Adds the frames to those that may have to be written again. `last` is the last group so far.
    ///
    /// The frames of earlier segments are needed no more if this one contains all groups from its
    /// first on, because all groups before that were synced when it began.
    fn add_to(self, unproven: &mut BTreeMap<u64, Vec<u8>>, last: u64) {
        let reaches = self.frames.back().is_some_and(|(_, frame)| frame.group >= last);
        if reaches && !self.has_hole {
            unproven.clear();
        }
        for (_, frame) in self.frames {
            let mut bytes = Vec::new();
            frame::encode(&mut bytes, frame.group, frame.kind, frame.payload);
            unproven.insert(frame.group, bytes);
        }
    }
}
