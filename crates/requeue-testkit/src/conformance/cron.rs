//! Schedules and ticks.

use crate::harness::{Harness, id, job, kind, mail, secs, text};
use requeue::ManualClock;
use requeue_jobs::{
    Body, Change, ChangeKind, Changed, Claim, Invalid, JobState, Jobs, Kind, Missed, Priority,
    PutOutcome, Retention, SCHEDULE_TIMERS, Schedule, ScheduleCondition, ScheduleSpec,
    ScheduleTicker, StoreError, Tick, TickJob, Ticked, Timestamp, WallClock, WorkerName,
};
use std::sync::Arc;

fn nightly(next: Timestamp) -> Schedule {
    Schedule {
        id: id("nightly"),
        when: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        content: text("report").into(),
        missed: Missed::Skip,
        next,
    }
}

async fn keep(h: &Harness, schedule: Schedule) {
    assert!(keep_if(h, schedule, ScheduleCondition::Always).await);
}

async fn keep_if(h: &Harness, schedule: Schedule, condition: ScheduleCondition) -> bool {
    h.store.set_schedule(mail(), schedule, condition).await.expect("the call succeeds")
}

async fn schedules(h: &Harness) -> Vec<Schedule> {
    h.store.schedules(mail()).await.expect("the call succeeds")
}

async fn tick(h: &Harness, expected: Timestamp, next: Timestamp, put: bool) -> Ticked {
    let job = TickJob {
        id: id("nightly"),
        content: text("report").into(),
        priority: Priority::default(),
    };
    tick_with(h, expected, next, put.then_some(job)).await
}

async fn tick_with(
    h: &Harness,
    expected: Timestamp,
    next: Timestamp,
    put: Option<TickJob>,
) -> Ticked {
    let tick = Tick { kind: mail(), id: id("nightly"), expected, next, put };
    h.store.tick(tick).await.expect("the call succeeds")
}

pub(crate) async fn schedules_are_kept_by_id(h: &Harness) {
    assert_eq!(schedules(h).await, []);
    let (one, mut other) = (nightly(h.now()), nightly(h.after(secs(60))));
    other.id = id("hourly");
    keep(h, one.clone()).await;
    keep(h, other.clone()).await;
    assert_eq!(schedules(h).await, [other.clone(), one]);
    assert_eq!(h.store.schedule(mail(), id("hourly")).await, Ok(Some(other)));
    assert_eq!(h.store.schedule(mail(), id("daily")).await, Ok(None));
    assert_eq!(h.store.schedule(kind("sms"), id("hourly")).await, Ok(None));
    assert_eq!(h.store.schedules(kind("sms")).await, Ok(vec![]));
    assert_eq!(h.kinds().await.len(), 1);
    h.claims_nothing().await;
}

pub(crate) async fn a_schedule_replaces_one_with_the_same_id(h: &Harness) {
    keep(h, nightly(h.now())).await;
    let mut other = nightly(h.after(secs(60)));
    (other.when, other.missed) = ("0 4 * * *".into(), Missed::One);
    keep(h, other.clone()).await;
    assert_eq!(schedules(h).await, [other]);
}

pub(crate) async fn a_schedule_is_set_only_if_its_condition_holds(h: &Harness) {
    let times = [h.now(), h.after(secs(60)), h.after(secs(120))];
    let [first, second, third] = times.map(nightly);
    let next = |at: usize| ScheduleCondition::Next(times[at]);
    assert!(!keep_if(h, first.clone(), next(0)).await);
    assert_eq!(h.kinds().await, []);
    assert!(keep_if(h, first.clone(), ScheduleCondition::Absent).await);
    assert!(!keep_if(h, second.clone(), ScheduleCondition::Absent).await);
    assert!(!keep_if(h, second.clone(), next(1)).await);
    assert_eq!(schedules(h).await, [first]);
    assert!(keep_if(h, second, next(0)).await);
    // A tick in between: the change was made from what is no longer there.
    tick(h, times[1], times[2], true).await;
    assert!(!keep_if(h, nightly(times[0]), next(1)).await);
    assert_eq!(schedules(h).await, [third]);
}

pub(crate) async fn the_schedules_of_a_kind_have_sixteen_mebibytes_of_bodies(h: &Harness) {
    let large = |n: usize| {
        let body = Body::octets(vec![7; 1 << 20]).expect("a valid body");
        Schedule { id: id(&format!("s{n}")), content: body.into(), ..nightly(h.now()) }
    };
    for n in 0..15 {
        keep(h, large(n)).await;
    }
    keep(h, large(3)).await;
    let half = Body::octets(vec![7; 1 << 19]).expect("a valid body");
    keep(h, Schedule { content: half.into(), ..large(15) }).await;
    let always = ScheduleCondition::Always;
    let error = h.store.set_schedule(mail(), large(16), always).await.expect_err("it is too much");
    let StoreError::Invalid(Invalid::TooLong { limit, .. }) = error else { panic!("{error}") };
    assert_eq!(limit, 16 << 20);
    keep(h, nightly(h.now())).await;
    assert_eq!(schedules(h).await.len(), 17);
}

