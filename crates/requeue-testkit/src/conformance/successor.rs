//! What is put while the job is leased.

use crate::trial::{LEASE, Trial, ids, job, millis, secs};
use requeue_jobs::{JobState, PutOutcome, Settled};

pub(crate) async fn a_put_does_not_disturb_the_holder(t: &Trial) {
    let first = t.put(job("a").body("held")).await;
    let held = t.claim().await;
    let next = t.put(job("a").body("next").after(secs(5))).await;
    assert_eq!(next.outcome, PutOutcome::Coalesced);
    let view = t.view("a").await;
    assert_eq!((view.state, view.generation), (JobState::Leased, first.generation));
    assert_eq!(view.body.bytes(), b"held");
    assert_eq!(view.newest_generation(), next.generation);
    let shown = view.next.expect("there is a successor");
    assert_eq!((shown.body.bytes(), shown.due), (&b"next"[..], t.after(secs(5))));
    assert_eq!(t.extend(&held, LEASE).await, Settled::Extended(t.after(LEASE)));
    assert_eq!(t.ack(&held).await, Settled::Done);
}

pub(crate) async fn a_successor_runs_after_the_ack_and_not_before(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").body("next")).await;
    t.claims_nothing().await;
    t.ack(&held).await;
    let next = t.claim().await;
    assert_eq!((next.body.bytes(), next.attempt), (&b"next"[..], 1));
}

pub(crate) async fn many_puts_are_one_successor_of_the_last_generation(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").body("first")).await;
    t.put(job("a").body("second").after(secs(60))).await;
    let last = t.put(job("a").body("last")).await;
    t.ack(&held).await;
    let next = t.claim().await;
    assert_eq!((next.body.bytes(), next.generation), (&b"last"[..], last.generation));
    t.claims_nothing().await;
    t.ack(&next).await;
    t.claims_nothing().await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn a_successor_that_is_due_later_waits(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").after(secs(10))).await;
    let due = t.after(secs(10));
    t.advance(secs(4));
    t.ack(&held).await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Waiting, due));
    t.advance(secs(6) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    t.claim().await;
}

pub(crate) async fn a_successor_that_fell_due_meanwhile_is_ready(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").after(secs(10))).await;
    t.advance(secs(20));
    t.ack(&held).await;
    t.claim().await;
}

pub(crate) async fn an_acked_jobs_successor_is_a_new_job(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.retry(&held, secs(0)).await;
    let held = t.claim().await;
    t.advance(secs(1));
    t.put("a").await;
    let created = t.now();
    t.advance(secs(1));
    t.put("a").await;
    t.advance(secs(1));
    t.ack(&held).await;
    let view = t.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (0, 0));
    assert_eq!((view.created_at, view.updated_at), (created, t.now()));
    assert_eq!(t.claim().await.created_at, created);
}

pub(crate) async fn a_failure_takes_the_successors_body_and_keeps_the_attempts(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    let next = t.put(job("a").body("next")).await;
    assert_eq!(t.retry(&held, secs(10)).await, Settled::RetryAt(t.after(secs(10))));
    let view = t.view("a").await;
    assert_eq!((view.attempts, view.next), (1, None));
    t.advance(secs(10));
    let again = t.claim().await;
    assert_eq!((again.body.bytes(), again.generation), (&b"next"[..], next.generation));
    assert_eq!(again.attempt, 2);
    t.ack(&again).await;
    t.claims_nothing().await;
}

pub(crate) async fn after_a_failure_the_later_of_backoff_and_successor_counts(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let held = t.claim_up_to(2).await;
    t.put(job("a").after(secs(5))).await;
    t.put(job("b").after(secs(60))).await;
    assert_eq!(t.retry(&held[0], secs(10)).await, Settled::RetryAt(t.after(secs(10))));
    assert_eq!(t.retry(&held[1], secs(10)).await, Settled::RetryAt(t.after(secs(60))));
    // The floor is the backoff's end all the same.
    t.put("b").await;
    assert_eq!(t.view("b").await.due, t.after(secs(10)));
}

pub(crate) async fn a_last_failure_buries_the_successor(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put("a").await;
    let held = t.claim().await;
    let next = t.put(job("a").body("next")).await;
    assert_eq!(t.retry(&held, secs(0)).await, Settled::Dead);
    let view = t.view("a").await;
    assert_eq!((view.state, view.body.bytes()), (JobState::Dead, &b"next"[..]));
    assert_eq!((view.generation, view.next), (next.generation, None));
    t.claims_nothing().await;
}

pub(crate) async fn an_expiry_hands_out_the_successor_that_is_due(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    let next = t.put(job("a").body("next").after(secs(5))).await;
    t.advance(LEASE);
    let again = t.claim().await;
    assert_eq!((again.body.bytes(), again.generation), (&b"next"[..], next.generation));
    assert_eq!(again.attempt, 2);
    t.ack(&again).await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn an_expiry_lets_a_successor_wait_that_is_not_due(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.put(job("a").body("next").after(secs(60))).await;
    let due = t.after(secs(60));
    t.advance(LEASE);
    t.claims_nothing().await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.due, view.attempts), (JobState::Waiting, due, 1));
    t.assert_lost(&held).await;
    t.advance(LEASE);
    let again = t.claim().await;
    assert_eq!((again.body.bytes(), again.attempt), (&b"next"[..], 2));
}

pub(crate) async fn a_last_expiry_buries_the_successor(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put("a").await;
    t.claim().await;
    t.put(job("a").body("next")).await;
    t.advance(LEASE);
    t.claims_nothing().await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.body.bytes()), (JobState::Dead, &b"next"[..]));
}

pub(crate) async fn the_reaper_takes_the_successor_too(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    t.claim_up_to(2).await;
    t.put(job("a").body("next")).await;
    t.put(job("b").body("next").after(secs(60))).await;
    t.advance(LEASE);
    assert_eq!(t.reap().await, 2);
    assert_eq!(
        (t.view("a").await.state, t.view("b").await.state),
        (JobState::Ready, JobState::Waiting)
    );
    for name in ["a", "b"] {
        let view = t.view(name).await;
        assert_eq!((view.body.bytes(), view.attempts), (&b"next"[..], 1));
    }
}

pub(crate) async fn a_release_puts_the_successor_on_the_pending_job(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    let next = t.put(job("a").body("next").after(secs(10))).await;
    assert_eq!(t.release(&held).await, Settled::Released);
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Waiting, t.after(secs(10))));
    assert_eq!((view.body.bytes(), view.generation), (&b"next"[..], next.generation));
    assert_eq!((view.attempts, view.next), (0, None));
    t.advance(secs(10));
    let job = t.claim().await;
    assert_eq!((job.attempt, job.created_at), (1, view.created_at));
    t.ack(&job).await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn a_release_with_a_successor_that_is_due_keeps_the_place_in_line(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let held = t.claim().await;
    t.put(job("a").body("next")).await;
    t.release(&held).await;
    let jobs = t.claim_up_to(10).await;
    assert_eq!((ids(&jobs), jobs[0].body.bytes()), (vec!["a", "b"], &b"next"[..]));
}

pub(crate) async fn a_release_with_a_successor_keeps_the_attempts(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    t.retry(&held, secs(0)).await;
    let held = t.claim().await;
    t.put("a").await;
    t.release(&held).await;
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn an_extended_lease_keeps_its_successor(t: &Trial) {
    t.put("a").await;
    let held = t.claim().await;
    let next = t.put(job("a").body("next")).await;
    t.extend(&held, secs(60)).await;
    t.ack(&held).await;
    assert_eq!(t.claim().await.generation, next.generation);
}
