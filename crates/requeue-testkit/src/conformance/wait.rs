//! Waiting for jobs.

use crate::harness::{Harness, LEASE, job, millis, secs};
use requeue_jobs::limits::WAIT_SLICE;

pub(crate) async fn a_wait_returns_immediately_if_a_job_is_ready(h: &Harness) {
    h.put("a").await;
    h.begin_wait(secs(3600)).ends().await;
    h.claim().await;
}

pub(crate) async fn a_wait_does_not_claim_a_job(h: &Harness) {
    let waiting = h.wait();
    h.put("a").await;
    waiting.ends().await;
    assert_eq!(h.counts().await, [1, 0, 0, 1]);
}

pub(crate) async fn a_wait_ends_when_a_job_becomes_due(h: &Harness) {
    h.put(job("a").after(millis(500))).await;
    let mut waiting = h.wait();
    h.advance(millis(499));
    assert!(!waiting.is_over());
    h.advance(millis(1));
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_put_ends_a_wait(h: &Harness) {
    let waiting = h.wait();
    h.put("a").await;
    waiting.ends().await;
}

pub(crate) async fn a_job_that_is_put_sooner_ends_a_wait_sooner(h: &Harness) {
    h.put(job("a").after(millis(900))).await;
    let waiting = h.wait();
    h.put(job("b").after(millis(100))).await;
    h.advance(millis(100));
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn run_now_and_revive_end_a_wait(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    let waiting = h.wait();
    h.run_now("a").await;
    waiting.ends().await;
    h.cancel("a").await;
    h.die("b").await;
    let waiting = h.wait();
    h.run_now("b").await;
    waiting.ends().await;
}

pub(crate) async fn a_release_ends_a_wait(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    let waiting = h.wait();
    h.release(&held).await;
    waiting.ends().await;
}

pub(crate) async fn an_ack_ends_the_wait_for_the_successor(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put("a").await;
    let waiting = h.wait();
    h.ack(&held).await;
    waiting.ends().await;
}

pub(crate) async fn an_expiry_ends_a_wait(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    h.advance(LEASE - millis(10));
    let waiting = h.wait();
    h.advance(millis(10));
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_resumed_kind_ends_a_wait(h: &Harness) {
    h.set(|settings| settings.paused = true).await;
    h.put("a").await;
    let waiting = h.wait();
    h.set(|settings| settings.paused = false).await;
    waiting.ends().await;
}

pub(crate) async fn freed_concurrency_ends_a_wait(h: &Harness) {
    h.set(|settings| settings.concurrency = Some(1)).await;
    h.put_in_order(["a", "b"]).await;
    let held = h.claim().await;
    let waiting = h.wait();
    h.ack(&held).await;
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn concurrency_freed_by_an_expiry_ends_a_wait(h: &Harness) {
    h.set(|settings| settings.concurrency = Some(1)).await;
    h.put_in_order(["a", "b"]).await;
    h.claim().await;
    h.advance(LEASE - millis(10));
    let waiting = h.wait();
    h.advance(millis(10));
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_wait_ends_with_its_limit(h: &Harness) {
    let mut waiting = h.wait_for(millis(300));
    h.advance(millis(299));
    assert!(!waiting.is_over());
    h.advance(millis(1));
    waiting.ends().await;
    h.claims_nothing().await;
}

pub(crate) async fn a_long_wait_ends_with_its_limit(h: &Harness) {
    let waiting = h.wait_for(3 * WAIT_SLICE);
    h.advance(3 * WAIT_SLICE);
    waiting.ends().await;
}

pub(crate) async fn a_dropped_wait_does_not_affect_others(h: &Harness) {
    let (given_up, waiting) = (h.wait(), h.wait());
    drop(given_up);
    h.put("a").await;
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn all_waits_end_if_there_are_enough_jobs(h: &Harness) {
    let (one, other) = (h.wait(), h.wait());
    h.put_in_order(["a", "b"]).await;
    one.ends().await;
    other.ends().await;
}
