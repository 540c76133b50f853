//! Priorities of jobs, and how ready jobs gain levels.

use crate::harness::{Harness, LEASE, ids, job, millis, secs};
use requeue_jobs::{
    ChangeKind, Invalid, JobState, Mode, Restored, Settings, Settlement, StoreError,
};
use std::time::Duration;

/// Puts jobs a millisecond apart, each with its priority.
async fn put_all<const N: usize>(h: &Harness, jobs: [(&str, u8); N]) {
    for (name, priority) in jobs {
        h.put(job(name).priority(priority)).await;
        h.advance(millis(1));
    }
}

pub(crate) async fn a_job_has_the_priority_of_its_put(h: &Harness) {
    h.put(job("a").priority(7)).await;
    h.put("b").await;
    assert_eq!(
        (h.view("a").await.version.priority.get(), h.view("b").await.version.priority.get()),
        (7, 0)
    );
    assert_eq!(h.claim().await.version.priority.get(), 7);
    assert_eq!(h.view("a").await.version.priority.get(), 7, "while it is leased");
    assert_eq!(h.claim().await.version.priority.get(), 0);
}

pub(crate) async fn higher_priorities_are_claimed_first(h: &Harness) {
    put_all(h, [("a", 0), ("b", 9), ("c", 3), ("d", 9), ("e", 0), ("f", 4)]).await;
    assert_eq!(ids(&h.claim_up_to(3).await), ["b", "d", "f"]);
    assert_eq!(ids(&h.claim_up_to(3).await), ["c", "a", "e"]);
}

pub(crate) async fn a_priority_makes_no_job_due_earlier(h: &Harness) {
    h.put(job("a").priority(9).after(secs(5))).await;
    h.put("b").await;
    assert_eq!(ids(&h.claim_up_to(2).await), ["b"]);
    h.advance(millis(4999));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(ids(&h.claim_up_to(2).await), ["a"]);
}

pub(crate) async fn a_ready_job_gains_a_level_for_each_span_of_the_ageing(h: &Harness) {
    h.set(|settings| settings.ageing = Some(secs(60))).await;
    h.put(job("a").priority(1)).await;
    h.advance(millis(119_999));
    h.put(job("b").priority(3)).await;
    assert_eq!(ids(&h.claim_up_to(1).await), ["b"], "a has gained one level");
    h.put(job("c").priority(3)).await;
    h.advance(millis(1));
    assert_eq!(ids(&h.claim_up_to(1).await), ["a"], "it has gained two, and is older");
    assert_eq!(ids(&h.claim_up_to(1).await), ["c"]);
}

pub(crate) async fn the_ageing_counts_from_the_due_time(h: &Harness) {
    h.set(|settings| settings.ageing = Some(secs(60))).await;
    h.put(job("a").after(secs(100))).await;
    h.advance(secs(120));
    h.put(job("b").priority(1)).await;
    assert_eq!(ids(&h.claim_up_to(2).await), ["b", "a"], "a has been ready for 20 seconds");
}

pub(crate) async fn no_job_is_overtaken_for_ever(h: &Harness) {
    let default = h.settings().await.ageing;
    assert_eq!(default, Some(secs(600)));
    h.put("a").await;
    for minute in 0..90 {
        h.put(job(&format!("other {minute}")).priority(9)).await;
        let claimed = h.claim().await;
        assert_eq!(claimed.version.priority.get(), 9, "in minute {minute}");
        h.ack(&claimed).await;
        h.advance(secs(60));
    }
    h.put(job("other").priority(9)).await;
    assert_eq!(h.claim().await.id().as_str(), "a");
}

pub(crate) async fn without_ageing_a_higher_priority_is_always_first(h: &Harness) {
    h.set(|settings| settings.ageing = None).await;
    h.put("a").await;
    h.advance(secs(30 * 86_400));
    h.put(job("b").priority(1)).await;
    assert_eq!(ids(&h.claim_up_to(2).await), ["b", "a"]);
}

pub(crate) async fn an_ageing_out_of_range_is_rejected(h: &Harness) {
    for ageing in [Duration::ZERO, secs(40_000 * 86_400)] {
        let mut settings = Settings::default();
        settings.ageing = Some(ageing);
        let error = h.store.set(crate::harness::mail(), settings).await;
        let invalid = matches!(
            &error,
            Err(StoreError::Invalid(Invalid::OutOfRange { field, .. })) if *field == "the ageing"
        );
        assert!(invalid, "{error:?}");
    }
}

