//! The memory of the server, and how fast it responds to what operators use.

use super::Attack;
use super::records::quantiles;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub(super) struct Watch<'a> {
    attack: &'a Attack,
    /// In bytes, one per second.
    rss: Vec<u64>,
    metrics: Vec<Duration>,
    metrics_len: usize,
    health: Vec<Duration>,
    degraded: u64,
}

impl<'a> Watch<'a> {
    pub(super) fn new(attack: &'a Attack) -> Self {
        let (rss, metrics, health) = (Vec::new(), Vec::new(), Vec::new());
        let mut watch = Watch { attack, rss, metrics, metrics_len: 0, health, degraded: 0 };
        watch.sample_rss();
        watch
    }

    /// Scrapes the server once a second until the run is over.
    pub(super) fn run(&mut self) {
        while self.attack.is_running() {
            let began = Instant::now();
            if let Some(text) = self.get("/metrics") {
                self.metrics.push(began.elapsed());
                self.metrics_len = self.metrics_len.max(text.len());
            }
            let began = Instant::now();
            if self.get("/healthz").is_some() {
                self.health.push(began.elapsed());
            }
            self.degraded +=
                u64::from(self.get("/readyz").is_some_and(|text| text.contains("degraded")));
            self.sample_rss();
            self.attack.pause(Duration::from_secs(1));
        }
    }

    /// The response to a GET request, or `None` if the server was killed meanwhile.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.attack.address).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        response.contains(" 200 OK").then_some(response)
    }

    pub(super) fn sample_rss(&mut self) {
        let pid = self.attack.pid.load(Ordering::Relaxed);
        // There is none between a kill and the restart.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return };
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        self.rss.extend(kib.map(|kib| kib << 10));
    }

    pub(super) fn peak_rss(&self) -> u64 {
        self.rss.iter().copied().max().unwrap_or_default()
    }

    pub(super) fn report(&mut self, rest: u64) {
        let mib = |rss: Option<&u64>| rss.copied().unwrap_or_default() >> 20;
        let (start, end) = (mib(self.rss.first()), mib(self.rss.last()));
        println!(
            "RSS {start} MiB at the start, {} MiB at most, {end} MiB {rest} s after the end",
            self.peak_rss() >> 20
        );
        println!("/healthz {}", quantiles(&mut self.health));
        println!("/metrics {}; at most {} bytes", quantiles(&mut self.metrics), self.metrics_len);
        println!("/readyz was degraded {} times", self.degraded);
    }
}
