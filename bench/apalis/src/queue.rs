//! The commands for apalis.

use crate::job::{self, Job};
use apalis::prelude::*;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use futures::stream;
use redis::AsyncCommands;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// How often an idle worker looks for jobs: it is not notified. Its times are
/// in whole seconds.
const INTERVAL: Duration = Duration::from_millis(100);
/// The number of jobs per batch of puts.
const BATCH: usize = 1000;

pub(crate) struct Queue {
    connection: ConnectionManager,
    config: Config,
    made: u32,
    workers: usize,
    processed: usize,
}

type Storage = RedisStorage<String>;
/// The delay of the start of each job, in microseconds.
type Begun = mpsc::UnboundedSender<i64>;

struct Running {
    stop: Arc<Notify>,
    ended: JoinHandle<Result<(), WorkerError>>,
}

impl Queue {
    pub(crate) async fn connect(url: &str, locked: bool) -> Self {
        let connection = apalis_redis::connect(url).await.expect("the server listens");
        // Fetches as many at a time as its own tests do. Events have no listener.
        let config = Config::default().queue("bench").batch_size(100).emit_events(false);
        let config = config.lock_tasks(locked);
        Queue { connection, config, made: 0, workers: 0, processed: 0 }
    }

    fn storage(&self) -> Storage {
        RedisStorage::new(self.connection.clone()).with_config(self.config.clone())
    }

    fn make_up(&mut self, count: usize, delay: Duration) -> Vec<Task<String>> {
        let jobs = job::make_up(&mut self.made, count);
        jobs.into_iter().map(|job| task(job).run_after(delay).build()).collect()
    }

    pub(crate) async fn bulk(&mut self, count: usize, delay: Duration) -> Duration {
        let mut tasks = self.make_up(count, delay).into_iter();
        let mut storage = self.storage();
        let started = Instant::now();
        for _ in (0..count).step_by(BATCH) {
            let some = stream::iter(tasks.by_ref().take(BATCH));
            storage.push_all(some).await.expect("the server takes them");
        }
        started.elapsed()
    }

    pub(crate) async fn put(&mut self, callers: usize, count: usize, delay: Duration) -> Duration {
        let mut shares: Vec<Vec<_>> = (0..callers).map(|_| Vec::new()).collect();
        for (i, task) in self.make_up(count, delay).into_iter().enumerate() {
            shares[i % callers].push(task);
        }
        let started = Instant::now();
        let callers: Vec<_> = shares
            .into_iter()
            .map(|share| {
                let mut storage = self.storage();
                tokio::spawn(async move {
                    for task in share {
                        storage.push_task(task).await.expect("the server takes it");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        started.elapsed()
    }

    /// Starts a worker, which reports the delay of the start of each job. Returns a way to stop it.
    fn work(&mut self, concurrency: usize, begun: Begun) -> Running {
        self.workers += 1;
        let worker = WorkerBuilder::new(format!("bench-{}", self.workers))
            .backend(self.storage().poll_with_interval(INTERVAL))
            .data(begun)
            .concurrency(concurrency)
            .parallelize(tokio::spawn)
            .build(handle);
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let running = worker.run_until(async move {
            stopped.notified().await;
            Ok::<_, io::Error>(())
        });
        Running { stop, ended: tokio::spawn(running) }
    }

    pub(crate) async fn process(&mut self, concurrency: usize, count: usize) -> Duration {
        let (begun, mut jobs) = mpsc::unbounded_channel();
        let started = Instant::now();
        let worker = self.work(concurrency, begun);
        for _ in 0..count {
            jobs.recv().await.expect("the worker runs");
        }
        // Completed jobs stay in a set.
        self.processed += count;
        let done = self.config.done_jobs_set();
        while self.connection.scard::<_, usize>(&done).await.expect("Redis responds")
            < self.processed
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let elapsed = started.elapsed();
        worker.stop.notify_one();
        worker.ended.await.expect("the worker does not panic").expect("the worker ends");
        elapsed
    }

    /// The delay of the start of each job, in microseconds.
    pub(crate) async fn late(
        &mut self,
        concurrency: usize,
        count: usize,
        lead: Duration,
        spread: Duration,
    ) -> Vec<i64> {
        let (begun, mut jobs) = mpsc::unbounded_channel();
        self.work(concurrency, begun);
        let due = job::due_times(count, lead, spread);
        let tasks = job::make_up_due(&mut self.made, &due).into_iter().zip(&due);
        let at = |&due| UNIX_EPOCH + Duration::from_millis(due);
        let tasks: Vec<_> =
            tasks.map(|(job, due)| task(job).run_at_time(at(due)).build()).collect();
        self.storage().push_all(stream::iter(tasks)).await.expect("the server takes them");
        let mut late = Vec::with_capacity(count);
        for _ in 0..count {
            late.push(jobs.recv().await.expect("the worker runs"));
        }
        late
    }

    pub(crate) async fn wait(&mut self, workers: usize) {
        let (begun, _) = mpsc::unbounded_channel();
        for _ in 0..workers {
            self.work(1, begun.clone());
        }
    }
}

fn task(Job { id, body }: Job) -> TaskBuilder<String> {
    TaskBuilder::new(body).task_id(TaskId::from_string(id))
}

async fn handle(body: String, begun: Data<Begun>) -> Result<(), BoxDynError> {
    begun.send(job::lateness(&body))?;
    Ok(())
}
