//! The content of a job: it stays whole, whatever happens to the job.

use crate::harness::{Harness, LEASE, id, job, mail, secs, text};
use requeue_jobs::limits::{MAX_BODY_LEN, MAX_CONTENT_LEN, MAX_RESULT_BYTES};
use requeue_jobs::{
    Body, ChangeKind, Content, Due, Envelope, Invalid, JobState, Missed, Mode, Priority, PutError,
    Query, Reschedule, Retention, Schedule, ScheduleCondition, Settled, Settlement, StoreError,
    Tick, TickJob, TimeQuery,
};

fn content(body: Body, envelope: &[u8]) -> Content {
    let envelope = Envelope::new(envelope, "application/x-sample").expect("it is short");
    Content { body, head: envelope.into() }
}

/// One content for each optional field, and others that stores could confuse. A new field is one line here.
fn samples() -> Vec<Content> {
    let of_type = |content_type| Body::new(*b"{}", content_type).expect("it is short");
    vec![
        content(text("body"), b"properties"),
        content(Body::default(), b""),
        content(of_type("application/json"), &[0, 255, 10, 0]),
        content(of_type("image/x-unusual"), &[7; 70_000]),
        Content::from(of_type("application/json")),
    ]
}

fn sample() -> Content {
    samples().swap_remove(0)
}

/// A content that stores must not confuse with any of the samples.
fn other() -> Content {
    content(text("other"), b"other properties")
}

async fn shown(h: &Harness) -> Content {
    h.view("a").await.version.content
}

fn body(body: Body) -> ChangeKind {
    ChangeKind::Reschedule(Reschedule { body: Some(body), ..Reschedule::default() })
}

pub(crate) async fn get_list_and_claim_return_the_content(h: &Harness) {
    for content in samples() {
        h.put(job("a").carrying(content.clone())).await;
        assert_eq!(shown(h).await, content);
        let page = h.store.list(Query::new(mail())).await.expect("the call succeeds");
        assert_eq!(page.jobs[0].version.content, content);
        let by_time = TimeQuery::new(mail(), JobState::Ready);
        let page = h.store.list_by_time(by_time).await.expect("the call succeeds");
        assert_eq!(page.jobs[0].version.content, content);
        let claimed = h.claim().await;
        assert_eq!(claimed.version.content, content);
        h.ack(&claimed).await;
    }
}

pub(crate) async fn a_content_stays_with_its_job(h: &Harness) {
    for content in samples() {
        h.put(job("a").carrying(content.clone())).await;
        let release = |_| Settlement::Release;
        let retry = |_| Settlement::Retry { delay: Some(secs(0)), error: "it broke".into() };
        let requeue = |_| Settlement::RequeueAfter(secs(0));
        for settlement in [release as fn(()) -> Settlement, retry, requeue] {
            let claimed = h.claim().await;
            h.settle(&claimed, settlement(())).await.expect("the lease is current");
            assert_eq!(shown(h).await, content);
        }
        let expiring = h.claim().await;
        h.advance(LEASE + secs(1));
        h.reap().await;
        h.run_now("a").await;
        assert_eq!(shown(h).await, content);
        h.assert_lost(&expiring).await;
        let claimed = h.claim().await;
        let bury = Settlement::Bury { error: "never".into() };
        assert_eq!(h.settle(&claimed, bury).await, Ok(Settled::Dead));
        assert_eq!(shown(h).await, content);
        h.change("a", ChangeKind::Revive).await.expect("the job is dead");
        let claimed = h.claim().await;
        assert_eq!(claimed.version.content, content);
        h.ack(&claimed).await;
    }
}

pub(crate) async fn a_put_replaces_the_whole_content(h: &Harness) {
    for mode in [Mode::Replace, Mode::Earliest, Mode::Debounce { max_wait: secs(60) }] {
        h.put(job("a").carrying(sample())).await;
        h.put(job("a").carrying(text("b")).mode(mode)).await;
        assert_eq!(shown(h).await, text("b").into(), "{mode:?}");
        h.cancel("a").await;
    }
    h.die(job("a").carrying(sample())).await;
    h.put(job("a").carrying(text("b"))).await;
    assert_eq!(shown(h).await, text("b").into());
}

