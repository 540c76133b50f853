//! Claiming: what is delivered, when, in which order, and with what receipt.

use crate::trial::{LEASE, Trial, id, ids, job, kind, mail, millis, secs};
use requeue_jobs::{JobState, Receipt, WorkerName};

pub(crate) async fn nothing_is_delivered_early(t: &Trial) {
    t.put(job("a").after(secs(5))).await;
    t.advance(secs(5) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.due, t.now());
}

pub(crate) async fn jobs_come_in_due_order(t: &Trial) {
    for (name, delay) in [("c", 3), ("a", 1), ("d", 4), ("b", 2)] {
        t.put(job(name).after(secs(delay))).await;
    }
    t.advance(secs(3));
    assert_eq!(ids(&t.claim_up_to(10).await), ["a", "b", "c"]);
    t.advance(secs(1));
    assert_eq!(ids(&t.claim_up_to(10).await), ["d"]);
}

pub(crate) async fn jobs_that_are_due_at_once_come_in_put_order(t: &Trial) {
    if !t.orders_ties() {
        return;
    }
    for name in ["c", "a", "d", "b"] {
        t.put(name).await;
    }
    assert_eq!(ids(&t.claim_up_to(10).await), ["c", "a", "d", "b"]);
}

pub(crate) async fn a_put_that_changes_no_time_keeps_the_place_among_ties(t: &Trial) {
    if !t.orders_ties() {
        return;
    }
    for name in ["a", "b", "a"] {
        t.put(job(name).after(secs(5))).await;
    }
    t.advance(secs(5));
    assert_eq!(ids(&t.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn a_put_that_changes_the_time_goes_to_the_end_of_ties(t: &Trial) {
    if !t.orders_ties() {
        return;
    }
    for (name, delay) in [("a", 3), ("b", 5), ("a", 5)] {
        t.put(job(name).after(secs(delay))).await;
    }
    t.advance(secs(5));
    assert_eq!(ids(&t.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_claim_gets_no_more_than_it_asks_for(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    assert_eq!(ids(&t.claim_up_to(0).await), Vec::<&str>::new());
    assert_eq!(ids(&t.claim_up_to(2).await), ["a", "b"]);
    assert_eq!(ids(&t.claim_up_to(2).await), ["c"]);
}

pub(crate) async fn a_claimed_job_tells_what_its_worker_needs(t: &Trial) {
    let placed = t.put(job("a").body("hello")).await;
    let created = t.now();
    t.advance(secs(1));
    let job = t.claim().await;
    assert_eq!((job.kind(), job.id()), (&mail(), &id("a")));
    assert_eq!((job.body.bytes(), job.generation), (&b"hello"[..], placed.generation));
    assert_eq!((job.attempt, job.due, job.created_at), (1, created, created));
    assert_eq!(job.lease_ends_at, t.after(LEASE));
}

pub(crate) async fn a_leased_job_is_not_delivered_to_another(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    t.claims_nothing().await;
    t.advance(LEASE - millis(1));
    t.claims_nothing().await;
}

pub(crate) async fn a_claim_names_its_worker(t: &Trial) {
    t.put("a").await;
    let name = WorkerName::new("node 7 / mailer").expect("a valid name");
    t.claim_with(|claim| claim.worker = name.clone()).await;
    let view = t.view("a").await;
    assert_eq!(view.state, JobState::Leased);
    let lease = view.lease.expect("it is leased");
    assert_eq!((lease.worker, lease.cancelled), (name, false));
    assert_eq!((lease.claimed_at, lease.ends_at), (t.now(), t.after(LEASE)));
}

pub(crate) async fn a_claim_is_a_change_and_not_a_creation(t: &Trial) {
    t.put("a").await;
    let created = t.now();
    t.advance(secs(1));
    t.claim().await;
    let view = t.view("a").await;
    assert_eq!((view.created_at, view.updated_at), (created, t.now()));
}

pub(crate) async fn a_receipt_carries_the_callers_nonce(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim_with(|claim| claim.nonce = u64::MAX).await;
    assert_eq!(claimed.jobs[0].receipt.nonce(), u64::MAX);
}

pub(crate) async fn a_receipt_survives_being_written_down(t: &Trial) {
    t.put("a/b.c").await;
    let mut job = t.claim().await;
    job.receipt = job.receipt.to_string().parse::<Receipt>().expect("it is a receipt");
    t.ack(&job).await;
    assert_eq!(t.get("a/b.c").await, None);
}

pub(crate) async fn fences_rise_from_lease_to_lease(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    let mut fences: Vec<_> = t.claim_up_to(2).await.iter().map(|j| j.receipt.fence()).collect();
    let last = t.claim().await;
    fences.push(last.receipt.fence());
    t.release(&last).await;
    fences.push(t.claim().await.receipt.fence());
    t.advance(LEASE);
    fences.push(t.claim().await.receipt.fence());
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

pub(crate) async fn fences_rise_over_the_end_of_the_job(t: &Trial) {
    let mut last = None;
    for _ in 0..3 {
        t.put("a").await;
        let job = t.claim().await;
        assert!(Some(job.receipt.fence()) > last);
        last = Some(job.receipt.fence());
        t.ack(&job).await;
    }
}

pub(crate) async fn fences_are_no_lower_than_the_stores_microseconds(t: &Trial) {
    for _ in 0..2 {
        t.put("a").await;
        let job = t.claim().await;
        assert!(job.receipt.fence().0 >= t.now().as_millis() * 1000);
        t.ack(&job).await;
        t.advance(secs(1));
    }
}

pub(crate) async fn a_claim_that_names_no_lease_gets_the_kinds(t: &Trial) {
    t.set(|settings| settings.lease = secs(77)).await;
    t.put("a").await;
    let claimed = t.claim_with(|claim| claim.lease = None).await;
    assert_eq!(claimed.jobs[0].lease_ends_at, t.after(secs(77)));
}

pub(crate) async fn a_claim_of_an_unknown_kind_gets_nothing(t: &Trial) {
    let claimed = t.claim_with(|claim| claim.kinds = vec![kind("unheard-of")]).await;
    assert_eq!((claimed.jobs, claimed.errors), (vec![], vec![]));
    assert_eq!(t.kinds().await, []);
}

pub(crate) async fn a_claim_of_no_kind_gets_nothing(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim_with(|claim| claim.kinds.clear()).await;
    assert_eq!((claimed.jobs, claimed.errors), (vec![], vec![]));
}
