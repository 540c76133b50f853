//! A workload: random steps, and the expected result of each.
//!
//! The steps run on a memory store, which follows the same rules and needs no disk. Every store has
//! to return the same results and views.

use requeue::ManualClock;
use requeue_jobs::{
    Backoff, Body, Change, ChangeKind, Claim, ClaimedJob, Condition, Due, JobId, JobView, Kind,
    KindView, MemoryStore, Missed, Mode, Put, Query, Receipt, Retention, Schedule, Settings,
    Settle, Settlement, Spans, Store, StoreError, Tick, Timestamp, WallClock, WorkerName,
};
use requeue_testkit::{Random, block_on};
use std::fmt::Debug;
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

#[derive(Debug, Clone)]
pub(crate) enum StoreCall {
    Put(Vec<Put>),
    Claim(Claim),
    Settle(Vec<Settle>),
    Change(Vec<Change>),
    Reap(usize),
    Set(Kind, Settings),
    SetSchedule(Kind, Schedule),
    RemoveSchedule(Kind, JobId),
    Tick(Tick),
}

/// The result of a call as text, to compare two stores.
pub(crate) type CallResult = Result<String, StoreError>;

impl StoreCall {
    pub(crate) async fn on(&self, store: &dyn Store) -> CallResult {
        fn result<T: Debug>(answer: Result<T, StoreError>) -> CallResult {
            answer.map(|answer| format!("{answer:?}"))
        }
        match self.clone() {
            StoreCall::Put(puts) => result(store.put(puts).await),
            StoreCall::Claim(claim) => result(store.claim(claim).await),
            StoreCall::Settle(settlements) => result(store.settle(settlements).await),
            StoreCall::Change(changes) => result(store.change(changes).await),
            StoreCall::Reap(max) => result(store.reap(max).await),
            StoreCall::Set(kind, settings) => result(store.set(kind, settings).await),
            StoreCall::SetSchedule(kind, schedule) => {
                result(store.set_schedule(kind, schedule).await)
            }
            StoreCall::RemoveSchedule(kind, id) => result(store.remove_schedule(kind, id).await),
            StoreCall::Tick(tick) => result(store.tick(tick).await),
        }
    }
}

/// Everything that can be read from a store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) jobs: Vec<JobView>,
    pub(crate) kinds: Vec<KindView>,
    pub(crate) settings: Vec<Settings>,
    pub(crate) schedules: Vec<Vec<Schedule>>,
    pub(crate) upcoming: Vec<Vec<u64>>,
}

