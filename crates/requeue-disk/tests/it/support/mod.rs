//! Disk stores under test, and the disks under them.

pub(crate) mod format_reader;
pub(crate) mod gated_disk;
pub(crate) mod recording_disk;
pub(crate) mod reopening_store;
pub(crate) mod sample_data;
pub(crate) mod simulated_disk;
pub(crate) mod workload;

use reopening_store::ReopeningStore;
use requeue::ManualClock;
use requeue_disk::{DiskStore, Options};
use requeue_jobs::{Store, Timestamp, WallClock};
use requeue_testkit::Fixture;
use simulated_disk::SimulatedDisk;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Random seeds, printed: so many, or as many as the variable says, or the one of `REQUEUE_SEED`.
pub(crate) fn seeds(count_in: &str, count: u64) -> impl Iterator<Item = u64> {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (seed, asked) = (number("REQUEUE_SEED"), number(count_in));
    // Always the same ones, unless more are asked for: that is the soak, which looks for new ones.
    let anew = || asked.map_or(1, |_| RandomState::new().hash_one(()) >> 16);
    let first = seed.unwrap_or_else(anew);
    let count = if seed.is_some() { 1 } else { asked.unwrap_or(count) };
    (first..first + count).inspect(|seed| println!("REQUEUE_SEED={seed}"))
}

/// So small that a few jobs fill the memory, and a few groups a segment.
pub(crate) fn small(wall_clock: &WallClock) -> Options {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    options.memory = 4 << 10;
    options.segment = 8 << 10;
    options.background = false;
    options
}

/// A store on a disk that is memory.
pub(crate) struct DiskFixture {
    store: Arc<dyn Store>,
    now: Box<dyn Fn() -> DiskStore + Send + Sync>,
    wall_clock: WallClock,
    clock: ManualClock,
}

impl DiskFixture {
    /// Opened once.
    pub(crate) fn new() -> Self {
        let (clock, wall_clock) = clock();
        let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock));
        let store = store.expect("it opens");
        let now = Box::new({
            let store = store.clone();
            move || store.clone()
        });
        DiskFixture { store: Arc::new(store), now, wall_clock, clock }
    }

    /// Closed and opened again after every so many calls.
    pub(crate) fn reopened_after(calls: usize) -> Self {
        DiskFixture::reopening(calls, |disk| disk)
    }

    /// The power is cut after every so many calls.
    pub(crate) fn cut_after(calls: usize) -> Self {
        // Not the seed of the test: which cut shows something, that does not tell either.
        let seed = Mutex::new(0);
        DiskFixture::reopening(calls, move |disk| {
            let mut seed = seed.lock().expect("nobody panics");
            *seed += 1;
            disk.after_cut(*seed)
        })
    }

    /// `left` says what is left of a disk with an open store on it.
    fn reopening(
        calls: usize,
        left: impl Fn(SimulatedDisk) -> SimulatedDisk + Send + Sync + 'static,
    ) -> Self {
        let (clock, wall_clock) = clock();
        let (options, disk) = (small(&wall_clock), Mutex::new(SimulatedDisk::new()));
        let reopen = move |before: Option<DiskStore>| {
            let mut disk = disk.lock().expect("nobody panics");
            *disk = left(disk.clone());
            drop(before);
            let disk = Arc::new(disk.clone());
            DiskStore::open_on(disk, options.clone()).expect("nothing is damaged")
        };
        let store = Arc::new(ReopeningStore::new(Box::new(reopen), calls));
        let now = Box::new({
            let store = store.clone();
            move || store.now()
        });
        DiskFixture { store, now, wall_clock, clock }
    }
}

fn clock() -> (ManualClock, WallClock) {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    (clock, wall_clock)
}

impl Fixture for DiskFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn check(&self) {
        (self.now)().check();
    }
}
