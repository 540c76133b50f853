//! Writes a frozen layer as one run of each tree.

use super::Tables;
use super::keys::{self, IdKey, JobLocation, ListPosition};
use super::range_tombstones::RangeTombstone;
use super::run::Run;
use super::version::Version;
use super::writer::{RunWriter, Tree};
use crate::error::DiskError;
use std::sync::Arc;

/// A flush that is being written. If it is dropped before it is committed, its files are removed.
pub(crate) struct Flush<'a> {
    tables: &'a Tables,
    number: u64,
    due: RunWriter,
    ids: RunWriter,
    value: Vec<u8>,
}

/// What a flush commits besides its entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// Kind, list and (at, seq): entries below it that earlier flushes wrote are deleted. If the
    /// ids of these jobs refer to such entries, they need no tombstones either.
    pub(crate) range_tombstones: Vec<(u32, u8, (u64, u64))>,
    /// The last group of the log that the tables contain after this flush.
    pub(crate) flushed_through: u64,
    /// How many jobs the tables contain after this flush, without deleted ones.
    pub(crate) live: u64,
    /// Kinds, settings and counters, as bytes for the manifest.
    pub(crate) blob: Vec<u8>,
}

impl Tables {
    /// Begins a flush. There may be one at a time.
    pub(crate) fn flush(&self) -> Flush<'_> {
        // A search for an id checks every run; for a run of one file, the filter alone is enough.
        let file = |tree| match tree {
            Tree::Due => self.maker.options.flush_file,
            Tree::Ids => self.maker.options.file,
        };
        let writer = |tree| RunWriter::new(&self.maker, tree, file(tree));
        Flush {
            tables: self,
            number: self.version().next_flush,
            due: writer(Tree::Due),
            ids: writer(Tree::Ids),
            value: Vec::new(),
        }
    }
}

impl Flush<'_> {
    /// The flush's number, which is also that of the [`JobLocation`]s it writes.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a job, or a tombstone, at a position. Kinds, and positions within a kind, must be in
    /// ascending order. For every job, [`id`](Flush::id) must be called too, even if its position
    /// is unchanged, because the entry of an id refers to one flush.
    ///
    /// Fails if the order is violated.
    pub(crate) fn due(
        &mut self,
        kind: u32,
        position: ListPosition,
        job: Option<&[u8]>,
    ) -> Result<(), DiskError> {
        let key = keys::due_key(
            keys::prefix(kind, position.list),
            keys::order(position.at, position.seq),
        );
        self.due.push(&key, job)
    }

    /// Adds the position of a job, which this flush must contain too, or a tombstone for its id.
    /// Kinds, and ids within a kind, must be in ascending order of their bytes.
    ///
    /// Fails if the order is violated.
    ///
    /// # Panics
    ///
    /// Panics if the id is too long.
    pub(crate) fn id(
        &mut self,
        kind: u32,
        id: &str,
        position: Option<ListPosition>,
    ) -> Result<(), DiskError> {
        let key = IdKey::new(kind, id).expect("ids are checked when they are made");
        let value = position.map(|ListPosition { list, at, seq }| {
            self.value.clear();
            JobLocation { list, at, seq, flush: self.number }.encode(&mut self.value);
            &*self.value
        });
        self.ids.push(key.bytes(), value)
    }

    /// Syncs the flush, and makes it part of the current version.
    ///
    /// # Panics
    ///
    /// Panics if another flush was committed since this one began.
    pub(crate) fn commit(mut self, batch: Batch) -> Result<(), DiskError> {
        let (due, ids) = (self.due.finish()?, self.ids.finish()?);
        self.tables.commit(|version| {
            assert_eq!(self.number, version.next_flush, "there is one flush at a time");
            let mut version = Version { next_flush: self.number + 1, ..version.clone() };
            for &(kind, list, (at, seq)) in &batch.range_tombstones {
                version.range_tombstones.add(RangeTombstone {
                    prefix: keys::prefix(kind, list),
                    below: keys::order(at, seq),
                    upto: self.number - 1,
                });
            }
            let run = |tables| {
                let (lo, hi) = (self.number, self.number);
                Arc::new(Run { lo, hi, generation: 0, clean: hi - 1, from: Vec::new(), tables })
            };
            version.due.extend((!due.is_empty()).then(|| run(due)));
            version.ids.extend((!ids.is_empty()).then(|| run(ids)));
            version.flushed_through = batch.flushed_through;
            version.live = batch.live;
            version.blob = batch.blob.into();
            version.trim();
            version
        })?;
        self.due.keep();
        self.ids.keep();
        Ok(())
    }
}