pub(crate) async fn a_tick_puts_the_job_and_advances_the_schedule(h: &Harness) {
    let (first, second) = (h.after(secs(60)), h.after(secs(120)));
    keep(h, nightly(first)).await;
    let Ticked::Put(placed) = tick(h, first, second, true).await else {
        panic!("the put succeeds");
    };
    assert_eq!(placed.outcome, PutOutcome::Created);
    let view = h.view("nightly").await;
    assert_eq!((view.version.due, view.version.generation), (first, placed.generation));
    assert_eq!((view.state, view.version.content.body), (JobState::Waiting, text("report")));
    assert_eq!(schedules(h).await, [nightly(second)]);
}

pub(crate) async fn of_two_ticks_one_succeeds(h: &Harness) {
    let (first, second) = (h.now(), h.after(secs(60)));
    keep(h, nightly(first)).await;
    assert!(matches!(tick(h, first, second, true).await, Ticked::Put(_)));
    let before = h.view("nightly").await;
    assert_eq!(tick(h, first, second, true).await, Ticked::Moved(second));
    assert_eq!(h.view("nightly").await, before);
    let job = h.claim().await;
    h.ack(&job).await;
    assert_eq!(tick(h, first, second, true).await, Ticked::Moved(second));
    assert_eq!(h.get("nightly").await, None);
}

pub(crate) async fn a_tick_that_expects_another_time_does_nothing(h: &Harness) {
    keep(h, nightly(h.now())).await;
    let (early, late) = (h.after(secs(5)), h.after(secs(60)));
    assert_eq!(tick(h, early, late, true).await, Ticked::Moved(h.now()));
    assert_eq!(h.get("nightly").await, None);
    assert_eq!(schedules(h).await, [nightly(h.now())]);
}

pub(crate) async fn a_skipped_run_only_advances_the_schedule(h: &Harness) {
    let (first, second) = (h.now(), h.after(secs(60)));
    keep(h, nightly(first)).await;
    assert_eq!(tick(h, first, second, false).await, Ticked::Skipped);
    assert_eq!(h.get("nightly").await, None);
    assert_eq!(schedules(h).await, [nightly(second)]);
    assert_eq!(tick(h, first, second, false).await, Ticked::Moved(second));
}

pub(crate) async fn one_tick_covers_all_missed_runs(h: &Harness) {
    let first = h.now();
    keep(h, nightly(first)).await;
    h.advance(secs(3600));
    let next = h.after(secs(60));
    assert!(matches!(tick(h, first, next, true).await, Ticked::Put(_)));
    let job = h.claim().await;
    h.ack(&job).await;
    h.claims_nothing().await;
}

pub(crate) async fn a_tick_without_a_schedule_is_absent(h: &Harness) {
    let (now, next) = (h.now(), h.after(secs(60)));
    assert_eq!(tick(h, now, next, true).await, Ticked::Absent);
    assert_eq!(h.get("nightly").await, None);
    assert_eq!(h.kinds().await, []);
}

pub(crate) async fn two_runs_never_overlap(h: &Harness) {
    let times = [h.now(), h.after(secs(10)), h.after(secs(20))];
    keep(h, nightly(times[0])).await;
    tick(h, times[0], times[1], true).await;
    let running = h.claim().await;
    h.advance(secs(10));
    let Ticked::Put(placed) = tick(h, times[1], times[2], true).await else {
        panic!("the put succeeds");
    };
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    h.claims_nothing().await;
    h.ack(&running).await;
    assert_eq!(h.claim().await.version.generation, placed.generation);
}

pub(crate) async fn a_removed_schedule_leaves_its_jobs(h: &Harness) {
    let (first, second) = (h.now(), h.after(secs(60)));
    keep(h, nightly(first)).await;
    tick(h, first, second, true).await;
    assert_eq!(h.store.remove_schedule(mail(), id("nightly")).await, Ok(true));
    assert_eq!(h.store.remove_schedule(mail(), id("nightly")).await, Ok(false));
    assert_eq!(schedules(h).await, []);
    assert_eq!(tick(h, second, h.after(secs(120)), true).await, Ticked::Absent);
    h.claim().await;
}

pub(crate) async fn a_tick_puts_the_job_that_it_specifies(h: &Harness) {
    let times = [h.now(), h.after(secs(60)), h.after(secs(120))];
    keep(h, nightly(times[0])).await;
    h.put(job("nightly").priority(7)).await;
    assert!(matches!(tick(h, times[0], times[1], true).await, Ticked::Put(_)));
    assert_eq!(h.view("nightly").await.version.priority.get(), 0);
    let priority = Priority::new(3).expect("a valid priority");
    let other = TickJob { id: id("nightly@2"), content: text("other").into(), priority };
    let Ticked::Put(placed) = tick_with(h, times[1], times[2], Some(other)).await else {
        panic!("the put succeeds");
    };
    assert_eq!(placed.outcome, PutOutcome::Created);
    let view = h.view("nightly@2").await;
    assert_eq!(
        (view.version.priority, view.version.content.body, view.version.due),
        (priority, text("other"), times[1])
    );
    assert_eq!(h.view("nightly").await.version.content.body, text("report"));
    assert_eq!(schedules(h).await, [nightly(times[2])]);
}

