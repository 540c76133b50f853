//! Keys, found by hash, or by slot once found.
//!
//! Each key is stored in a numbered slot, so that everything else (the ready order, a timer, a
//! guard's token) refers to it by four bytes and finds it without hashing. The table stores the
//! hash beside the slot number: a lookup compares hashes before it reads a key, and growing the
//! table reads no key at all.

use crate::slot_index::SlotIndex;
use foldhash::fast::RandomState;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

/// No slot. All slot numbers are smaller.
pub(crate) const NIL: u32 = u32::MAX;

/// The capacity that is kept when the last key leaves. More is freed, so that a burst of keys
/// does not occupy memory forever. Growing again costs less per key than adding the key.
pub(crate) const KEPT_CAPACITY: usize = 4096;

/// From this many slots on, the capacity grows by a sixteenth instead of doubling. Otherwise
/// half of a large queue's memory would be unused. The allocator moves memory of that size by
/// remapping instead of copying.
const DOUBLE_UP_TO: usize = 1 << 17;

/// Hashes the keys of a queue. Seeded per process, so that hashes are not predictable from
/// outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hasher(RandomState);

impl Hasher {
    #[inline]
    pub(crate) fn hash<B: ?Sized + Hash>(&self, key: &B) -> u32 {
        let hash = self.0.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread searched a table, or changed it. Tests count it.
    pub(crate) static LOOKUPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline(always)]
fn count_lookup() {
    #[cfg(test)]
    LOOKUPS.set(LOOKUPS.get() + 1);
}

/// Keys in slots, each with a value.
pub(crate) struct Keys<K, V> {
    /// Invariant: exactly the slots whose `key` is present.
    table: SlotIndex,
    slots: Vec<Slot<K, V>>,
    /// The first free slot, or `NIL`. Free slots have no key and are linked by `link`.
    free: u32,
    free_len: usize,
}

struct Slot<K, V> {
    key: Option<K>,
    /// The hash of the key. In a free slot: the next free slot.
    link: u32,
    value: V,
}

impl<K, V> Default for Keys<K, V> {
    fn default() -> Self {
        Keys { table: SlotIndex::default(), slots: Vec::new(), free: NIL, free_len: 0 }
    }
}

impl<K, V> Keys<K, V> {
    #[inline(always)]
    pub(crate) fn find<B>(&self, hash: u32, key: &B) -> Option<u32>
    where
        K: Borrow<B>,
        B: ?Sized + Eq,
    {
        count_lookup();
        let slots = &self.slots;
        let is_key =
            |slot: u32| slots[slot as usize].key.as_ref().is_some_and(|k| k.borrow() == key);
        self.table.find(hash, is_key)
    }

    /// Stores a key that is not present yet.
    ///
    /// # Panics
    ///
    /// Panics if there are 2³² − 1 slots: several hundred gigabytes of keys.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u32, key: K, value: V) -> u32 {
        let entry = Slot { key: Some(key), link: hash, value };
        let slot = self.free;
        let slot = match self.slots.get_mut(slot as usize) {
            Some(free) => {
                self.free = free.link;
                self.free_len -= 1;
                *free = entry;
                slot
            }
            None => self.grow(entry),
        };
        count_lookup();
        self.table.insert(hash, slot);
        slot
    }

    #[cold]
    fn grow(&mut self, entry: Slot<K, V>) -> u32 {
        let slot = u32::try_from(self.slots.len()).unwrap_or(NIL);
        assert!(slot != NIL, "a queue holds at most {NIL} keys");
        if self.slots.len() == self.slots.capacity() && self.slots.len() >= DOUBLE_UP_TO {
            self.slots.reserve_exact(self.slots.len() / 16);
        }
        self.slots.push(entry);
        slot
    }

    /// Returns the key in `slot`, or `None` if the slot is empty.
    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Option<&K> {
        self.slots.get(slot as usize)?.key.as_ref()
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&V> {
        self.slots.get(slot as usize).map(|s| &s.value)
    }

    /// Returns key and value in `slot`, or `None` if the slot is empty.
    #[inline]
    pub(crate) fn entry(&mut self, slot: u32) -> Option<(&K, &mut V)> {
        let Slot { key, value, .. } = self.slots.get_mut(slot as usize)?;
        Some((key.as_ref()?, value))
    }

    /// Removes the key from `slot` and frees the slot.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<K> {
        let key = self.detach(slot)?;
        self.release(slot);
        Some(key)
    }

