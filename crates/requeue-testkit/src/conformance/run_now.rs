//! Making a job due now.

use crate::harness::{Harness, ids, job, secs};
use requeue_jobs::{ChangeError, ChangeKind, Changed, JobState};

pub(crate) async fn a_waiting_job_becomes_ready(h: &Harness) {
    h.put(job("a").after(secs(3600))).await;
    let generation = h.view("a").await.version.generation;
    h.advance(secs(1));
    assert_eq!(h.run_now("a").await, Changed::Ready);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Ready, h.now()));
    assert_eq!(view.updated_at, h.now());
    assert_eq!(h.claim().await.version.generation, generation);
}

pub(crate) async fn it_comes_after_jobs_that_were_ready_before(h: &Harness) {
    h.put(job("a").after(secs(3600))).await;
    h.put_in_order(["b"]).await;
    h.run_now("a").await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_ready_job_keeps_its_position(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let due = h.view("a").await.version.due;
    assert_eq!(h.run_now("a").await, Changed::Ready);
    assert_eq!(h.view("a").await.version.due, due);
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn it_ends_the_backoff_and_keeps_the_attempts(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(3600)).await;
    h.run_now("a").await;
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn a_put_does_not_restore_the_backoff(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(3600)).await;
    h.run_now("a").await;
    h.put(job("a").after(secs(5))).await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(5)));
}

pub(crate) async fn a_leased_job_without_successor_cannot_run_now(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let before = h.view("a").await;
    h.advance(secs(1));
    let result = h.change("a", ChangeKind::RunNow).await;
    assert!(matches!(result, Err(ChangeError::Leased { .. })));
    assert_eq!(h.view("a").await, before);
    h.ack(&claimed).await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn it_applies_to_the_successor_of_a_leased_job(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.put(job("a").body("next").after(secs(3600))).await;
    assert_eq!(h.run_now("a").await, Changed::Ready);
    h.claims_nothing().await;
    h.ack(&claimed).await;
    assert_eq!(h.claim().await.body().bytes(), b"next");
}

pub(crate) async fn it_revives_a_dead_job(h: &Harness) {
    h.die("a").await;
    assert_eq!(h.run_now("a").await, Changed::Revived);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Ready, h.now()));
    assert_eq!((view.attempts, view.deaths), (0, 1));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn an_absent_job_cannot_run(h: &Harness) {
    for _ in 0..2 {
        let result = h.change("a", ChangeKind::RunNow).await;
        assert!(matches!(result, Err(ChangeError::Absent { .. })));
        h.claims_nothing().await;
        // Not even if another job of its kind exists.
        h.put(job("b").after(secs(60))).await;
    }
}
