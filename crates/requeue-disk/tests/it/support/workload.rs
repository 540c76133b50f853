//! A workload: random steps, and the expected result of each.
//!
//! The steps run on a memory store, which follows the same rules and needs no disk. Every store has
//! to return the same results and views.

use requeue::ManualClock;
use requeue_jobs::{
    Backoff, Body, Claim, Content, JobId, JobState, JobView, Kind, KindView, MemoryStore, Missed,
    Put, Query, Rate, Retention, Schedule, Settings, Spans, Store, StoreError, Timestamp,
    WallClock, WorkerName,
};
use requeue_testkit::{
    ConditionKind, DueKind, ModeKind, Operation, OperationKind, Operations, Random, Response,
    SettlementKind, block_on, random_head,
};
use std::time::Duration;

const KINDS: [&str; 3] = ["mail", "order.close", "thumbnail"];
const BEGIN: u64 = 1_700_000_000_000;

pub(crate) fn kinds() -> Vec<Kind> {
    KINDS.map(|kind| Kind::new(kind).expect("a valid kind")).into()
}

pub(crate) fn id(id: impl Into<String>) -> JobId {
    JobId::new(id.into()).expect("a valid id")
}

/// A manual clock that begins at this time.
pub(crate) fn clock_at(now: Timestamp) -> (ManualClock, WallClock) {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, now);
    (clock, wall_clock)
}

/// The result of an operation.
pub(crate) type OperationResult = Result<Response, StoreError>;

/// Everything that can be read from a store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) jobs: Vec<JobView>,
    /// The listed kinds, and all kinds: a kind without jobs has counters, which a restore may raise.
    pub(crate) kinds: Vec<KindView>,
    pub(crate) all_kinds: Vec<KindView>,
    pub(crate) settings: Vec<Settings>,
    pub(crate) schedules: Vec<Vec<Schedule>>,
    pub(crate) upcoming: Vec<Vec<u64>>,
}

impl View {
    pub(crate) fn of(store: &dyn Store, now: Timestamp) -> Result<View, StoreError> {
        let mut view = View {
            jobs: Vec::new(),
            kinds: block_on(store.kinds())?,
            all_kinds: Vec::new(),
            settings: Vec::new(),
            schedules: Vec::new(),
            upcoming: Vec::new(),
        };
        for kind in kinds() {
            let mut query = Query { limit: 50, ..Query::new(kind.clone()) };
            loop {
                let page = block_on(store.list(query.clone()))?;
                view.jobs.extend(page.jobs);
                let Some(cursor) = page.cursor else { break };
                query.after = Some(cursor);
            }
            view.all_kinds.push(block_on(store.kind(kind.clone()))?);
            view.settings.push(block_on(store.settings(kind.clone()))?);
            view.schedules.push(block_on(store.schedules(kind.clone()))?);
            let spans = Spans { from: now, length: Duration::from_secs(7), count: 5 };
            view.upcoming.push(block_on(store.upcoming(kind, spans))?);
        }
        for job in &view.jobs {
            let found = block_on(store.get(job.kind.clone(), job.id.clone()))?;
            assert_eq!(found.as_ref(), Some(job), "a listed job can be read by its id");
        }
        Ok(view)
    }

    /// Returns whether this has all jobs of `other`, and besides them only dead or done ones. If the oldest of these cannot be
    /// read when there are too many, it is removed by a later call.
    pub(crate) fn keeps_more_ended_jobs_than(&self, other: &View) -> bool {
        let has_ended = |job: &JobView| matches!(job.state, JobState::Dead | JobState::Done);
        self.jobs.len() > other.jobs.len()
            && other.jobs.iter().all(|job| self.jobs.contains(job))
            && self.jobs.iter().all(|job| has_ended(job) || other.jobs.contains(job))
    }

    /// The differences, as text.
    pub(crate) fn difference(&self, other: &View) -> String {
        let but = |these: &[JobView], those: &[JobView]| {
            these.iter().filter(|job| !those.contains(job)).cloned().collect::<Vec<_>>()
        };
        let (more, less) = (but(&self.jobs, &other.jobs), but(&other.jobs, &self.jobs));
        if more.len() + less.len() > 0 {
            return format!("jobs:\n  found    {more:?}\n  expected {less:?}");
        }
        let rest = |view: &View| format!("{:?}", View { jobs: Vec::new(), ..view.clone() });
        format!("found    {}\nexpected {}", rest(self), rest(other))
    }
}

/// An operation, and the expected views before and after it.
pub(crate) struct Step {
    pub(crate) operation: Operation,
    /// When it is done.
    pub(crate) now: Timestamp,
    /// The views at that time, before and after the operation.
    pub(crate) before: View,
    pub(crate) after: View,
    pub(crate) result: OperationResult,
}

