//! Reads of jobs and kinds, beside the writer.
//!
//! Jobs in memory are copied under the lock of the state, a limited number at a time. Tables are
//! read without the lock, because they do not change.

use crate::error::unavailable;
use crate::job_table::{
    DiskJobTable, KeyRange, LayerEntry, ReadyStep, STEP, TimePiece, position_of, read, totals,
};
use crate::state::State;
use foldhash::HashSet;
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::rules::{
    JobTable, KindState, List, PageBuilder, Position, Record, Status, TimePageBuilder, TimeRange,
};
use requeue_jobs::{
    Counts, Fence, Generation, JobId, JobState, JobView, Kind, KindView, Page, Query, Spans,
    StoreError, TimePage, TimeQuery, Timestamp,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

/// How many jobs in memory are copied under the lock the first time; then twice as many each time.
/// Finding them requires a pass over all jobs in memory, so copying them in equal portions would
/// take quadratic time.
const FIRST_COPY: usize = 2048;

/// How many kinds are viewed under the lock at a time.
const KINDS_AT_ONCE: usize = 256;

/// The implementation of `Store::list`.
pub(crate) fn list(
    state: &Mutex<State>,
    query: &Query,
    now: Timestamp,
) -> Result<Page, StoreError> {
    let mut page = PageBuilder::new(query.limit);
    let mut after = query.after.clone();
    let mut size = FIRST_COPY;
    loop {
        let piece = {
            let mut state = State::lock(state);
            let Some(kind) = state.kinds.kind_mut(&query.kind) else { break };
            MemorySnapshot::new(&kind.table, after.as_ref(), query, size, now)
        };
        size *= 2;
        let end = piece.end.clone();
        piece.jobs(query, after.as_ref(), now, &mut page)?;
        match end {
            Some(end) if !page.is_full() => after = Some(end),
            _ => break,
        }
    }
    Ok(page.build())
}

/// The implementation of `Store::list_by_time`.
pub(crate) fn list_by_time(
    state: &Mutex<State>,
    query: &TimeQuery,
    now: Timestamp,
) -> Result<TimePage, StoreError> {
    let mut page = TimePageBuilder::new(query.limit);
    let Some(range) = TimeRange::of(query, now)? else { return Ok(page.build()) };
    // One job more than the page has shows whether there is another page.
    let mut max = query.limit.clamp(1, STEP - 1) + 1;
    let mut rest = Some(KeyRange::of(&range));
    while let Some(keys) = rest
        && !page.is_full()
    {
        let lists = match State::lock(state).kinds.kind_mut(&query.kind) {
            Some(kind) => kind.table.time_lists(&range),
            None => break,
        };
        // Without the lock.
        let jobs = lists.read(keys, max).map_err(unavailable)?;
        let piece = match State::lock(state).kinds.kind_mut(&query.kind) {
            Some(kind) => {
                let lists = range.lists(kind.table.priorities());
                kind.table.time_piece(lists, keys, jobs, max)
            }
            None => break,
        };
        let Some(TimePiece { jobs, rest: following, version }) = piece else { continue };
        for ((at, seq), id, record) in jobs {
            let record = match record {
                Some(record) => record,
                None => match version.find(lists.kind(), id.as_str()).map_err(unavailable)? {
                    Some(location) => {
                        read(&version, lists.kind(), &location).map_err(unavailable)?
                    }
                    None => continue,
                },
            };
            let position = Position { at: Timestamp::from_millis(at), seq };
            if !page.add(position, record.view(&query.kind, &id, now)) {
                break;
            }
        }
        // Jobs in memory may hide all that were read.
        (rest, max) = (following, STEP);
    }
    Ok(page.build())
}

/// A copy of the jobs in memory from some id on.
struct MemorySnapshot {
    /// `None`: the job was removed, or is not in the requested state.
    memory: BTreeMap<JobId, Option<Box<Record>>>,
    /// The last id up to which `memory` is complete. `None`: it is complete.
    end: Option<JobId>,
    version: std::sync::Arc<crate::tables::Version>,
    number: u32,
}

impl MemorySnapshot {
    fn new(
        table: &DiskJobTable,
        after: Option<&JobId>,
        query: &Query,
        size: usize,
        now: Timestamp,
    ) -> Self {
        let all = table.all_in_memory();
        let mut entries: Vec<_> = all
            .filter(|(id, _)| after.is_none_or(|after| *id > after))
            .filter(|(id, _)| id.as_str().starts_with(&query.prefix))
            .collect();
        let mut end = None;
        if entries.len() > size {
            entries.select_nth_unstable_by_key(size - 1, |(id, _)| *id);
            entries.truncate(size);
            end = entries.last().map(|(id, _)| (*id).clone());
        }
        let fits = |record: &Record| {
            let (list, (at, _)) = position_of(record);
            query.state.is_none_or(|asked| asked == state_of(list.index() as u8, at, now))
        };
        let shown =
            |entry: &LayerEntry| entry.record.as_ref().filter(|record| fits(record)).cloned();
        let memory = entries.into_iter().map(|(id, entry)| (id.clone(), shown(entry))).collect();
        MemorySnapshot { memory, end, version: table.version().clone(), number: table.number() }
    }

    fn jobs(
        mut self,
        query: &Query,
        after: Option<&JobId>,
        now: Timestamp,
        page: &mut PageBuilder,
    ) -> Result<(), StoreError> {
        let fits = |state| query.state.is_none_or(|asked| asked == state);
        let show = |id: &JobId, record: &Record, page: &mut PageBuilder| {
            let view = record.view(&query.kind, id, now);
            if fits(view.state) {
                page.add(view);
            }
        };
        let from = match after {
            Some(after) if after.as_str() >= query.prefix.as_str() => {
                Bound::Excluded(after.as_str())
            }
            _ => Bound::Included(query.prefix.as_str()),
        };
        let mut cursor = self.version.ids(self.number, from);
        while !page.is_full() {
            let Some((id, location)) = cursor.next().map_err(unavailable)? else { break };
            let past = self.end.as_ref().is_some_and(|end| id > end.as_str());
            if past || !id.starts_with(&query.prefix) {
                break;
            }
            // Jobs in memory with a smaller id come first.
            while !page.is_full()
                && let Some(first) = self.memory.first_entry()
                && first.key().as_str() < id
            {
                let (id, record) = first.remove_entry();
                if let Some(record) = record {
                    show(&id, &record, page);
                }
            }
            if page.is_full() {
                return Ok(());
            }
            if self.memory.first_key_value().is_some_and(|(first, _)| first.as_str() == id) {
                if let Some((id, Some(record))) = self.memory.pop_first() {
                    show(&id, &record, page);
                }
            } else if fits(state_of(location.list, location.at, now)) {
                let id = JobId::new(id).map_err(StoreError::from)?;
                let record = read(&self.version, self.number, &location).map_err(unavailable)?;
                show(&id, &record, page);
            }
        }
        while !page.is_full()
            && let Some((id, record)) = self.memory.pop_first()
        {
            if let Some(record) = record {
                show(&id, &record, page);
            }
        }
        Ok(())
    }
}

fn state_of(list: u8, at: u64, now: Timestamp) -> JobState {
    match List::by_index(list.into()) {
        Some(List::Dead) => JobState::Dead,
        Some(List::Done) => JobState::Done,
        Some(List::Leased(_)) => JobState::Leased,
        _ if at <= now.as_millis() => JobState::Ready,
        _ => JobState::Waiting,
    }
}

/// The implementation of `Store::kinds`.
pub(crate) fn kinds(state: &Mutex<State>, now: Timestamp) -> Result<Vec<KindView>, StoreError> {
    let mut names: Vec<Kind> = {
        let state = State::lock(state);
        state.kinds.iter().filter(|kind| !kind.is_idle()).map(|kind| kind.name().clone()).collect()
    };
    names.sort_unstable();
    views(state, &names, now)
}

/// The implementation of `Store::kind`.
pub(crate) fn kind(
    state: &Mutex<State>,
    name: Kind,
    now: Timestamp,
) -> Result<KindView, StoreError> {
    let views = views(state, std::slice::from_ref(&name), now)?;
    Ok(views.into_iter().next().unwrap_or_else(|| KindView::new(name)))
}

/// The views of these kinds, in order; of none after the first that does not exist.
fn views(
    state: &Mutex<State>,
    names: &[Kind],
    now: Timestamp,
) -> Result<Vec<KindView>, StoreError> {
    let mut views = Vec::with_capacity(names.len());
    let (mut at, mut read) = (0, None);
    while at < names.len() {
        let to_read = {
            let mut state = State::lock(state);
            let (end, mut budget) = (names.len().min(at + KINDS_AT_ONCE), STEP);
            loop {
                let Some(name) = names[..end].get(at) else { break None };
                // Kinds are never removed.
                let Some(kind) = state.kinds.kind_mut(name) else { return Ok(views) };
                match kind.table.ready(now, read.take(), &mut budget) {
                    ReadyStep::Done(ready, oldest_ready) => {
                        views.push(view(kind, ready, oldest_ready, now));
                        at += 1;
                    }
                    ReadyStep::Again => break None,
                    ReadyStep::Read(keys) => break Some(keys),
                }
            }
        };
        // Without the lock.
        read = to_read.map(|keys| keys.read(now)).transpose().map_err(unavailable)?;
    }
    Ok(views)
}

fn view(
    kind: &KindState<DiskJobTable>,
    ready: u64,
    oldest_ready: Option<Timestamp>,
    now: Timestamp,
) -> KindView {
    KindView {
        kind: kind.name().clone(),
        counts: Counts { ready, ..totals(&kind.table.counts()) },
        oldest_ready,
        paused: kind.settings.paused,
        push: kind.settings.push.is_some(),
        throttled_until: kind.throttled_until(now),
        generation: Generation(kind.counters.generation),
        fence: Fence(kind.counters.fence),
    }
}

/// The implementation of `Store::upcoming`.
pub(crate) fn upcoming(
    state: &Mutex<State>,
    kind: &Kind,
    spans: Spans,
) -> Result<Vec<u64>, StoreError> {
    let Spans { from, length, count } = spans;
    let from = from.as_millis();
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut counts = vec![0; count];
    let span = |due: u64| usize::try_from(due.checked_sub(from)? / length).ok();
    let (version, number, lists) = {
        let mut state = State::lock(state);
        let Some(kind) = state.kinds.kind_mut(kind) else { return Ok(counts) };
        for (_, entry) in kind.table.all_in_memory() {
            if let Some(record) =
                entry.record.as_deref().filter(|r| matches!(r.status, Status::Pending))
                && let Some(count) =
                    span(record.version.due.as_millis()).and_then(|span| counts.get_mut(span))
            {
                *count += 1;
            }
        }
        let lists = kind.table.priorities().iter().map(List::Pending);
        let lists = lists.map(|list| (list, kind.table.moved_from(list).collect::<HashSet<_>>()));
        (kind.table.version().clone(), kind.table.number(), lists.collect::<Vec<_>>())
    };
    for (list, moved) in lists {
        let mut cursor = version.scan(number, list.index() as u8, (from, 0));
        while let Some((at, _)) = cursor.next().map_err(unavailable)? {
            match span(at.0).and_then(|span| counts.get_mut(span)) {
                Some(count) => *count += u64::from(!moved.contains(&at)),
                None => break,
            }
        }
    }
    Ok(counts)
}

/// The implementation of `Store::get`. Holds the lock only to look into the memory.
pub(crate) fn get(
    state: &Mutex<State>,
    kind: &Kind,
    id: &JobId,
    now: Timestamp,
) -> Result<Option<JobView>, StoreError> {
    let (version, number) = {
        let mut state = State::lock(state);
        let Some(state) = state.kinds.kind_mut(kind) else { return Ok(None) };
        if let Some(known) = state.table.known(id) {
            return Ok(known.map(|record| record.view(kind, id, now)));
        }
        (state.table.version().clone(), state.table.number())
    };
    let Some(location) = version.find(number, id.as_str()).map_err(unavailable)? else {
        return Ok(None);
    };
    Ok(Some(read(&version, number, &location).map_err(unavailable)?.view(kind, id, now)))
}

/// Checks that the counts and lists of every kind match its jobs. For tests.
pub(crate) fn check(state: &Mutex<State>) {
    let names: Vec<Kind> =
        State::lock(state).kinds.iter().map(|kind| kind.name().clone()).collect();
    for name in names {
        let (now, mut found) = (Timestamp::from_millis(u64::MAX), [0; List::END]);
        let mut query = Query { limit: MAX_BATCH, ..Query::new(name.clone()) };
        loop {
            let page = list(state, &query, now).expect("tables can be read");
            for job in &page.jobs {
                let list = match job.state {
                    JobState::Leased => List::Leased(job.version.priority),
                    JobState::Dead => List::Dead,
                    JobState::Done => List::Done,
                    JobState::Waiting | JobState::Ready => List::Pending(job.version.priority),
                };
                found[list.index()] += 1;
            }
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
        let mut state = State::lock(state);
        let kind = state.kinds.kind_mut(&name).expect("kinds stay");
        assert_eq!(kind.table.counts(), found, "the jobs of {name}, by list");
        kind.table.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_disk::{Op, SimulatedDisk};
    use crate::{DiskStore, Options};
    use requeue_jobs::{Body, Due, Put, Store};
    use requeue_testkit::block_on;
    use std::sync::Arc;
    use std::time::Duration;

    /// The number of blocks that are read for a page of 50 jobs, in each direction, from the middle
    /// of this many jobs.
    fn reads_of_a_page(jobs: usize) -> [u64; 2] {
        let disk = Arc::new(SimulatedDisk::new());
        let mut options = Options::default();
        (options.memory, options.segment, options.background) = (256 << 10, 256 << 10, false);
        let store = DiskStore::open_on(disk.clone(), options).unwrap();
        let kind = Kind::new("mail").unwrap();
        let numbers: Vec<usize> = (0..jobs).collect();
        for numbers in numbers.chunks(500) {
            let put = |n: &usize| {
                let id = JobId::new(n.to_string()).unwrap();
                let due = Due::After(Duration::from_secs(1000 + *n as u64));
                Put { due, ..Put::new(kind.clone(), id, Body::octets(vec![7; 100]).unwrap()) }
            };
            block_on(store.put(numbers.iter().map(put).collect())).unwrap();
        }
        let mut query = TimeQuery::new(kind, JobState::Waiting);
        for _ in 0..jobs / 2 / MAX_BATCH {
            query.limit = MAX_BATCH;
            query.after = block_on(store.list_by_time(query.clone())).unwrap().cursor;
        }
        query.limit = 50;
        [false, true].map(|newest_first| {
            let before = disk.count(Op::Read);
            let page = block_on(store.list_by_time(TimeQuery { newest_first, ..query.clone() }));
            assert_eq!(page.unwrap().jobs.len(), 50);
            disk.count(Op::Read) - before
        })
    }

    #[test]
    fn a_page_by_time_reads_few_blocks_however_many_jobs_there_are() {
        for jobs in [4_000, 30_000] {
            let reads = reads_of_a_page(jobs);
            assert!(reads.iter().all(|reads| (1..12).contains(reads)), "{jobs} jobs: {reads:?}");
        }
    }
}
