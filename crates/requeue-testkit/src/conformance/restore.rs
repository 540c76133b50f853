//! Restoring the jobs of another store.

use crate::harness::{Harness, id, ids, job, kind, mail, millis, secs, text};
use requeue_jobs::limits::{
    MAX_BATCH, MAX_BODY_LEN, MAX_COUNTER, MAX_DELAY, MAX_ERROR_LEN, MAX_RESTORED,
};
use requeue_jobs::{
    Body, ChangeKind, FailedAttempt, Fence, Generation, Invalid, JobState, JobView, LeaseView,
    Priority, PutOutcome, Receipt, Restore, Restored, Retention, Settle, SettleError, Settled,
    Settlement, StoreError, Timestamp, Version, WorkerName,
};
use std::time::Duration;

fn ago(h: &Harness, by: Duration) -> Timestamp {
    let millis = u64::try_from(by.as_millis()).expect("the time is after 1970");
    Timestamp::from_millis(h.now().as_millis() - millis)
}

fn worker() -> WorkerName {
    WorkerName::new("elsewhere").expect("a valid name")
}

/// A job that another store had for a minute, with generation 7, due now.
fn pending(h: &Harness, name: &str) -> JobView {
    let mut view = JobView::new(mail(), id(name), Version::new(text(name), h.now(), Generation(7)));
    view.state = JobState::Ready;
    (view.created_at, view.updated_at) = (ago(h, secs(60)), ago(h, secs(30)));
    view
}

/// The same job after this many failures, due in ten seconds.
fn failed(h: &Harness, name: &str, attempts: u32) -> JobView {
    let (started_at, ended_at) = (ago(h, secs(40)), ago(h, secs(30)));
    let failure = |error: Option<&str>| {
        let error = error.map(Into::into);
        FailedAttempt { worker: worker(), started_at, ended_at, error }
    };
    let mut view = pending(h, name);
    (view.attempts, view.version.due, view.state) =
        (attempts, h.after(secs(10)), JobState::Waiting);
    view.failures = vec![failure(None), failure(Some("it broke"))];
    view
}

fn dead(h: &Harness, name: &str, died_at: Timestamp) -> JobView {
    let mut view = failed(h, name, 2);
    (view.state, view.died_at, view.deaths) = (JobState::Dead, Some(died_at), 3);
    view
}

/// The same job, claimed ten seconds ago for thirty seconds.
fn leased(h: &Harness, name: &str) -> JobView {
    let mut view = pending(h, name);
    view.version.due = ago(h, secs(15));
    view.state = JobState::Leased;
    let (claimed_at, ends_at) = (ago(h, secs(10)), h.after(secs(20)));
    view.lease = Some(LeaseView {
        worker: worker(),
        claimed_at,
        ends_at,
        cancelled: false,
        fence: Fence::default(),
    });
    view
}

/// The same leased job with a successor.
fn succeeded(h: &Harness, name: &str, due: Timestamp) -> JobView {
    let mut view = leased(h, name);
    let (body, priority, generation) = (text("next"), Priority::default(), Generation(9));
    view.next = Some(Version { content: body.into(), due, priority, generation });
    view
}

fn cancelled(mut view: JobView) -> JobView {
    if let Some(lease) = &mut view.lease {
        lease.cancelled = true;
    }
    view
}

pub(crate) async fn a_restored_job_is_unchanged(h: &Harness) {
    let mut waiting = failed(h, "waiting", 2);
    (waiting.deaths, waiting.version.content.body) =
        (1, Body::octets([0, 255]).expect("a small body"));
    for before in [pending(h, "ready"), waiting, dead(h, "dead", ago(h, secs(5)))] {
        assert_eq!(h.restore(before.clone()).await, Restored::Created);
        let mut after = h.view(before.id.as_str()).await;
        if after.state == JobState::Dead {
            // The contract does not specify the due time of a dead job.
            after.version.due = before.version.due;
        }
        assert_eq!(after, before);
    }
    assert_eq!(h.counts().await, [2, 0, 1, 1]);
}

pub(crate) async fn a_restored_job_is_delivered_when_it_is_due_and_not_before(h: &Harness) {
    let mut first = pending(h, "first");
    first.version.due = ago(h, secs(2));
    let mut later = pending(h, "later");
    (later.version.due, later.state) = (h.after(secs(5)), JobState::Waiting);
    h.restore_all([later, pending(h, "second"), first]).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["first", "second"]);
    h.advance(secs(5) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    let claimed = h.claim().await;
    assert_eq!((claimed.version.generation, claimed.created_at), (Generation(7), ago(h, secs(65))));
    h.ack(&claimed).await;
}

