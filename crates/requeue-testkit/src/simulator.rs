//! A whole system, simulated: producers, workers that crash, a network that loses replies, a
//! clock that jumps; and after it a check of all that happened.
//!
//! ```text
//!   actors ──▶ Faulty ──▶ Recorder ──▶ the store
//!   (tasks)    (faults)      └── the log ──▶ the invariants
//! ```
//!
//! Everything is on one thread and one manual clock, and every choice comes from one seed. At
//! last the faults stop, and all is run until nothing is left to do. The log is then checked
//! against the invariants of durable jobs, each by its number in `invariants`.

mod actors;
mod event;
mod facts;
mod invariants;
mod recorder;
mod tasks;

use crate::faults::{Fault, Faulty};
use crate::fixture::{Fixture, block_on};
use crate::random::{self, Random};
use recorder::Recorder;
use requeue_jobs::{
    Backoff, Body, JobId, Kind, KindView, Missed, Receipt, Schedule, Settings, Store, Timestamp,
    WorkerName,
};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tasks::Tasks;

/// Turns of a simulation while there are faults: about two minutes on its clock.
const TURNS: usize = 800;
/// Seconds until all must be done once there are none.
const QUIET: usize = 120;
const WORKERS: usize = 3;

/// Simulates: the seeds that `failed_once`, and as many new ones as `REQUEUE_SIMULATIONS`
/// says, or else `count`, each on a fresh store.
///
/// ```
/// use requeue_testkit::{MemoryFixture, check_simulations};
///
/// check_simulations(MemoryFixture::new, &[7], 3);
/// ```
///
/// # Panics
///
/// Where an invariant does not hold, with the seed and what happened last.
pub fn check_simulations<F: Fixture + 'static>(
    fixture: impl Fn() -> F,
    failed_once: &[u64],
    count: u64,
) {
    random::check_seeds(failed_once, "REQUEUE_SIMULATIONS", count, |seed| {
        simulate(Arc::new(fixture()), seed)
    });
}

/// Simulates once. Answers the first invariant that does not hold, and what led there.
///
/// ```
/// use requeue_testkit::{MemoryFixture, simulate};
/// use std::sync::Arc;
///
/// assert_eq!(simulate(Arc::new(MemoryFixture::new()), 7), Ok(()));
/// ```
pub fn simulate(fixture: Arc<dyn Fixture>, seed: u64) -> Result<(), String> {
    let recorder = Arc::new(Recorder::new(fixture.clone()));
    let world = World {
        fixture,
        store: Faulty::new(recorder.clone()),
        random: RefCell::new(Random::new(seed)),
        sleepers: RefCell::default(),
        receipts: RefCell::default(),
        quiet: Cell::new(false),
    };
    world.set_up();
    let mut tasks = Tasks::default();
    world.start(&mut tasks, &recorder);
    world.run(&mut tasks, &recorder);
    world.finish(&mut tasks, &recorder);
    invariants::check(&recorder.events())
}

/// What all actors share.
struct World {
    fixture: Arc<dyn Fixture>,
    store: Faulty,
    random: RefCell<Random>,
    sleepers: RefCell<Vec<(Timestamp, Waker)>>,
    /// All that were given out.
    receipts: RefCell<Vec<Receipt>>,
    /// No more faults, no more puts, and all work succeeds.
    quiet: Cell<bool>,
}

fn kinds() -> Vec<Kind> {
    ["mail", "order.close"].map(|kind| Kind::new(kind).expect("a valid kind")).into()
}

impl World {
    fn random<T>(&self, choose: impl FnOnce(&mut Random) -> T) -> T {
        choose(&mut self.random.borrow_mut())
    }

    fn is_quiet(&self) -> bool {
        self.quiet.get()
    }

