//! Ack, release and extend; stale receipts; leases that expire.

use crate::harness::{Harness, LEASE, id, ids, job, kind, millis, secs};
use requeue_jobs::{
    ExpiredLease, Fence, JobState, Receipt, SettleError, Settled, Settlement, WorkerName,
};

pub(crate) async fn an_ack_ends_the_job(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    assert_eq!(h.ack(&job).await, Settled::Done);
    assert_eq!(h.get("a").await, None);
    h.advance(LEASE);
    h.claims_nothing().await;
}

pub(crate) async fn a_second_ack_changes_nothing(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.ack(&job).await;
    h.assert_lost(&job).await;
}

pub(crate) async fn a_late_second_ack_does_not_end_the_next_job(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    h.ack(&first).await;
    h.put("a").await;
    h.assert_lost(&first).await;
    let second = h.claim().await;
    h.assert_lost(&first).await;
    assert_eq!(h.ack(&second).await, Settled::Done);
}

pub(crate) async fn a_receipt_that_was_never_issued_is_refused(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    let (fence, nonce) = (job.receipt.fence(), job.receipt.nonce());
    for (of, name, fence, nonce) in [
        ("mail", "a", fence, nonce + 1),
        ("mail", "a", Fence(fence.0 + 1), nonce),
        ("mail", "b", fence, nonce),
        ("sms", "a", fence, nonce),
    ] {
        let mut forged = job.clone();
        forged.receipt = Receipt::new(kind(of), id(name), fence, nonce);
        h.assert_lost(&forged).await;
    }
    assert_eq!(h.ack(&job).await, Settled::Done);
}

