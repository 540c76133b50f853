//! Schedules on two nodes that fail: every run is started exactly once.

use crate::faults::{Fault, Faulty};
use crate::fixture::{Fixture, block_on};
use crate::random::Random;
use requeue::ManualClock;
use requeue_jobs::{
    Body, JobId, Jobs, Kind, Layered, Missed, ScheduleSpec, ScheduleTicker, Store, StoreFuture,
    Tick, Ticked, Timestamp, WallClock,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const KIND: &str = "report";

/// Out of a hundred calls of a node, how many fail.
const FAULTS_PERCENT: usize = 3;

/// Out of a hundred ticks, how many are so slow that another node ticks the schedule first.
const SLOW_TICKS_PERCENT: usize = 2;

/// The times of the runs that were started, by schedule.
type Runs = BTreeMap<String, Vec<Timestamp>>;

/// Lets two nodes start the runs of several schedules for `span`. Calls of the nodes fail, lose their
/// replies, or take longer than the lease of a timer, and the nodes crash and are started again.
///
/// Fails unless each run was started exactly once, and its job claimed once.
pub fn check_schedules(fixture: Arc<dyn Fixture>, seed: u64, span: Duration) -> Result<(), String> {
    let mut random = Random::new(seed);
    let clock = ManualClock::new();
    let begin = fixture.now();
    let end = begin.saturating_add(span);
    let wall_clock = WallClock::manual(&clock, begin);
    let recorder = Arc::new(Recorder::new(fixture.store()));
    let operator = Jobs::with_wall_clock(recorder.clone(), wall_clock.clone());
    let advance = {
        let (fixture, clock) = (Arc::clone(&fixture), clock.clone());
        move |by| {
            fixture.advance(by);
            clock.advance(by);
        }
    };
    // Meanwhile the lease of the timer ends, and another node takes it.
    let other = ScheduleTicker::new(&operator, "node-3").expect("the name is valid");
    let (seconds, slow_ticks) = (Duration::from_secs(11), Mutex::new(Random::new(random.number())));
    recorder.delay_ticks({
        let advance = advance.clone();
        move || {
            if lock(&slow_ticks).chance(SLOW_TICKS_PERCENT) {
                advance(seconds);
                drop(block_on(other.step()));
            }
        }
    });
    let specs = specs();
    for (id, spec) in &specs {
        block_on(operator.set_schedule(KIND, id, spec.clone())).expect("the schedule is valid");
    }
    let nodes = ["node-1", "node-2"].map(|name| {
        let store = Arc::new(Faulty::new(recorder.clone()));
        let faults = [Fault::Refused, Fault::LostReply, Fault::CrashBefore, Fault::CrashAfter];
        store.by_chance(random.number(), FAULTS_PERCENT, &faults);
        let jobs = Jobs::with_wall_clock(store.clone(), wall_clock.clone());
        (store, ScheduleTicker::new(&jobs, name).expect("the name is valid"))
    });
    let mut claimed = BTreeMap::new();
    while fixture.now() < end {
        let first = random.below(2);
        for (store, ticker) in [&nodes[first], &nodes[1 - first]] {
            // If it fails, another step is made later, or the other node's.
            drop(block_on(ticker.step()));
            store.restart();
        }
        work(&operator, &mut claimed);
        let now = fixture.now();
        let schedules = block_on(operator.store().schedules(kind())).expect("it does not fail");
        let next = schedules.iter().map(|schedule| schedule.next).min().unwrap_or(end).min(end);
        let step = match next.saturating_since(now) {
            // A run is late: the lease of its timer ends within ten seconds.
            step if step.is_zero() => Duration::from_millis(random.below(5000) as u64 + 1),
            step => step,
        };
        advance(step);
    }
    let (store, ticker) = &nodes[0];
    store.heal();
    advance(Duration::from_secs(20));
    while block_on(ticker.step()).expect("there are no faults any more") > 0 {}
    work(&operator, &mut claimed);

    let started = lock(&recorder.runs);
    for (id, spec) in &specs {
        let runs = started.get(*id).map_or(&[][..], Vec::as_slice);
        let id = JobId::new(*id).expect("a valid id");
        let times = spec.next_times(&kind(), &id, begin, runs.len() + 1);
        let mut times = times.expect("the schedule is valid");
        let next = times.pop();
        if let Some((run, time)) = runs.iter().zip(&times).find(|(run, time)| run != time) {
            return Err(format!("{id}: there was a run at {run:?} instead of {time:?}"));
        }
        if next <= Some(fixture.now()) {
            return Err(format!("{id}: the run at {next:?} was not started"));
        }
        let jobs = claimed.get(id.as_str()).copied().unwrap_or_default();
        if jobs != runs.len() || runs.is_empty() {
            return Err(format!("{id}: {} runs were started, and {jobs} jobs claimed", runs.len()));
        }
    }
    Ok(())
}

fn kind() -> Kind {
    Kind::new(KIND).expect("a valid kind")
}

/// Claims and acks all jobs, and counts them by schedule.
fn work(jobs: &Jobs, claimed: &mut BTreeMap<String, usize>) {
    loop {
        let found = block_on(jobs.claim([KIND], "worker").max(100).into_future())
            .expect("it does not fail");
        if found.jobs.is_empty() {
            return;
        }
        for job in found.jobs {
            let id = job.id().as_str();
            let schedule = id.split_once('@').map_or(id, |(schedule, _)| schedule);
            *claimed.entry(schedule.to_owned()).or_default() += 1;
            block_on(jobs.ack(&job.receipt)).expect("the lease is valid");
        }
    }
}

/// Schedules without and with jitter and overlap, in zones whose clocks change.
fn specs() -> Vec<(&'static str, ScheduleSpec)> {
    let mut often = ScheduleSpec::every(Duration::from_secs(1800));
    often.jitter = Duration::from_secs(300);
    let mut each = ScheduleSpec::cron("0 */3 * * *", "America/New_York");
    (each.missed, each.allow_overlap) = (Missed::All, true);
    each.content = Body::new(*b"{{scheduled_at}}", "text/plain").expect("a valid body").into();
    let mut in_order = ScheduleSpec::cron("15 */5 * * *", "UTC");
    in_order.missed = Missed::All;
    let nightly = ScheduleSpec::cron("30 2 * * *", "Europe/Berlin");
    vec![("often", often), ("each", each), ("in-order", in_order), ("nightly", nightly)]
}

/// Records the runs that were started.
struct Recorder {
    store: Arc<dyn Store>,
    runs: Mutex<Runs>,
    /// Called before a tick, except within itself.
    before_tick: Mutex<Option<BeforeTick>>,
}

type BeforeTick = Box<dyn Fn() + Send>;

impl Recorder {
    fn new(store: Arc<dyn Store>) -> Self {
        Recorder { store, runs: Mutex::default(), before_tick: Mutex::default() }
    }

    fn delay_ticks(&self, before_tick: impl Fn() + Send + 'static) {
        *lock(&self.before_tick) = Some(Box::new(before_tick));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Layered for Recorder {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let before_tick = lock(&self.before_tick).take();
            if let Some(before_tick) = before_tick {
                before_tick();
                *lock(&self.before_tick) = Some(before_tick);
            }
            let ticked = self.store.tick(tick.clone()).await?;
            if let Ticked::Put(_) = ticked {
                let mut runs = lock(&self.runs);
                runs.entry(tick.id.to_string()).or_default().push(tick.expected);
            }
            Ok(ticked)
        })
    }
}
