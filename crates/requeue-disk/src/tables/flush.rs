//! Writes what left the memory as one run of each tree.

use super::Tables;
use super::floors::Floor;
use super::keys::{self, IdKey, Place, Spot};
use super::run::Run;
use super::version::Version;
use super::writer::{RunWriter, Tree};
use crate::error::DiskError;
use std::sync::Arc;

/// A flush in the making. Dropped before it is committed it leaves nothing behind.
pub(crate) struct Flush<'a> {
    tables: &'a Tables,
    number: u64,
    due: RunWriter,
    ids: RunWriter,
    value: Vec<u8>,
}

/// What comes with the entries of a flush.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// Of these kinds and lists, what earlier flushes wrote below (at, seq) is dead. Where those
    /// jobs' ids lead there too, they need no tombstones either.
    pub(crate) floors: Vec<(u32, u8, (u64, u64))>,
    /// The last group of the log that is in the tables then.
    pub(crate) flushed_through: u64,
    /// How many jobs the tables hold then that are not dead.
    pub(crate) live: u64,
    /// What the store keeps beside the tables.
    pub(crate) blob: Vec<u8>,
}

impl Tables {
    /// Begins a flush. One at a time.
    pub(crate) fn flush(&self) -> Flush<'_> {
        // Whoever looks for an id asks every run: one of one file is asked by its filter alone.
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
    /// The flush's number, which is also that of the [`Spot`]s it writes.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a job, or that there is none any more, at a place. Kinds, and in them places, come
    /// in ascending order. Of every job, [`id`](Flush::id) must be told too, even where its place
    /// is as it was: an id leads to what one flush wrote.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub(crate) fn due(
        &mut self,
        kind: u32,
        place: Place,
        job: Option<&[u8]>,
    ) -> Result<(), DiskError> {
        let key = keys::due_key(keys::prefix(kind, place.list), keys::order(place.at, place.seq));
        self.due.push(&key, job)
    }

    /// Adds where the job of an id is now, which this flush must write too, or that there is
    /// none. Kinds, and in them ids, come in ascending order of their bytes.
    ///
    /// # Panics
    ///
    /// If they do not, or if the id is longer than ids may be.
    pub(crate) fn id(
        &mut self,
        kind: u32,
        id: &str,
        place: Option<Place>,
    ) -> Result<(), DiskError> {
        let key = IdKey::new(kind, id).expect("ids are checked when they are made");
        let value = place.map(|Place { list, at, seq }| {
            self.value.clear();
            Spot { list, at, seq, flush: self.number }.encode(&mut self.value);
            &*self.value
        });
        self.ids.push(key.bytes(), value)
    }

    /// Makes the flush part of the current version, and safe.
    ///
    /// # Panics
    ///
    /// If another flush was committed since this one began.
    pub(crate) fn commit(mut self, batch: Batch) -> Result<(), DiskError> {
        let (due, ids) = (self.due.finish()?, self.ids.finish()?);
        self.tables.commit(|version| {
            assert_eq!(self.number, version.next_flush, "one flush at a time");
            let mut version = Version { next_flush: self.number + 1, ..version.clone() };
            for &(kind, list, (at, seq)) in &batch.floors {
                version.floors.add(Floor {
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
