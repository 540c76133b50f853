//! Many clients at once, on the memory store; and on stores that are broken, which they must
//! find out.

#[path = "simulation/broken.rs"]
#[allow(dead_code)]
mod broken;

use broken::{Broken, Way};
use requeue_jobs::{MemoryStore, Store, WallClock};
use requeue_testkit::{Concurrent, Fault, Faulty, check_seeds};
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: usize = 4;

#[test]
fn the_memory_store_keeps_the_invariants_whoever_meets() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 3, |seed| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Concurrent::default().check(&vec![store; CLIENTS], seed, || ())
    });
}

#[test]
fn calls_that_are_refused_and_answers_that_are_lost_break_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 3, |seed| {
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.by_chance(seed, 20, &[Fault::Refused, Fault::LostReply]);
        let store: Arc<dyn Store> = Arc::new(store);
        Concurrent::default().check(&vec![store; CLIENTS], seed, || ())
    });
}

#[test]
fn something_goes_wrong_while_clients_work_and_not_after() {
    let memory = Arc::new(MemoryStore::new());
    let stores: Vec<_> = (0..CLIENTS).map(|_| Arc::new(Faulty::new(memory.clone()))).collect();
    let clients: Vec<Arc<dyn Store>> = stores.iter().map(|store| store.clone() as _).collect();
    let (mut times, mut crashed) = (0, 0);
    let crash = || {
        stores[crashed].restart();
        // The first is needed at last, and nobody would restart it then.
        (times, crashed) = (times + 1, 1 + times % (CLIENTS - 1));
        stores[crashed].at(1, Fault::CrashAfter);
    };
    let run = Concurrent::default();
    assert_eq!(run.check(&clients, 7, crash), Ok(()));
    assert!((1..CLIENTS * run.operations).contains(&times), "{times}");
}

/// One of a few runs finds the invariant that the broken store does not keep, and says so.
fn breaks(way: Way, invariant: &str, how: &str) {
    let finds = |seed| {
        let wall_clock = WallClock::system();
        let store = Broken::new(way, Arc::new(MemoryStore::new()), move || wall_clock.now());
        let store: Arc<dyn Store> = Arc::new(store);
        let patience = Duration::from_millis(300);
        let run = Concurrent { operations: 200, patience, ..Concurrent::default() };
        let wrong = run.check(&vec![store; CLIENTS], seed, || ()).err().unwrap_or_default();
        println!("seed {seed}:\n{}", wrong.lines().last().unwrap_or_default());
        wrong.lines().any(|line| line.starts_with(invariant) && line.contains(how))
    };
    assert!((0..20).any(finds), "{way:?} does not break {invariant}: {how}");
}

#[test]
fn fences_that_repeat_or_fall_break_the_first() {
    breaks(Way::RepeatsFences, "invariant 1", "was given out twice");
    breaks(Way::LowersFences, "invariant 1", "came after");
}

#[test]
fn two_leases_of_one_job_break_the_first() {
    breaks(Way::LeasesTwice, "invariant 1", "is leased until");
}

#[test]
fn what_is_lost_breaks_the_second() {
    breaks(Way::DeletesBeforeTheAck, "invariant 2", "is gone");
    breaks(Way::LosesPuts, "invariant 2", "is gone");
}

#[test]
fn what_is_never_done_breaks_the_second() {
    breaks(Way::ForgetsAcks, "invariant 2", "is never done");
}

#[test]
fn a_delay_cut_short_breaks_the_third() {
    breaks(Way::DeliversEarly, "invariant 3", "is not due before");
}

#[test]
fn a_backoff_that_a_put_ends_breaks_the_third() {
    breaks(Way::EndsBackoffWithAPut, "invariant 3", "is backed off until");
}

#[test]
fn what_nobody_put_breaks_the_fourth() {
    breaks(Way::RunsTheSuccessorTwice, "invariant 4", "which nobody put");
}

#[test]
fn what_is_older_than_the_last_put_breaks_the_fourth() {
    breaks(Way::DeliversOldGenerations, "invariant 4", "and there was");
}

#[test]
fn what_was_acked_and_comes_again_breaks_the_fourth() {
    breaks(Way::ForgetsAcks, "invariant 4", "was acked before");
}

#[test]
fn a_stale_receipt_that_is_taken_breaks_the_fifth() {
    breaks(Way::TakesAnyReceipt, "invariant 5", "and there was");
}

#[test]
fn a_receipt_that_is_refused_breaks_the_fifth() {
    breaks(Way::RefusesReceipts, "invariant 5", "was refused");
}

#[test]
fn a_release_that_counts_breaks_the_sixth() {
    breaks(Way::CountsReleases, "invariant 6", "not above");
}

#[test]
fn a_job_that_never_dies_breaks_the_sixth() {
    breaks(Way::NeverBuries, "invariant 6", "an attempt too many");
}

#[test]
fn a_cancel_that_is_forgotten_breaks_the_seventh() {
    breaks(Way::ForgetsCancels, "invariant 7", "was cancelled");
}

#[test]
fn an_ack_that_is_answered_twice_breaks_the_eighth() {
    breaks(Way::AcksTwice, "invariant 8", "was answered");
}
