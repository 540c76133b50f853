//! Everything at the same time: well-behaved clients, slow and hostile clients, kills, a disk that
//! fills up and is drained, and a scraper.
//!
//! ```text
//!   64 clients: put, claim, ack  ──▶ ┌────────┐ ◀── slow senders, slow readers, idle connections,
//!   filler: fills and drains     ──▶ │ server │     requests with millions of entries
//!   scraper: /metrics, /healthz  ──▶ └────────┘ ◀── SIGKILL, and a restart
//! ```
//!
//! At the end no acknowledged job is lost, no acked job has come back, every body is the one that
//! was put, and the memory of the server has stayed bounded. `scripts/attack` runs this for longer,
//! with a release build and a small file system.

mod clients;
mod hostile;
mod records;
mod watch;

use super::node::{Node, block_on};
use crate::support::{Dir, until};
use clients::Clients;
use records::Records;
use requeue_jobs::{Kind, Settings, Store};
use requeue_testkit::Random;
use std::env;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use watch::Watch;

const CLIENTS: usize = 64;
/// Of each sort.
const HOSTILE: usize = 6;
/// The time between two kills, unless the whole run is shorter.
const BETWEEN_KILLS: Duration = Duration::from_secs(60);
/// More than the budgets of requests and responses, the tables in memory and the buffers of all
/// connections together.
const MAX_RSS: u64 = 1536 << 20;

/// What all threads of a run share.
struct Attack {
    address: String,
    is_over: AtomicBool,
    /// The process id of the server.
    pid: AtomicU32,
    records: Records,
}

impl Attack {
    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Sleeps, but not longer than the run takes.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.is_running() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20).min(time));
        }
    }

    fn start_server(&self, dir: &Dir, data: &str) -> Node {
        let node = Node::start(dir, &["--listen", &self.address, "--data", data]);
        self.pid.store(node.pid(), Ordering::Relaxed);
        node
    }
}

#[test]
fn everything_at_the_same_time() {
    let seconds = env::var("REQUEUE_ATTACK").map_or(4, |text| text.parse().expect("seconds"));
    let length = Duration::from_secs(seconds);
    let seed = env::var("REQUEUE_SEED").map_or(1, |text| text.parse().expect("a seed"));
    println!("REQUEUE_SEED={seed}, {seconds} s");
    // A file system of its own can be filled.
    let small = env::var_os("REQUEUE_ATTACK_DIR").map(PathBuf::from);
    let dir = Dir::new();
    let data = small.clone().unwrap_or_else(|| dir.path("")).join("attacked");
    let data = data.to_str().expect("UTF-8");
    let attack = Attack {
        address: free_address(),
        is_over: AtomicBool::new(false),
        pid: AtomicU32::new(0),
        records: Records::default(),
    };
    let node = attack.start_server(&dir, data);
    prepare(&node);
    let mut watch = Watch::new(&attack);
    let (mut kills, mut restarts) = (0, Vec::new());
    let node = thread::scope(|scope| {
        let mut node = node;
        let _end = EndOnDrop(&attack.is_over);
        let clients = Clients::connect(&attack, 8);
        for number in 0..CLIENTS {
            let (clients, random) = (clients.clone(), Random::new(seed ^ (number as u64) << 32));
            scope.spawn(move || clients.run(number, random));
        }
        if small.is_some() {
            let clients = clients.clone();
            scope.spawn(move || clients.fill_and_drain());
        }
        for number in 0..HOSTILE {
            let attack = &attack;
            scope.spawn(move || hostile::send_slowly(attack, number));
            scope.spawn(move || hostile::read_slowly(attack, number));
        }
        scope.spawn(|| hostile::stay_idle(&attack));
        scope.spawn(|| hostile::send_many_entries(&attack));
        let watching = scope.spawn(|| watch.run());
        let began = Instant::now();
        while began.elapsed() < length {
            attack.pause(BETWEEN_KILLS.min(length / 2).min(length.saturating_sub(began.elapsed())));
            if began.elapsed() < length {
                kills += 1;
                let killed = Instant::now();
                // Not in one expression: the port must be free.
                let dead = node;
                dead.kill();
                node = attack.start_server(&dir, data);
                until("the server", || (node.status("/readyz") == 200).then_some(()));
                restarts.push(killed.elapsed());
            }
        }
        attack.is_over.store(true, Ordering::Relaxed);
        watching.join().expect("the watch does not panic");
        node
    });
    // The attackers have gone: what is left can be done.
    attack.is_over.store(false, Ordering::Relaxed);
    Clients::connect(&attack, 1).drain();
    let rest = if seconds >= 60 { 30 } else { 0 };
    thread::sleep(Duration::from_secs(rest));
    watch.sample_rss();
    println!("{kills} kills, ready again after {restarts:.1?}");
    watch.report(rest);
    attack.records.report();
    node.stop();
    attack.records.check();
    assert!(watch.peak_rss() < MAX_RSS, "RSS reached {} MiB", watch.peak_rss() >> 20);
}

/// Puts the jobs that slow readers ask for. Their leases expire often, and they must not die.
fn prepare(node: &Node) {
    let mut settings = Settings::default();
    settings.max_attempts = 1_000_000;
    for kind in clients::KINDS.iter().chain(&[clients::BIG, clients::FILL]) {
        let kind = Kind::new(*kind).expect("a valid kind");
        block_on(node.client.set(kind, settings.clone())).expect("it is set");
    }
}

/// An address that the server can listen on again after each kill.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// Ends the other threads also if one panics.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
