//! The modes `earliest`, `keep` and `debounce`, in every state of a job.

use crate::harness::{Harness, job, secs};
use requeue_jobs::{Mode, PutOutcome};

pub(crate) async fn every_mode_creates_an_absent_job(h: &Harness) {
    let debounce = Mode::Debounce { max_wait: secs(60) };
    for (name, mode) in [("a", Mode::Earliest), ("b", Mode::Keep), ("c", debounce)] {
        let placed = h.put(job(name).after(secs(5)).mode(mode)).await;
        assert_eq!(placed.outcome, PutOutcome::Created);
        assert_eq!(h.view(name).await.version.due, h.after(secs(5)));
    }
}

pub(crate) async fn earliest_keeps_the_sooner_time_and_replaces_the_body(h: &Harness) {
    h.put(job("a").after(secs(5))).await;
    let placed = h.put(job("a").body("later").after(secs(60)).mode(Mode::Earliest)).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    let view = h.view("a").await;
    assert_eq!((view.version.due, view.body().bytes()), (h.after(secs(5)), &b"later"[..]));
    assert_eq!(view.version.generation, placed.generation);
    h.put(job("a").body("sooner").after(secs(2)).mode(Mode::Earliest)).await;
    let view = h.view("a").await;
    assert_eq!((view.version.due, view.body().bytes()), (h.after(secs(2)), &b"sooner"[..]));
}

pub(crate) async fn earliest_does_not_delay_a_ready_job(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    h.put(job("a").body("again").after(secs(60)).mode(Mode::Earliest)).await;
    let claimed = h.claim().await;
    assert_eq!((claimed.id().as_str(), claimed.body().bytes()), ("a", &b"again"[..]));
}

pub(crate) async fn keep_does_not_change_a_waiting_job(h: &Harness) {
    let first = h.put(job("a").after(secs(5))).await;
    let before = h.view("a").await;
    h.advance(secs(1));
    let placed = h.put(job("a").body("other").mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, first.generation));
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn keep_does_not_change_a_ready_job(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let before = h.view("a").await;
    let placed = h.put(job("a").body("other").after(secs(5)).mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, before.version.generation));
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.claim().await.id().as_str(), "a");
}

pub(crate) async fn the_first_keep_on_a_leased_job_is_its_successor(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let first = h.put(job("a").body("first").mode(Mode::Keep)).await;
    assert_eq!(first.outcome, PutOutcome::Coalesced);
    let second = h.put(job("a").body("second").mode(Mode::Keep)).await;
    assert_eq!((second.outcome, second.generation), (PutOutcome::Kept, first.generation));
    h.ack(&claimed).await;
    let next = h.claim().await;
    assert_eq!((next.body().bytes(), next.version.generation), (&b"first"[..], first.generation));
}

pub(crate) async fn keep_leaves_a_dead_job_dead(h: &Harness) {
    h.die("a").await;
    let before = h.view("a").await;
    h.advance(secs(1));
    let placed = h.put(job("a").body("other").mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, before.version.generation));
    assert_eq!(h.view("a").await, before);
    h.claims_nothing().await;
}

pub(crate) async fn earliest_and_debounce_revive_a_dead_job(h: &Harness) {
    for mode in [Mode::Earliest, Mode::Debounce { max_wait: secs(60) }] {
        h.die("a").await;
        let placed = h.put(job("a").after(secs(5)).mode(mode)).await;
        assert_eq!(placed.outcome, PutOutcome::Revived);
        assert_eq!(h.view("a").await.version.due, h.after(secs(5)));
        h.cancel("a").await;
    }
}

pub(crate) async fn debounce_moves_the_due_time(h: &Harness) {
    for body in ["first", "second", "third"] {
        h.put(job("a").body(body).after(secs(5)).debounce(secs(60))).await;
        assert_eq!(h.view("a").await.version.due, h.after(secs(5)));
        h.advance(secs(4));
        h.claims_nothing().await;
    }
    h.advance(secs(1));
    assert_eq!(h.claim().await.body().bytes(), b"third");
}

pub(crate) async fn debounce_waits_no_longer_than_max_wait(h: &Harness) {
    let end = h.after(secs(10));
    for _ in 0..3 {
        h.put(job("a").after(secs(5)).debounce(secs(10))).await;
        h.claims_nothing().await;
        h.advance(secs(3));
    }
    assert_eq!(h.view("a").await.version.due, end);
    h.advance(secs(60));
    let placed = h.put(job("a").body("last").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    assert_eq!(h.claim().await.body().bytes(), b"last");
}

pub(crate) async fn debounce_counts_from_the_first_put_in_any_mode(h: &Harness) {
    let began = h.now();
    h.put(job("a").after(secs(60))).await;
    h.advance(secs(8));
    h.put(job("a").after(secs(60)).mode(Mode::Earliest)).await;
    h.put(job("a").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_does_not_restart_after_a_failure(h: &Harness) {
    let began = h.now();
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(1)).await;
    h.advance(secs(8));
    h.put(job("a").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_restarts_after_an_ack(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.put(job("a").after(secs(60))).await;
    h.ack(&claimed).await;
    h.advance(secs(8));
    let began = h.now();
    for _ in 0..2 {
        h.put(job("a").after(secs(7)).debounce(secs(10))).await;
        h.advance(secs(5));
    }
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_restarts_after_a_death(h: &Harness) {
    h.die("a").await;
    h.advance(secs(60));
    let began = h.now();
    for _ in 0..2 {
        h.put(job("a").after(secs(7)).debounce(secs(10))).await;
        h.advance(secs(5));
    }
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn earliest_applies_to_the_successor(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.put(job("a").after(secs(5))).await;
    let placed = h.put(job("a").body("last").after(secs(60)).mode(Mode::Earliest)).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    h.ack(&claimed).await;
    let view = h.view("a").await;
    assert_eq!((view.version.due, view.body().bytes()), (h.after(secs(5)), &b"last"[..]));
}

pub(crate) async fn earliest_on_a_leased_job_without_successor_uses_its_own_time(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.put(job("a").after(secs(60)).mode(Mode::Earliest)).await;
    h.ack(&claimed).await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(60)));
}

pub(crate) async fn debounce_applies_to_the_successor(h: &Harness) {
    let began = h.now();
    h.put("a").await;
    let claimed = h.claim().await;
    for _ in 0..3 {
        h.put(job("a").after(secs(5)).debounce(secs(10))).await;
        h.advance(secs(4));
    }
    h.ack(&claimed).await;
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}
