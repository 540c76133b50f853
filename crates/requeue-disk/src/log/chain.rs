//! Groups have consecutive numbers over all segments. A group that is missing between two others
//! is damage, and so is one that is invalid although a later one was begun. Other invalid bytes
//! after the last group are an incomplete write.

use super::frame::{FrameKind, Header};
use super::segment::{Found, SegmentView, Tail, read, read_header, scan, segment_name};
use crate::error::{Corrupt, DiskError};
use std::collections::BTreeMap;
use std::mem;
use xxhash_rust::xxh3::xxh3_128;

/// A group that the log reached at some time: the last one with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogEnd {
    pub(crate) group: u64,
    /// The number of the segment that contains it.
    pub(crate) segment: u64,
}

/// What was found in the log.
pub(crate) struct FoundLog {
    /// The last group with data, or the last that the tables contain.
    pub(crate) end: LogEnd,
    /// The end of the valid part of each segment, by its number.
    ends: BTreeMap<u64, u64>,
    /// Whether damage at the end of the log was reported already.
    reported: bool,
}

impl FoundLog {
    /// Checks that the log reaches the end that a manifest recorded.
    pub(crate) fn check(&self, recorded: LogEnd) -> Result<(), Corrupt> {
        if self.reported || recorded.group <= self.end.group {
            return Ok(());
        }
        let missing = self.end.group + 1;
        Err(match self.ends.get(&recorded.segment) {
            Some(end) => {
                let what = format!(
                    "group {missing} is missing: the log was closed after group {}",
                    recorded.group
                );
                Corrupt::new(&segment_name(recorded.segment), *end, what)
            }
            None => gone(recorded.segment, missing),
        })
    }
}

/// Follows the groups from segment to segment.
///
/// After an error it continues behind the gap, so that a verification can report all damage.
pub(super) struct Chain {
    /// Groups up to here need not be in the log.
    after: u64,
    /// The number of the last group that was found, or `after`.
    pub(super) last: u64,
    /// The last group with data that was found, or `after`.
    end: LogEnd,
    /// The end of the valid part of each segment that was read.
    ends: BTreeMap<u64, u64>,
    /// Whether that was a closing frame.
    pub(super) closing: bool,
    /// The checksum of its payload, to compare it with another copy.
    sum: u128,
    /// Where the segment before ends.
    before: Option<(u64, u64)>,
    /// An invalid frame that was begun after the last group.
    torn: Option<Corrupt>,
    /// A group that was begun after the end of the last segment, that end, and the segment's name.
    later: Option<(u64, u64, String)>,
}

impl Chain {
    pub(super) fn new(after: u64) -> Chain {
        Chain {
            after,
            last: after,
            end: LogEnd { group: after, segment: 0 },
            ends: BTreeMap::new(),
            closing: false,
            sum: 0,
            before: None,
            torn: None,
            later: None,
        }
    }

    /// A segment begins.
    pub(super) fn begin(&mut self, header: &Header) -> Result<(), Corrupt> {
        self.later = None;
        if header.first_group <= self.last.saturating_add(1) {
            // All groups that were synced by then were found: the incomplete write before this
            // segment was never acknowledged.
            self.torn = None;
            return Ok(());
        }
        let missing = self.last + 1;
        self.last = header.first_group - 1;
        if let Some(torn) = self.torn.take() {
            return Err(torn);
        }
        let what = format!("group {missing} is missing");
        Err(match self.before {
            Some((number, end)) if number.checked_add(1) == Some(header.number) => {
                Corrupt::new(&segment_name(number), end, what)
            }
            Some((number, _)) => gone(number + 1, missing),
            None => gone(header.number.saturating_sub(1), missing),
        })
    }

    /// Whether the group is new: it is after `after`, and not a second copy.
    pub(super) fn group(
        &mut self,
        name: &str,
        header: &Header,
        found: &Found<'_>,
    ) -> Result<bool, Corrupt> {
        let group = found.frame.group;
        if group <= self.after && self.last == self.after {
            return Ok(false);
        }
        let sum = xxh3_128(found.frame.payload);
        let closing = found.frame.kind == FrameKind::Closing;
        if group == self.last {
            // A group whose sync failed is written again, to another segment.
            if (sum, closing) == (self.sum, self.closing) {
                return Ok(false);
            }
            let what = format!("group {group} differs from its copy in the segment before");
            return Err(Corrupt::new(name, found.offset, what));
        }
        let last = self.last;
        if group < last {
            let what = format!("group {group} comes after group {last}");
            return Err(Corrupt::new(name, found.offset, what));
        }
        (self.last, self.sum, self.closing) = (group, sum, closing);
        if !closing {
            self.end = LogEnd { group, segment: header.number };
        }
        let torn = self.torn.take();
        if group - 1 == last {
            return Ok(true);
        }
        Err(match (torn, found.hole) {
            (_, Some((offset, what))) => damaged(name, offset, what),
            (Some(torn), None) => torn,
            (None, None) => {
                let what = format!("group {group} comes after group {last}");
                Corrupt::new(name, found.offset, what)
            }
        })
    }

