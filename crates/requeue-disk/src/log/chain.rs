//! Groups have consecutive numbers over all segments. A group that is missing between two others
//! is damage, and so is one that is invalid although a later one was begun. Other invalid bytes
//! after the last group are an incomplete write.

use super::frame::{FrameKind, Header, MAX_COPIES};
use super::segment::{Found, SegmentView, Tail, read, read_header, scan, segment_name};
use crate::error::{Corrupt, DiskError};
use std::collections::{BTreeMap, VecDeque};
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
    /// The last groups, the checksums of their payloads, and whether they are closing frames, to
    /// compare them with other copies.
    sums: VecDeque<(u64, u128, bool)>,
    /// The last group of the segment that is being read, or the one before its first.
    in_segment: u64,
    /// The first group of the next segment. If it is not higher than a group that is missing in this
    /// segment, the next one has a copy.
    copied_from: u64,
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
            sums: VecDeque::new(),
            in_segment: 0,
            copied_from: u64::MAX,
            before: None,
            torn: None,
            later: None,
        }
    }

    /// A segment begins. `next` is the first group of the segment after it.
    pub(super) fn begin(&mut self, header: &Header, next: Option<u64>) -> Result<(), Corrupt> {
        self.copied_from = next.unwrap_or(u64::MAX);
        self.later = None;
        self.in_segment = header.first_group.saturating_sub(1);
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
        let (group, last) = (found.frame.group, self.last);
        let behind = |last| {
            let what = format!("group {group} comes after group {last}");
            Err(Corrupt::new(name, found.offset, what))
        };
        if group <= self.in_segment {
            return behind(self.in_segment);
        }
        self.in_segment = group;
        if group <= self.after {
            return Ok(false);
        }
        let sum = xxh3_128(found.frame.payload);
        let closing = found.frame.kind == FrameKind::Closing;
        if group <= last {
            // A group whose sync failed, and those that share a block with it, are written again,
            // to another segment.
            return match self.sums.iter().rev().find(|(copied, ..)| *copied == group) {
                Some((_, other, is_closing)) if (*other, *is_closing) == (sum, closing) => {
                    Ok(false)
                }
                Some(_) => {
                    let what = format!("group {group} differs from its copy in the segment before");
                    Err(Corrupt::new(name, found.offset, what))
                }
                None => behind(last),
            };
        }
        if group - 1 > last && last + 1 >= self.copied_from {
            // A failed write destroyed the groups before this one. The next segment has them all.
            return Ok(false);
        }
        (self.last, self.closing) = (group, closing);
        self.sums.push_back((group, sum, closing));
        if self.sums.len() as u64 > MAX_COPIES {
            self.sums.pop_front();
        }
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

    /// Whether the groups that are invalid before this frame are found elsewhere. Either they are
    /// copies of groups in the segment before, which a power cut may leave incomplete. Or a failed
    /// write destroyed them, and the next segment has copies.
    pub(super) fn has_copies_of_hole(&self, found: &Found<'_>) -> bool {
        let missing = self.in_segment.saturating_add(1)..found.frame.group;
        let copied = |to: u64| missing.start >= self.copied_from || to <= self.last;
        found.hole.is_some() && !missing.is_empty() && copied(missing.end - 1)
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
    let headers: Vec<_> =
        segments.iter().map(|segment| read_header(&segment.name, segment.file.as_ref())).collect();
    let first_group = |header: &Result<Header, _>| header.as_ref().ok().map(|h| h.first_group);
    let first_groups: Vec<Option<u64>> = headers.iter().map(first_group).collect();
    for (index, (segment, header)) in segments.iter().zip(headers).enumerate() {
        let SegmentView { name, file, bytes } = segment;
        let header = match header {
            Ok(header) => header,
            Err(DiskError::Corrupt(corrupt)) => {
                each(Err(corrupt));
                unread = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        // The groups of an unreadable segment are missing because of that, which was reported.
        let begun = chain.begin(&header, first_groups.get(index + 1).copied().flatten());
        gap |= begun.is_err();
        if let (Err(corrupt), false) = (begun, mem::take(&mut unread)) {
            each(Err(corrupt));
        }
        let bytes = read(name, file.as_ref(), (*bytes).min(header.bytes))?;
        let tail = scan(&bytes, &header, |found| {
            let copies = chain.has_copies_of_hole(&found);
            let new = chain.group(name, &header, &found);
            let is_new = matches!(new, Ok(true));
            gap |= new.is_err();
            match (new, found.hole) {
                (Err(corrupt), _) => each(Err(corrupt)),
                (Ok(_), Some((offset, what))) if !copies => each(Err(damaged(name, offset, what))),
                (Ok(_), _) => {}
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
