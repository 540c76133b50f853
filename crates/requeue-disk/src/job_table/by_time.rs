//! Lists of jobs by time: jobs in memory, merged with jobs in tables.
//!
//! A list is read in pieces. The tables are read first, without the lock of the state. Then, with the
//! lock, the jobs in memory are added, and those that they hide are removed. If a flush has changed
//! the tables meanwhile, they are read again. So each piece shows the jobs at one point in time.

use super::DiskJobTable;
use super::layers::{Layer, in_frozen, is_at};
use super::ready::before;
use crate::bytes::Malformed;
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::DiskError;
use crate::tables::{Scan, Source, Version};
use requeue_jobs::JobId;
use requeue_jobs::limits::MAX_RESULT_BYTES;
use requeue_jobs::rules::{JobTable, List, Position, Record, TimeRange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys of a list that are still to be read. Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRange {
    first: ListKey,
    last: ListKey,
    newest_first: bool,
}

impl KeyRange {
    pub(crate) fn of(range: &TimeRange) -> KeyRange {
        let key = |position: Position| (position.at.as_millis(), position.seq);
        let (first, last) = (key(range.first), key(range.last));
        KeyRange { first, last, newest_first: range.newest_first }
    }

    /// The part that follows this key; `None` if there is none.
    fn after(self, (at, seq): ListKey) -> Option<KeyRange> {
        let rest = if self.newest_first {
            KeyRange { last: before((at, seq)), ..self }
        } else {
            let next = seq.checked_add(1).map(|seq| (at, seq));
            KeyRange { first: next.or_else(|| Some((at.checked_add(1)?, 0)))?, ..self }
        };
        // The key before the lowest is the lowest itself.
        let is_lowest = self.newest_first && (at, seq) == (0, 0);
        (rest.first <= rest.last && !is_lowest).then_some(rest)
    }

    /// Whether a key comes after another.
    fn is_after(self, key: ListKey, other: ListKey) -> bool {
        if self.newest_first { key < other } else { key > other }
    }

    /// The one of two ends that comes first; `None` is the end of the range.
    fn first_end(self, a: Option<ListKey>, b: Option<ListKey>) -> Option<ListKey> {
        let ends = a.into_iter().chain(b);
        if self.newest_first { ends.max() } else { ends.min() }
    }
}

/// The lists in the tables that contain the jobs of a query.
pub(crate) struct TableLists {
    version: Arc<Version>,
    kind: u32,
    /// With the key below which all entries are consumed.
    lists: Vec<(List, ListKey)>,
}

/// Jobs that were read from the tables. Jobs in memory may hide some of them.
pub(crate) struct TableJobs {
    flushes: u64,
    jobs: Vec<(ListKey, JobId, Box<Record>)>,
    /// The key up to which all jobs were read; `None` if that is the end of the range.
    through: Option<ListKey>,
}

/// Consecutive jobs of a list.
pub(crate) struct TimePiece {
    /// A job without a record is in the tables of `version`.
    pub(crate) jobs: Vec<(ListKey, JobId, Option<Box<Record>>)>,
    /// What follows. `None`: this is the last piece.
    pub(crate) rest: Option<KeyRange>,
    pub(crate) version: Arc<Version>,
}

/// The next job of a list, if its key is in the range.
fn next_job<S: Source>(
    scan: &mut Scan<S>,
    range: KeyRange,
) -> Result<Option<(ListKey, JobId, Box<Record>)>, DiskError> {
    let job = match scan.next()? {
        Some((at, value)) if (range.first..=range.last).contains(&at) => {
            codec::job_unless(value, |_| false).map(|job| job.map(|(id, job)| (at, id, job)))
        }
        _ => Ok(None),
    };
    job.map_err(|Malformed(what)| scan.damage(what))
}

impl TableLists {
    /// The number of the kind.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    /// Reads up to `max` jobs, and fewer if they are large.
    pub(crate) fn read(&self, range: KeyRange, max: usize) -> Result<TableJobs, DiskError> {
        let (version, kind) = (&self.version, self.kind);
        if range.newest_first {
            let scan = |list, first| version.scan_reverse(kind, list, first, range.last);
            self.read_lists(range, max, scan)
        } else {
            self.read_lists(range, max, |list, first| version.scan(kind, list, first))
        }
    }

    fn read_lists<S: Source>(
        &self,
        range: KeyRange,
        max: usize,
        scan: impl Fn(u8, ListKey) -> Scan<S>,
    ) -> Result<TableJobs, DiskError> {
        // The next job of each list, and those after it.
        let mut next = BTreeMap::new();
        for (list, consumed_below) in &self.lists {
            let mut scan = scan(list.index() as u8, range.first.max(*consumed_below));
            if let Some((at, id, record)) = next_job(&mut scan, range)? {
                next.insert(at, (id, record, scan));
            }
        }
        let (mut jobs, mut bytes, mut through) = (Vec::new(), 0, None);
        while let Some((at, (id, record, mut scan))) =
            if range.newest_first { next.pop_last() } else { next.pop_first() }
        {
            bytes += record.content_bytes();
            jobs.push((at, id, record));
            if jobs.len() >= max || bytes > MAX_RESULT_BYTES {
                through = Some(at);
                break;
            }
            if let Some((at, id, record)) = next_job(&mut scan, range)? {
                next.insert(at, (id, record, scan));
            }
        }
        Ok(TableJobs { flushes: self.version.next_flush, jobs, through })
    }
}

impl DiskJobTable {
    /// What has to be read from the tables before the first [piece](Self::time_piece). Leased jobs
    /// are all listed in memory.
    pub(crate) fn time_lists(&self, range: &TimeRange) -> TableLists {
        let lists = range.lists(self.priorities()).filter(|list| !matches!(list, List::Leased(_)));
        let lists = lists.map(|list| (list, self.consumed_below(list))).collect();
        TableLists { version: self.version.clone(), kind: self.number, lists }
    }

    /// Returns up to `max` jobs: those of `lists` in memory, and those that were `read` from the
    /// tables. Returns `None` if a flush has changed the tables since.
    pub(crate) fn time_piece(
        &mut self,
        lists: impl Iterator<Item = List>,
        range: KeyRange,
        read: TableJobs,
        max: usize,
    ) -> Option<TimePiece> {
        if read.flushes != self.version.next_flush {
            return None;
        }
        let (mut jobs, mut through) = (Vec::new(), read.through);
        for list in lists {
            let end = self.add_from_memory(list, range, max, &mut jobs);
            through = range.first_end(through, end);
        }
        for (at, id, record) in read.jobs {
            if self.in_memory(&id).is_none() {
                jobs.push((at, id, Some(record)));
            }
        }
        jobs.sort_unstable_by_key(|(at, ..)| *at);
        if range.newest_first {
            jobs.reverse();
        }
        // Buckets may have a job twice, but a key belongs to one job.
        jobs.dedup_by_key(|(at, ..)| *at);
        if let Some(through) = through {
            jobs.retain(|(at, ..)| !range.is_after(*at, through));
        }
        if jobs.len() > max {
            jobs.truncate(max);
            through = jobs.last().map(|(at, ..)| *at);
        }
        for (_, id, record) in jobs.iter_mut().filter(|(.., record)| record.is_none()) {
            *record = self.in_memory(id).and_then(|entry| entry.record.clone());
        }
        let rest = through.and_then(|through| range.after(through));
        Some(TimePiece { jobs, rest, version: self.version.clone() })
    }

    /// Adds the jobs of a list in memory. Looks at no more than `max` entries of each layer: returns
    /// the key up to which all were added, unless that is the end of the range.
    fn add_from_memory(
        &mut self,
        list: List,
        range: KeyRange,
        max: usize,
        jobs: &mut Vec<(ListKey, JobId, Option<Box<Record>>)>,
    ) -> Option<ListKey> {
        let mut add = |entries: &mut dyn Iterator<Item = (ListKey, &JobId, bool)>| {
            let (mut count, mut last) = (0, None);
            for (at, id, is_valid) in entries.take(max) {
                if is_valid {
                    jobs.push((at, id.clone(), None));
                }
                (count, last) = (count + 1, Some(at));
            }
            last.filter(|_| count == max)
        };
        if let List::Leased(_) = list {
            let leases = self.leases.get(list)?.range(range.first..=range.last);
            let leases = leases.map(|(at, id)| (*at, id, true));
            return if range.newest_first {
                add(&mut { leases.rev() })
            } else {
                add(&mut { leases })
            };
        }
        let (after, through) = (before(range.first), range.last);
        let Layer { jobs: active, buckets } = &mut self.active;
        let active_buckets = buckets.of(list);
        let Layer { jobs: frozen, buckets } = &mut self.frozen;
        let frozen_buckets = buckets.of(list);
        let is_active = |(at, id)| (at, id, is_at(active, list, at, id));
        let is_frozen = in_frozen(active, frozen, list);
        let is_frozen = |(at, id)| (at, id, is_frozen(at, id));
        let newest_first = range.newest_first;
        let ends = [
            add(&mut active_buckets.range(after, through, newest_first).map(is_active)),
            add(&mut frozen_buckets.range(after, through, newest_first).map(is_frozen)),
        ];
        range.first_end(ends[0], ends[1])
    }
}
