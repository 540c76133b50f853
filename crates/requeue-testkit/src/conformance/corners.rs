//! Rare combinations of operations, which the contract settles one by one.

use crate::harness::{Harness, LEASE, ids, job, secs};
use requeue_jobs::{PutError, PutOutcome, Settled, Settlement};

pub(crate) async fn debounce_counts_from_the_next_put_after_a_requeue(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let requeue = Settlement::RequeueAfter(secs(60));
    assert_eq!(h.settle(&claimed, requeue).await, Ok(Settled::Done));
    h.advance(secs(20));
    let began = h.now();
    for _ in 0..2 {
        h.put(job("a").after(secs(7)).debounce(secs(10))).await;
        h.advance(secs(4));
    }
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn if_generation_compares_with_a_cancelled_leased_job(h: &Harness) {
    let first = h.put("a").await.generation;
    let held = h.claim().await;
    h.cancel("a").await;
    let next = h.put(job("a").body("next").if_generation(first)).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    let stale = h.try_put(job("a").if_generation(first)).await;
    let found = Some(next.generation);
    assert!(matches!(stale, Err(PutError::Generation { found: newest, .. }) if newest == found));
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
    assert_eq!(h.claim().await.body().bytes(), b"next");
}

/// A second cancel drops the successor, so that the generation of the leased job counts again.
pub(crate) async fn if_generation_ignores_a_successor_that_was_cancelled(h: &Harness) {
    let first = h.put("a").await.generation;
    h.claim().await;
    h.put("a").await;
    h.cancel("a").await;
    let placed = h.put(job("a").if_generation(first)).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
}

pub(crate) async fn extending_a_cancelled_lease_keeps_the_successor(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.put(job("a").body("next")).await;
    let before = h.view("a").await;
    h.advance(secs(1));
    assert_eq!(h.extend(&held, secs(3600)).await, Settled::Cancelled);
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn run_now_of_a_successor_does_not_shorten_the_backoff_of_a_retry(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").body("next").after(secs(60))).await;
    h.run_now("a").await;
    let due = h.after(secs(5));
    assert_eq!(h.retry(&held, secs(5)).await, Settled::RetryAt(due));
    h.claims_nothing().await;
    h.run_now("a").await;
    assert_eq!(h.claim().await.body().bytes(), b"next");
}

pub(crate) async fn a_failure_after_run_now_has_a_backoff_again(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.retry(&held, secs(3600)).await;
    h.run_now("a").await;
    let held = h.claim().await;
    h.retry(&held, secs(60)).await;
    h.put("a").await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(60)));
}

/// The successor of a settled cancelled lease is a new job, in line by its own due time.
pub(crate) async fn the_successor_of_a_cancelled_lease_is_claimed_by_its_own_due_time(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.advance(secs(1));
    h.put("before").await;
    h.advance(secs(1));
    h.put("a").await;
    h.advance(secs(1));
    h.put("after").await;
    h.advance(secs(1));
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
    assert_eq!(ids(&h.claim_up_to(10).await), ["before", "a", "after"]);
}

/// A claim meets an expired lease at the time when it ended. What was due before that is
/// returned first, even if the successor was due still earlier.
pub(crate) async fn the_successor_of_an_expired_cancelled_lease_overtakes_nothing(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    h.cancel("a").await;
    h.advance(secs(1));
    h.put("a").await;
    h.advance(secs(1));
    h.put("before the end").await;
    h.advance(LEASE);
    h.put("after the end").await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["before the end", "a", "after the end"]);
}

/// Once the reaper has ended the lease, the successor is in line by its own due time.
pub(crate) async fn the_successor_of_a_reaped_cancelled_lease_is_claimed_by_its_due_time(
    h: &Harness,
) {
    h.put("a").await;
    h.claim().await;
    h.cancel("a").await;
    h.advance(secs(1));
    h.put("a").await;
    h.advance(secs(1));
    h.put("b").await;
    h.advance(LEASE);
    assert_eq!(h.reap().await, 1);
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b"]);
}
