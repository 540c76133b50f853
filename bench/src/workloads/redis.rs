//! Jobs on Redis: the store compared with asynq, BullMQ and apalis, on one private server.
//!
//! Each system is a separate program that executes commands, one per line; see
//! [`client`]. The cost for the server is the difference of its `INFO` before and after.

mod client;
mod info;
mod job;
mod ours;

pub(crate) use ours::obey;

use crate::driver::Error;
use crate::system::Programs;
use crate::system::System::{self, *};
use client::Client;
use info::{Connection, Usage};
use requeue_bench::Measurement;
use requeue_testkit::servers::RedisServer;
use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::Duration;

const CONCURRENCY: usize = 50;
const HOUR_MS: usize = 3_600_000;
const IDLE_WORKERS: usize = 100;
/// The time until all workers wait.
const SETTLE: Duration = Duration::from_secs(1);
/// Before the measurement: connections are opened, scripts are sent and code is compiled.
const WARM_UP: usize = 2_000;
/// The number of ready jobs that are processed. apalis cannot start with more than about 8000: it
/// passes them as the arguments of one call in a script.
const BACKLOG: usize = 7_500;

/// The amount of work of a measurement.
struct Size {
    /// The number of jobs that are put.
    puts: usize,
    /// The number of commands of `redis-benchmark`.
    commands: usize,
    /// How many times a backlog is processed.
    passes: usize,
    pending: usize,
    late: usize,
    /// The time from the first due job to the last.
    spread_ms: usize,
    /// The time until the first job is due: all are put by then.
    lead_ms: usize,
    idle: Duration,
}

const FULL: Size = Size {
    puts: 50_000,
    commands: 500_000,
    passes: 4,
    pending: 200_000,
    late: 10_000,
    spread_ms: 5_000,
    lead_ms: 2_000,
    idle: Duration::from_secs(5),
};

const QUICK: Size = Size {
    puts: 5_000,
    commands: 100_000,
    passes: 1,
    pending: 20_000,
    late: 2_000,
    spread_ms: 1_000,
    lead_ms: 500,
    idle: Duration::from_secs(1),
};

/// Starts the server. It writes all commands to a log, and syncs the log every second.
pub(crate) fn server() -> RedisServer {
    // A log that is rewritten during a measurement would affect its result.
    let rewrite = ["--auto-aof-rewrite-percentage", "0"];
    let log = ["--appendonly", "yes", "--appendfsync", "everysec"];
    RedisServer::with(&[&log[..], &rewrite[..]].concat())
}

/// Measures `program` with its arguments. Returns `None` if there is no such workload.
pub(crate) fn measure(
    system: System,
    workload: &str,
    budget: Duration,
    port: u16,
    program: &[&str],
) -> Option<Vec<Measurement>> {
    let size = if budget < Duration::from_millis(500) { QUICK } else { FULL };
    let mut server = Connection::to(port);
    server.empty();
    if matches!(system, RedisSet | RedisZadd) {
        return ceiling(system, workload, size.commands, port);
    }
    let mut client = Client::start(program, port);
    let puts = size.puts;
    Some(match workload {
        "bulk-put" => {
            client.number(&format!("bulk {WARM_UP} {HOUR_MS}"));
            put(&mut server, &mut client, workload, puts, &format!("bulk {puts} {HOUR_MS}"))
        }
        "put-50" => {
            let told = |count| format!("put {CONCURRENCY} {count} {HOUR_MS}");
            client.number(&told(WARM_UP));
            put(&mut server, &mut client, workload, puts, &told(puts))
        }
        "process-50" => process(&mut server, &mut client, workload, size.passes),
        "memory" => vec![memory(&mut server, client, size.pending)],
        "lateness" => lateness(&mut client, &size),
        "idle" => idle(&mut server, &mut client, size.idle),
        _ => return None,
    })
}

/// The versions of all systems that can be run.
pub(crate) fn versions(
    programs: &Programs,
    server: &RedisServer,
) -> Result<BTreeMap<&'static str, String>, Error> {
    let mut versions = BTreeMap::from([("redis-server", Connection::to(server.port()).version())]);
    for system in [Asynq, BullMq, Apalis] {
        if let Some(program) = programs.client(system)? {
            let version = Client::start(&program, server.port()).tell("version");
            versions.insert(system.name(), version);
        }
    }
    let shown: Vec<_> =
        versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    println!("with {}", shown.join(", "));
    Ok(versions)
}

fn put(
    server: &mut Connection,
    client: &mut Client,
    workload: &str,
    count: usize,
    told: &str,
) -> Vec<Measurement> {
    let before = server.usage();
    let ns = client.number(told);
    per_job(workload, count, ns, &(server.usage() - before))
}

