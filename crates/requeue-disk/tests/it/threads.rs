//! The threads of the store, and callers that run concurrently.

use crate::support::forwarding::{forward_disk, forward_file};
use crate::support::{simulated_disk::SimulatedDisk, small};
use requeue::ManualClock;
use requeue_disk::{Disk, DiskFile, DiskStore, Options};
use requeue_jobs::*;
use requeue_testkit::block_on;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

fn wall_clock() -> WallClock {
    WallClock::manual(&ManualClock::new(), Timestamp::from_millis(1_700_000_000_000))
}

fn kind() -> Kind {
    Kind::new("mail").expect("it is valid")
}

fn put(id: usize) -> Vec<Put> {
    let id = JobId::new(id.to_string()).expect("it is valid");
    let mut put = Put::new(kind(), id, Body::octets(vec![1; 100]).expect("it is short"));
    put.due = Due::After(Duration::from_secs(5));
    vec![put]
}

fn claim(max: usize) -> Claim {
    let worker = WorkerName::new("w").expect("it is valid");
    Claim { kinds: vec![kind()], max, lease: None, worker, nonce: 7 }
}

#[test]
fn a_claim_for_too_many_is_refused_and_does_no_harm() {
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock())).unwrap();
    let error = block_on(store.claim(claim(usize::MAX))).unwrap_err();
    assert!(matches!(error, StoreError::Invalid(Invalid::TooMany { .. })), "{error}");
    let reaped = (block_on(store.reap(1)), block_on(store.reap(usize::MAX)));
    assert_eq!(reaped, (Ok(Reaped::default()), Ok(Reaped::default())));
    assert!(block_on(store.put(put(1))).is_ok());
}

/// A waker that panics.
struct Panics(AtomicBool);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_stops_nobody_else() {
    let store = DiskStore::open_on(Arc::new(SimulatedDisk::new()), small(&wall_clock())).unwrap();
    let panics = Arc::new(Panics(AtomicBool::new(false)));
    let waker = Waker::from(panics.clone());
    for id in 0..1000 {
        let mut answer = store.put(put(id));
        if answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            // When this returns, the one before has a result.
            block_on(store.put(put(id + 1))).unwrap();
        }
        if panics.0.load(Ordering::Relaxed) {
            return assert!(block_on(store.put(put(id))).is_ok());
        }
    }
    panic!("no waker was ever called");
}

/// A disk that stalls merges before they write, which then fail, and flushes after they are synced.
#[derive(Clone)]
struct StallingDisk {
    disk: SimulatedDisk,
    held: Arc<(Mutex<[bool; 2]>, Condvar)>,
}

const MERGE: usize = 0;
const FLUSH: usize = 1;

impl StallingDisk {
    fn hold(&self, which: usize, hold: bool) {
        self.held.0.lock().expect("the lock is not poisoned")[which] = hold;
        self.held.1.notify_all();
    }

    /// Also if the test fails: a store whose disk stalls cannot be closed.
    fn let_go(&self) -> impl Drop + use<> {
        struct LetGo(StallingDisk);
        impl Drop for LetGo {
            fn drop(&mut self) {
                [MERGE, FLUSH].into_iter().for_each(|which| self.0.hold(which, false));
            }
        }
        LetGo(self.clone())
    }

    fn pass(&self, which: usize, thread_name: &str) -> bool {
        let is_it = thread::current().name() == Some(thread_name);
        let held = self.held.0.lock().expect("the lock is not poisoned");
        let was_held = is_it && held[which];
        if was_held {
            drop(self.held.1.wait_while(held, |held| held[which]));
        }
        was_held
    }
}

impl Disk for StallingDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.pass(MERGE, "requeue-merge") {
            true => Err(io::Error::other("it was stalled")),
            false => self.disk.create(name),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.pass(FLUSH, "requeue-flush");
        self.disk.remove(name)
    }

    forward_disk!(open rename names sync_names free);
}

