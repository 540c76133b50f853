//! Random histories on every store that needs nothing but memory.

use requeue_testkit::{MemoryFixture, check_histories};

/// Seeds that once failed on the memory store: debounce, the time of the last change, a tick
/// that was refused.
const FAILED_ONCE: [u64; 6] = [
    233389395577587,
    261041221464271,
    44956795400021,
    43789050913877,
    104835974031997,
    86419903918555,
];

#[test]
fn the_memory_store_does_what_the_model_does() {
    check_histories(MemoryFixture::new, &FAILED_ONCE, 300);
}
