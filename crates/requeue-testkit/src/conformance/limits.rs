//! Limits. An error names the limit and the value that exceeds it.

use crate::harness::{Harness, LEASE, PutBuilder, id, ids, job, kind, mail, millis, secs};
use requeue_jobs::limits::{
    MAX_BATCH, MAX_BATCH_BYTES, MAX_BODY_LEN, MAX_CONTENT_TYPE_LEN, MAX_DELAY, MAX_ID_LEN,
    MAX_JITTER_PERCENT, MAX_KIND_LEN, MAX_KINDS, MAX_LEASE, MAX_RESULT_BYTES, MAX_SPANS,
    MIN_CONCURRENCY, MIN_LEASE,
};
use requeue_jobs::{
    Body, Change, ChangeKind, Changed, Content, Fence, Generation, Invalid, JobState, Missed, Put,
    PutError, PutOutcome, Query, Schedule, ScheduleCondition, Settings, Settle, SettleError,
    Settled, Settlement, Spans, StoreError,
};
use std::time::Duration;

fn too_many(count: usize) -> impl Fn(&Invalid) -> bool {
    move |invalid| matches!(invalid, Invalid::TooMany { count: c, limit: MAX_BATCH, .. } if *c == count)
}

fn out_of_range(value: Duration) -> impl Fn(&Invalid) -> bool {
    move |invalid| matches!(invalid, Invalid::OutOfRange { value: v, .. } if *v == value)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>, why: impl Fn(&Invalid) -> bool) {
    match result {
        Err(StoreError::Invalid(invalid)) if why(&invalid) => {}
        other => panic!("expected an error about the limit, got {other:?}"),
    }
}

pub(crate) async fn the_largest_job_is_accepted(h: &Harness) {
    let body = Body::new(vec![7; MAX_BODY_LEN], "h".repeat(MAX_CONTENT_TYPE_LEN));
    let body = body.expect("the value is within the limit");
    let (of, name) = ("k".repeat(MAX_KIND_LEN), "ü".repeat(MAX_ID_LEN / 2));
    h.put(job(&name).of(&of).carrying(body.clone())).await;
    let claimed = h.claim_with(|claim| claim.kinds = vec![kind(&of)]).await.jobs.remove(0);
    assert_eq!((claimed.id(), claimed.body()), (&id(&name), &body));
    h.ack(&claimed).await;
}

