//! Segments of the log are created by a thread of their own, ahead of need.

use crate::support::forwarding::forward_disk;
use crate::support::simulated_disk::SimulatedDisk;
use crate::support::workload::{clock_at, id, kinds};
use crate::support::{small, wait_until};
use requeue_disk::{Disk, DiskFile, DiskStore};
use requeue_jobs::{Body, Put, Store, StoreFuture, Timestamp};
use requeue_testkit::block_on;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// A disk that counts which thread creates segments, and on which that can be blocked.
#[derive(Clone, Default)]
struct SpareDisk {
    disk: SimulatedDisk,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    shut: bool,
    /// Whether somebody waits.
    waits: bool,
    created: BTreeMap<String, usize>,
}

impl SpareDisk {
    fn set_shut(&self, shut: bool) {
        self.state.0.lock().unwrap().shut = shut;
        self.state.1.notify_all();
    }

    fn wait_until_somebody_waits(&self) {
        let state = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(state, |state| !state.waits).unwrap());
    }

    fn created_by(&self, thread: &str) -> usize {
        self.state.0.lock().unwrap().created.get(thread).copied().unwrap_or(0)
    }

    fn spares(&self) -> usize {
        let names = self.disk.names().unwrap();
        names.iter().filter(|name| name.starts_with("spare-")).count()
    }

    fn open(&self) -> DiskStore {
        let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
        let mut options = small(&wall_clock);
        (options.memory, options.background) = (64 << 10, true);
        DiskStore::open_on(Arc::new(self.clone()), options).unwrap()
    }
}

impl Disk for SpareDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if name.starts_with("spare-") {
            let thread = thread::current().name().unwrap_or_default().to_owned();
            let mut state = self.state.0.lock().unwrap();
            *state.created.entry(thread).or_default() += 1;
            state.waits = state.shut;
            self.state.1.notify_all();
            drop(self.state.1.wait_while(state, |state| state.shut).unwrap());
        }
        self.disk.create(name)
    }

    forward_disk!(open rename remove names sync_names free);
}

/// Also if the test fails: a store whose disk is blocked cannot be closed.
struct LetGo(SpareDisk);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.set_shut(false);
    }
}

fn put(
    store: &DiskStore,
    number: usize,
) -> StoreFuture<'_, requeue_jobs::BatchResults<requeue_jobs::Placed, requeue_jobs::PutError>> {
    let body = Body::octets(vec![7; 300]).unwrap();
    store.put(vec![Put::new(kinds().remove(0), id(format!("job-{number}")), body)])
}

#[test]
fn the_writer_creates_no_segment() {
    let disk = SpareDisk::default();
    let store = disk.open();
    for number in 0..2000 {
        block_on(put(&store, number % 500)).unwrap().remove(0).unwrap();
    }
    drop(store);
    let segments = disk.created_by("requeue-spares");
    println!("{segments} segments");
    assert!(segments >= 3);
    assert_eq!(disk.created_by("requeue-write"), 0);
    assert_eq!(disk.created_by("requeue-flush"), 0, "it may be busy with a flush");
}

#[test]
fn puts_go_on_while_a_segment_is_created_and_reads_while_a_put_waits_for_it() {
    let disk = SpareDisk::default();
    let store = disk.open();
    let mut next = 0;
    block_on(put(&store, next)).unwrap();
    // Two are the reserve, and one is for the next puts.
    wait_until(|| disk.spares() >= 3);
    disk.set_shut(true);
    let _let_go = LetGo(disk.clone());
    let mut context = Context::from_waker(Waker::noop());
    while disk.spares() == 3 {
        next += 1;
        block_on(put(&store, next)).unwrap().remove(0).unwrap();
    }
    // The last spare besides the reserve was taken, and another is being created.
    disk.wait_until_somebody_waits();
    for _ in 0..10 {
        next += 1;
        block_on(put(&store, next)).unwrap().remove(0).unwrap();
    }
    // It reads all the time, also while a group is synced.
    let reader = store.clone();
    let (sender, receiver) = mpsc::channel();
    let reads = thread::spawn(move || {
        let read = || block_on(reader.get(kinds().remove(0), id("job-1"))).unwrap().is_some();
        while sender.send(read()).is_ok() {}
    });
    // These do not all fit: the last of them wait for a segment. The first may be done already.
    let mut waiting: Vec<_> = (1..=40).map(|more| put(&store, next + more)).collect();
    waiting.retain_mut(|put| match put.as_mut().poll(&mut context) {
        Poll::Pending => true,
        Poll::Ready(done) => {
            done.unwrap().remove(0).unwrap();
            false
        }
    });
    assert!(!waiting.is_empty(), "no put waits for a segment");
    receiver.try_iter().for_each(drop);
    for _ in 0..200 {
        assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(true), "a read waits");
    }
    drop(receiver);
    reads.join().unwrap();
    disk.set_shut(false);
    for put in waiting {
        block_on(put).unwrap().remove(0).unwrap();
    }
}
