//! Where the jobs of one kind are: the newest in memory, the others in tables.
//!
//! ```text
//!   changed since the last flush     being flushed        flushed
//!            active          over       frozen      over  tables
//! ```
//!
//! Each layer hides what those below say of the same job. What [`take`](JobTable::take) takes out
//! of a lower one is noted in the active one, with the place it has below: when the active one
//! is flushed, that place gets a tombstone.

use crate::bytes::{Bytes, Malformed, put_bytes};
use crate::codec::{self, Parts};
use crate::due_buckets::{At, DueBuckets, PLACE_BYTES};
use crate::error::{Corrupt, DiskError, unavailable};
use crate::read_ahead::{Piece, ReadAhead};
use crate::tables::{Spot, Version};
use foldhash::{HashMap, HashSet};
use requeue_jobs::rules::{JobTable, List, Place, Record};
use requeue_jobs::{JobId, StoreError, Timestamp};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a job stands: in which list, and where in it.
pub(crate) type Stand = (List, At);

/// What a layer says of a job.
#[derive(Default)]
pub(crate) struct Slot {
    /// `None`: it is gone.
    pub(crate) record: Option<Box<Record>>,
    /// Where it stands in the layers below, if it does.
    pub(crate) below: Option<Stand>,
}

pub(crate) type Jobs = HashMap<JobId, Slot>;

/// Jobs in memory, found by id and by time.
#[derive(Default)]
struct Layer<J> {
    jobs: J,
    pending: DueBuckets,
    dead: DueBuckets,
}

pub(crate) struct DiskJobTable {
    number: u32,
    active: Layer<Jobs>,
    frozen: Layer<Arc<Jobs>>,
    version: Arc<Version>,
    /// How many kinds there are: they share what windows may take.
    kinds: Arc<AtomicU32>,
    /// What is next in the tables.
    pending: ReadAhead,
    dead: ReadAhead,
    /// All leased jobs by the end of their leases. They are few: somebody works on each.
    leases: BTreeMap<At, JobId>,
    counts: [u64; 3],
    /// What was taken out last. Unless it is kept by the end of the operation, it is gone.
    taken: Option<Taken>,
    /// A job that was read from the tables to be looked at, and may be taken next, in the same
    /// operation.
    peeked: Option<(JobId, Box<Record>)>,
    /// What changed since [`drain`](Self::drain), for the log.
    changes: Vec<u8>,
    /// How many bytes of it the group knows of.
    noted: usize,
    /// About how much memory the active layer takes, and how much it took when last asked.
    weight: usize,
    weighed: usize,
}

struct Taken {
    id: JobId,
    stand: Stand,
    parts: Parts,
    /// Whether the active layer's line has it at `stand`.
    in_line: bool,
    weight: usize,
}

/// Which layers have the first of a list.
enum From {
    Memory,
    ReadAhead,
}

/// Entries of a kind in the log.
pub(crate) mod entry {
    pub(crate) const KEPT: u8 = 0;
    pub(crate) const GONE: u8 = 1;
    pub(crate) const SETTINGS: u8 = 2;
    pub(crate) const SCHEDULE: u8 = 3;
    pub(crate) const NO_SCHEDULE: u8 = 4;
    pub(crate) const COUNTERS: u8 = 5;
}

/// What a job takes in memory besides its id and body: record, slot, place and allocations.
const OVERHEAD: usize = 350;
/// What it takes to remember that one is gone.
const GONE: usize = 100;

/// How large a buffer each kind keeps for its changes, however large its largest group was: there
/// may be 10,000 kinds.
const KEEP_CHANGES: usize = 32 << 10;

fn weight(id: &JobId, record: &Record) -> usize {
    let next = match &record.status {
        requeue_jobs::rules::Status::Leased(lease) => {
            150 + lease.next.as_ref().map_or(0, |next| next.body.len())
        }
        _ => 0,
    };
    let failures = record.failures.iter();
    let failures = failures.map(|failure| 100 + failure.error.as_ref().map_or(0, |e| e.len()));
    OVERHEAD + id.as_str().len() + record.body.len() + next + failures.sum::<usize>()
}

pub(crate) fn stand(record: &Record) -> Stand {
    let (list, place) = record.place();
    (list, (place.at.as_millis(), place.seq))
}

impl DiskJobTable {
    /// The table of a kind, which has so many jobs in these tables.
    pub(crate) fn new(
        number: u32,
        kinds: Arc<AtomicU32>,
        version: Arc<Version>,
        counts: [u64; 3],
    ) -> Self {
        DiskJobTable {
            number,
            active: Layer::default(),
            frozen: Layer::default(),
            version,
            kinds,
            pending: ReadAhead::default(),
            dead: ReadAhead::default(),
            leases: BTreeMap::new(),
            counts,
            taken: None,
            peeked: None,
            changes: Vec::new(),
            noted: 0,
            weight: 0,
            weighed: 0,
        }
    }