pub(crate) async fn extend_counts_from_now(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.advance(secs(20));
    let end = h.after(LEASE);
    assert_eq!(h.extend(&job, LEASE).await, Settled::Extended(end));
    assert_eq!(h.view("a").await.lease.expect("the job is leased").ends_at, end);
    h.advance(LEASE - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn extend_never_shortens_a_lease(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    let end = h.after(LEASE);
    for lease in [secs(1), secs(29), LEASE] {
        assert_eq!(h.extend(&job, lease).await, Settled::Extended(end));
    }
    assert_eq!(h.view("a").await.lease.expect("the job is leased").ends_at, end);
}

pub(crate) async fn extend_does_not_change_the_receipt(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.advance(secs(1));
    h.extend(&job, LEASE).await;
    h.advance(secs(1));
    h.extend(&job, LEASE).await;
    assert_eq!(h.ack(&job).await, Settled::Done);
}

pub(crate) async fn extend_without_a_length_uses_that_of_the_kind(h: &Harness) {
    h.set(|settings| settings.lease = secs(77)).await;
    h.put("a").await;
    let job = h.claim().await;
    let result = h.settle(&job, Settlement::Extend(None)).await;
    assert_eq!(result, Ok(Settled::Extended(h.after(secs(77)))));
}

pub(crate) async fn extend_does_not_count_as_an_attempt(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.extend(&job, secs(60)).await;
    assert_eq!(h.view("a").await.attempts, 0);
    h.release(&job).await;
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn a_release_does_not_count_as_a_failure(h: &Harness) {
    h.put("a").await;
    for _ in 0..3 {
        let job = h.claim().await;
        assert_eq!(job.attempt, 1);
        assert_eq!(h.release(&job).await, Settled::Released);
    }
    let view = h.view("a").await;
    assert_eq!((view.state, view.attempts, view.failures.len()), (JobState::Ready, 0, 0));
    assert_eq!(view.lease, None);
}

pub(crate) async fn a_released_job_keeps_its_position(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let due = h.view("a").await.version.due;
    let job = h.claim().await;
    h.advance(secs(1));
    h.release(&job).await;
    assert_eq!(h.view("a").await.version.due, due);
    assert_eq!(ids(&h.claim_up_to(10).await), ["a", "b"]);
}

pub(crate) async fn the_receipt_of_a_released_lease_is_refused(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    h.release(&first).await;
    h.assert_lost(&first).await;
    let second = h.claim().await;
    h.assert_lost(&first).await;
    assert_eq!(h.ack(&second).await, Settled::Done);
}

pub(crate) async fn time_alone_changes_no_leased_job(h: &Harness) {
    h.put("a").await;
    h.claim().await;
    let before = h.view("a").await;
    h.advance(secs(3600));
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.counts().await, [0, 1, 0, 0]);
}

pub(crate) async fn an_expired_lease_is_valid_until_the_job_is_claimed_again(h: &Harness) {
    h.put_in_order(["a", "b", "c", "d"]).await;
    let jobs = h.claim_up_to(4).await;
    h.advance(secs(3600));
    assert_eq!(h.ack(&jobs[0]).await, Settled::Done);
    assert_eq!(h.release(&jobs[1]).await, Settled::Released);
    assert_eq!(h.retry(&jobs[2], secs(5)).await, Settled::RetryAt(h.after(secs(5))));
    assert_eq!(h.extend(&jobs[3], secs(5)).await, Settled::Extended(h.after(secs(5))));
    assert_eq!(ids(&h.claim_up_to(10).await), ["b"]);
}

pub(crate) async fn an_expired_lease_is_delivered_again(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    h.advance(LEASE);
    let second = h.claim().await;
    assert_eq!((second.id(), second.attempt), (&id("a"), 2));
    assert_eq!(second.version.generation, first.version.generation);
    assert!(second.receipt.fence() > first.receipt.fence());
    assert_eq!(h.ack(&second).await, Settled::Done);
}

pub(crate) async fn a_stale_receipt_changes_nothing(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    h.advance(LEASE);
    let second = h.claim().await;
    h.assert_lost(&first).await;
    assert_eq!(h.ack(&second).await, Settled::Done);
    h.assert_lost(&first).await;
}

pub(crate) async fn two_leases_with_the_same_nonce_are_different(h: &Harness) {
    h.put("a").await;
    let first = h.claim_with(|claim| claim.nonce = 7).await.jobs.remove(0);
    h.advance(LEASE);
    let second = h.claim_with(|claim| claim.nonce = 7).await.jobs.remove(0);
    h.assert_lost(&first).await;
    assert_eq!(h.ack(&second).await, Settled::Done);
}

pub(crate) async fn an_expiry_is_a_failed_attempt(h: &Harness) {
    h.put("a").await;
    let first = h.claim().await;
    let began = h.now();
    h.advance(secs(3600));
    h.claim().await;
    let view = h.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (1, 1));
    let failure = &view.failures[0];
    assert_eq!((failure.worker.as_str(), &failure.error), ("worker-1", &None));
    assert_eq!((failure.started_at, failure.ended_at), (began, first.lease_ends_at));
}

pub(crate) async fn an_expiry_has_no_backoff(h: &Harness) {
    h.set(|settings| settings.backoff.base = secs(3600)).await;
    h.put("a").await;
    h.claim().await;
    h.advance(LEASE - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn an_expired_job_is_ordered_by_the_end_of_its_lease(h: &Harness) {
    h.put("expiring").await;
    h.claim().await;
    h.put(job("before").after(LEASE - millis(1))).await;
    h.put(job("behind").after(LEASE + millis(1))).await;
    h.advance(secs(3600));
    assert_eq!(ids(&h.claim_up_to(10).await), ["before", "expiring", "behind"]);
}

pub(crate) async fn a_job_that_kills_its_worker_ends_up_dead(h: &Harness) {
    h.set(|settings| settings.max_attempts = 3).await;
    h.put("a").await;
    for attempt in 1..=3 {
        assert_eq!(h.claim().await.attempt, attempt);
        h.advance(LEASE);
    }
    h.claims_nothing().await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.attempts), (JobState::Dead, 3));
    assert_eq!((view.deaths, view.died_at), (1, Some(h.now())));
}

/// Claims the job, lets its lease expire, and returns the expected report of that lease.
async fn expired(h: &Harness, worker: &str, died: bool) -> ExpiredLease {
    let worker = WorkerName::new(worker).expect("a valid name");
    let job = h.claim_with(|claim| claim.worker = worker.clone()).await.jobs.remove(0);
    h.advance(LEASE);
    let mut lease = ExpiredLease::new(job.kind().clone(), job.id().clone(), worker, job.attempt);
    lease.died = died;
    lease
}

pub(crate) async fn a_claim_reports_the_leases_that_it_found_expired(h: &Harness) {
    if !h.reports_expired_leases() {
        return;
    }
    h.set(|settings| settings.max_attempts = 2).await;
    h.put("a").await;
    let first = expired(h, "worker-1", false).await;
    let worker = WorkerName::new("worker-2").expect("a valid name");
    let second = h.claim_with(|claim| claim.worker = worker.clone()).await;
    assert_eq!((ids(&second.jobs), second.expired), (vec!["a"], vec![first]));
    assert_eq!(h.claim_with(|_| {}).await.expired, [], "the lease has not expired");
    h.advance(LEASE);
    let last = h.claim_with(|_| {}).await;
    let mut died = ExpiredLease::new(kind("mail"), id("a"), worker, 2);
    died.died = true;
    assert_eq!((ids(&last.jobs), last.expired), (vec![], vec![died]));
    assert_eq!(h.claim_with(|_| {}).await.expired, [], "each lease is reported once");

    h.put("b").await;
    let cancelled = expired(h, "worker-3", false).await;
    h.cancel("b").await;
    let claimed = h.claim_with(|_| {}).await;
    assert_eq!((ids(&claimed.jobs), claimed.expired), (vec![], vec![cancelled]));
    h.put("c").await;
    let waiting = expired(h, "worker-4", false).await;
    h.put(job("c").after(secs(60))).await;
    let claimed = h.claim_with(|_| {}).await;
    assert_eq!((ids(&claimed.jobs), claimed.expired), (vec![], vec![waiting]));
}

pub(crate) async fn a_settled_lease_is_not_reported_as_expired(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    for job in h.claim_up_to(3).await {
        h.advance(LEASE);
        match job.id().as_str() {
            "a" => h.ack(&job).await,
            "b" => h.release(&job).await,
            _ => h.retry(&job, secs(0)).await,
        };
    }
    assert_eq!(h.claim_with(|_| {}).await.expired, []);
    assert_eq!(h.reap_all().await.expired, []);
}

pub(crate) async fn the_reaper_reports_the_leases_that_it_found_expired(h: &Harness) {
    if !h.reports_expired_leases() {
        return;
    }
    h.set(|settings| settings.max_attempts = 2).await;
    h.put("a").await;
    let first = expired(h, "worker-1", false).await;
    assert_eq!(h.reap_all().await.expired, [first]);
    assert_eq!(h.reap_all().await.expired, [], "each lease is reported once");
    let second = expired(h, "worker-2", true).await;
    assert_eq!(h.reap_all().await.expired, [second]);
    assert_eq!(h.claim_with(|_| {}).await.expired, []);
}

pub(crate) async fn the_reaper_ends_an_expired_lease(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.advance(secs(3600));
    assert_eq!(h.reap().await, 1);
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Ready, job.lease_ends_at));
    assert_eq!((view.attempts, view.failures.len(), view.lease), (1, 1, None));
    h.assert_lost(&job).await;
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn the_reaper_keeps_a_lease_that_has_not_expired(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.advance(LEASE - millis(1));
    assert_eq!(h.reap().await, 0);
    assert_eq!(h.ack(&job).await, Settled::Done);
}

