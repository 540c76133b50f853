//! Done jobs that are kept.

use crate::harness::{Harness, LEASE, ids, job, mail, millis, secs, text};
use requeue_jobs::limits::{MAX_ACK_RESULT_LEN, MAX_BATCH_BYTES, MAX_RESULT_BYTES};
use requeue_jobs::{
    Body, ChangeError, ChangeKind, Changed, ClaimedJob, Invalid, JobState, PutError, PutOutcome,
    Query, Restored, Retention, Settle, SettleError, Settled, Settlement, StoreError,
};
use std::time::Duration;

async fn keep(h: &Harness, age: Duration, count: usize) {
    h.set(|settings| settings.keep_done = Some(Retention { age, count })).await;
}

async fn keep_all(h: &Harness) {
    keep(h, secs(86_400), 1000).await;
}

/// Puts a job and acks it a second later.
async fn complete(h: &Harness, name: &str) {
    h.put(name).await;
    let job = h.claim().await;
    assert_eq!(job.id().as_str(), name, "no other job is ready");
    h.advance(secs(1));
    assert_eq!(h.ack(&job).await, Settled::Done);
}

async fn done(h: &Harness) -> u64 {
    h.kind().await.counts.done
}

pub(crate) async fn by_default_a_done_job_is_gone(h: &Harness) {
    complete(h, "a").await;
    assert_eq!((h.get("a").await, done(h).await), (None, 0));
}

pub(crate) async fn a_done_job_shows_when_and_by_whom_it_was_done(h: &Harness) {
    keep_all(h).await;
    let generation = h.put(job("a").priority(3)).await.generation;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(0)).await;
    let claimed = h.claim().await;
    let started_at = h.now();
    h.advance(millis(250));
    h.ack(&claimed).await;
    let view = h.view("a").await;
    assert_eq!(
        (view.state, view.version.generation, view.attempts),
        (JobState::Done, generation, 1)
    );
    assert!(view.body().is_empty() && view.failures.is_empty() && view.lease.is_none());
    assert_eq!(view.updated_at, h.now());
    let done = view.done.expect("it is done");
    assert_eq!(done.worker.as_str(), "worker-1");
    assert_eq!((done.started_at, done.done_at, done.result), (started_at, h.now(), None));
}

pub(crate) async fn a_done_job_keeps_its_due_time_and_its_priority(h: &Harness) {
    keep_all(h).await;
    h.put(job("a").priority(3).after(secs(60))).await;
    let before = h.view("a").await;
    h.advance(secs(90));
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    let view = h.view("a").await;
    assert_eq!(
        (view.version.due, view.version.priority),
        (before.version.due, before.version.priority)
    );
    assert_eq!(view.created_at, before.created_at);
}

pub(crate) async fn a_done_job_keeps_the_result_of_its_ack(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    let result = Body::new(*b"{\"sent\":3}", "application/json").expect("a valid body");
    let settled = h.settle(&claimed, Settlement::AckWith(result.clone())).await;
    assert_eq!(settled, Ok(Settled::Done));
    assert_eq!(h.view("a").await.done.and_then(|done| done.result), Some(result));
}

pub(crate) async fn a_result_is_discarded_if_done_jobs_are_not_kept(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let settled = h.settle(&claimed, Settlement::AckWith(text("result"))).await;
    assert_eq!((settled, h.get("a").await), (Ok(Settled::Done), None));
}

pub(crate) async fn a_result_that_is_too_long_is_rejected(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    let body = |len| Body::octets(vec![b'x'; len]).expect("a valid body");
    let len = MAX_ACK_RESULT_LEN + 1;
    let (field, limit) = ("the result", MAX_ACK_RESULT_LEN);
    let invalid = StoreError::Invalid(Invalid::TooLong { field, len, limit });
    let settled = h.settle(&claimed, Settlement::AckWith(body(len))).await;
    assert_eq!(settled, Err(SettleError::Store(invalid)));
    assert_eq!(h.view("a").await.state, JobState::Leased, "nothing has changed");
    let settled = h.settle(&claimed, Settlement::AckWith(body(limit))).await;
    assert_eq!(settled, Ok(Settled::Done));
}

