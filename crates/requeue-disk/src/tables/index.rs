//! The index of a table: the position and the last key of each block.
//!
//! ```text
//!   for each block: key length varint | last key | block length varint
//! ```

use crate::bytes::{put_number, varint};
use std::ops::Range;

/// Kept in memory for every open table, therefore without an allocation per key.
#[derive(Default)]
pub(super) struct Index {
    /// The last keys of all blocks, concatenated.
    keys: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
    /// Where each block ends, including its checksum; the first begins at 0.
    offsets: Vec<u64>,
}

impl Index {
    /// Adds a block of `length` bytes after the others.
    pub(super) fn push(&mut self, last_key: &[u8], length: u64) {
        self.keys.extend_from_slice(last_key);
        self.ends.push(self.keys.len() as u32);
        self.offsets.push(self.end() + length);
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The last key of a block.
    #[inline]
    pub(super) fn key(&self, block: usize) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block - 1] as usize };
        &self.keys[start..self.ends[block] as usize]
    }

    /// The range of a block in the file, including its checksum.
    pub(super) fn range(&self, block: usize) -> Range<u64> {
        let start = if block == 0 { 0 } else { self.offsets[block - 1] };
        start..self.offsets[block]
    }

    /// Where the last block ends.
    pub(super) fn end(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// The only block that can contain `key`, or the first that contains a greater key; `len` if
    /// there is none.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        for block in 0..self.len() {
            let (key, range) = (self.key(block), self.range(block));
            put_number(bytes, key.len() as u64);
            bytes.extend_from_slice(key);
            put_number(bytes, range.end - range.start);
        }
    }

    /// Returns `None` if the bytes are not an index with keys in ascending order.
    pub(super) fn decode(bytes: &[u8]) -> Option<Index> {
        let (mut index, mut at) = (Index::default(), 0);
        while at < bytes.len() {
            let key_len = usize::try_from(varint(bytes, &mut at)?).ok()?;
            let key = bytes.get(at..at.checked_add(key_len)?)?;
            at += key_len;
            let length = varint(bytes, &mut at)?;
            index.end().checked_add(length)?;
            // `ends` has 32 bits.
            u32::try_from(index.keys.len().checked_add(key_len)?).ok()?;
            if index.len() > 0 && index.key(index.len() - 1) >= key {
                return None;
            }
            index.push(key, length);
        }
        Some(index)
    }

    /// Its size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() + self.ends.capacity() * 4 + self.offsets.capacity() * 8
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.offsets.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_looked_for_in_the_one_block_that_can_hold_it() {
        let mut index = Index::default();
        for key in ["b", "d", "f"] {
            index.push(key.as_bytes(), 10);
        }
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        let index = Index::decode(&bytes).unwrap();
        let found: Vec<_> =
            ["a", "b", "c", "d", "e", "f", "g"].map(|k| index.find(k.as_bytes())).into();
        assert_eq!(found, [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(index.range(1), 10..20);
        assert!(Index::decode(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn blocks_out_of_order_are_no_index() {
        let mut index = Index::default();
        index.push(b"b", 1);
        index.push(b"a", 1);
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        assert!(Index::decode(&bytes).is_none());
    }
}
