//! Iterates over several runs as if they were one: for each key, the newest entry.

use super::run::RunCursor;
use crate::error::DiskError;

pub(super) struct Merge {
    /// The newest first.
    sources: Vec<RunCursor>,
    /// Sources that are not at their end, as a binary heap: the smallest key on top, and among
    /// equal keys the newest source.
    heap: Vec<usize>,
    /// The key of the last entry that was returned.
    last: Option<Vec<u8>>,
    /// Whether the source on top is still at that entry.
    given: bool,
    /// The iteration ends before this key; empty for no end.
    end: Vec<u8>,
}

impl Merge {
    /// `sources` has the newest first. The iteration ends before the key `end`, unless that is
    /// empty.
    pub(super) fn new(sources: Vec<RunCursor>, end: Vec<u8>) -> Merge {
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
    pub(super) fn source(&self) -> &RunCursor {
        debug_assert!(self.given);
        &self.sources[self.heap[0]]
    }

    /// Moves the source of the current entry to `key`.
    pub(super) fn skip(&mut self, key: &[u8]) {
        debug_assert!(self.given);
        self.given = false;
        self.sources[self.heap[0]].seek(key);
        self.settle();
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
        (self.sources[a].key(), a) < (self.sources[b].key(), b)
    }
}
