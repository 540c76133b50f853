//! Sorted tables: the jobs that are not in memory.
//!
//! ```text
//!             flush                       merge
//!   memory ----------> a run of each tree -----> fewer, larger runs
//!                  due: kind, list, at, seq -> job
//!                  ids: kind, id -> list, at, seq, flush
//! ```
//!
//! Every flush and every merge makes a new [`Version`] and writes it as a manifest. The last two
//! manifests can always be opened. Tables that only older manifests use are removed, and groups of
//! the log that only older manifests lack are [released](Tables::released_through), after a newer
//! manifest is synced. So a table that is incomplete after a crash costs nothing but time: the
//! previous manifest and the log contain the same data.

mod block;
mod compact;
pub(crate) mod files;
mod filter;
mod flush;
mod index;
pub(crate) mod keys;
mod ledger;
mod merge;
mod open;
mod pick;
pub(crate) mod range_tombstones;
mod reverse;
pub(crate) mod run;
mod salvage;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod verify;
mod version;
mod writer;

pub(crate) use compact::MergeOptions;
pub(crate) use flush::{Batch, Flush};
pub(crate) use keys::{JobLocation, ListPosition};
pub(crate) use merge::Source;
pub(crate) use salvage::{FoundId, FoundJob, LostPart, SalvagedTables, TableCache};
pub(crate) use verify::{Checked, Entry, check_copy};
pub(crate) use version::{Scan, Version};
pub(crate) use writer::Tree;

use crate::error::DiskError;
use crate::log::LogEnd;
use ledger::Ledger;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use writer::Maker;

/// The tables of a directory.
///
/// Any thread may read. One thread may flush, and one may merge, at the same time.
pub(crate) struct Tables {
    maker: Maker,
    current: RwLock<Arc<Version>>,
    /// Held while a manifest is written, so that versions change one after the other.
    ledger: Mutex<Ledger>,
    /// See [`Ledger::released_through`]. The writer reads it, and must not wait for a manifest.
    released_through: AtomicU64,
    /// Held while runs are merged.
    merging: Mutex<()>,
}

/// Sizes and limits.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Bytes of a block of the due tree: jobs are read in order.
    pub(crate) due_block: usize,
    /// Bytes of a block of the ids tree: ids are looked up one by one.
    pub(crate) ids_block: usize,
    /// The size at which a merge begins the next table of a run. Smaller tables free the space of
    /// consumed and merged jobs earlier, but the index of each table takes memory.
    pub(crate) file: u64,
    /// The same for a flush, of whose tables there are never many.
    pub(crate) flush_file: u64,
    /// The number of runs of the due tree up to which nothing is merged: a scan reads from each.
    pub(crate) due_runs: usize,
    /// The same for the ids tree: a search for an id checks the filter of each run.
    pub(crate) ids_runs: usize,
    /// How many bytes of deleted entries the due tree may have, besides 3 in 10, before all runs
    /// are merged.
    pub(crate) due_dead: u64,
    /// The same for the ids tree.
    pub(crate) ids_dead: u64,
    /// Bytes of merged tables that may stay until the next flush.
    pub(crate) linger: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            due_block: 16 << 10,
            ids_block: 4 << 10,
            file: 64 << 20,
            flush_file: 4 << 20,
            due_runs: 16,
            ids_runs: 10,
            due_dead: 48 << 20,
            ids_dead: 16 << 20,
            linger: 32 << 20,
        }
    }
}

impl Options {
    /// For a store that flushes when so many bytes are in memory: a small memory limit makes all
    /// other sizes small too.
    pub(crate) fn for_memory(memory: usize) -> Self {
        let (options, bytes) = (Options::default(), memory as u64);
        Options {
            due_block: options.due_block.min(memory / 8),
            ids_block: options.ids_block.min(memory / 16),
            file: options.file.min(bytes),
            flush_file: options.flush_file.min(bytes / 2),
            due_dead: options.due_dead.min(bytes),
            ids_dead: options.ids_dead.min(bytes / 2),
            linger: options.linger.min(bytes / 2),
            ..options
        }
    }

    fn runs(&self, tree: Tree) -> usize {
        match tree {
            Tree::Due => self.due_runs,
            Tree::Ids => self.ids_runs,
        }
    }

    fn dead(&self, tree: Tree) -> u64 {
        match tree {
            Tree::Due => self.due_dead,
            Tree::Ids => self.ids_dead,
        }
    }
}

impl Tables {
    /// The current version.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last group of the log that neither of the two newest manifests needs.
    pub(crate) fn released_through(&self) -> u64 {
        self.released_through.load(Ordering::Relaxed)
    }

    /// How many runs there are beyond the limit, in the tree with more of them. A few are normal
    /// during a merge; if the number grows, merging is too slow.
    pub(crate) fn lag(&self) -> usize {
        let version = self.version();
        let lag = |tree| {
            let waiting = version.runs(tree).iter().filter(|run| run.from.is_empty()).count();
            waiting.saturating_sub(self.maker.options.runs(tree))
        };
        lag(Tree::Due).max(lag(Tree::Ids))
    }

    /// Removes the files that nothing needs. A crash may have left some behind; to be called only
    /// after the log is open, because until then they may help to find out what went wrong. And a
    /// version that is gone since the last manifest may have been the last that needed some.
    pub(crate) fn clean(&self) {
        self.ledger().sweep(&self.maker);
    }

    /// Writes the version that `edit` makes of the current one as a manifest, syncs it, and makes
    /// it the current version.
    ///
    /// After an error the version is unchanged. The new manifest may or may not be found after a
    /// crash; its tables contain nothing that the log does not.
    fn commit(&self, edit: impl FnOnce(&Version) -> Version) -> Result<(), DiskError> {
        let mut ledger = self.ledger();
        let version = edit(&self.version());
        let next_file = self.maker.next.load(Ordering::Relaxed);
        ledger.write(&*self.maker.disk, &version, next_file)?;
        self.released_through.store(ledger.released_through(), Ordering::Relaxed);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
        ledger.sweep(&self.maker);
        Ok(())
    }

    /// Records the end of a log that was closed, in a manifest that replaces the newest. Nothing is
    /// written if it is recorded already, or if the tables contain the whole log.
    ///
    /// No flush and no merge may be running. After an error the end is not recorded, and nothing
    /// else has changed.
    pub(crate) fn record(&self, log_end: LogEnd) -> Result<(), DiskError> {
        let mut ledger = self.ledger();
        let version = self.version();
        if log_end.group <= version.log_end.group.max(version.flushed_through) {
            return Ok(());
        }
        let version = Version { log_end, ..Version::clone(&version) };
        let next_file = self.maker.next.load(Ordering::Relaxed);
        let written = ledger.replace(&*self.maker.disk, &version, next_file);
        if written.is_ok() {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
        }
        ledger.sweep(&self.maker);
        written
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
