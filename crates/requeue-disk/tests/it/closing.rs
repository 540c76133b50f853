//! Dropping the last handle closes the store, on whatever thread that happens.

use requeue_disk::{DiskError, DiskStore, Options};
use requeue_jobs::{Body, JobId, Jobs, Kind, Put, Store};
use requeue_testkit::block_on;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

fn open(directory: &PathBuf) -> Result<DiskStore, DiskError> {
    let mut options = Options::default();
    options.segment = 64 << 10;
    DiskStore::open_with(directory, options)
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("requeue-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&directory));
    directory
}

#[test]
fn it_can_be_opened_again_as_soon_as_the_last_handle_is_dropped() {
    let directory = directory("closing");
    for round in 0..50 {
        let jobs = Jobs::new(Arc::new(open(&directory).unwrap()));
        let id = format!("job-{round}");
        block_on(async { jobs.put("a", &id, "body").await }).unwrap();
    }
    let jobs = Jobs::new(Arc::new(open(&directory).unwrap()));
    assert_eq!(block_on(jobs.store().kinds()).unwrap()[0].counts.pending, 50);
    drop(jobs);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A waker that drops a handle of the store.
struct LastHandle(Mutex<Option<DiskStore>>);

impl Wake for LastHandle {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("the lock is not poisoned").take());
    }
}

#[test]
fn the_last_handle_may_be_dropped_by_a_thread_of_the_store() {
    let directory = directory("last-handle");
    let store = open(&directory).unwrap();
    let last = Waker::from(Arc::new(LastHandle(Mutex::new(Some(store.clone())))));
    {
        let put = Put::new(Kind::new("a").unwrap(), JobId::new("1").unwrap(), Body::default());
        let mut put = pin!(async move { store.put(vec![put]).await });
        let polled = put.as_mut().poll(&mut Context::from_waker(&last));
        assert!(matches!(polled, Poll::Pending), "it takes a sync");
    }
    drop(last);
    let store = loop {
        match open(&directory) {
            Ok(store) => break store,
            // It is still closing.
            Err(DiskError::InUse { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(block_on(store.kinds()).unwrap()[0].counts.pending, 1);
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}
