//! The room that all kinds share: a number of deliveries, and the bytes of their bodies.
//!
//! A kind may use at most as much as it leaves free. One kind whose target hangs thus takes half of the
//! room, two take two thirds together, and there is always room for another. (Switches divide their
//! packet buffers in this way.)

use requeue_jobs::limits::{MAX_BATCH, MAX_BODY_LEN, MAX_RESULT_BYTES};

/// The room that is left.
#[derive(Debug)]
pub(super) struct Budget {
    max_in_flight: usize,
    max_bytes: usize,
    in_flight: usize,
    bytes: usize,
}

/// What a kind uses of the room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) in_flight: usize,
    pub(super) bytes: usize,
}

impl Usage {
    pub(super) fn saturating_add(self, other: Usage) -> Usage {
        Usage {
            in_flight: self.in_flight.saturating_add(other.in_flight),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(super) fn saturating_sub(self, other: Usage) -> Usage {
        Usage {
            in_flight: self.in_flight.saturating_sub(other.in_flight),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Budget {
    pub(super) fn new(max_in_flight: usize, max_bytes: usize) -> Self {
        // A kind that uses nothing needs room for the largest body, and as much has to be left.
        let (max_in_flight, max_bytes) = (max_in_flight.max(2), max_bytes.max(2 * MAX_BODY_LEN));
        Budget { max_in_flight, max_bytes, in_flight: 0, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes room for up to `wanted` deliveries of a kind that uses `used`. Returns the number, and how many
    /// bytes the bodies of a claim of so many jobs have at most. Both are 0 if there is no room.
    pub(super) fn take(&mut self, used: Usage, wanted: usize) -> Usage {
        let free = self.max_in_flight - self.in_flight;
        let share = |free: usize, used: usize| free.saturating_sub(used) / 2;
        let count = wanted.min(share(free, used.in_flight)).min(MAX_BATCH);
        let bytes = share(self.max_bytes - self.bytes, used.bytes);
        // A claim returns at most MAX_RESULT_BYTES, however many jobs it asks for.
        let count = if bytes >= MAX_RESULT_BYTES { count } else { count.min(bytes / MAX_BODY_LEN) };
        let bytes = (count * MAX_BODY_LEN).min(MAX_RESULT_BYTES);
        self.in_flight += count;
        self.bytes += bytes;
        Usage { in_flight: count, bytes }
    }

    /// Takes room for the result of a delivery. Returns `false` if there is none.
    pub(super) fn take_bytes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.max_bytes - self.bytes;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Gives room back.
    pub(super) fn give_back(&mut self, room: Usage) {
        debug_assert!(room.in_flight <= self.in_flight && room.bytes <= self.bytes);
        self.in_flight = self.in_flight.saturating_sub(room.in_flight);
        self.bytes = self.bytes.saturating_sub(room.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_kind_uses_at_most_what_it_leaves_free() {
        let mut budget = Budget::new(100, 64 * MIB);
        let mut total = 0;
        for expected in [33, 17, 0] {
            // Bodies are small: the bytes are given back after the claim.
            let used = Usage { in_flight: total, bytes: 0 };
            let taken = budget.take(used, 33);
            budget.give_back(Usage { in_flight: 0, bytes: taken.bytes });
            assert_eq!(taken.in_flight, expected);
            total += taken.in_flight;
        }
        assert_eq!(total, 50);
        let other = budget.take(Usage::default(), 100);
        assert_eq!(other.in_flight, 25);
    }

    #[test]
    fn many_kinds_that_hang_leave_room_for_one_more() {
        let mut budget = Budget::new(10_000, 64 * MIB);
        for kind in 0..40 {
            let mut used = Usage::default();
            loop {
                let taken = budget.take(used, 10_000);
                if taken.in_flight == 0 {
                    break;
                }
                // All bodies have the largest size.
                assert_eq!(taken.bytes, (taken.in_flight * MIB).min(16 * MIB));
                let (in_flight, bytes) = (taken.bytes / MIB, taken.bytes);
                budget.give_back(Usage { in_flight: taken.in_flight - in_flight, bytes: 0 });
                used = Usage { in_flight: used.in_flight + in_flight, bytes: used.bytes + bytes };
            }
            assert!(used.in_flight > 0 || kind > 5, "kind {kind}");
        }
        assert!(budget.bytes <= 64 * MIB);
    }

    #[test]
    fn a_claim_never_exceeds_its_room() {
        let mut budget = Budget::new(10_000, 64 * MIB);
        assert_eq!(
            budget.take(Usage::default(), 10_000),
            Usage { in_flight: 1000, bytes: 16 * MIB }
        );
        assert_eq!(budget.take(Usage::default(), 3), Usage { in_flight: 3, bytes: 3 * MIB });
        let mut small = Budget::new(0, 0);
        assert_eq!(small.take(Usage::default(), 10), Usage { in_flight: 1, bytes: MIB });
        assert_eq!(small.take(Usage::default(), 10), Usage::default());
    }
}
