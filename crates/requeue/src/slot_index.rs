//! A table from hashes to slots whose lookup reads one cache line.
//!
//! A cell contains a hash and a slot number, eight bytes. A key is in the cell that its hash
//! selects or, if that cell is taken, in the next free cell after it. Eight cells share a cache
//! line, so most lookups wait for memory once. hashbrown keeps its tags apart from its entries
//! and waits twice: with a million timers, moving one took a fifth longer, and adding and
//! finishing one of 1,000 keys a tenth.

use crate::keys::NIL;

/// Of 16 cells, at most this many are taken.
const MAX_TAKEN: usize = 10;
const MIN_CELLS: usize = 16;

#[derive(Clone, Copy)]
struct Cell {
    hash: u32,
    /// `NIL` if the cell is free.
    slot: u32,
}

const FREE: Cell = Cell { hash: 0, slot: NIL };

#[derive(Default)]
pub(crate) struct SlotIndex {
    /// Empty, or a power of two. Invariant: at least one cell is free, and no cell between the
    /// one that a hash selects and the one that contains it is free.
    cells: Vec<Cell>,
    /// Reduces a hash of 64 bits to the number of a cell.
    shift: u32,
    len: usize,
}

impl SlotIndex {
    /// Returns the cell that `hash` selects. The multiplication spreads the hash over 64 bits, of
    /// which the highest are used.
    #[inline(always)]
    fn first_cell(&self, hash: u32) -> usize {
        (u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline(always)]
    fn put(&mut self, cell: Cell) {
        let mut at = self.first_cell(cell.hash);
        let mask = self.cells.len() - 1;
        while self.cells[at & mask].slot != NIL {
            at += 1;
        }
        self.cells[at & mask] = cell;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let size = (2 * self.cells.len()).max(MIN_CELLS);
        let old = std::mem::replace(&mut self.cells, vec![FREE; size]);
        self.shift = 64 - size.trailing_zeros();
        // Cells are in the order of the highest bits of their hashes, before and after: both
        // tables are passed through from front to back.
        old.into_iter().filter(|cell| cell.slot != NIL).for_each(|cell| self.put(cell));
    }

    /// Returns the slot with this hash for which `is_key` returns `true`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u32, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.cells.len().checked_sub(1)?;
        let mut at = self.first_cell(hash);
        loop {
            let cell = self.cells[at & mask];
            if cell.slot == NIL {
                return None;
            }
            if cell.hash == hash && is_key(cell.slot) {
                return Some(cell.slot);
            }
            at += 1;
        }
    }

    /// Stores a slot that is not in the table.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if self.len >= self.cells.len() / 16 * MAX_TAKEN {
            self.grow();
        }
        self.len += 1;
        self.put(Cell { hash, slot });
    }

    /// Removes a slot. Returns `false` if it is not in the table.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) -> bool {
        let Some(mask) = self.cells.len().checked_sub(1) else { return false };
        let mut hole = self.first_cell(hash);
        loop {
            let found = self.cells[hole & mask].slot;
            if found == slot {
                break;
            }
            if found == NIL {
                return false;
            }
            hole += 1;
        }
        self.len -= 1;
        // Cells behind it move up, unless they would come before the cell that their hash selects.
        let mut at = hole;
        loop {
            at += 1;
            let cell = self.cells[at & mask];
            if cell.slot == NIL {
                break;
            }
            let distance = at.wrapping_sub(self.first_cell(cell.hash)) & mask;
            if distance >= at - hole {
                self.cells[hole & mask] = cell;
                hole = at;
            }
        }
        self.cells[hole & mask] = FREE;
        true
    }

    /// Returns the number of cells, free ones included.
    #[cfg(test)]
    pub(crate) fn cells(&self) -> usize {
        self.cells.capacity()
    }

    /// Returns every hash with its slot.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        self.cells.iter().filter(|cell| cell.slot != NIL).map(|cell| (cell.hash, cell.slot))
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(index: &SlotIndex) {
        assert_eq!(index.entries().count(), index.len);
        for (hash, slot) in index.entries() {
            assert_eq!(index.find(hash, |other| other == slot), Some(slot));
        }
    }

    #[test]
    fn slots_with_equal_hashes_are_distinguished() {
        let mut index = SlotIndex::default();
        assert!(!index.remove(7, 0));
        (0..5).for_each(|slot| index.insert(7, slot));
        assert!(index.remove(7, 2));
        assert!(!index.remove(7, 2));
        assert_eq!(index.find(7, |slot| slot == 4), Some(4));
        assert_eq!(index.find(7, |slot| slot == 2), None);
        check(&index);
    }

    proptest! {
        #[test]
        fn the_index_behaves_like_a_list(ops in prop::collection::vec((0..40u32, 0..4u32), 1..300)) {
            let mut index = SlotIndex::default();
            let mut list: Vec<(u32, u32)> = Vec::new();
            for (slot, hash) in ops {
                // A few hashes that select the same cells, the last ones of the table among them.
                let hash = [0, 1, 0x61C8_8647, u32::MAX][hash as usize];
                match list.iter().position(|&(_, other)| other == slot) {
                    Some(at) => {
                        let (hash, slot) = list.swap_remove(at);
                        prop_assert!(index.remove(hash, slot));
                    }
                    None => {
                        list.push((hash, slot));
                        index.insert(hash, slot);
                    }
                }
                check(&index);
                let mut entries: Vec<(u32, u32)> = index.entries().collect();
                entries.sort_unstable();
                list.sort_unstable();
                prop_assert_eq!(&entries, &list);
            }
        }
    }
}
