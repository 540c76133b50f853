//! The layers in memory, and what a flush makes of them.

use super::{DiskJobTable, ListAndKey, position_of};
use crate::due_buckets::{DueBuckets, ListKey};
use crate::per_list::PerList;
use crate::read_ahead::ReadAhead;
use crate::tables::Version;
use foldhash::HashMap;
use requeue_jobs::JobId;
use requeue_jobs::rules::{List, Record};
use std::mem;
use std::sync::Arc;

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
pub(super) struct Layer<J> {
    pub(super) jobs: J,
    /// By time, except leased jobs.
    pub(super) buckets: PerList<DueBuckets>,
}

impl DiskJobTable {
    /// Freezes the active layer, to be flushed. There must not be a frozen layer.
    pub(crate) fn freeze(&mut self) -> Arc<Jobs> {
        self.finish();
        debug_assert!(self.frozen.jobs.is_empty());
        let Layer { jobs, buckets } = mem::take(&mut self.active);
        // The next layer probably gets as large, and growing is the most expensive part of a put.
        self.active.jobs.reserve(jobs.len());
        let jobs = Arc::new(jobs);
        self.frozen = Layer { jobs: jobs.clone(), buckets };
        self.weight.clear();
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
    pub(super) fn in_memory(&self, id: &JobId) -> Option<&LayerEntry> {
        self.active.jobs.get(id).or_else(|| self.frozen.jobs.get(id))
    }

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
}

/// Whether an entry in the buckets of the frozen layer is still valid.
pub(super) fn in_frozen<'a>(
    active: &'a Jobs,
    frozen: &'a Jobs,
    list: List,
) -> impl Fn(ListKey, &JobId) -> bool + 'a {
    move |at, id| is_at(frozen, list, at, id) && !active.contains_key(id)
}

/// Whether a job is at this position in these jobs.
pub(super) fn is_at(jobs: &Jobs, list: List, at: ListKey, id: &JobId) -> bool {
    let record = jobs.get(id).and_then(|entry| entry.record.as_deref());
    record.is_some_and(|record| position_of(record) == (list, at))
}
