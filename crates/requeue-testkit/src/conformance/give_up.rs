//! Bury and requeue: giving up, and running again after a success.

use crate::harness::{Harness, job, secs};
use requeue_jobs::{
    ClaimedJob, JobState, SettleError, Settled, Settlement, StoreError, limits::MAX_DELAY,
};
use std::time::Duration;

fn bury() -> Settlement {
    Settlement::Bury { error: "hopeless".into() }
}

/// Returns a job that has failed once and was claimed again.
async fn claimed(h: &Harness) -> ClaimedJob {
    h.put(job("a").body("old")).await;
    let first = h.claim().await;
    h.retry(&first, Duration::ZERO).await;
    h.claim().await
}

pub(crate) async fn a_buried_job_is_dead_even_with_attempts_left(h: &Harness) {
    let job = claimed(h).await;
    assert_eq!(h.settle(&job, bury()).await, Ok(Settled::Dead));
    let dead = h.view("a").await;
    assert_eq!((dead.state, dead.attempts, dead.deaths), (JobState::Dead, 2, 1));
    assert_eq!(dead.failures[1].error.as_deref(), Some("hopeless"));
    h.assert_lost(&job).await;
}

pub(crate) async fn a_successor_revives_a_buried_job(h: &Harness) {
    let held = claimed(h).await;
    h.put(job("a").body("new").after(secs(10))).await;
    assert_eq!(h.settle(&held, bury()).await, Ok(Settled::Dead));
    let revived = h.view("a").await;
    assert_eq!((revived.state, revived.attempts, revived.deaths), (JobState::Waiting, 0, 1));
    assert_eq!(revived.failures.len(), 2);
    h.advance(secs(10));
    let next = h.claim().await;
    assert_eq!((next.body().bytes(), next.attempt), (&b"new"[..], 1));
    assert!(next.version.generation > held.version.generation);
}

pub(crate) async fn a_requeued_job_starts_with_no_attempts(h: &Harness) {
    let job = claimed(h).await;
    assert_eq!(h.settle(&job, Settlement::RequeueAfter(secs(5))).await, Ok(Settled::Done));
    let waiting = h.view("a").await;
    assert_eq!((waiting.version.due, waiting.attempts), (h.after(secs(5)), 0));
    assert!(waiting.failures.is_empty());
    h.assert_lost(&job).await;
    h.advance(secs(5));
    let again = h.claim().await;
    assert_eq!((again.body().bytes(), again.attempt), (&b"old"[..], 1));
    assert!(
        again.version.generation > job.version.generation,
        "the requeued job has a new generation"
    );
}

pub(crate) async fn a_successor_replaces_a_requeued_job_and_is_not_early(h: &Harness) {
    let held = claimed(h).await;
    let put = h.put(job("a").body("new").after(secs(60))).await;
    assert_eq!(h.settle(&held, Settlement::RequeueAfter(secs(5))).await, Ok(Settled::Done));
    let next = h.view("a").await;
    assert_eq!((next.version.due, next.version.generation), (h.after(secs(60)), put.generation));
    assert_eq!(next.body().bytes(), b"new");
}

pub(crate) async fn a_cancelled_job_is_neither_buried_nor_requeued(h: &Harness) {
    for action in [bury(), Settlement::RequeueAfter(secs(5))] {
        let job = claimed(h).await;
        h.cancel("a").await;
        assert_eq!(h.settle(&job, action).await, Ok(Settled::Cancelled));
        h.advance(secs(60));
        h.claims_nothing().await;
    }
}

pub(crate) async fn the_delay_of_a_requeue_has_the_limit_of_a_put(h: &Harness) {
    let job = claimed(h).await;
    let refused = h.settle(&job, Settlement::RequeueAfter(MAX_DELAY + secs(1))).await;
    assert!(matches!(refused, Err(SettleError::Store(StoreError::Invalid(_)))));
    assert_eq!(h.settle(&job, Settlement::RequeueAfter(MAX_DELAY)).await, Ok(Settled::Done));
}
