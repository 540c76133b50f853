//! Waiting for work.

use crate::trial::{LEASE, Trial, job, millis, secs};
use requeue_jobs::limits::WAIT_SLICE;

pub(crate) async fn a_wait_is_over_at_once_where_there_is_work(t: &Trial) {
    t.put("a").await;
    t.look_for_work(secs(3600)).ends().await;
    t.claim().await;
}

pub(crate) async fn a_wait_takes_no_job(t: &Trial) {
    let waiting = t.wait();
    t.put("a").await;
    waiting.ends().await;
    assert_eq!(t.counts().await, [1, 0, 0, 1]);
}

pub(crate) async fn a_wait_ends_when_a_job_falls_due(t: &Trial) {
    t.put(job("a").after(millis(500))).await;
    let mut waiting = t.wait();
    t.advance(millis(499));
    assert!(!waiting.is_over());
    t.advance(millis(1));
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn a_put_ends_a_wait(t: &Trial) {
    let waiting = t.wait();
    t.put("a").await;
    waiting.ends().await;
}

pub(crate) async fn a_job_that_is_put_sooner_ends_a_wait_sooner(t: &Trial) {
    t.put(job("a").after(millis(900))).await;
    let waiting = t.wait();
    t.put(job("b").after(millis(100))).await;
    t.advance(millis(100));
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn run_now_and_revive_end_a_wait(t: &Trial) {
    t.put(job("a").after(secs(60))).await;
    let waiting = t.wait();
    t.run_now("a").await;
    waiting.ends().await;
    t.cancel("a").await;
    t.die("b").await;
    let waiting = t.wait();
    t.run_now("b").await;
    waiting.ends().await;
}

pub(crate) async fn a_release_ends_a_wait(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    let waiting = t.wait();
    t.release(&held).await;
    waiting.ends().await;
}

pub(crate) async fn an_ack_ends_the_wait_for_the_successor(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put("a").await;
    let waiting = t.wait();
    t.ack(&held).await;
    waiting.ends().await;
}

pub(crate) async fn an_expiry_ends_a_wait(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    t.advance(LEASE - millis(10));
    let waiting = t.wait();
    t.advance(millis(10));
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn a_resumed_kind_ends_a_wait(t: &Trial) {
    t.set(|settings| settings.paused = true).await;
    t.put("a").await;
    let waiting = t.wait();
    t.set(|settings| settings.paused = false).await;
    waiting.ends().await;
}

pub(crate) async fn freed_concurrency_ends_a_wait(t: &Trial) {
    t.set(|settings| settings.concurrency = Some(1)).await;
    t.put_in_line(["a", "b"]).await;
    let held = t.claim().await;
    let waiting = t.wait();
    t.ack(&held).await;
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn concurrency_freed_by_an_expiry_ends_a_wait(t: &Trial) {
    t.set(|settings| settings.concurrency = Some(1)).await;
    t.put_in_line(["a", "b"]).await;
    t.claim().await;
    t.advance(LEASE - millis(10));
    let waiting = t.wait();
    t.advance(millis(10));
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn a_wait_ends_with_its_limit(t: &Trial) {
    let mut waiting = t.wait_for(millis(300));
    t.advance(millis(299));
    assert!(!waiting.is_over());
    t.advance(millis(1));
    waiting.ends().await;
    t.claims_nothing().await;
}

pub(crate) async fn a_long_wait_ends_with_its_limit(t: &Trial) {
    let waiting = t.wait_for(3 * WAIT_SLICE);
    t.advance(3 * WAIT_SLICE);
    waiting.ends().await;
}

pub(crate) async fn a_wait_that_is_given_up_keeps_nobody_from_work(t: &Trial) {
    let (given_up, waiting) = (t.wait(), t.wait());
    drop(given_up);
    t.put("a").await;
    waiting.ends().await;
    t.claim().await;
}

pub(crate) async fn all_who_wait_hear_of_enough_jobs_for_all(t: &Trial) {
    let (one, other) = (t.wait(), t.wait());
    t.put_in_line(["a", "b"]).await;
    one.ends().await;
    other.ends().await;
}
