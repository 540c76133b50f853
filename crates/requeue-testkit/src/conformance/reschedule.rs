//! Rescheduling a job: changing its due time, its priority or its body, and nothing else.

use crate::harness::{Harness, LEASE, id, ids, job, mail, millis, secs, text};
use requeue_jobs::limits::{MAX_BATCH_BYTES, MAX_BODY_LEN, MAX_DELAY};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Due, Generation, Invalid, JobState, JobView,
    Placed, Priority, PutOutcome, Reschedule, Retention, Settled, Settlement, StoreError,
    Timestamp,
};
use std::time::Duration;

fn after(delay: Duration) -> Reschedule {
    Reschedule { due: Some(Due::After(delay)), ..Reschedule::default() }
}

fn priority(level: u8) -> Reschedule {
    let priority = Priority::new(level).expect("a valid priority");
    Reschedule { priority: Some(priority), ..Reschedule::default() }
}

fn body(body: &str) -> Reschedule {
    Reschedule { body: Some(text(body)), ..Reschedule::default() }
}

fn if_generation(generation: Generation, set: Reschedule) -> Reschedule {
    Reschedule { if_generation: Some(generation), ..set }
}

/// A reschedule of each of the three.
fn one_of_each() -> [Reschedule; 3] {
    [after(secs(60)), priority(7), body("other")]
}

async fn try_reschedule(h: &Harness, name: &str, set: Reschedule) -> Result<Placed, ChangeError> {
    match h.change(name, ChangeKind::Reschedule(set)).await? {
        Changed::Rescheduled(placed) => Ok(placed),
        other => panic!("a reschedule returned {other:?}"),
    }
}

async fn reschedule(h: &Harness, name: &str, set: Reschedule) -> Placed {
    try_reschedule(h, name, set).await.expect("the job can be rescheduled")
}

async fn updated(h: &Harness, name: &str, set: Reschedule) -> JobView {
    let placed = reschedule(h, name, set).await;
    let view = h.view(name).await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Updated, view.version.generation));
    view
}

pub(crate) async fn a_new_due_time_changes_nothing_else(h: &Harness) {
    h.put(job("a").body("it").priority(4).after(secs(60))).await;
    let before = h.view("a").await;
    h.advance(secs(1));
    for delay in [secs(3600), secs(5), secs(0)] {
        let view = updated(h, "a", after(delay)).await;
        assert_eq!((view.version.due, view.updated_at), (h.after(delay), h.now()));
        assert_eq!((view.body(), view.version.priority), (before.body(), before.version.priority));
        assert_eq!((view.created_at, view.attempts), (before.created_at, 0));
    }
    assert_eq!(h.claim().await.version.content.body, before.version.content.body);
}

pub(crate) async fn a_new_priority_changes_nothing_else(h: &Harness) {
    h.put(job("a").body("it").after(secs(60))).await;
    let before = h.view("a").await;
    for level in [9, 0] {
        let view = updated(h, "a", priority(level)).await;
        assert_eq!(view.version.priority.get(), level);
        assert_eq!(
            (view.body(), view.version.due, view.state),
            (before.body(), before.version.due, before.state)
        );
    }
}

pub(crate) async fn a_new_body_changes_nothing_else(h: &Harness) {
    h.put(job("a").body("it").priority(4).after(secs(60))).await;
    let before = h.view("a").await;
    let json = Body::new(*b"[1]", "application/json").expect("a short body");
    for body in [json, Body::default()] {
        let set = Reschedule { body: Some(body.clone()), ..Reschedule::default() };
        let view = updated(h, "a", set).await;
        assert_eq!(view.version.content.body, body);
        assert_eq!(
            (view.version.due, view.version.priority),
            (before.version.due, before.version.priority)
        );
    }
    assert_eq!(h.view("a").await.body().len(), 0, "an empty body is a body");
}