impl Step {
    /// Whether a store has nothing to write for it.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.before == self.after
    }
}

pub(crate) struct Workload {
    pub(crate) steps: Vec<Step>,
}

/// The size of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadShape {
    pub(crate) steps: usize,
    /// The number of different ids.
    pub(crate) ids: usize,
    /// Generates contents: [`content`] with the length of the longest body.
    pub(crate) content: fn(&mut Random) -> Content,
}

impl Workload {
    pub(crate) fn random(seed: u64, shape: WorkloadShape) -> Workload {
        let (mut random, mut operations) = (Random::new(seed), operations(shape));
        let (clock, wall_clock) = clock_at(Timestamp::from_millis(BEGIN));
        let store = MemoryStore::with(wall_clock.clone());
        let step = |_| {
            if random.chance(50) {
                clock.advance(time(&mut random));
            }
            let now = wall_clock.now();
            let view = || View::of(&store, now).expect("a store in memory does not fail");
            let before = view();
            let mut operation = operations.next(&mut random, now, &store);
            match &mut operation {
                Operation::SetSchedule(_, schedule, _) => {
                    schedule.content = (shape.content)(&mut random);
                    schedule.missed = *random.pick(&[Missed::One, Missed::Skip, Missed::All]);
                }
                // There are few schedules: a random id is seldom one.
                Operation::RemoveSchedule(kind, id) => {
                    let schedules = block_on(store.schedules(kind.clone()));
                    let schedules = schedules.expect("a store in memory does not fail");
                    schedules.first().into_iter().for_each(|first| *id = first.id.clone());
                }
                Operation::Settle(settlements) => operations.forget_receipts(settlements),
                _ => {}
            }
            let result = operation.run(&store);
            result.iter().for_each(|response| operations.keep_receipts(response));
            Step { operation, now, before, after: view(), result }
        };
        Workload { steps: (0..shape.steps).map(step).collect() }
    }

    /// When a step is done.
    pub(crate) fn now(&self, step: usize) -> Timestamp {
        self.steps[step].now
    }

    /// A store in memory after the first `done` steps, at the time of step `at`.
    fn replay(&self, done: usize, at: usize) -> (MemoryStore, ManualClock, WallClock) {
        let (clock, wall_clock) = clock_at(Timestamp::from_millis(BEGIN));
        let store = MemoryStore::with(wall_clock.clone());
        let go_to = |now: Timestamp| clock.advance(now.saturating_since(wall_clock.now()));
        for step in &self.steps[..done] {
            go_to(step.now);
            assert_eq!(step.operation.run(&store), step.result, "the same again");
        }
        go_to(self.now(at));
        (store, clock, wall_clock)
    }

    /// The view after the first `done` steps, at the time of step `at`.
    pub(crate) fn view(&self, done: usize, at: usize) -> View {
        let (store, _, wall_clock) = self.replay(done, at);
        View::of(&store, wall_clock.now()).expect("a store in memory does not fail")
    }

    /// Continues after the first `done` steps, at the time of step `at`: further calls, their
    /// results, and the final view.
    pub(crate) fn continuation(&self, done: usize, at: usize) -> Continuation {
        let (store, clock, wall_clock) = self.replay(done, at);
        let mut steps = Vec::new();
        let mut take = |operation: Operation| {
            let result = operation.run(&store);
            steps.push((operation, result.clone()));
            result.expect("a store in memory does not fail");
        };
        // First without advancing the clock: fences and generations must increase without it.
        let claim = |kind: Kind, max| {
            let worker = WorkerName::new("later").expect("a valid name");
            Claim { kinds: vec![kind], max, lease: None, worker, nonce: 7 }
        };
        let body = Body::octets(*b"later").expect("a small body");
        for kind in kinds() {
            take(Operation::Claim(claim(kind.clone(), 1000)));
            take(Operation::Put(vec![
                Put::new(kind.clone(), id("later"), body.clone()),
                Put::new(kind.clone(), id("id-1"), body.clone()),
                Put::new(kind, id("id-2"), body.clone()),
            ]));
        }
        let later = Duration::from_secs(86_400 * 30);
        clock.advance(later);
        let mut rest = Vec::new();
        for kind in kinds() {
            let operation = Operation::Claim(claim(kind, 1000));
            let result = operation.run(&store);
            rest.push((operation, result));
        }
        let end = View::of(&store, wall_clock.now()).expect("a store in memory does not fail");
        Continuation { steps, later, rest, end }
    }
}

/// Further calls after some step, and their expected results.
pub(crate) struct Continuation {
    steps: Vec<(Operation, OperationResult)>,
    later: Duration,
    rest: Vec<(Operation, OperationResult)>,
    end: View,
}