pub(crate) async fn a_put_that_changes_nothing_leaves_the_content(h: &Harness) {
    h.put(job("a").carrying(sample())).await;
    h.put(job("a").carrying(other()).mode(Mode::Keep)).await;
    h.try_put(job("a").carrying(other()).if_absent()).await.expect_err("the job exists");
    assert_eq!(shown(h).await, sample());
}

pub(crate) async fn a_successor_has_a_content_of_its_own(h: &Harness) {
    for (first, second) in
        [(sample(), other()), (sample(), text("b").into()), (text("b").into(), sample())]
    {
        h.put(job("a").carrying(first.clone())).await;
        let claimed = h.claim().await;
        h.put(job("a").carrying(second.clone())).await;
        let view = h.view("a").await;
        assert_eq!(
            (view.version.content, view.next.map(|next| next.content)),
            (first, Some(second.clone()))
        );
        h.ack(&claimed).await;
        assert_eq!(shown(h).await, second);
        let claimed = h.claim().await;
        assert_eq!(claimed.version.content, second);
        h.ack(&claimed).await;
    }
}

pub(crate) async fn a_reschedule_keeps_the_head_and_a_new_body_removes_the_envelope(h: &Harness) {
    for content in samples() {
        let expected = content.clone().with_body(text("new"));
        assert_eq!(expected.head.envelope, None);
        h.put(job("a").carrying(content.clone())).await;
        h.change("a", body(text("new"))).await.expect("the job is ready");
        assert_eq!(shown(h).await, expected);
        h.put(job("a").carrying(content.clone())).await;
        let claimed = h.claim().await;
        // Without a body, and then with one: the successor begins with the content of the job.
        let due = Some(Due::After(secs(5)));
        let set = Reschedule { due, ..Reschedule::default() };
        h.change("a", ChangeKind::Reschedule(set)).await.expect("the job is leased");
        assert_eq!(h.view("a").await.next.expect("a successor").content, content);
        h.change("a", body(text("new"))).await.expect("the job is leased");
        assert_eq!(h.view("a").await.next.expect("a successor").content, expected);
        h.ack(&claimed).await;
        assert_eq!(shown(h).await, expected);
        h.cancel("a").await;
    }
    h.die(job("a").carrying(sample())).await;
    h.change("a", body(text("new"))).await.expect("the job is dead");
    assert_eq!(shown(h).await, sample().with_body(text("new")));
}

pub(crate) async fn a_done_job_has_no_content(h: &Harness) {
    h.set(|settings| settings.keep_done = Some(Retention::default())).await;
    for result in [Settlement::Ack, Settlement::AckWith(text("result"))] {
        h.put(job("a").carrying(sample())).await;
        let claimed = h.claim().await;
        h.settle(&claimed, result).await.expect("the lease is current");
        assert_eq!(shown(h).await, Content::default());
    }
}