pub(crate) async fn all_three_change_in_one_step(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    let set = Reschedule { due: Some(Due::Now), priority: priority(3).priority, ..body("new") };
    let view = updated(h, "a", set).await;
    assert_eq!((view.version.due, view.version.priority.get()), (h.now(), 3));
    assert_eq!(h.claim().await.version.content.body, text("new"));
}

pub(crate) async fn every_reschedule_has_a_higher_generation(h: &Harness) {
    let mut last = h.put(job("a").after(secs(60))).await.generation;
    // Also if it sets what the job has already.
    for set in one_of_each().into_iter().chain(one_of_each()) {
        let placed = reschedule(h, "a", set).await;
        assert!(placed.generation > last, "{placed:?} after {last:?}");
        last = placed.generation;
    }
    assert!(h.put("b").await.generation > last);
    h.advance(secs(60));
    h.claim_up_to(1).await;
    assert_eq!(h.view("a").await.version.generation, last);
}

pub(crate) async fn a_reschedule_of_nothing_is_invalid(h: &Harness) {
    let generation = h.put(job("a").after(secs(60))).await.generation;
    let before = h.view("a").await;
    for set in [Reschedule::default(), if_generation(generation, Reschedule::default())] {
        let action = ChangeKind::Reschedule(set);
        let change = Change { kind: mail(), id: id("a"), action };
        let result = h.store.change(vec![change]).await;
        let invalid = StoreError::Invalid(Invalid::NothingToChange);
        assert_eq!(result.map(|results| results.len()), Err(invalid));
    }
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn a_due_time_in_the_past_means_now(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    h.advance(secs(1));
    let past = Timestamp::from_millis(h.now().as_millis() - 3_600_000);
    let set = Reschedule { due: Some(Due::At(past)), ..Reschedule::default() };
    assert_eq!(updated(h, "a", set).await.version.due, h.now());
    h.claim().await;
}

pub(crate) async fn a_ready_job_that_stays_ready_keeps_its_position(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    let due = h.view("a").await.version.due;
    for set in [after(secs(0)), body("other")] {
        assert_eq!(updated(h, "a", set).await.version.due, due);
    }
    reschedule(h, "b", after(secs(1))).await;
    h.advance(secs(1));
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "c", "b"]);
}

pub(crate) async fn a_new_priority_changes_the_order(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    reschedule(h, "c", priority(9)).await;
    assert_eq!(ids(&h.claim_up_to(1).await), ["c"]);
    h.put(job("d").priority(5)).await;
    reschedule(h, "d", priority(0)).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b", "d"]);
}

pub(crate) async fn it_does_not_end_the_backoff(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(60)).await;
    let over = h.after(secs(60));
    assert_eq!(updated(h, "a", after(secs(0))).await.version.due, over);
    assert_eq!(updated(h, "a", after(secs(90))).await.version.due, h.after(secs(90)));
    assert_eq!(updated(h, "a", after(secs(5))).await.version.due, over);
}

pub(crate) async fn it_keeps_attempts_and_failures(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(0)).await;
    let before = h.view("a").await;
    assert_eq!(before.attempts, 1);
    for set in one_of_each() {
        let view = updated(h, "a", set).await;
        assert_eq!((view.attempts, &view.failures), (1, &before.failures));
    }
    h.advance(secs(60));
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn an_absent_job_is_not_created(h: &Harness) {
    for _ in 0..2 {
        for set in one_of_each() {
            let result = try_reschedule(h, "a", set).await;
            assert!(matches!(result, Err(ChangeError::Absent { .. })), "{result:?}");
        }
        assert_eq!(h.get("a").await, None);
        // Not even if another job of its kind exists.
        h.put(job("b").after(secs(3600))).await;
    }
}

