//! `dashboard-…`: pages of the dashboard are open, with this many jobs pending; what they cost the server.

use super::ours::Connection;
use super::server::Server;
use crate::suite::POPULATIONS;
use requeue_bench::Measurement;
use std::fmt::Write;
use std::io::{Read, Write as _};
use std::thread;
use std::time::Duration;

/// Jobs per request.
const BATCH: usize = 1000;
/// How many times each page is open.
const COPIES: usize = 5;
/// The pages: the overview, and the first jobs of a kind.
const PAGES: [&str; 2] = ["/", "/kind?kind=bench&state=waiting"];
/// The jobs are due within this time.
const WEEK: u64 = 7 * 24 * 3600;

/// Returns `None` if there is no such workload.
pub(super) fn measure(
    workload: &str,
    budget: Duration,
    server: &Server,
) -> Option<Vec<Measurement>> {
    let population = workload.strip_prefix("dashboard-")?;
    let (_, count) = POPULATIONS.into_iter().find(|(name, _)| *name == population)?;
    put(&mut Connection::new(server.connect()), count);
    // What the store still writes to its tables does not count.
    let time = budget.max(Duration::from_secs(2)) * 5;
    thread::sleep(time);
    let idle = cpu_during(server, time);
    let streams: Vec<_> =
        PAGES.iter().flat_map(|page| (0..COPIES).map(|_| open(server, page))).collect();
    thread::sleep(time / 2);
    let busy = cpu_during(server, time);
    let pages = streams.len() as f64;
    let per_second = (busy.saturating_sub(idle)).as_nanos() as f64 / time.as_secs_f64() / pages;
    let first = bytes_of(server, PAGES[0]);
    Some(vec![
        Measurement::ns(per_second),
        Measurement::bytes(first as f64).of(format!("{workload}-first-page")),
    ])
}

fn put(connection: &mut Connection, count: usize) {
    for first in (0..count).step_by(BATCH) {
        let mut body = String::from("{\"jobs\":[");
        for n in first..count.min(first + BATCH) {
            let comma = if n == first { "" } else { "," };
            // Spread over the week, and not in the order of the ids.
            let delay = 60 + (n as u64).wrapping_mul(2_654_435_761) % WEEK;
            write!(body, r#"{comma}{{"id":"job-{n}","delay":"{delay}s","body":{{"n":{n}}}}}"#)
                .expect("a text can be written to");
        }
        body.push_str("]}");
        connection.send("POST", "/v1/kinds/bench/jobs", &body);
    }
}

fn cpu_during(server: &Server, time: Duration) -> Duration {
    let before = server.cpu_time();
    thread::sleep(time);
    server.cpu_time() - before
}

/// Opens the live stream of a page. A thread reads it until the server ends.
fn open(server: &Server, page: &str) -> thread::JoinHandle<()> {
    let mut stream = server.connect();
    write!(stream, "GET {page} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        .expect("the server reads");
    thread::spawn(move || {
        let mut piece = [0; 16 << 10];
        while stream.read(&mut piece).is_ok_and(|len| len > 0) {}
    })
}

/// Returns the size of a page, with the head of its response.
fn bytes_of(server: &Server, page: &str) -> usize {
    let mut stream = server.connect();
    write!(
        stream,
        "GET {page} HTTP/1.1\r\nhost: localhost\r\naccept: text/html\r\nconnection: close\r\n\r\n"
    )
    .expect("the server reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("the server responds");
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&response));
    response.len()
}
