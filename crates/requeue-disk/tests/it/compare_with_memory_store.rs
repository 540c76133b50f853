//! A disk store and a memory store return the same results for the same calls, whatever is flushed,
//! merged, frozen or reopened in between.

use crate::support::gated_disk::GatedDisk;
use crate::support::simulated_disk::SimulatedDisk;
use requeue::ManualClock;
use requeue_disk::{DiskStore, Options};
use requeue_jobs::{
    Body, Content, JobId, JobState, Kind, MemoryStore, PushSetting, Rate, Retention, Settings,
    Spans, TimeQuery, Timestamp, WallClock, WorkerName,
};
use requeue_testkit::{
    ConditionKind, DueKind, ModeKind, Operation, OperationKind, Operations, Random, Response,
    SettlementKind, check_seeds, random_head,
};
use std::sync::Arc;
use std::time::Duration;

/// A seed that failed once, with another generator of operations.
const FAILED_ONCE: [u64; 1] = [43806469172704];
const STEPS: usize = 600;

#[test]
fn a_disk_store_returns_the_same_as_a_memory_store() {
    check_seeds(&FAILED_ONCE, "REQUEUE_SIDE_BY_SIDE", 60, |seed| {
        let mut pair = Pair::new(seed);
        for step in 0..STEPS {
            pair.step().map_err(|error| format!("step {step} of {:?}: {error}", pair.shape))?;
        }
        pair.gate.set_shut(false);
        Ok(())
    });
}

/// How the disk store is opened.
#[derive(Clone, Copy, Debug)]
struct Shape {
    memory: usize,
    segment: u64,
    background: bool,
    /// Whether flushes are blocked from time to time.
    gated: bool,
    /// The percentage of steps in which the store is reopened.
    reopen: usize,
}

impl Shape {
    fn new(random: &mut Random) -> Self {
        let gated = random.chance(40);
        Shape {
            memory: if gated { 8 << 20 } else { *random.pick(&[1 << 10, 4 << 10, 16 << 10]) },
            segment: *random.pick(&[4 << 10, 8 << 10, 32 << 10]),
            background: gated || random.chance(50),
            gated,
            reopen: *random.pick(&[0, 1, 5]),
        }
    }
}

fn operations(random: &mut Random) -> Operations {
    use {OperationKind as O, SettlementKind as S};
    let kind = |number| Kind::new(format!("kind-{number}")).expect("a valid kind");
    let (kinds, ids) = (*random.pick(&[1, 2, 4, 30]), *random.pick(&[3, 12, 100, 1000]));
    let contents: [fn(&mut Random) -> Content; 3] =
        [content::<10>, content::<300>, content::<5000>];
    Operations {
        operations: &[
            (35, O::Put),
            (20, O::Claim),
            (20, O::Settle),
            (10, O::Change),
            (5, O::Reap),
            (5, O::Set),
            (2, O::Restore),
            (1, O::SetSchedule),
            (1, O::RemoveSchedule),
            (2, O::Tick),
        ],
        kinds: (0..kinds).map(kind).collect(),
        ids: (0..ids).map(id).collect(),
        workers: vec![WorkerName::new("w").expect("a valid name")],
        batch: |random| 1 + random.below(8),
        delay: |random| match random.below(4) {
            0 => Duration::ZERO,
            1 => Duration::from_millis(random.below(2000) as u64),
            2 => Duration::from_secs(random.below(400) as u64),
            // Sometimes longer than the longest delay that is allowed.
            _ => Duration::from_secs(random.below(400_000_000) as u64),
        },
        content: *random.pick(&contents),
        dues: &[(1, DueKind::Now), (3, DueKind::After), (2, DueKind::At)],
        modes: &[
            (1, ModeKind::Keep),
            (1, ModeKind::Earliest),
            (1, ModeKind::Debounce),
            (3, ModeKind::Replace),
        ],
        max_wait: |_| Duration::from_millis(700),
        conditions: &[
            (2, ConditionKind::Absent),
            (1, ConditionKind::New),
            (1, ConditionKind::Generation),
            (5, ConditionKind::Never),
        ],
        one_kind: &[(1, true)],
        max_claimed: &[(1, 0), (1, 1), (1, 2), (1, 10), (1, 300)],
        lease: |random| {
            let length = Duration::from_millis(10 + random.below(3000) as u64);
            random.chance(60).then_some(length)
        },
        settlements: &[
            (2, S::Ack),
            (1, S::AckWith),
            (2, S::Retry),
            (1, S::Bury),
            (1, S::Requeue),
            (2, S::Release),
            (1, S::Extend),
        ],
        retry_delay: |random| Duration::from_millis(random.below(2000) as u64),
        error: |random| "e".repeat(random.below(40)),
        extension: |random| {
            random.chance(50).then(|| Duration::from_millis(random.below(2000) as u64))
        },
        max_reaped: &[(1, 0), (1, 1), (1, 5), (1, 19)],
        settings,
        prefixes: &["", "", "order/", "o", "é", "a-longer", "zz"],
        page: &[(1, 1), (1, 3), (1, 10), (1, 1000)],
        ..Operations::default()
    }
}

fn id(number: usize) -> JobId {
    let id = match number % 5 {
        0 => format!("{number}"),
        1 => format!("order/{number}"),
        2 => format!("order/{number}/{}", "x".repeat(490)),
        3 => format!("é{number}"),
        _ => format!("a-longer-prefix-than-sixteen-bytes-{number}"),
    };
    JobId::new(id).expect("a valid id")
}

