//! The same calls to a disk store and to a memory store return the same results, whatever is
//! flushed, merged, frozen or reopened meanwhile.

use crate::support::gated_disk::GatedDisk;
use crate::support::simulated_disk::SimulatedDisk;
use requeue::ManualClock;
use requeue_disk::{DiskStore, Options};
use requeue_jobs::*;
use requeue_testkit::{Random, block_on, check_seeds};
use std::sync::Arc;
use std::time::Duration;

const FAILED_ONCE: [u64; 1] = [43806469172704];
const STEPS: usize = 600;

#[test]
fn a_disk_store_returns_what_a_memory_store_returns() {
    check_seeds(&FAILED_ONCE, "REQUEUE_SIDE_BY_SIDE", 60, |seed| {
        let mut pair = Pair::new(seed);
        for step in 0..STEPS {
            pair.step(step)?;
        }
        pair.gate.set_shut(false);
        Ok(())
    });
}

/// The options of a store and the size of the workload.
#[derive(Clone, Copy, Debug)]
struct Shape {
    memory: usize,
    segment: u64,
    background: bool,
    /// Whether flushes are stalled now and then.
    gated: bool,
    /// The percentage of steps at which the store is reopened.
    reopen: usize,
    kinds: usize,
    ids: usize,
    /// The longest body; most are shorter.
    body: usize,
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
            kinds: *random.pick(&[1, 2, 4, 30]),
            ids: *random.pick(&[3, 12, 100, 1000]),
            body: *random.pick(&[10, 300, 5000]),
        }
    }
}

struct Pair {
    random: Random,
    shape: Shape,
    gate: GatedDisk<SimulatedDisk>,
    clock: ManualClock,
    wall_clock: WallClock,
    disk: Option<DiskStore>,
    memory: MemoryStore,
    receipts: Vec<Receipt>,
    generations: Vec<Generation>,
}

