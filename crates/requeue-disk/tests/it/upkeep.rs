//! Work in the background: what fails is reported, and nothing that it needs is without limit.

use crate::support::forwarding::forward_disk;
use crate::support::{simulated_disk::SimulatedDisk, small, wait_until};
use requeue::ManualClock;
use requeue_disk::{Disk, DiskFile, DiskStore, Options, RESERVED_FILES};
use requeue_jobs::*;
use requeue_testkit::block_on;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens when a thread of the store creates a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Creating {
    Works,
    Fails,
    Panics,
}

/// A disk that counts its open files, and on which one thread may fail to create files.
#[derive(Clone)]
struct CountingDisk {
    disk: SimulatedDisk,
    creating: Arc<Mutex<(&'static str, Creating)>>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct CountedFile {
    file: Option<Arc<dyn DiskFile>>,
    open: Arc<AtomicUsize>,
}

impl CountingDisk {
    fn new() -> Self {
        CountingDisk {
            disk: SimulatedDisk::new(),
            creating: Arc::new(Mutex::new(("", Creating::Works))),
            open: Arc::default(),
            most: Arc::default(),
        }
    }

    fn set(&self, thread_name: &'static str, creating: Creating) {
        *self.creating.lock().expect("the lock is not poisoned") = (thread_name, creating);
    }

    fn counted(&self, file: Option<Arc<dyn DiskFile>>) -> CountedFile {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        CountedFile { file, open: self.open.clone() }
    }

    fn tables(&self) -> usize {
        self.disk.names().unwrap().iter().filter(|name| name.starts_with("table-")).count()
    }
}

impl Disk for CountingDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (thread_name, creating) = *self.creating.lock().expect("the lock is not poisoned");
        if thread::current().name() == Some(thread_name) {
            match creating {
                Creating::Works => {}
                Creating::Fails => return Err(io::Error::other("a fault of the disk")),
                Creating::Panics => panic!("a bug of the disk"),
            }
        }
        Ok(Arc::new(self.counted(Some(self.disk.create(name)?))))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.counted(Some(self.disk.open(name)?))))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let _directory = self.counted(None);
        self.disk.names()
    }

    fn sync_names(&self) -> io::Result<()> {
        let _directory = self.counted(None);
        self.disk.sync_names()
    }

    forward_disk!(rename remove free);
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CountedFile {
    fn file(&self) -> &dyn DiskFile {
        &**self.file.as_ref().expect("it is no directory")
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file().read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file().write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file().sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file().size()
    }
}

fn options() -> Options {
    let clock = WallClock::manual(&ManualClock::new(), Timestamp::from_millis(1_700_000_000_000));
    let mut options = small(&clock);
    options.background = true;
    options
}

fn open(disk: &CountingDisk) -> DiskStore {
    DiskStore::open_on(Arc::new(disk.clone()), options()).expect("it opens")
}

fn put(store: &DiskStore, number: usize) -> Result<(), StoreError> {
    let (kind, id) = (Kind::new("mail").unwrap(), JobId::new(number.to_string()).unwrap());
    let mut put = Put::new(kind, id, Body::octets(vec![1; 300]).unwrap());
    put.due = Due::After(Duration::from_secs(60));
    block_on(store.put(vec![put])).map(drop)
}

fn problem(store: &DiskStore, name: &str) -> Option<StoreProblem> {
    store.status().problems.into_iter().find(|problem| problem.name == name)
}

fn metric(store: &DiskStore, name: &str) -> f64 {
    let metrics = store.status().metrics;
    metrics.iter().find(|metric| metric.name == name).expect("a metric of this name").value
}

#[test]
fn a_merge_that_fails_or_panics_is_reported_and_tried_again() {
    for creating in [Creating::Fails, Creating::Panics] {
        let disk = CountingDisk::new();
        let store = open(&disk);
        disk.set("requeue-merge", creating);
        let mut jobs = 0;
        while problem(&store, "merge_failed").is_none() {
            put(&store, jobs).expect("merging may wait");
            jobs += 1;
            assert!(jobs < 10_000, "{creating:?} is reported");
        }
        let detail = problem(&store, "merge_failed").unwrap().detail;
        let why = match creating {
            Creating::Panics => "it panicked: a bug of the disk",
            _ => "create table-",
        };
        assert!(detail.contains(why), "{detail}");
        assert_eq!(metric(&store, "disk_merges_total"), 0.0);
        // Again and again, without a call, but not without a pause.
        let failures = || metric(&store, "disk_upkeep_failures_total");
        let first = failures();
        wait_until(|| failures() > first);
        disk.set("", Creating::Works);
        wait_until(|| store.status().problems.is_empty());
        assert!(metric(&store, "disk_merges_total") > 0.0);
        store.check();
    }
}

