//! requeue's store on Postgres, with the worker of `requeue-jobs`.

use super::commands::{Handler, Queue};
use super::connection::connect;
use super::job::Job;
use requeue_jobs::{JobWorker, Jobs, RunningJobs, Timestamp};
use requeue_postgres::{Options, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::Client;

const KIND: &str = "bench";
/// How long running jobs may take at the end.
const GRACE: Duration = Duration::from_secs(10);

/// Jobs that are due within a day, in an hour at the earliest. As many rows as puts would make.
const FILL: &str = "select 1 from generate_series(0, ($1::bigint - 1) / 10000) batch
    cross join lateral (select count(*) from requeue._put(null, requeue._kind_id('bench'),
      array(select 'later-' || batch * 10000 + n from generate_series(1, least(10000, $1 - batch * 10000)) n),
      array(select convert_to(repeat('x', 100), 'UTF8') from generate_series(1, least(10000, $1 - batch * 10000))), null,
      array(select 3600000 + (random() * 86400000)::bigint from generate_series(1, least(10000, $1 - batch * 10000))),
      null, null, null, null, null, null)) made";

pub(super) struct Requeue {
    /// Two stores with connections of their own, as in two processes: one puts, the other works.
    jobs: Jobs,
    worker_jobs: Jobs,
    sql: Client,
    next_id: AtomicU64,
    worker: Option<RunningJobs>,
}

impl Requeue {
    /// Creates the tables. Without `listen`, other processes are not notified, and not heard.
    pub(super) async fn open(url: String, listen: bool) -> Self {
        let mut options = Options::default();
        options.listen = listen;
        let mut opened = Vec::new();
        for _ in 0..2 {
            let store = PostgresStore::connect_with(&url, options.clone()).await;
            opened.push(Jobs::new(Arc::new(store.expect("the server is up"))));
        }
        let (sql, next_id) = (connect(&url).await, AtomicU64::new(1));
        let (jobs, worker_jobs) = (opened.remove(0), opened.remove(0));
        Requeue { jobs, worker_jobs, sql, next_id, worker: None }
    }
}

impl Queue for Requeue {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    async fn insert(&self, jobs: &[Job]) {
        let put = |job: &Job| {
            let number = self.next_id.fetch_add(1, Ordering::Relaxed);
            let put = self.jobs.put(KIND, &format!("order-{number:09}"), &job.body);
            match job.due_ms {
                Some(due) => put.at(Timestamp::from_millis(due)),
                None => put,
            }
        };
        self.jobs.put_all(jobs.iter().map(put)).await.expect("the server responds");
    }

    async fn fill(&self, count: usize) {
        self.sql.query(FILL, &[&(count as i64)]).await.expect("the server responds");
    }

    async fn start(&mut self, workers: usize, handler: Handler) {
        let worker = JobWorker::new(&self.worker_jobs, [KIND], "bench").expect("short names");
        self.worker = Some(worker.concurrency(workers).spawn(move |run| {
            handler(str::from_utf8(run.job.body().bytes()).expect("it was put as text"));
            async { Ok(()) }
        }));
    }

    async fn stop(&mut self) {
        let worker = self.worker.take().expect("a worker runs");
        let left = worker.shut_down(GRACE).await;
        assert!(left.is_empty(), "still working on {left:?}");
    }
}