pub(crate) async fn a_leased_job_gets_a_successor_with_its_content(h: &Harness) {
    for (set, due, level, content) in [
        (after(secs(40)), secs(40), 4, "it"),
        (priority(7), secs(0), 7, "it"),
        (body("other"), secs(0), 4, "other"),
    ] {
        h.put(job("a").body("it").priority(4)).await;
        let claimed = h.claim().await;
        h.advance(secs(1));
        let due = h.after(due);
        let placed = reschedule(h, "a", set).await;
        assert_eq!(placed.outcome, PutOutcome::Coalesced);
        assert!(placed.generation > claimed.version.generation);
        let view = h.view("a").await;
        assert_eq!(
            (view.version.content.body, view.version.priority.get(), view.state),
            (text("it"), 4, JobState::Leased)
        );
        let next = view.next.expect("it has a successor");
        assert_eq!(
            (next.due, next.priority.get(), next.generation),
            (due, level, placed.generation)
        );
        assert_eq!(next.content.body, text(content));
        // The worker is not disturbed.
        assert_eq!(h.ack(&claimed).await, Settled::Done);
        h.advance(secs(40));
        let next = h.claim().await;
        assert_eq!((next.body().clone(), next.attempt), (text(content), 1));
        assert_eq!(next.version.generation, placed.generation);
        h.ack(&next).await;
        assert_eq!(h.get("a").await, None);
    }
}

pub(crate) async fn a_successor_is_rescheduled(h: &Harness) {
    h.put(job("a").body("it")).await;
    let claimed = h.claim().await;
    h.put(job("a").body("next").priority(4).after(secs(60))).await;
    let mut expected = h.view("a").await.next.expect("it has a successor");
    for set in [after(secs(20)), priority(7), body("other")] {
        expected.due = set.due.map_or(expected.due, |_| h.after(secs(20)));
        expected.priority = set.priority.unwrap_or(expected.priority);
        expected.content.body = set.body.clone().unwrap_or(expected.content.body);
        let placed = reschedule(h, "a", set).await;
        assert_eq!(placed.outcome, PutOutcome::Coalesced);
        expected.generation = placed.generation;
        assert_eq!(h.view("a").await.next.as_ref(), Some(&expected));
    }
    h.ack(&claimed).await;
    h.claims_nothing().await;
    h.advance(secs(20));
    assert_eq!(h.claim().await.version.content.body, text("other"));
}

/// A lease ends when a claim or the reaper finds its end, and not before.
pub(crate) async fn a_job_whose_lease_has_expired_is_leased(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.advance(LEASE + secs(1));
    let placed = reschedule(h, "a", after(secs(60))).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    assert_eq!(h.ack(&claimed).await, Settled::Done);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(60))));
}

pub(crate) async fn a_failed_job_continues_as_it_was_rescheduled(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    reschedule(h, "a", after(secs(60))).await;
    let due = h.after(secs(60));
    assert_eq!(h.retry(&claimed, secs(5)).await, Settled::RetryAt(due));
    assert_eq!(
        (h.view("a").await.attempts, h.view("a").await.version.content.body),
        (1, text("a"))
    );
}

pub(crate) async fn a_cancelled_leased_job_is_absent(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.cancel("a").await;
    let before = h.view("a").await;
    h.advance(millis(1));
    for set in one_of_each() {
        let result = try_reschedule(h, "a", set).await;
        assert!(matches!(result, Err(ChangeError::Absent { .. })), "{result:?}");
    }
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.ack(&claimed).await, Settled::Cancelled);
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn what_was_put_after_a_cancel_is_rescheduled(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.cancel("a").await;
    h.put(job("a").body("next").after(secs(60))).await;
    let placed = reschedule(h, "a", after(secs(0))).await;
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    assert_eq!(h.ack(&claimed).await, Settled::Cancelled);
    assert_eq!(h.claim().await.version.content.body, text("next"));
}