/// Mostly a short body, sometimes an empty one or one of up to `LONGEST` bytes.
fn content<const LONGEST: usize>(random: &mut Random) -> Content {
    let len = match random.below(10) {
        0 => 0,
        1 => random.below(LONGEST),
        _ => random.below(30),
    };
    let bytes = vec![random.number() as u8; len];
    let content_type = *random.pick(&["text/strange", "application/octet-stream"]);
    let body = Body::new(bytes, content_type).expect("a valid body");
    Content { body, head: random_head(random) }
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    settings.max_attempts = random.below(4) as u32;
    settings.concurrency = *random.pick(&[None, None, Some(0), Some(1), Some(5)]);
    settings.paused = random.chance(10);
    settings.lease = Duration::from_millis(10 + random.below(5000) as u64);
    settings.retention.count = *random.pick(&[0, 1, 5, 1000]);
    settings.retention.age = Duration::from_millis(random.below(100_000) as u64);
    if random.chance(50) {
        let age = Duration::from_millis(random.below(100_000) as u64);
        settings.keep_done = Some(Retention { age, count: *random.pick(&[0, 1, 5, 1000]) });
    }
    if random.chance(20) {
        let per = Duration::from_millis(1 + random.below(5000) as u64);
        let (jobs, burst) = (1 + random.below(5) as u32, 1 + random.below(20) as u32);
        settings.rate = Some(Rate { jobs, per, burst: (burst > 5).then_some(burst) });
    }
    if random.chance(20) {
        let (config, secrets) = ("a target".to_owned(), "its secrets".to_owned().into());
        settings.push = Some(PushSetting { config, secrets });
    }
    let ageing = *random.pick(&[0, 1, 1000, 600_000]);
    settings.ageing = (ageing > 0).then(|| Duration::from_millis(ageing));
    settings
}

struct Pair {
    random: Random,
    shape: Shape,
    operations: Operations,
    gate: GatedDisk<SimulatedDisk>,
    clock: ManualClock,
    wall_clock: WallClock,
    disk: Option<DiskStore>,
    memory: MemoryStore,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (shape, operations) = (Shape::new(&mut random), operations(&mut random));
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let memory = MemoryStore::with(wall_clock.clone());
        let gate = GatedDisk::new(SimulatedDisk::new());
        let mut pair =
            Pair { random, shape, operations, gate, clock, wall_clock, disk: None, memory };
        pair.open();
        pair
    }

    fn open(&mut self) {
        self.gate.set_shut(false);
        self.disk = None;
        let mut options = Options::default();
        options.wall_clock = self.wall_clock.clone();
        options.memory = self.shape.memory;
        options.segment = self.shape.segment;
        options.background = self.shape.background;
        let disk = Arc::new(self.gate.clone());
        self.disk = Some(DiskStore::open_on(disk, options).expect("the store was closed cleanly"));
    }

    fn disk(&self) -> &DiskStore {
        self.disk.as_ref().expect("the store is open")
    }

    fn step(&mut self) -> Result<(), String> {
        if self.shape.gated {
            let shut = self.random.chance(15).then(|| self.random.chance(70));
            shut.into_iter().for_each(|shut| self.gate.set_shut(shut));
        }
        if self.random.chance(self.shape.reopen) {
            self.open();
        }
        if self.random.chance(20) {
            let by = *self.random.pick(&[0, 1, 50, 1000, 30_000, 400_000]);
            self.clock.advance(Duration::from_millis(by));
        }
        self.call()?;
        if self.random.chance(10) {
            self.read()?;
        }
        if self.random.chance(2) {
            self.disk().check();
            self.memory.check();
        }
        Ok(())
    }

    fn call(&mut self) -> Result<(), String> {
        let now = self.wall_clock.now();
        let operation = self.operations.next(&mut self.random, now, &self.memory);
        if let Ok(response) = operation.compare(self.disk(), &self.memory)? {
            self.operations.keep_receipts(&response);
        }
        // Most receipts are used once.
        if let Operation::Settle(settlements) = operation
            && self.random.chance(80)
        {
            self.operations.forget_receipts(&settlements);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        let random = &mut self.random;
        let mut query = self.operations.query(random);
        let (kind, id) = (self.operations.kind(random), self.operations.id(random));
        let from = self.wall_clock.now().as_millis() - random.below(2000) as u64;
        let length = Duration::from_millis(*random.pick(&[0, 1, 100, 60_000]));
        let count = *random.pick(&[0, 1, 10, 1000]);
        let spans = Spans { from: Timestamp::from_millis(from), length, count };
        for operation in [
            Operation::Get(kind.clone(), id),
            Operation::Kinds,
            Operation::Settings(kind.clone()),
            Operation::Schedules(kind.clone()),
            Operation::Upcoming(kind, spans),
        ] {
            let _response = operation.compare(self.disk(), &self.memory)?;
        }
        let (state, limit) = (query.state.unwrap_or(JobState::Ready), query.limit.max(5));
        for newest_first in [false, true] {
            let by_time = TimeQuery::new(query.kind.clone(), state);
            let by_time = Operation::ListByTime(TimeQuery { newest_first, limit, ..by_time });
            let _response = by_time.compare(self.disk(), &self.memory)?;
        }
        loop {
            let page = Operation::List(query.clone()).compare(self.disk(), &self.memory)?;
            match page {
                Ok(Response::List(page)) if page.cursor.is_some() => query.after = page.cursor,
                _ => return Ok(()),
            }
        }
    }
}