macro_rules! both {
    ($pair:ident, $call:ident($($with:expr),*)) => {{
        let disk = block_on($pair.disk.as_ref().expect("it is open").$call($($with.clone()),*));
        let memory = block_on($pair.memory.$call($($with.clone()),*));
        if disk != memory {
            return Err(format!(
                "{} {:?}\n  on disk   {:?}\n  in memory {:?}",
                stringify!($call), ($(&$with,)*), disk, memory
            ));
        }
        disk
    }};
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let shape = Shape::new(&mut random);
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let mut pair = Pair {
            random,
            shape,
            gate: GatedDisk::new(SimulatedDisk::new()),
            clock,
            disk: None,
            memory: MemoryStore::with(wall_clock.clone()),
            wall_clock,
            receipts: Vec::new(),
            generations: vec![Generation(1)],
        };
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
        self.disk = Some(DiskStore::open_on(disk, options).expect("it was closed well"));
    }

    fn kind(&mut self) -> Kind {
        Kind::new(format!("kind-{}", self.random.below(self.shape.kinds))).expect("it is valid")
    }

    fn id(&mut self) -> JobId {
        let number = self.random.below(self.shape.ids);
        let id = match number % 5 {
            0 => format!("{number}"),
            1 => format!("order/{number}"),
            2 => format!("order/{number}/{}", "x".repeat(490)),
            3 => format!("é{number}"),
            _ => format!("a-longer-prefix-than-sixteen-bytes-{number}"),
        };
        JobId::new(id).expect("it is valid")
    }

    fn body(&mut self) -> Body {
        let len = match self.random.below(10) {
            0 => 0,
            1 => self.random.below(self.shape.body),
            _ => self.random.below(30),
        };
        let bytes = vec![self.random.number() as u8; len];
        match self.random.below(3) {
            0 => Body::new(bytes, "text/strange").expect("it is valid"),
            _ => Body::octets(bytes).expect("it is valid"),
        }
    }

    fn now(&self) -> u64 {
        self.wall_clock.now().as_millis()
    }

    fn due(&mut self) -> Due {
        let random = &mut self.random;
        match random.below(6) {
            0 => Due::At(Timestamp::from_millis(self.wall_clock.now().as_millis() - 500)),
            1 => Due::At(Timestamp::from_millis(1_700_000_000_000 + random.below(4) as u64 * 100)),
            2 => Due::After(Duration::from_millis(random.below(300) as u64)),
            3 => Due::After(Duration::from_secs(random.below(400) as u64)),
            4 => Due::After(Duration::from_secs(random.below(400_000_000) as u64)),
            _ => Due::After(Duration::ZERO),
        }
    }

    fn put(&mut self) -> Put {
        let mut put = Put::new(self.kind(), self.id(), self.body());
        put.due = self.due();
        put.mode = match self.random.below(6) {
            0 => Mode::Keep,
            1 => Mode::Earliest,
            2 => Mode::Debounce { max_wait: Duration::from_millis(700) },
            _ => Mode::Replace,
        };
        put.condition = match self.random.below(8) {
            0 | 1 => Some(Condition::IfAbsent),
            2 => Some(Condition::IfGeneration(*self.random.pick(&self.generations))),
            _ => None,
        };
        put
    }

    fn action(&mut self) -> Settlement {
        let random = &mut self.random;
        let delay = Duration::from_millis(random.below(2000) as u64);
        let error = "e".repeat(random.below(40));
        match random.below(9) {
            0 => Settlement::Retry { delay: None, error },
            1 => Settlement::Retry { delay: Some(delay), error },
            2 => Settlement::Bury { error },
            3 => Settlement::RequeueAfter(delay),
            4 | 5 => Settlement::Release,
            6 => Settlement::Extend(random.chance(50).then_some(delay)),
            _ => Settlement::Ack,
        }
    }

    fn query(&mut self) -> Query {
        let mut query = Query::new(self.kind());
        query.prefix =
            (*self.random.pick(&["", "", "order/", "o", "é", "a-longer", "zz"])).to_owned();
        query.state = *self.random.pick(&[
            None,
            Some(JobState::Waiting),
            Some(JobState::Ready),
            Some(JobState::Leased),
            Some(JobState::Dead),
        ]);
        query.limit = *self.random.pick(&[1, 3, 10, 1000]);
        if self.random.chance(30) {
            query.after = Some(self.id());
        }
        query
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
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
        self.call().map_err(|error| format!("step {step} of {:?}: {error}", self.shape))?;
        if self.random.chance(10) {
            self.look().map_err(|error| format!("step {step} of {:?}: {error}", self.shape))?;
        }
        if self.random.chance(2) {
            self.disk.as_ref().expect("it is open").check();
            self.memory.check();
        }
        Ok(())
    }

    fn call(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..=6 => {
                let count = self.random.below(8) + 1;
                let puts: Vec<Put> = (0..count).map(|_| self.put()).collect();
                for placed in both!(self, put(puts)).into_iter().flatten().flatten() {
                    self.generations.push(placed.generation);
                }
            }
            7..=10 => {
                let kinds = vec![self.kind()];
                let max = *self.random.pick(&[0, 1, 2, 10, 300]);
                let lease = Duration::from_millis(self.random.below(3000) as u64 + 10);
                let lease = self.random.chance(60).then_some(lease);
                let worker = WorkerName::new("w").expect("it is valid");
                let claim = Claim { kinds, max, lease, worker, nonce: self.random.number() };
                let claimed = both!(self, claim(claim)).map_err(|error| error.to_string())?;
                self.receipts.extend(claimed.jobs.into_iter().map(|job| job.receipt));
            }
            11..=14 => {
                let count = self.random.below(6) + 1;
                let mut settlements = Vec::new();
                while settlements.len() < count && !self.receipts.is_empty() {
                    let at = self.random.below(self.receipts.len());
                    let receipt = match self.random.chance(80) {
                        true => self.receipts.swap_remove(at),
                        false => self.receipts[at].clone(),
                    };
                    settlements.push(Settle { receipt, action: self.action() });
                }
                let _ = both!(self, settle(settlements));
            }
            15 | 16 => {
                let change = |pair: &mut Pair| Change {
                    kind: pair.kind(),
                    id: pair.id(),
                    action: *pair.random.pick(&[
                        ChangeKind::Cancel,
                        ChangeKind::RunNow,
                        ChangeKind::Revive,
                    ]),
                };
                let count = self.random.below(5) + 1;
                let changes: Vec<Change> = (0..count).map(|_| change(self)).collect();
                let _ = both!(self, change(changes));
            }
            17 => {
                let max = self.random.below(20);
                let _ = both!(self, reap(max));
            }
            18 => self.set()?,
            _ => match self.random.below(3) {
                0 => self.restore()?,
                _ => self.schedule()?,
            },
        }
        Ok(())
    }

    fn set(&mut self) -> Result<(), String> {
        let mut settings = Settings::default();
        settings.max_attempts = self.random.below(4) as u32;
        settings.concurrency = *self.random.pick(&[None, None, Some(0), Some(1), Some(5)]);
        settings.paused = self.random.chance(10);
        settings.lease = Duration::from_millis(10 + self.random.below(5000) as u64);
        settings.retention.count = *self.random.pick(&[0, 1, 5, 1000]);
        settings.retention.age = Duration::from_millis(self.random.below(100_000) as u64);
        let kind = self.kind();
        let _ = both!(self, set(kind, settings));
        Ok(())
    }

    fn restore(&mut self) -> Result<(), String> {
        let mut query = self.query();
        query.limit = 5;
        let page = both!(self, list(query)).map_err(|error| error.to_string())?;
        let kind = self.kind();
        let mut jobs = page.jobs;
        jobs.iter_mut().for_each(|job| job.kind = kind.clone());
        let (generation, fence) = (Generation(self.random.below(50) as u64), Fence(0));
        let restore = Restore { kind, generation, fence, jobs };
        let _ = both!(self, restore(restore));
        Ok(())
    }

    fn schedule(&mut self) -> Result<(), String> {
        let (kind, id) = (self.kind(), self.id());
        let next = Timestamp::from_millis(self.now() + self.random.below(3) as u64);
        if self.random.chance(20) {
            let _ = both!(self, remove_schedule(kind, id));
        } else if self.random.chance(40) {
            let (when, time_zone) = ("0 * * * *".to_owned(), "UTC".to_owned());
            let (body, missed) = (self.body(), Missed::Skip);
            let schedule = Schedule { id, when, time_zone, body, missed, next };
            let _ = both!(self, set_schedule(kind, schedule));
        } else if let Some(schedule) =
            block_on(self.memory.schedules(kind.clone())).expect("it is in memory").pop()
        {
            let put = self.random.chance(80);
            let tick = Tick { kind, id: schedule.id, expected: schedule.next, next, put };
            let _ = both!(self, tick(tick));
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        let mut query = self.query();
        loop {
            let page = both!(self, list(query)).map_err(|error| error.to_string())?;
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
        let (kind, id) = (self.kind(), self.id());
        let _ = both!(self, get(kind, id));
        let _ = both!(self, kinds());
        let _ = both!(self, settings(kind));
        let _ = both!(self, schedules(kind));
        let from = Timestamp::from_millis(self.now() - self.random.below(2000) as u64);
        let length = Duration::from_millis(*self.random.pick(&[0, 1, 100, 60_000]));
        let spans = Spans { from, length, count: *self.random.pick(&[0, 1, 10, 1000]) };
        let _ = both!(self, upcoming(kind, spans));
        Ok(())
    }
}
