//! `waiting-10k`: ten thousand claims wait for a job, each on its own connection; what they
//! cost while there is none, and how long it takes until one of them receives one.

use super::job::Jobs;
use super::load::Caller;
use super::server::Server;
use requeue_bench::Measurement;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const WAITING: usize = 10_000;
/// Open files that a process needs for other purposes.
const OTHER_FILES: u64 = 200;
/// The time until all claims wait.
const SETTLE: Duration = Duration::from_secs(1);
/// More time than a job takes to be delivered.
const PATIENCE: Duration = Duration::from_secs(20);

/// How to wait, in the protocol of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) wait: &'static [u8],
    /// Text that a response with a job contains.
    pub(super) got: &'static str,
}

pub(super) fn measure(
    server: &Server,
    words: Words,
    mut putter: impl Caller,
    budget: Duration,
) -> Vec<Measurement> {
    let count = as_many_as_may_be();
    let mut jobs = Jobs::new(0, true);
    // The memory for the first request does not count.
    putter.put(&jobs.take(1));
    putter.work_off(1);
    let before = server.rss();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_io().build().expect("there is a thread");
    let (got, gets) = mpsc::channel();
    runtime.block_on(stand(server.address(), words, count, &got));
    thread::sleep(SETTLE);
    let all = server.rss();
    let idle = budget * 2;
    let cpu_before = server.cpu_time();
    thread::sleep(idle);
    let idle_cpu = (server.cpu_time() - cpu_before).as_secs_f64() / idle.as_secs_f64();

    let wakes = if budget < Duration::from_millis(500) { 20 } else { 200 };
    let cpu_before = server.cpu_time();
    let mut took = Vec::new();
    for job in jobs.take(wakes) {
        let began = Instant::now();
        putter.put(&[job]);
        let at = gets.recv_timeout(PATIENCE).expect("one of them gets it");
        took.push(at.saturating_duration_since(began));
    }
    let wake_cpu = (server.cpu_time() - cpu_before) / u32::try_from(wakes).expect("few");
    took.sort_unstable();
    let ns = |time: Duration| Measurement::ns(time.as_nanos() as f64);
    vec![
        Measurement::bytes(all.saturating_sub(before) as f64 / count as f64),
        Measurement::bytes(all as f64).of("waiting-rss"),
        Measurement::ns(idle_cpu * 1e9).of("waiting-idle-cpu"),
        ns(took[wakes / 2]).of("waiting-wake-p50"),
        ns(took[wakes * 99 / 100]).of("waiting-wake-p99"),
        ns(wake_cpu).of("waiting-wake-cpu"),
    ]
}

/// As many as the limit of open files allows, here and in the server.
fn as_many_as_may_be() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = limit.map_or(usize::MAX, |limit| limit.saturating_sub(OTHER_FILES) as usize);
    if most < WAITING {
        eprintln!(
            "only {most} claims wait instead of {WAITING}: the limit of open files is too low"
        );
    }
    most.min(WAITING)
}

/// Opens this many connections, and lets each wait.
async fn stand(address: SocketAddr, words: Words, count: usize, got: &Sender<Instant>) {
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(words.wait).await.expect("the server reads");
        tokio::spawn(wait(stream, words.got, got.clone()));
    }
}

/// Reports when it received a job.
async fn wait(stream: TcpStream, word: &str, got: Sender<Instant>) {
    let mut answer = String::new();
    while !answer.contains(word) {
        stream.readable().await.expect("the server stays");
        let mut piece = [0; 4096];
        match stream.try_read(&mut piece) {
            Ok(0) => panic!("the server has closed the connection after {answer:?}"),
            Ok(len) => answer.push_str(&String::from_utf8_lossy(&piece[..len])),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    // Without a receiver, the measurement is over.
    let _ = got.send(Instant::now());
    // The connection stays open.
    std::future::pending::<()>().await;
}
