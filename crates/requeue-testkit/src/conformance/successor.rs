//! Successors: puts on a leased job.

use crate::harness::{Harness, LEASE, ids, job, millis, secs};
use requeue_jobs::{JobState, PutOutcome, Settled};

pub(crate) async fn a_put_does_not_disturb_the_holder(h: &Harness) {
    let first = h.put(job("a").body("held")).await;
    let held = h.claim().await;
    let next = h.put(job("a").body("next").after(secs(5))).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.generation), (JobState::Leased, first.generation));
    assert_eq!(view.body().bytes(), b"held");
    assert_eq!(view.newest_generation(), next.generation);
    let shown = view.next.expect("the job has a successor");
    assert_eq!((shown.content.body.bytes(), shown.due), (&b"next"[..], h.after(secs(5))));
    assert_eq!(h.extend(&held, LEASE).await, Settled::Extended(h.after(LEASE)));
    assert_eq!(h.ack(&held).await, Settled::Done);
}

pub(crate) async fn a_successor_runs_after_the_ack_and_not_before(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").body("next")).await;
    h.claims_nothing().await;
    h.ack(&held).await;
    let next = h.claim().await;
    assert_eq!((next.body().bytes(), next.attempt), (&b"next"[..], 1));
}

pub(crate) async fn many_puts_make_one_successor_with_the_last_generation(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").body("first")).await;
    h.put(job("a").body("second").after(secs(60))).await;
    let last = h.put(job("a").body("last")).await;
    h.ack(&held).await;
    let next = h.claim().await;
    assert_eq!((next.body().bytes(), next.version.generation), (&b"last"[..], last.generation));
    h.claims_nothing().await;
    h.ack(&next).await;
    h.claims_nothing().await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn a_successor_that_is_due_later_waits(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").after(secs(10))).await;
    let due = h.after(secs(10));
    h.advance(secs(4));
    h.ack(&held).await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Waiting, due));
    h.advance(secs(6) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    h.claim().await;
}

pub(crate) async fn a_successor_that_became_due_meanwhile_is_ready(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").after(secs(10))).await;
    h.advance(secs(20));
    h.ack(&held).await;
    h.claim().await;
}

pub(crate) async fn an_acked_jobs_successor_is_a_new_job(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.retry(&held, secs(0)).await;
    let held = h.claim().await;
    h.advance(secs(1));
    h.put("a").await;
    let created = h.now();
    h.advance(secs(1));
    h.put("a").await;
    h.advance(secs(1));
    h.ack(&held).await;
    let view = h.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (0, 0));
    assert_eq!((view.created_at, view.updated_at), (created, h.now()));
    assert_eq!(h.claim().await.created_at, created);
}

pub(crate) async fn after_a_failure_the_successor_replaces_the_body_and_the_attempts_stay(
    h: &Harness,
) {
    h.put("a").await;
    let held = h.claim().await;
    let next = h.put(job("a").body("next")).await;
    assert_eq!(h.retry(&held, secs(10)).await, Settled::RetryAt(h.after(secs(10))));
    let view = h.view("a").await;
    assert_eq!((view.attempts, view.next), (1, None));
    h.advance(secs(10));
    let again = h.claim().await;
    assert_eq!((again.body().bytes(), again.version.generation), (&b"next"[..], next.generation));
    assert_eq!(again.attempt, 2);
    h.ack(&again).await;
    h.claims_nothing().await;
}

pub(crate) async fn after_a_failure_the_later_time_of_backoff_and_successor_counts(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let held = h.claim_up_to(2).await;
    h.put(job("a").after(secs(5))).await;
    h.put(job("b").after(secs(60))).await;
    assert_eq!(h.retry(&held[0], secs(10)).await, Settled::RetryAt(h.after(secs(10))));
    assert_eq!(h.retry(&held[1], secs(10)).await, Settled::RetryAt(h.after(secs(60))));
    // The backoff still ends at the same time.
    h.put("b").await;
    assert_eq!(h.view("b").await.version.due, h.after(secs(10)));
}

pub(crate) async fn a_last_failure_buries_the_successor(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put("a").await;
    let held = h.claim().await;
    let next = h.put(job("a").body("next")).await;
    assert_eq!(h.retry(&held, secs(0)).await, Settled::Dead);
    let view = h.view("a").await;
    assert_eq!((view.state, view.body().bytes()), (JobState::Dead, &b"next"[..]));
    assert_eq!((view.version.generation, view.next), (next.generation, None));
    h.claims_nothing().await;
}

pub(crate) async fn after_an_expiry_a_due_successor_is_delivered(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    let next = h.put(job("a").body("next").after(secs(5))).await;
    h.advance(LEASE);
    let again = h.claim().await;
    assert_eq!((again.body().bytes(), again.version.generation), (&b"next"[..], next.generation));
    assert_eq!(again.attempt, 2);
    h.ack(&again).await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn after_an_expiry_a_successor_that_is_not_due_waits(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.put(job("a").body("next").after(secs(60))).await;
    let due = h.after(secs(60));
    h.advance(LEASE);
    h.claims_nothing().await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due, view.attempts), (JobState::Waiting, due, 1));
    h.assert_lost(&held).await;
    h.advance(LEASE);
    let again = h.claim().await;
    assert_eq!((again.body().bytes(), again.attempt), (&b"next"[..], 2));
}

pub(crate) async fn a_last_expiry_buries_the_successor(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put("a").await;
    h.claim().await;
    h.put(job("a").body("next")).await;
    h.advance(LEASE);
    h.claims_nothing().await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.body().bytes()), (JobState::Dead, &b"next"[..]));
}

pub(crate) async fn the_reaper_replaces_the_job_with_its_successor(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    h.claim_up_to(2).await;
    h.put(job("a").body("next")).await;
    h.put(job("b").body("next").after(secs(60))).await;
    h.advance(LEASE);
    assert_eq!(h.reap().await, 2);
    assert_eq!(
        (h.view("a").await.state, h.view("b").await.state),
        (JobState::Ready, JobState::Waiting)
    );
    for name in ["a", "b"] {
        let view = h.view(name).await;
        assert_eq!((view.body().bytes(), view.attempts), (&b"next"[..], 1));
    }
}

pub(crate) async fn a_release_applies_the_successor_like_a_put(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    let next = h.put(job("a").body("next").after(secs(10))).await;
    assert_eq!(h.release(&held).await, Settled::Released);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(10))));
    assert_eq!((view.body().bytes(), view.version.generation), (&b"next"[..], next.generation));
    assert_eq!((view.attempts, view.next), (0, None));
    h.advance(secs(10));
    let job = h.claim().await;
    assert_eq!((job.attempt, job.created_at), (1, view.created_at));
    h.ack(&job).await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn a_release_with_a_successor_that_is_due_keeps_the_position(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let held = h.claim().await;
    h.put(job("a").body("next")).await;
    h.release(&held).await;
    let jobs = h.claim_up_to(10).await;
    assert_eq!((ids(&jobs), jobs[0].body().bytes()), (vec!["a", "b"], &b"next"[..]));
}

pub(crate) async fn a_release_with_a_successor_keeps_the_attempts(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    h.retry(&held, secs(0)).await;
    let held = h.claim().await;
    h.put("a").await;
    h.release(&held).await;
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn an_extended_lease_keeps_its_successor(h: &Harness) {
    h.put("a").await;
    let held = h.claim().await;
    let next = h.put(job("a").body("next")).await;
    h.extend(&held, secs(60)).await;
    h.ack(&held).await;
    assert_eq!(h.claim().await.version.generation, next.generation);
}