impl View {
    pub(crate) fn of(store: &dyn Store, now: Timestamp) -> Result<View, StoreError> {
        let mut view = View {
            jobs: Vec::new(),
            kinds: block_on(store.kinds())?,
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
            view.settings.push(block_on(store.settings(kind.clone()))?);
            view.schedules.push(block_on(store.schedules(kind.clone()))?);
            let spans = Spans { from: now, length: Duration::from_secs(7), count: 5 };
            view.upcoming.push(block_on(store.upcoming(kind, spans))?);
        }
        for job in &view.jobs {
            let found = block_on(store.get(job.kind.clone(), job.id.clone()))?;
            assert_eq!(found.as_ref(), Some(job), "what is listed can be got");
        }
        Ok(view)
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

/// A step, and how things stand around it.
pub(crate) struct Step {
    pub(crate) call: StoreCall,
    /// When it is done.
    pub(crate) now: Timestamp,
    /// What is shown then, before it and after it.
    pub(crate) before: View,
    pub(crate) after: View,
    pub(crate) result: CallResult,
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

/// What shape of work it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkloadShape {
    pub(crate) steps: usize,
    /// How many ids there are of each kind.
    pub(crate) ids: usize,
    /// The longest body.
    pub(crate) body: usize,
}

impl Workload {
    pub(crate) fn random(seed: u64, shape: WorkloadShape) -> Workload {
        let mut maker = WorkloadGenerator::new(seed, shape);
        let steps = (0..shape.steps).map(|_| maker.step()).collect();
        Workload { steps }
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
            assert_eq!(block_on(step.call.on(&store)), step.result, "the same again");
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
        let mut take = |call: StoreCall| {
            let result = block_on(call.on(&store));
            steps.push((call, result.clone()));
            result.expect("a store in memory does not fail");
        };
        // First without advancing the clock: fences and generations must increase without it.
        let claim = |kind: Kind, max| {
            let worker = WorkerName::new("later").expect("a valid name");
            Claim { kinds: vec![kind], max, lease: None, worker, nonce: 7 }
        };
        let body = Body::octets(*b"later").expect("a small body");
        for kind in kinds() {
            take(StoreCall::Claim(claim(kind.clone(), 1000)));
            take(StoreCall::Put(vec![
                Put::new(kind.clone(), id("later"), body.clone()),
                Put::new(kind.clone(), id("id-1"), body.clone()),
                Put::new(kind, id("id-2"), body.clone()),
            ]));
        }
        let later = Duration::from_secs(86_400 * 30);
        clock.advance(later);
        let mut rest = Vec::new();
        for kind in kinds() {
            let call = StoreCall::Claim(claim(kind, 1000));
            let result = block_on(call.on(&store));
            rest.push((call, result));
        }
        let end = View::of(&store, wall_clock.now()).expect("a store in memory does not fail");
        Continuation { steps, later, rest, end }
    }
}

/// Further calls after some step, and their expected results.
pub(crate) struct Continuation {
    steps: Vec<(StoreCall, CallResult)>,
    later: Duration,
    rest: Vec<(StoreCall, CallResult)>,
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
        let take = |(call, expected): &(StoreCall, CallResult)| {
            let result = block_on(call.on(store));
            let same = result == *expected;
            let differs = || format!("{call:?}\n  found    {result:?}\n  expected {expected:?}");
            if same { Ok(()) } else { Err(differs()) }
        };
        self.steps.iter().try_for_each(take)?;
        clock.advance(self.later);
        self.rest.iter().try_for_each(take)?;
        let end = View::of(store, wall_clock.now()).map_err(|error| error.to_string())?;
        if end == self.end { Ok(()) } else { Err(end.difference(&self.end)) }
    }
}

/// Generates random steps.
struct WorkloadGenerator {
    random: Random,
    shape: WorkloadShape,
    store: MemoryStore,
    clock: ManualClock,
    wall_clock: WallClock,
    /// All receipts so far.
    receipts: Vec<Receipt>,
}

impl WorkloadGenerator {
    fn new(seed: u64, shape: WorkloadShape) -> WorkloadGenerator {
        let (clock, wall_clock) = clock_at(Timestamp::from_millis(BEGIN));
        let store = MemoryStore::with(wall_clock.clone());
        let (random, receipts) = (Random::new(seed), Vec::new());
        WorkloadGenerator { random, shape, store, clock, wall_clock, receipts }
    }

    fn step(&mut self) -> Step {
        if self.random.chance(50) {
            let time = self.time();
            self.clock.advance(time);
        }
        let now = self.wall_clock.now();
        let view =
            |maker: &WorkloadGenerator| View::of(&maker.store, now).expect("it does not fail");
        let (before, call) = (view(self), self.call());
        if let StoreCall::Claim(claim) = &call {
            // Called here, so that the receipts are known.
            let claimed = block_on(self.store.claim(claim.clone()));
            let receipt = |job: &ClaimedJob| job.receipt.clone();
            let jobs = claimed.as_ref().map(|claimed| &*claimed.jobs).unwrap_or_default();
            self.receipts.extend(jobs.iter().map(receipt));
            let result = claimed.map(|claimed| format!("{claimed:?}"));
            return Step { call, now, before, after: view(self), result };
        }
        let result = block_on(call.on(&self.store));
        Step { call, now, before, after: view(self), result }
    }

    fn call(&mut self) -> StoreCall {
        match self.random.below(100) {
            0..=39 => StoreCall::Put(self.batch(WorkloadGenerator::put)),
            40..=59 => {
                let lease = self.random.chance(50).then(|| self.time().max(Duration::from_secs(1)));
                let worker = WorkerName::new("worker").expect("a valid name");
                let max = 1 + self.random.below(8);
                let nonce = self.random.number();
                StoreCall::Claim(Claim { kinds: vec![self.kind()], max, lease, worker, nonce })
            }
            60..=84 if !self.receipts.is_empty() => {
                StoreCall::Settle(self.batch(WorkloadGenerator::settle))
            }
            85..=89 => StoreCall::Change(self.batch(|maker| {
                let action = *maker.random.pick(&[
                    ChangeKind::Cancel,
                    ChangeKind::RunNow,
                    ChangeKind::Revive,
                ]);
                Change { kind: maker.kind(), id: maker.id(), action }
            })),
            90..=91 => StoreCall::Reap(1000),
            92..=94 => StoreCall::Set(self.kind(), self.settings()),
            95..=96 => StoreCall::SetSchedule(self.kind(), self.schedule()),
            97 => StoreCall::RemoveSchedule(self.kind(), self.schedule().id),
            _ => {
                let kind = self.kind();
                let schedules = block_on(self.store.schedules(kind.clone()));
                match schedules.expect("it does not fail").first() {
                    Some(schedule) => {
                        let (id, expected) = (schedule.id.clone(), schedule.next);
                        let next = expected.saturating_add(Duration::from_secs(60));
                        StoreCall::Tick(Tick {
                            kind,
                            id,
                            expected,
                            next,
                            put: self.random.chance(80),
                        })
                    }
                    None => StoreCall::SetSchedule(kind, self.schedule()),
                }
            }
        }
    }