pub(crate) async fn a_restored_job_keeps_its_attempts(h: &Harness) {
    h.set(|settings| settings.max_attempts = 3).await;
    h.restore(failed(h, "a", 2)).await;
    h.advance(secs(10));
    let claimed = h.claim().await;
    assert_eq!(claimed.attempt, 3);
    h.fail(&claimed, "again").await;
    let view = h.view("a").await;
    assert_eq!((view.state, view.failures.len()), (JobState::Dead, 3));
}

pub(crate) async fn a_put_does_not_end_the_backoff_of_a_restored_job(h: &Harness) {
    let due = h.after(secs(10));
    h.restore(failed(h, "a", 1)).await;
    assert_eq!(h.put(job("a").body("new")).await.outcome, PutOutcome::Updated);
    let view = h.view("a").await;
    assert_eq!((view.version.due, view.version.content.body, view.attempts), (due, text("new"), 1));
    h.run_now("a").await;
    h.claim().await;
}

pub(crate) async fn a_restored_debounced_job_waits_no_longer_than_max_wait(h: &Harness) {
    h.restore(pending(h, "a")).await;
    h.put(job("a").after(secs(30)).debounce(secs(70))).await;
    assert!(h.view("a").await.version.due <= h.after(secs(10)), "created a minute ago");
}

pub(crate) async fn a_restored_dead_job_is_dead_and_can_be_revived(h: &Harness) {
    h.restore_all([dead(h, "a", ago(h, secs(5))), dead(h, "b", h.now())]).await;
    h.advance(secs(3600));
    h.claims_nothing().await;
    h.change("a", ChangeKind::Revive).await.expect("the job is dead");
    assert_eq!(h.put("b").await.outcome, PutOutcome::Revived);
    for name in ["a", "b"] {
        let view = h.view(name).await;
        assert_eq!((view.state, view.attempts, view.deaths), (JobState::Ready, 0, 3));
        assert_eq!(view.failures.len(), 2);
    }
}

pub(crate) async fn restored_dead_jobs_are_dropped_by_the_time_of_their_death(h: &Harness) {
    let retention = Retention { age: secs(60), count: 2 };
    h.set(|settings| settings.retention = retention).await;
    let died = [("a", 10), ("b", 61), ("c", 20), ("d", 30)];
    for (name, since) in died {
        h.restore(dead(h, name, ago(h, secs(since)))).await;
    }
    h.reap().await;
    assert_eq!(h.list(|_| {}).await, ["a", "c"]);
}

pub(crate) async fn an_existing_job_is_kept_in_any_state(h: &Harness) {
    h.die("dead").await;
    h.put("leased").await;
    h.claim().await;
    h.put("leased").await;
    h.put("ready").await;
    h.put(job("waiting").after(secs(5))).await;
    for name in ["dead", "leased", "ready", "waiting"] {
        let before = h.view(name).await;
        h.advance(millis(1));
        for other in [failed(h, name, 1), dead(h, name, h.now()), cancelled(leased(h, name))] {
            assert_eq!(h.restore(other).await, Restored::Kept);
        }
        assert_eq!(h.view(name).await, before);
    }
    assert_eq!(h.counts().await, [2, 1, 1, 1]);
}

pub(crate) async fn a_second_restore_changes_nothing(h: &Harness) {
    let jobs = || {
        let later = h.after(secs(60));
        let ended = cancelled(leased(h, "ended"));
        [pending(h, "a"), dead(h, "b", h.now()), succeeded(h, "c", later), ended]
    };
    let (first, again) = (h.restore_all(jobs()).await, h.restore_all(jobs()).await);
    let (created, kept, ended) = (Restored::Created, Restored::Kept, Restored::Ended);
    assert_eq!(first, [Ok(created), Ok(created), Ok(created), Ok(ended)]);
    assert_eq!(again, [Ok(kept), Ok(kept), Ok(kept), Ok(ended)]);
    assert_eq!(h.counts().await, [2, 0, 1, 1]);
}

