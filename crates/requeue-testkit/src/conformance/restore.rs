//! Jobs that another store had.

use crate::trial::{Trial, id, ids, job, kind, mail, millis, secs, text};
use requeue_jobs::limits::{MAX_BATCH, MAX_BODY_LEN, MAX_COUNTER, MAX_DELAY, MAX_ERROR_LEN};
use requeue_jobs::{
    Body, ChangeKind, FailedAttempt, Fence, Generation, Invalid, JobState, JobView, LeaseView,
    PutOutcome, Receipt, Restore, Restored, Retention, Settle, SettleError, Settlement, StoreError,
    SuccessorView, Timestamp, WorkerName,
};
use std::time::Duration;

fn ago(t: &Trial, by: Duration) -> Timestamp {
    let millis = u64::try_from(by.as_millis()).expect("not that long ago");
    Timestamp::from_millis(t.now().as_millis() - millis)
}

fn worker() -> WorkerName {
    WorkerName::new("elsewhere").expect("a valid name")
}

/// A job that another store had for a minute, of generation 7, and that is due now.
fn pending(t: &Trial, name: &str) -> JobView {
    let mut view = JobView::new(mail(), id(name), text(name), t.now(), Generation(7));
    view.state = JobState::Ready;
    (view.created_at, view.updated_at) = (ago(t, secs(60)), ago(t, secs(30)));
    view
}

/// It has failed so often, and is due in ten seconds.
fn failed(t: &Trial, name: &str, attempts: u32) -> JobView {
    let (started_at, ended_at) = (ago(t, secs(40)), ago(t, secs(30)));
    let failure = |error: Option<&str>| {
        let error = error.map(Into::into);
        FailedAttempt { worker: worker(), started_at, ended_at, error }
    };
    let mut view = pending(t, name);
    (view.attempts, view.due, view.state) = (attempts, t.after(secs(10)), JobState::Waiting);
    view.failures = vec![failure(None), failure(Some("it broke"))];
    view
}

fn dead(t: &Trial, name: &str, died_at: Timestamp) -> JobView {
    let mut view = failed(t, name, 2);
    (view.state, view.died_at, view.deaths) = (JobState::Dead, Some(died_at), 3);
    view
}

/// Somebody has claimed it, ten seconds ago, until in twenty seconds.
fn leased(t: &Trial, name: &str) -> JobView {
    let mut view = pending(t, name);
    view.due = ago(t, secs(15));
    view.state = JobState::Leased;
    let (claimed_at, ends_at) = (ago(t, secs(10)), t.after(secs(20)));
    view.lease = Some(LeaseView { worker: worker(), claimed_at, ends_at, cancelled: false });
    view
}

/// The same, and something was put meanwhile.
fn succeeded(t: &Trial, name: &str, due: Timestamp) -> JobView {
    let mut view = leased(t, name);
    view.next = Some(SuccessorView { body: text("next"), due, generation: Generation(9) });
    view
}

fn cancelled(mut view: JobView) -> JobView {
    if let Some(lease) = &mut view.lease {
        lease.cancelled = true;
    }
    view
}

pub(crate) async fn a_restored_job_is_as_it_was(t: &Trial) {
    let mut waiting = failed(t, "waiting", 2);
    (waiting.deaths, waiting.body) = (1, Body::octets([0, 255]).expect("a small body"));
    for before in [pending(t, "ready"), waiting, dead(t, "dead", ago(t, secs(5)))] {
        assert_eq!(t.restore(before.clone()).await, Restored::Created);
        let mut after = t.view(before.id.as_str()).await;
        if after.state == JobState::Dead {
            // When a dead job would have been due, nobody promises.
            after.due = before.due;
        }
        assert_eq!(after, before);
    }
    assert_eq!(t.counts().await, [2, 0, 1, 1]);
}

