//! Schedules: setting them, and starting their runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::TestEnv;
use requeue_jobs::*;
use requeue_testkit::{Faulty, Fixture, MemoryFixture, block_on, check_schedules, check_seeds};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A store at 2027-01-15T08:00:00Z with a schedule `r` of the kind `report`.
struct Env {
    clock: ManualClock,
    jobs: Jobs,
    ticker: ScheduleTicker,
}

impl Env {
    fn new() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_800_000_000_000));
        let store = Arc::new(MemoryStore::with(wall_clock.clone()));
        let jobs = Jobs::with_wall_clock(store, wall_clock);
        let ticker = ScheduleTicker::new(&jobs, "node-1").unwrap();
        Env { clock, jobs, ticker }
    }

    fn set(&self, spec: ScheduleSpec) -> ScheduleView {
        block_on(self.jobs.set_schedule("report", "r", spec)).unwrap()
    }

    fn view(&self) -> ScheduleView {
        block_on(self.jobs.schedule("report", "r")).unwrap().unwrap()
    }

    /// Starts the runs that are due.
    fn tick(&self) {
        while block_on(self.ticker.step()).unwrap() > 0 {}
    }

    /// Claims and acks the jobs that are due. Returns their ids and bodies.
    fn work(&self) -> Vec<(String, String)> {
        let claimed = block_on(self.jobs.claim(["report"], "w").max(100).into_future()).unwrap();
        let text = |job: &ClaimedJob| String::from_utf8_lossy(job.body().bytes()).into_owned();
        for job in &claimed.jobs {
            block_on(self.jobs.ack(&job.receipt)).unwrap();
        }
        claimed.jobs.iter().map(|job| (job.id().to_string(), text(job))).collect()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(
            1_800_000_000_000 + Clock::from(&self.clock).now().as_nanos() / 1_000_000,
        )
    }

    fn timers(&self) -> usize {
        block_on(self.jobs.kind(SCHEDULE_TIMERS)).unwrap().counts.pending as usize
    }
}

fn hourly() -> ScheduleSpec {
    let mut spec = ScheduleSpec::cron("0 * * * *", "UTC");
    spec.content.body = Body::new(*b"{{scheduled_at}}", "text/plain").unwrap();
    spec
}

#[test]
fn each_run_is_started_once_when_it_is_due() {
    let env = Env::new();
    let view = env.set(hourly());
    assert_eq!(view.next, Some(env.now().saturating_add(HOUR)));
    assert_eq!(view.next_times.len(), 5);
    for hour in ["09", "10", "11"] {
        env.clock.advance(HOUR - SECOND);
        env.tick();
        assert_eq!(env.work(), []);
        env.clock.advance(SECOND);
        env.tick();
        env.tick();
        assert_eq!(env.work(), [("r".to_owned(), format!("2027-01-15T{hour}:00:00Z"))]);
    }
    assert_eq!((env.view().next, env.timers()), (Some(env.now().saturating_add(HOUR)), 1));
}

/// A year on two nodes with crashes. `REQUEUE_SCHEDULES` is the number of such years.
#[test]
fn in_a_year_of_two_nodes_that_crash_each_run_is_started_exactly_once() {
    check_seeds(&[], "REQUEUE_SCHEDULES", 1, |seed| {
        check_schedules(Arc::new(MemoryFixture::new()), seed, 366 * 24 * HOUR)
    });
}

#[test]
fn after_a_night_without_a_node_one_skip_and_all_differ() {
    let night = |missed, catch_up| {
        let env = Env::new();
        env.set({
            let mut spec = hourly();
            (spec.missed, spec.catch_up) = (missed, catch_up);
            spec
        });
        env.clock.advance(8 * HOUR + 30 * MINUTE);
        let mut runs = Vec::new();
        // With `all`, the next run is started when the one before has ended.
        for _ in 0..20 {
            env.tick();
            runs.extend(env.work().into_iter().map(|(_, time)| time[11..16].to_owned()));
            env.clock.advance(SECOND);
        }
        env.clock.advance(30 * MINUTE);
        env.tick();
        assert_eq!(env.work().len(), 1, "the next run is as usual");
        runs
    };
    assert_eq!(night(Missed::One, None), ["16:00"]);
    assert_eq!(night(Missed::One, Some(29 * MINUTE)), Vec::<String>::new());
    assert_eq!(night(Missed::Skip, None), Vec::<String>::new());
    let all = ["09:00", "10:00", "11:00", "12:00", "13:00", "14:00", "15:00", "16:00"];
    assert_eq!(night(Missed::All, None), all);
    assert_eq!(night(Missed::All, Some(2 * HOUR)), ["15:00", "16:00"]);
}