pub(crate) async fn new_generations_are_above_the_restored_ones(h: &Harness) {
    h.restore(pending(h, "a")).await;
    assert_eq!(h.kinds().await[0].generation, Generation(10));
    let placed = h.put("b").await;
    assert!(placed.generation > Generation(10), "{placed:?}");
    // The jobs have higher numbers than the kind.
    let mut newer = pending(h, "c");
    newer.version.generation = Generation(1000);
    h.restore(newer).await;
    assert!(h.put("b").await.generation > Generation(1000));
    h.restore(pending(h, "d")).await;
    assert!(h.put("b").await.generation > Generation(1001), "generations never fall");
    let mut highest = pending(h, "e");
    highest.version.generation = Generation(MAX_RESTORED);
    h.restore(highest).await;
    let (first, second) = (h.put("b").await.generation, h.put("b").await.generation);
    assert!(Generation(MAX_RESTORED) < first && first < second, "{first:?} {second:?}");
    assert_eq!(h.view("b").await.version.generation, second);
}

pub(crate) async fn new_fences_are_above_the_restored_ones(h: &Harness) {
    let fence = Fence(MAX_RESTORED);
    let (generation, jobs) = (Generation(10), vec![pending(h, "a"), pending(h, "b")]);
    let restore = Restore { kind: mail(), generation, fence, jobs };
    h.store.restore(restore).await.expect("the call succeeds");
    let claimed = h.claim().await;
    assert!(claimed.receipt.fence() > fence, "{:?}", claimed.receipt);
    let next = h.claim().await;
    assert!(next.receipt.fence() > claimed.receipt.fence(), "{:?}", next.receipt);
    assert_eq!(h.kinds().await[0].fence, next.receipt.fence());
}

/// Whatever is imported, the kind and the kinds that are created later can be used.
pub(crate) async fn no_restore_uses_up_the_numbers_of_a_kind(h: &Harness) {
    let restore = |number, fence, name| Restore {
        kind: mail(),
        generation: Generation(number),
        fence: Fence(fence),
        jobs: vec![pending(h, name)],
    };
    let most = MAX_RESTORED;
    let restored = h.store.restore(restore(most, most, "a")).await;
    assert_eq!(restored, Ok(vec![Ok(Restored::Created)]));
    for (number, fence) in [(most + 1, most), (most, most + 1), (MAX_COUNTER, 0), (u64::MAX, 0)] {
        match h.store.restore(restore(number, fence, "b")).await {
            Err(StoreError::Invalid(Invalid::TooHigh { value, limit, .. })) => {
                assert_eq!((value, limit), (number.max(fence), most));
            }
            other => panic!("expected an error about the number, got {other:?}"),
        }
    }
    assert_eq!(h.get("b").await, None);
    let claimed = h.claim().await;
    assert!(claimed.receipt.fence() > Fence(most), "{:?}", claimed.receipt);
    let settled = h.settle(&claimed, Settlement::RequeueAfter(Duration::ZERO)).await;
    assert_eq!(settled, Ok(Settled::Done));
    let placed = h.put("c").await.generation;
    assert!(Generation(most) < placed && placed < Generation(most + most / 2), "{placed:?}");
    assert!(h.put(job("c").of("other")).await.generation < Generation(most + most / 2));
    let claimed = h.claim().await;
    assert!(claimed.receipt.fence() < Fence(most + most / 2), "{:?}", claimed.receipt);
}

pub(crate) async fn a_leased_job_is_restored_as_pending_until_its_lease_ends(h: &Harness) {
    let mut before = leased(h, "a");
    before.attempts = 1;
    h.restore(before.clone()).await;
    let mut expected = before;
    (expected.state, expected.lease) = (JobState::Waiting, None);
    expected.version.due = h.after(secs(20));
    assert_eq!(h.view("a").await, expected);
    assert_eq!(h.counts().await, [1, 0, 0, 0]);
    h.advance(secs(20) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.attempt, 2, "the end of the lease was moved");
}

pub(crate) async fn a_put_does_not_make_it_due_before_its_lease_ends(h: &Harness) {
    let end = h.after(secs(20));
    h.restore(leased(h, "a")).await;
    h.put(job("a").body("new")).await;
    let view = h.view("a").await;
    assert_eq!((view.version.due, view.version.content.body), (end, text("new")));
    h.run_now("a").await;
    h.claim().await;
}

