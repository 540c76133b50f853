//! The background task that starts the runs of schedules.

use crate::health::{Health, SCHEDULES_NOT_RUNNING, TIMERS_MISSING};
use crate::listen::Shutdown;
use requeue::Clock;
use requeue_jobs::{Jobs, Kind, SCHEDULE_TIMERS, ScheduleError, ScheduleTicker, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// How long one wait for timers takes at most.
const WAIT: Duration = Duration::from_secs(60);

/// The first pause after a failure of the store, which doubles up to [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after a failure.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Starts the runs of all schedules of the store when they are due, on every node: each run is started
/// once.
///
/// While the store fails, that is a problem of the node. A schedule that cannot run, for example because
/// its time zone is unknown here, is logged.
pub(crate) struct ScheduleRunner {
    jobs: Jobs,
    clock: Clock,
    ticker: ScheduleTicker,
    health: Arc<Health>,
    /// How many runs could not be started during the present step.
    failed: Arc<AtomicUsize>,
    /// Consecutive steps that failed.
    failures: AtomicU32,
}

/// What to do until the next step.
#[derive(Debug, PartialEq, Eq)]
enum Pause {
    /// More timers may be due.
    None,
    /// Wait for the next timer.
    UntilDue,
    /// The store failed.
    For(Duration),
}

/// Returns a name of this process, for people: at most 32 characters of the host name, and the process id.
pub(crate) fn node_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().take(32).collect();
    format!("{host}-{}", std::process::id())
}

/// Returns a ticker with the name of this node.
pub(crate) fn schedule_ticker(jobs: &Jobs) -> ScheduleTicker {
    ScheduleTicker::new(jobs, &node_name()).expect("the name is short and not empty")
}

fn timer_kind() -> Kind {
    Kind::with_reserved(SCHEDULE_TIMERS).expect("the name is valid")
}

impl ScheduleRunner {
    /// `clock` measures pauses.
    pub(crate) fn new(jobs: &Jobs, clock: &Clock, health: Arc<Health>) -> Self {
        let failed = Arc::new(AtomicUsize::new(0));
        let report = {
            let (health, failed) = (Arc::clone(&health), Arc::clone(&failed));
            move |error: &ScheduleError| match error {
                ScheduleError::Store(error) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    begin(&health, error);
                }
                error => tracing::warn!(%error, "a schedule cannot run until it is set again"),
            }
        };
        let ticker = schedule_ticker(jobs).on_error(report);
        ScheduleRunner {
            jobs: jobs.clone(),
            clock: clock.clone(),
            ticker,
            health,
            failed,
            failures: AtomicU32::new(0),
        }
    }

    /// Runs until `stop` is requested. Runs that are being started then are completed.
    pub(crate) async fn run(self, stop: Shutdown) {
        // Beside each other: with thousands of kinds, it takes seconds to look for missing timers.
        tokio::select! {
            biased;
            () = self.start_runs(&stop) => {}
            () = self.repair_periodically() => {}
        }
    }

    async fn start_runs(&self, stop: &Shutdown) {
        while !stop.is_requested() {
            let pause = self.step().await;
            tokio::select! {
                biased;
                () = stop.requested() => return,
                () = self.pause(pause) => {}
            }
        }
    }

    /// Sets missing timers from time to time. That some were missing is a problem until none are.
    async fn repair_periodically(&self) {
        // At the start, they are those of schedules that were imported.
        let mut is_first = true;
        loop {
            let pause = match self.ticker.set_missing_timers().await {
                Ok(count) => {
                    if count == 0 {
                        self.health.end(TIMERS_MISSING);
                    } else if !is_first {
                        let missing = ScheduleError::TimersMissing { count };
                        self.health.begin(TIMERS_MISSING, missing.to_string());
                    }
                    is_first = false;
                    ScheduleTicker::REPAIR_INTERVAL
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot look for missing timers of schedules");
                    MAX_PAUSE
                }
            };
            self.clock.sleep(pause).await;
        }
    }

    /// Starts the runs that are due.
    async fn step(&self) -> Pause {
        self.failed.store(0, Ordering::Relaxed);
        match self.ticker.step().await {
            Err(error) => {
                begin(&self.health, &error);
                let failures = self.failures.fetch_add(1, Ordering::Relaxed);
                Pause::For(PAUSE.saturating_mul(1 << failures.min(10)).min(MAX_PAUSE))
            }
            Ok(count) => {
                self.failures.store(0, Ordering::Relaxed);
                match self.failed.load(Ordering::Relaxed) {
                    0 => {
                        self.health.end(SCHEDULES_NOT_RUNNING);
                        if count == 0 { Pause::UntilDue } else { Pause::None }
                    }
                    // Those that failed are due again in a second, and do not delay others, for example because an open
                    // transaction has locked their jobs.
                    failed if failed < count => Pause::None,
                    _ => Pause::For(PAUSE),
                }
            }
        }
    }

    async fn pause(&self, pause: Pause) {
        match pause {
            Pause::None => tokio::task::yield_now().await,
            Pause::UntilDue => {
                let waited = self.jobs.store().wait(vec![timer_kind()], WAIT).await;
                if waited.is_err() {
                    // The next step probably fails, too, and reports it.
                    self.clock.sleep(PAUSE).await;
                }
            }
            Pause::For(pause) => self.clock.sleep(pause).await,
        }
    }
}