    /// Reads from the tables which jobs are leased.
    pub(crate) fn load_leases(&mut self) -> Result<(), DiskError> {
        if self.counts[List::Leased as usize] == 0 {
            return Ok(());
        }
        let mut cursor = self.version.scan(self.number, List::Leased as u8, (0, 0));
        while let Some((at, value)) = cursor.next()? {
            let id = codec::id(&mut Bytes::new(value));
            let id = id.map_err(|Malformed(what)| cursor.damage(what))?;
            self.leases.insert(at, id);
        }
        Ok(())
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn counts(&self) -> [u64; 3] {
        self.counts
    }

    // The log.

    /// Ends an operation: what was taken and not kept is gone.
    pub(crate) fn finish(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        self.changes.push(entry::GONE);
        put_bytes(&mut self.changes, taken.id.as_str().as_bytes());
        self.weight -= taken.weight;
        if self.active.jobs.get(&taken.id).is_some_and(|slot| slot.below.is_none()) {
            self.active.jobs.remove(&taken.id);
        }
    }

    /// Adds to what goes into the log.
    pub(crate) fn note(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.finish();
        write(&mut self.changes);
    }

    /// Ends an operation. Answers how many bytes of changes there are, and how many more than when
    /// this was last asked.
    pub(crate) fn end(&mut self) -> (usize, usize) {
        self.finish();
        // By the next one the job may be elsewhere, and after a flush its slot gone that said so.
        self.peeked = None;
        let before = mem::replace(&mut self.noted, self.changes.len());
        (self.noted, self.noted - before)
    }

    /// Hands out what changed since it last did.
    pub(crate) fn drain(&mut self, log: impl FnOnce(&[u8])) {
        self.end();
        log(&self.changes);
        self.changes.clear();
        self.changes.shrink_to(KEEP_CHANGES);
        self.noted = 0;
    }

    /// By how many bytes the active layer has grown since this was last asked.
    pub(crate) fn grown(&mut self) -> isize {
        let before = mem::replace(&mut self.weighed, self.weight);
        self.weight as isize - before as isize
    }

    // Layers.

    /// Freezes the active layer, to be flushed. There must be no frozen one.
    pub(crate) fn freeze(&mut self) -> Arc<Jobs> {
        self.finish();
        debug_assert!(self.frozen.jobs.is_empty());
        let Layer { jobs, pending, dead } = mem::take(&mut self.active);
        // The next layer may well get as large: growing costs more than all else in a put.
        self.active.jobs.reserve(jobs.len());
        let jobs = Arc::new(jobs);
        self.frozen = Layer { jobs: jobs.clone(), pending, dead };
        (self.weight, self.weighed) = (0, 0);
        jobs
    }

    /// Below this, the tables have nothing of the list that is still there.
    pub(crate) fn floor(&self, list: List) -> At {
        match list {
            List::Pending => self.pending.floor(),
            List::Dead => self.dead.floor(),
            // No window passes over them.
            List::Leased => (0, 0),
        }
    }

    /// The frozen layer is in the tables of this version.
    ///
    /// What was frozen is answered, for somebody with more time to drop.
    pub(crate) fn flushed(&mut self, version: Arc<Version>) -> impl Send + use<> {
        let active = &self.active.jobs;
        let frozen = &mut self.frozen;
        for (list, line, window) in [
            (List::Pending, &mut frozen.pending, &mut self.pending),
            (List::Dead, &mut frozen.dead, &mut self.dead),
        ] {
            if let Some((at, _)) = line.first(in_frozen(active, &frozen.jobs, list)) {
                window.back_to(at);
            }
        }
        self.version = version;
        mem::take(&mut self.frozen)
    }

    /// The same jobs are in other tables now.
    pub(crate) fn moved(&mut self, version: Arc<Version>) {
        self.version = version;
    }

    /// What the layers in memory say of a job, and where the active one has it if it stands below.
    fn in_memory(&self, id: &JobId) -> Option<&Slot> {
        self.active.jobs.get(id).or_else(|| self.frozen.jobs.get(id))
    }

    fn window(&mut self, list: List) -> Option<&mut ReadAhead> {
        match list {
            List::Pending => Some(&mut self.pending),
            List::Dead => Some(&mut self.dead),
            List::Leased => None,
        }
    }

    fn find(&mut self, id: &JobId) -> Result<Option<Box<Record>>, DiskError> {
        if let Some((peeked, record)) = self.peeked.take()
            && peeked == *id
        {
            return Ok(Some(record));
        }
        let Some(spot) = self.version.find(self.number, id.as_str())? else { return Ok(None) };
        read(&self.version, self.number, &spot).map(Some)
    }

    /// Takes a job out, wherever it is.
    pub(crate) fn take_out(&mut self, id: &JobId) -> Result<Option<Box<Record>>, DiskError> {
        self.finish();
        if let Some(slot) = self.active.jobs.get_mut(id) {
            let record = slot.record.take();
            if let Some(record) = &record {
                self.took(id, record, true);
            }
            return Ok(record);
        }
        let record = match self.frozen.jobs.get(id) {
            Some(slot) => slot.record.clone(),
            None => self.find(id)?,
        };
        if let Some(record) = &record {
            self.took_from_below(id, record);
        }
        Ok(record)
    }

    /// Takes a job out of the lists, and notes what it was.
    fn took(&mut self, id: &JobId, record: &Record, in_line: bool) {
        let stand = stand(record);
        self.counts[stand.0 as usize] -= 1;
        if stand.0 == List::Leased {
            self.leases.remove(&stand.1);
        }
        let (parts, weight) = (Parts::of(record), if in_line { weight(id, record) } else { 0 });
        self.taken = Some(Taken { id: id.clone(), stand, parts, in_line, weight });
    }

    /// Takes a job of a lower layer out: from now on this one tells of it.
    fn took_from_below(&mut self, id: &JobId, record: &Record) {
        let below = stand(record);
        self.window(below.0).map(|window| window.take(below.1));
        self.active.jobs.insert(id.clone(), Slot { record: None, below: Some(below) });
        self.weight += GONE + id.as_str().len();
        self.took(id, record, false);
    }

    /// Puts a job into the active layer, in place of what was taken out.
    fn place(&mut self, id: JobId, record: Box<Record>, taken: Option<Taken>) {
        let (list, at) = stand(&record);
        self.counts[list as usize] += 1;
        self.weight += weight(&id, &record);
        self.weight -= taken.as_ref().map_or(0, |taken| taken.weight);
        let in_line = taken.is_some_and(|taken| taken.in_line && taken.stand == (list, at));
        // Places are given back only when the layer is: jobs come and go meanwhile.
        self.weight += if in_line { 0 } else { PLACE_BYTES };
        match list {
            List::Leased => drop(self.leases.insert(at, id.clone())),
            List::Pending if !in_line => self.active.pending.push(at, id.clone()),
            List::Dead if !in_line => self.active.dead.push(at, id.clone()),
            List::Pending | List::Dead => {}
        }
        self.active.jobs.entry(id).or_default().record = Some(record);
    }

    /// The first of a list.
    fn front(&mut self, list: List) -> Result<Option<(At, JobId, From)>, StoreError> {
        self.finish();
        let (active, frozen) = (&mut self.active, &mut self.frozen);
        let (line, frozen_line, window) = match list {
            List::Leased => {
                let first = self.leases.first_key_value();
                return Ok(first.map(|(at, id)| (*at, id.clone(), From::Memory)));
            }
            List::Pending => (&mut active.pending, &mut frozen.pending, &mut self.pending),
            List::Dead => (&mut active.dead, &mut frozen.dead, &mut self.dead),
        };
        let here = |id: &JobId| active.jobs.contains_key(id) || frozen.jobs.contains_key(id);
        let piece = Piece { version: &self.version, kind: self.number, list };
        let kinds = self.kinds.load(Ordering::Relaxed) as usize;
        window.fill(piece, kinds, here).map_err(unavailable)?;
        let first = line.first(|at, id| stands(&active.jobs, list, at, id));
        let second = frozen_line.first(in_frozen(&active.jobs, &frozen.jobs, list));
        let memory = first.into_iter().chain(second).min_by_key(|(at, _)| *at);
        Ok(match (memory, window.first()) {
            (Some(memory), Some(window)) if window.0 < memory.0 => Some((window, From::ReadAhead)),
            (None, Some(window)) => Some((window, From::ReadAhead)),
            (memory, _) => memory.map(|memory| (memory, From::Memory)),
        }
        .map(|((at, id), from)| (at, id.clone(), from)))
    }

    // Questions.

    /// What is known of a job without looking into tables.
    pub(crate) fn known(&self, id: &JobId) -> Option<Option<&Record>> {
        self.in_memory(id).map(|slot| slot.record.as_deref())
    }

    /// All jobs that the layers in memory say something of.
    pub(crate) fn all_in_memory(&self) -> impl Iterator<Item = (&JobId, &Slot)> {
        let frozen = self.frozen.jobs.iter();
        let frozen = frozen.filter(|(id, _)| !self.active.jobs.contains_key(*id));
        self.active.jobs.iter().chain(frozen)
    }

    /// Where the layers below say that jobs stand which have moved since.
    pub(crate) fn moved_from(&self, list: List) -> impl Iterator<Item = At> {
        let slots = self.active.jobs.values().chain(self.frozen.jobs.values());
        slots
            .filter_map(|slot| slot.below)
            .filter(move |below| below.0 == list)
            .map(|below| below.1)
    }

    /// How many jobs in memory are ready, counted up to `limit`.
    pub(crate) fn ready_in_memory(&self, now: Timestamp, limit: usize) -> usize {
        let end = now.as_millis().saturating_add(1);
        let here = |(at, id): &(At, &JobId)| stands(&self.active.jobs, List::Pending, *at, id);
        let active = self.active.pending.before(end).filter(here);
        let there = in_frozen(&self.active.jobs, &self.frozen.jobs, List::Pending);
        let frozen = self.frozen.pending.before(end).filter(|(at, id)| there(*at, id));
        // A line may have a job twice; places are of one job each.
        let mut ready = HashSet::default();
        for (at, _) in active.chain(frozen) {
            ready.insert(at);
            if ready.len() >= limit {
                break;
            }
        }
        ready.len()
    }

    /// Checks that the lists, front to end, have as many jobs as are counted.
    pub(crate) fn check(&self) {
        assert_eq!(self.counts[List::Leased as usize], self.leases.len() as u64);
        for list in [List::Pending, List::Dead] {
            let moved: HashSet<At> = self.moved_from(list).collect();
            let slots = self.all_in_memory().filter_map(|(_, slot)| slot.record.as_deref());
            let mut count = slots.filter(|record| stand(record).0 == list).count() as u64;
            let mut cursor = self.version.scan(self.number, list as u8, (0, 0));
            while let Some((at, _)) = cursor.next().expect("tables can be read") {
                assert!(moved.contains(&at) || at >= self.floor(list), "{at:?} is below the floor");
                count += u64::from(!moved.contains(&at));
            }
            assert_eq!(self.counts[list as usize], count, "{list:?}, by time");
        }
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }
}

/// Which places of the frozen layer's lines still hold.
fn in_frozen<'a>(
    active: &'a Jobs,
    frozen: &'a Jobs,
    list: List,
) -> impl Fn(At, &JobId) -> bool + 'a {
    move |at, id| stands(frozen, list, at, id) && !active.contains_key(id)
}