pub(crate) async fn the_longest_delay_is_ten_years(h: &Harness) {
    h.put(job("a").after(MAX_DELAY)).await;
    assert_eq!(h.view("a").await.version.due, h.after(MAX_DELAY));
    let longer = MAX_DELAY + millis(1);
    let later = h.after(longer);
    for put in [job("b").after(longer), job("b").at(later)] {
        match h.try_put(put).await {
            Err(PutError::Store(error)) => refused::<()>(Err(error), out_of_range(longer)),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    assert_eq!(h.get("b").await, None);
}

pub(crate) async fn a_retry_after_too_long_keeps_the_lease(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let before = h.view("a").await;
    let longer = MAX_DELAY + millis(1);
    let action = Settlement::Retry { delay: Some(longer), error: "no".into() };
    match h.settle(&claimed, action).await {
        Err(SettleError::Store(error)) => refused::<()>(Err(error), out_of_range(longer)),
        other => panic!("expected a refusal, got {other:?}"),
    }
    assert_eq!(h.view("a").await, before);
    assert_eq!(h.ack(&claimed).await, Settled::Done);
}

pub(crate) async fn a_lease_is_neither_too_short_nor_too_long(h: &Harness) {
    h.put("a").await;
    for lease in [MIN_LEASE - millis(1), MAX_LEASE + millis(1)] {
        let claimed = h.claim_with(|claim| claim.lease = Some(lease)).await;
        assert_eq!((claimed.jobs.len(), claimed.errors.len()), (0, 1));
        let (of, error) = claimed.errors[0].clone();
        assert_eq!(of, mail());
        refused::<()>(Err(error), out_of_range(lease));
    }
    let claimed = h.claim_with(|claim| claim.lease = Some(MAX_LEASE)).await.jobs.remove(0);
    assert_eq!(claimed.lease_ends_at, h.after(MAX_LEASE));
    h.release(&claimed).await;
    let claimed = h.claim_with(|claim| claim.lease = Some(MIN_LEASE)).await.jobs.remove(0);
    for lease in [MIN_LEASE - millis(1), MAX_LEASE + millis(1)] {
        match h.settle(&claimed, Settlement::Extend(Some(lease))).await {
            Err(SettleError::Store(error)) => refused::<()>(Err(error), out_of_range(lease)),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    assert_eq!(h.view("a").await.lease.expect("the job is leased").ends_at, claimed.lease_ends_at);
}

pub(crate) async fn invalid_settings_are_refused(h: &Harness) {
    let (short, long) = (MIN_LEASE - millis(1), MAX_DELAY + millis(1));
    for (value, change) in [
        (short, (|settings, value| settings.lease = value) as fn(&mut Settings, Duration)),
        (long, |settings, value| settings.lease = value),
        (long, |settings, value| settings.backoff.base = value),
        (long, |settings, value| settings.backoff.max = value),
    ] {
        let mut settings = Settings::default();
        change(&mut settings, value);
        refused(h.store.set(mail(), settings).await, out_of_range(value));
        assert_eq!(h.settings().await, Settings::default());
    }
}

pub(crate) async fn settings_that_contradict_themselves_are_rejected(h: &Harness) {
    let mut longer = Settings::default();
    (longer.backoff.base, longer.backoff.max) = (secs(3), secs(2));
    refused(
        h.store.set(mail(), longer.clone()).await,
        |invalid| matches!(invalid, Invalid::OutOfRange { value, max, .. } if (*value, *max) == (secs(3), secs(2))),
    );
    let mut jitter = Settings::default();
    jitter.backoff.jitter_percent = MAX_JITTER_PERCENT + 1;
    refused(h.store.set(mail(), jitter.clone()).await, |invalid| {
        matches!(invalid, Invalid::TooHigh { value: 101, limit: 100, .. })
    });
    let mut none = Settings::default();
    none.concurrency = Some(MIN_CONCURRENCY - 1);
    refused(h.store.set(mail(), none.clone()).await, |invalid| {
        matches!(invalid, Invalid::TooLow { value: 0, limit: 1, .. })
    });
    assert_eq!(h.settings().await, Settings::default());
    longer.backoff.base = longer.backoff.max;
    jitter.backoff.jitter_percent = MAX_JITTER_PERCENT;
    none.concurrency = Some(MIN_CONCURRENCY);
    for valid in [longer, jitter, none] {
        h.store.set(mail(), valid.clone()).await.expect("the settings are valid");
        assert_eq!(h.settings().await, valid);
    }
}

fn many(count: usize) -> Vec<Put> {
    let body = Body::default();
    (0..count).map(|n| Put::new(mail(), id(&format!("job-{n:04}")), body.clone())).collect()
}

pub(crate) async fn a_batch_of_puts_has_a_thousand_entries_at_most(h: &Harness) {
    refused(h.store.put(many(MAX_BATCH + 1)).await, too_many(MAX_BATCH + 1));
    assert_eq!(h.counts().await, [0, 0, 0, 0]);
    let results = h.store.put(many(MAX_BATCH)).await.expect("the call succeeds");
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(h.counts().await[0], MAX_BATCH as u64);
}

pub(crate) async fn the_bodies_of_a_batch_are_sixteen_mebibytes_at_most(h: &Harness) {
    let body = Body::octets(vec![7; MAX_BODY_LEN]).expect("the value is within the limit");
    let most = MAX_BATCH_BYTES / MAX_BODY_LEN;
    let put = |n: usize| job(&n.to_string()).carrying(body.clone());
    let results = h.put_all((0..most).map(put)).await;
    assert!(results.iter().all(Result::is_ok));
    let byte = Body::octets([7]).expect("the text is short");
    let too_much = (0..most).map(|n| Put::new(mail(), id(&n.to_string()), body.clone()));
    let too_much = too_much.chain([Put::new(mail(), id("more"), byte)]).collect();
    let limit = |invalid: &Invalid| {
        let over = MAX_BATCH_BYTES + 1;
        matches!(invalid, Invalid::TooLong { len, limit: MAX_BATCH_BYTES, .. } if *len == over)
    };
    refused(h.store.put(too_much).await, limit);
    assert_eq!(h.get("more").await, None);
}

pub(crate) async fn settlements_and_changes_are_a_thousand_at_most(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    let settle = Settle { receipt: claimed.receipt.clone(), action: Settlement::Ack };
    let change = Change { kind: mail(), id: id("a"), action: ChangeKind::Cancel };
    let before = h.view("a").await;
    refused(h.store.settle(vec![settle; MAX_BATCH + 1]).await, too_many(MAX_BATCH + 1));
    refused(h.store.change(vec![change; MAX_BATCH + 1]).await, too_many(MAX_BATCH + 1));
    assert_eq!(h.view("a").await, before);
}

pub(crate) async fn a_claim_asks_for_a_thousand_jobs_at_most(h: &Harness) {
    h.store.put(many(MAX_BATCH)).await.expect("the call succeeds");
    let claim = requeue_jobs::Claim {
        kinds: vec![mail()],
        max: MAX_BATCH + 1,
        lease: None,
        worker: requeue_jobs::WorkerName::new("w").expect("a valid name"),
        nonce: 1,
    };
    refused(h.store.claim(claim).await, too_many(MAX_BATCH + 1));
    assert_eq!(h.claim_up_to(MAX_BATCH).await.len(), MAX_BATCH);
}

pub(crate) async fn a_page_has_a_thousand_jobs_at_most(h: &Harness) {
    h.store.put(many(MAX_BATCH)).await.expect("the call succeeds");
    h.put("z").await;
    assert_eq!(h.list(|query| query.limit = usize::MAX).await.len(), MAX_BATCH);
}

/// The largest body. The bodies of sixteen such jobs are as large as a result may be.
fn largest_body() -> Body {
    Body::octets(vec![7; MAX_BODY_LEN]).expect("the value is within the limit")
}

const MOST: usize = MAX_RESULT_BYTES / MAX_BODY_LEN;

pub(crate) async fn a_claim_returns_sixteen_mebibytes_of_all_its_kinds_together(h: &Harness) {
    let (body, kinds) = (largest_body(), [mail(), kind("sms")]);
    for (name, of, count) in [("m", "mail", MOST - 6), ("s", "sms", 7)] {
        let large = (0..count).map(|n| job(&format!("{name}{n}")).of(of).carrying(body.clone()));
        assert!(h.put_all(large).await.iter().all(Result::is_ok));
    }
    let mut left = MOST + 1;
    while left > 0 {
        let claimed = h.claim_with(|claim| (claim.kinds, claim.max) = (kinds.to_vec(), 100)).await;
        assert_eq!(claimed.errors, []);
        let bytes: usize = claimed.jobs.iter().map(|job| job.body().len()).sum();
        assert!(!claimed.jobs.is_empty(), "a claim returns at least one job");
        assert!(bytes <= MAX_RESULT_BYTES, "a claim returned bodies of {bytes} bytes");
        left -= claimed.jobs.len();
        // The others are as they were.
        let mut ready = 0;
        for of in &kinds {
            let query = Query { state: Some(JobState::Ready), ..Query::new(of.clone()) };
            let page = h.store.list(query).await.expect("the call succeeds");
            assert!(page.jobs.iter().all(|job| job.attempts == 0 && job.lease.is_none()));
            ready += page.jobs.len();
        }
        assert_eq!(ready, left);
        for job in &claimed.jobs {
            assert_eq!(job.attempt, 1);
            h.ack(job).await;
        }
    }
}

pub(crate) async fn an_expired_lease_that_does_not_fit_into_a_claim_is_not_ended(h: &Harness) {
    h.put("expired").await;
    let expired = h.claim().await;
    h.put(job("expired").carrying(largest_body())).await;
    let large = (0..MOST).map(|n| job(&n.to_string()).carrying(largest_body()));
    assert!(h.put_all(large).await.iter().all(Result::is_ok));
    h.advance(LEASE + millis(1));
    let jobs = h.claim_up_to(100).await;
    assert_eq!(jobs.len(), MOST, "jobs with sixteen mebibytes fit");
    assert!(jobs.iter().all(|job| job.id() != expired.id()), "the earliest are first");
    let view = h.view("expired").await;
    assert_eq!((view.state, view.attempts), (JobState::Leased, 0));
    // It is the first job of the next claim, with the body of its successor.
    let jobs = h.claim_up_to(100).await;
    assert_eq!(ids(&jobs), ["expired"]);
    assert_eq!((jobs[0].attempt, jobs[0].body().len()), (2, MAX_BODY_LEN));
}

pub(crate) async fn a_page_has_sixteen_mebibytes_including_successors(h: &Harness) {
    h.put(job("a-leased").carrying(largest_body())).await;
    h.claim().await;
    h.put(job("a-leased").carrying(largest_body())).await;
    let others = (1..MOST).map(|n| job(&format!("b-{n:02}")).carrying(largest_body()));
    assert!(h.put_all(others).await.iter().all(Result::is_ok));
    let query = Query { limit: MAX_BATCH, ..Query::new(mail()) };
    let first = h.store.list(query.clone()).await.expect("the call succeeds");
    assert_eq!(first.jobs.len(), MOST - 1, "the successor counts, too");
    assert!(first.jobs[0].next.is_some());
    assert_eq!(first.cursor.as_ref(), first.jobs.last().map(|job| &job.id));
    let query = Query { after: first.cursor, ..query };
    let second = h.store.list(query).await.expect("the call succeeds");
    let names: Vec<_> = second.jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!((names, second.cursor), (vec!["b-15"], None));
}

pub(crate) async fn upcoming_load_has_a_thousand_spans_at_most(h: &Harness) {
    h.put("a").await;
    let spans = |count| Spans { from: h.now(), length: secs(1), count };
    let result = h.store.upcoming(mail(), spans(MAX_SPANS)).await.expect("the call succeeds");
    assert_eq!(result.len(), MAX_SPANS);
    refused(h.store.upcoming(mail(), spans(MAX_SPANS + 1)).await, too_many(MAX_SPANS + 1));
}

fn of_kind(n: usize) -> PutBuilder {
    job("a").of(&format!("kind-{n}"))
}

/// Puts jobs of so many kinds as there can be.
async fn fill(h: &Harness) {
    for thousand in 0..MAX_KINDS / MAX_BATCH {
        let from = thousand * MAX_BATCH;
        let results = h.put_all((from..from + MAX_BATCH).map(of_kind)).await;
        assert!(results.iter().all(Result::is_ok));
    }
}

async fn assert_full(h: &Harness) {
    match h.try_put(of_kind(MAX_KINDS)).await {
        Err(PutError::Store(StoreError::Invalid(Invalid::TooMany { limit, .. }))) => {
            assert_eq!(limit, MAX_KINDS);
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

async fn cancel(h: &Harness, n: usize) {
    let (kind, id) = (kind(&format!("kind-{n}")), id("a"));
    let changes = vec![Change { kind, id, action: ChangeKind::Cancel }];
    let changed = h.store.change(changes).await.expect("the call succeeds");
    assert_eq!(changed, [Ok(Changed::Removed)]);
}

/// Puts a job of a new kind, after as many reaps as that takes. Returns its generation and its fence.
async fn replaces(h: &Harness, n: usize) -> (Generation, Fence) {
    let mut placed = h.try_put(of_kind(n)).await;
    // A reap looks at some kinds, and continues with others.
    for _ in 0..MAX_KINDS / 10 {
        if placed.is_ok() {
            break;
        }
        h.reap().await;
        placed = h.try_put(of_kind(n)).await;
    }
    let placed = placed.expect("there is room for the kind");
    assert_eq!(placed.outcome, PutOutcome::Created);
    let kinds = vec![kind(&format!("kind-{n}"))];
    let claimed = h.claim_with(|claim| claim.kinds = kinds).await.jobs.remove(0);
    assert_eq!(claimed.version.generation, placed.generation);
    h.release(&claimed).await;
    (placed.generation, claimed.receipt.fence())
}

pub(crate) async fn ten_thousand_kinds_have_jobs_settings_or_schedules_at_most(h: &Harness) {
    fill(h).await;
    assert_full(h).await;
    for _ in 0..5 {
        h.put(of_kind(0)).await;
    }
    let first = vec![kind("kind-0")];
    let held = h.claim_with(|claim| claim.kinds = first.clone()).await.jobs.remove(0);
    h.ack(&held).await;
    h.set_of("kind-1", |settings| settings.max_attempts = 3).await;
    let schedule = Schedule {
        id: id("s"),
        when: "every 90s".to_owned(),
        time_zone: String::new(),
        content: Content::default(),
        missed: Missed::One,
        next: h.after(secs(90)),
    };
    let set = h.store.set_schedule(kind("kind-2"), schedule, ScheduleCondition::default()).await;
    assert_eq!(set, Ok(true));
    cancel(h, 1).await;
    cancel(h, 2).await;

    // One is left without anything. Its numbers are not used again, by whatever kind.
    let (generation, fence) = replaces(h, MAX_KINDS + 1).await;
    assert!(
        generation > held.version.generation && fence > held.receipt.fence(),
        "{generation:?} {fence:?}"
    );
    assert_full(h).await;
    h.assert_lost(&held).await;
    cancel(h, MAX_KINDS + 1).await;
    let again = replaces(h, 0).await;
    assert!(again.0 > held.version.generation && again.1 > held.receipt.fence(), "{again:?}");
    assert_full(h).await;

    h.set_of("kind-1", |settings| *settings = Settings::default()).await;
    assert_eq!(h.store.remove_schedule(kind("kind-2"), id("s")).await, Ok(true));
    replaces(h, MAX_KINDS + 2).await;
    replaces(h, MAX_KINDS + 3).await;
    assert_full(h).await;
    let kinds = h.kinds().await;
    assert_eq!(kinds.len(), MAX_KINDS);
    assert!(kinds.iter().all(|kind| kind.counts.pending == 1));
}
