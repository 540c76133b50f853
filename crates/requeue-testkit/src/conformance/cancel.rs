//! Cancelling jobs in every state.

use crate::harness::{Harness, LEASE, job, secs};
use requeue_jobs::{
    ChangeError, ChangeKind, Changed, JobState, PutError, PutOutcome, Settled, Settlement,
};

pub(crate) async fn a_pending_job_is_removed(h: &Harness) {
    h.put("ready").await;
    h.put(job("waiting").after(secs(5))).await;
    for name in ["ready", "waiting"] {
        assert_eq!(h.cancel(name).await, Changed::Removed);
        assert_eq!(h.get(name).await, None);
    }
    h.advance(secs(5));
    h.claims_nothing().await;
    assert_eq!(h.counts().await, [0, 0, 0, 0]);
}

pub(crate) async fn a_dead_job_is_removed(h: &Harness) {
    h.die("a").await;
    assert_eq!(h.cancel("a").await, Changed::Removed);
    assert_eq!((h.get("a").await, h.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn an_absent_job_is_not_cancelled(h: &Harness) {
    let result = h.change("a", ChangeKind::Cancel).await;
    assert!(matches!(result, Err(ChangeError::Absent { .. })));
    h.put("a").await;
    h.cancel("a").await;
    let result = h.change("a", ChangeKind::Cancel).await;
    assert!(matches!(result, Err(ChangeError::Absent { .. })));
}

pub(crate) async fn a_cancelled_job_can_be_put_again(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(0)).await;
    h.cancel("a").await;
    assert_eq!(h.put("a").await.outcome, PutOutcome::Created);
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn a_cancelled_leased_job_ends_with_its_ack(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.advance(secs(1));
    assert_eq!(h.cancel("a").await, Changed::Ending);
    let view = h.view("a").await;
    assert_eq!((view.state, view.updated_at), (JobState::Leased, h.now()));
    assert!(view.lease.expect("the job is leased").cancelled);
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
    assert_eq!(h.get("a").await, None);
    h.assert_lost(&held).await;
}

pub(crate) async fn a_second_cancel_changes_nothing(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    let before = h.view("a").await;
    assert_eq!(h.cancel("a").await, Changed::Ending);
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
    h.claims_nothing().await;
}

pub(crate) async fn a_cancelled_job_does_not_come_back_by_retry_or_release(h: &Harness) {
    let retry = Settlement::Retry { delay: Some(secs(0)), error: "no".into() };
    for action in [retry, Settlement::Release] {
        h.put("a").await;
        let held = h.claim().await;
        h.cancel("a").await;
        assert_eq!(h.settle(&held, action).await, Ok(Settled::Cancelled));
        assert_eq!(h.get("a").await, None);
        h.claims_nothing().await;
    }
}

pub(crate) async fn an_extension_of_a_cancelled_job_returns_cancelled(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    assert_eq!(h.extend(&held, secs(3600)).await, Settled::Cancelled);
    let lease = h.view("a").await.lease.expect("the job is leased");
    assert_eq!(lease.ends_at, held.lease_ends_at);
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
}

pub(crate) async fn a_cancelled_job_ends_when_its_lease_expires(h: &Harness) {
    h.put_in_order(["a"]).await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.advance(LEASE);
    h.claims_nothing().await;
    assert_eq!(h.get("a").await, None);
    h.assert_lost(&held).await;
}

pub(crate) async fn the_reaper_ends_a_cancelled_job(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put("a").await;
    h.claim().await;
    h.cancel("a").await;
    h.advance(LEASE);
    assert_eq!(h.reap().await, 1);
    assert_eq!((h.get("a").await, h.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn a_cancel_drops_the_successor(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put("a").await;
    h.cancel("a").await;
    assert_eq!(h.view("a").await.next, None);
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn a_put_does_not_erase_a_cancel(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.put("a").await;
    assert!(h.view("a").await.lease.expect("the job is leased").cancelled);
    assert_eq!(h.extend(&held, LEASE).await, Settled::Cancelled);
    assert_eq!(h.ack(&held).await, Settled::Cancelled);
}

pub(crate) async fn a_put_after_a_cancel_is_a_new_job(h: &Harness) {
    let retry = Settlement::Retry { delay: Some(secs(3600)), error: "no".into() };
    for action in [Settlement::Ack, retry, Settlement::Release] {
        h.put("a").await;
        let held = h.claim().await;
        h.retry(&held, secs(0)).await;
        let held = h.claim().await;
        h.cancel("a").await;
        h.advance(secs(1));
        let placed = h.put(job("a").body("again")).await;
        assert_eq!(placed.outcome, PutOutcome::Coalesced);
        let created = h.now();
        h.claims_nothing().await;
        h.advance(secs(1));
        assert_eq!(h.settle(&held, action).await, Ok(Settled::Cancelled));
        assert_eq!(h.view("a").await.failures, []);
        let again = h.claim().await;
        assert_eq!((again.attempt, again.created_at), (1, created));
        assert_eq!(
            (again.version.generation, again.body().bytes()),
            (placed.generation, &b"again"[..])
        );
        h.ack(&again).await;
        assert_eq!(h.get("a").await, None);
    }
}

pub(crate) async fn a_put_after_a_cancel_outlives_the_expiry(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put("a").await;
    h.claim().await;
    h.cancel("a").await;
    h.put(job("a").body("again").after(secs(60))).await;
    let (created, due) = (h.now(), h.after(secs(60)));
    h.advance(LEASE);
    h.claims_nothing().await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due, view.attempts), (JobState::Waiting, due, 0));
    assert_eq!(view.created_at, created);
    h.advance(LEASE);
    assert_eq!(h.claim().await.body().bytes(), b"again");
}

pub(crate) async fn a_second_cancel_covers_puts_after_the_first(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.put("a").await;
    assert_eq!(h.cancel("a").await, Changed::Ending);
    h.ack(&held).await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn debounce_restarts_after_a_cancel(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.cancel("a").await;
    h.advance(secs(20));
    let began = h.now();
    for _ in 0..2 {
        h.put(job("a").after(secs(7)).debounce(secs(10))).await;
        h.advance(secs(4));
    }
    h.ack(&held).await;
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn a_cancelled_leased_job_still_exists(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    h.cancel("a").await;
    let result = h.try_put(job("a").if_absent()).await;
    assert!(matches!(result, Err(PutError::Exists { .. })));
    assert_eq!(h.counts().await, [0, 1, 0, 0]);
}
