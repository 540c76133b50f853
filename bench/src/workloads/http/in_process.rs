//! requeue's store without a server: the difference is the cost of HTTP. It is called as the server calls
//! it, from as many threads as there are connections.

use super::job::Job;
use super::load::Caller;
use requeue_disk::DiskStore;
use requeue_jobs::{
    Body, Claim, Due, JobId, Jobs, Kind, Put, Settle, Settlement, Store, WorkerName,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(60);

pub(super) fn open(dir: &Path) -> Jobs {
    let store = DiskStore::open(dir).expect("the directory can be opened");
    Jobs::new(Arc::new(store) as Arc<dyn Store>)
}

pub(super) struct InProcess {
    jobs: Jobs,
    runtime: Runtime,
    kind: Kind,
    worker: WorkerName,
    content_type: Arc<str>,
    nonce: u64,
}

impl InProcess {
    pub(super) fn new(jobs: &Jobs, number: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        InProcess {
            jobs: jobs.clone(),
            runtime: runtime.expect("a runtime without threads or sockets starts"),
            kind: Kind::new("bench").expect("a short name"),
            worker: WorkerName::new("bench").expect("a short name"),
            content_type: "text/plain; charset=utf-8".into(),
            nonce: (number as u64) << 32,
        }
    }

    fn put_of(&self, job: &Job) -> Put {
        let id = JobId::new(job.id.as_str()).expect("a short id");
        let body = Body::new(job.body.as_bytes(), Arc::clone(&self.content_type));
        let mut put = Put::new(self.kind.clone(), id, body.expect("a small body"));
        if job.delay > 0 {
            put.due = Due::After(Duration::from_secs(job.delay));
        }
        put
    }
}

impl Caller for InProcess {
    fn put(&mut self, jobs: &[Job]) {
        if let [job] = jobs {
            let placed = self.runtime.block_on(self.jobs.place(self.put_of(job)));
            placed.expect("the store accepts the job");
            return;
        }
        let puts = jobs.iter().map(|job| self.put_of(job)).collect();
        let placed =
            self.runtime.block_on(self.jobs.store().put(puts)).expect("the store responds");
        assert!(placed.iter().all(Result::is_ok), "a put failed: {placed:?}");
    }

    fn work_off(&mut self, count: usize) {
        self.nonce += 1;
        let (kinds, worker) = (vec![self.kind.clone()], self.worker.clone());
        let claim = Claim { kinds, max: count, lease: Some(LEASE), worker, nonce: self.nonce };
        let claimed = self.runtime.block_on(self.jobs.store().claim(claim));
        let claimed = claimed.expect("the store responds").jobs;
        assert_eq!(claimed.len(), count, "as many are due, and were not claimed");
        let ack = |receipt| Settle { receipt, action: Settlement::Ack };
        let acks = claimed.into_iter().map(|job| ack(job.receipt)).collect();
        let acked = self.runtime.block_on(self.jobs.store().settle(acks));
        let acked = acked.expect("the store responds");
        assert!(acked.iter().all(Result::is_ok), "an ack failed: {acked:?}");
    }
}