#[test]
fn a_run_that_falls_due_during_another_one_follows_it_once() {
    let env = Env::new();
    env.set(hourly());
    env.clock.advance(HOUR);
    env.tick();
    let running = block_on(env.jobs.claim(["report"], "w").lease(20 * HOUR).into_future())
        .unwrap()
        .jobs
        .remove(0);
    for _ in 0..3 {
        env.clock.advance(HOUR);
        env.tick();
        assert_eq!(env.work(), []);
    }
    block_on(env.jobs.ack(&running.receipt)).unwrap();
    assert_eq!(env.work(), [("r".to_owned(), "2027-01-15T12:00:00Z".to_owned())]);
    assert_eq!(env.work(), []);
}

#[test]
fn runs_overlap_if_that_is_allowed() {
    let env = Env::new();
    let mut spec = hourly();
    spec.allow_overlap = true;
    env.set(spec);
    for _ in 0..2 {
        env.clock.advance(HOUR);
        env.tick();
    }
    let runs = env.work().into_iter().map(|(id, _)| id);
    let expected = ["r@2027-01-15T09:00:00Z", "r@2027-01-15T10:00:00Z"];
    assert_eq!(runs.collect::<Vec<_>>(), expected);
}

#[test]
fn jitter_delays_the_run_but_not_the_time_it_carries() {
    let env = Env::new();
    let mut spec = hourly();
    spec.jitter = 10 * MINUTE;
    // The time of 08:00 is now, and its run is yet to come.
    let offset = env.set(spec).next.unwrap().saturating_since(env.now());
    assert!(Duration::ZERO < offset && offset < 10 * MINUTE, "{offset:?}");
    env.clock.advance(offset - Duration::from_millis(1));
    env.tick();
    assert_eq!(env.work(), []);
    env.clock.advance(Duration::from_millis(1));
    env.tick();
    assert_eq!(env.work()[0].1, "2027-01-15T08:00:00Z");
}

#[test]
fn setting_the_same_schedule_again_keeps_a_run_that_is_due() {
    let env = Env::new();
    env.set(hourly());
    env.clock.advance(HOUR + SECOND);
    let mut spec = hourly();
    spec.content.body = Body::new(*b"another body", "text/plain").unwrap();
    env.set(spec);
    env.tick();
    assert_eq!(env.work(), [("r".to_owned(), "another body".to_owned())]);
    let same = ScheduleSpec::cron(" 0 * * * * ", "UTC");
    env.clock.advance(HOUR);
    env.set(same);
    env.tick();
    assert_eq!(env.work().len(), 1);
    // Other times: a run of the old ones that is due is dropped.
    env.clock.advance(HOUR);
    env.set(ScheduleSpec::cron("30 * * * *", "UTC"));
    env.tick();
    assert_eq!(env.work(), []);
    assert_eq!(env.view().next, Some(env.now().saturating_add(30 * MINUTE - SECOND)));
}

#[test]
fn a_schedule_that_is_set_again_before_each_run_still_runs() {
    let env = Env::new();
    let mut runs = 0;
    for _ in 0..40 {
        env.set(ScheduleSpec::every(90 * SECOND));
        env.clock.advance(45 * SECOND);
        env.tick();
        runs += env.work().len();
    }
    assert_eq!(runs, 20);
}

#[test]
fn a_paused_schedule_does_not_run_and_makes_nothing_up() {
    let env = Env::new();
    env.set(hourly());
    let change = |paused| env.jobs.change_schedule("report", "r", move |spec| spec.paused = paused);
    let view = block_on(change(true)).unwrap();
    assert_eq!((view.next, view.next_times.len()), (None, 5));
    env.clock.advance(3 * HOUR);
    env.tick();
    assert_eq!((env.work(), env.timers()), (vec![], 0));
    assert_eq!(block_on(change(false)).unwrap().next, Some(env.now().saturating_add(HOUR)));
    env.tick();
    assert_eq!(env.work(), []);
    env.clock.advance(HOUR);
    env.tick();
    assert_eq!(env.work().len(), 1);
}