pub(crate) async fn the_results_of_a_batch_are_sixteen_mebibytes_at_most(h: &Harness) {
    keep_all(h).await;
    let most = MAX_BATCH_BYTES / MAX_ACK_RESULT_LEN;
    let names: Vec<String> = (0..=most).map(|n| format!("{n:03}")).collect();
    assert!(h.put_all(names.iter().map(|name| job(name))).await.iter().all(Result::is_ok));
    let result = Body::octets(vec![b'x'; MAX_ACK_RESULT_LEN]).expect("a valid body");
    let ack = |job: &ClaimedJob| {
        let (receipt, action) = (job.receipt.clone(), Settlement::AckWith(result.clone()));
        Settle { receipt, action }
    };
    let acks: Vec<Settle> = h.claim_up_to(1000).await.iter().map(ack).collect();
    let (field, len) = ("the results of a batch", MAX_BATCH_BYTES + MAX_ACK_RESULT_LEN);
    let invalid = Invalid::TooLong { field, len, limit: MAX_BATCH_BYTES };
    assert_eq!(h.store.settle(acks.clone()).await, Err(StoreError::Invalid(invalid)));
    assert_eq!(done(h).await, 0, "none of them was settled");
    let settled = h.store.settle(acks[1..].to_vec()).await.expect("the call succeeds");
    assert!(settled.iter().all(Result::is_ok));
    assert_eq!(done(h).await, most as u64);
}

pub(crate) async fn a_done_job_is_not_claimed_or_reaped(h: &Harness) {
    keep_all(h).await;
    complete(h, "a").await;
    h.advance(LEASE);
    h.claims_nothing().await;
    assert_eq!((h.reap().await, done(h).await), (0, 1));
    assert_eq!(h.counts().await, [0, 0, 0, 0]);
}

pub(crate) async fn done_jobs_are_listed(h: &Harness) {
    keep_all(h).await;
    complete(h, "a").await;
    h.put("b").await;
    assert_eq!(h.list(|_| ()).await, ["a", "b"]);
    assert_eq!(h.list(|query| query.state = Some(JobState::Done)).await, ["a"]);
    assert_eq!(h.list(|query| query.state = Some(JobState::Ready)).await, ["b"]);
}

pub(crate) async fn a_page_has_sixteen_mebibytes_of_results(h: &Harness) {
    keep_all(h).await;
    let most = MAX_RESULT_BYTES / MAX_ACK_RESULT_LEN;
    let names: Vec<String> = (0..=most).map(|n| format!("{n:03}")).collect();
    assert!(h.put_all(names.iter().map(|name| job(name))).await.iter().all(Result::is_ok));
    let result = Body::octets(vec![b'x'; MAX_ACK_RESULT_LEN]).expect("a valid body");
    for jobs in h.claim_up_to(1000).await.chunks(100) {
        let acks = jobs.iter().map(|job| (job, Settlement::AckWith(result.clone())));
        assert!(h.settle_all(acks).await.iter().all(Result::is_ok));
    }
    let query = Query { limit: 1000, ..Query::new(mail()) };
    let first = h.store.list(query.clone()).await.expect("the call succeeds");
    assert_eq!(first.jobs.len(), most);
    let query = Query { after: first.cursor, ..query };
    let second = h.store.list(query).await.expect("the call succeeds");
    assert_eq!((second.jobs.len(), second.cursor), (1, None));
}

pub(crate) async fn for_a_put_a_done_job_is_absent(h: &Harness) {
    keep_all(h).await;
    complete(h, "a").await;
    let first = h.view("a").await.version.generation;
    let expected = h.try_put(job("a").if_generation(first)).await;
    assert!(matches!(expected, Err(PutError::Generation { found: None, .. })), "{expected:?}");
    let placed = h.put(job("a").body("again").if_absent()).await;
    assert_eq!(placed.outcome, PutOutcome::Created);
    assert!(placed.generation > first);
    let view = h.view("a").await;
    assert_eq!((view.state, view.done, view.created_at), (JobState::Ready, None, h.now()));
    assert_eq!(done(h).await, 0);
    assert_eq!(h.claim().await.body().bytes(), b"again");
}

pub(crate) async fn if_new_fails_if_the_job_is_done(h: &Harness) {
    keep_all(h).await;
    complete(h, "a").await;
    let before = h.view("a").await;
    let again = h.try_put(job("a").if_new()).await;
    let exists = matches!(
        &again,
        Err(PutError::Exists { generation, .. }) if *generation == before.version.generation
    );
    assert!(exists, "{again:?}");
    assert_eq!(h.view("a").await, before);
    h.claims_nothing().await;
}

pub(crate) async fn if_new_fails_if_the_job_exists(h: &Harness) {
    assert_eq!(h.put(job("a").if_new()).await.outcome, PutOutcome::Created);
    for state in ["ready", "leased"] {
        let again = h.try_put(job("a").if_new()).await;
        assert!(matches!(again, Err(PutError::Exists { .. })), "{state}: {again:?}");
        h.claim_up_to(1).await;
    }
    h.die("b").await;
    let again = h.try_put(job("b").if_new()).await;
    assert!(matches!(again, Err(PutError::Exists { .. })), "dead: {again:?}");
}