    async fn sleep(&self, length: Duration) {
        let until = self.fixture.now().saturating_add(length);
        poll_fn(|cx| {
            if self.fixture.now() >= until {
                return Poll::Ready(());
            }
            self.sleepers.borrow_mut().push((until, cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn advance(&self, by: Duration) {
        self.fixture.advance(by);
        let now = self.fixture.now();
        self.sleepers.borrow_mut().retain(|(until, waker)| {
            if *until <= now {
                waker.wake_by_ref();
            }
            *until > now
        });
    }

    /// Settings under which a job may die, one kind with little room, and two schedules.
    fn set_up(&self) {
        for (number, kind) in kinds().into_iter().enumerate() {
            let mut settings = Settings::default();
            settings.lease = Duration::from_secs(2);
            settings.max_attempts = self.random(|random| 1 + random.below(4) as u32);
            settings.concurrency = (number == 0).then_some(2);
            settings.backoff = Backoff {
                base: Duration::from_secs(1),
                max: Duration::from_secs(4),
                jitter_percent: 20,
            };
            block_on(self.store.set(kind.clone(), settings)).expect("no faults yet");
            let schedule = Schedule {
                id: JobId::new("a").expect("a valid id"),
                when: String::new(),
                time_zone: String::new(),
                body: Body::default(),
                missed: Missed::One,
                next: self.fixture.now().saturating_add(Duration::from_secs(5)),
            };
            block_on(self.store.set_schedule(kind, schedule)).expect("no faults yet");
        }
    }

    fn start<'a>(&'a self, tasks: &mut Tasks<'a>, recorder: &'a Recorder) {
        for number in 0..2 {
            tasks.spawn(format!("producer {number}"), actors::producer(self));
            tasks.spawn(format!("ticker {number}"), actors::ticker(self));
        }
        tasks.spawn("operator".to_owned(), actors::operator(self));
        tasks.spawn("pager".to_owned(), actors::pager(self, recorder));
        tasks.spawn("reaper".to_owned(), actors::reaper(self));
        (0..WORKERS).for_each(|number| self.start_worker(number, tasks));
    }

    fn start_worker<'a>(&'a self, number: usize, tasks: &mut Tasks<'a>) {
        let name = format!("worker {number}");
        let worker = WorkerName::new(name.as_str()).expect("a valid name");
        tasks.spawn(name, actors::worker(self, worker));
    }

    /// Faults, crashes, and time that passes in small steps and in leaps.
    fn run<'a>(&'a self, tasks: &mut Tasks<'a>, recorder: &Recorder) {
        use Fault::{CrashAfter, CrashBefore, LostReply, Refused, SlowCall, SlowReply};
        let faults = [Refused, LostReply, SlowCall, SlowReply, LostReply, SlowReply];
        let with_crashes = [Refused, LostReply, SlowCall, SlowReply, CrashBefore, CrashAfter];
        let (seed, percent, crashes) =
            self.random(|random| (random.number(), random.below(20), random.chance(30)));
        self.store.by_chance(seed, percent, if crashes { &with_crashes } else { &faults });
        for _ in 0..TURNS {
            match self.random(|random| random.below(200)) {
                0..=9 => self.store.let_go(),
                10 => self.store.restart(),
                11..=13 => {
                    let number = self.random(|random| random.below(WORKERS));
                    tasks.kill(&format!("worker {number}"));
                    self.start_worker(number, tasks);
                }
                14..=49 => {
                    let millis = self.random(|random| 1 + random.below(400));
                    self.advance(Duration::from_millis(millis as u64));
                }
                50 => {
                    let seconds = self.random(|random| 1 + random.below(30));
                    self.advance(Duration::from_secs(seconds as u64));
                }
                _ => {
                    if !self.step(tasks) {
                        recorder.audit(&kinds());
                        self.advance(Duration::from_millis(50));
                    }
                }
            }
        }
    }

    fn step(&self, tasks: &mut Tasks<'_>) -> bool {
        let mut random = self.random(|random| Random::new(random.number()));
        tasks.step(&mut random)
    }

    /// No more faults: runs until nothing is left to do, and not for ever.
    fn finish(&self, tasks: &mut Tasks<'_>, recorder: &Recorder) {
        self.store.heal();
        self.quiet.set(true);
        tasks.kill("operator");
        for kind in kinds() {
            let mut settings = block_on(self.store.settings(kind.clone())).expect("no more faults");
            settings.paused = false;
            block_on(self.store.set(kind, settings)).expect("no more faults");
        }
        for _ in 0..QUIET {
            while self.step(tasks) {}
            recorder.audit(&kinds());
            let left = |view: &KindView| view.counts.pending + view.counts.leased > 0;
            if !block_on(self.store.kinds()).expect("no more faults").iter().any(left) {
                return;
            }
            self.advance(Duration::from_secs(1));
        }
    }
}