fn process(
    server: &mut Connection,
    client: &mut Client,
    workload: &str,
    passes: usize,
) -> Vec<Measurement> {
    work_off(server, client, WARM_UP);
    let (mut ns, mut usage) = (0.0, Usage::default());
    for _ in 0..passes {
        let (took, used) = work_off(server, client, BACKLOG);
        ns += took;
        usage += used;
    }
    per_job(workload, BACKLOG * passes, ns, &usage)
}

fn work_off(server: &mut Connection, client: &mut Client, count: usize) -> (f64, Usage) {
    client.number(&format!("fill {count} 0"));
    let before = server.usage();
    let ns = client.number(&format!("process {CONCURRENCY} {count}"));
    (ns, server.usage() - before)
}

fn per_job(workload: &str, jobs: usize, ns: f64, usage: &Usage) -> Vec<Measurement> {
    let jobs = jobs as f64;
    vec![
        Measurement::rate(jobs * 1e9 / ns),
        Measurement::ns(usage.cpu.as_nanos() as f64 / jobs).of(format!("{workload}-cpu")),
        Measurement::calls(usage.commands as f64 / jobs).of(format!("{workload}-commands")),
        Measurement::bytes(usage.aof as f64 / jobs).of(format!("{workload}-aof")),
    ]
}

fn memory(server: &mut Connection, mut client: Client, pending: usize) -> Measurement {
    let before = server.used_memory();
    client.number(&format!("fill {pending} {HOUR_MS}"));
    // The memory of its connections does not count.
    drop(client);
    Measurement::bytes((server.used_memory() - before) as f64 / pending as f64)
}

fn lateness(client: &mut Client, size: &Size) -> Vec<Measurement> {
    client.number(&format!("fill {WARM_UP} 0"));
    client.number(&format!("process {CONCURRENCY} {WARM_UP}"));
    let Size { late: count, lead_ms, spread_ms, .. } = *size;
    let told = client.tell(&format!("late {CONCURRENCY} {count} {lead_ms} {spread_ms}"));
    let numbers = told.split_whitespace().map(|us| us.parse::<i64>().expect("microseconds"));
    let mut late: Vec<i64> = numbers.collect();
    late.sort_unstable();
    assert_eq!(late.len(), count, "not as many were run as were put");
    let early = late.iter().filter(|&&us| us < 0).count();
    // A job that is early has no delay.
    let ns = |i: usize| Measurement::ns(late[i].max(0) as f64 * 1e3);
    vec![
        ns(count / 2).of("lateness-p50"),
        ns(count * 99 / 100).of("lateness-p99"),
        ns(count - 1).of("lateness-max"),
        Measurement::jobs(early as f64).of("lateness-early"),
    ]
}

/// Per second.
fn idle(server: &mut Connection, client: &mut Client, span: Duration) -> Vec<Measurement> {
    client.tell(&format!("wait {IDLE_WORKERS}"));
    thread::sleep(SETTLE);
    let (before, client_before) = (server.usage(), client.cpu_time());
    thread::sleep(span);
    let (usage, client_cpu) = (server.usage() - before, client.cpu_time() - client_before);
    let cpu = |cpu: Duration| Measurement::ns(cpu.as_nanos() as f64 / span.as_secs_f64());
    vec![
        Measurement::calls(usage.commands as f64 / span.as_secs_f64()).of("idle-commands"),
        cpu(usage.cpu).of("idle-cpu"),
        cpu(client_cpu).of("idle-client-cpu"),
    ]
}

/// The upper limit of a server: `redis-benchmark`, 50 connections, 50 commands per pipeline.
fn ceiling(system: System, workload: &str, commands: usize, port: u16) -> Option<Vec<Measurement>> {
    let test = match (system, workload) {
        (RedisSet, "bulk-put" | "put-50") => "set",
        (RedisZadd, "bulk-put" | "put-50") => "zadd",
        _ => return None,
    };
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--csv", "-t", test]);
    command.args(["-c", "50", "-P", "50", "-d", "100", "-r", "100000000"]);
    let output = command.args(["-n", &commands.to_string()]).output();
    let output = output.expect("redis-benchmark comes with the server");
    let table = String::from_utf8_lossy(&output.stdout);
    // "test","rps",… in the line before.
    let rate = table.lines().nth(1).and_then(|line| line.split(',').nth(1));
    let rate = rate.and_then(|rate| rate.trim_matches('"').parse().ok());
    let rate = rate.unwrap_or_else(|| panic!("{command:?} printed {table:?}"));
    Some(vec![Measurement::rate(rate)])
}