pub(crate) async fn a_job_with_an_expired_lease_is_restored_as_ready(h: &Harness) {
    let before = leased(h, "a");
    h.advance(secs(60));
    h.restore(before).await;
    assert_eq!(h.view("a").await.version.due, ago(h, secs(40)));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn the_receipt_of_a_restored_lease_is_refused(h: &Harness) {
    h.restore(leased(h, "a")).await;
    let before = h.view("a").await;
    let receipt = Receipt::new(mail(), id("a"), Fence(10), 1);
    let action = Settlement::Ack;
    let settle = Settle { receipt: receipt.clone(), action };
    let results = h.store.settle(vec![settle]).await.expect("the call succeeds");
    assert_eq!(results, [Err(SettleError::LeaseLost { receipt })]);
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn a_successor_takes_the_place_of_its_leased_job(h: &Harness) {
    let mut before = succeeded(h, "a", h.now());
    (before.attempts, before.deaths) = (2, 1);
    h.restore(before.clone()).await;
    let view = h.view("a").await;
    assert_eq!((view.version.content.body, view.version.generation), (text("next"), Generation(9)));
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(20))));
    assert_eq!((view.attempts, view.deaths), (2, 1));
    assert_eq!(view.created_at, before.created_at);
    h.advance(secs(20));
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    assert_eq!(h.get("a").await, None, "the job runs once");
}

pub(crate) async fn a_successor_that_is_due_later_is_due_then(h: &Harness) {
    let later = h.after(secs(60));
    h.restore(succeeded(h, "a", later)).await;
    assert_eq!(h.view("a").await.version.due, later);
    h.put("a").await;
    assert_eq!(
        h.view("a").await.version.due,
        h.after(secs(20)),
        "the job is due when the lease ends"
    );
}

