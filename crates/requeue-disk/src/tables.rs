//! Sorted tables: what left the memory.
//!
//! ```text
//!                  flush                       merge
//!   the overlay ----------> a run of each tree -----> fewer, larger runs
//!                  due: kind, list, at, seq -> job
//!                  ids: kind, id -> list, at, seq, flush
//! ```
//!
//! Every change of what there is makes a new [`Version`] and is written as a manifest. The last
//! two manifests can always be opened: tables that only older ones use are removed, and the log
//! groups that only older ones lack are [released](Tables::released_through), once a newer
//! manifest is safe. So a table that a crash tore costs nothing but time: the manifest before it
//! and the log still have what it held.

mod block;
mod compact;
mod filter;
pub(crate) mod floors;
mod flush;
mod index;
pub(crate) mod keys;
mod ledger;
mod merge;
mod open;
mod pick;
pub(crate) mod run;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod verify;
mod version;
mod writer;

pub(crate) use flush::{Batch, Flush};
pub(crate) use keys::{Place, Spot};
pub(crate) use verify::{Checked, Entry, check_copy};
pub(crate) use version::Version;
pub(crate) use writer::Tree;

use crate::error::DiskError;
use ledger::Ledger;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use writer::Maker;

/// The tables of a directory.
///
/// Any thread may read. One flushes at a time, and one merges at a time, each beside the other.
pub(crate) struct Tables {
    maker: Maker,
    current: RwLock<Arc<Version>>,
    /// Held while a manifest is written: changes of the version come one after the other.
    ledger: Mutex<Ledger>,
    /// Held while runs are merged.
    merging: Mutex<()>,
}

/// How large things get.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Bytes of a block of the due tree: jobs are read in order.
    pub(crate) due_block: usize,
    /// Bytes of a block of the ids tree: ids are looked up one by one.
    pub(crate) ids_block: usize,
    /// Bytes of a table that runs are merged into, beyond which a run goes on in the next: a
    /// consumed front is freed file by file, and so is what was merged. Each is an open file.
    pub(crate) file: u64,
    /// The same for tables that are flushed, of which there are never many.
    pub(crate) flush_file: u64,
    /// Runs of the due tree that are left alone: a scan reads from each.
    pub(crate) due_runs: usize,
    /// Runs of the ids tree that are left alone: a look for an id asks the filter of each.
    pub(crate) ids_runs: usize,
    /// Dead bytes of the due tree that are left alone besides 3 in 10, however little is alive.
    pub(crate) due_dead: u64,
    /// The same of the ids tree.
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
    /// For a store that flushes when so many bytes are in memory: with little of it, all else
    /// is small too.
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
    /// What the tables hold now.
    pub(crate) fn version(&self) -> Arc<Version> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last group of the log that no manifest needs that could still be opened.
    pub(crate) fn released_through(&self) -> u64 {
        self.ledger().released_through()
    }

    /// How many runs there are beyond those that are left alone, in the tree with more of them.
    /// A few are flushed while others are merged; where it grows, merging is too slow.
    pub(crate) fn lag(&self) -> usize {
        let version = self.version();
        let lag = |tree| {
            let waiting = version.runs(tree).iter().filter(|run| run.from.is_empty()).count();
            waiting.saturating_sub(self.maker.options.runs(tree))
        };
        lag(Tree::Due).max(lag(Tree::Ids))
    }

    /// Removes the files that a crash left behind and that nothing needs. Call it once the log
    /// is open too: until then they may tell what went wrong.
    pub(crate) fn clean(&self) {
        self.ledger().sweep(&*self.maker.disk);
    }

    /// Makes what `edit` makes of the current version the current one, and safe.
    ///
    /// After an error the version is as it was. What was written may come up again after a crash,
    /// or not: its tables hold nothing that the log does not.
    fn commit(&self, edit: impl FnOnce(&Version) -> Version) -> Result<(), DiskError> {
        let mut ledger = self.ledger();
        let version = edit(&self.version());
        let next_file = self.maker.next.load(Ordering::Relaxed);
        ledger.write(&*self.maker.disk, &version, next_file)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
        ledger.sweep(&*self.maker.disk);
        Ok(())
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