fn begin(health: &Health, error: &StoreError) {
    let detail = format!("runs of schedules are not started until the store recovers: {error}");
    health.begin(SCHEDULES_NOT_RUNNING, detail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::Lines;
    use requeue::ManualClock;
    use requeue_jobs::{
        Body, Change, ChangeKind, JobId, JobState, KindView, Layered, MemoryStore, Missed,
        Schedule, ScheduleCondition, ScheduleSpec, Store, StoreFuture, Tick, Ticked, Timestamp,
        WallClock,
    };
    use requeue_testkit::{Fault, Faulty, block_on};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::Semaphore;

    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn id(id: &str) -> JobId {
        JobId::new(id).expect("a valid id")
    }

    fn kind(kind: &str) -> Kind {
        Kind::new(kind).expect("a valid kind")
    }

    struct RunnerFixture {
        clock: ManualClock,
        memory: MemoryStore,
        jobs: Jobs,
        health: Arc<Health>,
        runner: ScheduleRunner,
    }

    /// A store with a schedule that runs every minute.
    fn fixture(wrap: impl FnOnce(MemoryStore) -> Arc<dyn Store>) -> RunnerFixture {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, START);
        let memory = MemoryStore::with(wall_clock.clone());
        let direct = Jobs::with_wall_clock(Arc::new(memory.clone()), wall_clock.clone());
        let set = direct.set_schedule("mail", "poll", ScheduleSpec::every(MINUTE));
        block_on(set).expect("the schedule is valid");
        let jobs = Jobs::with_wall_clock(wrap(memory.clone()), wall_clock.clone());
        let health = Arc::new(Health::new(wall_clock.clone()));
        let runner = ScheduleRunner::new(&jobs, wall_clock.clock(), Arc::clone(&health));
        RunnerFixture { clock, memory, jobs, health, runner }
    }

    impl RunnerFixture {
        fn step(&mut self) -> Pause {
            block_on(self.runner.step())
        }

        fn has_run(&self) -> bool {
            block_on(self.memory.get(kind("mail"), id("poll"))).expect("it works").is_some()
        }

        fn problems(&self) -> Vec<&'static str> {
            let problems = self.health.check(&self.memory).problems;
            problems.into_iter().map(|problem| problem.name).collect()
        }
    }

    #[test]
    fn a_failing_store_is_a_problem_of_the_node_until_runs_are_started_again() {
        let mut faulty = None;
        let mut fixture = fixture(|memory| {
            let store = Arc::new(Faulty::new(Arc::new(memory)));
            faulty = Some(Arc::clone(&store));
            store
        });
        for n in 1..=7 {
            faulty.as_ref().expect("it was made").at(n, Fault::Refused);
        }
        fixture.clock.advance(MINUTE);
        let pauses: Vec<_> = (0..7).map(|_| fixture.step()).collect();
        let expected = [1, 2, 4, 8, 16, 30, 30].map(|secs| Pause::For(Duration::from_secs(secs)));
        assert_eq!(pauses, expected);
        assert_eq!((fixture.problems(), fixture.has_run()), (vec![SCHEDULES_NOT_RUNNING], false));
        assert_eq!(fixture.step(), Pause::None);
        assert_eq!((fixture.problems(), fixture.has_run()), (vec![], true));
        assert_eq!(fixture.step(), Pause::UntilDue);
    }

    #[test]
    fn a_timer_that_is_missing_is_set_again_within_a_minute_and_is_a_problem_until_then() {
        let RunnerFixture { clock, memory, health, runner, .. } =
            fixture(|memory| Arc::new(memory));
        let timer = || block_on(memory.get(timer_kind(), id("mail/poll"))).expect("it works");
        let problems = || -> Vec<&str> {
            health.check(&memory).problems.into_iter().map(|problem| problem.name).collect()
        };
        let mut run = pin!(runner.run(Shutdown::new()));
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || assert!(run.as_mut().poll(&mut context).is_pending());
        poll();
        let before = timer().expect("it is set with the schedule");
        let (kind, id, action) = (timer_kind(), before.id.clone(), ChangeKind::Cancel);
        block_on(memory.change(vec![Change { kind, id, action }])).expect("it works");
        assert_eq!((timer(), problems()), (None, vec![]));
        clock.advance(ScheduleTicker::REPAIR_INTERVAL);
        assert!(ScheduleTicker::REPAIR_INTERVAL < MINUTE);
        poll();
        assert_eq!(timer().map(|timer| timer.version.due), Some(before.version.due));
        assert_eq!(problems(), [TIMERS_MISSING]);
        clock.advance(MINUTE);
        poll();
        let run = block_on(memory.get(self::kind("mail"), self::id("poll"))).expect("it works");
        assert!(run.is_some() && problems().is_empty());
    }

    #[test]
    fn runs_are_started_while_missing_timers_are_looked_for() {
        /// A store whose kinds cannot be read in time.
        struct NoKinds(MemoryStore);

        impl Layered for NoKinds {
            fn inner(&self) -> &dyn Store {
                &self.0
            }

            fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
                Box::pin(std::future::pending())
            }
        }

        let RunnerFixture { clock, memory, runner, .. } = fixture(|store| Arc::new(NoKinds(store)));
        clock.advance(MINUTE);
        let mut run = pin!(runner.run(Shutdown::new()));
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(block_on(memory.get(kind("mail"), id("poll"))).expect("it works").is_some());
    }

    #[test]
    fn a_schedule_whose_job_is_locked_does_not_delay_others() {
        struct Locked(MemoryStore);

        impl Layered for Locked {
            fn inner(&self) -> &dyn Store {
                &self.0
            }

            fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
                let refused = || StoreError::Unavailable { reason: "it is locked".into() };
                match tick.id.as_str() {
                    "locked" => Box::pin(async move { Err(refused()) }),
                    _ => self.0.tick(tick),
                }
            }
        }

        let mut fixture = fixture(|store| Arc::new(Locked(store)));
        block_on(fixture.jobs.set_schedule("mail", "locked", ScheduleSpec::every(MINUTE)))
            .expect("the schedule is valid");
        fixture.clock.advance(MINUTE);
        assert_eq!(fixture.step(), Pause::None);
        assert_eq!((fixture.problems(), fixture.has_run()), (vec![SCHEDULES_NOT_RUNNING], true));
        for _ in 0..10 {
            // Others may become due at any time.
            fixture.clock.advance(PAUSE);
            assert_eq!(fixture.step(), Pause::For(PAUSE));
        }
    }

    /// A store on which ticks fail, or wait until the test permits them.
    struct TickStore {
        store: MemoryStore,
        permits: Option<Semaphore>,
    }

    impl Layered for TickStore {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
            Box::pin(async move {
                let refused = || StoreError::Unavailable { reason: "no ticks".into() };
                let permits = self.permits.as_ref().ok_or_else(refused)?;
                permits.acquire().await.map_err(|_| refused())?.forget();
                self.store.tick(tick).await
            })
        }
    }

    #[test]
    fn a_run_that_cannot_be_started_is_a_problem_although_timers_can_be_claimed() {
        let mut fixture = fixture(|store| Arc::new(TickStore { store, permits: None }));
        fixture.clock.advance(MINUTE);
        assert_eq!(fixture.step(), Pause::For(PAUSE));
        assert_eq!(fixture.problems(), [SCHEDULES_NOT_RUNNING]);
        // The timer is due again after a second.
        assert_eq!(fixture.step(), Pause::UntilDue);
        fixture.clock.advance(Duration::from_secs(1));
        assert_eq!(fixture.step(), Pause::For(PAUSE));
    }

    #[test]
    fn a_schedule_that_cannot_run_is_logged_and_others_run() {
        let mut fixture = fixture(|memory| Arc::new(memory));
        let schedule = Schedule {
            id: id("lunar"),
            when: "every full moon".to_owned(),
            time_zone: "UTC".to_owned(),
            content: Body::default().into(),
            missed: Missed::One,
            next: START,
        };
        let set = fixture.memory.set_schedule(kind("mail"), schedule, ScheduleCondition::Always);
        assert_eq!(block_on(set), Ok(true));
        fixture.clock.advance(MINUTE);
        let lines = Lines::of(|| {
            // It was set without a timer.
            block_on(fixture.runner.ticker.set_missing_timers()).expect("it works");
            assert_eq!(fixture.step(), Pause::None);
        });
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("every full moon"), "{lines:#?}");
        assert_eq!((fixture.problems(), fixture.has_run()), (vec![], true));
    }

    #[test]
    fn runs_that_are_being_started_are_completed_at_the_shutdown() {
        let mut tick_store = None;
        let fixture = fixture(|store| {
            let store = Arc::new(TickStore { store, permits: Some(Semaphore::new(0)) });
            tick_store = Some(Arc::clone(&store));
            store
        });
        fixture.clock.advance(MINUTE);
        let RunnerFixture { runner, memory, jobs, .. } = fixture;
        let stop = Shutdown::new();
        let mut run = pin!(runner.run(stop.clone()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(run.as_mut().poll(&mut context).is_pending());
        stop.request();
        assert!(run.as_mut().poll(&mut context).is_pending(), "the tick is not abandoned");
        let permits = tick_store.as_ref().and_then(|store| store.permits.as_ref());
        permits.expect("it has permits").add_permits(1);
        assert_eq!(run.as_mut().poll(&mut context), Poll::Ready(()));
        assert!(block_on(memory.get(kind("mail"), id("poll"))).expect("it works").is_some());
        let timer = block_on(jobs.get(SCHEDULE_TIMERS, "mail/poll")).expect("it works");
        assert_eq!(timer.map(|timer| timer.state), Some(JobState::Waiting), "it is not leased");
    }
}
