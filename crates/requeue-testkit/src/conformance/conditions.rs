//! `if_absent` and `if_generation`.

use crate::trial::{Trial, id, job, kind, secs};
use requeue_jobs::{Generation, PutError, PutOutcome};

/// A put on condition is refused, with this newest generation, and changes nothing.
async fn exists(t: &Trial, generation: Generation) {
    let before = t.get("a").await;
    let answer = t.try_put(job("a").body("other").if_absent()).await;
    let (kind, id) = (kind("mail"), id("a"));
    assert_eq!(answer, Err(PutError::Exists { kind, id, generation }));
    assert_eq!(t.get("a").await, before);
}

async fn has_not(t: &Trial, expected: Generation, found: Option<Generation>) {
    let before = t.get("a").await;
    let answer = t.try_put(job("a").body("other").if_generation(expected)).await;
    let (kind, id) = (kind("mail"), id("a"));
    assert_eq!(answer, Err(PutError::Generation { kind, id, expected, found }));
    assert_eq!(t.get("a").await, before);
}

pub(crate) async fn if_absent_creates_a_job_once(t: &Trial) {
    let placed = t.put(job("a").if_absent()).await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    exists(t, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_waiting_job(t: &Trial) {
    let placed = t.put(job("a").after(secs(5))).await;
    exists(t, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_leased_job(t: &Trial) {
    let first = t.put("a").await;
    t.claim().await;
    exists(t, first.generation).await;
    let next = t.put("a").await;
    exists(t, next.generation).await;
}

pub(crate) async fn if_absent_fails_on_an_expired_lease(t: &Trial) {
    let placed = t.put("a").await;
    t.claim().await;
    t.advance(secs(60));
    exists(t, placed.generation).await;
}

pub(crate) async fn if_absent_fails_on_a_dead_job(t: &Trial) {
    t.die("a").await;
    let generation = t.view("a").await.generation;
    exists(t, generation).await;
}

pub(crate) async fn if_absent_succeeds_after_ack_and_cancel(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.ack(&claimed).await;
    assert_eq!(t.put(job("a").if_absent()).await.outcome, PutOutcome::Created);
    t.cancel("a").await;
    assert_eq!(t.put(job("a").if_absent()).await.outcome, PutOutcome::Created);
}

pub(crate) async fn if_generation_updates_the_job_that_was_seen(t: &Trial) {
    let first = t.put("a").await.generation;
    let placed = t.put(job("a").body("second").if_generation(first)).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    assert_eq!(t.view("a").await.body.bytes(), b"second");
    // Twice equals once: it has another generation now.
    has_not(t, first, Some(placed.generation)).await;
}

pub(crate) async fn if_generation_fails_on_another_one(t: &Trial) {
    let first = t.put("a").await.generation;
    let second = t.put("a").await.generation;
    has_not(t, first, Some(second)).await;
}

pub(crate) async fn if_generation_fails_on_an_absent_job(t: &Trial) {
    has_not(t, Generation(1), None).await;
    let first = t.put("a").await.generation;
    t.cancel("a").await;
    has_not(t, first, None).await;
}

pub(crate) async fn if_generation_compares_with_the_successor(t: &Trial) {
    let first = t.put("a").await.generation;
    t.claim().await;
    let next = t.put(job("a").if_generation(first)).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    has_not(t, first, Some(next.generation)).await;
    let last = t.put(job("a").if_generation(next.generation)).await;
    assert_eq!(last.outcome, PutOutcome::Coalesced);
}

pub(crate) async fn if_generation_revives_the_dead_job_that_was_seen(t: &Trial) {
    t.die("a").await;
    let generation = t.view("a").await.generation;
    has_not(t, Generation(generation.0 + 1), Some(generation)).await;
    let placed = t.put(job("a").if_generation(generation)).await;
    assert_eq!(placed.outcome, PutOutcome::Revived);
}

pub(crate) async fn a_put_that_is_refused_uses_nothing_up(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let generation = t.view("a").await.generation;
    exists(t, generation).await;
    assert_eq!(t.claim().await.id(), &id("a"));
    assert_eq!(t.counts().await, [1, 1, 0, 1]);
}
