//! Encodes keys so that their bytes sort in the order of the jobs.
//!
//! ```text
//!   due:  kind u32 | list u8 | at u64 | seq u64     big-endian, 21 bytes
//!   ids:  kind u32 | id                             value: list u8, then at, seq, flush as varints
//! ```

use crate::bytes::{put_number, varint};
use requeue_jobs::limits::MAX_ID_LEN;

/// Bytes of a key of the due tree.
pub(crate) const DUE_KEY: usize = 21;

/// The first part of a key of the due tree: kind and list.
pub(super) type Prefix = [u8; 5];

/// The second part of a key of the due tree: the order within a prefix.
pub(super) type Order = [u8; 16];

/// The position of a job: its list, its time, and the order among jobs with the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ListPosition {
    pub(crate) list: u8,
    pub(crate) at: u64,
    pub(crate) seq: u64,
}

impl ListPosition {
    pub(super) fn in_flush(self, flush: u64) -> JobLocation {
        JobLocation { list: self.list, at: self.at, seq: self.seq, flush }
    }
}

/// The position of a job, and the flush that wrote it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobLocation {
    pub(crate) list: u8,
    pub(crate) at: u64,
    pub(crate) seq: u64,
    pub(crate) flush: u64,
}

impl JobLocation {
    pub(crate) fn position(&self) -> ListPosition {
        ListPosition { list: self.list, at: self.at, seq: self.seq }
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.list);
        for number in [self.at, self.seq, self.flush] {
            put_number(bytes, number);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<JobLocation> {
        let (&list, _) = bytes.split_first()?;
        let mut at = 1;
        let mut next = || varint(bytes, &mut at);
        let location = JobLocation { list, at: next()?, seq: next()?, flush: next()? };
        (at == bytes.len()).then_some(location)
    }
}

pub(super) fn prefix(kind: u32, list: u8) -> Prefix {
    let mut prefix = [list; 5];
    prefix[..4].copy_from_slice(&kind.to_be_bytes());
    prefix
}

pub(super) fn order(at: u64, seq: u64) -> Order {
    (u128::from(at) << 64 | u128::from(seq)).to_be_bytes()
}

pub(super) fn due_key(prefix: Prefix, order: Order) -> [u8; DUE_KEY] {
    let mut key = [0; DUE_KEY];
    key[..5].copy_from_slice(&prefix);
    key[5..].copy_from_slice(&order);
    key
}

/// The prefix and order of a key of the due tree; `None` if the key is invalid.
pub(super) fn split(key: &[u8]) -> Option<(Prefix, Order)> {
    Some((*key.first_chunk()?, key.get(5..)?.try_into().ok()?))
}

/// The time and seq of an order.
pub(super) fn at_and_seq(order: Order) -> (u64, u64) {
    let number = u128::from_be_bytes(order);
    ((number >> 64) as u64, number as u64)
}

/// A key of the ids tree, on the stack.
pub(super) struct IdKey {
    bytes: [u8; 4 + MAX_ID_LEN],
    len: usize,
}

impl IdKey {
    /// Returns `None` if the id is too long, and therefore in no table.
    pub(super) fn new(kind: u32, id: &str) -> Option<IdKey> {
        let mut key = IdKey { bytes: [0; 4 + MAX_ID_LEN], len: 4 + id.len() };
        key.bytes[..4].copy_from_slice(&kind.to_be_bytes());
        key.bytes.get_mut(4..key.len)?.copy_from_slice(id.as_bytes());
        Some(key)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_keys_sort_by_kind_list_time_and_turn() {
        let key = |kind, list, at, seq| due_key(prefix(kind, list), order(at, seq));
        let sorted = [key(1, 0, 9, 9), key(1, 1, 0, 0), key(1, 1, 0, 256), key(1, 1, 1, 0)];
        assert!(sorted.is_sorted());
        assert!(key(1, 2, u64::MAX, u64::MAX) < key(256, 0, 0, 0));
        let (_, order) = split(&key(7, 1, 300, 77)).expect("a due key");
        assert_eq!(at_and_seq(order), (300, 77));
    }

    #[test]
    fn a_spot_comes_back_as_it_was() {
        let location = JobLocation { list: 2, at: 1_700_000_000_000, seq: u64::MAX, flush: 3 };
        let mut bytes = Vec::new();
        location.encode(&mut bytes);
        assert_eq!(JobLocation::decode(&bytes), Some(location));
        assert_eq!(JobLocation::decode(&bytes[..bytes.len() - 1]), None);
        bytes.push(0);
        assert_eq!(JobLocation::decode(&bytes), None);
    }
}