#[test]
fn a_change_that_fails_stores_nothing() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new())));
    let jobs = Jobs::new(store.clone());
    let before = block_on(jobs.set_schedule("report", "r", hourly())).unwrap();
    let calls = store.calls();
    let changed = block_on(jobs.change_schedule_with("report", "r", |spec| {
        spec.allow_overlap = true;
        Err(ScheduleError::Over)
    }));
    assert_eq!(changed.unwrap_err(), ScheduleError::Over);
    assert_eq!(store.calls(), calls + 1, "it is only read");
    let after = block_on(jobs.schedule("report", "r")).unwrap().unwrap();
    assert_eq!(after.spec, before.spec);
}

#[test]
fn a_schedule_runs_between_its_start_and_its_end() {
    let env = Env::new();
    let mut spec = hourly();
    spec.starts_at = Some(env.now().saturating_add(2 * HOUR));
    spec.ends_at = Some(env.now().saturating_add(3 * HOUR));
    env.set(spec.clone());
    let mut runs = Vec::new();
    for _ in 0..6 {
        env.clock.advance(HOUR);
        env.tick();
        runs.extend(env.work().into_iter().map(|(_, time)| time[11..16].to_owned()));
    }
    assert_eq!(runs, ["10:00", "11:00"]);
    assert_eq!((env.view().next, env.view().next_times, env.timers()), (None, vec![], 0));
    let over = block_on(env.jobs.set_schedule("report", "r", spec)).unwrap_err();
    assert_eq!(over, ScheduleError::Over);
}

#[test]
fn a_run_can_be_started_by_hand_without_moving_the_next_one() {
    let env = Env::new();
    let next = env.set(hourly()).next;
    env.clock.advance(MINUTE);
    let placed = block_on(env.jobs.run_schedule("report", "r")).unwrap();
    assert_eq!(placed.outcome, PutOutcome::Created);
    assert_eq!(env.work(), [("r".to_owned(), "2027-01-15T08:01:00Z".to_owned())]);
    assert_eq!(env.view().next, next);
    let absent = block_on(env.jobs.run_schedule("report", "x")).unwrap_err();
    assert_eq!(absent.to_string(), "there is no schedule \"x\" of kind report");
}

#[test]
fn a_removed_schedule_does_not_run_again() {
    let env = Env::new();
    env.set(hourly());
    assert_eq!(block_on(env.jobs.remove_schedule("report", "r")), Ok(true));
    assert_eq!(block_on(env.jobs.remove_schedule("report", "r")), Ok(false));
    env.clock.advance(HOUR);
    env.tick();
    assert_eq!((env.work(), env.timers()), (vec![], 0));
}

#[test]
fn missing_timers_are_set_again() {
    let env = Env::new();
    env.set(hourly());
    let timer = block_on(env.jobs.list(SCHEDULE_TIMERS).into_future()).unwrap().jobs.remove(0);
    assert_eq!(timer.id.as_str(), "report/r");
    let missing = || block_on(env.ticker.set_missing_timers()).unwrap();
    assert_eq!(missing(), 0);
    let timers = Kind::with_reserved(SCHEDULE_TIMERS).unwrap();
    let (kind, id, action) = (timers.clone(), timer.id.clone(), ChangeKind::Cancel);
    block_on(env.jobs.store().change(vec![Change { kind, id, action }])).unwrap();
    assert_eq!((missing(), missing(), env.timers()), (1, 0, 1));
    // One that is too late is moved.
    let mut late = Put::new(timers, timer.id.clone(), timer.body().clone());
    late.due = Due::After(9 * HOUR);
    block_on(env.jobs.store().put(vec![late])).unwrap();
    assert_eq!((missing(), env.timers()), (0, 1));
    let moved = block_on(env.jobs.get(SCHEDULE_TIMERS, "report/r")).unwrap().unwrap();
    assert_eq!(moved.version.due, timer.version.due);
    env.clock.advance(HOUR);
    env.tick();
    assert_eq!(env.work().len(), 1);
}