pub(crate) async fn a_job_whose_successor_follows_is_not_done(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.put(job("a").body("next")).await;
    h.ack(&claimed).await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.done, done(h).await), (JobState::Ready, None, 0));
    let claimed = h.claim().await;
    h.settle(&claimed, Settlement::RequeueAfter(secs(1))).await.expect("the lease is current");
    assert_eq!(h.view("a").await.state, JobState::Waiting);
}

pub(crate) async fn a_cancelled_job_is_not_done(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.cancel("a").await;
    assert_eq!(h.ack(&claimed).await, Settled::Cancelled);
    assert_eq!((h.get("a").await, done(h).await), (None, 0));
}

pub(crate) async fn a_done_job_can_be_removed_but_not_run(h: &Harness) {
    keep_all(h).await;
    complete(h, "a").await;
    let before = h.view("a").await;
    let run = h.change("a", ChangeKind::RunNow).await;
    assert!(matches!(run, Err(ChangeError::Done { .. })), "{run:?}");
    let revived = h.change("a", ChangeKind::Revive).await;
    assert!(matches!(revived, Err(ChangeError::NotDead { .. })), "{revived:?}");
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.cancel("a").await, Changed::Removed);
    assert_eq!((h.get("a").await, done(h).await), (None, 0));
}

pub(crate) async fn a_receipt_of_a_done_job_is_lost(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    h.assert_lost(&claimed).await;
}

pub(crate) async fn done_jobs_are_dropped_when_they_are_too_old(h: &Harness) {
    keep(h, secs(60), 100).await;
    complete(h, "a").await;
    h.advance(secs(30));
    complete(h, "b").await;
    h.advance(secs(29));
    assert_eq!((h.reap().await, done(h).await), (0, 2));
    h.advance(millis(1));
    assert_eq!(h.reap().await, 1);
    assert_eq!(h.list(|_| ()).await, ["b"]);
    h.advance(secs(60));
    assert_eq!((h.reap().await, done(h).await), (1, 0));
}

pub(crate) async fn done_jobs_are_dropped_when_there_are_too_many(h: &Harness) {
    keep(h, secs(86_400), 2).await;
    for name in ["c", "a", "b"] {
        complete(h, name).await;
        h.advance(millis(1));
    }
    h.reap().await;
    assert_eq!(h.list(|_| ()).await, ["a", "b"], "the oldest was dropped");
    h.set(|settings| settings.keep_done = None).await;
    h.reap().await;
    assert_eq!((h.list(|_| ()).await.len(), done(h).await), (0, 0), "none are kept any more");
}

pub(crate) async fn done_and_dead_jobs_have_retentions_of_their_own(h: &Harness) {
    keep(h, secs(10), 10).await;
    h.set(|settings| settings.retention = Retention { age: secs(60), count: 1 }).await;
    complete(h, "a").await;
    h.die("b").await;
    complete(h, "c").await;
    assert_eq!((h.reap().await, h.list(|_| ()).await.len()), (0, 3));
    h.advance(secs(12));
    assert_eq!(h.reap().await, 2);
    assert_eq!(h.list(|_| ()).await, ["b"]);
}

pub(crate) async fn a_done_job_is_restored(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.settle(&claimed, Settlement::AckWith(text("result"))).await.expect("the lease is current");
    let view = h.view("a").await;
    h.cancel("a").await;
    assert_eq!(h.restore(view.clone()).await, Restored::Created);
    assert_eq!(h.view("a").await, view);
    assert_eq!(done(h).await, 1);
    assert_eq!(h.restore(view).await, Restored::Kept);
}

pub(crate) async fn a_restored_job_replaces_a_done_one(h: &Harness) {
    keep_all(h).await;
    h.put(job("a").after(secs(60))).await;
    let mut waiting = h.view("a").await;
    h.run_now("a").await;
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    // One that another store has assigned the same generation.
    waiting.created_at = waiting.created_at.saturating_add(millis(1));
    assert_eq!(h.restore(waiting.clone()).await, Restored::Created);
    let view = h.view("a").await;
    assert_eq!(
        (view.state, view.version.content.body),
        (JobState::Waiting, waiting.version.content.body)
    );
    h.advance(secs(60));
    assert_eq!(ids(&h.claim_up_to(10).await), ["a"]);
}

pub(crate) async fn a_restored_job_that_is_done_is_not_restored_again(h: &Harness) {
    keep_all(h).await;
    h.put("a").await;
    let exported = h.view("a").await;
    h.cancel("a").await;
    assert_eq!(h.restore(exported.clone()).await, Restored::Created);
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    assert_eq!(h.restore(exported).await, Restored::Kept);
    assert_eq!(h.view("a").await.state, JobState::Done);
}
