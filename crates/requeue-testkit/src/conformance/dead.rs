//! Jobs whose attempts are used up.

use crate::trial::{Trial, job, millis, secs};
use requeue_jobs::{ChangeError, ChangeKind, Changed, JobState, PutOutcome, Retention};

pub(crate) async fn a_dead_job_is_kept_and_not_delivered(t: &Trial) {
    t.die("a").await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.deaths), (JobState::Dead, 1));
    assert_eq!((view.died_at, view.lease, view.attempts), (Some(t.now()), None, 1));
    t.advance(secs(3600));
    t.claims_nothing().await;
    assert_eq!(t.reap().await, 0);
    assert_eq!(t.counts().await, [0, 0, 1, 0]);
}

pub(crate) async fn a_dead_job_keeps_its_error(t: &Trial) {
    t.die("a").await;
    let failures = t.view("a").await.failures;
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].error.as_deref(), Some("it broke"));
}

pub(crate) async fn a_put_revives_a_dead_job(t: &Trial) {
    t.die("a").await;
    let placed = t.put(job("a").body("again")).await;
    assert_eq!(placed.outcome, PutOutcome::Revived);
    let view = t.view("a").await;
    assert_eq!((view.state, view.attempts, view.died_at), (JobState::Ready, 0, None));
    let claimed = t.claim().await;
    assert_eq!((claimed.attempt, claimed.body.bytes()), (1, &b"again"[..]));
    assert_eq!(claimed.generation, placed.generation);
}

pub(crate) async fn a_revived_job_is_due_when_it_was_put_for(t: &Trial) {
    t.die("a").await;
    t.put(job("a").after(secs(5))).await;
    assert_eq!(t.view("a").await.due, t.after(secs(5)));
    t.claims_nothing().await;
    t.advance(secs(5));
    t.claim().await;
}

pub(crate) async fn a_job_revived_by_a_put_keeps_its_last_error_and_its_deaths(t: &Trial) {
    t.die("a").await;
    t.put("a").await;
    let view = t.view("a").await;
    assert_eq!(view.deaths, 1);
    let last = view.failures.last().expect("it failed");
    assert_eq!(last.error.as_deref(), Some("it broke"));
}

pub(crate) async fn a_job_can_be_revived_by_name(t: &Trial) {
    t.die("a").await;
    t.advance(secs(60));
    assert_eq!(t.change("a", ChangeKind::Revive).await, Ok(Changed::Revived));
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Ready, t.now()));
    assert_eq!((view.attempts, view.deaths, view.died_at), (0, 1, None));
    assert_eq!(view.failures.last().and_then(|f| f.error.as_deref()), Some("it broke"));
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn only_a_dead_job_can_be_revived(t: &Trial) {
    let absent = t.change("a", ChangeKind::Revive).await;
    assert!(matches!(absent, Err(ChangeError::Absent { .. })));
    t.put(job("a").after(secs(5))).await;
    for _ in 0..2 {
        let before = t.view("a").await;
        t.advance(millis(1));
        let answer = t.change("a", ChangeKind::Revive).await;
        assert!(matches!(answer, Err(ChangeError::NotDead { .. })));
        assert_eq!(t.view("a").await, before);
        t.run_now("a").await;
    }
    t.claim().await;
    let answer = t.change("a", ChangeKind::Revive).await;
    assert!(matches!(answer, Err(ChangeError::NotDead { .. })));
}

pub(crate) async fn a_revived_job_may_fail_as_often_as_a_new_one(t: &Trial) {
    t.set(|settings| settings.max_attempts = 2).await;
    t.put("a").await;
    for deaths in 1..=2 {
        for attempt in 1..=2 {
            let claimed = t.claim().await;
            assert_eq!(claimed.attempt, attempt);
            t.retry(&claimed, secs(0)).await;
        }
        let view = t.view("a").await;
        assert_eq!((view.state, view.deaths), (JobState::Dead, deaths));
        t.change("a", ChangeKind::Revive).await.expect("it is dead");
    }
}

pub(crate) async fn no_backoff_holds_a_revived_job_back(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put_in_line(["a", "b"]).await;
    for claimed in t.claim_up_to(2).await {
        t.retry(&claimed, secs(3600)).await;
    }
    t.put("a").await;
    t.change("b", ChangeKind::Revive).await.expect("it is dead");
    t.put("b").await;
    assert_eq!(t.claim_up_to(10).await.len(), 2);
}

pub(crate) async fn dead_jobs_are_dropped_when_they_are_old(t: &Trial) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    t.set(|settings| settings.retention = retention).await;
    t.die("a").await;
    t.advance(secs(60));
    t.reap().await;
    assert!(t.get("a").await.is_some());
    t.advance(millis(1));
    assert_eq!(t.reap().await, 1);
    assert_eq!((t.get("a").await, t.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn the_reaper_drops_as_many_as_it_may(t: &Trial) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    t.set(|settings| settings.retention = retention).await;
    for name in ["a", "b", "c"] {
        t.die(name).await;
    }
    t.advance(secs(120));
    let dropped = t.store.reap(2).await.expect("it is answered").count;
    assert_eq!((dropped, t.counts().await), (2, [0, 0, 1, 0]));
}

pub(crate) async fn of_too_many_dead_jobs_the_latest_are_kept(t: &Trial) {
    let retention = Retention { count: 2, ..Retention::default() };
    t.set(|settings| settings.retention = retention).await;
    for name in ["c", "a", "b", "d"] {
        t.die(name).await;
        t.advance(millis(1));
    }
    t.reap().await;
    assert_eq!(t.list(|_| {}).await, ["b", "d"]);
    assert_eq!(t.counts().await, [0, 0, 2, 0]);
}

pub(crate) async fn what_was_revived_is_not_dropped(t: &Trial) {
    let retention = Retention { age: secs(60), ..Retention::default() };
    t.set(|settings| settings.retention = retention).await;
    t.die("a").await;
    t.put(job("a").after(secs(3600))).await;
    t.advance(secs(120));
    assert_eq!(t.reap().await, 0);
    assert_eq!(t.view("a").await.state, JobState::Waiting);
}
