//! The whole system, simulated, on every store that needs nothing but memory; and on stores
//! that are broken, which it must find out.

mod broken;

use broken::{BrokenFixture, Way};
use requeue_testkit::{MemoryFixture, check_simulations, simulate};
use std::sync::Arc;

/// Seeds that once failed on the memory store: a kind that was never first.
const FAILED_ONCE: [u64; 1] = [160434431406556];

#[test]
fn the_memory_store_keeps_the_invariants_whatever_happens() {
    check_simulations(MemoryFixture::new, &FAILED_ONCE, 300);
}

/// One of a few simulations names the invariant that the broken store does not keep.
fn breaks(way: Way, invariant: &str) {
    let names = |seed| {
        let violation = simulate(Arc::new(BrokenFixture::new(way)), seed).err()?;
        println!("seed {seed}: {}", violation.lines().last().unwrap_or_default());
        violation.contains(&format!("\n{invariant}: ")).then_some(())
    };
    assert!((0..40).find_map(names).is_some(), "{way:?} does not break {invariant}");
}

#[test]
fn two_leases_of_one_job_break_the_first() {
    breaks(Way::LeasesTwice, "invariant 1");
}

#[test]
fn an_ack_under_a_stale_receipt_breaks_the_first() {
    breaks(Way::TakesAnyReceipt, "invariant 1");
}

#[test]
fn a_claim_that_deletes_breaks_the_second() {
    breaks(Way::DeletesBeforeTheAck, "invariant 2");
}

#[test]
fn a_put_that_is_lost_breaks_the_second() {
    breaks(Way::LosesPuts, "invariant 2");
}

#[test]
fn a_delay_cut_short_breaks_the_third() {
    breaks(Way::DeliversEarly, "invariant 3");
}

#[test]
fn a_backoff_that_a_put_ends_breaks_the_third() {
    breaks(Way::EndsBackoffWithAPut, "invariant 3");
}

#[test]
fn a_successor_that_runs_twice_breaks_the_fourth() {
    breaks(Way::RunsTheSuccessorTwice, "invariant 4");
}

#[test]
fn a_stale_receipt_that_changes_something_breaks_the_fifth() {
    breaks(Way::TakesAnyReceipt, "invariant 5");
}

#[test]
fn a_release_that_counts_breaks_the_sixth() {
    breaks(Way::CountsReleases, "invariant 6");
}

#[test]
fn attempts_that_a_put_resets_break_the_sixth() {
    breaks(Way::ResetsAttemptsWithAPut, "invariant 6");
}

#[test]
fn a_cancel_that_is_forgotten_breaks_the_seventh() {
    breaks(Way::ForgetsCancels, "invariant 7");
}

#[test]
fn an_extension_of_an_extension_breaks_the_eighth() {
    breaks(Way::ExtendsTheEnd, "invariant 8");
}

#[test]
fn a_claim_of_the_second_in_line_breaks_the_tenth() {
    breaks(Way::SkipsTheFirst, "invariant 10");
}

#[test]
fn a_kind_that_is_always_first_breaks_the_tenth() {
    breaks(Way::PrefersAKind, "invariant 10");
}

#[test]
fn a_place_lost_by_a_put_breaks_the_tenth() {
    breaks(Way::LosesThePlace, "invariant 10");
}

#[test]
fn a_wait_that_nothing_ends_breaks_the_eleventh() {
    breaks(Way::NeverWakes, "invariant 11");
}

#[test]
fn a_count_that_is_wrong_breaks_the_twelfth() {
    breaks(Way::Miscounts, "invariant 12");
}

#[test]
fn a_page_that_repeats_a_job_breaks_the_twelfth() {
    breaks(Way::RepeatsOnPages, "invariant 12");
}

#[test]
fn a_tick_that_does_not_compare_breaks_the_twelfth() {
    breaks(Way::TicksTwice, "invariant 12");
}
