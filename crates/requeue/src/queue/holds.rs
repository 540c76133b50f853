//! The holds of a queue, found by the token of a guard.
//!
//! There are as many as keys are held at the same time: few, and close together in memory. The
//! entry of a key therefore does not store the number of its hold.

use crate::keys::{KEPT_CAPACITY, NIL};

/// The holds. A token is the index of a hold and its number.
pub(super) struct Holds {
    holds: Vec<Hold>,
    /// The first free hold, or `NIL`. Free holds are linked by `slot`.
    free: u32,
    len: usize,
    /// The number of the latest hold. Wraps around, and is never 0.
    latest: u32,
}

#[derive(Clone, Copy)]
struct Hold {
    /// 0 if this hold is free. A token with another number is stale or forged.
    number: u32,
    slot: u32,
}

impl Default for Holds {
    fn default() -> Self {
        Holds { holds: Vec::new(), free: NIL, len: 0, latest: 0 }
    }
}

impl Holds {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Begins a hold of the key in `slot`. Returns its token.
    #[inline(always)]
    pub(super) fn begin(&mut self, slot: u32) -> u64 {
        self.latest = self.latest.wrapping_add(1).max(1);
        let hold = Hold { number: self.latest, slot };
        let index = self.free;
        let index = match self.holds.get_mut(index as usize) {
            Some(free) => {
                self.free = free.slot;
                *free = hold;
                index
            }
            None => {
                // There are fewer holds than slots, and so fewer than 2³².
                self.holds.push(hold);
                self.holds.len() as u32 - 1
            }
        };
        self.len += 1;
        (u64::from(hold.number) << 32) | u64::from(index)
    }

    /// Returns the slot of the held key, or `None` if `token` identifies no hold.
    #[inline]
    pub(super) fn slot(&self, token: u64) -> Option<u32> {
        let hold = self.holds.get(token as u32 as usize)?;
        (hold.number != 0 && hold.number == (token >> 32) as u32).then_some(hold.slot)
    }

    /// Ends a hold. Returns the slot of the key, or `None` if `token` identifies no hold.
    #[inline(always)]
    pub(super) fn end(&mut self, token: u64) -> Option<u32> {
        let slot = self.slot(token)?;
        let index = token as u32;
        self.holds[index as usize] = Hold { number: 0, slot: self.free };
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.holds.len() > KEPT_CAPACITY {
            (self.holds, self.free) = (Vec::new(), NIL);
        }
        Some(slot)
    }

    /// Returns the slots of all held keys, in no particular order.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.holds.iter().filter(|hold| hold.number != 0).map(|hold| hold.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_its_hold_ends() {
        let mut holds = Holds::default();
        let (a, b) = (holds.begin(7), holds.begin(8));
        assert_eq!((holds.slot(a), holds.slot(b)), (Some(7), Some(8)));
        assert_eq!(holds.end(a), Some(7));
        assert_eq!((holds.slot(a), holds.end(a)), (None, None));
        let c = holds.begin(9);
        assert_eq!((holds.slot(a), holds.slot(c), holds.len()), (None, Some(9), 2));
        assert_eq!((holds.slot(0), holds.slot(u64::MAX)), (None, None));
    }

    #[test]
    fn memory_of_many_holds_is_given_back_when_the_last_ends() {
        let mut holds = Holds::default();
        let tokens: Vec<u64> = (0..10_000).map(|slot| holds.begin(slot)).collect();
        assert_eq!(holds.slots().count(), 10_000);
        tokens.into_iter().for_each(|token| _ = holds.end(token));
        assert_eq!((holds.holds.capacity(), holds.len()), (0, 0));
        let token = holds.begin(3);
        assert_eq!(holds.end(token), Some(3));
    }
}