#[test]
fn a_job_that_is_flushed_while_a_merge_ends_counts_once() {
    let disk = StallingDisk { disk: SimulatedDisk::new(), held: Arc::default() };
    disk.hold(MERGE, true);
    let mut options: Options = small(&wall_clock());
    (options.background, options.memory) = (true, 1 << 20);
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let _let_go = disk.let_go();
    let manifests = || disk.disk.names().unwrap().iter().filter(|n| n.starts_with("man")).count();
    let mut jobs = 0;
    let mut upcoming = || {
        block_on(store.put(put(jobs))).unwrap();
        jobs += 1;
        let (from, length) = (Timestamp::from_millis(0), Duration::from_secs(u64::MAX / 2000));
        let counted = block_on(store.upcoming(kind(), Spans { from, length, count: 1 })).unwrap();
        assert_eq!(counted, [jobs as u64]);
    };
    // Enough flushes for a merge, which stalls; then a flush that is synced and stalls before its
    // notice.
    for _ in 0..3000 {
        upcoming();
    }
    disk.hold(FLUSH, true);
    // Two manifests are kept, and the one before them is about to be removed.
    while manifests() < 3 {
        upcoming();
    }
    disk.hold(MERGE, false);
    for _ in 0..1000 {
        upcoming();
    }
    disk.hold(FLUSH, false);
    upcoming();
    store.check();
}

/// A disk that counts the reads of tables by one thread, and stalls them.
#[derive(Clone)]
struct SlowTables {
    disk: SimulatedDisk,
    thread_name: &'static str,
    held: Arc<(Mutex<Held>, Condvar)>,
}

#[derive(Default)]
struct Held {
    /// Whether reads stall, and whether one does.
    hold: bool,
    is_held: bool,
    reads: usize,
}

struct SlowTable {
    file: Arc<dyn DiskFile>,
    thread_name: &'static str,
    held: Arc<(Mutex<Held>, Condvar)>,
}

impl SlowTables {
    fn new(thread_name: &'static str) -> Self {
        SlowTables { disk: SimulatedDisk::new(), thread_name, held: Arc::default() }
    }

    fn reads(&self) -> usize {
        self.held.0.lock().expect("the lock is not poisoned").reads
    }

    fn hold(&self, hold: bool) {
        self.held.0.lock().expect("the lock is not poisoned").hold = hold;
        self.held.1.notify_all();
    }

    /// Waits until a read stalls.
    fn wait_until_held(&self) {
        let held = self.held.0.lock().expect("the lock is not poisoned");
        drop(self.held.1.wait_while(held, |held| !held.is_held));
    }

    fn table(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        match name.starts_with("table-") {
            true => {
                let (thread_name, held) = (self.thread_name, self.held.clone());
                Arc::new(SlowTable { file, thread_name, held })
            }
            false => file,
        }
    }
}

impl Disk for SlowTables {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.table(name, self.disk.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.table(name, self.disk.open(name)?))
    }

    forward_disk!(rename remove names sync_names free);
}

impl DiskFile for SlowTable {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if thread::current().name() == Some(self.thread_name) {
            let mut held = self.held.0.lock().expect("the lock is not poisoned");
            held.reads += 1;
            held.is_held = held.hold;
            self.held.1.notify_all();
            drop(self.held.1.wait_while(held, |held| held.hold));
        }
        self.file.read_at(bytes, offset)
    }

    forward_file!(write_at sync size);
}

#[test]
fn no_poll_blocks_while_the_writer_reads_tables() {
    let disk = SlowTables::new("requeue-write");
    let open = || DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock())).unwrap();
    let store = open();
    (0..100).for_each(|id| drop(block_on(store.put(put(id))).unwrap()));
    drop(store);
    let store = open();
    disk.hold(true);
    // The writer reads tables for this claim, and holds its lock meanwhile.
    let mut claimed = store.claim(claim(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(claimed.as_mut().poll(&mut context).is_pending());
    disk.wait_until_held();
    let (polled, all_polled) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut context = Context::from_waker(Waker::noop());
            let id = JobId::new("7").unwrap();
            assert!(store.get(kind(), id).as_mut().poll(&mut context).is_pending());
            assert!(store.settings(kind()).as_mut().poll(&mut context).is_pending());
            assert!(store.schedules(kind()).as_mut().poll(&mut context).is_pending());
            let _ = store.wait(vec![kind()], Duration::from_secs(60)).as_mut().poll(&mut context);
            polled.send(()).unwrap();
        });
        let in_time = all_polled.recv_timeout(Duration::from_secs(60));
        disk.hold(false);
        in_time.expect("no poll waits for the writer");
    });
    assert_eq!(block_on(claimed).unwrap().jobs.len(), 0, "none is due");
    let job = block_on(store.get(kind(), JobId::new("7").unwrap())).unwrap();
    assert_eq!(job.map(|job| job.id.to_string()).as_deref(), Some("7"));
}

