//! Ack, release and extend; receipts that are no more; leases that expiry.

use crate::trial::{LEASE, Trial, id, ids, job, kind, millis, secs};
use requeue_jobs::{
    ExpiredLease, Fence, JobState, Receipt, SettleError, Settled, Settlement, WorkerName,
};

pub(crate) async fn an_ack_ends_the_job(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    assert_eq!(t.ack(&job).await, Settled::Done);
    assert_eq!(t.get("a").await, None);
    t.advance(LEASE);
    t.claims_nothing().await;
}

pub(crate) async fn an_ack_twice_is_an_ack_once(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.ack(&job).await;
    t.assert_lost(&job).await;
}

pub(crate) async fn a_late_second_ack_does_not_end_the_next_job(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    t.ack(&first).await;
    t.put("a").await;
    t.assert_lost(&first).await;
    let second = t.claim().await;
    t.assert_lost(&first).await;
    assert_eq!(t.ack(&second).await, Settled::Done);
}

pub(crate) async fn a_receipt_that_was_never_given_out_is_lost(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    let (fence, nonce) = (job.receipt.fence(), job.receipt.nonce());
    for (of, name, fence, nonce) in [
        ("mail", "a", fence, nonce + 1),
        ("mail", "a", Fence(fence.0 + 1), nonce),
        ("mail", "b", fence, nonce),
        ("sms", "a", fence, nonce),
    ] {
        let mut forged = job.clone();
        forged.receipt = Receipt::new(kind(of), id(name), fence, nonce);
        t.assert_lost(&forged).await;
    }
    assert_eq!(t.ack(&job).await, Settled::Done);
}