pub(crate) async fn a_due_time_revives_a_dead_job(h: &Harness) {
    h.die(job("a").priority(4)).await;
    let errors = h.view("a").await.failures;
    let placed = reschedule(h, "a", after(secs(60))).await;
    let view = h.view("a").await;
    assert_eq!((placed.outcome, placed.generation), (PutOutcome::Revived, view.version.generation));
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(60))));
    assert_eq!((view.version.content.body, view.version.priority.get()), (text("a"), 4));
    assert_eq!((view.attempts, view.deaths, view.failures), (0, 1, errors));
    h.advance(secs(60));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn without_a_due_time_a_dead_job_stays_dead(h: &Harness) {
    h.set(|settings| settings.retention = Retention { age: secs(100), count: 10 }).await;
    h.die("a").await;
    let before = h.view("a").await;
    h.advance(secs(60));
    for set in [body("other"), priority(7)] {
        let view = updated(h, "a", set).await;
        assert!(view.version.generation > before.version.generation);
        assert_eq!((view.state, view.attempts), (JobState::Dead, before.attempts));
        assert_eq!((view.deaths, &view.failures), (before.deaths, &before.failures));
    }
    assert_eq!(h.counts().await, [0, 0, 1, 0]);
    h.claims_nothing().await;
    // It is kept for as long as before.
    h.advance(secs(39));
    assert_eq!(h.reap().await, 0);
    assert_eq!(h.change("a", ChangeKind::Revive).await, Ok(Changed::Revived));
    let claimed = h.claim().await;
    assert_eq!((claimed.body().clone(), claimed.version.priority.get()), (text("other"), 7));
    h.ack(&claimed).await;
    h.die("b").await;
    h.advance(secs(60));
    reschedule(h, "b", body("other")).await;
    h.advance(secs(40) + millis(1));
    assert_eq!(h.reap().await, 1);
}

