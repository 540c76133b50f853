//! The log: what was answered, in order.
//!
//! A *group* of changes is one frame in a file, a *segment*: one write and one sync. Groups have
//! consecutive numbers over all segments.
//!
//! ```text
//!              append: written and synced                  release
//!   (nothing) ---------------------------> safe in the log --------> (its segment is used again)
//!        |                                    ^
//!        | append: write or sync failed       | retry: written again, into a new segment
//!        +------------------------------> in doubt
//! ```
//!
//! - A segment that was opened, or failed once, is never written to again.
//! - No group is written while another is in doubt, so that at most the last one ever is.
//! - A segment has its name only after its header is safe, and gets its first group only after
//!   its name is: no power cut leaves a segment that looks damaged.

mod chain;
mod frame;
mod segment;
mod spares;
#[cfg(test)]
mod tests;

pub(crate) use chain::{Group, verify};
pub(crate) use frame::MAX_PAYLOAD;
pub(crate) use segment::{SegmentView, segment_name};
pub(crate) use spares::{Purpose, RESERVE, Spares};

use crate::disk::Disk;
use crate::error::DiskError;
use chain::Chain;
use frame::{FrameKind, HEADER, Header, frame_len};
use segment::Segment;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;

/// How much of the buffer of a large group is kept for later ones.
const KEEP_BUFFER: usize = 1 << 20;

/// Sizes of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    /// Bytes of a segment.
    pub(crate) segment_bytes: u64,
    /// How many spare segments are kept, at most.
    pub(crate) keep: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        // A flush uses up to two and gives two back later. With fewer kept than that, those it
        // gives back would be removed and others made in their place, byte by byte.
        LogOptions { segment_bytes: 16 << 20, keep: RESERVE + 4 }
    }
}

/// Why a group was not written.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Nothing of it was: it is as if it had not been tried.
    Refused(DiskError),
    /// It may be on disk or not. It has its number, and [`Log::retry`] writes it again.
    InDoubt(DiskError),
}

/// What is known about the last group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Safe,
    /// An earlier process wrote it, and perhaps failed to sync it. What the kernel then shows
    /// need not be on disk, and syncing it once more proves nothing: it is written again before
    /// the next.
    Unproven,
    InDoubt,
}

/// The log, in the hands of its one writer.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    spares: Arc<Spares>,
    /// Those that are written no more, in order.
    sealed: VecDeque<Segment>,
    /// The one that takes the next group, unless that is to begin a new one.
    current: Option<Segment>,
    next_segment: u64,
    last_group: u64,
    last: Last,
    /// The last group's frame, while it may have to be written again.
    frame: Vec<u8>,
    /// Whether there is nothing that a closing frame would protect.
    closed: bool,
}

impl Log {
    /// Reads the log and hands out its groups of data with a number above `after`, in order.
    ///
    /// Fails with [`DiskError::Corrupt`] where one between them is missing. What is not sound
    /// after the last of them is a write that was cut, and of no interest.
    ///
    /// All of them are safe, but for the last: that it is depends on the sync of an earlier
    /// process. It is proven with the next group, or by [`retry`](Log::retry).
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        after: u64,
        mut each: impl FnMut(Group<'_>) -> Result<(), DiskError>,
    ) -> Result<Log, DiskError> {
        let segment_bytes = options.segment_bytes.next_multiple_of(8).max(4096);
        let spares = Spares::open(disk.clone(), segment_bytes, options.keep)?;
        let numbers = segment::numbers(disk.as_ref())?;
        let mut log = Log {
            spares: Arc::new(spares),
            sealed: VecDeque::with_capacity(numbers.len()),
            current: None,
            next_segment: numbers.last().map_or(0, |last| last.saturating_add(1)),
            last_group: after,
            last: Last::Safe,
            frame: Vec::new(),
            closed: true,
            disk,
        };
        for number in numbers {
            log.sealed.push_back(Segment::open(log.disk.as_ref(), number)?);
        }
        log.read(after, &mut each)?;
        // A process that was killed may have left names that are not safe yet.
        log.disk.sync_names().map_err(DiskError::io("sync", "the directory"))?;
        Ok(log)
    }