#[test]
fn a_flush_that_panics_is_reported_and_tried_again() {
    let disk = CountingDisk::new();
    let store = open(&disk);
    disk.set("requeue-flush", Creating::Panics);
    let refused = (0..10_000).map_while(|job| put(&store, job).ok()).count();
    assert!(refused < 10_000);
    let detail = problem(&store, "flush_failed").expect("it is reported").detail;
    assert!(detail.contains("the flush panicked: a bug of the disk"), "{detail}");
    disk.set("", Creating::Works);
    wait_until(|| store.status().problems.is_empty());
    put(&store, 10_000).expect("nothing is wrong any more");
    store.check();
}

#[test]
fn tables_that_cannot_be_merged_do_not_grow_without_limit() {
    let disk = CountingDisk::new();
    let store = open(&disk);
    disk.set("requeue-merge", Creating::Fails);
    let mut jobs = 0;
    let error = loop {
        match put(&store, jobs) {
            Ok(()) => jobs += 1,
            Err(error) => break error,
        }
        assert!(jobs < 100_000, "{} tables", disk.tables());
    };
    let text = error.to_string();
    assert!(text.contains("too many tables") && text.contains("create table-"), "{text}");
    let flushes = metric(&store, "disk_flushes_total");
    assert!((128.0..160.0).contains(&flushes), "{flushes} flushes");
    disk.set("", Creating::Works);
    wait_until(|| put(&store, jobs).is_ok());
    wait_until(|| store.status().problems.is_empty());
    store.check();
}

#[test]
fn a_store_has_few_files_open_however_many_it_has() {
    let disk = CountingDisk::new();
    let store = open(&disk);
    disk.set("requeue-merge", Creating::Fails);
    for job in 0..700 {
        put(&store, job).expect("merging may wait");
    }
    wait_until(|| disk.tables() > 3 * RESERVED_FILES);
    let read_all = |store: &DiskStore| {
        let query = Query { limit: 1000, ..Query::new(Kind::new("mail").unwrap()) };
        assert_eq!(block_on(store.list(query)).unwrap().jobs.len(), 700);
        for job in (0..700).step_by(7) {
            let id = JobId::new(job.to_string()).unwrap();
            assert!(block_on(store.get(Kind::new("mail").unwrap(), id)).unwrap().is_some());
        }
    };
    read_all(&store);
    drop(store);
    assert_eq!(disk.open.load(Ordering::SeqCst), 0);
    let store = open(&disk);
    read_all(&store);
    // Tables are merged, while the log grows because nothing can be flushed.
    let kind = Kind::new("now").unwrap();
    let now = Put::new(kind.clone(), JobId::new("now").unwrap(), Body::default());
    block_on(store.put(vec![now])).unwrap();
    disk.set("requeue-flush", Creating::Fails);
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: vec![kind], max: 1, lease: None, worker, nonce: 7 };
    let job = block_on(store.claim(claim)).unwrap().jobs.remove(0);
    while metric(&store, "disk_log_segments") < 2.0 * RESERVED_FILES as f64 {
        let extend = Settlement::Extend(None);
        let settle = Settle { receipt: job.receipt.clone(), action: extend };
        block_on(store.settle(vec![settle; 20])).unwrap();
    }
    store.backup_on(&SimulatedDisk::new(), |_| ()).unwrap();
    drop(store);
    disk.set("", Creating::Works);
    let store = open(&disk);
    read_all(&store);
    drop(store);
    let most = disk.most.load(Ordering::SeqCst);
    println!("{most} open files");
    assert!(most <= RESERVED_FILES, "{most} open files");
}

/// A reader may have a version of the tables for a long time: their files are removed afterwards.
#[test]
fn tables_of_a_running_backup_stay_readable_after_they_are_merged() {
    let disk = CountingDisk::new();
    let store = open(&disk);
    (0..300).for_each(|job| put(&store, job).unwrap());
    let to = SimulatedDisk::new();
    let mut jobs = 300;
    store
        .backup_on(&to, |_| {
            // Enough for several flushes and merges.
            let flushes = metric(&store, "disk_flushes_total");
            while jobs < 3000 && metric(&store, "disk_flushes_total") < flushes + 20.0 {
                put(&store, jobs).unwrap();
                jobs += 1;
            }
        })
        .expect("all files can be read");
    let copy = DiskStore::open_on(Arc::new(to), options()).unwrap();
    copy.check();
    let kinds = block_on(copy.kinds()).unwrap();
    assert!(kinds[0].counts.pending >= 300);
    // Nothing is left behind.
    wait_until(|| disk.tables() as f64 <= 3.0 * metric(&store, "disk_tables"));
    store.check();
}