pub(crate) async fn a_done_job_cannot_be_rescheduled(h: &Harness) {
    h.set(|settings| settings.keep_done = Some(Retention::default())).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    let before = h.view("a").await;
    h.advance(millis(1));
    for set in one_of_each() {
        let generation = before.version.generation;
        for set in [set.clone(), if_generation(generation, set)] {
            let result = try_reschedule(h, "a", set).await;
            assert!(matches!(result, Err(ChangeError::Done { .. })), "{result:?}");
        }
    }
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn if_generation_compares_with_the_newest_put(h: &Harness) {
    let first = h.put(job("a").after(secs(60))).await.generation;
    let second = reschedule(h, "a", if_generation(first, after(secs(0)))).await.generation;
    let claimed = h.claim().await;
    let third = reschedule(h, "a", if_generation(second, body("b"))).await.generation;
    // The generation of the leased job is not the newest.
    for stale in [first, second] {
        let result = try_reschedule(h, "a", if_generation(stale, body("c"))).await;
        let expected = stale;
        let (kind, id) = (mail(), id("a"));
        assert_eq!(result, Err(ChangeError::Generation { kind, id, expected, found: third }));
    }
    h.ack(&claimed).await;
    let claimed = h.claim().await;
    assert_eq!((claimed.version.generation, claimed.version.content.body), (third, text("b")));
}

pub(crate) async fn a_condition_that_fails_changes_nothing(h: &Harness) {
    h.put(job("waiting").after(secs(3600))).await;
    h.die("dead").await;
    h.put("leased").await;
    h.claim().await;
    h.put("followed").await;
    h.claim().await;
    h.put(job("followed").after(secs(60))).await;
    h.put("ready").await;
    let last = h.put("last").await.generation;
    h.advance(millis(1));
    for name in ["waiting", "ready", "leased", "followed", "dead"] {
        let before = h.view(name).await;
        for set in one_of_each() {
            let result = try_reschedule(h, name, if_generation(Generation(last.0 + 9), set)).await;
            assert!(matches!(result, Err(ChangeError::Generation { .. })), "{name}: {result:?}");
        }
        assert_eq!(h.view(name).await, before);
    }
    let absent = try_reschedule(h, "absent", if_generation(last, body("x"))).await;
    assert!(matches!(absent, Err(ChangeError::Absent { .. })), "{absent:?}");
    assert!(h.put("next").await.generation > last);
}

pub(crate) async fn a_due_time_that_is_too_far_changes_nothing(h: &Harness) {
    h.put(job("waiting").after(secs(3600))).await;
    h.die("dead").await;
    h.put("leased").await;
    h.claim().await;
    let longer = MAX_DELAY + millis(1);
    for name in ["waiting", "leased", "dead"] {
        let before = h.view(name).await;
        for due in [Due::After(longer), Due::At(h.after(longer))] {
            let set = Reschedule { due: Some(due), ..body("other") };
            match try_reschedule(h, name, set).await {
                Err(ChangeError::Store(StoreError::Invalid(Invalid::OutOfRange {
                    value, ..
                }))) => assert_eq!(value, longer),
                other => panic!("expected an error about the limit, got {other:?}"),
            }
        }
        assert_eq!(h.view(name).await, before);
    }
    assert_eq!(updated(h, "waiting", after(MAX_DELAY)).await.version.due, h.after(MAX_DELAY));
}

pub(crate) async fn debounce_counts_a_reschedule_as_a_put(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let requeue = Settlement::RequeueAfter(secs(60));
    assert_eq!(h.settle(&claimed, requeue).await, Ok(Settled::Done));
    let began = h.now();
    reschedule(h, "a", after(secs(7))).await;
    h.advance(secs(4));
    h.put(job("a").after(secs(7)).debounce(secs(10))).await;
    assert_eq!(h.view("a").await.version.due, began.saturating_add(secs(10)));
}

pub(crate) async fn a_job_that_is_rescheduled_sooner_ends_a_wait(h: &Harness) {
    h.put(job("a").after(secs(3600))).await;
    let waiting = h.wait();
    reschedule(h, "a", after(secs(0))).await;
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_batch_of_changes_is_executed_in_order(h: &Harness) {
    let generation = h.put(job("a").after(secs(60))).await.generation;
    h.put(job("b").after(secs(60))).await;
    let change = |name: &str, action| Change { kind: mail(), id: id(name), action };
    let first = if_generation(generation, priority(3));
    let set = |set: Reschedule| ChangeKind::Reschedule(set);
    let changes = vec![
        change("a", set(first.clone())),
        // The first has changed the generation.
        change("a", set(first)),
        change("a", set(body("other"))),
        change("b", ChangeKind::RunNow),
        change("b", set(after(secs(5)))),
        change("a", ChangeKind::Cancel),
        change("a", set(body("late"))),
    ];
    let results = h.store.change(changes).await.expect("the call succeeds");
    let due = h.after(secs(5));
    assert!(matches!(results[0], Ok(Changed::Rescheduled(_))), "{results:#?}");
    assert!(matches!(results[1], Err(ChangeError::Generation { .. })), "{results:#?}");
    assert!(matches!(results[2], Ok(Changed::Rescheduled(_))), "{results:#?}");
    assert_eq!((&results[3], &results[5]), (&Ok(Changed::Ready), &Ok(Changed::Removed)));
    assert!(matches!(results[4], Ok(Changed::Rescheduled(_))), "{results:#?}");
    assert!(matches!(results[6], Err(ChangeError::Absent { .. })), "{results:#?}");
    assert_eq!((h.get("a").await, h.view("b").await.version.due), (None, due));
}

pub(crate) async fn the_bodies_of_a_batch_are_sixteen_mebibytes_at_most(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    let before = h.view("a").await;
    let count = MAX_BATCH_BYTES / MAX_BODY_LEN;
    let large = Body::new(vec![b'x'; MAX_BODY_LEN], "text/plain").expect("the limit");
    let of = |body: Body| {
        let action = ChangeKind::Reschedule(Reschedule { body: Some(body), ..Default::default() });
        Change { kind: mail(), id: id("a"), action }
    };
    let mut changes: Vec<Change> = (0..count).map(|_| of(large.clone())).collect();
    changes.push(of(text("x")));
    let result = h.store.change(changes).await.map(|results| results.len());
    let limit = MAX_BATCH_BYTES;
    assert!(
        matches!(
            result,
            Err(StoreError::Invalid(Invalid::TooLong { len, limit: l, .. }))
                if len == limit + 1 && l == limit
        ),
        "{result:?}"
    );
    assert_eq!(h.view("a").await, before);
}
