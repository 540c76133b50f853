//! The text of a scrape after known operations.

use crate::support::instrumented::{
    InstrumentedFixture, LEASE, START, WELL, has_lines, id, job, kind, retry,
};
use requeue::ManualClock;
use requeue_jobs::{
    Body, Change, ChangeKind, Condition, Due, Fence, Generation, JobView, MemoryStore, Missed,
    Priority, Put, Query, Receipt, Restore, Schedule, ScheduleCondition, Settings, Settle,
    SettleError, Settled, Settlement, Store, Tick, TickJob, Version, WallClock, WorkerName,
};
use requeue_server::InstrumentedStore;
use requeue_testkit::{Fault, Faulty, block_on};
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Runs every operation at least once.
fn busy() -> InstrumentedFixture {
    let fixture = InstrumentedFixture::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        fixture.put(job("mail", name)).expect(WELL);
    }
    fixture.put(Put { due: Due::After(LEASE), ..job("mail", "later") }).expect(WELL);
    fixture.put(job("mail", "a")).expect(WELL);
    let absent = Some(Condition::IfAbsent);
    assert!(fixture.put(Put { condition: absent, ..job("mail", "a") }).is_err());
    fixture.advance(2);

    let jobs = fixture.claim("mail", "w", Some(LEASE));
    assert_eq!(jobs.len(), 6);
    fixture.put(job("mail", "a")).expect(WELL);
    assert_eq!(fixture.settle(&jobs[0], Settlement::Extend(Some(LEASE * 2))).map(drop), Ok(()));
    assert_eq!(fixture.settle(&jobs[0], Settlement::Ack), Ok(Settled::Done));
    assert!(matches!(
        fixture.settle(&jobs[0], Settlement::Ack),
        Err(SettleError::LeaseLost { .. })
    ));
    assert_eq!(fixture.settle(&jobs[1], Settlement::RequeueAfter(LEASE)), Ok(Settled::Done));
    assert!(matches!(fixture.settle(&jobs[2], retry()), Ok(Settled::RetryAt(_))));
    assert_eq!(
        fixture.settle(&jobs[3], Settlement::Bury { error: "no".into() }),
        Ok(Settled::Dead)
    );
    assert_eq!(fixture.settle(&jobs[4], Settlement::Release), Ok(Settled::Released));
    fixture.change("f", ChangeKind::Cancel);
    assert_eq!(fixture.settle(&jobs[5], Settlement::Extend(None)), Ok(Settled::Cancelled));
    assert_eq!(fixture.settle(&jobs[5], Settlement::Ack), Ok(Settled::Cancelled));

    fixture.change("d", ChangeKind::Revive);
    fixture.change("c", ChangeKind::RunNow);
    fixture.change("later", ChangeKind::Cancel);
    let mut settings = Settings::default();
    settings.paused = true;
    block_on(fixture.store.set(kind("empty"), settings)).expect(WELL);
    fixture
}

#[test]
fn default_settings_do_not_add_a_kind() {
    let fixture = InstrumentedFixture::new();
    // Deleting a kind that never existed does this.
    block_on(fixture.store.set(kind("never"), Settings::default())).expect(WELL);
    let text = block_on(fixture.store.metrics().render(&fixture.store));
    assert!(!text.contains("never"), "{text}");
}

