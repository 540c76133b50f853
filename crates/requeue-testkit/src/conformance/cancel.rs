//! Cancelling a job, whoever holds it.

use crate::trial::{LEASE, Trial, job, secs};
use requeue_jobs::{
    ChangeError, ChangeKind, Changed, JobState, PutError, PutOutcome, Settled, Settlement,
};

pub(crate) async fn a_pending_job_is_removed(t: &Trial) {
    t.put("ready").await;
    t.put(job("waiting").after(secs(5))).await;
    for name in ["ready", "waiting"] {
        assert_eq!(t.cancel(name).await, Changed::Removed);
        assert_eq!(t.get(name).await, None);
    }
    t.advance(secs(5));
    t.claims_nothing().await;
    assert_eq!(t.counts().await, [0, 0, 0, 0]);
}

pub(crate) async fn a_dead_job_is_removed(t: &Trial) {
    t.die("a").await;
    assert_eq!(t.cancel("a").await, Changed::Removed);
    assert_eq!((t.get("a").await, t.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn an_absent_job_is_not_cancelled(t: &Trial) {
    let answer = t.change("a", ChangeKind::Cancel).await;
    assert!(matches!(answer, Err(ChangeError::Absent { .. })));
    t.put("a").await;
    t.cancel("a").await;
    let answer = t.change("a", ChangeKind::Cancel).await;
    assert!(matches!(answer, Err(ChangeError::Absent { .. })));
}

pub(crate) async fn a_cancelled_job_can_be_put_anew(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(0)).await;
    t.cancel("a").await;
    assert_eq!(t.put("a").await.outcome, PutOutcome::Created);
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn a_leased_job_is_marked_and_ends_with_its_ack(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.advance(secs(1));
    assert_eq!(t.cancel("a").await, Changed::Ending);
    let view = t.view("a").await;
    assert_eq!((view.state, view.updated_at), (JobState::Leased, t.now()));
    assert!(view.lease.expect("it is leased").cancelled);
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
    assert_eq!(t.get("a").await, None);
    t.assert_lost(&held).await;
}

pub(crate) async fn cancel_twice_is_cancel_once(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    let before = t.view("a").await;
    assert_eq!(t.cancel("a").await, Changed::Ending);
    assert_eq!(t.view("a").await, before);
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
    t.claims_nothing().await;
}

pub(crate) async fn a_cancelled_job_does_not_come_back_by_retry_or_release(t: &Trial) {
    let retry = Settlement::Retry { delay: Some(secs(0)), error: "no".into() };
    for action in [retry, Settlement::Release] {
        t.put("a").await;
        let held = t.claim().await;
        t.cancel("a").await;
        assert_eq!(t.settle(&held, action).await, Ok(Settled::Cancelled));
        assert_eq!(t.get("a").await, None);
        t.claims_nothing().await;
    }
}

pub(crate) async fn the_holder_of_a_cancelled_job_is_told_when_it_extends(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    assert_eq!(t.extend(&held, secs(3600)).await, Settled::Cancelled);
    let lease = t.view("a").await.lease.expect("it is leased");
    assert_eq!(lease.ends_at, held.lease_ends_at);
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
}

pub(crate) async fn a_cancelled_lease_that_lapses_ends_the_job(t: &Trial) {
    t.put_in_line(["a"]).await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.advance(LEASE);
    t.claims_nothing().await;
    assert_eq!(t.get("a").await, None);
    t.assert_lost(&held).await;
}

pub(crate) async fn the_reaper_ends_a_cancelled_job(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put("a").await;
    t.claim().await;
    t.cancel("a").await;
    t.advance(LEASE);
    assert_eq!(t.reap().await, 1);
    assert_eq!((t.get("a").await, t.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn a_cancel_drops_the_successor(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put("a").await;
    t.cancel("a").await;
    assert_eq!(t.view("a").await.next, None);
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn a_put_does_not_erase_a_cancel(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.put("a").await;
    assert!(t.view("a").await.lease.expect("it is leased").cancelled);
    assert_eq!(t.extend(&held, LEASE).await, Settled::Cancelled);
    assert_eq!(t.ack(&held).await, Settled::Cancelled);
}

pub(crate) async fn a_put_after_a_cancel_is_a_new_job(t: &Trial) {
    let retry = Settlement::Retry { delay: Some(secs(3600)), error: "no".into() };
    for action in [Settlement::Ack, retry, Settlement::Release] {
        t.put("a").await;
        let held = t.claim().await;
        t.retry(&held, secs(0)).await;
        let held = t.claim().await;
        t.cancel("a").await;
        t.advance(secs(1));
        let placed = t.put(job("a").body("anew")).await;
        assert_eq!(placed.outcome, PutOutcome::Coalesced);
        let created = t.now();
        t.claims_nothing().await;
        t.advance(secs(1));
        assert_eq!(t.settle(&held, action).await, Ok(Settled::Cancelled));
        assert_eq!(t.view("a").await.failures, []);
        let anew = t.claim().await;
        assert_eq!((anew.attempt, anew.created_at), (1, created));
        assert_eq!((anew.generation, anew.body.bytes()), (placed.generation, &b"anew"[..]));
        t.ack(&anew).await;
        assert_eq!(t.get("a").await, None);
    }
}

pub(crate) async fn a_put_after_a_cancel_outlives_the_expiry(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put("a").await;
    t.claim().await;
    t.cancel("a").await;
    t.put(job("a").body("anew").after(secs(60))).await;
    let (created, due) = (t.now(), t.after(secs(60)));
    t.advance(LEASE);
    t.claims_nothing().await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.due, view.attempts), (JobState::Waiting, due, 0));
    assert_eq!(view.created_at, created);
    t.advance(LEASE);
    assert_eq!(t.claim().await.body.bytes(), b"anew");
}

pub(crate) async fn a_second_cancel_covers_what_was_put_after_the_first(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.put("a").await;
    assert_eq!(t.cancel("a").await, Changed::Ending);
    t.ack(&held).await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn debounce_counts_anew_after_a_cancel(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.cancel("a").await;
    t.advance(secs(20));
    let began = t.now();
    for _ in 0..2 {
        t.put(job("a").after(secs(7)).debounce(secs(10))).await;
        t.advance(secs(4));
    }
    t.ack(&held).await;
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn a_cancelled_lease_is_a_job_still(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    t.cancel("a").await;
    let answer = t.try_put(job("a").if_absent()).await;
    assert!(matches!(answer, Err(PutError::Exists { .. })));
    assert_eq!(t.counts().await, [0, 1, 0, 0]);
}