pub(crate) async fn a_cancelled_leased_job_is_not_restored(h: &Harness) {
    assert_eq!(h.restore(cancelled(leased(h, "a"))).await, Restored::Ended);
    assert_eq!((h.get("a").await, h.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn a_successor_after_a_cancel_is_restored_as_a_new_job(h: &Harness) {
    let mut before = cancelled(succeeded(h, "a", h.now()));
    (before.attempts, before.deaths, before.failures) = (2, 1, failed(h, "a", 2).failures);
    assert_eq!(h.restore(before.clone()).await, Restored::Created);
    let view = h.view("a").await;
    assert_eq!((view.version.content.body, view.version.generation), (text("next"), Generation(9)));
    assert_eq!((view.attempts, view.deaths, view.failures), (0, 0, vec![]));
    assert_eq!((view.version.due, view.created_at), (h.after(secs(20)), before.updated_at));
    h.advance(secs(20));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn a_restored_job_ends_a_wait(h: &Harness) {
    let waiting = h.wait();
    h.restore(pending(h, "a")).await;
    waiting.ends().await;
}

pub(crate) async fn jobs_are_restored_in_order_and_independently(h: &Harness) {
    let mut twice = pending(h, "b");
    twice.version.content.body = text("second");
    let mut impossible = pending(h, "c");
    impossible.died_at = Some(h.now());
    let results = h.restore_all([pending(h, "b"), impossible, twice, pending(h, "d")]).await;
    let outcomes: Vec<_> = results.iter().map(|result| result.as_ref().ok().copied()).collect();
    let (created, kept) = (Some(Restored::Created), Some(Restored::Kept));
    assert_eq!(outcomes, [created, None, kept, created]);
    assert_eq!(h.view("b").await.version.content.body, text("b"));
    assert_eq!(h.list(|_| {}).await, ["b", "d"]);
    assert_eq!(h.restore_all([]).await, []);
}

pub(crate) async fn an_invalid_job_is_refused(h: &Harness) {
    let mut of_another_kind = pending(h, "a");
    of_another_kind.kind = kind("sms");
    let mut with_a_lease = leased(h, "a");
    with_a_lease.state = JobState::Ready;
    let mut without_a_lease = leased(h, "a");
    without_a_lease.lease = None;
    let mut with_a_successor = succeeded(h, "a", h.now());
    (with_a_successor.state, with_a_successor.lease) = (JobState::Waiting, None);
    let mut dead_since_never = dead(h, "a", h.now());
    dead_since_never.died_at = None;
    let mut not_dead = dead(h, "a", h.now());
    not_dead.state = JobState::Waiting;
    for impossible in [
        of_another_kind,
        with_a_lease,
        without_a_lease,
        with_a_successor,
        dead_since_never,
        not_dead,
    ] {
        let result = h.restore_all([impossible.clone()]).await.remove(0);
        let Err(StoreError::Invalid(Invalid::InconsistentJob { id: found, .. })) = result else {
            panic!("expected a refusal, got {result:?}: {impossible:?}");
        };
        assert_eq!(found, id("a"));
    }
    let mut failed_too_often = failed(h, "a", 6);
    failed_too_often.failures = vec![failed_too_often.failures[0].clone(); 6];
    let result = h.restore_all([failed_too_often]).await.remove(0);
    let too_many = Invalid::TooMany { what: "failed attempts of a job", count: 6, limit: 5 };
    assert_eq!(result, Err(too_many.into()));
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn long_errors_are_cut(h: &Harness) {
    let mut before = failed(h, "a", 2);
    before.failures[1].error = Some("x".repeat(MAX_ERROR_LEN + 1).into());
    h.restore(before).await;
    let error = h.view("a").await.failures.remove(1).error.expect("the failure has an error");
    assert_eq!(error.len(), MAX_ERROR_LEN);
}

pub(crate) async fn numbers_and_times_that_are_too_high_are_refused(h: &Harness) {
    let too_high = |result: Result<_, StoreError>| {
        let is = matches!(
            &result,
            Err(StoreError::Invalid(Invalid::TooHigh { value, limit: MAX_RESTORED, .. }))
                if *value == MAX_RESTORED + 1
        );
        assert!(is, "expected an error about the number, got {result:?}");
    };
    let high = MAX_RESTORED + 1;
    for (generation, fence) in [(high, 0), (0, high)] {
        let (generation, fence) = (Generation(generation), Fence(fence));
        let restore = Restore { kind: mail(), generation, fence, jobs: vec![pending(h, "a")] };
        too_high(h.store.restore(restore).await.map(|_| Restored::Created));
    }
    let mut job = pending(h, "a");
    job.version.generation = Generation(high);
    too_high(h.restore_all([job]).await.remove(0));

    let far = h.after(MAX_DELAY + millis(1));
    let changes: [fn(&mut JobView, Timestamp); 4] = [
        |job, far| job.version.due = far,
        |job, far| job.died_at = Some(far),
        |job, far| job.created_at = far,
        |job, far| job.failures[0].ended_at = far,
    ];
    for change in changes {
        let mut job = dead(h, "a", h.now());
        change(&mut job, far);
        let result = h.restore_all([job]).await.remove(0);
        let is = matches!(&result, Err(StoreError::Invalid(Invalid::OutOfRange { value, .. }))
            if *value == MAX_DELAY + millis(1));
        assert!(is, "expected an error about the time, got {result:?}");
    }
    let mut lease = leased(h, "a");
    lease.lease.as_mut().expect("the job is leased").ends_at = far;
    assert!(h.restore_all([lease]).await.remove(0).is_err());
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn a_restore_has_the_batch_limit_of_puts(h: &Harness) {
    let restore = |jobs: Vec<JobView>| {
        let (generation, fence) = (Generation(10), Fence(10));
        h.store.restore(Restore { kind: mail(), generation, fence, jobs })
    };
    let many = |count: usize| (0..count).map(|n| pending(h, &format!("{n:04}"))).collect();
    let error = restore(many(MAX_BATCH + 1)).await.expect_err("one too many");
    let count = MAX_BATCH + 1;
    let too_many = Invalid::TooMany { what: "entries in a batch", count, limit: MAX_BATCH };
    assert_eq!(error, too_many.into());
    let large = Body::octets(vec![7; MAX_BODY_LEN]).expect("the value is within the limit");
    let leased = |n: usize| {
        let mut view = succeeded(h, &format!("large {n}"), h.now());
        view.version.content.body = large.clone();
        view.next.as_mut().expect("the job has a successor").content.body = large.clone();
        view
    };
    let error = restore((0..9).map(leased).collect()).await.expect_err("eighteen mebibytes");
    assert!(matches!(error, StoreError::Invalid(Invalid::TooLong { .. })), "{error:?}");
    assert_eq!(h.counts().await, [0; 4]);
    let results = restore(many(MAX_BATCH)).await.expect("the batch is within the limit");
    assert!(results.iter().all(|result| *result == Ok(Restored::Created)));
}
