//! The holds of a queue: which key a guard's token identifies.
//!
//! A token is a number of a hold and a place where that number is stored while the hold lasts.
//! A token with another number is stale or forged.

use super::state::{Entry, HELD, Work};
use crate::keys::{KEPT_CAPACITY, Keys, NIL};

/// Where the queue stores the numbers of its holds.
pub(crate) trait Holds<E: Entry>: Default + Send + 'static {
    /// Begins a hold of the key in `slot`, whose entry is `entry`. Returns its token.
    fn begin(&mut self, slot: u32, entry: &mut E) -> u64;

    /// Returns the slot of the held key, or `None` if `token` identifies no hold.
    fn slot<K>(&self, token: u64, keys: &Keys<K, E>) -> Option<u32>;

    /// Ends the hold that `token` identifies.
    fn end(&mut self, token: u64);

    /// Returns the slots of all held keys, in no particular order.
    fn slots<K>(&self, keys: &Keys<K, E>) -> impl Iterator<Item = u32>;
}

/// The numbers are in the entries, which ending a hold reads and changes anyway: another place
/// would be one more cache line that the cores send each other.
#[derive(Default)]
pub(crate) struct HoldsInEntries {
    /// The number of the latest hold. Wraps around.
    latest: u32,
}

impl Holds<Work> for HoldsInEntries {
    #[inline(always)]
    fn begin(&mut self, slot: u32, entry: &mut Work) -> u64 {
        self.latest = self.latest.wrapping_add(1);
        entry.hold = self.latest;
        (u64::from(self.latest) << 32) | u64::from(slot)
    }

    #[inline(always)]
    fn slot<K>(&self, token: u64, keys: &Keys<K, Work>) -> Option<u32> {
        let (slot, number) = (token as u32, (token >> 32) as u32);
        let entry = keys.get(slot)?;
        (entry.flags() & HELD != 0 && entry.hold == number).then_some(slot)
    }

    #[inline(always)]
    fn end(&mut self, _: u64) {}

    fn slots<K>(&self, keys: &Keys<K, Work>) -> impl Iterator<Item = u32> {
        keys.iter().filter(|(.., entry)| entry.flags() & HELD != 0).map(|(slot, ..)| slot)
    }
}

/// The numbers are in a list of their own, so that the entries of keys that only wait are four
/// bytes smaller. It is as long as keys are held at the same time.
pub(crate) struct HoldList {
    holds: Vec<Hold>,
    /// The first free hold, or `NIL`. Free holds are linked by `slot`.
    free: u32,
    len: usize,
    /// The number of the latest hold. Wraps around, and is never 0.
    latest: u32,
}

#[derive(Clone, Copy)]
struct Hold {
    /// 0 if this hold is free.
    number: u32,
    slot: u32,
}

impl Default for HoldList {
    fn default() -> Self {
        HoldList { holds: Vec::new(), free: NIL, len: 0, latest: 0 }
    }
}

impl<E: Entry> Holds<E> for HoldList {
    #[inline(always)]
    fn begin(&mut self, slot: u32, _: &mut E) -> u64 {
        self.begin(slot)
    }

    #[inline(always)]
    fn slot<K>(&self, token: u64, _: &Keys<K, E>) -> Option<u32> {
        self.slot(token)
    }

    #[inline(always)]
    fn end(&mut self, token: u64) {
        self.end(token);
    }

    fn slots<K>(&self, _: &Keys<K, E>) -> impl Iterator<Item = u32> {
        self.slots()
    }
}

impl HoldList {
    /// Begins a hold of the key in `slot`. Returns its token.
    #[inline(always)]
    fn begin(&mut self, slot: u32) -> u64 {
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
    fn slot(&self, token: u64) -> Option<u32> {
        let hold = self.holds.get(token as u32 as usize)?;
        (hold.number != 0 && hold.number == (token >> 32) as u32).then_some(hold.slot)
    }

    /// Ends the hold that `token` identifies.
    #[inline(always)]
    fn end(&mut self, token: u64) {
        let index = token as u32;
        self.holds[index as usize] = Hold { number: 0, slot: self.free };
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.holds.len() > KEPT_CAPACITY {
            (self.holds, self.free) = (Vec::new(), NIL);
        }
    }

    /// Returns the slots of all held keys, in no particular order.
    fn slots(&self) -> impl Iterator<Item = u32> {
        self.holds.iter().filter(|hold| hold.number != 0).map(|hold| hold.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_its_hold_ends() {
        let mut holds = HoldList::default();
        let (a, b) = (holds.begin(7), holds.begin(8));
        assert_eq!((holds.slot(a), holds.slot(b)), (Some(7), Some(8)));
        holds.end(a);
        assert_eq!(holds.slot(a), None);
        let c = holds.begin(9);
        assert_eq!((holds.slot(a), holds.slot(c), holds.len), (None, Some(9), 2));
        assert_eq!((holds.slot(0), holds.slot(u64::MAX)), (None, None));
    }

    #[test]
    fn memory_of_many_holds_is_given_back_when_the_last_ends() {
        let mut holds = HoldList::default();
        let tokens: Vec<u64> = (0..10_000).map(|slot| holds.begin(slot)).collect();
        assert_eq!(holds.slots().count(), 10_000);
        tokens.into_iter().for_each(|token| holds.end(token));
        assert_eq!((holds.holds.capacity(), holds.len), (0, 0));
        let token = holds.begin(3);
        assert_eq!(holds.slot(token), Some(3));
    }
}