#[test]
fn a_ticker_sets_missing_timers_within_a_minute_and_reports_them() {
    let env = Env::new();
    env.set(hourly());
    let missing = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&missing);
    let ticker = ScheduleTicker::new(&env.jobs, "node-1").unwrap().on_error(move |error| {
        let ScheduleError::TimersMissing { count } = error else { panic!("{error}") };
        counter.fetch_add(*count, Ordering::Relaxed);
    });
    let mut run = pin!(ticker.run());
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || assert!(run.as_mut().poll(&mut context).is_pending());
    poll();
    let kind = Kind::with_reserved(SCHEDULE_TIMERS).unwrap();
    let (id, action) = (JobId::new("report/r").unwrap(), ChangeKind::Cancel);
    block_on(env.jobs.store().change(vec![Change { kind, id, action }])).unwrap();
    assert_eq!(env.timers(), 0);
    env.clock.advance(ScheduleTicker::REPAIR_INTERVAL);
    assert!(ScheduleTicker::REPAIR_INTERVAL < MINUTE);
    poll();
    assert_eq!((env.timers(), missing.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_schedule_that_cannot_be_read_is_reported_and_stops_no_other() {
    let env = Env::new();
    env.set(hourly());
    let id = JobId::new("old").unwrap();
    let mut old = hourly().to_schedule(id, env.now());
    old.when = "every full moon".to_owned();
    let kind = Kind::new("report").unwrap();
    block_on(env.jobs.store().set_schedule(kind, old, ScheduleCondition::Always)).unwrap();
    let reports = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reports);
    let ticker = ScheduleTicker::new(&env.jobs, "node-1").unwrap().on_error(move |error| {
        let error = error.to_string();
        assert!(
            error.contains("\"old\" of kind report") && error.contains("every full moon"),
            "{error}"
        );
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(block_on(ticker.set_missing_timers()), Ok(1));
    env.clock.advance(HOUR);
    while block_on(ticker.step()).unwrap() > 0 {}
    assert_eq!((env.work().len(), reports.load(Ordering::Relaxed)), (1, 1));
    let views = block_on(env.jobs.schedules("report")).unwrap();
    assert!(views[0].problem.is_some() && views[1].problem.is_none());
}

#[test]
fn a_worker_starts_the_runs_of_its_store() {
    let env = TestEnv::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let worker = || JobWorker::new(&env.jobs, ["k"], "w").unwrap();
    let handler = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Outcome::Done) }
    };
    let every = ScheduleSpec::every(MINUTE);
    block_on(env.jobs.set_schedule("k", "s", every)).unwrap();
    let first = env.spawn(worker(), handler.clone());
    let _second = env.spawn(worker(), handler);
    env.advance(MINUTE, 3);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    // Another worker of the process takes over.
    drop(first.shut_down(SECOND));
    env.executor.run();
    env.advance(MINUTE, 3);
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

#[test]
fn ten_thousand_schedules_cost_no_more_calls_per_run_than_ten() {
    let calls = |schedules: usize| {
        let fixture = MemoryFixture::new();
        let store = Arc::new(CountingStore { store: fixture.store(), calls: AtomicUsize::new(0) });
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, fixture.now());
        let jobs = Jobs::with_wall_clock(store.clone(), wall_clock);
        for n in 0..schedules {
            let mut spec = ScheduleSpec::every(24 * HOUR);
            spec.starts_at = Some(fixture.now().saturating_add(HOUR));
            // Ten of them are due.
            if n < 10 {
                spec.starts_at = Some(fixture.now().saturating_add(SECOND));
            }
            block_on(jobs.set_schedule("k", &n.to_string(), spec)).unwrap();
        }
        fixture.advance(SECOND);
        clock.advance(SECOND);
        store.calls.store(0, Ordering::Relaxed);
        let ticker = ScheduleTicker::new(&jobs, "node-1").unwrap();
        assert_eq!(block_on(ticker.step()), Ok(10));
        store.calls.load(Ordering::Relaxed)
    };
    // A claim, ten reads and ticks, and a settlement.
    assert_eq!((calls(10), calls(10_000)), (22, 22));
}

struct CountingStore {
    store: Arc<dyn Store>,
    calls: AtomicUsize,
}

impl Layered for CountingStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn around<'a, T: Send + 'a>(
        &'a self,
        _: StoreMethod,
        call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        call(&*self.store)
    }
}
