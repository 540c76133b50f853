//! Reads the next jobs of a list from the tables, a few at a time.
//!
//! However many jobs there are, few of them are in memory. Reading continues inside a millisecond
//! where it stopped, so a million jobs that are due in the same millisecond do not have to fit.

use crate::bytes::Malformed;
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::DiskError;
use crate::tables::Version;
use requeue_jobs::JobId;
use requeue_jobs::rules::{List, Record};
use std::collections::BTreeMap;

/// The largest number of jobs per read …
const MAX_JOBS: usize = 512;
/// … and the number of bytes after which a read ends: with bodies of the largest size, after one
/// job.
const MAX_BYTES: usize = 256 << 10;
/// The limit for all lists of all kinds together. If there are many, each reads less, and a job that
/// is larger than the share of its list is read again when it is taken.
const ALL_BYTES: usize = 64 << 20;

const END: ListKey = (u64::MAX, u64::MAX);

#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Invariant: all jobs of the list in the tables that have no entry in memory, from
    /// [`consumed_below`](Self::consumed_below) up to `next`.
    ///
    /// A job that is too large to be kept in memory has no record here.
    jobs: BTreeMap<ListKey, (JobId, Option<Box<Record>>)>,
    /// Where the next read begins.
    next: ListKey,
}

/// The list that is read.
pub(crate) struct TableList<'a> {
    pub(crate) version: &'a Version,
    pub(crate) kind: u32,
    pub(crate) list: List,
}

impl ReadAhead {
    /// Reads the next jobs if none is left. The limit depends on the number of lists that share the
    /// memory. Jobs for which `here` holds, because they are in memory, are skipped.
    pub(crate) fn fill(
        &mut self,
        TableList { version, kind, list }: TableList<'_>,
        lists: usize,
        here: impl Fn(&JobId) -> bool,
    ) -> Result<(), DiskError> {
        if self.is_read() {
            return Ok(());
        }
        let mut cursor = version.scan(kind, list.index() as u8, self.next);
        let mut bytes = 0;
        let share = ALL_BYTES / lists.max(1);
        while self.jobs.len() < MAX_JOBS && bytes < MAX_BYTES.min(share) {
            let Some((at, value)) = cursor.next()? else {
                self.next = END;
                return Ok(());
            };
            let len = value.len();
            match codec::job_unless(value, &here) {
                Ok(None) => {}
                Ok(Some((id, record))) => {
                    bytes += len;
                    self.jobs.insert(at, (id, (bytes <= share).then_some(record)));
                }
                Err(Malformed(what)) => return Err(cursor.damage(what)),
            }
            self.next = match (at.0.checked_add(1), at.1.checked_add(1)) {
                (_, Some(seq)) => (at.0, seq),
                (Some(at), None) => (at, 0),
                (None, None) => END,
            };
        }
        Ok(())
    }

    /// Whether [`first`](Self::first) is the first job of the list in the tables: nothing has to be
    /// read.
    pub(crate) fn is_read(&self) -> bool {
        !self.jobs.is_empty() || self.next == END
    }

    pub(crate) fn first(&self) -> Option<(ListKey, &JobId)> {
        self.jobs.first_key_value().map(|(at, (id, _))| (*at, id))
    }

    /// Takes a job out, if its record is here.
    pub(crate) fn take(&mut self, at: ListKey) -> Option<Box<Record>> {
        let record = self.jobs.get_mut(&at)?.1.take()?;
        self.jobs.remove(&at);
        Some(record)
    }

    /// A job was taken, whether its record is here or not.
    pub(crate) fn taken(&mut self, at: ListKey) {
        self.jobs.remove(&at);
    }

    /// All jobs of the list below this key are consumed.
    pub(crate) fn consumed_below(&self) -> ListKey {
        self.jobs.first_key_value().map_or(self.next, |(at, _)| *at)
    }

    /// Reads again from this key on, because there may be new jobs.
    pub(crate) fn back_to(&mut self, at: ListKey) {
        if at < self.next {
            self.jobs.split_off(&at);
            self.next = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_disk::SimulatedDisk;
    use crate::tables::{Options, Tables};
    use crate::{DiskStore, Options as StoreOptions};
    use requeue_jobs::{Body, Kind, Put, Store};
    use requeue_testkit::block_on;
    use std::sync::Arc;

    #[test]
    fn a_job_larger_than_the_share_of_its_list_is_not_kept_in_memory() {
        let disk = Arc::new(SimulatedDisk::new());
        let mut options = StoreOptions::default();
        (options.memory, options.segment, options.background) = (64 << 10, 64 << 10, false);
        let store = DiskStore::open_on(disk.clone(), options).unwrap();
        for id in ["1", "2", "3"] {
            let body = Body::octets(vec![7; 100 << 10]).unwrap();
            let put = Put::new(Kind::new("mail").unwrap(), JobId::new(id).unwrap(), body);
            block_on(store.put(vec![put])).unwrap();
        }
        drop(store);
        let (tables, _) = Tables::open(disk, Options::for_memory(64 << 10)).unwrap();
        let kept = |lists| {
            let (mut read_ahead, version) = (ReadAhead::default(), tables.version());
            let list =
                TableList { version: &version, kind: 0, list: List::Pending(Default::default()) };
            read_ahead.fill(list, lists, |_| false).unwrap();
            let jobs = read_ahead.jobs.values();
            let bodies =
                jobs.flat_map(|(_, record)| record).map(|record| record.version.content.body.len());
            (read_ahead.jobs.len(), bodies.sum::<usize>())
        };
        assert_eq!(kept(1), (3, 300 << 10));
        assert_eq!(kept(400), (2, 100 << 10), "160 KiB are the share of a list");
        assert_eq!(kept(20_000), (1, 0));
    }
}
