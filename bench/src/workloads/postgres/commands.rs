//! A system in Rust as a program that executes commands: see [`client`](super::client).

use super::client::Answer;
use super::job::{self, Job};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The number of jobs per call.
const BATCH: usize = 1000;

/// Called with the body of each job.
pub(super) type Handler = Arc<dyn Fn(&str) + Send + Sync>;

/// A queue on Postgres.
pub(super) trait Queue: Send + Sync + 'static {
    fn version(&self) -> String;

    /// Inserts at most 1000 jobs in the fastest way.
    fn insert(&self, jobs: &[Job]) -> impl Future<Output = ()> + Send;

    /// Inserts jobs that are due much later, with one SQL statement.
    fn fill(&self, count: usize) -> impl Future<Output = ()> + Send;

    /// Starts a worker for this many concurrent jobs.
    fn start(&mut self, workers: usize, handler: Handler) -> impl Future<Output = ()> + Send;

    /// Stops the worker. Returns when all jobs that were handled are stored as finished.
    fn stop(&mut self) -> impl Future<Output = ()> + Send;
}

/// Executes commands until the input ends.
pub(super) fn obey<Q: Queue>(open: impl Future<Output = Q> + Send + 'static) {
    let runtime = crate::workloads::tokio_with_io();
    // Spawned, because the thread that blocks on a runtime is not one of its workers.
    let queue = runtime.block_on(runtime.spawn(open)).expect("the queue opens");
    let mut commands = Commands { queue, finished: Arc::default() };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("commands are text");
        let task = runtime.spawn(async move {
            let answer = commands.execute(&line).await;
            (commands, answer)
        });
        let (used, answer) = runtime.block_on(task).expect("the command succeeds");
        commands = used;
        println!("{}", serde_json::to_string(&answer).expect("numbers are valid JSON"));
    }
}

struct Commands<Q> {
    queue: Q,
    /// The number of jobs that were finished by the worker that `start` started.
    finished: Arc<AtomicU64>,
}

impl<Q: Queue> Commands<Q> {
    async fn execute(&mut self, line: &str) -> Answer {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let n: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
        let millis = |n: usize| Duration::from_millis(n as u64);
        match (verb, &n[..]) {
            ("version", []) => Answer { version: Some(self.queue.version()), ..Answer::default() },
            ("insert", &[count, delay]) => {
                let jobs = job::plain(count, millis(delay));
                let started = Instant::now();
                self.insert(&jobs).await;
                took(started)
            }
            ("process", &[workers, count]) => {
                let started = Instant::now();
                let handled = Handled::new(count);
                let counted = handled.clone();
                self.queue.start(workers, Arc::new(move |_| counted.one())).await;
                handled.all().await;
                self.queue.stop().await;
                took(started)
            }
            ("late", &[workers, count, first, last]) => {
                let late_us = self.late(workers, count, millis(first), millis(last)).await;
                Answer { late_us: Some(late_us), ..Answer::default() }
            }
            ("start", &[workers]) => {
                let finished = self.finished.clone();
                let handler = move |_: &str| _ = finished.fetch_add(1, Ordering::Relaxed);
                self.queue.start(workers, Arc::new(handler)).await;
                Answer::default()
            }
            ("offer", &[count]) => {
                let finished = self.finished.load(Ordering::Relaxed);
                self.insert(&job::plain(count, Duration::ZERO)).await;
                Answer { finished: Some(finished), ..Answer::default() }
            }
            ("fill", &[count]) => {
                self.queue.fill(count).await;
                Answer::default()
            }
            _ => panic!("unknown command {line:?}"),
        }
    }

    async fn insert(&self, jobs: &[Job]) {
        for some in jobs.chunks(BATCH) {
            self.queue.insert(some).await;
        }
    }

    async fn late(
        &mut self,
        workers: usize,
        count: usize,
        first: Duration,
        last: Duration,
    ) -> Vec<i64> {
        let handled = Handled::new(count);
        let (late, all) = std::sync::mpsc::channel();
        let counted = handled.clone();
        let handler = move |body: &str| {
            late.send(job::late_us(body)).expect("it is received");
            counted.one();
        };
        self.queue.start(workers, Arc::new(handler)).await;
        self.insert(&job::scheduled(count, first, last)).await;
        handled.all().await;
        self.queue.stop().await;
        all.try_iter().collect()
    }
}

fn took(started: Instant) -> Answer {
    Answer { seconds: Some(started.elapsed().as_secs_f64()), ..Answer::default() }
}

/// Counts jobs until all were handled.
#[derive(Clone)]
struct Handled {
    left: Arc<AtomicU64>,
    all: Arc<Notify>,
}

impl Handled {
    fn new(count: usize) -> Self {
        Handled { left: Arc::new(AtomicU64::new(count as u64)), all: Arc::default() }
    }

    fn one(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all.notify_one();
        }
    }

    async fn all(&self) {
        self.all.notified().await;
    }
}