#[test]
fn every_operation_is_counted() {
    let fixture = busy();
    fixture.advance(3);
    has_lines(
        &fixture.text(),
        &[
            r#"requeue_jobs{kind="mail",state="pending"} 5"#,
            r#"requeue_jobs{kind="mail",state="leased"} 0"#,
            r#"requeue_jobs{kind="mail",state="dead"} 0"#,
            r#"requeue_jobs{kind="empty",state="pending"} 0"#,
            r#"requeue_ready_jobs{kind="mail"} 4"#,
            r#"requeue_oldest_ready_age_seconds{kind="mail"} 5"#,
            r#"requeue_oldest_ready_age_seconds{kind="empty"} 0"#,
            r#"requeue_kind_paused{kind="mail"} 0"#,
            r#"requeue_kind_paused{kind="empty"} 1"#,
            r#"requeue_puts_total{kind="mail",outcome="created"} 7"#,
            r#"requeue_puts_total{kind="mail",outcome="updated"} 1"#,
            r#"requeue_puts_total{kind="mail",outcome="kept"} 0"#,
            r#"requeue_puts_total{kind="mail",outcome="coalesced"} 1"#,
            r#"requeue_put_conditions_refused_total{kind="mail"} 1"#,
            r#"requeue_claimed_total{kind="mail"} 6"#,
            r#"requeue_settled_total{kind="mail",outcome="acked"} 1"#,
            r#"requeue_settled_total{kind="mail",outcome="requeued"} 1"#,
            r#"requeue_settled_total{kind="mail",outcome="retried"} 1"#,
            r#"requeue_settled_total{kind="mail",outcome="dead"} 1"#,
            r#"requeue_settled_total{kind="mail",outcome="released"} 1"#,
            r#"requeue_settled_total{kind="mail",outcome="cancelled"} 1"#,
            r#"requeue_extended_total{kind="mail"} 1"#,
            r#"requeue_lease_lost_total{kind="mail"} 1"#,
            r#"requeue_lapses_total{kind="mail"} 0"#,
            r#"requeue_changed_total{kind="mail",outcome="removed"} 1"#,
            r#"requeue_changed_total{kind="mail",outcome="ending"} 1"#,
            r#"requeue_changed_total{kind="mail",outcome="ready"} 1"#,
            r#"requeue_changed_total{kind="mail",outcome="revived"} 1"#,
            r#"requeue_claim_lateness_seconds_bucket{kind="mail",le="1"} 0"#,
            r#"requeue_claim_lateness_seconds_bucket{kind="mail",le="2.5"} 6"#,
            r#"requeue_claim_lateness_seconds_sum{kind="mail"} 12"#,
            r#"requeue_claim_lateness_seconds_count{kind="mail"} 6"#,
            r#"requeue_store_duration_seconds_count{verb="put"} 10"#,
            r#"requeue_store_duration_seconds_count{verb="wait"} 0"#,
            r#"requeue_store_batch_entries_sum{verb="claim"} 6"#,
            r#"requeue_store_errors_total{sort="invalid",verb="put"} 0"#,
        ],
    );
}

#[test]
fn restored_jobs_scheduled_jobs_and_reaps_are_counted() {
    let fixture = InstrumentedFixture::new();
    let next = fixture.store_now();
    let schedule = Schedule {
        id: id("daily"),
        when: "0 9 * * *".into(),
        time_zone: "UTC".into(),
        content: Body::default().into(),
        missed: Missed::One,
        next,
    };
    let body = schedule.content.body.clone();
    let set = fixture.store.set_schedule(kind("report"), schedule, ScheduleCondition::Always);
    assert!(block_on(set).unwrap());
    fixture.advance(2);
    let tick = Tick {
        kind: kind("report"),
        id: id("daily"),
        expected: next,
        next: next.saturating_add(Duration::from_secs(86_400)),
        put: Some(TickJob { id: id("daily"), content: body.into(), priority: Priority::default() }),
    };
    block_on(fixture.store.tick(tick.clone())).unwrap();
    block_on(fixture.store.tick(tick)).unwrap();

    let job =
        JobView::new(kind("moved"), id("a"), Version::new(Body::default(), next, Generation(1)));
    let restore =
        |jobs| Restore { kind: kind("moved"), generation: Generation(1), fence: Fence(1), jobs };
    let jobs = vec![job.clone(), job];
    let each = block_on(fixture.store.restore(restore(jobs))).unwrap();
    assert!(each.iter().all(Result::is_ok), "{each:?}");

    assert_eq!(fixture.claim("report", "w", None).len(), 1);
    fixture.advance(30);
    assert_eq!(block_on(fixture.store.reap(10)).unwrap().count, 1);
    has_lines(
        &fixture.text(),
        &[
            r#"requeue_puts_total{kind="report",outcome="created"} 1"#,
            r#"requeue_restored_total{kind="moved",outcome="created"} 1"#,
            r#"requeue_restored_total{kind="moved",outcome="kept"} 1"#,
            "requeue_reaped_total 1",
            r#"requeue_schedule_runs_total{kind="report"} 1"#,
            "requeue_schedule_lateness_seconds_sum 2",
            "requeue_schedule_lateness_seconds_count 1",
        ],
    );
}

impl InstrumentedFixture {
    fn store_now(&self) -> requeue_jobs::Timestamp {
        START.saturating_add(Duration::from_nanos(self.clock.now().as_nanos()))
    }
}