pub(crate) async fn a_tick_puts_a_job_again_that_is_done(h: &Harness) {
    let retention = Retention { age: secs(86_400), count: 10 };
    h.set(|settings| settings.keep_done = Some(retention)).await;
    keep(h, nightly(h.now())).await;
    for _ in 0..2 {
        let (now, next) = (h.now(), h.after(secs(60)));
        let ticked = tick(h, now, next, true).await;
        let created =
            matches!(ticked, Ticked::Put(placed) if placed.outcome == PutOutcome::Created);
        assert!(created, "{ticked:?}");
        let job = h.claim().await;
        h.ack(&job).await;
        assert_eq!(h.view("nightly").await.state, JobState::Done);
        h.advance(secs(60));
    }
}

/// Returns a node whose clock shows the present time of the store.
fn node(h: &Harness) -> (Jobs, ScheduleTicker) {
    let wall_clock = WallClock::manual(&ManualClock::new(), h.now());
    let jobs = Jobs::with_wall_clock(Arc::clone(&h.store), wall_clock);
    let ticker = ScheduleTicker::new(&jobs, "node").expect("a valid name");
    (jobs, ticker)
}

async fn step(h: &Harness) -> usize {
    node(h).1.step().await.expect("the store works")
}

async fn set_missing_timers(h: &Harness) -> usize {
    node(h).1.set_missing_timers().await.expect("the store works")
}

async fn every_minute(h: &Harness) {
    let set = node(h).0;
    let set = set.set_schedule("mail", "poll", ScheduleSpec::every(secs(60)));
    assert!(set.await.expect("the schedule is valid").next.is_some());
}

fn timers() -> Kind {
    Kind::with_reserved(SCHEDULE_TIMERS).expect("a valid kind")
}

async fn cancel_timer(h: &Harness) -> Changed {
    let change = Change { kind: timers(), id: id("mail/poll"), action: ChangeKind::Cancel };
    h.store.change(vec![change]).await.expect("the call succeeds").remove(0).expect("it exists")
}

pub(crate) async fn a_schedule_whose_timer_is_missing_runs_again_and_no_run_twice(h: &Harness) {
    every_minute(h).await;
    assert_eq!(set_missing_timers(h).await, 0);
    h.advance(secs(60));
    assert_eq!(cancel_timer(h).await, Changed::Removed);
    assert_eq!((step(h).await, h.get("poll").await), (0, None), "nothing starts the run");
    h.advance(secs(30));
    assert_eq!((set_missing_timers(h).await, set_missing_timers(h).await), (1, 0));
    assert_eq!((step(h).await, step(h).await), (1, 0));
    let first = h.view("poll").await.version.generation;
    // Between the tick and the next timer: the run was started.
    assert_eq!(cancel_timer(h).await, Changed::Removed);
    assert_eq!((set_missing_timers(h).await, step(h).await), (1, 0));
    assert_eq!(h.view("poll").await.version.generation, first, "it was not started twice");
    let claimed = h.claim().await;
    h.ack(&claimed).await;
    h.advance(secs(30));
    assert_eq!(step(h).await, 1);
    assert!(h.view("poll").await.version.generation > first);
}

pub(crate) async fn a_timer_that_is_cancelled_while_a_node_holds_it_is_set_again(h: &Harness) {
    every_minute(h).await;
    h.advance(secs(60));
    // A node that stops before it has started the run.
    let claim = Claim {
        kinds: vec![timers()],
        max: 1,
        lease: Some(secs(10)),
        worker: WorkerName::new("stopped").expect("a valid name"),
        nonce: 7,
    };
    assert_eq!(h.store.claim(claim).await.expect("the call succeeds").jobs.len(), 1);
    assert_eq!(set_missing_timers(h).await, 0, "it is being ticked");
    assert_eq!(cancel_timer(h).await, Changed::Ending);
    assert_eq!((set_missing_timers(h).await, set_missing_timers(h).await), (1, 0));
    assert_eq!((step(h).await, h.get("poll").await), (0, None), "its lease has not ended");
    h.advance(secs(10));
    assert_eq!((step(h).await, step(h).await), (1, 0));
    let generation = h.view("poll").await.version.generation;
    h.advance(secs(20));
    assert_eq!((set_missing_timers(h).await, step(h).await), (0, 0));
    assert_eq!(h.view("poll").await.version.generation, generation);
}