pub(crate) async fn a_put_changes_the_priority_of_a_pending_job(h: &Harness) {
    put_all(h, [("a", 5), ("b", 5)]).await;
    h.put(job("a").priority(2)).await;
    assert_eq!(ids(&h.claim_up_to(1).await), ["b"]);
    h.put(job("c").priority(2)).await;
    let a = h.view("a").await;
    assert_eq!(a.version.priority.get(), 2);
    assert_eq!(ids(&h.claim_up_to(2).await), ["a", "c"], "a has kept its due time");
}

pub(crate) async fn keep_does_not_change_the_priority(h: &Harness) {
    h.put(job("a").priority(5)).await;
    h.put(job("a").priority(9).mode(Mode::Keep)).await;
    assert_eq!(h.view("a").await.version.priority.get(), 5);
}

pub(crate) async fn earliest_keeps_the_higher_priority(h: &Harness) {
    h.put(job("a").priority(5).after(secs(10))).await;
    h.put(job("a").priority(2).mode(Mode::Earliest).after(secs(5))).await;
    let a = h.view("a").await;
    assert_eq!((a.version.priority.get(), a.version.due), (5, h.after(secs(5))));
    h.put(job("a").priority(8).mode(Mode::Earliest).after(secs(60))).await;
    let a = h.view("a").await;
    assert_eq!((a.version.priority.get(), a.version.due), (8, h.after(secs(5))));
}

pub(crate) async fn a_successor_has_its_own_priority(h: &Harness) {
    h.put(job("a").priority(5)).await;
    let a = h.claim().await;
    h.put(job("a").priority(1)).await;
    h.put(job("b").priority(3)).await;
    let view = h.view("a").await;
    let next = view.next.expect("there is a successor");
    assert_eq!((view.version.priority.get(), next.priority.get()), (5, 1));
    h.put(job("a").priority(0).mode(Mode::Earliest)).await;
    assert_eq!(h.view("a").await.next.map(|next| next.priority.get()), Some(1));
    h.ack(&a).await;
    assert_eq!(h.view("a").await.version.priority.get(), 1);
    assert_eq!(ids(&h.claim_up_to(2).await), ["b", "a"]);
}

pub(crate) async fn retry_release_and_requeue_keep_the_priority(h: &Harness) {
    put_all(h, [("a", 5), ("b", 3)]).await;
    let a = h.claim().await;
    h.release(&a).await;
    let a = h.claim().await;
    assert_eq!((a.id().as_str(), a.version.priority.get()), ("a", 5));
    h.retry(&a, secs(0)).await;
    let a = h.claim().await;
    assert_eq!((a.id().as_str(), a.version.priority.get()), ("a", 5));
    let requeued = h.settle(&a, Settlement::RequeueAfter(secs(0))).await;
    requeued.expect("the lease is current");
    let a = h.claim().await;
    assert_eq!((a.id().as_str(), a.version.priority.get()), ("a", 5));
}

pub(crate) async fn an_expired_lease_keeps_the_priority(h: &Harness) {
    put_all(h, [("a", 1), ("b", 5)]).await;
    assert_eq!(ids(&h.claim_up_to(2).await), ["b", "a"]);
    h.put(job("c").priority(3)).await;
    h.advance(LEASE);
    assert_eq!(ids(&h.claim_up_to(3).await), ["b", "c", "a"]);
    h.advance(LEASE);
    assert_eq!(h.reap().await, 3);
    assert_eq!(ids(&h.claim_up_to(3).await), ["b", "c", "a"]);
}

pub(crate) async fn a_successor_after_an_expired_lease_has_its_own_priority(h: &Harness) {
    h.put(job("a").priority(5)).await;
    h.claim().await;
    h.put(job("a").priority(1)).await;
    h.put(job("b").priority(3)).await;
    h.advance(LEASE);
    assert_eq!(ids(&h.claim_up_to(2).await), ["b", "a"]);
}

