//! Random histories on every store that needs nothing but memory; and on stores that are
//! broken, which they must find out.

#[path = "simulation/broken.rs"]
mod broken;

use broken::{BrokenFixture, Way};
use requeue_testkit::{MemoryFixture, check_histories, check_history};

/// Seeds that once failed on the memory store: debounce, the time of the last change, a tick
/// that was refused. Whoever changes how steps are made up breaks those again, and finds seeds
/// anew.
const FAILED_ONCE: [u64; 5] =
    [233389395577587, 15843582146468, 261041221464271, 86419903918555, 243951290252810];

#[test]
fn the_memory_store_does_what_the_model_does() {
    check_histories(MemoryFixture::new, &FAILED_ONCE, 300);
}

const WAYS: [Way; 17] = [
    Way::LeasesTwice,
    Way::TakesAnyReceipt,
    Way::DeletesBeforeTheAck,
    Way::LosesPuts,
    Way::DeliversEarly,
    Way::EndsBackoffWithAPut,
    Way::RunsTheSuccessorTwice,
    Way::CountsReleases,
    Way::ResetsAttemptsWithAPut,
    Way::ForgetsCancels,
    Way::ExtendsTheEnd,
    Way::SkipsTheFirst,
    Way::LosesThePlace,
    Way::NeverWakes,
    Way::Miscounts,
    Way::RepeatsOnPages,
    Way::TicksTwice,
];

#[test]
fn every_broken_store_differs_from_the_model() {
    // A history never waits.
    for way in WAYS.into_iter().filter(|way| *way != Way::NeverWakes) {
        let differs = |seed| check_history(&BrokenFixture::new(way), seed).is_err();
        assert!((0..300).any(differs), "{way:?}");
    }
}
