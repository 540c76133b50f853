//! `if_absent` and `if_generation`.

use crate::harness::{Harness, id, job, kind, secs};
use requeue_jobs::{Generation, PutError, PutOutcome};

/// Asserts that a conditional put is refused, with this newest generation, and changes nothing.
async fn exists(h: &Harness, generation: Generation) {
    let before = h.get("a").await;
    let result = h.try_put(job("a").body("other").if_absent()).await;
    let (kind, id) = (kind("mail"), id("a"));
    assert_eq!(result, Err(PutError::Exists { kind, id, generation }));
    assert_eq!(h.get("a").await, before);
}

async fn has_not(h: &Harness, expected: Generation, found: Option<Generation>) {
    let before = h.get("a").await;
    let result = h.try_put(job("a").body("other").if_generation(expected)).await;
    let (kind, id) = (kind("mail"), id("a"));
    assert_eq!(result, Err(PutError::Generation { kind, id, expected, found }));
    assert_eq!(h.get("a").await, before);
}

pub(crate) async fn if_absent_creates_a_job_once(h: &Harness) {
    let placed = h.put(job("a").if_absent()).await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    exists(h, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_waiting_job(h: &Harness) {
    let placed = h.put(job("a").after(secs(5))).await;
    exists(h, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_leased_job(h: &Harness) {
    let first = h.put("a").await;
    h.claim().await;
    exists(h, first.generation).await;
    let next = h.put("a").await;
    exists(h, next.generation).await;
}

pub(crate) async fn if_absent_fails_on_an_expired_lease(h: &Harness) {
    let placed = h.put("a").await;
    h.claim().await;
    h.advance(secs(60));
    exists(h, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_dead_job(h: &Harness) {
    h.die("a").await;
    let generation = h.view("a").await.version.generation;
    exists(h, generation).await;
}

pub(crate) async fn if_absent_succeeds_after_ack_and_cancel(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    assert_eq!(h.put(job("a").if_absent()).await.outcome, PutOutcome::Created);
    h.cancel("a").await;
    assert_eq!(h.put(job("a").if_absent()).await.outcome, PutOutcome::Created);
}

pub(crate) async fn if_generation_updates_the_job_with_this_generation(h: &Harness) {
    let first = h.put("a").await.generation;
    let placed = h.put(job("a").body("second").if_generation(first)).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    assert_eq!(h.view("a").await.body().bytes(), b"second");
    // A repeated put is refused: the job has another generation now.
    has_not(h, first, Some(placed.generation)).await;
}

pub(crate) async fn if_generation_fails_on_another_generation(h: &Harness) {
    let first = h.put("a").await.generation;
    let second = h.put("a").await.generation;
    has_not(h, first, Some(second)).await;
}

pub(crate) async fn if_generation_fails_on_an_absent_job(h: &Harness) {
    has_not(h, Generation(1), None).await;
    let first = h.put("a").await.generation;
    h.cancel("a").await;
    has_not(h, first, None).await;
}

pub(crate) async fn if_generation_compares_with_the_successor(h: &Harness) {
    let first = h.put("a").await.generation;
    h.claim().await;
    let next = h.put(job("a").if_generation(first)).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    has_not(h, first, Some(next.generation)).await;
    let last = h.put(job("a").if_generation(next.generation)).await;
    assert_eq!(last.outcome, PutOutcome::Coalesced);
}

pub(crate) async fn if_generation_revives_the_dead_job_with_this_generation(h: &Harness) {
    h.die("a").await;
    let generation = h.view("a").await.version.generation;
    has_not(h, Generation(generation.0 + 1), Some(generation)).await;
    let placed = h.put(job("a").if_generation(generation)).await;
    assert_eq!(placed.outcome, PutOutcome::Revived);
}

pub(crate) async fn a_refused_put_uses_no_generation(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let generation = h.view("a").await.version.generation;
    exists(h, generation).await;
    assert_eq!(h.claim().await.id(), &id("a"));
    assert_eq!(h.counts().await, [1, 1, 0, 1]);
}
