//! Schedules, and the step that any number of nodes may try.

use crate::trial::{Trial, id, kind, mail, secs, text};
use requeue_jobs::{JobState, Missed, PutOutcome, Schedule, Tick, Ticked, Timestamp};

fn nightly(next: Timestamp) -> Schedule {
    Schedule {
        id: id("nightly"),
        when: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        body: text("report"),
        missed: Missed::Skip,
        next,
    }
}

async fn keep(t: &Trial, schedule: Schedule) {
    t.store.set_schedule(mail(), schedule).await.expect("it is kept");
}

async fn schedules(t: &Trial) -> Vec<Schedule> {
    t.store.schedules(mail()).await.expect("it is answered")
}

async fn tick(t: &Trial, expected: Timestamp, next: Timestamp, put: bool) -> Ticked {
    let tick = Tick { kind: mail(), id: id("nightly"), expected, next, put };
    t.store.tick(tick).await.expect("it is answered")
}

pub(crate) async fn schedules_are_kept_by_id(t: &Trial) {
    assert_eq!(schedules(t).await, []);
    let (one, mut other) = (nightly(t.now()), nightly(t.after(secs(60))));
    other.id = id("hourly");
    keep(t, one.clone()).await;
    keep(t, other.clone()).await;
    assert_eq!(schedules(t).await, [other, one]);
    assert_eq!(t.store.schedules(kind("sms")).await, Ok(vec![]));
    assert_eq!(t.kinds().await.len(), 1);
    t.claims_nothing().await;
}

pub(crate) async fn a_schedule_replaces_that_of_the_same_id(t: &Trial) {
    keep(t, nightly(t.now())).await;
    let mut other = nightly(t.after(secs(60)));
    (other.when, other.missed) = ("0 4 * * *".into(), Missed::One);
    keep(t, other.clone()).await;
    assert_eq!(schedules(t).await, [other]);
}

pub(crate) async fn a_tick_puts_the_job_and_moves_the_schedule_on(t: &Trial) {
    let (first, second) = (t.after(secs(60)), t.after(secs(120)));
    keep(t, nightly(first)).await;
    let Ticked::Put(placed) = tick(t, first, second, true).await else {
        panic!("the job is put");
    };
    assert_eq!(placed.outcome, PutOutcome::Created);
    let view = t.view("nightly").await;
    assert_eq!((view.due, view.generation), (first, placed.generation));
    assert_eq!((view.state, view.body), (JobState::Waiting, text("report")));
    assert_eq!(schedules(t).await, [nightly(second)]);
}

pub(crate) async fn of_two_ticks_one_succeeds(t: &Trial) {
    let (first, second) = (t.now(), t.after(secs(60)));
    keep(t, nightly(first)).await;
    assert!(matches!(tick(t, first, second, true).await, Ticked::Put(_)));
    let before = t.view("nightly").await;
    assert_eq!(tick(t, first, second, true).await, Ticked::Moved(second));
    assert_eq!(t.view("nightly").await, before);
    let job = t.claim().await;
    t.ack(&job).await;
    assert_eq!(tick(t, first, second, true).await, Ticked::Moved(second));
    assert_eq!(t.get("nightly").await, None);
}

pub(crate) async fn a_tick_that_expects_another_time_does_nothing(t: &Trial) {
    keep(t, nightly(t.now())).await;
    let (early, late) = (t.after(secs(5)), t.after(secs(60)));
    assert_eq!(tick(t, early, late, true).await, Ticked::Moved(t.now()));
    assert_eq!(t.get("nightly").await, None);
    assert_eq!(schedules(t).await, [nightly(t.now())]);
}

pub(crate) async fn a_run_that_is_skipped_moves_the_schedule_on_alone(t: &Trial) {
    let (first, second) = (t.now(), t.after(secs(60)));
    keep(t, nightly(first)).await;
    assert_eq!(tick(t, first, second, false).await, Ticked::Skipped);
    assert_eq!(t.get("nightly").await, None);
    assert_eq!(schedules(t).await, [nightly(second)]);
    assert_eq!(tick(t, first, second, false).await, Ticked::Moved(second));
}

pub(crate) async fn one_tick_makes_good_for_all_that_were_missed(t: &Trial) {
    let first = t.now();
    keep(t, nightly(first)).await;
    t.advance(secs(3600));
    let next = t.after(secs(60));
    assert!(matches!(tick(t, first, next, true).await, Ticked::Put(_)));
    let job = t.claim().await;
    t.ack(&job).await;
    t.claims_nothing().await;
}

pub(crate) async fn a_tick_of_no_schedule_is_absent(t: &Trial) {
    let (now, next) = (t.now(), t.after(secs(60)));
    assert_eq!(tick(t, now, next, true).await, Ticked::Absent);
    assert_eq!(t.get("nightly").await, None);
    assert_eq!(t.kinds().await, []);
}

pub(crate) async fn two_runs_never_overlap(t: &Trial) {
    let times = [t.now(), t.after(secs(10)), t.after(secs(20))];
    keep(t, nightly(times[0])).await;
    tick(t, times[0], times[1], true).await;
    let running = t.claim().await;
    t.advance(secs(10));
    let Ticked::Put(placed) = tick(t, times[1], times[2], true).await else {
        panic!("the job is put");
    };
    assert_eq!(placed.outcome, PutOutcome::Coalesced);
    t.claims_nothing().await;
    t.ack(&running).await;
    assert_eq!(t.claim().await.generation, placed.generation);
}

pub(crate) async fn a_removed_schedule_leaves_its_jobs(t: &Trial) {
    let (first, second) = (t.now(), t.after(secs(60)));
    keep(t, nightly(first)).await;
    tick(t, first, second, true).await;
    assert_eq!(t.store.remove_schedule(mail(), id("nightly")).await, Ok(true));
    assert_eq!(t.store.remove_schedule(mail(), id("nightly")).await, Ok(false));
    assert_eq!(schedules(t).await, []);
    assert_eq!(tick(t, second, t.after(secs(120)), true).await, Ticked::Absent);
    t.claim().await;
}
