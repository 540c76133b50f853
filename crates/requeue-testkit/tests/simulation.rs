//! The whole system, simulated, on every store that needs nothing but memory.

use requeue_testkit::{MemoryFixture, check_simulations};

/// Seeds that once failed on the memory store.
const FAILED_ONCE: [u64; 0] = [];

#[test]
fn the_memory_store_keeps_the_invariants_whatever_happens() {
    check_simulations(MemoryFixture::new, &FAILED_ONCE, 300);
}
