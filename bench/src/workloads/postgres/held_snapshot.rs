//! A steady load while another connection keeps a snapshot open.
//!
//! Postgres cannot remove dead row versions that the snapshot could see. A queue produces them with
//! every job, and has to skip them when it looks for the next one.

use super::client::Client;
use super::connection::{Connection, Postmaster};
use super::{DATABASE, WORKERS};
use requeue_bench::Measurement;
use std::thread;
use std::time::{Duration, Instant};

const JOBS_PER_SECOND: usize = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Inserts a batch of jobs every second, while a worker runs. Reports the CPU time of the server per
/// job in the first and the last tenth of the time.
pub(super) fn measure(
    port: u16,
    client: &mut Client,
    server: Postmaster,
    seconds: usize,
) -> Vec<Measurement> {
    client.start_worker(WORKERS);
    let other = Connection::to(port, DATABASE);
    other.execute("begin isolation level repeatable read; select 1 from pg_class limit 1");
    let tenth = seconds / 10;
    let started = Instant::now();
    let mut batches = Vec::with_capacity(seconds + 1);
    for second in 0..=seconds {
        // If the call before took more than a second, this one is made immediately.
        thread::sleep((started + SECOND * second as u32).saturating_duration_since(Instant::now()));
        let (at, cpu) = (Instant::now(), server.cpu_time());
        batches.push(Progress { at, cpu, finished: client.offer(JOBS_PER_SECOND) });
    }
    other.execute("rollback");
    let (first, last) = (&batches[..=tenth], &batches[seconds - tenth..]);
    let (first, last) = (Slice::of(first), Slice::of(last));
    vec![
        Measurement::ns(last.cpu_ns),
        Measurement::ns(first.cpu_ns).of("held-snapshot-first"),
        Measurement::calls(last.cpu_ns / first.cpu_ns).of("held-snapshot-ratio"),
        Measurement::rate(last.rate).of("held-snapshot-rate"),
    ]
}

/// The state before a batch.
struct Progress {
    at: Instant,
    cpu: Duration,
    finished: u64,
}

/// The jobs between two batches.
struct Slice {
    /// CPU time of the server per finished job.
    cpu_ns: f64,
    /// Finished jobs per second.
    rate: f64,
}

impl Slice {
    fn of(batches: &[Progress]) -> Self {
        let (begin, end) = (&batches[0], &batches[batches.len() - 1]);
        // A queue that finishes nothing has taken its time for at most one job.
        let jobs = (end.finished - begin.finished).max(1) as f64;
        let cpu = end.cpu - begin.cpu;
        Slice {
            cpu_ns: cpu.as_nanos() as f64 / jobs,
            rate: jobs / (end.at - begin.at).as_secs_f64(),
        }
    }
}
