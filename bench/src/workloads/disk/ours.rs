//! requeue's store, called directly: one call per group, without a handle.

use super::job::{Job, Jobs};
use super::{BATCH, Queue};
use requeue_disk::{DiskStore, Options};
use requeue_jobs::{
    Body, Claim, Due, JobId, Kind, Put, Settle, Settlement, Store, WallClock, WorkerName,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

fn store(dir: &Path, wall_clock: WallClock) -> Arc<dyn Store> {
    let mut options = Options::default();
    options.wall_clock = wall_clock;
    Arc::new(DiskStore::open_with(dir, options).expect("the directory can be opened"))
}

pub(super) struct Ours {
    pub(super) store: Arc<dyn Store>,
    runtime: tokio::runtime::Runtime,
    kind: Kind,
    worker: WorkerName,
    claims: u64,
}

impl Ours {
    pub(super) fn open(dir: &Path) -> Self {
        Ours::on(dir, WallClock::system())
    }

    pub(super) fn on(dir: &Path, wall_clock: WallClock) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Ours {
            store: store(dir, wall_clock),
            runtime: runtime.expect("a runtime without threads or sockets starts"),
            kind: Kind::new("bench").expect("a short name"),
            worker: WorkerName::new("bench").expect("a short name"),
            claims: 0,
        }
    }

    /// Opens a store with this many jobs that are due tomorrow. It is filled now if it is empty.
    pub(super) fn with_pending(dir: &Path, pending: usize) -> Self {
        let mut ours = Ours::open(dir);
        if ours.pending() == 0 {
            ours.fill(Jobs::due_tomorrow(), pending);
        }
        ours
    }

    /// Returns the number of pending jobs.
    pub(super) fn pending(&self) -> usize {
        let kinds = self.runtime.block_on(self.store.kinds()).expect("the store responds");
        kinds.iter().map(|kind| kind.counts.pending as usize).sum()
    }

    /// Makes a put of a job.
    pub(super) fn put_of(&self, job: &Job) -> Put {
        let id = JobId::new(job.id.as_str()).expect("a short id");
        let body = Body::octets(job.body).expect("a small body");
        let mut put = Put::new(self.kind.clone(), id, body);
        put.due = if job.delay.is_zero() { Due::Now } else { Due::After(job.delay) };
        put
    }

    /// Claims at most this many due jobs and acks them. Returns their number.
    pub(super) fn work(&mut self, max: usize) -> usize {
        self.claims += 1;
        let (kinds, worker) = (vec![self.kind.clone()], self.worker.clone());
        let claim = Claim { kinds, max, lease: Some(LEASE), worker, nonce: self.claims };
        let claimed = self.runtime.block_on(self.store.claim(claim)).expect("the store responds");
        let ack = |receipt| Settle { receipt, action: Settlement::Ack };
        let acks: Vec<Settle> = claimed.jobs.into_iter().map(|job| ack(job.receipt)).collect();
        if acks.is_empty() {
            return 0;
        }
        let acked = self.runtime.block_on(self.store.settle(acks)).expect("the store responds");
        assert!(acked.iter().all(Result::is_ok), "an ack failed: {acked:?}");
        acked.len()
    }
}

impl Queue for Ours {
    fn put(&mut self, jobs: &[Job]) {
        let puts = jobs.iter().map(|job| self.put_of(job)).collect();
        let placed = self.runtime.block_on(self.store.put(puts)).expect("the store responds");
        assert!(placed.iter().all(Result::is_ok), "a put failed: {placed:?}");
    }

    fn work_off(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let done = self.work(left.min(BATCH));
            assert!(done > 0, "{left} of {count} jobs are due and were not claimed");
            left -= done;
        }
    }
}
