//! Simulations of a whole system: producers, workers that crash, a network that loses replies, and
//! a clock that jumps. Afterwards the log of all calls is checked.
//!
//! ```text
//!   tasks ──▶ Faulty ──▶ Recorder ──▶ store
//!            (faults)       └── log ──▶ invariants
//! ```
//!
//! Everything runs on one thread and one manual clock, and one seed makes every choice. In the end
//! the faults stop, and the tasks run until no work is left. Then the log is checked against the
//! invariants of durable jobs, which have numbers: see `invariants`.

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
    Backoff, Content, JobId, Kind, KindView, Missed, Rate, Receipt, Retention, Schedule,
    ScheduleCondition, Settings, Store, Timestamp, WorkerName,
};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tasks::Tasks;

/// Turns of a simulation with faults: about two minutes on its clock.
const TURNS: usize = 800;
/// Seconds until all jobs must be done after the faults have stopped.
const QUIET_SECONDS: usize = 120;
const WORKERS: usize = 3;

/// Runs simulations on fresh stores: those of the seeds in `failed_once`, and `count` others, or as
/// many as `REQUEUE_SIMULATIONS` specifies.
///
/// ```
/// use requeue_testkit::{MemoryFixture, check_simulations};
///
/// check_simulations(MemoryFixture::new, &[7], 3);
/// ```
///
/// # Panics
///
/// If an invariant is violated, with the seed and the last calls.
pub fn check_simulations<F: Fixture + 'static>(
    fixture: impl Fn() -> F,
    failed_once: &[u64],
    count: u64,
) {
    random::check_seeds(failed_once, "REQUEUE_SIMULATIONS", count, |seed| {
        simulate(Arc::new(fixture()), seed)
    });
}

/// Runs one simulation. The error contains the first invariant that is violated, and the calls that
/// led to it.
///
/// ```
/// use requeue_testkit::{MemoryFixture, simulate};
/// use std::sync::Arc;
///
/// assert_eq!(simulate(Arc::new(MemoryFixture::new()), 7), Ok(()));
/// ```
pub fn simulate(fixture: Arc<dyn Fixture>, seed: u64) -> Result<(), String> {
    let recorder = Arc::new(Recorder::new(fixture.clone()));
    let simulation = Simulation {
        fixture,
        store: Faulty::new(recorder.clone()),
        random: RefCell::new(Random::new(seed)),
        sleepers: RefCell::default(),
        receipts: RefCell::default(),
        quiet: Cell::new(false),
    };
    simulation.set_up();
    let mut tasks = Tasks::default();
    simulation.start(&mut tasks, &recorder);
    simulation.run(&mut tasks, &recorder);
    simulation.finish(&mut tasks, &recorder);
    invariants::check(&recorder.events())
}

/// What all tasks share.
struct Simulation {
    fixture: Arc<dyn Fixture>,
    store: Faulty,
    random: RefCell<Random>,
    sleepers: RefCell<Vec<(Timestamp, Waker)>>,
    /// The receipts of all leases so far.
    receipts: RefCell<Vec<Receipt>>,
    /// The last part of the simulation: no faults, no puts, and all work succeeds.
    quiet: Cell<bool>,
}

fn kinds() -> Vec<Kind> {
    ["mail", "order.close"].map(|kind| Kind::new(kind).expect("a valid kind")).into()
}

impl Simulation {
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

    /// Sets few attempts and fast ageing for all kinds, a low concurrency and a rate limit for one,
    /// keeps the done jobs of the other, and sets a schedule for each.
    fn set_up(&self) {
        for (number, kind) in kinds().into_iter().enumerate() {
            let mut settings = Settings::default();
            settings.lease = Duration::from_secs(2);
            settings.max_attempts = self.random(|random| 1 + random.below(4) as u32);
            settings.concurrency = (number == 0).then_some(2);
            let ageing = self.random(|random| *random.pick(&[None, Some(1), Some(10)]));
            settings.ageing = ageing.map(Duration::from_secs);
            let per = Duration::from_secs(1);
            let rate = self.random(|random| {
                *random.pick(&[(1, None), (3, Some(2)), (20, Some(5)), (20, None)])
            });
            settings.rate = (number == 0).then_some(Rate { jobs: rate.0, per, burst: rate.1 });
            let kept = Retention { age: Duration::from_secs(3600), count: 1000 };
            settings.keep_done = (number == 1).then_some(kept);
            settings.backoff = Backoff {
                base: Duration::from_secs(1),
                max: Duration::from_secs(4),
                jitter_percent: 20,
            };
            block_on(self.store.set(kind.clone(), settings)).expect("there are no faults yet");
            let schedule = Schedule {
                id: JobId::new("a").expect("a valid id"),
                when: String::new(),
                time_zone: String::new(),
                content: Content::default(),
                missed: Missed::One,
                next: self.fixture.now().saturating_add(Duration::from_secs(5)),
            };
            block_on(self.store.set_schedule(kind, schedule, ScheduleCondition::Always))
                .expect("there are no faults yet");
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

    /// Runs the tasks with faults and crashes, while time passes in small and large steps.
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

    /// Runs the tasks without faults until all jobs are done, or for [`QUIET_SECONDS`].
    fn finish(&self, tasks: &mut Tasks<'_>, recorder: &Recorder) {
        self.store.heal();
        self.quiet.set(true);
        tasks.kill("operator");
        for kind in kinds() {
            let mut settings =
                block_on(self.store.settings(kind.clone())).expect("there are no more faults");
            settings.paused = false;
            block_on(self.store.set(kind, settings)).expect("there are no more faults");
        }
        for _ in 0..QUIET_SECONDS {
            while self.step(tasks) {}
            recorder.audit(&kinds());
            let is_left = |view: &KindView| view.counts.pending + view.counts.leased > 0;
            if !block_on(self.store.kinds()).expect("there are no more faults").iter().any(is_left)
            {
                return;
            }
            self.advance(Duration::from_secs(1));
        }
    }
}