#[test]
fn each_expired_lease_is_counted_once_by_the_claim_or_reap_that_ends_it() {
    let fixture = InstrumentedFixture::new();
    for name in ["met", "reaped", "extended", "retried"] {
        fixture.put(job("mail", name)).unwrap();
    }
    let jobs = fixture.claim("mail", "w", Some(LEASE));
    fixture.settle(&jobs[3], retry()).unwrap();
    fixture.advance(10);
    fixture.settle(&jobs[2], Settlement::Extend(Some(LEASE))).unwrap();
    fixture.advance(20);
    assert_eq!(block_on(fixture.store.reap(1)).unwrap().count, 1);
    has_lines(&fixture.text(), &[r#"requeue_lapses_total{kind="mail"} 1"#]);
    let again = fixture.claim("mail", "w", Some(LEASE));
    assert_eq!(again.len(), 3, "all but the extended one");
    has_lines(&fixture.text(), &[r#"requeue_lapses_total{kind="mail"} 2"#]);
    for job in &again {
        fixture.settle(job, Settlement::Ack).unwrap();
    }
    fixture.advance(10);
    let last = fixture.claim("mail", "w", None);
    fixture.settle(&last[0], Settlement::Ack).unwrap();

    // Every lease was settled or has expired.
    let text = fixture.text();
    has_lines(
        &text,
        &[
            r#"requeue_lapses_total{kind="mail"} 3"#,
            r#"requeue_claimed_total{kind="mail"} 8"#,
            r#"requeue_settled_total{kind="mail",outcome="acked"} 4"#,
            r#"requeue_settled_total{kind="mail",outcome="retried"} 1"#,
        ],
    );
}

#[test]
fn lateness_uses_the_clock_of_the_store_if_the_claim_specifies_its_lease() {
    let clock = ManualClock::new();
    let ahead = START.saturating_add(Duration::from_secs(100));
    let store = MemoryStore::with(WallClock::manual(&clock, START));
    let store = InstrumentedStore::new(Arc::new(store), WallClock::manual(&clock, ahead));
    let fixture = InstrumentedFixture { clock, store };
    fixture.put(job("mail", "a")).unwrap();
    fixture.put(job("sms", "a")).unwrap();
    fixture.advance(2);
    fixture.claim("mail", "w", Some(Duration::from_micros(10_001)));
    fixture.claim("sms", "w", None);
    has_lines(
        &fixture.text(),
        &[
            r#"requeue_claim_lateness_seconds_sum{kind="mail"} 2"#,
            r#"requeue_claim_lateness_seconds_sum{kind="sms"} 102"#,
        ],
    );
}

#[test]
fn each_entry_of_a_batch_counts_for_its_own_kind() {
    let fixture = InstrumentedFixture::new();
    let puts = ["mail", "sms", "mail", "mail"].map(|name| job(name, "a"));
    block_on(fixture.store.put(puts.to_vec())).unwrap();
    has_lines(
        &fixture.text(),
        &[
            r#"requeue_puts_total{kind="mail",outcome="created"} 1"#,
            r#"requeue_puts_total{kind="mail",outcome="updated"} 2"#,
            r#"requeue_puts_total{kind="sms",outcome="created"} 1"#,
            r#"requeue_store_batch_entries_bucket{verb="put",le="2"} 0"#,
            r#"requeue_store_batch_entries_bucket{verb="put",le="5"} 1"#,
        ],
    );
}

#[test]
fn a_kind_that_only_requests_named_gets_no_label() {
    let fixture = InstrumentedFixture::new();
    let made_up = kind("made.up");
    fixture.claim("made.up", "w", None);
    let condition = Some(Condition::IfGeneration(Generation(7)));
    fixture.put(Put { condition, ..job("made.up", "a") }).unwrap_err();
    let receipt = Receipt::new(made_up.clone(), id("a"), Fence(1), 1);
    block_on(fixture.store.settle(vec![Settle { receipt, action: Settlement::Ack }]))
        .unwrap()
        .remove(0)
        .unwrap_err();
    let change = Change { kind: made_up.clone(), id: id("a"), action: ChangeKind::Revive };
    block_on(fixture.store.change(vec![change])).unwrap().remove(0).unwrap_err();
    block_on(fixture.store.list(Query::new(made_up.clone()))).unwrap();
    let far = Due::After(Duration::MAX);
    fixture.put(Put { due: far, ..job("made.up", "a") }).unwrap_err();
    let text = fixture.text();
    assert!(!text.contains("made.up"), "{text}");
    has_lines(
        &text,
        &[
            r#"requeue_put_conditions_refused_total{kind=""} 1"#,
            r#"requeue_lease_lost_total{kind=""} 1"#,
            r#"requeue_store_errors_total{sort="invalid",verb="put"} 1"#,
        ],
    );
}

fn polled<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn faulty() -> (Arc<Faulty>, InstrumentedFixture) {
    let mut made = None;
    let fixture = InstrumentedFixture::around(|store| {
        let faulty = Arc::new(Faulty::new(Arc::new(store)));
        made = Some(faulty.clone());
        faulty
    });
    (made.expect("it was just made"), fixture)
}

#[test]
fn failed_calls_are_counted_by_reason_and_durations_are_measured() {
    let (faults, fixture) = faulty();
    faults.at(1, Fault::Refused);
    faults.at(2, Fault::LostReply);
    for _ in 0..2 {
        block_on(fixture.store.put(vec![job("mail", "a")])).unwrap_err();
    }
    faults.at(1, Fault::Refused);
    block_on(fixture.store.wait(vec![kind("mail")], LEASE)).unwrap_err();

    faults.at(1, Fault::SlowReply);
    let mut slow = fixture.store.get(kind("mail"), id("a"));
    assert!(polled(slow.as_mut()).is_pending());
    fixture.advance(3);
    faults.let_go();
    assert!(polled(slow.as_mut()).is_ready());

    faults.at(1, Fault::SlowCall);
    let mut left = fixture.store.put(vec![job("mail", "b")]);
    assert!(polled(left.as_mut()).is_pending());
    drop(left);
    has_lines(
        &fixture.text(),
        &[
            r#"requeue_store_errors_total{sort="unavailable",verb="put"} 1"#,
            r#"requeue_store_errors_total{sort="unknown",verb="put"} 1"#,
            r#"requeue_store_errors_total{sort="abandoned",verb="put"} 1"#,
            r#"requeue_store_errors_total{sort="unavailable",verb="wait"} 1"#,
            r#"requeue_store_duration_seconds_sum{verb="get"} 3"#,
            r#"requeue_store_duration_seconds_count{verb="put"} 2"#,
        ],
    );
}

#[test]
fn a_store_that_does_not_respond_does_not_block_a_scrape() {
    let (faults, fixture) = faulty();
    fixture.put(job("mail", "a")).unwrap();
    faults.at(1, Fault::SlowCall);
    let mut scrape = pin!(fixture.store.metrics().render(&fixture.store));
    assert!(polled(scrape.as_mut()).is_pending());
    fixture.advance(5);
    let Poll::Ready(text) = polled(scrape) else { panic!("the scrape still waits") };
    has_lines(&text, &[r#"requeue_puts_total{kind="mail",outcome="created"} 1"#]);
    assert!(!text.contains("requeue_jobs"), "{text}");

    faults.at(1, Fault::Refused);
    let text = fixture.text();
    has_lines(&text, &[r#"requeue_store_errors_total{sort="abandoned",verb="kinds"} 1"#]);
    assert!(!text.contains("requeue_jobs"), "{text}");
    let text = fixture.text();
    has_lines(
        &text,
        &[
            r#"requeue_jobs{kind="mail",state="pending"} 1"#,
            r#"requeue_store_errors_total{sort="unavailable",verb="kinds"} 1"#,
        ],
    );
}

#[test]
fn requests_are_counted_by_route_and_gauges_while_their_guards_live() {
    let fixture = InstrumentedFixture::new();
    let metrics = fixture.store.metrics();
    let took = Duration::from_millis(20);
    metrics.request_finished("/v1/kinds/{kind}", "GET", 200, took);
    metrics.request_finished("/v1/kinds/{kind}", "GET", 204, took);
    metrics.request_finished("/v1/kinds/{kind}", "GET", 404, took);
    metrics.request_finished("", "BREW", 405, took);
    let connections = [metrics.connection(), metrics.connection()];
    let worker = WorkerName::new("w").unwrap();
    let waiting = fixture.store.waiting(&worker, &[kind("mail")]);
    let listener = fixture.store.events().listen(vec![]).unwrap();
    let text = fixture.text();
    has_lines(
        &text,
        &[
            r#"requeue_http_requests_total{method="GET",route="/v1/kinds/{kind}",status="2xx"} 2"#,
            r#"requeue_http_requests_total{method="GET",route="/v1/kinds/{kind}",status="4xx"} 1"#,
            r#"requeue_http_requests_total{method="other",route="",status="4xx"} 1"#,
            r#"requeue_http_request_duration_seconds_bucket{route="/v1/kinds/{kind}",le="0.025"} 3"#,
            "requeue_http_connections 2",
            "requeue_waiting_claims 1",
            "requeue_event_listeners 1",
        ],
    );
    drop((connections, waiting, listener));
    has_lines(
        &fixture.text(),
        &["requeue_http_connections 0", "requeue_waiting_claims 0", "requeue_event_listeners 0"],
    );
}

/// Includes its linter for names, types and help texts.
#[test]
fn promtool_accepts_the_metrics() {
    let fixture = busy();
    fixture.store.metrics().request_finished("/v1/claim", "POST", 200, LEASE);
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) if error.kind() == ErrorKind::NotFound => return println!("no promtool here"),
        Err(error) => panic!("promtool cannot be started: {error}"),
    };
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(fixture.text().as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let messages = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && messages.iter().all(String::is_empty), "{messages:?}");
}
