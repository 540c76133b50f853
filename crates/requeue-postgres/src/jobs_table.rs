//! The jobs of one kind that a transaction has locked, as the table that the rules work on.

use crate::columns::Columns;
use crate::rows;
use requeue_jobs::rules::{JobTable, List, Position, Record};
use requeue_jobs::{Generation, JobId, Priorities, Priority, StoreError, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Locked jobs, and what became of them. Jobs that are not locked are not there for the rules.
#[derive(Default)]
pub(crate) struct JobsTable {
    /// The jobs as they were.
    before: BTreeMap<JobId, Record>,
    jobs: BTreeMap<JobId, Box<Record>>,
    /// Invariant: exactly the places of `jobs`.
    lists: BTreeSet<(usize, Position, JobId)>,
    priorities: Priorities,
    /// How many dead and done jobs the kind has, with those that are not locked.
    pub(crate) dead: u64,
    pub(crate) done: u64,
    /// How many leases of the kind have not expired.
    pub(crate) unexpired: usize,
}

/// What a transaction has to write.
#[derive(Default)]
pub(crate) struct Changes<'a> {
    pub(crate) deleted: Vec<String>,
    /// The jobs that are new or have changed, and whether each is new.
    pub(crate) written: Columns<'a>,
    pub(crate) are_new: Vec<bool>,
    /// How much the numbers of pending, leased, dead and done jobs change.
    pub(crate) counts: [i64; 4],
    /// The highest generation of a job, or of a successor, that is removed.
    pub(crate) removed: Option<Generation>,
    /// The first place of a job that has become pending.
    pub(crate) first_pending: Option<Position>,
}

impl<'a> Changes<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.are_new.is_empty()
    }

    fn write(&mut self, id: &JobId, record: &'a Record, before: Option<&Record>) {
        self.written.add(rows::stored(id, record, before));
        self.are_new.push(before.is_none());
    }
}

impl JobsTable {
    /// Adds a job that the transaction has locked.
    pub(crate) fn add(&mut self, id: JobId, record: Record) {
        if !self.before.contains_key(&id) {
            self.before.insert(id.clone(), record.clone());
            self.insert(id, Box::new(record));
        }
    }

    fn insert(&mut self, id: JobId, record: Box<Record>) {
        let (list, position) = record.position();
        self.priorities.insert(record.version.priority);
        self.lists.insert((list.index(), position, id.clone()));
        self.jobs.insert(id, record);
    }

    fn remove(&mut self, id: &JobId) -> Option<Box<Record>> {
        let record = self.jobs.remove(id)?;
        let (list, position) = record.position();
        self.lists.remove(&(list.index(), position, id.clone()));
        Some(record)
    }

    fn total(&mut self, record: &Record) -> Option<&mut u64> {
        match rows::list_of(record) {
            rows::DEAD => Some(&mut self.dead),
            rows::DONE => Some(&mut self.done),
            _ => None,
        }
    }

    fn of_list(&self, list: List) -> Option<&(usize, Position, JobId)> {
        let start = Position { at: Timestamp::default(), seq: 0 };
        let from = (list.index(), start, JobId::new("\0").expect("it is not empty"));
        self.lists.range(from..).next().filter(|(index, ..)| *index == list.index())
    }

    /// Returns what has changed.
    pub(crate) fn changes(&self) -> Changes<'_> {
        let mut changes = Changes::default();
        let state = |record: &Record| match rows::list_of(record) {
            rows::DEAD => 2,
            rows::DONE => 3,
            rows::LEASED.. => 1,
            _ => 0,
        };
        for (id, before) in &self.before {
            let after = self.jobs.get(id);
            if after.is_some_and(|after| **after == *before) {
                continue;
            }
            changes.counts[state(before)] -= 1;
            let newest = before.newest_generation();
            if after.is_none_or(|after| after.newest_generation() < newest) {
                changes.removed = changes.removed.max(Some(newest));
            }
            match after {
                Some(after) => changes.write(id, after, Some(before)),
                None => changes.deleted.push(crate::text::escape(id.as_str()).into_owned()),
            }
        }
        for (id, after) in &self.jobs {
            let before = self.before.get(id);
            if before.is_some_and(|before| *before == **after) {
                continue;
            }
            if before.is_none() {
                changes.write(id, after, None);
            }
            changes.counts[state(after)] += 1;
            let (list, position) = after.position();
            if matches!(list, List::Pending(_)) {
                let first = changes.first_pending.map_or(position, |first| first.min(position));
                changes.first_pending = Some(first);
            }
        }
        changes
    }
}

impl JobTable for JobsTable {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        Ok(self.jobs.get(id).map(|record| &**record))
    }

    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError> {
        let taken = self.remove(id);
        if let Some(record) = &taken
            && let Some(total) = self.total(record)
        {
            *total = total.saturating_sub(1);
        }
        Ok(taken)
    }

    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let Some((_, _, id)) = self.of_list(list) else { return Ok(None) };
        let id = id.clone();
        Ok(self.take(&id)?.map(|record| (id, record)))
    }

    fn keep(&mut self, id: JobId, record: Box<Record>) {
        if let Some(total) = self.total(&record) {
            *total += 1;
        }
        self.insert(id, record);
    }

    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError> {
        Ok(self.of_list(list).map(|(_, position, _)| *position))
    }

    fn count(&self, list: List) -> u64 {
        match list {
            List::Dead => self.dead,
            List::Done => self.done,
            _ => self.lists.iter().filter(|(index, ..)| *index == list.index()).count() as u64,
        }
    }

    fn priorities(&self) -> Priorities {
        self.priorities
    }

    fn unexpired(
        &mut self,
        priority: Priority,
        _: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        // The number is known for all priorities together. It is reported for the first one.
        let is_first = self.priorities.iter().next() == Some(priority);
        Ok(if is_first { self.unexpired.min(limit) } else { 0 })
    }

    fn first_to_end(&mut self, _: Priority, _: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        // Only needed to wait, which the server decides.
        Ok(None)
    }
}
