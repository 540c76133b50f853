//! Putting a job that is absent, waiting or ready.

use crate::trial::{Trial, id, job, kind, millis, secs};
use requeue_jobs::{Body, JobState, PutOutcome, Timestamp};
use std::time::Duration;

pub(crate) async fn an_absent_job_is_created(t: &Trial) {
    let placed = t.put("a").await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    let view = t.view("a").await;
    assert_eq!((view.kind, view.id), (kind("mail"), id("a")));
    assert_eq!((view.state, view.due), (JobState::Ready, t.now()));
    assert_eq!((view.attempts, view.deaths, view.failures.len()), (0, 0, 0));
    assert_eq!((view.lease, view.next, view.died_at), (None, None, None));
    assert_eq!((view.created_at, view.updated_at), (t.now(), t.now()));
}

pub(crate) async fn a_body_arrives_as_it_was_put(t: &Trial) {
    let body = Body::new([0, 255, 10, 0].as_slice(), "image/png").expect("a short body");
    t.put(job("a").carrying(body.clone())).await;
    assert_eq!(t.view("a").await.body, body);
    assert_eq!(t.claim().await.body, body);
}

pub(crate) async fn a_body_may_be_empty(t: &Trial) {
    t.put(job("a").carrying(Body::default())).await;
    assert_eq!(t.claim().await.body, Body::default());
}

pub(crate) async fn an_id_is_any_text(t: &Trial) {
    let names = ["a/b", " ", "a\nb", "\0", "ü→🦀", "{a}:b", "*", "%00"];
    t.put_in_line(names).await;
    for name in names {
        assert_eq!(t.view(name).await.id, id(name));
        let claimed = t.claim().await;
        assert_eq!(claimed.id(), &id(name));
        t.ack(&claimed).await;
        assert_eq!(t.get(name).await, None);
    }
}

pub(crate) async fn one_id_of_two_kinds_is_two_jobs(t: &Trial) {
    t.put(job("a").body("mail")).await;
    let placed = t.put(job("a").of("sms").body("sms")).await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    let claimed = t.claim().await;
    assert_eq!(claimed.body.bytes(), b"mail");
    t.ack(&claimed).await;
    let other = t.store.get(kind("sms"), id("a")).await.expect("it is answered");
    assert!(other.is_some());
}

pub(crate) async fn a_job_that_is_due_later_waits(t: &Trial) {
    t.put(job("a").after(secs(5))).await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Waiting, t.after(secs(5))));
    assert_eq!((view.created_at, view.updated_at), (t.now(), t.now()));
    t.advance(secs(5));
    assert_eq!(t.view("a").await.state, JobState::Ready);
}

pub(crate) async fn a_time_that_has_passed_is_now(t: &Trial) {
    t.put(job("a").at(Timestamp::from_millis(1))).await;
    assert_eq!(t.view("a").await.due, t.now());
    assert_eq!(t.claim().await.due, t.now());
}

pub(crate) async fn due_times_round_up_to_a_millisecond(t: &Trial) {
    t.put(job("a").after(Duration::from_nanos(1_000_001))).await;
    assert_eq!(t.view("a").await.due, t.after(millis(2)));
    t.advance(millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    t.claim().await;
}

pub(crate) async fn every_put_has_a_higher_generation(t: &Trial) {
    let mut last = t.put("a").await.generation;
    for name in ["b", "a", "a", "b", "c"] {
        let generation = t.put(name).await.generation;
        assert!(generation > last, "{generation} after {last}");
        last = generation;
    }
}

pub(crate) async fn put_get_and_claim_answer_the_same_generation(t: &Trial) {
    t.put("a").await;
    let generation = t.put(job("a").body("again")).await.generation;
    assert_eq!(t.view("a").await.generation, generation);
    assert_eq!(t.claim().await.generation, generation);
}

pub(crate) async fn generations_rise_over_the_end_of_the_job(t: &Trial) {
    let first = t.put("a").await.generation;
    let claimed = t.claim().await;
    t.ack(&claimed).await;
    let second = t.put("a").await.generation;
    assert!(second > first);
    t.cancel("a").await;
    assert!(t.put("a").await.generation > second);
}

pub(crate) async fn the_last_put_on_a_waiting_job_wins(t: &Trial) {
    t.put(job("a").body("first").after(secs(5))).await;
    for delay in [secs(60), secs(2)] {
        let placed = t.put(job("a").body("last").after(delay)).await;
        assert_eq!(placed.outcome, PutOutcome::Updated);
        assert_eq!(t.view("a").await.due, t.after(delay));
    }
    t.advance(secs(2));
    assert_eq!(t.claim().await.body.bytes(), b"last");
    t.claims_nothing().await;
}

pub(crate) async fn a_waiting_job_can_be_made_due_now(t: &Trial) {
    t.put(job("a").after(secs(60))).await;
    t.put("a").await;
    assert_eq!(t.claim().await.due, t.now());
}

pub(crate) async fn a_ready_job_takes_another_body(t: &Trial) {
    t.put(job("a").body("first")).await;
    let placed = t.put(job("a").body("last")).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    let claimed = t.claim().await;
    assert_eq!((claimed.body.bytes(), claimed.generation), (&b"last"[..], placed.generation));
}

pub(crate) async fn a_ready_job_can_be_put_off(t: &Trial) {
    t.put("a").await;
    t.put(job("a").after(secs(5))).await;
    assert_eq!(t.view("a").await.state, JobState::Waiting);
    t.claims_nothing().await;
    t.advance(secs(5));
    t.claim().await;
}

pub(crate) async fn a_put_that_is_due_now_keeps_the_place_in_line(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let due = t.view("a").await.due;
    t.put(job("a").body("again")).await;
    assert_eq!(t.view("a").await.due, due);
    let claimed = t.claim().await;
    assert_eq!((claimed.id(), claimed.body.bytes()), (&id("a"), &b"again"[..]));
}

pub(crate) async fn a_job_that_is_put_all_the_time_is_not_starved(t: &Trial) {
    t.put_in_line(["a"]).await;
    for name in ["b", "c", "d"] {
        t.put_in_line([name, "a"]).await;
    }
    assert_eq!(t.claim().await.id(), &id("a"));
}

pub(crate) async fn a_job_that_was_put_off_and_is_due_again_goes_to_the_end(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    t.put(job("a").after(millis(1))).await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.id(), &id("b"));
}

pub(crate) async fn two_puts_of_the_same_are_one_job(t: &Trial) {
    for _ in 0..2 {
        t.put(job("a").after(secs(5))).await;
    }
    t.advance(secs(5));
    let claimed = t.claim().await;
    t.claims_nothing().await;
    t.ack(&claimed).await;
    t.claims_nothing().await;
}

pub(crate) async fn a_put_repeated_after_the_ack_is_a_new_job(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    t.ack(&first).await;
    t.advance(secs(1));
    assert_eq!(t.put("a").await.outcome, PutOutcome::Created);
    assert_eq!(t.view("a").await.created_at, t.now());
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn a_job_keeps_when_it_was_created_and_when_it_was_changed(t: &Trial) {
    t.put(job("a").after(secs(60))).await;
    let created = t.now();
    t.advance(secs(5));
    t.put("a").await;
    let view = t.view("a").await;
    assert_eq!((view.created_at, view.updated_at), (created, t.now()));
    assert_eq!(t.claim().await.created_at, created);
}