    fn read(
        &mut self,
        after: u64,
        each: &mut impl FnMut(Group<'_>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut chain = Chain::new(after);
        let first_groups: Vec<u64> = self.sealed.iter().map(|s| s.header.first_group).collect();
        for (index, segment) in self.sealed.iter_mut().enumerate() {
            // A segment has at most one group that the next one has too: its last, if that was
            // in doubt.
            if let Some(&next) = first_groups.get(index + 1)
                && next <= after
            {
                (segment.end, segment.last) = (segment.header.bytes, next.max(segment.last));
                continue;
            }
            chain.begin(&segment.header)?;
            let bytes = segment::read(&segment.name, segment.file.as_ref(), segment.header.bytes)?;
            let mut newest = None;
            let tail = segment::scan(&bytes, &segment.header, |found| {
                segment.last = segment.last.max(found.frame.group);
                if !chain.group(&segment.name, &found)? {
                    return Ok(());
                }
                newest = Some(found.frame);
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
            chain.end(&segment.name, &segment.header, &tail);
            segment.end = tail.end;
            if let Some(newest) = newest {
                frame::encode(&mut self.frame, newest.group, newest.kind, newest.payload);
                self.last = Last::Unproven;
                self.closed = chain.closing;
            }
            // What is now believed must not be lost by a later power cut.
            segment.file.sync().map_err(DiskError::io("sync", &segment.name))?;
        }
        self.last_group = chain.last;
        Ok(())
    }

    /// The number of the last group, safe or in doubt.
    pub(crate) fn last_group(&self) -> u64 {
        self.last_group
    }

    /// Whether the last group may or may not be on disk. Nothing is written until
    /// [`retry`](Log::retry) succeeds.
    pub(crate) fn in_doubt(&self) -> bool {
        self.last == Last::InDoubt
    }

    /// The spare segments, for another thread to [fill up](Spares::fill).
    pub(crate) fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// Makes ready for a group of at most so many bytes: after this, [`append`](Log::append)
    /// is refused no more. So it is asked before the changes are made that the group records.
    ///
    /// Fails with [`DiskError::Full`] where only the reserve is left for a put.
    pub(crate) fn room(&mut self, of: Purpose, payload: usize) -> Result<(), DiskError> {
        if payload > MAX_PAYLOAD {
            return Err(DiskError::TooLarge { bytes: payload, limit: MAX_PAYLOAD });
        }
        if self.in_doubt() {
            return Err(DiskError::InDoubt { group: self.last_group });
        }
        self.retry()?;
        let length = frame_len(payload);
        let fits = self.current.as_ref().is_some_and(|current| current.fits(length));
        if of == Purpose::NewJobs {
            // Also where the current segment has room: it may have been one of the reserve.
            let large = (HEADER + length) as u64 > self.spares.segment_bytes();
            self.spares.check(usize::from(!fits && !large))?;
        }
        if !fits {
            self.begin(self.last_group + 1, length)?;
        }
        Ok(())
    }

    /// Writes a group and syncs it. Answers its number.
    pub(crate) fn append(&mut self, payload: &[u8], of: Purpose) -> Result<u64, AppendError> {
        self.room(of, payload.len()).map_err(AppendError::Refused)?;
        self.push(FrameKind::Data, payload).map_err(AppendError::InDoubt)
    }

    /// Writes the last group again, under its number and into a new segment, unless it is known
    /// to be safe.
    pub(crate) fn retry(&mut self) -> Result<(), DiskError> {
        if self.last == Last::Safe {
            return Ok(());
        }
        self.write(self.last_group)
    }

    /// Lets the next group begin a new segment.
    pub(crate) fn roll(&mut self) {
        if self.current.as_ref().is_some_and(|current| !current.is_empty()) {
            self.sealed.extend(self.current.take());
        }
    }

    /// Gives up segments all of whose groups are among those up to `through`. The files are
    /// renamed or removed by the next [`Spares::fill`].
    pub(crate) fn release(&mut self, through: u64) {
        let count = self.sealed.iter().take_while(|segment| segment.last <= through).count();
        self.spares.release(self.sealed.drain(..count));
    }

    /// The segments that may have groups above `after`, as they are now.
    pub(crate) fn segments(&self, after: u64) -> Vec<SegmentView> {
        let all = self.sealed.iter().chain(&self.current);
        all.filter(|segment| segment.last > after).map(Segment::view).collect()
    }

    /// Writes a last group, without data, that tells the end from damage. It uses up a number.
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
        debug_assert_eq!(self.last, Last::Safe, "the frame before is needed no more");
        let group = self.last_group + 1;
        self.frame.shrink_to(KEEP_BUFFER);
        frame::encode(&mut self.frame, group, kind, payload);
        self.closed = kind == FrameKind::Closing;
        self.write(group)?;
        Ok(group)
    }

    /// Writes the frame of this group, the last one or the next. If that fails, it is in doubt.
    fn write(&mut self, group: u64) -> Result<(), DiskError> {
        self.last_group = group;
        self.last = Last::InDoubt;
        if !self.current.as_ref().is_some_and(|current| current.fits(self.frame.len())) {
            self.begin(group, self.frame.len())?;
        }
        let current = self.current.as_mut().expect("it was there or was begun");
        frame::seal(&mut self.frame, &current.header);
        current.last = group;
        let written = current
            .file
            .write_at(&self.frame, current.end)
            .map_err(DiskError::io("write", &current.name))
            .and_then(|()| current.file.sync().map_err(DiskError::io("sync", &current.name)));
        if written.is_err() {
            self.abandon();
        } else {
            current.end += self.frame.len() as u64;
            self.last = Last::Safe;
        }
        written
    }

    /// Makes a spare segment the current one.
    fn begin(&mut self, first_group: u64, frame: usize) -> Result<(), DiskError> {
        self.sealed.extend(self.current.take());
        let (spare, bytes) = self.spares.take((HEADER + frame) as u64)?;
        let number = self.next_segment;
        self.next_segment += 1;
        let name = segment_name(number);
        // Never 0, which is what unused bytes are.
        let mark = RandomState::new().hash_one(number) as u32 | 1;
        let header = Header { number, first_group, bytes, mark };
        let named = || -> io::Result<()> {
            spare.file.write_at(&header.encode(), 0)?;
            spare.file.sync()?;
            self.disk.rename(&spare.name, &name)?;
            self.disk.sync_names()
        };
        if let Err(source) = named() {
            // It is not known which of the names it has, and what is left of it does no harm.
            let _ = self.disk.remove(&spare.name);
            let _ = self.disk.remove(&name);
            return Err(DiskError::io("begin", &name)(source));
        }
        let (end, last) = (HEADER as u64, first_group.saturating_sub(1));
        self.current = Some(Segment { name, file: spare.file, header, end, last, failed: false });
        Ok(())
    }

    /// Gives up the current segment, after an error.
    fn abandon(&mut self) {
        let Some(mut segment) = self.current.take() else { return };
        segment.failed = true;
        // With no safe group in it, it is of no use to anybody; on a disk that keeps failing
        // there would be ever more of these.
        if !segment.is_empty() || self.disk.remove(&segment.name).is_err() {
            self.sealed.push_back(segment);
        }
    }
}
