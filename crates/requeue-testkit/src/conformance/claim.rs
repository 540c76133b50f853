//! Claiming: what is delivered, when, in which order, and with what receipt.

use crate::harness::{Harness, LEASE, id, ids, job, kind, mail, millis, secs};
use requeue_jobs::{JobState, Receipt, WorkerName};

pub(crate) async fn nothing_is_delivered_early(h: &Harness) {
    h.put(job("a").after(secs(5))).await;
    h.advance(secs(5) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.version.due, h.now());
}

pub(crate) async fn jobs_are_claimed_in_due_order(h: &Harness) {
    for (name, delay) in [("c", 3), ("a", 1), ("d", 4), ("b", 2)] {
        h.put(job(name).after(secs(delay))).await;
    }
    h.advance(secs(3));
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b", "c"]);
    h.advance(secs(1));
    assert_eq!(ids(&h.claim_up_to(10).await), ["d"]);
}

pub(crate) async fn jobs_with_the_same_due_time_are_claimed_in_put_order(h: &Harness) {
    if !h.orders_ties() {
        return;
    }
    for name in ["c", "a", "d", "b"] {
        h.put(name).await;
    }
    assert_eq!(ids(&h.claim_up_to(10).await), ["c", "a", "d", "b"]);
}

pub(crate) async fn a_put_with_the_same_due_time_keeps_the_position_among_ties(h: &Harness) {
    if !h.orders_ties() {
        return;
    }
    for name in ["a", "b", "a"] {
        h.put(job(name).after(secs(5))).await;
    }
    h.advance(secs(5));
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn a_put_with_another_due_time_moves_to_the_end_of_ties(h: &Harness) {
    if !h.orders_ties() {
        return;
    }
    for (name, delay) in [("a", 3), ("b", 5), ("a", 5)] {
        h.put(job(name).after(secs(delay))).await;
    }
    h.advance(secs(5));
    assert_eq!(ids(&h.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_claim_returns_at_most_max_jobs(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    assert_eq!(ids(&h.claim_up_to(0).await), Vec::<&str>::new());
    assert_eq!(ids(&h.claim_up_to(2).await), ["a", "b"]);
    assert_eq!(ids(&h.claim_up_to(2).await), ["c"]);
}

pub(crate) async fn a_claimed_job_contains_what_its_worker_needs(h: &Harness) {
    let placed = h.put(job("a").body("hello")).await;
    let created = h.now();
    h.advance(secs(1));
    let job = h.claim().await;
    assert_eq!((job.kind(), job.id()), (&mail(), &id("a")));
    assert_eq!((job.body().bytes(), job.version.generation), (&b"hello"[..], placed.generation));
    assert_eq!((job.attempt, job.version.due, job.created_at), (1, created, created));
    assert_eq!(job.lease_ends_at, h.after(LEASE));
}

pub(crate) async fn a_leased_job_is_not_delivered_to_another(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    h.claims_nothing().await;
    h.advance(LEASE - millis(1));
    h.claims_nothing().await;
}

pub(crate) async fn a_claim_names_its_worker(h: &Harness) {
    h.put("a").await;
    let name = WorkerName::new("node 7 / mailer").expect("a valid name");
    h.claim_with(|claim| claim.worker = name.clone()).await;
    let view = h.view("a").await;
    assert_eq!(view.state, JobState::Leased);
    let lease = view.lease.expect("the job is leased");
    assert_eq!((lease.worker, lease.cancelled), (name, false));
    assert_eq!((lease.claimed_at, lease.ends_at), (h.now(), h.after(LEASE)));
}

pub(crate) async fn a_claim_sets_updated_at_and_not_created_at(h: &Harness) {
    h.put("a").await;
    let created = h.now();
    h.advance(secs(1));
    h.claim().await;
    let view = h.view("a").await;
    assert_eq!((view.created_at, view.updated_at), (created, h.now()));
}

pub(crate) async fn a_receipt_carries_the_callers_nonce(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim_with(|claim| claim.nonce = u64::MAX).await;
    assert_eq!(claimed.jobs[0].receipt.nonce(), u64::MAX);
}

pub(crate) async fn a_receipt_can_be_written_as_text_and_parsed(h: &Harness) {
    h.put("a/b.c").await;
    let mut job = h.claim().await;
    job.receipt = job.receipt.to_string().parse::<Receipt>().expect("the text is a receipt");
    h.ack(&job).await;
    assert_eq!(h.get("a/b.c").await, None);
}

pub(crate) async fn each_lease_has_a_higher_fence(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    let mut fences: Vec<_> = h.claim_up_to(2).await.iter().map(|j| j.receipt.fence()).collect();
    let last = h.claim().await;
    fences.push(last.receipt.fence());
    h.release(&last).await;
    fences.push(h.claim().await.receipt.fence());
    h.advance(LEASE);
    fences.push(h.claim().await.receipt.fence());
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

pub(crate) async fn fences_keep_rising_after_a_job_has_ended(h: &Harness) {
    let mut last = None;
    for _ in 0..3 {
        h.put("a").await;
        let job = h.claim().await;
        assert!(Some(job.receipt.fence()) > last);
        last = Some(job.receipt.fence());
        h.ack(&job).await;
    }
}

pub(crate) async fn fences_are_at_least_the_time_of_the_store_in_microseconds(h: &Harness) {
    for _ in 0..2 {
        h.put("a").await;
        let job = h.claim().await;
        assert!(job.receipt.fence().0 >= h.now().as_millis() * 1000);
        h.ack(&job).await;
        h.advance(secs(1));
    }
}

pub(crate) async fn a_claim_without_a_lease_length_uses_that_of_the_kind(h: &Harness) {
    h.set(|settings| settings.lease = secs(77)).await;
    h.put("a").await;
    let claimed = h.claim_with(|claim| claim.lease = None).await;
    assert_eq!(claimed.jobs[0].lease_ends_at, h.after(secs(77)));
}

pub(crate) async fn a_claim_of_an_unknown_kind_returns_nothing(h: &Harness) {
    let claimed = h.claim_with(|claim| claim.kinds = vec![kind("unheard-of")]).await;
    assert_eq!((claimed.jobs, claimed.errors), (vec![], vec![]));
    assert_eq!(h.kinds().await, []);
}

pub(crate) async fn a_claim_of_no_kinds_returns_nothing(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim_with(|claim| claim.kinds.clear()).await;
    assert_eq!((claimed.jobs, claimed.errors), (vec![], vec![]));
}
