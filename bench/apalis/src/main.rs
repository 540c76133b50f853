//! apalis-redis on the workloads of requeue's benchmarks: executes commands, one per line.
//!
//! ```text
//!   requeue-bench-apalis [--unlocked] redis://HOST:PORT
//! ```
//!
//! See ../../src/workloads/redis/client.rs for the commands.

// Shared as files: a dependency on the crate would change this one's Cargo.lock whenever
// requeue's own dependencies change.
#[path = "../../src/workloads/redis/job.rs"]
mod job;
mod queue;

use queue::Queue;
use std::io::BufRead;
use std::time::Duration;

/// The same number as in the other tokio workloads.
const TOKIO_WORKERS: usize = 2;
/// The exact version in `Cargo.toml`.
const VERSION: &str = "1.0.0";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (locked, url) = match &args[..] {
        [url] => (true, url),
        [flag, url] if flag == "--unlocked" => (false, url),
        _ => panic!("usage: requeue-bench-apalis [--unlocked] redis://HOST:PORT"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(TOKIO_WORKERS)
        .enable_all()
        .build()
        .expect("the system has two threads to spare");
    let mut queue = runtime.block_on(Queue::connect(url, locked));
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("commands are text");
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default().to_owned();
        let n: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
        // Spawned, because the thread that blocks on a runtime is not one of its workers.
        let answer = runtime.spawn(async move {
            let answer = answer(&mut queue, &verb, &n).await;
            (queue, answer)
        });
        let (used, answer) = runtime.block_on(answer).expect("the task does not panic");
        queue = used;
        println!("{answer}");
    }
    // Otherwise it would wait for workers that still run.
    runtime.shutdown_background();
}

async fn answer(queue: &mut Queue, verb: &str, n: &[usize]) -> String {
    let millis = |n: usize| Duration::from_millis(n as u64);
    match *n {
        [] if verb == "version" => VERSION.to_owned(),
        [count, delay] if verb == "bulk" || verb == "fill" => {
            took(queue.bulk(count, millis(delay)).await)
        }
        [callers, count, delay] if verb == "put" => {
            took(queue.put(callers, count, millis(delay)).await)
        }
        [concurrency, count] if verb == "process" => took(queue.process(concurrency, count).await),
        [concurrency, count, lead, spread] if verb == "late" => {
            let late = queue.late(concurrency, count, millis(lead), millis(spread)).await;
            late.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
        }
        [workers] if verb == "wait" => {
            queue.wait(workers).await;
            "ok".to_owned()
        }
        _ => panic!("unknown command {verb:?} {n:?}"),
    }
}

fn took(elapsed: Duration) -> String {
    elapsed.as_nanos().to_string()
}