pub(crate) async fn a_restored_job_is_delivered_when_it_is_due_and_not_before(t: &Trial) {
    let mut first = pending(t, "first");
    first.due = ago(t, secs(2));
    let mut later = pending(t, "later");
    (later.due, later.state) = (t.after(secs(5)), JobState::Waiting);
    t.restore_all([later, pending(t, "second"), first]).await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["first", "second"]);
    t.advance(secs(5) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    let claimed = t.claim().await;
    assert_eq!((claimed.generation, claimed.created_at), (Generation(7), ago(t, secs(65))));
    t.ack(&claimed).await;
}

pub(crate) async fn a_restored_job_goes_on_with_its_attempts(t: &Trial) {
    t.set(|settings| settings.max_attempts = 3).await;
    t.restore(failed(t, "a", 2)).await;
    t.advance(secs(10));
    let claimed = t.claim().await;
    assert_eq!(claimed.attempt, 3);
    t.fail(&claimed, "again").await;
    let view = t.view("a").await;
    assert_eq!((view.state, view.failures.len()), (JobState::Dead, 3));
}

pub(crate) async fn a_restored_job_that_has_failed_is_not_put_to_a_sooner_time(t: &Trial) {
    let due = t.after(secs(10));
    t.restore(failed(t, "a", 1)).await;
    assert_eq!(t.put(job("a").body("new")).await.outcome, PutOutcome::Updated);
    let view = t.view("a").await;
    assert_eq!((view.due, view.body, view.attempts), (due, text("new"), 1));
    t.run_now("a").await;
    t.claim().await;
}

pub(crate) async fn a_restored_debounced_job_waits_no_longer_than_it_may(t: &Trial) {
    t.restore(pending(t, "a")).await;
    t.put(job("a").after(secs(30)).debounce(secs(70))).await;
    assert!(t.view("a").await.due <= t.after(secs(10)), "created a minute ago");
}

pub(crate) async fn a_restored_dead_job_is_dead_and_can_be_revived(t: &Trial) {
    t.restore_all([dead(t, "a", ago(t, secs(5))), dead(t, "b", t.now())]).await;
    t.advance(secs(3600));
    t.claims_nothing().await;
    t.change("a", ChangeKind::Revive).await.expect("it is dead");
    assert_eq!(t.put("b").await.outcome, PutOutcome::Revived);
    for name in ["a", "b"] {
        let view = t.view(name).await;
        assert_eq!((view.state, view.attempts, view.deaths), (JobState::Ready, 0, 3));
        assert_eq!(view.failures.len(), 2);
    }
}

pub(crate) async fn restored_dead_jobs_are_dropped_by_the_time_of_their_death(t: &Trial) {
    let retention = Retention { age: secs(60), count: 2 };
    t.set(|settings| settings.retention = retention).await;
    let died = [("a", 10), ("b", 61), ("c", 20), ("d", 30)];
    for (name, since) in died {
        t.restore(dead(t, name, ago(t, secs(since)))).await;
    }
    t.reap().await;
    assert_eq!(t.list(|_| {}).await, ["a", "c"]);
}

pub(crate) async fn a_job_that_is_there_is_kept_whatever_its_state(t: &Trial) {
    t.die("dead").await;
    t.put("leased").await;
    t.claim().await;
    t.put("leased").await;
    t.put("ready").await;
    t.put(job("waiting").after(secs(5))).await;
    for name in ["dead", "leased", "ready", "waiting"] {
        let before = t.view(name).await;
        t.advance(millis(1));
        for other in [failed(t, name, 1), dead(t, name, t.now()), cancelled(leased(t, name))] {
            assert_eq!(t.restore(other).await, Restored::Kept);
        }
        assert_eq!(t.view(name).await, before);
    }
    assert_eq!(t.counts().await, [2, 1, 1, 1]);
}

