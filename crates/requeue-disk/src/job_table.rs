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

use crate::bytes::{Bytes, Malformed, put_bytes};
use crate::codec::{self, Parts};
use crate::due_buckets::{BUCKET_ENTRY_BYTES, DueBuckets, ListKey};
use crate::error::{Corrupt, DiskError, unavailable};
use crate::per_list::PerList;
use crate::read_ahead::{ReadAhead, TableList};
use crate::ready::{DueCount, KeysToRead, ReadFor, ReadyStep, TableKeys, before};
use crate::tables::{JobLocation, Version};
pub(crate) use by_time::{KeyRange, TimePiece};
use foldhash::{HashMap, HashSet};
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::rules::{JobTable, List, Position, RateUse, Record, Status};
use requeue_jobs::{Body, Counts, JobId, Priorities, Priority, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The list of a job, and the key of its position in that list.
pub(crate) type ListAndKey = (List, ListKey);

/// The entry of a job in a layer.
#[derive(Default)]
pub(crate) struct LayerEntry {
    /// `None`: the job was removed.
    pub(crate) record: Option<Box<Record>>,
    /// The position of the job in the layers below, if it is there.
    pub(crate) below: Option<ListAndKey>,
}

pub(crate) type Jobs = HashMap<JobId, LayerEntry>;

/// A layer in memory: jobs by id and by time.
#[derive(Default)]
struct Layer<J> {
    jobs: J,
    /// By time, except leased jobs.
    buckets: PerList<DueBuckets>,
}

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
    /// How much of the rate limit is used, according to the log.
    pub(crate) logged_rate_use: RateUse,
    /// The job that was taken last. If it is not kept by the end of the operation, it is removed.
    taken: Option<Taken>,
    /// A job that was read from the tables, and may be taken next by the same operation.
    peeked: Option<(JobId, Box<Record>)>,
    /// The log entries of changes since the last [`drain`](Self::drain).
    changes: Vec<u8>,
    /// How many bytes of `changes` the group has counted.
    noted: usize,
    /// The approximate memory use of the active layer, now and at the last call of
    /// [`grown`](Self::grown).
    weight: usize,
    weighed: usize,
    /// The approximate size of the jobs in lower layers that the active layer has hidden since the
    /// last call of [`hidden`](Self::hidden).
    hidden: u64,
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

/// Tags of log entries.
pub(crate) mod entry {
    pub(crate) const KEPT: u8 = 0;
    pub(crate) const GONE: u8 = 1;
    pub(crate) const SETTINGS: u8 = 2;
    pub(crate) const SCHEDULE: u8 = 3;
    pub(crate) const NO_SCHEDULE: u8 = 4;
    pub(crate) const COUNTERS: u8 = 5;
    pub(crate) const RATE_USE: u8 = 6;
    /// The number belongs to another kind from now on, which has taken the place of an idle one.
    pub(crate) const RENAMED: u8 = 7;
}

/// Memory of a job besides its id and body: record, entry, bucket entry and allocations.
const OVERHEAD: usize = 350;
/// Memory of the entry of a removed job.
const GONE: usize = 100;

/// The buffer for changes that each kind keeps after a large group. There may be 10,000 kinds.
const KEEP_CHANGES: usize = 32 << 10;

fn weight(id: &JobId, record: &Record) -> usize {
    let next = match &record.status {
        Status::Leased(lease) => 150 + lease.next.as_ref().map_or(0, |next| next.body.len()),
        Status::Done(done) => 150 + done.result.as_ref().map_or(0, Body::len),
        Status::Pending | Status::Dead { .. } => 0,
    };
    let failures = record.failures.iter();
    let failures = failures.map(|failure| 100 + failure.error.as_ref().map_or(0, |e| e.len()));
    OVERHEAD + id.as_str().len() + record.body.len() + next + failures.sum::<usize>()
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
            logged_rate_use: RateUse::default(),
            taken: None,
            peeked: None,
            changes: Vec::new(),
            noted: 0,
            weight: 0,
            weighed: 0,
            hidden: 0,
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
        self.changes.push(entry::GONE);
        put_bytes(&mut self.changes, taken.id.as_str().as_bytes());
        self.weight -= taken.weight;
        if self.active.jobs.get(&taken.id).is_some_and(|entry| entry.below.is_none()) {
            self.active.jobs.remove(&taken.id);
        }
    }

    /// Adds a log entry.
    pub(crate) fn note(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.finish();
        write(&mut self.changes);
    }

    /// Ends an operation. Returns how many bytes of changes there are, and how many were added
    /// since the last call.
    pub(crate) fn end(&mut self) -> (usize, usize) {
        self.finish();
        // The next operation may find the job elsewhere, and after a flush no entry would show it.
        self.peeked = None;
        let before = mem::replace(&mut self.noted, self.changes.len());
        (self.noted, self.noted - before)
    }

    /// Passes the changes since the last call to `log`, and clears them.
    pub(crate) fn drain(&mut self, log: impl FnOnce(&[u8])) {
        self.end();
        log(&self.changes);
        self.changes.clear();
        self.changes.shrink_to(KEEP_CHANGES);
        self.noted = 0;
    }

    /// By how many bytes the active layer has grown since the last call.
    pub(crate) fn grown(&mut self) -> isize {
        let before = mem::replace(&mut self.weighed, self.weight);
        self.weight as isize - before as isize
    }

    /// The approximate size of the jobs in lower layers that the active layer has hidden since the
    /// last call: a flush makes them obsolete.
    pub(crate) fn hidden(&mut self) -> u64 {
        mem::take(&mut self.hidden)
    }

    // Layers.

    /// Freezes the active layer, to be flushed. There must not be a frozen layer.
    pub(crate) fn freeze(&mut self) -> Arc<Jobs> {
        self.finish();
        debug_assert!(self.frozen.jobs.is_empty());
        let Layer { jobs, buckets } = mem::take(&mut self.active);
        // The next layer probably gets as large, and growing is the most expensive part of a put.
        self.active.jobs.reserve(jobs.len());
        let jobs = Arc::new(jobs);
        self.frozen = Layer { jobs: jobs.clone(), buckets };
        (self.weight, self.weighed) = (0, 0);
        jobs
    }

    /// All entries of the list below this key in the tables are consumed.
    pub(crate) fn consumed_below(&self, list: List) -> ListKey {
        // Leased jobs are not read ahead.
        self.read_ahead.get(list).map_or((0, 0), ReadAhead::consumed_below)
    }

    /// For each list that was read, the key below which the tables are consumed.
    pub(crate) fn all_consumed_below(&self) -> Vec<(List, ListKey)> {
        let lists = self.read_ahead.iter();
        lists.map(|(list, read_ahead)| (list, read_ahead.consumed_below())).collect()
    }

    /// The frozen layer is in the tables of this version now.
    ///
    /// Returns the frozen layer, because dropping it takes time that the writer does not have.
    pub(crate) fn flushed(&mut self, version: Arc<Version>) -> impl Send + use<> {
        let active = &self.active.jobs;
        let frozen = &mut self.frozen;
        for (list, buckets) in frozen.buckets.iter_mut() {
            if let Some((at, _)) = buckets.first(in_frozen(active, &frozen.jobs, list)) {
                self.read_ahead.of(list).back_to(at);
            }
        }
        if !frozen.jobs.is_empty() {
            for (_, due) in self.due.iter_mut() {
                due.next_in_tables = due.through;
                (due.first_in_tables, due.none_in_tables) = (None, (0, 0));
            }
        }
        self.version = version;
        mem::take(&mut self.frozen)
    }

    /// The same jobs are in other tables now, because of a merge.
    pub(crate) fn moved(&mut self, version: Arc<Version>) {
        self.version = version;
    }

    /// The entry of a job in memory, in the newest layer that has one.
    fn in_memory(&self, id: &JobId) -> Option<&LayerEntry> {
        self.active.jobs.get(id).or_else(|| self.frozen.jobs.get(id))
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
        self.weight += GONE + id.as_str().len();
        self.hidden += weight(id, record) as u64;
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
        self.weight += weight(&id, &record);
        self.weight -= taken.as_ref().map_or(0, |taken| taken.weight);
        let in_bucket = taken.is_some_and(|taken| taken.in_bucket && taken.position == (list, at));
        // Bucket entries are freed only together with the layer, though jobs come and go.
        self.weight += if in_bucket { 0 } else { BUCKET_ENTRY_BYTES };
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

    // Ready jobs.

    /// The number of ready jobs, counted up to [`READY_COUNT_CAP`], and the due time of the oldest.
    /// Reads no table: if that is necessary, the caller does it without the lock, and passes the
    /// keys. Looks at no more than `budget` jobs of each layer in memory, and reduces the budget.
    pub(crate) fn ready(
        &mut self,
        now: Timestamp,
        read: Option<TableKeys>,
        budget: &mut usize,
    ) -> ReadyStep {
        self.finish();
        let read = read.filter(|read| read.is_of(&self.version));
        let (mut count, mut oldest) = (0, None);
        for list in self.priorities.iter().map(List::Pending) {
            let read = read.as_ref().filter(|read| read.list == list);
            if let Some(step) = self.count_due(list, now, read, budget) {
                return step;
            }
            let jobs = self.due.of(list).jobs;
            count += jobs;
            if jobs > 0 {
                match self.oldest(list, now, read) {
                    Ok(first) => oldest = first.into_iter().chain(oldest).min(),
                    Err(step) => return step,
                }
            }
        }
        let oldest = oldest.map(|(at, _)| Timestamp::from_millis(at));
        ReadyStep::Done(count.min(READY_COUNT_CAP), oldest.filter(|at| *at <= now))
    }

    /// Counts pending jobs until all that are due are counted, or so many that no more count.
    /// Returns `None` when that is done.
    fn count_due(
        &mut self,
        list: List,
        now: Timestamp,
        read: Option<&TableKeys>,
        budget: &mut usize,
    ) -> Option<ReadyStep> {
        let end = (now.as_millis(), u64::MAX);
        let mut read = read.filter(|read| read.reason == ReadFor::Counting);
        loop {
            let all = self.counts[list.index()];
            let due = self.due.of(list);
            if due.jobs >= READY_COUNT_CAP.min(all) || due.through >= end {
                return None;
            }
            if *budget == 0 {
                return Some(ReadyStep::Again);
            }
            let read = read.take().filter(|read| read.after == due.through);
            let known = match read {
                Some(read) => read.through,
                None if before(due.next_in_tables) > due.through => before(due.next_in_tables),
                None => {
                    let through = due.through;
                    return Some(self.read_keys(list, ReadFor::Counting, through));
                }
            };
            let (mut jobs, through) = self.count_in_memory(list, known.min(end), budget);
            let keys = read.map_or(&[][..], |read| &read.keys);
            let counted = keys.partition_point(|(at, _)| *at <= through);
            let in_tables = keys[..counted].iter();
            jobs += in_tables.filter(|(_, id)| self.in_memory(id).is_none()).count() as u64;
            let due = self.due.of(list);
            due.jobs += jobs;
            due.through = through;
            if let Some(read) = read {
                due.next_in_tables = keys.get(counted).map_or(read.next, |(at, _)| *at);
            }
        }
    }

    /// Counts the pending jobs in memory after those that are counted, up to a key. There may be
    /// too many at a time: returns the key up to which they are counted.
    fn count_in_memory(
        &mut self,
        list: List,
        through: ListKey,
        budget: &mut usize,
    ) -> (u64, ListKey) {
        let after = self.due.of(list).through;
        let Layer { jobs: active, buckets } = &mut self.active;
        let active_pending = buckets.of(list);
        let Layer { jobs: frozen, buckets } = &mut self.frozen;
        let frozen_pending = buckets.of(list);
        let here = |at, id: &JobId| is_at(active, list, at, id);
        let there = in_frozen(active, frozen, list);
        let active = active_pending.range(after, through).map(|(at, id)| (at, here(at, id)));
        let frozen = frozen_pending.range(after, through).map(|(at, id)| (at, there(at, id)));
        let (mut end, mut found, limit) = (through, Vec::new(), *budget);
        let mut look_at = |entries: &mut dyn Iterator<Item = (ListKey, bool)>| {
            let (mut count, mut last) = (0, after);
            for (at, is_valid) in entries.take(limit) {
                // Buckets may have a job twice, but a key belongs to one job.
                if is_valid && found.last() != Some(&at) {
                    found.push(at);
                }
                (count, last) = (count + 1, at);
            }
            if count == limit {
                end = end.min(last);
            }
            *budget = (*budget).min(limit - count);
        };
        look_at(&mut { active });
        look_at(&mut { frozen });
        (found.iter().filter(|at| **at <= end).count() as u64, end)
    }

    /// The key of the first job of a list of pending jobs.
    fn oldest(
        &mut self,
        list: List,
        now: Timestamp,
        read: Option<&TableKeys>,
    ) -> Result<Option<ListKey>, ReadyStep> {
        let (active, frozen) = (&mut self.active, &mut self.frozen);
        let buckets = active.buckets.of(list);
        let first = buckets.first(|at, id| is_at(&active.jobs, list, at, id));
        let buckets = frozen.buckets.of(list);
        let second = buckets.first(in_frozen(&active.jobs, &frozen.jobs, list));
        let in_memory = first.into_iter().chain(second).map(|(at, _)| at).min();
        let read_ahead = self.read_ahead.of(list);
        let (due, end) = (self.due.of(list), (now.as_millis(), u64::MAX));
        let none = due.none_in_tables;
        let in_tables = if read_ahead.is_read() {
            read_ahead.first().map(|(at, _)| at)
        } else if due.first_in_tables.is_some() || none >= end {
            due.first_in_tables
        } else {
            let is_next = |read: &&TableKeys| read.reason == ReadFor::Oldest && read.after <= none;
            let Some(read) = read.filter(is_next) else {
                return Err(self.read_keys(list, ReadFor::Oldest, none));
            };
            let first = read.keys.iter().find(|(_, id)| self.in_memory(id).is_none());
            let first = first.map(|(at, _)| *at);
            // Also that there is none: the other lists are read before this one is asked again.
            let none = if first.is_none() { none.max(read.through) } else { none };
            let due = self.due.of(list);
            (due.first_in_tables, due.none_in_tables) = (first, none);
            if first.is_none() && none < end {
                return Err(self.read_keys(list, ReadFor::Oldest, none));
            }
            first
        };
        Ok(in_memory.into_iter().chain(in_tables).min())
    }

    fn read_keys(&self, list: List, reason: ReadFor, after: ListKey) -> ReadyStep {
        let (version, kind) = (self.version.clone(), self.number);
        let from = self.consumed_below(list);
        ReadyStep::Read(KeysToRead { version, kind, list, reason, after, from })
    }

    // Reads.

    /// What the memory knows of a job: `None` nothing, `Some(None)` that it was removed.
    pub(crate) fn known(&self, id: &JobId) -> Option<Option<&Record>> {
        self.in_memory(id).map(|entry| entry.record.as_deref())
    }

    /// The entries of all jobs in memory.
    pub(crate) fn all_in_memory(&self) -> impl Iterator<Item = (&JobId, &LayerEntry)> {
        let frozen = self.frozen.jobs.iter();
        let frozen = frozen.filter(|(id, _)| !self.active.jobs.contains_key(*id));
        self.active.jobs.iter().chain(frozen)
    }

    /// The keys in the list, in the layers below, of jobs that have moved or were removed since.
    pub(crate) fn moved_from(&self, list: List) -> impl Iterator<Item = ListKey> {
        let entries = self.active.jobs.values().chain(self.frozen.jobs.values());
        entries
            .filter_map(|entry| entry.below)
            .filter(move |below| below.0 == list)
            .map(|below| below.1)
    }

    /// Checks that the lists contain as many jobs as are counted. For tests.
    pub(crate) fn check(&self) {
        for list in List::all() {
            if let List::Leased(_) = list {
                let leases = self.leases.get(list).map_or(0, BTreeMap::len);
                assert_eq!(self.counts[list.index()], leases as u64);
                continue;
            }
            let moved: HashSet<ListKey> = self.moved_from(list).collect();
            let records = self.all_in_memory().filter_map(|(_, entry)| entry.record.as_deref());
            let keys = records.map(position_of).filter(|position| position.0 == list);
            let keys: Vec<ListKey> = keys.map(|position| position.1).collect();
            let mut count = keys.len() as u64;
            let counted = self.due.get(list).map_or((0, 0), |due| due.through);
            let is_due = |at: &ListKey| *at <= counted;
            let mut due = keys.iter().filter(|at| is_due(at)).count() as u64;
            let mut cursor = self.version.scan(self.number, list.index() as u8, (0, 0));
            while let Some((at, _)) = cursor.next().expect("tables can be read") {
                assert!(
                    moved.contains(&at) || at >= self.consumed_below(list),
                    "{at:?} is consumed"
                );
                count += u64::from(!moved.contains(&at));
                due += u64::from(!moved.contains(&at) && is_due(&at));
            }
            assert_eq!(self.counts[list.index()], count, "jobs in {list:?}, by time");
            if let Some(counted) = self.due.get(list) {
                assert_eq!(counted.jobs, due, "jobs up to {:?}", counted.through);
            }
        }
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }
}

/// Whether an entry in the buckets of the frozen layer is still valid.
fn in_frozen<'a>(
    active: &'a Jobs,
    frozen: &'a Jobs,
    list: List,
) -> impl Fn(ListKey, &JobId) -> bool + 'a {
    move |at, id| is_at(frozen, list, at, id) && !active.contains_key(id)
}

/// Whether a job is at this position in these jobs.
fn is_at(jobs: &Jobs, list: List, at: ListKey, id: &JobId) -> bool {
    let record = jobs.get(id).and_then(|entry| entry.record.as_deref());
    record.is_some_and(|record| position_of(record) == (list, at))
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
        if let Some(known) = self.in_memory(id).map(|entry| entry.record.is_some()) {
            let record = self.in_memory(id).and_then(|entry| entry.record.as_deref());
            return Ok(record.filter(|_| known));
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
        self.changes.push(entry::KEPT);
        put_bytes(&mut self.changes, id.as_str().as_bytes());
        codec::put_record(&mut self.changes, &record, taken.as_ref().map(|taken| &taken.parts));
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