pub(crate) async fn extend_ends_the_lease_so_long_after_now(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.advance(secs(20));
    let end = t.after(LEASE);
    assert_eq!(t.extend(&job, LEASE).await, Settled::Extended(end));
    assert_eq!(t.view("a").await.lease.expect("it is leased").ends_at, end);
    t.advance(LEASE - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn extend_never_shortens_a_lease(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    let end = t.after(LEASE);
    for lease in [secs(1), secs(29), LEASE] {
        assert_eq!(t.extend(&job, lease).await, Settled::Extended(end));
    }
    assert_eq!(t.view("a").await.lease.expect("it is leased").ends_at, end);
}

pub(crate) async fn extend_does_not_change_the_receipt(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.advance(secs(1));
    t.extend(&job, LEASE).await;
    t.advance(secs(1));
    t.extend(&job, LEASE).await;
    assert_eq!(t.ack(&job).await, Settled::Done);
}

pub(crate) async fn extend_without_a_length_takes_the_kinds(t: &Trial) {
    t.set(|settings| settings.lease = secs(77)).await;
    t.put("a").await;
    let job = t.claim().await;
    let answer = t.settle(&job, Settlement::Extend(None)).await;
    assert_eq!(answer, Ok(Settled::Extended(t.after(secs(77)))));
}

pub(crate) async fn extend_counts_no_attempt(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.extend(&job, secs(60)).await;
    assert_eq!(t.view("a").await.attempts, 0);
    t.release(&job).await;
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn a_released_job_is_not_a_failed_one(t: &Trial) {
    t.put("a").await;
    for _ in 0..3 {
        let job = t.claim().await;
        assert_eq!(job.attempt, 1);
        assert_eq!(t.release(&job).await, Settled::Released);
    }
    let view = t.view("a").await;
    assert_eq!((view.state, view.attempts, view.failures.len()), (JobState::Ready, 0, 0));
    assert_eq!(view.lease, None);
}

pub(crate) async fn a_released_job_has_its_old_place_in_line(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let due = t.view("a").await.due;
    let job = t.claim().await;
    t.advance(secs(1));
    t.release(&job).await;
    assert_eq!(t.view("a").await.due, due);
    assert_eq!(ids(&t.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn a_released_lease_is_lost(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    t.release(&first).await;
    t.assert_lost(&first).await;
    let second = t.claim().await;
    t.assert_lost(&first).await;
    assert_eq!(t.ack(&second).await, Settled::Done);
}

pub(crate) async fn time_alone_changes_no_leased_job(t: &Trial) {
    t.put("a").await;
    t.claim().await;
    let before = t.view("a").await;
    t.advance(secs(3600));
    assert_eq!(t.view("a").await, before);
    assert_eq!(t.counts().await, [0, 1, 0, 0]);
}

pub(crate) async fn an_expired_lease_is_valid_until_the_job_is_taken(t: &Trial) {
    t.put_in_line(["a", "b", "c", "d"]).await;
    let jobs = t.claim_up_to(4).await;
    t.advance(secs(3600));
    assert_eq!(t.ack(&jobs[0]).await, Settled::Done);
    assert_eq!(t.release(&jobs[1]).await, Settled::Released);
    assert_eq!(t.retry(&jobs[2], secs(5)).await, Settled::RetryAt(t.after(secs(5))));
    assert_eq!(t.extend(&jobs[3], secs(5)).await, Settled::Extended(t.after(secs(5))));
    assert_eq!(ids(&t.claim_up_to(10).await), ["b"]);
}

pub(crate) async fn an_expired_lease_is_delivered_again(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    t.advance(LEASE);
    let second = t.claim().await;
    assert_eq!((second.id(), second.attempt), (&id("a"), 2));
    assert_eq!(second.generation, first.generation);
    assert!(second.receipt.fence() > first.receipt.fence());
    assert_eq!(t.ack(&second).await, Settled::Done);
}

pub(crate) async fn a_stale_receipt_changes_nothing(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    t.advance(LEASE);
    let second = t.claim().await;
    t.assert_lost(&first).await;
    assert_eq!(t.ack(&second).await, Settled::Done);
    t.assert_lost(&first).await;
}

pub(crate) async fn one_nonce_used_twice_is_still_two_leases(t: &Trial) {
    t.put("a").await;
    let first = t.claim_with(|claim| claim.nonce = 7).await.jobs.remove(0);
    t.advance(LEASE);
    let second = t.claim_with(|claim| claim.nonce = 7).await.jobs.remove(0);
    t.assert_lost(&first).await;
    assert_eq!(t.ack(&second).await, Settled::Done);
}

pub(crate) async fn an_expiry_is_a_failed_attempt(t: &Trial) {
    t.put("a").await;
    let first = t.claim().await;
    let began = t.now();
    t.advance(secs(3600));
    t.claim().await;
    let view = t.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (1, 1));
    let failure = &view.failures[0];
    assert_eq!((failure.worker.as_str(), &failure.error), ("worker-1", &None));
    assert_eq!((failure.started_at, failure.ended_at), (began, first.lease_ends_at));
}

pub(crate) async fn an_expiry_needs_no_further_backoff(t: &Trial) {
    t.set(|settings| settings.backoff.base = secs(3600)).await;
    t.put("a").await;
    t.claim().await;
    t.advance(LEASE - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn an_expired_job_stands_in_line_by_the_end_of_its_lease(t: &Trial) {
    t.put("expiring").await;
    t.claim().await;
    t.put(job("before").after(LEASE - millis(1))).await;
    t.put(job("behind").after(LEASE + millis(1))).await;
    t.advance(secs(3600));
    assert_eq!(ids(&t.claim_up_to(10).await), ["before", "expiring", "behind"]);
}

pub(crate) async fn a_job_that_kills_its_worker_ends_up_dead(t: &Trial) {
    t.set(|settings| settings.max_attempts = 3).await;
    t.put("a").await;
    for attempt in 1..=3 {
        assert_eq!(t.claim().await.attempt, attempt);
        t.advance(LEASE);
    }
    t.claims_nothing().await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.attempts), (JobState::Dead, 3));
    assert_eq!((view.deaths, view.died_at), (1, Some(t.now())));
}

/// Claims the job, lets its lease expire, and returns what is to be reported of that lease.
async fn expired(t: &Trial, worker: &str, died: bool) -> ExpiredLease {
    let worker = WorkerName::new(worker).expect("a valid name");
    let job = t.claim_with(|claim| claim.worker = worker.clone()).await.jobs.remove(0);
    t.advance(LEASE);
    let mut lease = ExpiredLease::new(job.kind().clone(), job.id().clone(), worker, job.attempt);
    lease.died = died;
    lease
}

pub(crate) async fn a_claim_reports_the_leases_that_it_found_expired(t: &Trial) {
    if !t.reports_expired_leases() {
        return;
    }
    t.set(|settings| settings.max_attempts = 2).await;
    t.put("a").await;
    let first = expired(t, "worker-1", false).await;
    let second = t
        .claim_with(|claim| claim.worker = WorkerName::new("worker-2").expect("a valid name"))
        .await;
    assert_eq!((ids(&second.jobs), second.expired), (vec!["a"], vec![first]));
    assert_eq!(t.claim_with(|_| {}).await.expired, [], "a lease that has not expired");
    t.advance(LEASE);
    let last = t.claim_with(|_| {}).await;
    let mut died = ExpiredLease::new(
        kind("mail"),
        id("a"),
        WorkerName::new("worker-2").expect("a valid name"),
        2,
    );
    died.died = true;
    assert_eq!((ids(&last.jobs), last.expired), (vec![], vec![died]));
    assert_eq!(t.claim_with(|_| {}).await.expired, [], "each is reported once");

    t.put("b").await;
    let cancelled = expired(t, "worker-3", false).await;
    t.cancel("b").await;
    let claimed = t.claim_with(|_| {}).await;
    assert_eq!((ids(&claimed.jobs), claimed.expired), (vec![], vec![cancelled]));
    t.put("c").await;
    let waits = expired(t, "worker-4", false).await;
    t.put(job("c").after(secs(60))).await;
    let claimed = t.claim_with(|_| {}).await;
    assert_eq!((ids(&claimed.jobs), claimed.expired), (vec![], vec![waits]));
}

pub(crate) async fn a_settled_lease_is_not_reported_as_expired(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    for job in t.claim_up_to(3).await {
        t.advance(LEASE);
        match job.id().as_str() {
            "a" => t.ack(&job).await,
            "b" => t.release(&job).await,
            _ => t.retry(&job, secs(0)).await,
        };
    }
    assert_eq!(t.claim_with(|_| {}).await.expired, []);
    assert_eq!(t.reap_all().await.expired, []);
}

pub(crate) async fn the_reaper_reports_the_leases_that_it_found_expired(t: &Trial) {
    if !t.reports_expired_leases() {
        return;
    }
    t.set(|settings| settings.max_attempts = 2).await;
    t.put("a").await;
    let first = expired(t, "worker-1", false).await;
    assert_eq!(t.reap_all().await.expired, [first]);
    assert_eq!(t.reap_all().await.expired, [], "each is reported once");
    let second = expired(t, "worker-2", true).await;
    assert_eq!(t.reap_all().await.expired, [second]);
    assert_eq!(t.claim_with(|_| {}).await.expired, []);
}

pub(crate) async fn the_reaper_ends_an_expired_lease(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.advance(secs(3600));
    assert_eq!(t.reap().await, 1);
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Ready, job.lease_ends_at));
    assert_eq!((view.attempts, view.failures.len(), view.lease), (1, 1, None));
    t.assert_lost(&job).await;
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn the_reaper_leaves_a_living_lease(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.advance(LEASE - millis(1));
    assert_eq!(t.reap().await, 0);
    assert_eq!(t.ack(&job).await, Settled::Done);
}

pub(crate) async fn the_reaper_buries_who_has_no_attempts_left(t: &Trial) {
    t.set(|settings| settings.max_attempts = 1).await;
    t.put("a").await;
    let job = t.claim().await;
    t.advance(LEASE);
    assert_eq!(t.reap().await, 1);
    assert_eq!(t.view("a").await.state, JobState::Dead);
    t.assert_lost(&job).await;
}

pub(crate) async fn the_reaper_does_as_much_as_it_may(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    t.claim_up_to(3).await;
    t.advance(LEASE);
    let reaped = t.store.reap(2).await.expect("it is answered").count;
    assert_eq!((reaped, t.counts().await), (2, [2, 1, 0, 2]));
    assert_eq!(t.reap().await, 1);
    assert_eq!(t.reap().await, 0);
}

pub(crate) async fn at_most_one_receipt_can_ack(t: &Trial) {
    t.put("a").await;
    let mut receipts = vec![t.claim().await];
    t.release(&receipts[0]).await;
    receipts.push(t.claim().await);
    t.advance(LEASE);
    receipts.push(t.claim().await);
    t.retry(&receipts[2], secs(0)).await;
    receipts.push(t.claim().await);
    for stale in &receipts[..3] {
        let answer = t.settle(stale, Settlement::Ack).await;
        assert!(matches!(answer, Err(SettleError::LeaseLost { .. })));
    }
    assert_eq!(t.ack(&receipts[3]).await, Settled::Done);
}
