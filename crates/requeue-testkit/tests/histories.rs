//! Random histories on every store that needs nothing but memory; and on stores that are
//! broken, which they must find out.

#[path = "simulation/broken.rs"]
mod broken;

use broken::{BrokenFixture, Way};
use requeue_testkit::{MemoryFixture, check_histories, check_history};

/// Seeds that once failed on the memory store: debounce, the time of the last change, a tick
/// that was refused, a generation that a release used up. Whoever changes how steps are made up breaks those again, and finds seeds
/// anew.
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
fn the_memory_store_does_what_the_model_does() {
    check_histories(MemoryFixture::new, &FAILED_ONCE, 300);
}

const WAYS: [Way; 25] = [
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
    Way::PrefersAKind,
    Way::LosesThePlace,
    Way::NeverWakes,
    Way::Miscounts,
    Way::RepeatsOnPages,
    Way::TicksTwice,
    Way::RepeatsFences,
    Way::LowersFences,
    Way::AcksTwice,
    Way::ForgetsAcks,
    Way::RefusesReceipts,
    Way::DeliversOldGenerations,
    Way::NeverBuries,
];

#[test]
fn every_broken_store_differs_from_the_model() {
    // A history never waits, and does not mind which kind is first.
    let unseen = [Way::NeverWakes, Way::PrefersAKind];
    for way in WAYS.into_iter().filter(|way| !unseen.contains(way)) {
        let differs = |seed| check_history(&BrokenFixture::new(way), seed).is_err();
        assert!((0..300).any(differs), "{way:?}");
    }
}