impl Continuation {
    /// Checks that another store returns the same results.
    pub(crate) fn check(
        &self,
        store: &dyn Store,
        clock: &ManualClock,
        wall_clock: &WallClock,
    ) -> Result<(), String> {
        let take = |(operation, expected): &(Operation, OperationResult)| {
            let result = operation.run(store);
            let same = result == *expected;
            let differs =
                || format!("{operation:?}\n  found    {result:?}\n  expected {expected:?}");
            if same { Ok(()) } else { Err(differs()) }
        };
        self.steps.iter().try_for_each(take)?;
        clock.advance(self.later);
        self.rest.iter().try_for_each(take)?;
        let end = View::of(store, wall_clock.now()).map_err(|error| error.to_string())?;
        if end == self.end { Ok(()) } else { Err(end.difference(&self.end)) }
    }
}

fn operations(shape: WorkloadShape) -> Operations {
    use {OperationKind as O, SettlementKind as S};
    // A few ids are long, and do not fit into buffers of the usual size.
    let id = |number| match number {
        5 => id(format!("id-{number}-{}", "long".repeat(100))),
        _ => id(format!("id-{number}")),
    };
    Operations {
        operations: &[
            (40, O::Put),
            (20, O::Claim),
            (25, O::Settle),
            (5, O::Change),
            (2, O::Restore),
            (2, O::Reap),
            (3, O::Set),
            (3, O::SetSchedule),
            (1, O::RemoveSchedule),
            (5, O::Tick),
        ],
        kinds: kinds(),
        ids: (0..shape.ids).map(id).collect(),
        workers: vec![WorkerName::new("worker").expect("a valid name")],
        batch: |random| 1 + if random.chance(60) { 0 } else { random.below(5) },
        delay: |random| match random.below(3) {
            0 => Duration::from_secs(86_400 * (1 + random.below(9) as u64)),
            _ => time(random),
        },
        content: shape.content,
        dues: &[(1, DueKind::Now), (2, DueKind::After), (1, DueKind::At)],
        modes: &[
            (1, ModeKind::Earliest),
            (1, ModeKind::Keep),
            (1, ModeKind::Debounce),
            (5, ModeKind::Replace),
        ],
        max_wait: time,
        conditions: &[
            (2, ConditionKind::Absent),
            (1, ConditionKind::New),
            (1, ConditionKind::Generation),
            (16, ConditionKind::Never),
        ],
        one_kind: &[(1, true)],
        max_claimed: &[(1, 1), (1, 2), (1, 4), (1, 8)],
        lease: |random| random.chance(50).then(|| time(random).max(Duration::from_secs(1))),
        settlements: &[
            (4, S::Ack),
            (2, S::AckWith),
            (2, S::Retry),
            (1, S::Release),
            (1, S::Extend),
            (1, S::Bury),
            (1, S::Requeue),
        ],
        retry_delay: time,
        extension: |random| random.chance(50).then(|| time(random).max(Duration::from_secs(1))),
        max_reaped: &[(1, 1000)],
        settings,
        ..Operations::default()
    }
}

fn time(random: &mut Random) -> Duration {
    Duration::from_millis(*random.pick(&[0, 1, 100, 1000, 2000, 5000, 20_000]))
}

/// A body of random bytes, mostly a short one, of up to `LONGEST` bytes, and sometimes a head.
pub(crate) fn content<const LONGEST: usize>(random: &mut Random) -> Content {
    let most = *random.pick(&[8, 100, 200, LONGEST]);
    let length = random.below(most + 1);
    let bytes: Vec<u8> = (0..length).map(|_| random.number() as u8).collect();
    let types = ["application/octet-stream", "application/json", "text/x-own"];
    let body = Body::new(bytes, *random.pick(&types)).expect("a small body");
    Content { body, head: random_head(random) }
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(1 + random.below(20) as u64);
    let (base, max) = (time(random), Duration::from_secs(30));
    settings.backoff = Backoff { base: base.min(max), max, jitter_percent: *random.pick(&[0, 20]) };
    settings.max_attempts = 1 + random.below(4) as u32;
    settings.concurrency = *random.pick(&[None, None, None, Some(6)]);
    settings.paused = random.chance(5);
    let age = Duration::from_secs(*random.pick(&[1, 3600, 86_400]));
    settings.retention = Retention { age, count: *random.pick(&[1, 3, 1000]) };
    if random.chance(60) {
        let age = Duration::from_secs(*random.pick(&[5, 3600, 86_400]));
        settings.keep_done = Some(Retention { age, count: *random.pick(&[1, 5, 1000]) });
    }
    if random.chance(30) {
        let per = Duration::from_millis(*random.pick(&[700, 5000]));
        settings.rate = Some(Rate { jobs: 1 + random.below(3) as u32, per, burst: Some(3) });
    }
    let ageing = *random.pick(&[0, 1000, 600_000]);
    settings.ageing = (ageing > 0).then(|| Duration::from_millis(ageing));
    settings
}
