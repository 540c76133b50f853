//! Reads what is left of a damaged log.
//!
//! Damage may hide groups, but it never adds any: a group is used only if its checksum is correct.
//! If the header of a segment is damaged, its frames are found by the mark that they begin with.

use super::chain::Group;
use super::frame::{self, BLOCK, FRAME, FrameKind, HEADER, Header};
use super::segment::{self, scan, segment_name};
use super::{LogOptions, MAX_PAYLOAD};
use crate::disk::{Disk, DiskFile};
use crate::error::{Corrupt, DiskError, chain};
use crate::file_names::FileNames;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// How far the number of a damaged frame may be from the last valid one to be believed.
const FAR: u64 = 1 << 20;

/// The part of a segment that is read by itself after a read of the whole failed.
const CHUNK: usize = 4 << 10;

/// How often the size of a segment is checksummed at most to find a mark.
const MAX_CHECKED: usize = 64;

/// What is left of the log.
pub(crate) struct SalvagedLog {
    /// In the order of their numbers.
    segments: Vec<SalvagedSegment>,
    /// The groups that can be read, closing frames included: sorted and not adjacent.
    present: Vec<RangeInclusive<u64>>,
    /// Groups up to this one were synced.
    synced: u64,
    /// Bytes that cannot be used.
    pub(crate) damage: Vec<LogDamage>,
}

struct SalvagedSegment {
    name: String,
    file: Arc<dyn DiskFile>,
    /// With the mark that frames have; the other numbers are valid only if the header is.
    header: Header,
    bytes: u64,
}

/// Bytes of a segment that cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct LogDamage {
    pub(crate) file: String,
    pub(crate) bytes: Range<u64>,
    pub(crate) what: String,
    /// The groups between which the bytes are. `None`: unknown.
    after: u64,
    before: Option<u64>,
    /// The number of the segment.
    segment: u64,
    /// Whether the bytes are damaged for certain, and not an incomplete write.
    certain: bool,
}

impl LogDamage {
    pub(crate) fn corrupt(&self) -> Corrupt {
        Corrupt::new(&self.file, self.bytes.start, self.what.clone())
    }
}

