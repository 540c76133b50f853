//! The jobs of one kind: those that changed recently are in memory, the others in tables.
//!
//! ```text
//!   changed since the last flush     being flushed        flushed
//!            active          over       frozen      over  tables
//! ```
//!
//! An entry in a layer hides the entries of the same job in the layers below. When
//! [`take`](JobTable::take) takes a job from a lower layer, the active layer notes its position
//! there. When the active layer is flushed, that position gets a tombstone.

mod by_time;
mod changes;
mod check;
mod layers;
mod ready;
mod weight;

use crate::bytes::{Bytes, Malformed};
use crate::codec::{self, Parts};
use crate::due_buckets::{BUCKET_ENTRY_BYTES, ListKey};
use crate::error::{Corrupt, DiskError, unavailable};
use crate::log_entry;
use crate::per_list::PerList;
use crate::read_ahead::{ReadAhead, TableList};
use crate::tables::{JobLocation, Version};
pub(crate) use by_time::{KeyRange, TimePiece};
use changes::Changes;
pub(crate) use layers::{Jobs, LayerEntry};
use layers::{Layer, in_frozen, is_at};
use ready::DueCount;
pub(crate) use ready::{ReadyStep, STEP};
use requeue_jobs::rules::{JobTable, List, Position, Record};
use requeue_jobs::{Counts, JobId, Priorities, Priority, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weight::{GONE, Weight, weight};

/// The list of a job, and the key of its position in that list.
pub(crate) type ListAndKey = (List, ListKey);

/// The number of jobs in each list, by the [number](List::index) of the list.
pub(crate) type ListCounts = [u64; List::END];

/// The job table of one kind on disk.
pub(crate) struct DiskJobTable {
    number: u32,
    active: Layer<Jobs>,
    frozen: Layer<Arc<Jobs>>,
    version: Arc<Version>,
    /// The number of kinds, which share the memory for reading ahead.
    kinds: Arc<AtomicU32>,
    /// The next jobs in the tables, except leased ones.
    read_ahead: PerList<ReadAhead>,
    /// All leased jobs by the expiry of their leases. They are few: a worker has each of them.
    leases: PerList<BTreeMap<ListKey, JobId>>,
    counts: ListCounts,
    /// Invariant: contains the priorities of all pending and leased jobs.
    priorities: Priorities,
    due: PerList<DueCount>,
    /// The job that was taken last. If it is not kept by the end of the operation, it is removed.
    taken: Option<Taken>,
    /// A job that was read from the tables, and may be taken next by the same operation.
    peeked: Option<(JobId, Box<Record>)>,
    changes: Changes,
    weight: Weight,
}

/// A job that was taken out.
struct Taken {
    id: JobId,
    position: ListAndKey,
    parts: Parts,
    /// Whether the buckets of the active layer have it at `position`.
    in_bucket: bool,
    weight: usize,
}

/// Where the first job of a list is.
enum FrontSource {
    Memory,
    ReadAhead,
}

/// The number of jobs by state, except ready ones.
pub(crate) fn totals(counts: &ListCounts) -> Counts {
    let mut totals = Counts::default();
    for list in List::all() {
        let total = match list {
            List::Pending(_) => &mut totals.pending,
            List::Leased(_) => &mut totals.leased,
            List::Dead => &mut totals.dead,
            List::Done => &mut totals.done,
        };
        *total = total.saturating_add(counts[list.index()]);
    }
    totals
}

pub(crate) fn position_of(record: &Record) -> ListAndKey {
    let (list, position) = record.position();
    (list, (position.at.as_millis(), position.seq))
}

impl DiskJobTable {
    /// The job table of a kind that has `counts` jobs in the tables of `version`, by list.
    pub(crate) fn new(
        number: u32,
        kinds: Arc<AtomicU32>,
        version: Arc<Version>,
        counts: ListCounts,
    ) -> Self {
        let mut table = DiskJobTable {
            number,
            active: Layer::default(),
            frozen: Layer::default(),
            version,
            kinds,
            read_ahead: PerList::default(),
            leases: PerList::default(),
            counts,
            priorities: Priorities::default(),
            due: PerList::default(),
            taken: None,
            peeked: None,
            changes: Changes::default(),
            weight: Weight::default(),
        };
        // Also if the count says that there are none: damage that no checksum detects can make a
        // count too low.
        table.priorities.insert(Priority::default());
        let used = List::all().filter(|list| counts[list.index()] > 0);
        used.for_each(|list| table.note_priority(list));
        table
    }

    /// Notes that there is, or was, a job in this list.
    fn note_priority(&mut self, list: List) {
        if let List::Pending(priority) | List::Leased(priority) = list {
            self.priorities.insert(priority);
        }
    }

    /// Reads from the tables which jobs are leased.
    pub(crate) fn load_leases(&mut self) -> Result<(), DiskError> {
        for priority in self.priorities.iter() {
            let list = List::Leased(priority);
            if self.counts[list.index()] == 0 {
                continue;
            }
            let mut cursor = self.version.scan(self.number, list.index() as u8, (0, 0));
            while let Some((at, value)) = cursor.next()? {
                let id = codec::id(&mut Bytes::new(value));
                let id = id.map_err(|Malformed(what)| cursor.damage(what))?;
                self.leases.of(list).insert(at, id);
            }
        }
        Ok(())
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn counts(&self) -> ListCounts {
        self.counts
    }

    // The log.

    /// Logs the removal of a job that was taken and not kept.
    pub(crate) fn finish(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        log_entry::put_gone(&mut self.changes.bytes, &taken.id);
        self.weight.bytes -= taken.weight;
        if self.active.jobs.get(&taken.id).is_some_and(|entry| entry.below.is_none()) {
            self.active.jobs.remove(&taken.id);
        }
    }

    /// Adds a log entry.
    pub(crate) fn note(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.finish();
        write(&mut self.changes.bytes);
    }

    /// Ends an operation. Returns how many bytes of changes there are, and how many were added
    /// since the last call.
    pub(crate) fn end(&mut self) -> (usize, usize) {
        self.finish();
        // The next operation may find the job elsewhere, and after a flush no entry would show it.
        self.peeked = None;
        self.changes.end()
    }

    /// Passes the changes since the last call to `log`, and clears them.
    pub(crate) fn drain(&mut self, log: impl FnOnce(&[u8])) {
        self.end();
        self.changes.drain(log);
    }

    /// By how many bytes the active layer has grown since the last call.
    pub(crate) fn grown(&mut self) -> isize {
        self.weight.grown()
    }

    /// The approximate size of the jobs in lower layers that the active layer has hidden since the
    /// last call: a flush makes them obsolete.
    pub(crate) fn hidden(&mut self) -> u64 {
        mem::take(&mut self.weight.hidden)
    }

    fn find(&mut self, id: &JobId) -> Result<Option<Box<Record>>, DiskError> {
        if let Some((peeked, record)) = self.peeked.take()
            && peeked == *id
        {
            return Ok(Some(record));
        }
        let Some(location) = self.version.find(self.number, id.as_str())? else { return Ok(None) };
        read(&self.version, self.number, &location).map(Some)
    }

    /// Takes a job out of the layer that has it.
    pub(crate) fn take_out(&mut self, id: &JobId) -> Result<Option<Box<Record>>, DiskError> {
        self.finish();
        if let Some(entry) = self.active.jobs.get_mut(id) {
            let record = entry.record.take();
            if let Some(record) = &record {
                self.took(id, record, true);
            }
            return Ok(record);
        }
        let record = match self.frozen.jobs.get(id) {
            Some(entry) => entry.record.clone(),
            None => self.find(id)?,
        };
        if let Some(record) = &record {
            self.took_from_below(id, record);
        }
        Ok(record)
    }

    /// Removes a job from the lists, and notes its parts and position.
    fn took(&mut self, id: &JobId, record: &Record, in_bucket: bool) {
        let position = position_of(record);
        // Damage that no checksum detects can make a count too low.
        let (list, at) = position;
        let count = &mut self.counts[list.index()];
        *count = count.saturating_sub(1);
        match list {
            List::Pending(_) => {
                let due = self.due.of(list);
                due.jobs = due.jobs.saturating_sub(u64::from(due.includes(at)));
                due.first_in_tables.take_if(|first| *first == at);
            }
            List::Leased(_) => drop(self.leases.of(list).remove(&at)),
            List::Dead | List::Done => {}
        }
        let (parts, weight) = (Parts::of(record), if in_bucket { weight(id, record) } else { 0 });
        self.taken = Some(Taken { id: id.clone(), position, parts, in_bucket, weight });
    }

    /// Takes a job out of a lower layer: the active layer gets an entry that hides it.
    fn took_from_below(&mut self, id: &JobId, record: &Record) {
        let below = position_of(record);
        if !matches!(below.0, List::Leased(_)) {
            self.read_ahead.of(below.0).taken(below.1);
        }
        self.active.jobs.insert(id.clone(), LayerEntry { record: None, below: Some(below) });
        self.weight.bytes += GONE + id.as_str().len();
        self.weight.hidden += weight(id, record) as u64;
        self.took(id, record, false);
    }

    /// Inserts a job into the active layer, in place of the one that was taken out.
    fn insert(&mut self, id: JobId, record: Box<Record>, taken: Option<Taken>) {
        let (list, at) = position_of(&record);
        self.counts[list.index()] += 1;
        self.note_priority(list);
        if let List::Pending(_) = list {
            let due = self.due.of(list);
            due.jobs += u64::from(due.includes(at));
        }
        self.weight.bytes += weight(&id, &record);
        self.weight.bytes -= taken.as_ref().map_or(0, |taken| taken.weight);
        let in_bucket = taken.is_some_and(|taken| taken.in_bucket && taken.position == (list, at));
        // Bucket entries are freed only together with the layer, though jobs come and go.
        self.weight.bytes += if in_bucket { 0 } else { BUCKET_ENTRY_BYTES };
        match list {
            List::Leased(_) => drop(self.leases.of(list).insert(at, id.clone())),
            _ if !in_bucket => self.active.buckets.of(list).push(at, id.clone()),
            List::Pending(_) | List::Dead | List::Done => {}
        }
        self.active.jobs.entry(id).or_default().record = Some(record);
    }

    /// The first of a list.
    fn front(&mut self, list: List) -> Result<Option<(ListKey, JobId, FrontSource)>, StoreError> {
        self.finish();
        if let List::Leased(_) = list {
            let first = self.leases.of(list).first_key_value();
            return Ok(first.map(|(at, id)| (*at, id.clone(), FrontSource::Memory)));
        }
        let (active, frozen) = (&mut self.active, &mut self.frozen);
        let (buckets, frozen_buckets) = (active.buckets.of(list), frozen.buckets.of(list));
        // Most kinds use the lists of pending jobs without a priority and of dead or done jobs.
        let lists = self.read_ahead.len().max(2);
        let read_ahead = self.read_ahead.of(list);
        let here = |id: &JobId| active.jobs.contains_key(id) || frozen.jobs.contains_key(id);
        let piece = TableList { version: &self.version, kind: self.number, list };
        let lists = lists.saturating_mul(self.kinds.load(Ordering::Relaxed) as usize);
        read_ahead.fill(piece, lists, here).map_err(unavailable)?;
        let first = buckets.first(|at, id| is_at(&active.jobs, list, at, id));
        let second = frozen_buckets.first(in_frozen(&active.jobs, &frozen.jobs, list));
        let memory = first.into_iter().chain(second).min_by_key(|(at, _)| *at);
        Ok(match (memory, read_ahead.first()) {
            (Some(memory), Some(read_ahead)) if read_ahead.0 < memory.0 => {
                Some((read_ahead, FrontSource::ReadAhead))
            }
            (None, Some(read_ahead)) => Some((read_ahead, FrontSource::ReadAhead)),
            (memory, _) => memory.map(|memory| (memory, FrontSource::Memory)),
        }
        .map(|((at, id), from)| (at, id.clone(), from)))
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }
}

pub(crate) fn read(
    version: &Version,
    kind: u32,
    location: &JobLocation,
) -> Result<Box<Record>, DiskError> {
    let value = version.read(kind, location)?;
    match codec::job_unless(&value, |_| false) {
        Ok(Some((_, record))) => Ok(record),
        Ok(None) => unreachable!("no job is skipped"),
        Err(Malformed(what)) => {
            let file = format!("the table of flush {}", location.flush);
            Err(Corrupt::new(&file, 0, what).into())
        }
    }
}

impl JobTable for DiskJobTable {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        self.finish();
        if self.known(id).is_some() {
            return Ok(self.known(id).flatten());
        }
        self.peeked = self.find(id).map_err(unavailable)?.map(|record| (id.clone(), record));
        Ok(self.peeked.as_ref().map(|(_, record)| &**record))
    }

    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError> {
        self.take_out(id).map_err(unavailable)
    }

    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let Some((at, id, from)) = self.front(list)? else { return Ok(None) };
        let read = match from {
            FrontSource::Memory => None,
            FrontSource::ReadAhead => self.read_ahead.of(list).take(at),
        };
        if let Some(record) = read {
            self.took_from_below(&id, &record);
            return Ok(Some((id, record)));
        }
        let record = self.take(&id)?;
        let Some(record) = record else {
            // Only damage that no checksum detects can cause this.
            let what = format!("job {id:?} is first in list {list:?}, but its id is not found");
            return Err(unavailable(DiskError::from(Corrupt::new("the ids tree", 0, what))));
        };
        Ok(Some((id, record)))
    }

    fn keep(&mut self, id: JobId, record: Box<Record>) {
        let taken = self.taken.take_if(|taken| taken.id == id);
        self.finish();
        let parts = taken.as_ref().map(|taken| &taken.parts);
        log_entry::put_kept(&mut self.changes.bytes, &id, &record, parts);
        self.insert(id, record, taken);
    }

    fn put_back(&mut self, id: JobId, record: Box<Record>) {
        let taken = self.taken.take();
        debug_assert!(taken.as_ref().is_some_and(|taken| taken.id == id));
        self.insert(id, record, taken);
    }

    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError> {
        let position = |(at, ..): (ListKey, JobId, FrontSource)| Position {
            at: Timestamp::from_millis(at.0),
            seq: at.1,
        };
        Ok(self.front(list)?.map(position))
    }

    fn count(&self, list: List) -> u64 {
        self.counts[list.index()]
    }

    fn priorities(&self) -> Priorities {
        self.priorities
    }

    fn unexpired(
        &mut self,
        priority: Priority,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let leases = self.leases.of(List::Leased(priority));
        Ok(leases.range((now.as_millis(), u64::MAX)..).take(limit).count())
    }

    fn first_to_end(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let leases = self.leases.of(List::Leased(priority));
        let first = leases.range((now.as_millis(), u64::MAX)..).next();
        Ok(first.map(|(at, _)| Timestamp::from_millis(at.0)))
    }
}
