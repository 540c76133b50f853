//! Iterates over several runs as if they were one: for each key, the newest entry.

use super::run::RunCursor;
use crate::error::DiskError;

/// A run that is merged with others.
pub(crate) trait Source {
    /// Whether the largest key comes first.
    const DESCENDING: bool = false;

    /// The key of the entry; before the entry is loaded, a bound of it, which comes no later.
    fn key(&self) -> &[u8];

    /// The value of the entry; `None` for a tombstone.
    fn value(&self) -> Option<&[u8]>;

    /// Whether the current entry is read.
    fn is_loaded(&self) -> bool;

    fn is_at_end(&self) -> bool;

    /// Reads the current entry.
    fn load(&mut self) -> Result<(), DiskError>;

    /// Moves to the next entry, which need not be loaded.
    fn advance(&mut self) -> Result<(), DiskError>;

    /// An error that names the file and the offset of the entry.
    fn damage(&self, what: &str) -> DiskError;
}

pub(crate) struct Merge<S> {
    /// The newest first.
    sources: Vec<S>,
    /// Sources that are not at their end, as a binary heap: the first key on top, and among equal
    /// keys the newest source.
    heap: Vec<usize>,
    /// The key of the last entry that was returned.
    last: Option<Vec<u8>>,
    /// Whether the source on top is still at that entry.
    given: bool,
    /// The iteration ends before this key; empty for no end.
    end: Vec<u8>,
}

impl<S: Source> Merge<S> {
    /// `sources` has the newest first. The iteration ends before the key `end`, unless that is
    /// empty.
    pub(super) fn new(sources: Vec<S>, end: Vec<u8>) -> Self {
        let heap = (0..sources.len()).filter(|&i| !sources[i].is_at_end()).collect();
        let mut merge = Merge { sources, heap, last: None, given: false, end };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift(at);
        }
        merge
    }

    /// Moves to the next key. Returns `false` at the end.
    pub(super) fn next(&mut self) -> Result<bool, DiskError> {
        loop {
            let Some(&top) = self.heap.first() else { return Ok(false) };
            let source = &mut self.sources[top];
            if std::mem::take(&mut self.given) {
                source.advance()?;
            } else if !self.end.is_empty() && source.key() >= &*self.end {
                return Ok(false);
            } else if !source.is_loaded() {
                source.load()?;
            } else if self.last.as_deref() == Some(source.key()) {
                source.advance()?;
            } else {
                let last = self.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(source.key());
                self.given = true;
                return Ok(true);
            }
            self.settle();
        }
    }

    /// The source of the current entry.
    #[inline]
    pub(super) fn source(&self) -> &S {
        debug_assert!(self.given);
        &self.sources[self.heap[0]]
    }

    /// Restores the heap after the source on top moved.
    #[inline]
    fn settle(&mut self) {
        if self.sources[self.heap[0]].is_at_end() {
            self.heap.swap_remove(0);
        }
        self.sift(0);
    }

    fn sift(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let least =
                if right < self.heap.len() && self.less(right, left) { right } else { left };
            if !self.less(least, at) {
                return;
            }
            self.heap.swap(least, at);
            at = least;
        }
    }

    #[inline]
    fn less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        let (key, other) = (self.sources[a].key(), self.sources[b].key());
        if S::DESCENDING { (other, a) < (key, b) } else { (key, a) < (other, b) }
    }
}

impl Merge<RunCursor> {
    /// Moves the source of the current entry to `key`.
    pub(super) fn skip(&mut self, key: &[u8]) {
        debug_assert!(self.given);
        self.given = false;
        self.sources[self.heap[0]].seek(key);
        self.settle();
    }
}