    /// Removes the key from `slot`. The slot is not reused before [`release`](Self::release).
    #[inline(always)]
    pub(crate) fn detach(&mut self, slot: u32) -> Option<K> {
        let entry = &mut self.slots[slot as usize];
        let key = entry.key.take()?;
        count_lookup();
        let found = self.table.remove(entry.link, slot);
        debug_assert!(found, "a present key is in the table");
        Some(key)
    }

    /// Frees a slot whose key was detached.
    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.key.is_none());
        entry.link = self.free;
        self.free = slot;
        self.free_len += 1;
        if self.free_len > KEPT_CAPACITY && self.free_len == self.slots.len() {
            self.reset();
        }
    }

    #[cold]
    fn reset(&mut self) {
        *self = Keys::default();
    }

    /// Returns every slot that has a key, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &K, &V)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(s, slot)| Some((slot, s.key.as_ref()?, &s.value)))
    }

    /// Checks that table, slots and free list agree.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let present = self.slots.iter().filter(|s| s.key.is_some()).count();
        assert_eq!(present, self.table.entries().count());
        for (hash, slot) in self.table.entries() {
            assert!(self.slots[slot as usize].key.is_some());
            assert_eq!(self.slots[slot as usize].link, hash);
        }
        let (mut free, mut len) = (self.free, 0);
        while free != NIL {
            assert!(self.slots[free as usize].key.is_none());
            (free, len) = (self.slots[free as usize].link, len + 1);
            assert!(len <= self.free_len, "a slot is free once");
        }
        assert_eq!(len, self.free_len);
    }
}

impl<K, V> Index<u32> for Keys<K, V> {
    type Output = V;

    #[inline]
    fn index(&self, slot: u32) -> &V {
        &self.slots[slot as usize].value
    }
}

impl<K, V> IndexMut<u32> for Keys<K, V> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut V {
        &mut self.slots[slot as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_borrowed_form_until_removed() {
        let hasher = Hasher::default();
        let mut keys = Keys::<String, u8>::default();
        let slot = keys.insert(hasher.hash("a"), "a".to_owned(), 7);
        assert_eq!(keys.find(hasher.hash("a"), "a"), Some(slot));
        assert_eq!(keys[slot], 7);
        assert_eq!(keys.remove(slot), Some("a".to_owned()));
        assert_eq!(keys.find(hasher.hash("a"), "a"), None);
        assert_eq!(keys.remove(slot), None);
        keys.check();
    }

    #[test]
    fn keys_with_equal_hashes_are_distinguished() {
        let mut keys = Keys::<&str, ()>::default();
        let (a, b) = (keys.insert(1, "a", ()), keys.insert(1, "b", ()));
        assert_eq!(keys.find(1, "a"), Some(a));
        assert_eq!(keys.remove(a), Some("a"));
        assert_eq!(keys.find(1, "b"), Some(b));
        assert_eq!(keys.find(1, "a"), None);
        keys.check();
    }

    #[test]
    fn a_detached_slot_is_not_used_again_before_its_release() {
        let mut keys = Keys::<&str, ()>::default();
        let a = keys.insert(1, "a", ());
        assert_eq!(keys.detach(a), Some("a"));
        assert_eq!(keys.find(1, "a"), None);
        assert_ne!(keys.insert(2, "b", ()), a);
        keys.release(a);
        assert_eq!(keys.insert(3, "c", ()), a);
        keys.check();
    }

    #[test]
    fn a_large_queue_keeps_little_more_than_it_needs() {
        let mut keys = Keys::<u32, ()>::default();
        for key in 0..300_000 {
            keys.insert(key, key, ());
        }
        let room = keys.slots.capacity() as f64 / keys.slots.len() as f64;
        assert!(room <= 1.07, "{room}");
    }

    #[test]
    fn memory_of_a_storm_is_given_back_when_the_last_key_leaves() {
        let mut keys = Keys::<u32, ()>::default();
        let slots: Vec<u32> = (0..100_000).map(|k| keys.insert(k, k, ())).collect();
        for slot in slots {
            keys.remove(slot);
        }
        assert!(keys.slots.capacity() <= KEPT_CAPACITY);
        assert_eq!(keys.table.entries().count(), 0);
        assert!(keys.table.cells() <= 2 * KEPT_CAPACITY);
    }
}
