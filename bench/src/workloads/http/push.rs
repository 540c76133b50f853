//! Jobs that the service starts or delivers by itself: schedules, and webhooks to a receiver in this
//! process.

use super::ours::Connection;
use super::server::Server;
use crate::workloads::place::Place;
use requeue_bench::Measurement;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// Requests in flight, except in `push-10k`.
const CONCURRENCY: usize = 64;
const BODY: usize = 100;
const IN_FLIGHT: usize = 10_000;
/// The body of a job in `push-10k`.
const LARGE_BODY: usize = 4096;
const SCHEDULES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `None` if there is no such workload.
pub(super) fn measure(
    workload: &str,
    budget: Duration,
    place: &Place,
    program: &Path,
) -> Option<Vec<Measurement>> {
    let server = Server::start(place, |port, dir| {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--push-allow", "127.0.0.1"]);
        // One kind uses at most half of what there is.
        command.args(["--push-in-flight", &(2 * IN_FLIGHT).to_string(), "--push-memory", "256"]);
        command.arg("--data").arg(dir.join("data"));
        command
    });
    let mut connection = Connection::new(server.connect());
    Some(match workload {
        "schedules" => schedules(&mut connection, budget),
        "push" => push(&mut connection, &server, budget),
        "push-lateness" => push_lateness(&mut connection, budget),
        "push-10k" => push_10k(&mut connection, &server),
        _ => return None,
    })
}

/// A hundred schedules that run once per second, at different times, claimed by one worker that waits.
fn schedules(connection: &mut Connection, budget: Duration) -> Vec<Measurement> {
    let starts = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    for n in 0..SCHEDULES {
        let body = format!(
            r#"{{"every":"1s","starts_at":"{}","overlap":"allow","body_text":"{{{{scheduled_at}}}}"}}"#,
            starts + jiff::SignedDuration::from_millis((n * 1000 / SCHEDULES) as i64)
        );
        connection.send("PUT", &format!("/v1/kinds/bench/schedules/s{n}"), &body);
    }
    let claim = r#"{"kinds":["bench"],"worker":"bench","max":100,"lease":"1m","wait":"10s"}"#;
    let end = Instant::now() + Duration::from_secs(2) + budget * 5;
    let mut late = Vec::new();
    while Instant::now() < end {
        let claimed = connection.send("POST", "/v1/claim", claim).to_owned();
        let now = SystemTime::now();
        late.extend(texts(&claimed, "\"body_text\":\"").map(|time| since(time, now)));
        let receipts = texts(&claimed, super::ours::RECEIPT);
        let acks: Vec<String> = receipts.map(|it| format!("{{\"receipt\":\"{it}\"}}")).collect();
        if acks.is_empty() {
            continue;
        }
        connection.send("POST", "/v1/ack", &format!("{{\"leases\":[{}]}}", acks.join(",")));
    }
    lateness("schedules", late)
}

