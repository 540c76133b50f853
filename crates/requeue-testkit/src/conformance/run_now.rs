//! Making a job due now.

use crate::trial::{Trial, ids, job, secs};
use requeue_jobs::{ChangeError, ChangeKind, Changed, JobState};

pub(crate) async fn a_waiting_job_becomes_ready(t: &Trial) {
    t.put(job("a").after(secs(3600))).await;
    let generation = t.view("a").await.generation;
    t.advance(secs(1));
    assert_eq!(t.run_now("a").await, Changed::Ready);
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Ready, t.now()));
    assert_eq!(view.updated_at, t.now());
    assert_eq!(t.claim().await.generation, generation);
}

pub(crate) async fn it_stands_behind_those_that_were_ready_before(t: &Trial) {
    t.put(job("a").after(secs(3600))).await;
    t.put_in_line(["b"]).await;
    t.run_now("a").await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_ready_job_keeps_its_place_in_line(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let due = t.view("a").await.due;
    assert_eq!(t.run_now("a").await, Changed::Ready);
    assert_eq!(t.view("a").await.due, due);
    assert_eq!(ids(&t.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn it_lifts_the_backoff_and_keeps_the_attempts(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(3600)).await;
    t.run_now("a").await;
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn the_floor_stays_lifted_for_puts(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(3600)).await;
    t.run_now("a").await;
    t.put(job("a").after(secs(5))).await;
    assert_eq!(t.view("a").await.due, t.after(secs(5)));
}

pub(crate) async fn a_leased_job_without_successor_cannot_run_now(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    let before = t.view("a").await;
    t.advance(secs(1));
    let answer = t.change("a", ChangeKind::RunNow).await;
    assert!(matches!(answer, Err(ChangeError::Leased { .. })));
    assert_eq!(t.view("a").await, before);
    t.ack(&claimed).await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn it_applies_to_the_successor_of_a_leased_job(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.put(job("a").body("next").after(secs(3600))).await;
    assert_eq!(t.run_now("a").await, Changed::Ready);
    t.claims_nothing().await;
    t.ack(&claimed).await;
    assert_eq!(t.claim().await.body.bytes(), b"next");
}

pub(crate) async fn it_revives_a_dead_job(t: &Trial) {
    t.die("a").await;
    assert_eq!(t.run_now("a").await, Changed::Revived);
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Ready, t.now()));
    assert_eq!((view.attempts, view.deaths), (0, 1));
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn an_absent_job_cannot_run(t: &Trial) {
    for _ in 0..2 {
        let answer = t.change("a", ChangeKind::RunNow).await;
        assert!(matches!(answer, Err(ChangeError::Absent { .. })));
        t.claims_nothing().await;
        // Not even where there is another of its kind.
        t.put(job("b").after(secs(60))).await;
    }
}
