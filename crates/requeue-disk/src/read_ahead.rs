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
/// The limit for all kinds together: if there are many, each reads less.
const ALL_BYTES: usize = 64 << 20;

const END: ListKey = (u64::MAX, u64::MAX);

#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Invariant: all jobs of the list in the tables that have no entry in memory, from
    /// [`consumed_below`](Self::consumed_below) up to `next`.
    jobs: BTreeMap<ListKey, (JobId, Box<Record>)>,
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
    /// Reads the next jobs if none is left. The limit depends on the number of kinds. Jobs for
    /// which `here` holds, because they are in memory, are skipped.
    pub(crate) fn fill(
        &mut self,
        TableList { version, kind, list }: TableList<'_>,
        kinds: usize,
        here: impl Fn(&JobId) -> bool,
    ) -> Result<(), DiskError> {
        if self.is_read() {
            return Ok(());
        }
        let mut cursor = version.scan(kind, list as u8, self.next);
        let mut bytes = 0;
        let max_bytes = MAX_BYTES.min(ALL_BYTES / kinds.max(1));
        while self.jobs.len() < MAX_JOBS && bytes < max_bytes {
            let Some((at, value)) = cursor.next()? else {
                self.next = END;
                return Ok(());
            };
            let len = value.len();
            match codec::job_unless(value, &here) {
                Ok(None) => {}
                Ok(Some(job)) => {
                    bytes += len;
                    self.jobs.insert(at, job);
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

    /// Takes a job out, if it was read.
    pub(crate) fn take(&mut self, at: ListKey) -> Option<Box<Record>> {
        self.jobs.remove(&at).map(|(_, record)| record)
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
