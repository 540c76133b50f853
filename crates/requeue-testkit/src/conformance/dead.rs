//! Dead jobs.

use crate::harness::{Harness, job, millis, secs};
use requeue_jobs::{ChangeError, ChangeKind, Changed, JobState, PutOutcome, Retention};

pub(crate) async fn a_dead_job_is_kept_and_not_delivered(h: &Harness) {
    h.die("a").await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.deaths), (JobState::Dead, 1));
    assert_eq!((view.died_at, view.lease, view.attempts), (Some(h.now()), None, 1));
    h.advance(secs(3600));
    h.claims_nothing().await;
    assert_eq!(h.reap().await, 0);
    assert_eq!(h.counts().await, [0, 0, 1, 0]);
}

pub(crate) async fn a_dead_job_keeps_its_error(h: &Harness) {
    h.die("a").await;
    let failures = h.view("a").await.failures;
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].error.as_deref(), Some("it broke"));
}

pub(crate) async fn a_put_revives_a_dead_job(h: &Harness) {
    h.die("a").await;
    let placed = h.put(job("a").body("again")).await;
    assert_eq!(placed.outcome, PutOutcome::Revived);
    let view = h.view("a").await;
    assert_eq!((view.state, view.attempts, view.died_at), (JobState::Ready, 0, None));
    let claimed = h.claim().await;
    assert_eq!((claimed.attempt, claimed.body().bytes()), (1, &b"again"[..]));
    assert_eq!(claimed.version.generation, placed.generation);
}

pub(crate) async fn a_job_revived_by_a_put_has_its_due_time(h: &Harness) {
    h.die("a").await;
    h.put(job("a").after(secs(5))).await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(5)));
    h.claims_nothing().await;
    h.advance(secs(5));
    h.claim().await;
}

pub(crate) async fn a_job_revived_by_a_put_keeps_its_last_error_and_its_deaths(h: &Harness) {
    h.die("a").await;
    h.put("a").await;
    let view = h.view("a").await;
    assert_eq!(view.deaths, 1);
    let last = view.failures.last().expect("the job has failed");
    assert_eq!(last.error.as_deref(), Some("it broke"));
}

pub(crate) async fn a_job_can_be_revived_by_name(h: &Harness) {
    h.die("a").await;
    h.advance(secs(60));
    assert_eq!(h.change("a", ChangeKind::Revive).await, Ok(Changed::Revived));
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Ready, h.now()));
    assert_eq!((view.attempts, view.deaths, view.died_at), (0, 1, None));
    assert_eq!(view.failures.last().and_then(|f| f.error.as_deref()), Some("it broke"));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn only_a_dead_job_can_be_revived(h: &Harness) {
    let absent = h.change("a", ChangeKind::Revive).await;
    assert!(matches!(absent, Err(ChangeError::Absent { .. })));
    h.put(job("a").after(secs(5))).await;
    for _ in 0..2 {
        let before = h.view("a").await;
        h.advance(millis(1));
        let result = h.change("a", ChangeKind::Revive).await;
        assert!(matches!(result, Err(ChangeError::NotDead { .. })));
        assert_eq!(h.view("a").await, before);
        h.run_now("a").await;
    }
    h.claim().await;
    let result = h.change("a", ChangeKind::Revive).await;
    assert!(matches!(result, Err(ChangeError::NotDead { .. })));
}

pub(crate) async fn a_revived_job_may_fail_as_often_as_a_new_one(h: &Harness) {
    h.set(|settings| settings.max_attempts = 2).await;
    h.put("a").await;
    for deaths in 1..=2 {
        for attempt in 1..=2 {
            let claimed = h.claim().await;
            assert_eq!(claimed.attempt, attempt);
            h.retry(&claimed, secs(0)).await;
        }
        let view = h.view("a").await;
        assert_eq!((view.state, view.deaths), (JobState::Dead, deaths));
        h.change("a", ChangeKind::Revive).await.expect("the job is dead");
    }
}

pub(crate) async fn a_revived_job_has_no_backoff(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put_in_order(["a", "b"]).await;
    for claimed in h.claim_up_to(2).await {
        h.retry(&claimed, secs(3600)).await;
    }
    h.put("a").await;
    h.change("b", ChangeKind::Revive).await.expect("the job is dead");
    h.put("b").await;
    assert_eq!(h.claim_up_to(10).await.len(), 2);
}

pub(crate) async fn dead_jobs_are_dropped_when_they_are_old(h: &Harness) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    h.set(|settings| settings.retention = retention).await;
    h.die("a").await;
    h.advance(secs(60));
    h.reap().await;
    assert!(h.get("a").await.is_some());
    h.advance(millis(1));
    assert_eq!(h.reap().await, 1);
    assert_eq!((h.get("a").await, h.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn the_reaper_drops_at_most_max_dead_jobs(h: &Harness) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    h.set(|settings| settings.retention = retention).await;
    for name in ["a", "b", "c"] {
        h.die(name).await;
    }
    h.advance(secs(120));
    let dropped = h.store.reap(2).await.expect("the call succeeds").count;
    assert_eq!((dropped, h.counts().await), (2, [0, 0, 1, 0]));
}

pub(crate) async fn of_too_many_dead_jobs_the_latest_are_kept(h: &Harness) {
    let retention = Retention { count: 2, ..Retention::default() };
    h.set(|settings| settings.retention = retention).await;
    for name in ["c", "a", "b", "d"] {
        h.die(name).await;
        h.advance(millis(1));
    }
    h.reap().await;
    assert_eq!(h.list(|_| {}).await, ["b", "d"]);
    assert_eq!(h.counts().await, [0, 0, 2, 0]);
}

pub(crate) async fn a_revived_job_is_not_dropped(h: &Harness) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    h.set(|settings| settings.retention = retention).await;
    h.die("a").await;
    h.put(job("a").after(secs(3600))).await;
    h.advance(secs(120));
    assert_eq!(h.reap().await, 0);
    assert_eq!(h.view("a").await.state, JobState::Waiting);
}