    /// A segment ends.
    pub(super) fn end(&mut self, name: &str, header: &Header, tail: &Tail) {
        self.before = Some((header.number, tail.end));
        self.ends.insert(header.number, tail.end);
        if let Some(what) = tail.torn {
            self.torn.get_or_insert_with(|| damaged(name, tail.end, what));
        }
        self.later = tail.later.map(|later| (later, tail.end, name.to_owned()));
    }

    /// The log ends. Fails if the group after the last was synced: a later one was begun.
    pub(super) fn finish(&self) -> Result<(), Corrupt> {
        let missing = self.last.saturating_add(1);
        match &self.later {
            Some((later, offset, name)) if *later > missing => {
                let what = format!(
                    "group {missing} is damaged: it was complete, because group {later} was begun \
                     after it"
                );
                Err(Corrupt::new(name, *offset, what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn found(self) -> FoundLog {
        FoundLog { end: self.end, ends: self.ends, reported: false }
    }
}

fn damaged(name: &str, offset: u64, what: &str) -> Corrupt {
    Corrupt::new(name, offset, what)
}

fn gone(number: u64, group: u64) -> Corrupt {
    Corrupt::new(
        &segment_name(number),
        0,
        format!("the file is missing, and group {group} with it"),
    )
}

/// A group with data, and its position.
pub(crate) struct Group<'a> {
    pub(crate) file: &'a str,
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) payload: &'a [u8],
    /// Whether it is neither a second copy nor contained in the tables.
    pub(crate) is_new: bool,
    /// Whether a group after `after` is missing before this one.
    pub(crate) behind_gap: bool,
}

/// Reads segments completely, and passes groups with data, and all damage, to `each`.
///
/// Groups up to `after` may be missing, because the tables contain them; those that are there are
/// passed too. An incomplete write at the end of the log is not damage. Whether the log ends where it
/// should is for the caller to [check](FoundLog::check).
pub(crate) fn verify(
    segments: &[SegmentView],
    after: u64,
    mut each: impl FnMut(Result<Group<'_>, Corrupt>),
) -> Result<FoundLog, DiskError> {
    let (mut chain, mut unread, mut gap) = (Chain::new(after), false, false);
    for SegmentView { name, file, bytes } in segments {
        let header = match read_header(name, file.as_ref()) {
            Ok(header) => header,
            Err(DiskError::Corrupt(corrupt)) => {
                each(Err(corrupt));
                unread = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        // The groups of an unreadable segment are missing because of that, which was reported.
        let begun = chain.begin(&header);
        gap |= begun.is_err();
        if let (Err(corrupt), false) = (begun, mem::take(&mut unread)) {
            each(Err(corrupt));
        }
        let bytes = read(name, file.as_ref(), (*bytes).min(header.bytes))?;
        let tail = scan(&bytes, &header, |found| {
            let new = chain.group(name, &header, &found);
            let is_new = matches!(new, Ok(true));
            gap |= new.is_err();
            match (new, found.hole) {
                (Err(corrupt), _) => each(Err(corrupt)),
                (Ok(_), Some((offset, what))) => each(Err(damaged(name, offset, what))),
                (Ok(_), None) => {}
            }
            if found.frame.kind == FrameKind::Data {
                let (number, payload) = (found.frame.group, found.frame.payload);
                let (file, offset, behind_gap) = (name, found.offset, gap);
                each(Ok(Group { file, offset, number, payload, is_new, behind_gap }));
            }
            Ok::<_, DiskError>(())
        })?;
        chain.end(name, &header, &tail);
    }
    let finished = chain.finish();
    let reported = unread || finished.is_err();
    if let Err(corrupt) = finished {
        each(Err(corrupt));
    }
    Ok(FoundLog { reported, ..chain.found() })
}
