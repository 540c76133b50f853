//! `earliest`, `keep` and `debounce`, on every state.

use crate::trial::{Trial, job, secs};
use requeue_jobs::{Mode, PutOutcome};

pub(crate) async fn every_mode_creates_an_absent_job(t: &Trial) {
    let debounce = Mode::Debounce { max_wait: secs(60) };
    for (name, mode) in [("a", Mode::Earliest), ("b", Mode::Keep), ("c", debounce)] {
        let placed = t.put(job(name).after(secs(5)).mode(mode)).await;
        assert_eq!(placed.outcome, PutOutcome::Created);
        assert_eq!(t.view(name).await.due, t.after(secs(5)));
    }
}

pub(crate) async fn earliest_keeps_the_sooner_time_and_takes_the_body(t: &Trial) {
    t.put(job("a").after(secs(5))).await;
    let placed = t.put(job("a").body("later").after(secs(60)).mode(Mode::Earliest)).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    let view = t.view("a").await;
    assert_eq!((view.due, view.body.bytes()), (t.after(secs(5)), &b"later"[..]));
    assert_eq!(view.generation, placed.generation);
    t.put(job("a").body("sooner").after(secs(2)).mode(Mode::Earliest)).await;
    let view = t.view("a").await;
    assert_eq!((view.due, view.body.bytes()), (t.after(secs(2)), &b"sooner"[..]));
}

pub(crate) async fn earliest_does_not_put_off_a_ready_job(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    t.put(job("a").body("again").after(secs(60)).mode(Mode::Earliest)).await;
    let claimed = t.claim().await;
    assert_eq!((claimed.id().as_str(), claimed.body.bytes()), ("a", &b"again"[..]));
}

pub(crate) async fn keep_changes_nothing_of_a_waiting_job(t: &Trial) {
    let first = t.put(job("a").after(secs(5))).await;
    let before = t.view("a").await;
    t.advance(secs(1));
    let placed = t.put(job("a").body("other").mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, first.generation));
    assert_eq!(t.view("a").await, before);
}

pub(crate) async fn keep_changes_nothing_of_a_ready_job(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let before = t.view("a").await;
    let placed = t.put(job("a").body("other").after(secs(5)).mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, before.generation));
    assert_eq!(t.view("a").await, before);
    assert_eq!(t.claim().await.id().as_str(), "a");
}

pub(crate) async fn keep_on_a_leased_job_is_its_first_successor(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    let first = t.put(job("a").body("first").mode(Mode::Keep)).await;
    assert_eq!(first.outcome, PutOutcome::Coalesced);
    let second = t.put(job("a").body("second").mode(Mode::Keep)).await;
    assert_eq!((second.outcome, second.generation), (PutOutcome::Kept, first.generation));
    t.ack(&claimed).await;
    let next = t.claim().await;
    assert_eq!((next.body.bytes(), next.generation), (&b"first"[..], first.generation));
}

pub(crate) async fn keep_leaves_a_dead_job_dead(t: &Trial) {
    t.die("a").await;
    let before = t.view("a").await;
    t.advance(secs(1));
    let placed = t.put(job("a").body("other").mode(Mode::Keep)).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Kept, before.generation));
    assert_eq!(t.view("a").await, before);
    t.claims_nothing().await;
}

pub(crate) async fn earliest_and_debounce_revive_a_dead_job(t: &Trial) {
    for mode in [Mode::Earliest, Mode::Debounce { max_wait: secs(60) }] {
        t.die("a").await;
        let placed = t.put(job("a").after(secs(5)).mode(mode)).await;
        assert_eq!(placed.outcome, PutOutcome::Revived);
        assert_eq!(t.view("a").await.due, t.after(secs(5)));
        t.cancel("a").await;
    }
}

pub(crate) async fn debounce_moves_the_due_time(t: &Trial) {
    for body in ["first", "second", "third"] {
        t.put(job("a").body(body).after(secs(5)).debounce(secs(60))).await;
        assert_eq!(t.view("a").await.due, t.after(secs(5)));
        t.advance(secs(4));
        t.claims_nothing().await;
    }
    t.advance(secs(1));
    assert_eq!(t.claim().await.body.bytes(), b"third");
}

pub(crate) async fn debounce_ends_after_its_longest_wait(t: &Trial) {
    let end = t.after(secs(10));
    for _ in 0..3 {
        t.put(job("a").after(secs(5)).debounce(secs(10))).await;
        t.claims_nothing().await;
        t.advance(secs(3));
    }
    assert_eq!(t.view("a").await.due, end);
    t.advance(secs(60));
    let placed = t.put(job("a").body("last").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(placed.outcome, PutOutcome::Updated);
    assert_eq!(t.claim().await.body.bytes(), b"last");
}

pub(crate) async fn debounce_counts_from_the_first_put_in_whatever_mode(t: &Trial) {
    let began = t.now();
    t.put(job("a").after(secs(60))).await;
    t.advance(secs(8));
    t.put(job("a").after(secs(60)).mode(Mode::Earliest)).await;
    t.put(job("a").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_counts_on_over_a_failure(t: &Trial) {
    let began = t.now();
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(1)).await;
    t.advance(secs(8));
    t.put(job("a").after(secs(5)).debounce(secs(10))).await;
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_counts_anew_after_an_ack(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.put(job("a").after(secs(60))).await;
    t.ack(&claimed).await;
    t.advance(secs(8));
    let began = t.now();
    for _ in 0..2 {
        t.put(job("a").after(secs(7)).debounce(secs(10))).await;
        t.advance(secs(5));
    }
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn debounce_counts_anew_after_a_death(t: &Trial) {
    t.die("a").await;
    t.advance(secs(60));
    let began = t.now();
    for _ in 0..2 {
        t.put(job("a").after(secs(7)).debounce(secs(10))).await;
        t.advance(secs(5));
    }
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}

pub(crate) async fn earliest_applies_to_the_successor(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.put(job("a").after(secs(5))).await;
    let placed = t.put(job("a").body("last").after(secs(60)).mode(Mode::Earliest)).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    t.ack(&claimed).await;
    let view = t.view("a").await;
    assert_eq!((view.due, view.body.bytes()), (t.after(secs(5)), &b"last"[..]));
}

pub(crate) async fn earliest_on_a_leased_job_without_successor_takes_its_own_time(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.put(job("a").after(secs(60)).mode(Mode::Earliest)).await;
    t.ack(&claimed).await;
    assert_eq!(t.view("a").await.due, t.after(secs(60)));
}

pub(crate) async fn debounce_applies_to_the_successor(t: &Trial) {
    let began = t.now();
    t.put("a").await;
    let claimed = t.claim().await;
    for _ in 0..3 {
        t.put(job("a").after(secs(5)).debounce(secs(10))).await;
        t.advance(secs(4));
    }
    t.ack(&claimed).await;
    assert_eq!(t.view("a").await.due, began.saturating_add(secs(10)));
}