pub(crate) async fn a_content_is_as_large_as_it_may_be_and_no_larger(h: &Harness) {
    let body_of = |len| Body::octets(vec![7; len]).expect("it is within the limit");
    let room = MAX_CONTENT_LEN - MAX_BODY_LEN - "application/x-sample".len();
    let largest = content(body_of(MAX_BODY_LEN), &vec![1; room]);
    h.put(job("a").carrying(largest.clone())).await;
    assert_eq!(h.claim().await.version.content, largest);
    let larger = content(body_of(MAX_BODY_LEN), &vec![1; room + 1]);
    let is_too_long = |invalid: &Invalid| matches!(invalid, Invalid::TooLong { len, limit: MAX_CONTENT_LEN, .. } if *len == MAX_CONTENT_LEN + 1);
    let error = h.try_put(job("b").carrying(larger.clone())).await.expect_err("it is too long");
    assert!(
        matches!(&error, PutError::Store(StoreError::Invalid(invalid)) if is_too_long(invalid)),
        "{error:?}"
    );
    assert_eq!(h.get("b").await, None);
    let always = ScheduleCondition::Always;
    let set = h.store.set_schedule(mail(), nightly(h, larger.clone()), always).await;
    assert!(matches!(&set, Err(StoreError::Invalid(invalid)) if is_too_long(invalid)), "{set:?}");
    h.store.set_schedule(mail(), nightly(h, sample()), always).await.expect("the call succeeds");
    let run = TickJob { id: id("b"), content: larger.clone(), priority: Priority::default() };
    let (expected, next) = (h.now(), h.after(secs(60)));
    let tick = Tick { kind: mail(), id: id("nightly"), expected, next, put: Some(run) };
    let ticked = h.store.tick(tick).await;
    assert!(
        matches!(&ticked, Err(StoreError::Invalid(invalid)) if is_too_long(invalid)),
        "{ticked:?}"
    );
    let mut view = h.view("a").await;
    h.cancel("a").await;
    (view.id, view.state, view.lease) = (id("b"), JobState::Ready, None);
    view.version.content = larger;
    let restored = h.restore_all([view]).await.remove(0);
    assert!(
        matches!(&restored, Err(StoreError::Invalid(invalid)) if is_too_long(invalid)),
        "{restored:?}"
    );
    assert_eq!(h.get("b").await, None);
}

pub(crate) async fn heads_count_towards_the_size_of_a_claim(h: &Harness) {
    const LEN: usize = 1 << 20;
    let large = content(Body::default(), &vec![7; LEN - "application/x-sample".len()]);
    let fit = MAX_RESULT_BYTES / LEN;
    for n in 0..=fit {
        h.put(job(&format!("{n:02}")).carrying(large.clone())).await;
    }
    let page = h.store.list(Query::new(mail())).await.expect("the call succeeds");
    assert_eq!(page.jobs.len(), fit);
    assert_eq!(h.claim_up_to(fit + 1).await.len(), fit);
    assert_eq!(h.claim_up_to(fit + 1).await.len(), 1);
}

fn nightly(h: &Harness, content: Content) -> Schedule {
    let (when, time_zone) = ("0 3 * * *".to_owned(), "UTC".to_owned());
    Schedule { id: id("nightly"), when, time_zone, content, missed: Missed::One, next: h.now() }
}

pub(crate) async fn a_schedule_has_a_content_and_so_have_its_runs(h: &Harness) {
    for content in samples() {
        let schedule = nightly(h, content.clone());
        let always = ScheduleCondition::Always;
        h.store.set_schedule(mail(), schedule.clone(), always).await.expect("the call succeeds");
        assert_eq!(h.store.schedules(mail()).await, Ok(vec![schedule]));
        let run = TickJob { id: id("a"), content: content.clone(), priority: Priority::default() };
        let (expected, next) = (h.now(), h.after(secs(60)));
        let tick = Tick { kind: mail(), id: id("nightly"), expected, next, put: Some(run) };
        h.store.tick(tick).await.expect("the call succeeds");
        assert_eq!(shown(h).await, content);
    }
}

pub(crate) async fn a_restored_job_has_its_content(h: &Harness) {
    for content in samples() {
        h.put(job("a").carrying(content.clone())).await;
        let claimed = h.claim().await;
        h.put(job("a").carrying(other())).await;
        let leased = h.view("a").await;
        h.ack(&claimed).await;
        let pending = h.view("a").await;
        for view in [leased, pending] {
            h.cancel("a").await;
            h.restore(view).await;
            // What was put last runs, because the worker of the other store may have finished.
            assert_eq!(shown(h).await, other());
            h.cancel("a").await;
            h.put(job("a").carrying(content.clone())).await;
            let view = h.view("a").await;
            h.cancel("a").await;
            h.restore(view).await;
            assert_eq!(shown(h).await, content);
        }
        h.cancel("a").await;
    }
}