pub(crate) async fn the_reaper_buries_jobs_without_attempts_left(h: &Harness) {
    h.set(|settings| settings.max_attempts = 1).await;
    h.put("a").await;
    let job = h.claim().await;
    h.advance(LEASE);
    assert_eq!(h.reap().await, 1);
    assert_eq!(h.view("a").await.state, JobState::Dead);
    h.assert_lost(&job).await;
}

pub(crate) async fn the_reaper_ends_at_most_max_leases(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    h.claim_up_to(3).await;
    h.advance(LEASE);
    let reaped = h.store.reap(2).await.expect("the call succeeds").count;
    assert_eq!((reaped, h.counts().await), (2, [2, 1, 0, 2]));
    assert_eq!(h.reap().await, 1);
    assert_eq!(h.reap().await, 0);
}

pub(crate) async fn at_most_one_receipt_can_ack(h: &Harness) {
    h.put("a").await;
    let mut receipts = vec![h.claim().await];
    h.release(&receipts[0]).await;
    receipts.push(h.claim().await);
    h.advance(LEASE);
    receipts.push(h.claim().await);
    h.retry(&receipts[2], secs(0)).await;
    receipts.push(h.claim().await);
    for stale in &receipts[..3] {
        let result = h.settle(stale, Settlement::Ack).await;
        assert!(matches!(result, Err(SettleError::LeaseLost { .. })));
    }
    assert_eq!(h.ack(&receipts[3]).await, Settled::Done);
}