    fn batch<T>(&mut self, mut one: impl FnMut(&mut WorkloadGenerator) -> T) -> Vec<T> {
        let count = 1 + if self.random.chance(60) { 0 } else { self.random.below(5) };
        (0..count).map(|_| one(self)).collect()
    }

    fn kind(&mut self) -> Kind {
        self.random.pick(&kinds()).clone()
    }

    fn id(&mut self) -> JobId {
        let number = self.random.below(self.shape.ids);
        // A few long ids, which do not fit into buffers of the usual size.
        match number {
            5 => id(format!("id-{number}-{}", "long".repeat(100))),
            _ => id(format!("id-{number}")),
        }
    }

    fn time(&mut self) -> Duration {
        Duration::from_millis(*self.random.pick(&[0, 1, 100, 1000, 2000, 5000, 20_000]))
    }

    fn body(&mut self) -> Body {
        let most = *self.random.pick(&[8, 100, 200, self.shape.body]);
        let length = self.random.below(most + 1);
        let bytes: Vec<u8> = (0..length).map(|_| self.random.number() as u8).collect();
        let types = ["application/octet-stream", "application/json", "text/x-own"];
        Body::new(bytes, *self.random.pick(&types)).expect("a small body")
    }

    fn put(&mut self) -> Put {
        let mut put = Put::new(self.kind(), self.id(), self.body());
        put.due = match self.random.below(4) {
            0 => Due::Now,
            1 => Due::After(Duration::from_secs(86_400 * (1 + self.random.below(9) as u64))),
            _ => Due::After(self.time()),
        };
        put.mode = match self.random.below(8) {
            0 => Mode::Earliest,
            1 => Mode::Keep,
            2 => Mode::Debounce { max_wait: self.time() },
            _ => Mode::Replace,
        };
        put.condition = self.random.chance(10).then_some(Condition::IfAbsent);
        put
    }

    fn settle(&mut self) -> Settle {
        let late = self.receipts.len().saturating_sub(12);
        let among = if self.random.chance(90) { &self.receipts[late..] } else { &self.receipts };
        let receipt = self.random.pick(among).clone();
        let error = format!("error {}", self.random.below(1000));
        let action = match self.random.below(12) {
            0..=5 => Settlement::Ack,
            6 => Settlement::Retry { delay: Some(self.time()), error },
            7 => Settlement::Retry { delay: None, error },
            8 => Settlement::Release,
            9 => Settlement::Extend(None),
            10 => Settlement::Bury { error },
            _ => Settlement::RequeueAfter(self.time()),
        };
        Settle { receipt, action }
    }

    fn settings(&mut self) -> Settings {
        let mut settings = Settings::default();
        settings.lease = Duration::from_secs(1 + self.random.below(20) as u64);
        let (base, max) = (self.time(), Duration::from_secs(30));
        settings.backoff = Backoff { base, max, jitter_percent: *self.random.pick(&[0, 20]) };
        settings.max_attempts = 1 + self.random.below(4) as u32;
        settings.concurrency = *self.random.pick(&[None, None, None, Some(6)]);
        settings.paused = self.random.chance(5);
        let age = Duration::from_secs(*self.random.pick(&[1, 3600, 86_400]));
        settings.retention = Retention { age, count: *self.random.pick(&[1, 3, 1000]) };
        settings
    }

    fn schedule(&mut self) -> Schedule {
        Schedule {
            id: id(format!("schedule-{}", self.random.below(3))),
            when: "0 3 * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            body: self.body(),
            missed: *self.random.pick(&[Missed::One, Missed::Skip]),
            next: self.wall_clock.now().saturating_add(self.time()),
        }
    }
}
