//! requeue's store as a program that executes commands: see [`client`](super::client).

use super::job::{self, Job};
use requeue_jobs::{Body, Due, JobId, JobWorker, Jobs, Kind, Put, RunningJobs, Store, Timestamp};
use requeue_redis::{Options, RedisStore};
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const KIND: &str = "bench";
/// The largest batch of a store.
const BATCH: usize = 1000;
/// More time than a worker needs to stop.
const GRACE: Duration = Duration::from_secs(10);

async fn open(url: &str) -> Arc<dyn Store> {
    let mut options = Options::default();
    options.use_current_runtime = true;
    Arc::new(RedisStore::connect_with(url, options).await.expect("the server is supported"))
}

/// Executes commands until the input ends.
pub(crate) fn obey(url: &str) {
    let runtime = crate::workloads::tokio_with_io();
    let url = url.to_owned();
    // Spawned, because the thread that blocks on a runtime is not one of its workers.
    let store = runtime.spawn(async move { open(&url).await });
    let store = runtime.block_on(store).expect("the store opens");
    let mut ours = Ours { jobs: Jobs::new(store), made: 0, waiting: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("commands are text");
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default().to_owned();
        let n: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
        let answer = runtime.spawn(async move {
            let answer = ours.answer(&verb, &n).await;
            (ours, answer)
        });
        let (used, answer) = runtime.block_on(answer).expect("the task does not panic");
        ours = used;
        println!("{answer}");
    }
}

struct Ours {
    jobs: Jobs,
    /// The number of jobs generated so far.
    made: u32,
    /// Idle workers.
    waiting: Vec<RunningJobs>,
}

/// The delay of the start of each job, in microseconds.
type Begun = mpsc::UnboundedSender<i64>;

impl Ours {
    async fn answer(&mut self, verb: &str, n: &[usize]) -> String {
        let millis = |n: usize| Duration::from_millis(n as u64);
        match *n {
            [] if verb == "version" => env!("CARGO_PKG_VERSION").to_owned(),
            [count, delay] if verb == "bulk" || verb == "fill" => {
                took(self.bulk(count, millis(delay)).await)
            }
            [callers, count, delay] if verb == "put" => {
                took(self.put(callers, count, millis(delay)).await)
            }
            [concurrency, count] if verb == "process" => {
                took(self.process(concurrency, count).await)
            }
            [concurrency, count, lead, spread] if verb == "late" => {
                let late = self.late(concurrency, count, millis(lead), millis(spread)).await;
                late.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
            }
            [workers] if verb == "wait" => {
                let (begun, _) = mpsc::unbounded_channel();
                let waiting = (0..workers).map(|_| self.work(1, &begun));
                self.waiting = waiting.collect();
                "ok".to_owned()
            }
            _ => panic!("unknown command {verb:?} {n:?}"),
        }
    }

    async fn bulk(&mut self, count: usize, delay: Duration) -> Duration {
        let due = if delay.is_zero() { Due::Now } else { Due::After(delay) };
        let jobs = job::make_up(&mut self.made, count);
        self.put_in_bulk(jobs.into_iter().map(|job| (job, due)).collect()).await
    }

    async fn put_in_bulk(&self, jobs: Vec<(Job, Due)>) -> Duration {
        let started = Instant::now();
        for some in jobs.chunks(BATCH) {
            let puts = some.iter().map(|(job, due)| put(job, *due)).collect();
            let placed = self.jobs.store().put(puts).await.expect("the store responds");
            assert!(placed.iter().all(Result::is_ok), "a put failed: {placed:?}");
        }
        started.elapsed()
    }

    async fn put(&mut self, callers: usize, count: usize, delay: Duration) -> Duration {
        let mut shares: Vec<Vec<Job>> = (0..callers).map(|_| Vec::new()).collect();
        for (i, job) in job::make_up(&mut self.made, count).into_iter().enumerate() {
            shares[i % callers].push(job);
        }
        let started = Instant::now();
        let callers: Vec<_> = shares
            .into_iter()
            .map(|share| {
                let jobs = self.jobs.clone();
                tokio::spawn(async move {
                    for Job { id, body } in share {
                        jobs.put(KIND, &id, body)
                            .after(delay)
                            .await
                            .expect("the store accepts the job");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        started.elapsed()
    }

    /// Starts a worker, which reports the delay of the start of each job.
    fn work(&self, concurrency: usize, begun: &Begun) -> RunningJobs {
        let worker = JobWorker::new(&self.jobs, [KIND], "bench").expect("short names");
        let begun = begun.clone();
        worker.concurrency(concurrency).spawn(move |run| {
            let body = str::from_utf8(run.job.body().bytes()).expect("it was put as text");
            let told = begun.send(job::lateness(body));
            async move { told.map_err(Into::into) }
        })
    }

    async fn process(&mut self, concurrency: usize, count: usize) -> Duration {
        let (begun, mut jobs) = mpsc::unbounded_channel();
        let started = Instant::now();
        let worker = self.work(concurrency, &begun);
        for _ in 0..count {
            jobs.recv().await.expect("the worker runs");
        }
        while self.leased().await > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let elapsed = started.elapsed();
        let left = worker.shut_down(GRACE).await;
        assert!(left.is_empty(), "still working on {left:?}");
        elapsed
    }

    async fn leased(&self) -> u64 {
        let kinds = self.jobs.store().kinds().await.expect("the store responds");
        kinds.iter().map(|kind| kind.counts.leased).sum()
    }

    async fn late(
        &mut self,
        concurrency: usize,
        count: usize,
        lead: Duration,
        spread: Duration,
    ) -> Vec<i64> {
        let (begun, mut jobs) = mpsc::unbounded_channel();
        self.waiting.push(self.work(concurrency, &begun));
        let due = job::due_times(count, lead, spread);
        let made = job::make_up_due(&mut self.made, &due).into_iter();
        let at = due.iter().map(|&due| Due::At(Timestamp::from_millis(due)));
        self.put_in_bulk(made.zip(at).collect()).await;
        let mut late = Vec::with_capacity(count);
        for _ in 0..count {
            late.push(jobs.recv().await.expect("the worker runs"));
        }
        late
    }
}

fn put(job: &Job, due: Due) -> Put {
    let names = Kind::new(KIND).and_then(|kind| Ok((kind, JobId::new(job.id.as_str())?)));
    let (kind, id) = names.expect("the names are short");
    let mut put = Put::new(kind, id, Body::octets(job.body.as_bytes()).expect("the body is small"));
    put.due = due;
    put
}

fn took(elapsed: Duration) -> String {
    elapsed.as_nanos().to_string()
}
