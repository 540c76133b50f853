//! What is next in the tables, read ahead a piece at a time.
//!
//! However many jobs there are, a window holds few of them. It goes on inside one millisecond
//! where it left off, so a million that are due at once do not have to fit.

use crate::bytes::Malformed;
use crate::codec;
use crate::due_buckets::At;
use crate::error::DiskError;
use crate::tables::Version;
use requeue_jobs::JobId;
use requeue_jobs::rules::{List, Record};
use std::collections::BTreeMap;

/// So many jobs are read at once …
const MAX_JOBS: usize = 512;
/// … or so many bytes of them: with bodies of the largest size, one job.
const MAX_BYTES: usize = 256 << 10;
/// Of many kinds each reads less, for all windows together are to be no larger than this.
const ALL_BYTES: usize = 64 << 20;

const END: At = (u64::MAX, u64::MAX);

#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Invariant: all of the list in the tables that no layer above knows, from the floor up to
    /// `next`.
    jobs: BTreeMap<At, (JobId, Box<Record>)>,
    /// Where to read on.
    next: At,
}

/// What a window is of.
pub(crate) struct Piece<'a> {
    pub(crate) version: &'a Version,
    pub(crate) kind: u32,
    pub(crate) list: List,
}

impl ReadAhead {
    /// Reads on, if nothing is left, as much as one of so many kinds may. Jobs that are `here`,
    /// in memory, are passed over.
    pub(crate) fn fill(
        &mut self,
        Piece { version, kind, list }: Piece<'_>,
        kinds: usize,
        here: impl Fn(&JobId) -> bool,
    ) -> Result<(), DiskError> {
        if !self.jobs.is_empty() || self.next == END {
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
            self.next = (at.0, at.1 + 1);
        }
        Ok(())
    }

    pub(crate) fn first(&self) -> Option<(At, &JobId)> {
        self.jobs.first_key_value().map(|(at, (id, _))| (*at, id))
    }

    /// Takes a job out, if it was read ahead.
    pub(crate) fn take(&mut self, at: At) -> Option<Box<Record>> {
        self.jobs.remove(&at).map(|(_, record)| record)
    }

    /// Nothing that is still there is below this.
    pub(crate) fn floor(&self) -> At {
        self.jobs.first_key_value().map_or(self.next, |(at, _)| *at)
    }

    /// There may be something new from here on.
    pub(crate) fn back_to(&mut self, at: At) {
        if at < self.next {
            self.jobs.split_off(&at);
            self.next = at;
        }
    }
}