/// Kinds with ready jobs in tables, on a disk that counts and stalls the reads of `kinds`. The
/// writer has not read them since the store was opened.
fn with_ready_jobs(clock: &ManualClock, kinds: usize, jobs: usize) -> (SlowTables, DiskStore) {
    let disk = SlowTables::new("requeue-scan");
    let wall_clock = WallClock::manual(clock, Timestamp::from_millis(1_700_000_000_000));
    let open = || DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).unwrap();
    let store = open();
    for (job, kind) in (0..jobs).flat_map(|job| (0..kinds).map(move |kind| (job, kind))) {
        let mut put = put(job);
        put[0].kind = Kind::new(format!("kind-{kind}")).unwrap();
        block_on(store.put(put)).unwrap();
    }
    drop(store);
    clock.advance(Duration::from_secs(5));
    let store = open();
    (disk, store)
}

fn ready(kinds: &[KindView]) -> Vec<u64> {
    kinds.iter().map(|kind| kind.counts.ready).collect()
}

#[test]
fn a_put_completes_while_the_counts_of_kinds_are_read_from_tables() {
    let (disk, store) = with_ready_jobs(&ManualClock::new(), 3, 40);
    disk.hold(true);
    let mut kinds = store.kinds();
    assert!(kinds.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    disk.wait_until_held();
    let (done, all_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(store.put(put(1000))).unwrap();
            assert_eq!(block_on(store.claim(claim(1))).unwrap().jobs.len(), 0, "none is due");
            done.send(()).unwrap();
        });
        let in_time = all_done.recv_timeout(Duration::from_secs(60));
        disk.hold(false);
        in_time.expect("no put waits for the counts of kinds");
    });
    assert_eq!(ready(&block_on(kinds).unwrap()), [40; 3]);
}

#[test]
fn ready_jobs_in_tables_are_counted_once() {
    let clock = ManualClock::new();
    let (disk, store) = with_ready_jobs(&clock, 3, 40);
    assert_eq!(ready(&block_on(store.kinds()).unwrap()), [40; 3]);
    let first = disk.reads();
    assert!(first > 0);
    let claim = Claim { kinds: vec![Kind::new("kind-1").unwrap()], ..claim(1) };
    for left in (0..40).rev() {
        assert_eq!(block_on(store.claim(claim.clone())).unwrap().jobs.len(), 1);
        clock.advance(Duration::from_millis(1));
        let kinds = block_on(store.kinds()).unwrap();
        assert_eq!(ready(&kinds), [40, left, 40]);
        assert!(kinds[1].oldest_ready.is_some() == (left > 0));
    }
    assert_eq!(disk.reads(), first, "nothing is read again");
    store.check();
}

#[test]
fn after_a_claim_found_nothing_a_wait_waits() {
    let disk = SimulatedDisk::new();
    let (clock, now) = (ManualClock::new(), Timestamp::from_millis(1_700_000_000_000));
    let wall_clock = WallClock::manual(&clock, now);
    let open = || DiskStore::open_on(Arc::new(disk.clone()), small(&wall_clock)).unwrap();
    (0..100).for_each(|id| drop(block_on(open().put(put(id))).unwrap()));
    let store = open();
    let mut context = Context::from_waker(Waker::noop());
    let limit = Duration::from_secs(60);
    // The tables were not read yet, so the wait ends immediately.
    let mut first = store.wait(vec![kind()], limit);
    assert!(first.as_mut().poll(&mut context).is_ready());
    assert_eq!(block_on(store.claim(claim(1))).unwrap().jobs.len(), 0);
    let mut second = store.wait(vec![kind()], limit);
    assert!(second.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_secs(5));
    assert!(second.as_mut().poll(&mut context).is_ready());
    assert_eq!(block_on(store.claim(claim(1))).unwrap().jobs.len(), 1);
}