impl SalvagedLog {
    /// Reads all segments. Fails if a version with another format wrote one of them.
    pub(crate) fn read(disk: &dyn Disk) -> Result<SalvagedLog, DiskError> {
        let mut log = SalvagedLog {
            segments: Vec::new(),
            present: Vec::new(),
            synced: 0,
            damage: Vec::new(),
        };
        for number in FileNames::list(disk)?.segments {
            log.open(disk, number)?;
        }
        log.segments.sort_by_key(|segment| segment.header.number);
        for at in 0..log.segments.len() {
            log.survey(at);
        }
        log.present.sort_by_key(|groups| *groups.start());
        let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
        for groups in log.present.drain(..) {
            match merged.last_mut() {
                Some(last) if *groups.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(groups.end());
                }
                _ => merged.push(groups),
            }
        }
        log.present = merged;
        log.synced = log.synced.max(log.present.last().map_or(0, |last| *last.end()));
        Ok(log)
    }

    fn lose(&mut self, file: &str, bytes: Range<u64>, what: String, after: u64) {
        let segment = segment::segment_number(file).unwrap_or(0);
        let (file, before, certain) = (file.to_owned(), None, true);
        self.damage.push(LogDamage { file, bytes, what, after, before, segment, certain });
    }

    /// Whether a group after `after` was in these bytes, or may have been.
    pub(crate) fn is_lost(&self, damage: &LogDamage, after: u64) -> bool {
        let may_contain = |groups: RangeInclusive<u64>| {
            *groups.end() > damage.after
                && damage.before.is_none_or(|before| *groups.start() < before)
        };
        if damage.after == u64::MAX {
            return false;
        }
        // Behind the last group, nothing shows how many there were.
        let later = |segment: &SalvagedSegment| segment.header.number > damage.segment;
        let is_end = damage.before.is_none() && !self.segments.iter().any(later);
        damage.certain && is_end || self.missing(after).into_iter().any(may_contain)
    }

    fn open(&mut self, disk: &dyn Disk, number: u64) -> Result<(), DiskError> {
        let name = segment_name(number);
        let opened = disk.open(&name).and_then(|file| file.size().map(|size| (file, size)));
        let (file, size) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.lose(&name, 0..0, error.to_string(), 0);
                return Ok(());
            }
        };
        let mut bytes = [0; HEADER];
        let read = file.read_at(&mut bytes, 0).map_err(DiskError::io("read", &name));
        let header = match read.and_then(|()| Header::decode(&name, &bytes)) {
            // A file under a wrong name is the segment that its header specifies.
            Ok(header) => {
                if header.number != number {
                    let what = format!("the header is that of {}", segment_name(header.number));
                    self.lose(&name, 16..24, what, u64::MAX);
                } else if size < header.bytes {
                    let what = "the file ends before the size that its header specifies";
                    self.lose(&name, size..header.bytes, what.to_owned(), 0);
                }
                // All groups before its first one were synced when the segment began.
                self.synced = self.synced.max(header.first_group.saturating_sub(1));
                header
            }
            Err(error) if error.is_other_version() => return Err(error),
            Err(error) => {
                let Some(header) = find_header(&*file, &name, number, size) else {
                    self.lose(&name, 0..size, chain(&error), 0);
                    return Ok(());
                };
                self.lose(&name, 0..HEADER as u64, chain(&error), u64::MAX);
                header
            }
        };
        let bytes = size.min(header.bytes);
        self.segments.push(SalvagedSegment { name, file, header, bytes });
        Ok(())
    }

    /// Notes the groups and the damage of a segment.
    fn survey(&mut self, at: usize) {
        let segment = &self.segments[at];
        let (name, header) = (segment.name.clone(), segment.header);
        let bytes = segment.read();
        let mut last = header.first_group.saturating_sub(1);
        let (present, damage) = (&mut self.present, &mut self.damage);
        let tail = scan(&bytes, &header, |found| {
            let group = found.frame.group;
            match present.last_mut() {
                Some(groups) if groups.end().checked_add(1) == Some(group) => {
                    *groups = *groups.start()..=group;
                }
                _ => present.push(group..=group),
            }
            if let Some((from, what)) = found.hole {
                let (file, bytes) = (name.clone(), from..found.offset);
                let (what, before) = (what.to_owned(), Some(group));
                let (segment, certain) = (header.number, true);
                damage.push(LogDamage { file, bytes, what, after: last, before, segment, certain });
            }
            last = group;
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(tail) = tail;
        if let Some(what) = tail.torn {
            // A frame is written only when the one before it is synced. So the last frame that was
            // begun proves all before it.
            let rest = &bytes[tail.end as usize..];
            let begun = rest.chunks_exact(8).enumerate();
            let begun = begun.filter(|(_, word)| frame::has_mark(word, &header));
            let begun = begun.filter_map(|(at, _)| plausible(&rest[at * 8..], last));
            let begun = begun.max().unwrap_or(last.saturating_add(1));
            self.synced = self.synced.max(begun - 1);
            let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            self.lose(&name, tail.end..tail.end + end as u64, what.to_owned(), last);
            let torn = self.damage.last_mut().expect("it was just added");
            (torn.segment, torn.certain) = (header.number, false);
        }
    }

    /// The groups after `after` that were synced and cannot be read.
    pub(crate) fn missing(&self, after: u64) -> Vec<RangeInclusive<u64>> {
        let (mut missing, mut next) = (Vec::new(), after.saturating_add(1));
        for groups in &self.present {
            if *groups.start() > next {
                missing.push(next..=*groups.start() - 1);
            }
            next = next.max(groups.end().saturating_add(1));
        }
        if next <= self.synced {
            missing.push(next..=self.synced);
        }
        missing
    }

    /// Passes the groups after `after` to `each`, in order. [`Group::behind_gap`] is set if groups
    /// just before this one are missing. Returns the number of the last.
    pub(crate) fn replay(
        &self,
        after: u64,
        mut each: impl FnMut(Group<'_>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut last = after;
        let mut gap = false;
        for segment in &self.segments {
            let bytes = segment.read();
            scan(&bytes, &segment.header, |found| {
                let number = found.frame.group;
                if number <= last {
                    return Ok(());
                }
                gap |= number - 1 > last;
                last = number;
                if found.frame.kind == FrameKind::Closing {
                    return Ok(());
                }
                each(Group {
                    file: &segment.name,
                    offset: found.offset,
                    number,
                    payload: found.frame.payload,
                    is_new: true,
                    behind_gap: std::mem::take(&mut gap),
                })
            })?;
        }
        Ok(())
    }

    /// The size of the log that is lost, estimated from above.
    pub(crate) fn lost_bytes(&self) -> u64 {
        let damage = self.damage.iter().map(|damage| damage.bytes.end - damage.bytes.start);
        let numbers = self.segments.iter().map(|segment| segment.header.number);
        let (first, last) = (numbers.clone().min(), numbers.clone().max());
        let all = last.unwrap_or(0).saturating_sub(first.unwrap_or(0)).saturating_add(1);
        let absent = all.saturating_sub(self.segments.len() as u64);
        let size = self.segments.iter().map(|segment| segment.bytes).max();
        let size = size.unwrap_or(0).max(LogOptions::default().segment_bytes);
        damage.sum::<u64>().saturating_add(absent.saturating_mul(size))
    }
}

impl SalvagedSegment {
    /// The bytes of the segment. Those that the disk cannot read are zeros.
    fn read(&self) -> Vec<u8> {
        read(&self.name, &*self.file, self.bytes)
    }
}

fn read(name: &str, file: &dyn DiskFile, size: u64) -> Vec<u8> {
    segment::read(name, file, size).unwrap_or_else(|_| {
        let mut bytes = vec![0; size as usize];
        for (at, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
            if file.read_at(chunk, (at * CHUNK) as u64).is_err() {
                chunk.fill(0);
            }
        }
        bytes
    })
}

/// The number of the group that a damaged frame has, if the frame looks like the next or one of
/// those after it.
fn plausible(frame: &[u8], last: u64) -> Option<u64> {
    let head = frame.first_chunk::<FRAME>()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let group = u64::from_le_bytes(std::array::from_fn(|i| head[16 + i]));
    let valid = word(8) as usize <= MAX_PAYLOAD && matches!(word(12), 1 | 2);
    let near = group > last && group - last <= FAR;
    (valid && near).then_some(group)
}

/// What the first valid frame shows of a damaged header: the mark.
fn find_header(file: &dyn DiskFile, name: &str, number: u64, size: u64) -> Option<Header> {
    let bytes = read(name, file, size);
    // Bytes that are no frame may look like the beginning of a long one.
    let mut budget = bytes.len().saturating_mul(MAX_CHECKED);
    (BLOCK..bytes.len()).step_by(8).find_map(|at| {
        let (mark, length) = (bytes[at..].first_chunk()?, bytes[at..].get(8..12)?);
        let mark = u32::from_le_bytes(*mark);
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if mark == 0 || length > bytes.len() - at {
            return None;
        }
        budget = budget.checked_sub(length)?;
        let header = Header { number, first_group: 0, bytes: size, mark };
        frame::decode(&bytes[at..], &header).is_ok().then_some(header)
    })
}
