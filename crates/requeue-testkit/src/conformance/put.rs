//! Putting a job that is absent, waiting or ready.

use crate::harness::{Harness, id, job, kind, millis, secs};
use requeue_jobs::{Body, JobState, PutOutcome, Timestamp};
use std::time::Duration;

pub(crate) async fn an_absent_job_is_created(h: &Harness) {
    let placed = h.put("a").await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    let view = h.view("a").await;
    assert_eq!((view.kind, view.id), (kind("mail"), id("a")));
    assert_eq!((view.state, view.version.due), (JobState::Ready, h.now()));
    assert_eq!((view.attempts, view.deaths, view.failures.len()), (0, 0, 0));
    assert_eq!((view.lease, view.next, view.died_at), (None, None, None));
    assert_eq!((view.created_at, view.updated_at), (h.now(), h.now()));
}

pub(crate) async fn a_body_is_delivered_unchanged(h: &Harness) {
    let body = Body::new([0, 255, 10, 0].as_slice(), "image/png").expect("a short body");
    h.put(job("a").carrying(body.clone())).await;
    assert_eq!(h.view("a").await.version.content.body, body);
    assert_eq!(h.claim().await.version.content.body, body);
}

pub(crate) async fn a_body_may_be_empty(h: &Harness) {
    h.put(job("a").carrying(Body::default())).await;
    assert_eq!(h.claim().await.version.content.body, Body::default());
}

pub(crate) async fn an_id_can_be_any_text(h: &Harness) {
    let names = ["a/b", " ", "a\nb", "\0", "ü→🦀", "{a}:b", "*", "%00"];
    h.put_in_order(names).await;
    for name in names {
        assert_eq!(h.view(name).await.id, id(name));
        let claimed = h.claim().await;
        assert_eq!(claimed.id(), &id(name));
        h.ack(&claimed).await;
        assert_eq!(h.get(name).await, None);
    }
}

pub(crate) async fn the_same_id_in_two_kinds_is_two_jobs(h: &Harness) {
    h.put(job("a").body("mail")).await;
    let placed = h.put(job("a").of("sms").body("sms")).await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    let claimed = h.claim().await;
    assert_eq!(claimed.body().bytes(), b"mail");
    h.ack(&claimed).await;
    let other = h.store.get(kind("sms"), id("a")).await.expect("the call succeeds");
    assert!(other.is_some());
}

pub(crate) async fn a_job_that_is_due_later_waits(h: &Harness) {
    h.put(job("a").after(secs(5))).await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(5))));
    assert_eq!((view.created_at, view.updated_at), (h.now(), h.now()));
    h.advance(secs(5));
    assert_eq!(h.view("a").await.state, JobState::Ready);
}

pub(crate) async fn a_due_time_in_the_past_means_now(h: &Harness) {
    h.put(job("a").at(Timestamp::from_millis(1))).await;
    assert_eq!(h.view("a").await.version.due, h.now());
    assert_eq!(h.claim().await.version.due, h.now());
}

pub(crate) async fn due_times_round_up_to_a_millisecond(h: &Harness) {
    h.put(job("a").after(Duration::from_nanos(1_000_001))).await;
    assert_eq!(h.view("a").await.version.due, h.after(millis(2)));
    h.advance(millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    h.claim().await;
}

pub(crate) async fn every_put_has_a_higher_generation(h: &Harness) {
    let mut last = h.put("a").await.generation;
    for name in ["b", "a", "a", "b", "c"] {
        let generation = h.put(name).await.generation;
        assert!(generation > last, "{generation} after {last}");
        last = generation;
    }
}

pub(crate) async fn put_get_and_claim_return_the_same_generation(h: &Harness) {
    h.put("a").await;
    let generation = h.put(job("a").body("again")).await.generation;
    assert_eq!(h.view("a").await.version.generation, generation);
    assert_eq!(h.claim().await.version.generation, generation);
}

pub(crate) async fn generations_keep_rising_after_a_job_has_ended(h: &Harness) {
    let first = h.put("a").await.generation;
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    let second = h.put("a").await.generation;
    assert!(second > first);
    h.cancel("a").await;
    assert!(h.put("a").await.generation > second);
}

pub(crate) async fn the_last_put_on_a_waiting_job_wins(h: &Harness) {
    h.put(job("a").body("first").after(secs(5))).await;
    for delay in [secs(60), secs(2)] {
        let placed = h.put(job("a").body("last").after(delay)).await;
        assert_eq!(placed.outcome, PutOutcome::Updated);
        assert_eq!(h.view("a").await.version.due, h.after(delay));
    }
    h.advance(secs(2));
    assert_eq!(h.claim().await.body().bytes(), b"last");
    h.claims_nothing().await;
}

pub(crate) async fn a_waiting_job_can_be_made_due_now(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    h.put("a").await;
    assert_eq!(h.claim().await.version.due, h.now());
}

pub(crate) async fn a_put_replaces_the_body_of_a_ready_job(h: &Harness) {
    h.put(job("a").body("first")).await;
    let placed = h.put(job("a").body("last")).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    let claimed = h.claim().await;
    assert_eq!(
        (claimed.body().bytes(), claimed.version.generation),
        (&b"last"[..], placed.generation)
    );
}

pub(crate) async fn a_ready_job_can_be_delayed(h: &Harness) {
    h.put("a").await;
    h.put(job("a").after(secs(5))).await;
    assert_eq!(h.view("a").await.state, JobState::Waiting);
    h.claims_nothing().await;
    h.advance(secs(5));
    h.claim().await;
}

pub(crate) async fn a_put_that_is_due_now_keeps_the_position(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let due = h.view("a").await.version.due;
    h.put(job("a").body("again")).await;
    assert_eq!(h.view("a").await.version.due, due);
    let claimed = h.claim().await;
    assert_eq!((claimed.id(), claimed.body().bytes()), (&id("a"), &b"again"[..]));
}

pub(crate) async fn a_job_that_is_put_repeatedly_is_not_starved(h: &Harness) {
    h.put_in_order(["a"]).await;
    for name in ["b", "c", "d"] {
        h.put_in_order([name, "a"]).await;
    }
    assert_eq!(h.claim().await.id(), &id("a"));
}

pub(crate) async fn a_delayed_job_that_is_due_again_goes_to_the_end(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    h.put(job("a").after(millis(1))).await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.id(), &id("b"));
}

pub(crate) async fn two_puts_with_the_same_id_are_one_job(h: &Harness) {
    for _ in 0..2 {
        h.put(job("a").after(secs(5))).await;
    }
    h.advance(secs(5));
    let claimed = h.claim().await;
    h.claims_nothing().await;
    h.ack(&claimed).await;
    h.claims_nothing().await;
}

pub(crate) async fn a_put_after_the_ack_is_a_new_job(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    h.ack(&first).await;
    h.advance(secs(1));
    assert_eq!(h.put("a").await.outcome, PutOutcome::Created);
    assert_eq!(h.view("a").await.created_at, h.now());
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn a_job_has_the_times_of_its_creation_and_last_change(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    let created = h.now();
    h.advance(secs(5));
    h.put("a").await;
    let view = h.view("a").await;
    assert_eq!((view.created_at, view.updated_at), (created, h.now()));
    assert_eq!(h.claim().await.created_at, created);
}
