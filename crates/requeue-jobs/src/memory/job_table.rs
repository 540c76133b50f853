//! The jobs of one kind, in memory.

use crate::error::StoreError;
use crate::limits::READY_COUNT_CAP;
use crate::names::{JobId, Kind};
use crate::priority::{Priorities, Priority};
use crate::query::{Page, Query, TimePage, TimeQuery};
use crate::rules::{JobTable, List, PageBuilder, Position, Record, TimePageBuilder, TimeRange};
use crate::time::Timestamp;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct MemoryTable {
    jobs: BTreeMap<JobId, Box<Record>>,
    /// One index for each [`List`], at its [number](List::index).
    /// Invariant: each contains exactly the jobs that belong there, at their places.
    lists: [BTreeMap<Position, JobId>; List::END],
    /// The priorities of all pending and leased jobs, and of earlier ones.
    priorities: Priorities,
}

impl JobTable for MemoryTable {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        Ok(self.jobs.get(id).map(|record| &**record))
    }

    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError> {
        let record = self.jobs.remove(id);
        if let Some(record) = &record {
            let (list, position) = record.position();
            self.lists[list.index()].remove(&position);
        }
        Ok(record)
    }

    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let first = self.lists[list.index()].pop_first();
        Ok(first.and_then(|(_, id)| self.jobs.remove(&id).map(|record| (id, record))))
    }

    fn keep(&mut self, id: JobId, record: Box<Record>) {
        let (list, position) = record.position();
        self.priorities.insert(record.version.priority);
        let before = self.lists[list.index()].insert(position, id.clone());
        debug_assert!(before.is_none(), "{id:?} is where {before:?} is");
        self.jobs.insert(id, record);
    }

    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError> {
        Ok(self.lists[list.index()].first_key_value().map(|(position, _)| *position))
    }

    fn count(&self, list: List) -> u64 {
        self.lists[list.index()].len() as u64
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
        Ok(self.ends_after(priority, now).take(limit).count())
    }

    fn first_to_end(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.ends_after(priority, now).next())
    }
}

impl MemoryTable {
    fn ends_after(&self, priority: Priority, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let now = Position { at: now, seq: u64::MAX };
        let after = (Bound::Excluded(now), Bound::Unbounded);
        self.lists[List::Leased(priority).index()].range(after).map(|(position, _)| position.at)
    }

    pub(super) fn list(&self, kind: &Kind, query: &Query, now: Timestamp) -> Page {
        let from = match &query.after {
            Some(after) if after.as_str() >= query.prefix.as_str() => {
                Bound::Excluded(after.as_str())
            }
            _ => Bound::Included(query.prefix.as_str()),
        };
        let jobs = self.jobs.range::<str, _>((from, Bound::Unbounded));
        let jobs = jobs.take_while(|(id, _)| id.as_str().starts_with(&query.prefix));
        let views = jobs.map(|(id, record)| record.view(kind, id, now));
        let views = views.filter(|view| query.state.is_none_or(|state| view.state == state));
        let mut page = PageBuilder::new(query.limit);
        for view in views {
            if !page.add(view) {
                break;
            }
        }
        page.build()
    }

    /// Returns a page of the jobs in this range of positions.
    pub(super) fn list_by_time<'a>(
        &'a self,
        query: &TimeQuery,
        range: &TimeRange,
        now: Timestamp,
    ) -> TimePage {
        let step = |jobs: &mut btree_map::Range<'a, Position, JobId>| {
            if range.newest_first { jobs.next_back() } else { jobs.next() }
        };
        // The next job of each list, and those after it.
        let mut next = BTreeMap::new();
        for list in range.lists(self.priorities) {
            let mut jobs = self.lists[list.index()].range(range.first..=range.last);
            if let Some((at, id)) = step(&mut jobs) {
                next.insert(*at, (id, jobs));
            }
        }
        let mut page = TimePageBuilder::new(query.limit);
        while let Some((at, (id, mut jobs))) =
            if range.newest_first { next.pop_last() } else { next.pop_first() }
        {
            if let Some(record) = self.jobs.get(id)
                && !page.add(at, record.view(&query.kind, id, now))
            {
                break;
            }
            if let Some((at, id)) = step(&mut jobs) {
                next.insert(*at, (id, jobs));
            }
        }
        page.build()
    }

    /// Returns the number of ready jobs, counted up to [`READY_COUNT_CAP`].
    pub(super) fn ready(&self, now: Timestamp) -> u64 {
        let due = self.pending().flat_map(|dues| dues.take_while(|due| *due <= now));
        due.take(READY_COUNT_CAP as usize).count() as u64
    }

    /// Returns the number of pending jobs that are due in each of `count` consecutive spans.
    pub(super) fn upcoming(&self, from: Timestamp, length: Duration, count: usize) -> Vec<u64> {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut spans = vec![0; count];
        for due in self.pending().flatten() {
            let Some(since) = due.as_millis().checked_sub(from.as_millis()) else { continue };
            let span = usize::try_from(since / length).ok();
            if let Some(span) = span.and_then(|span| spans.get_mut(span)) {
                *span += 1;
            }
        }
        spans
    }

    /// Returns the due times of the pending jobs of each priority.
    fn pending(&self) -> impl Iterator<Item = impl Iterator<Item = Timestamp>> {
        let lists = self.priorities().iter().map(|priority| List::Pending(priority).index());
        lists.map(|list| self.lists[list].keys().map(|position| position.at))
    }

    /// Checks the invariants of the fields.
    pub(super) fn check(&self) {
        let mut lists: [BTreeMap<Position, JobId>; List::END] = Default::default();
        for (id, record) in &self.jobs {
            let (list, position) = record.position();
            lists[list.index()].insert(position, id.clone());
        }
        assert_eq!(lists, self.lists);
        assert_eq!(lists.iter().map(BTreeMap::len).sum::<usize>(), self.jobs.len());
    }
}
