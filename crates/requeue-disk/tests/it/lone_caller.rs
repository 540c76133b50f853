//! A caller that is alone runs its operations on its own thread.
//!
//! When it does so depends on how fast the disk is, so these tests put jobs until it happens.

use crate::support::PATIENCE;
use crate::support::forwarding::{forward_disk, forward_file};
use crate::support::simulated_disk::SimulatedDisk;
use requeue::ManualClock;
use requeue_disk::{Disk, DiskFile, DiskStore, Options};
use requeue_jobs::{
    BatchResults, Body, JobId, Kind, Placed, Put, PutError, Store, StoreError, Timestamp, WallClock,
};
use requeue_testkit::block_on;
use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// A disk that knows which thread synced last, and can do something to the syncs of one thread.
#[derive(Clone)]
struct WatchedDisk {
    disk: SimulatedDisk,
    watch: Arc<(Mutex<Watch>, Condvar)>,
}

#[derive(Default)]
struct Watch {
    synced_by: Option<ThreadId>,
    /// The thread whose syncs stall, and whether one does.
    stalls: Option<ThreadId>,
    has_stalled: bool,
    /// The thread whose next sync panics.
    panics: Option<ThreadId>,
}

struct WatchedFile {
    file: Arc<dyn DiskFile>,
    watch: Arc<(Mutex<Watch>, Condvar)>,
}

impl WatchedDisk {
    fn new() -> Self {
        WatchedDisk { disk: SimulatedDisk::new(), watch: Arc::default() }
    }

    fn set(&self, set: impl FnOnce(&mut Watch)) {
        set(&mut self.watch.0.lock().unwrap());
        self.watch.1.notify_all();
    }

    fn synced_here(&self) -> bool {
        self.watch.0.lock().unwrap().synced_by == Some(thread::current().id())
    }

    fn open(&self) -> DiskStore {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut options = Options::default();
        options.wall_clock = WallClock::manual(&ManualClock::new(), now);
        (options.segment, options.background) = (256 << 10, false);
        DiskStore::open_on(Arc::new(self.clone()), options).unwrap()
    }
}

impl Disk for WatchedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (file, watch) = (self.disk.create(name)?, self.watch.clone());
        Ok(Arc::new(WatchedFile { file, watch }))
    }

    forward_disk!(open rename remove names sync_names free);
}

impl DiskFile for WatchedFile {
    fn sync(&self) -> io::Result<()> {
        let here = Some(thread::current().id());
        let mut watch = self.watch.0.lock().unwrap();
        if watch.panics == here {
            drop(watch);
            panic!("as the test wants it");
        }
        watch.synced_by = here;
        if watch.stalls == here {
            watch.has_stalled = true;
            self.watch.1.notify_all();
            drop(self.watch.1.wait_while(watch, |watch| watch.stalls == here));
        }
        self.file.sync()
    }

    forward_file!(read_at write_at size);
}

fn put(id: usize) -> Vec<Put> {
    let (kind, id) = (Kind::new("mail").unwrap(), JobId::new(id.to_string()).unwrap());
    vec![Put::new(kind, id, Body::default())]
}

/// Puts jobs until something is so. Returns how many, and the result of the last.
fn put_until(
    store: &DiskStore,
    is_so: impl Fn(&Result<BatchResults<Placed, PutError>, StoreError>) -> bool,
) -> (usize, Result<BatchResults<Placed, PutError>, StoreError>) {
    let begun = Instant::now();
    for count in 1.. {
        let result = block_on(store.put(put(count)));
        if is_so(&result) {
            return (count, result);
        }
        assert!(begun.elapsed() < PATIENCE, "it is so at last");
    }
    unreachable!()
}

fn pending(store: &DiskStore) -> u64 {
    block_on(store.kinds()).unwrap()[0].counts.pending
}

#[test]
fn a_lone_caller_runs_its_operations_itself() {
    let disk = WatchedDisk::new();
    let store = disk.open();
    let (count, _) = put_until(&store, |_| disk.synced_here());
    assert_eq!(pending(&store), count as u64);
    store.check();
    drop(store);
    for seed in 0..10 {
        let after_cut = WatchedDisk { disk: disk.disk.after_cut(seed), ..WatchedDisk::new() };
        assert_eq!(pending(&after_cut.open()), count as u64);
    }
}

#[test]
fn no_poll_blocks_while_a_caller_runs_its_operation() {
    let disk = WatchedDisk::new();
    let store = disk.open();
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            disk.set(|watch| watch.stalls = Some(thread::current().id()));
            put_until(&store, |_| disk.synced_here()).0
        });
        let held = disk.watch.0.lock().unwrap();
        drop(disk.watch.1.wait_while(held, |watch| !watch.has_stalled).unwrap());
        let (polled, is_polled) = mpsc::channel();
        let other = scope.spawn({
            let store = &store;
            move || {
                let mut result = store.put(put(0));
                let poll = result.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                polled.send(poll.is_pending()).unwrap();
                block_on(result).unwrap();
            }
        });
        let in_time = is_polled.recv_timeout(PATIENCE);
        disk.set(|watch| watch.stalls = None);
        assert!(in_time.expect("no poll waits for a caller"), "it takes a sync");
        other.join().unwrap();
        let count = caller.join().unwrap();
        assert_eq!(pending(&store), count as u64 + 1);
    });
}

#[test]
fn if_an_operation_panics_on_its_callers_thread_the_store_ends() {
    let disk = WatchedDisk::new();
    let store = disk.open();
    disk.set(|watch| watch.panics = Some(thread::current().id()));
    let (count, result) = put_until(&store, Result::is_err);
    assert!(matches!(result, Err(StoreError::Unknown { .. })), "{result:?}");
    let refused = block_on(store.put(put(0)));
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    let problems = store.status().problems;
    assert!(problems.iter().any(|problem| problem.name == "writer_stopped"), "{problems:?}");
    drop(store);
    disk.set(|watch| watch.panics = None);
    let found = pending(&disk.open());
    assert!(found == count as u64 || found == count as u64 - 1, "{found} of {count}");
}
