//! Disk stores under test, and the disks under them.

pub(crate) mod forge;
pub(crate) mod forwarding;
pub(crate) mod gated_disk;
pub(crate) mod original;
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
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of everything that tests wait for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so, without calling the store: its threads bring it about.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it is so at last");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Seeds, which are printed: `count` of them, or as many as the environment variable `count_in`
/// specifies, or the one in `REQUEUE_SEED`.
pub(crate) fn seeds(count_in: &str, count: u64) -> impl Iterator<Item = u64> {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (seed, asked) = (number("REQUEUE_SEED"), number(count_in));
    // Always the same seeds, unless the variable asks for more: then random ones, to find new bugs.
    let anew = || asked.map_or(1, |_| RandomState::new().hash_one(()) >> 16);
    let first = seed.unwrap_or_else(anew);
    let count = if seed.is_some() { 1 } else { asked.unwrap_or(count) };
    (first..first + count).inspect(|seed| println!("REQUEUE_SEED={seed}"))
}

/// Options so small that a few jobs fill the memory, and a few groups fill a segment.
pub(crate) fn small(wall_clock: &WallClock) -> Options {
    let mut options = Options::default();
    options.wall_clock = wall_clock.clone();
    options.memory = 4 << 10;
    options.segment = 12 << 10;
    options.background = false;
    options
}

/// A store on a simulated disk.
pub(crate) struct DiskFixture {
    store: Arc<dyn Store>,
    now: Box<dyn Fn() -> DiskStore + Send + Sync>,
    wall_clock: WallClock,
    clock: ManualClock,
}

impl DiskFixture {
    /// A store that is opened once.
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

    /// A store that is closed and reopened after every `calls` calls.
    pub(crate) fn reopened_after(calls: usize) -> Self {
        DiskFixture::reopening(calls, |disk| disk)
    }

    /// A store whose power is cut after every `calls` calls.
    pub(crate) fn cut_after(calls: usize) -> Self {
        // Independent of the seed of the test.
        let seed = Mutex::new(0);
        DiskFixture::reopening(calls, move |disk| {
            let mut seed = seed.lock().expect("the lock is not poisoned");
            *seed += 1;
            disk.after_cut(*seed)
        })
    }

    /// `left` returns the disk that is found after the store was closed or the power was cut.
    fn reopening(
        calls: usize,
        left: impl Fn(SimulatedDisk) -> SimulatedDisk + Send + Sync + 'static,
    ) -> Self {
        let (clock, wall_clock) = clock();
        let (options, disk) = (small(&wall_clock), Mutex::new(SimulatedDisk::new()));
        let reopen = move |before: Option<DiskStore>| {
            let mut disk = disk.lock().expect("the lock is not poisoned");
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
