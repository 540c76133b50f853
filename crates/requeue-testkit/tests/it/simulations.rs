//! Simulations of a whole system on the memory store.

use requeue_testkit::{MemoryFixture, check_simulations};

/// A seed that failed once: a claim of several kinds never began with one of them.
const FAILED_ONCE: [u64; 1] = [160434431406556];

#[test]
fn the_memory_store_keeps_all_invariants() {
    check_simulations(MemoryFixture::new, &FAILED_ONCE, 300);
}