pub(crate) async fn restoring_twice_is_restoring_once(t: &Trial) {
    let jobs = || {
        let later = t.after(secs(60));
        let ended = cancelled(leased(t, "ended"));
        [pending(t, "a"), dead(t, "b", t.now()), succeeded(t, "c", later), ended]
    };
    let (first, again) = (t.restore_all(jobs()).await, t.restore_all(jobs()).await);
    let (created, kept, ended) = (Restored::Created, Restored::Kept, Restored::Ended);
    assert_eq!(first, [Ok(created), Ok(created), Ok(created), Ok(ended)]);
    assert_eq!(again, [Ok(kept), Ok(kept), Ok(kept), Ok(ended)]);
    assert_eq!(t.counts().await, [2, 0, 1, 1]);
}

pub(crate) async fn generations_go_on_above_the_restored(t: &Trial) {
    t.restore(pending(t, "a")).await;
    assert_eq!(t.kinds().await[0].generation, Generation(10));
    let placed = t.put("b").await;
    assert!(placed.generation > Generation(10), "{placed:?}");
    // Whatever is said of the kind, its jobs have theirs.
    let mut newer = pending(t, "c");
    newer.generation = Generation(1000);
    t.restore(newer).await;
    assert!(t.put("b").await.generation > Generation(1000));
    t.restore(pending(t, "d")).await;
    assert!(t.put("b").await.generation > Generation(1001), "they never fall");
    let mut highest = pending(t, "e");
    highest.generation = Generation(MAX_COUNTER);
    t.restore(highest).await;
    let (first, second) = (t.put("b").await.generation, t.put("b").await.generation);
    assert!(second > first && first > Generation(MAX_COUNTER), "{first} {second}");
    assert_eq!(t.view("b").await.generation, second);
}

pub(crate) async fn fences_go_on_above_the_restored(t: &Trial) {
    let fence = Fence(MAX_COUNTER);
    let (generation, jobs) = (Generation(10), vec![pending(t, "a"), pending(t, "b")]);
    let restore = Restore { kind: mail(), generation, fence, jobs };
    t.store.restore(restore).await.expect("it is taken");
    let claimed = t.claim().await;
    assert!(claimed.receipt.fence() > fence, "{:?}", claimed.receipt);
    let next = t.claim().await;
    assert!(next.receipt.fence() > claimed.receipt.fence(), "{:?}", next.receipt);
    assert_eq!(t.kinds().await[0].fence, next.receipt.fence());
}

pub(crate) async fn a_leased_job_arrives_pending_until_its_lease_ends(t: &Trial) {
    let mut before = leased(t, "a");
    before.attempts = 1;
    t.restore(before.clone()).await;
    let mut expected = before;
    (expected.state, expected.lease) = (JobState::Waiting, None);
    expected.due = t.after(secs(20));
    assert_eq!(t.view("a").await, expected);
    assert_eq!(t.counts().await, [1, 0, 0, 0]);
    t.advance(secs(20) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.attempt, 2, "the lease did not expiry: it moved");
}

pub(crate) async fn a_put_does_not_make_it_due_before_its_lease_ends(t: &Trial) {
    let end = t.after(secs(20));
    t.restore(leased(t, "a")).await;
    t.put(job("a").body("new")).await;
    let view = t.view("a").await;
    assert_eq!((view.due, view.body), (end, text("new")));
    t.run_now("a").await;
    t.claim().await;
}

