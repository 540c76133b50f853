//! How many jobs of a kind are ready, without a table being read under the lock of the state.
//!
//! Each kind keeps the number of its pending jobs up to some key. Puts, claims and changes update
//! that number. When someone asks for the ready jobs, only those are counted that have become due
//! since the last time:
//!
//! ```text
//!   pending jobs, by key    |==== counted ====|-- due since then --|.... not due yet ....
//!                                          through                now
//! ```
//!
//! These jobs are in memory and in tables. Keys in tables are read without the lock, a few at a
//! time; then, with the lock, those are counted that no job in memory hides. If a flush has changed
//! the tables meanwhile, they are read again.

use crate::bytes::{Bytes, Malformed};
use crate::codec;
use crate::due_buckets::ListKey;
use crate::error::DiskError;
use crate::tables::Version;
use requeue_jobs::rules::List;
use requeue_jobs::{JobId, Timestamp};
use std::sync::Arc;

/// How many jobs of a layer, or of the tables, are counted under the lock at a time: as many as an
/// operation looks at, so that the writer does not wait longer than for itself.
pub(crate) const STEP: usize = 512;

/// The number of pending jobs of a kind and priority up to a key.
#[derive(Default)]
pub(crate) struct DueCount {
    /// Invariant: the number of pending jobs, in memory or in tables, with a key of at most
    /// `through`.
    pub(crate) jobs: u64,
    pub(crate) through: ListKey,
    /// Invariant: no job in the tables that the memory does not hide has a key after `through` and
    /// before this.
    pub(crate) next_in_tables: ListKey,
    /// The first pending job in the tables that the memory does not hide, if it was looked up.
    pub(crate) first_in_tables: Option<ListKey>,
    /// Invariant: no job in the tables that the memory does not hide has a key of at most this.
    pub(crate) none_in_tables: ListKey,
}

impl DueCount {
    /// Whether the job at this key is one of those that are counted.
    pub(crate) fn includes(&self, at: ListKey) -> bool {
        at <= self.through
    }
}

/// What is known of the ready jobs of a kind.
pub(crate) enum ReadyStep {
    /// Their number, and the due time of the oldest.
    Done(u64, Option<Timestamp>),
    /// There are more to count, in memory.
    Again,
    /// These keys have to be read first, without the lock.
    Read(KeysToRead),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFor {
    Counting,
    Oldest,
}

/// The jobs of a list in the tables after the key `after`. There is none before `from`.
pub(crate) struct KeysToRead {
    pub(crate) version: Arc<Version>,
    pub(crate) kind: u32,
    pub(crate) list: List,
    pub(crate) reason: ReadFor,
    pub(crate) after: ListKey,
    pub(crate) from: ListKey,
}

/// Pending jobs in the tables that are due, and were read without the lock.
pub(crate) struct TableKeys {
    flushes: u64,
    pub(crate) list: List,
    pub(crate) reason: ReadFor,
    /// `keys` has all jobs with a key after this …
    pub(crate) after: ListKey,
    /// … up to this.
    pub(crate) through: ListKey,
    pub(crate) keys: Vec<(ListKey, JobId)>,
    /// No job in the tables has a key between `through` and this.
    pub(crate) next: ListKey,
}

impl KeysToRead {
    /// Reads the next few jobs that are due.
    pub(crate) fn read(self, now: Timestamp) -> Result<TableKeys, DiskError> {
        let KeysToRead { version, kind, list, reason, after, from } = self;
        let from = from.max((after.0, after.1.saturating_add(1)));
        let mut scan = version.scan(kind, list.index() as u8, from);
        let end = (now.as_millis(), u64::MAX);
        let (mut keys, mut through, mut next) = (Vec::new(), end, (u64::MAX, u64::MAX));
        while let Some((at, value)) = scan.next()? {
            if at > end {
                next = at;
                break;
            }
            let id = codec::id(&mut Bytes::new(value));
            let id = id.map_err(|Malformed(what)| scan.damage(what))?;
            keys.push((at, id));
            if keys.len() == STEP {
                (through, next) = (at, at);
                break;
            }
        }
        Ok(TableKeys { flushes: version.next_flush, list, reason, after, through, keys, next })
    }
}

impl TableKeys {
    /// Whether this version has the same jobs as the one that was read: merges do not change that.
    pub(crate) fn is_of(&self, version: &Version) -> bool {
        self.flushes == version.next_flush
    }
}

/// The key before this one.
pub(crate) fn before((at, seq): ListKey) -> ListKey {
    match seq.checked_sub(1) {
        Some(seq) => (at, seq),
        None => (at.saturating_sub(1), if at == 0 { 0 } else { u64::MAX }),
    }
}
