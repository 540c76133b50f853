//! Rare combinations of operations, which the contract settles one by one.

use crate::trial::{LEASE, Trial, ids, job, secs};
use requeue_jobs::{PutError, PutOutcome, Settled, Settlement};

pub(crate) async fn debounce_counts_from_the_next_put_after_a_requeue(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    let requeue = Settlement::RequeueAfter(secs(60));
    assert_eq!(t.settle(&claimed, requeue).await, Ok(Settled::Done));
    t.advance(secs(20));
    let began = t.now();
    for _ in 0..2 {
        t.put(job("a").after(secs(7)).debounce(secs(10))).await;
        t.advance(secs(4));
    }
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn if_generation_compares_with_a_cancelled_leased_job(t: &Trial) {
    let first = t.put("a").await.generation;
    let held = t.claim().await;
    t.cancel("a").await;
    let next = t.put(job("a").body("next").if_generation(first)).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    let stale = t.try_put(job("a").if_generation(first)).await;
    let found = Some(next.generation);
    assert!(matches!(stale, Err(PutError::Generation { found: newest, .. }) if newest == found));
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
    assert_eq!(t.claim().await.body.bytes(), b"next");
}

/// A second cancel drops the successor, so that the generation of the leased job counts again.
pub(crate) async fn if_generation_ignores_a_successor_that_was_cancelled(t: &Trial) {
    let first = t.put("a").await.generation;
    t.claim().await;
    t.put("a").await;
    t.cancel("a").await;
    let placed = t.put(job("a").if_generation(first)).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
}

pub(crate) async fn extending_a_cancelled_lease_keeps_the_successor(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.put(job("a").body("next")).await;
    let before = t.view("a").await;
    t.advance(secs(1));
    assert_eq!(t.extend(&held, secs(3600)).await, Settled::Cancelled);
    assert_eq!(t.view("a").await, before);
}

pub(crate) async fn run_now_of_a_successor_does_not_shorten_the_backoff_of_a_retry(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").body("next").after(secs(60))).await;
    t.run_now("a").await;
    let due = t.after(secs(5));
    assert_eq!(t.retry(&held, secs(5)).await, Settled::RetryAt(due));
    t.claims_nothing().await;
    t.run_now("a").await;
    assert_eq!(t.claim().await.body.bytes(), b"next");
}

pub(crate) async fn a_failure_after_run_now_has_a_backoff_again(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.retry(&held, secs(3600)).await;
    t.run_now("a").await;
    let held = t.claim().await;
    t.retry(&held, secs(60)).await;
    t.put("a").await;
    assert_eq!(t.view("a").await.due, t.after(secs(60)));
}

/// The successor of a settled cancelled lease is a new job, in line by its own due time.
pub(crate) async fn the_successor_of_a_cancelled_lease_is_claimed_by_its_own_due_time(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.advance(secs(1));
    t.put("before").await;
    t.advance(secs(1));
    t.put("a").await;
    t.advance(secs(1));
    t.put("after").await;
    t.advance(secs(1));
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
    assert_eq!(ids(&t.claim_up_to(10).await), ["before", "a", "after"]);
}

/// A claim meets an expired lease at the time when it ended. What was due before that is
/// returned first, even if the successor was due still earlier.
pub(crate) async fn the_successor_of_an_expired_cancelled_lease_overtakes_nothing(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    t.cancel("a").await;
    t.advance(secs(1));
    t.put("a").await;
    t.advance(secs(1));
    t.put("before the end").await;
    t.advance(LEASE);
    t.put("after the end").await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["before the end", "a", "after the end"]);
}

/// Once the reaper has ended the lease, the successor is in line by its own due time.
pub(crate) async fn the_successor_of_a_reaped_cancelled_lease_is_claimed_by_its_due_time(
    t: &Trial,
) {
    t.put("a").await;
    t.claim().await;
    t.cancel("a").await;
    t.advance(secs(1));
    t.put("a").await;
    t.advance(secs(1));
    t.put("b").await;
    t.advance(LEASE);
    assert_eq!(t.reap().await, 1);
    assert_eq!(ids(&t.claim_up_to(10).await), ["a", "b"]);
}
