//! Settlements that a worker needs: giving up, and coming back after a success.

use crate::trial::{Trial, job, secs};
use requeue_jobs::{
    ClaimedJob, JobState, SettleError, Settled, Settlement, StoreError, limits::MAX_DELAY,
};
use std::time::Duration;

fn bury() -> Settlement {
    Settlement::Bury { error: "hopeless".into() }
}

/// A job that has failed once, claimed again.
async fn claimed(t: &Trial) -> ClaimedJob {
    t.put(job("a").body("old")).await;
    let first = t.claim().await;
    t.retry(&first, Duration::ZERO).await;
    t.claim().await
}

pub(crate) async fn a_buried_job_is_dead_whatever_attempts_are_left(t: &Trial) {
    let job = claimed(t).await;
    assert_eq!(t.settle(&job, bury()).await, Ok(Settled::Dead));
    let dead = t.view("a").await;
    assert_eq!((dead.state, dead.attempts, dead.deaths), (JobState::Dead, 2, 1));
    assert_eq!(dead.failures[1].error.as_deref(), Some("hopeless"));
    t.assert_lost(&job).await;
}

pub(crate) async fn a_successor_revives_a_buried_job(t: &Trial) {
    let held = claimed(t).await;
    t.put(job("a").body("new").after(secs(10))).await;
    assert_eq!(t.settle(&held, bury()).await, Ok(Settled::Dead));
    let revived = t.view("a").await;
    assert_eq!((revived.state, revived.attempts, revived.deaths), (JobState::Waiting, 0, 1));
    assert_eq!(revived.failures.len(), 2);
    t.advance(secs(10));
    let next = t.claim().await;
    assert_eq!((next.body.bytes(), next.attempt), (&b"new"[..], 1));
    assert!(next.generation > held.generation);
}

pub(crate) async fn a_requeued_job_comes_back_with_nothing_counted(t: &Trial) {
    let job = claimed(t).await;
    assert_eq!(t.settle(&job, Settlement::RequeueAfter(secs(5))).await, Ok(Settled::Done));
    let waiting = t.view("a").await;
    assert_eq!((waiting.due, waiting.attempts), (t.after(secs(5)), 0));
    assert!(waiting.failures.is_empty());
    t.assert_lost(&job).await;
    t.advance(secs(5));
    let again = t.claim().await;
    assert_eq!((again.body.bytes(), again.attempt), (&b"old"[..], 1));
    assert!(again.generation > job.generation, "its effects are to happen again");
}

pub(crate) async fn a_successor_comes_instead_of_a_requeued_job_and_not_early(t: &Trial) {
    let held = claimed(t).await;
    let put = t.put(job("a").body("new").after(secs(60))).await;
    assert_eq!(t.settle(&held, Settlement::RequeueAfter(secs(5))).await, Ok(Settled::Done));
    let next = t.view("a").await;
    assert_eq!((next.due, next.generation), (t.after(secs(60)), put.generation));
    assert_eq!(next.body.bytes(), b"new");
}

pub(crate) async fn a_cancelled_job_is_neither_buried_nor_requeued(t: &Trial) {
    for action in [bury(), Settlement::RequeueAfter(secs(5))] {
        let job = claimed(t).await;
        t.cancel("a").await;
        assert_eq!(t.settle(&job, action).await, Ok(Settled::Cancelled));
        t.advance(secs(60));
        t.claims_nothing().await;
    }
}

pub(crate) async fn a_job_is_not_requeued_later_than_a_put_may_be(t: &Trial) {
    let job = claimed(t).await;
    let refused = t.settle(&job, Settlement::RequeueAfter(MAX_DELAY + secs(1))).await;
    assert!(matches!(refused, Err(SettleError::Store(StoreError::Invalid(_)))));
    assert_eq!(t.settle(&job, Settlement::RequeueAfter(MAX_DELAY)).await, Ok(Settled::Done));
}