pub(crate) async fn a_successor_after_a_failure_has_its_own_priority(h: &Harness) {
    let (delay, error) = (Some(secs(0)), "no".to_owned());
    let failures = [
        Settlement::Retry { delay, error: error.clone() },
        Settlement::Bury { error },
        Settlement::Release,
    ];
    for (number, action) in failures.into_iter().enumerate() {
        let name = number.to_string();
        h.put(job(&name).priority(5)).await;
        let claimed = h.claim().await;
        h.put(job(&name).priority(1)).await;
        h.settle(&claimed, action).await.expect("the lease is current");
        let view = h.view(&name).await;
        assert_eq!((view.state, view.version.priority.get()), (JobState::Ready, 1));
        h.cancel(&name).await;
    }
}

pub(crate) async fn a_lease_that_has_expired_is_ready_since_its_end(h: &Harness) {
    h.set(|settings| settings.ageing = Some(secs(60))).await;
    h.put("a").await;
    h.claim().await;
    h.advance(LEASE + millis(59_999));
    h.put(job("b").priority(1)).await;
    assert_eq!(ids(&h.claim_up_to(1).await), ["b"], "a has gained no level");
    h.put(job("c").priority(1)).await;
    h.advance(millis(1));
    assert_eq!(ids(&h.claim_up_to(2).await), ["a", "c"], "it has gained one, and is older");
}

pub(crate) async fn run_now_keeps_the_priority(h: &Harness) {
    h.put(job("a").priority(5).after(secs(60))).await;
    h.put(job("b").priority(3)).await;
    h.run_now("a").await;
    assert_eq!(ids(&h.claim_up_to(2).await), ["a", "b"]);
    h.put(job("a").priority(7).after(secs(60))).await;
    h.run_now("a").await;
    assert_eq!(h.view("a").await.next.map(|next| next.priority.get()), Some(7), "of a successor");
}

pub(crate) async fn a_restored_job_has_its_priority(h: &Harness) {
    h.put(job("a").priority(5)).await;
    h.put(job("b").priority(2)).await;
    h.claim().await;
    h.put(job("a").priority(7)).await;
    let views = [h.view("a").await, h.view("b").await];
    for (name, view) in ["a", "b"].into_iter().zip(views) {
        h.cancel(name).await;
        h.advance(LEASE);
        h.reap().await;
        assert_eq!(h.get(name).await, None);
        assert_eq!(h.restore(view).await, Restored::Created);
    }
    let priorities =
        [h.view("a").await.version.priority.get(), h.view("b").await.version.priority.get()];
    assert_eq!(priorities, [7, 2], "a job has that of its successor");
}

pub(crate) async fn a_dead_job_has_its_priority_when_it_is_revived(h: &Harness) {
    h.die(job("a").priority(5)).await;
    assert_eq!(h.view("a").await.version.priority.get(), 5);
    h.put(job("b").priority(3)).await;
    h.change("a", ChangeKind::Revive).await.expect("it is dead");
    assert_eq!(ids(&h.claim_up_to(2).await), ["a", "b"]);
    h.die(job("c").priority(5)).await;
    h.put(job("c").priority(2)).await;
    assert_eq!(h.view("c").await.version.priority.get(), 2, "a put has its own priority");
}

pub(crate) async fn counts_and_limits_are_those_of_all_priorities(h: &Harness) {
    put_all(h, [("a", 0), ("b", 4), ("c", 9), ("d", 9)]).await;
    h.put(job("e").priority(2).after(secs(60))).await;
    h.set(|settings| settings.concurrency = Some(2)).await;
    assert_eq!(h.counts().await, [5, 0, 0, 4]);
    let claimed = h.claim_up_to(10).await;
    assert_eq!(ids(&claimed), ["c", "d"]);
    assert_eq!(h.counts().await, [3, 2, 0, 2]);
    h.claims_nothing().await;
    h.ack(&claimed[1]).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["b"]);
    assert_eq!(h.list(|_| ()).await, ["a", "b", "c", "e"]);
}

pub(crate) async fn the_oldest_ready_job_is_that_of_any_priority(h: &Harness) {
    put_all(h, [("a", 3), ("b", 0), ("c", 9)]).await;
    let oldest = h.view("a").await.version.due;
    assert_eq!(h.kind().await.oldest_ready, Some(oldest));
}