pub(crate) async fn a_lease_that_is_over_arrives_ready(t: &Trial) {
    let before = leased(t, "a");
    t.advance(secs(60));
    t.restore(before).await;
    assert_eq!(t.view("a").await.due, ago(t, secs(40)));
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn the_receipt_of_a_restored_lease_is_lost(t: &Trial) {
    t.restore(leased(t, "a")).await;
    let before = t.view("a").await;
    let receipt = Receipt::new(mail(), id("a"), Fence(10), 1);
    let action = Settlement::Ack;
    let settle = Settle { receipt: receipt.clone(), action };
    let answers = t.store.settle(vec![settle]).await.expect("it is taken");
    assert_eq!(answers, [Err(SettleError::LeaseLost { receipt })]);
    assert_eq!(t.view("a").await, before);
}

pub(crate) async fn a_successor_takes_the_place_of_its_leased_job(t: &Trial) {
    let mut before = succeeded(t, "a", t.now());
    (before.attempts, before.deaths) = (2, 1);
    t.restore(before.clone()).await;
    let view = t.view("a").await;
    assert_eq!((view.body, view.generation), (text("next"), Generation(9)));
    assert_eq!((view.state, view.due), (JobState::Waiting, t.after(secs(20))));
    assert_eq!((view.attempts, view.deaths), (2, 1));
    assert_eq!(view.created_at, before.created_at);
    t.advance(secs(20));
    let claimed = t.claim().await;
    t.ack(&claimed).await;
    assert_eq!(t.get("a").await, None, "it runs once");
}

pub(crate) async fn a_successor_that_is_due_later_is_due_then(t: &Trial) {
    let later = t.after(secs(60));
    t.restore(succeeded(t, "a", later)).await;
    assert_eq!(t.view("a").await.due, later);
    t.put("a").await;
    assert_eq!(t.view("a").await.due, t.after(secs(20)), "the lease's end is what holds it back");
}

pub(crate) async fn a_cancelled_lease_does_not_arrive(t: &Trial) {
    assert_eq!(t.restore(cancelled(leased(t, "a"))).await, Restored::Ended);
    assert_eq!((t.get("a").await, t.counts().await), (None, [0, 0, 0, 0]));
}

pub(crate) async fn a_successor_after_a_cancel_arrives_as_a_new_job(t: &Trial) {
    let mut before = cancelled(succeeded(t, "a", t.now()));
    (before.attempts, before.deaths, before.failures) = (2, 1, failed(t, "a", 2).failures);
    assert_eq!(t.restore(before.clone()).await, Restored::Created);
    let view = t.view("a").await;
    assert_eq!((view.body, view.generation), (text("next"), Generation(9)));
    assert_eq!((view.attempts, view.deaths, view.failures), (0, 0, vec![]));
    assert_eq!((view.due, view.created_at), (t.after(secs(20)), before.updated_at));
    t.advance(secs(20));
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn a_restored_job_ends_a_wait(t: &Trial) {
    let waiting = t.wait();
    t.restore(pending(t, "a")).await;
    waiting.ends().await;
}

pub(crate) async fn jobs_are_restored_in_order_each_by_itself(t: &Trial) {
    let mut twice = pending(t, "b");
    twice.body = text("second");
    let mut impossible = pending(t, "c");
    impossible.died_at = Some(t.now());
    let answers = t.restore_all([pending(t, "b"), impossible, twice, pending(t, "d")]).await;
    let outcomes: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().copied()).collect();
    let (created, kept) = (Some(Restored::Created), Some(Restored::Kept));
    assert_eq!(outcomes, [created, None, kept, created]);
    assert_eq!(t.view("b").await.body, text("b"));
    assert_eq!(t.list(|_| {}).await, ["b", "d"]);
    assert_eq!(t.restore_all([]).await, []);
}

pub(crate) async fn a_job_that_cannot_be_is_refused(t: &Trial) {
    let mut of_another_kind = pending(t, "a");
    of_another_kind.kind = kind("sms");
    let mut with_a_lease = leased(t, "a");
    with_a_lease.state = JobState::Ready;
    let mut without_a_lease = leased(t, "a");
    without_a_lease.lease = None;
    let mut with_a_successor = succeeded(t, "a", t.now());
    (with_a_successor.state, with_a_successor.lease) = (JobState::Waiting, None);
    let mut dead_since_never = dead(t, "a", t.now());
    dead_since_never.died_at = None;
    let mut not_dead = dead(t, "a", t.now());
    not_dead.state = JobState::Waiting;
    for impossible in [
        of_another_kind,
        with_a_lease,
        without_a_lease,
        with_a_successor,
        dead_since_never,
        not_dead,
    ] {
        let answer = t.restore_all([impossible.clone()]).await.remove(0);
        let Err(StoreError::Invalid(Invalid::InconsistentJob { id: found, .. })) = answer else {
            panic!("it should be refused, and was {answer:?}: {impossible:?}");
        };
        assert_eq!(found, id("a"));
    }
    let mut failed_too_often = failed(t, "a", 6);
    failed_too_often.failures = vec![failed_too_often.failures[0].clone(); 6];
    let answer = t.restore_all([failed_too_often]).await.remove(0);
    let too_many = Invalid::TooMany { what: "failed attempts of a job", count: 6, limit: 5 };
    assert_eq!(answer, Err(too_many.into()));
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn long_errors_are_cut(t: &Trial) {
    let mut before = failed(t, "a", 2);
    before.failures[1].error = Some("x".repeat(MAX_ERROR_LEN + 1).into());
    t.restore(before).await;
    let error = t.view("a").await.failures.remove(1).error.expect("there was one");
    assert_eq!(error.len(), MAX_ERROR_LEN);
}

pub(crate) async fn numbers_and_times_that_are_too_high_are_refused(t: &Trial) {
    let too_high = |answer: Result<_, StoreError>| {
        let is = matches!(
            &answer,
            Err(StoreError::Invalid(Invalid::TooHigh { value, limit: MAX_COUNTER, .. }))
                if *value == MAX_COUNTER + 1
        );
        assert!(is, "it should be refused as too high, and was {answer:?}");
    };
    let high = MAX_COUNTER + 1;
    for (generation, fence) in [(high, 0), (0, high)] {
        let (generation, fence) = (Generation(generation), Fence(fence));
        let restore = Restore { kind: mail(), generation, fence, jobs: vec![pending(t, "a")] };
        too_high(t.store.restore(restore).await.map(|_| Restored::Created));
    }
    let mut job = pending(t, "a");
    job.generation = Generation(high);
    too_high(t.restore_all([job]).await.remove(0));

    let far = t.after(MAX_DELAY + millis(1));
    let changes: [fn(&mut JobView, Timestamp); 4] = [
        |job, far| job.due = far,
        |job, far| job.died_at = Some(far),
        |job, far| job.created_at = far,
        |job, far| job.failures[0].ended_at = far,
    ];
    for change in changes {
        let mut job = dead(t, "a", t.now());
        change(&mut job, far);
        let answer = t.restore_all([job]).await.remove(0);
        let is = matches!(&answer, Err(StoreError::Invalid(Invalid::OutOfRange { value, .. }))
            if *value == MAX_DELAY + millis(1));
        assert!(is, "it should be refused as too late, and was {answer:?}");
    }
    let mut lease = leased(t, "a");
    lease.lease.as_mut().expect("it is leased").ends_at = far;
    assert!(t.restore_all([lease]).await.remove(0).is_err());
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn a_batch_of_restored_jobs_is_no_larger_than_one_of_puts(t: &Trial) {
    let restore = |jobs: Vec<JobView>| {
        let (generation, fence) = (Generation(10), Fence(10));
        t.store.restore(Restore { kind: mail(), generation, fence, jobs })
    };
    let many = |count: usize| (0..count).map(|n| pending(t, &format!("{n:04}"))).collect();
    let error = restore(many(MAX_BATCH + 1)).await.expect_err("one too many");
    let count = MAX_BATCH + 1;
    let too_many = Invalid::TooMany { what: "entries in a batch", count, limit: MAX_BATCH };
    assert_eq!(error, too_many.into());
    let large = Body::octets(vec![7; MAX_BODY_LEN]).expect("as large as it may be");
    let leased = |n: usize| {
        let mut view = succeeded(t, &format!("large {n}"), t.now());
        view.body = large.clone();
        view.next.as_mut().expect("it has one").body = large.clone();
        view
    };
    let error = restore((0..9).map(leased).collect()).await.expect_err("eighteen mebibytes");
    assert!(matches!(error, StoreError::Invalid(Invalid::TooLong { .. })), "{error:?}");
    assert_eq!(t.counts().await, [0; 4]);
    let answers = restore(many(MAX_BATCH)).await.expect("as many as may be");
    assert!(answers.iter().all(|answer| *answer == Ok(Restored::Created)));
}