fn stands(jobs: &Jobs, list: List, at: At, id: &JobId) -> bool {
    let record = jobs.get(id).and_then(|slot| slot.record.as_deref());
    record.is_some_and(|record| stand(record) == (list, at))
}

pub(crate) fn read(version: &Version, kind: u32, spot: &Spot) -> Result<Box<Record>, DiskError> {
    let value = version.read(kind, spot)?;
    match codec::job_unless(&value, |_| false) {
        Ok(Some((_, record))) => Ok(record),
        Ok(None) => unreachable!("it is nowhere else"),
        Err(Malformed(what)) => {
            let file = format!("the table of flush {}", spot.flush);
            Err(Corrupt::new(&file, 0, what).into())
        }
    }
}

impl JobTable for DiskJobTable {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        self.finish();
        if let Some(known) = self.in_memory(id).map(|slot| slot.record.is_some()) {
            let record = self.in_memory(id).and_then(|slot| slot.record.as_deref());
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
            From::Memory => None,
            From::ReadAhead => self.window(list).and_then(|window| window.take(at)),
        };
        if let Some(record) = read {
            self.took_from_below(&id, &record);
            return Ok(Some((id, record)));
        }
        let record = self.take(&id)?;
        debug_assert!(record.is_some(), "{id:?} is first in {list:?}, and not there");
        Ok(record.map(|record| (id, record)))
    }

    fn keep(&mut self, id: JobId, record: Box<Record>) {
        let taken = self.taken.take_if(|taken| taken.id == id);
        self.finish();
        self.changes.push(entry::KEPT);
        put_bytes(&mut self.changes, id.as_str().as_bytes());
        codec::put_record(&mut self.changes, &record, taken.as_ref().map(|taken| &taken.parts));
        self.place(id, record, taken);
    }

    fn put_back(&mut self, id: JobId, record: Box<Record>) {
        let taken = self.taken.take();
        debug_assert!(taken.as_ref().is_some_and(|taken| taken.id == id));
        self.place(id, record, taken);
    }

    fn first(&mut self, list: List) -> Result<Option<Place>, StoreError> {
        let place =
            |(at, ..): (At, JobId, From)| Place { at: Timestamp::from_millis(at.0), seq: at.1 };
        Ok(self.front(list)?.map(place))
    }

    fn count(&self, list: List) -> u64 {
        self.counts[list as usize]
    }

    fn unexpired(&mut self, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
        Ok(self.leases.range((now.as_millis(), u64::MAX)..).take(limit).count())
    }

    fn first_to_end(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let first = self.leases.range((now.as_millis(), u64::MAX)..).next();
        Ok(first.map(|(at, _)| Timestamp::from_millis(at.0)))
    }
}
