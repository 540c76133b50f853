//! Random histories on the memory store.

use requeue_testkit::{MemoryFixture, check_histories};

/// Seeds that failed once: debounce, the time of the last change, a tick that was refused, a
/// generation that a release used up. A change of how operations are generated changes what these
/// seeds do.
const FAILED_ONCE: [u64; 8] = [
    0,
    46184996381400,
    61180619136306,
    19859087369017,
    109919152350221,
    36436060548358,
    120836958768096,
    182604802630316,
];

#[test]
fn the_memory_store_agrees_with_the_model() {
    check_histories(MemoryFixture::new, &FAILED_ONCE, 300);
}