/// As many deliveries per second as possible.
fn push(connection: &mut Connection, server: &Server, budget: Duration) -> Vec<Measurement> {
    let count = (budget.as_secs_f64() * 5000.0) as usize + 1000;
    let receiver = Webhooks::start(true);
    set_target(connection, receiver.address, CONCURRENCY, true);
    put(connection, count, BODY, |_| None);
    let before = server.cpu_time();
    let began = Instant::now();
    connection.send("PATCH", "/v1/kinds/bench", r#"{"paused":false}"#);
    for _ in 0..count {
        receiver.next();
    }
    let took = began.elapsed();
    let cpu = (server.cpu_time() - before).as_nanos() as f64 / count as f64;
    vec![Measurement::rate(count as f64 / took.as_secs_f64()), Measurement::ns(cpu).of("push-cpu")]
}

/// The time from when a job is due until its request arrives.
fn push_lateness(connection: &mut Connection, budget: Duration) -> Vec<Measurement> {
    let receiver = Webhooks::start(true);
    set_target(connection, receiver.address, CONCURRENCY, false);
    let span = budget.max(Duration::from_secs(1)) * 2;
    let count = (span.as_secs_f64() * 200.0) as usize;
    put(connection, count, BODY, |n| Some(Duration::from_secs(1) + span * n as u32 / count as u32));
    let late = (0..count).map(|_| receiver.next());
    lateness("push-lateness", late.collect())
}

/// The memory of ten thousand deliveries to a receiver that does not respond.
fn push_10k(connection: &mut Connection, server: &Server) -> Vec<Measurement> {
    let receiver = Webhooks::start(false);
    set_target(connection, receiver.address, IN_FLIGHT, true);
    put(connection, IN_FLIGHT, LARGE_BODY, |_| None);
    let before = server.rss();
    connection.send("PATCH", "/v1/kinds/bench", r#"{"paused":false}"#);
    for _ in 0..IN_FLIGHT {
        receiver.next();
    }
    thread::sleep(Duration::from_secs(1));
    let rss = server.rss();
    vec![
        Measurement::bytes(rss.saturating_sub(before) as f64 / IN_FLIGHT as f64),
        Measurement::bytes(rss as f64).of("push-10k-rss"),
    ]
}

fn set_target(connection: &mut Connection, to: SocketAddr, concurrency: usize, paused: bool) {
    let settings = format!(
        r#"{{"paused":{paused},"push":{{"url":"http://{to}/hook","timeout":"60s","concurrency":{concurrency}}}}}"#
    );
    connection.send("PATCH", "/v1/kinds/bench", &settings);
}

/// Puts jobs in batches, each with the delay that `delay` returns.
fn put(
    connection: &mut Connection,
    count: usize,
    len: usize,
    delay: impl Fn(usize) -> Option<Duration>,
) {
    let body = "x".repeat(len);
    for first in (0..count).step_by(500) {
        let mut jobs = String::from("{\"jobs\":[");
        for n in first..count.min(first + 500) {
            let comma = if n > first { "," } else { "" };
            let delay = delay(n).map(|delay| format!(",\"delay\":\"{}ms\"", delay.as_millis()));
            let delay = delay.unwrap_or_default();
            write!(jobs, "{comma}{{\"id\":\"{n}\",\"body_text\":\"{body}\"{delay}}}")
                .expect("memory");
        }
        jobs.push_str("]}");
        connection.send("POST", "/v1/kinds/bench/jobs", &jobs);
    }
}

fn lateness(name: &str, mut late: Vec<Duration>) -> Vec<Measurement> {
    late.sort_unstable();
    let ns = |at: usize| Measurement::ns(late[at].as_nanos() as f64);
    vec![
        ns(late.len() / 2).of(format!("{name}-p50")),
        ns(late.len() * 99 / 100).of(format!("{name}-p99")),
        ns(late.len() - 1).of(format!("{name}-max")),
    ]
}

/// The texts that follow `key` in a response.
fn texts<'a>(response: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    response.split(key).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0))
}

/// The time since a text such as `2026-12-01T09:00:00.125Z`; zero if it is later.
fn since(time: &str, now: SystemTime) -> Duration {
    let time: jiff::Timestamp = time.parse().expect("a time");
    now.duration_since(SystemTime::from(time)).unwrap_or_default()
}

/// A receiver of webhooks. It reports how late each request is.
struct Webhooks {
    address: SocketAddr,
    requests: Receiver<Duration>,
    _runtime: Runtime,
}

impl Webhooks {
    fn start(responds: bool) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_io().build().expect("there is a thread");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (sender, requests) = mpsc::channel();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, sender.clone(), responds));
            }
        });
        Webhooks { address, requests, _runtime: runtime }
    }

    fn next(&self) -> Duration {
        self.requests.recv_timeout(PATIENCE).expect("the job is delivered")
    }
}

/// Reads the requests of one connection.
async fn receive(mut stream: TcpStream, requests: Sender<Duration>, responds: bool) {
    let mut bytes = Vec::new();
    loop {
        let length = loop {
            if let Some(length) = request_length(&bytes)
                && bytes.len() >= length
            {
                break length;
            }
            match stream.read_buf(&mut bytes).await {
                Ok(len) if len > 0 => {}
                _ => return,
            }
        };
        let now = SystemTime::now();
        let head = String::from_utf8_lossy(&bytes[..length]);
        let due = head.lines().find_map(|line| line.strip_prefix("requeue-due: "));
        let late = since(due.expect("the due time"), now);
        bytes.drain(..length);
        if requests.send(late).is_err() {
            return;
        }
        if responds
            && stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err()
        {
            return;
        }
    }
}

/// The length of the first request, once its head is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let start = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..start]).expect("a head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Some(start + length.map_or(0, |length| length.parse().expect("a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        assert_eq!(request_length(b"POST / HTTP/1.1\r\n"), None);
        assert_eq!(request_length(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{"), Some(40));
    }

    #[test]
    fn lateness_is_counted_from_the_time_in_the_text() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(since("1970-01-01T00:00:01.25Z", time), Duration::from_millis(250));
        assert_eq!(since("1970-01-01T00:00:02Z", time), Duration::ZERO);
    }
}
