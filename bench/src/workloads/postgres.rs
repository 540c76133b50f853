//! Jobs on Postgres: queues compared on one private server.
//!
//! Each system is a separate program that executes commands, one per line; see [`client`]. The cost for
//! the server is the CPU time of all its processes, before and after.

mod client;
mod commands;
mod connection;
mod held_snapshot;
mod job;
mod pgmq;
mod requeue;
mod server;

use crate::driver::Error;
use crate::system::Programs;
use crate::system::System::{self, *};
use client::Client;
use connection::{Connection, Postmaster};
use requeue_bench::Measurement;
use requeue_testkit::servers::PostgresServer;
pub(crate) use server::server;
use std::collections::BTreeMap;
use std::time::Duration;

const DATABASE: &str = "bench";
const WORKERS: usize = 50;
const HOUR: Duration = Duration::from_secs(3600);
/// Before the measurement: connections are opened, statements are prepared and code is compiled.
const WARM_UP: usize = 2_000;

/// The amount of work of a measurement.
struct Size {
    bulk: usize,
    process: usize,
    late: usize,
    /// The first and the last delay.
    delays: [Duration; 2],
    scheduled: usize,
    held_seconds: usize,
}

const FULL: Size = Size {
    bulk: 10_000,
    process: 20_000,
    late: 1_000,
    delays: [Duration::from_secs(1), Duration::from_secs(10)],
    scheduled: 100_000,
    held_seconds: 600,
};

const QUICK: Size = Size {
    late: 300,
    delays: [Duration::from_secs(1), Duration::from_secs(4)],
    scheduled: 20_000,
    held_seconds: 20,
    ..FULL
};

/// The jobs of `pending-10m`.
const PENDING: usize = 10_000_000;
/// A queue that looks at all pending jobs in each fetch takes a second per hundred jobs.
const BESIDE_PENDING: usize = 2_000;

/// Measures `program` with its arguments. Returns `None` if there is no such workload.
pub(crate) fn measure(
    workload: &str,
    budget: Duration,
    port: u16,
    program: &[&str],
) -> Option<Vec<Measurement>> {
    let size = if budget < Duration::from_millis(500) { QUICK } else { FULL };
    let connection = Connection::to(port, "postgres");
    create_database(&connection);
    let mut client = Client::start(program, port, DATABASE);
    if workload == "bytes" {
        return Some(vec![bytes(port, &mut client, size.scheduled)]);
    }
    let server = connection.postmaster();
    client.insert(WARM_UP, Duration::ZERO);
    client.process(WORKERS, WARM_UP);
    Some(match workload {
        "cpu-bulk" => bulk(&mut client, server, size.bulk),
        "process-50" => process(&mut client, server, size.process),
        "lateness" => lateness(&mut client, server, &size),
        "held-snapshot" => held_snapshot::measure(port, &mut client, server, size.held_seconds),
        "pending-10m" => vec![beside_pending(port, &mut client, server)],
        _ => return None,
    })
}

/// Runs a system of this program as a program that is measured, with the arguments of its command.
pub(crate) fn obey(system: &str, arguments: &[&str]) -> Result<(), String> {
    match (System::named(system), arguments) {
        (Some(system @ (Requeue | RequeuePolling)), &[url]) => {
            commands::obey(requeue::Requeue::open(url.to_owned(), system == Requeue));
            Ok(())
        }
        (Some(Pgmq), &[sql, url]) => {
            commands::obey(pgmq::Pgmq::open(url.to_owned(), sql.into()));
            Ok(())
        }
        _ => Err(format!("{system:?} with {arguments:?} is not a program for Postgres")),
    }
}

/// The versions of all systems that can be run.
pub(crate) fn versions(
    programs: &Programs,
    server: &PostgresServer,
) -> Result<BTreeMap<&'static str, String>, Error> {
    let connection = Connection::to(server.port(), "postgres");
    let mut versions = BTreeMap::from([("postgres", connection.value("show server_version"))]);
    for system in [Pgmq, GraphileWorker, River, PgBoss] {
        if let Some(program) = programs.postgres_client(system)? {
            create_database(&connection);
            let version = Client::start(&program, server.port(), DATABASE).version();
            versions.insert(system.name(), version);
        }
    }
    let shown: Vec<_> =
        versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    println!("with {}", shown.join(", "));
    Ok(versions)
}

/// Creates an empty database in place of that of the measurement before.
fn create_database(connection: &Connection) {
    connection.execute(&format!("drop database if exists {DATABASE} with (force)"));
    connection.execute(&format!("create database {DATABASE}"));
    // Otherwise the server would write the changes of before while it is measured.
    connection.execute("checkpoint");
}

/// CPU time of the server per job.
fn per_job(cpu: Duration, jobs: usize) -> Measurement {
    Measurement::ns(cpu.as_nanos() as f64 / jobs as f64)
}

fn bulk(client: &mut Client, server: Postmaster, count: usize) -> Vec<Measurement> {
    let before = server.cpu_time();
    client.insert(count, Duration::ZERO);
    let inserted = server.cpu_time();
    client.process(WORKERS, count);
    let processed = server.cpu_time();
    vec![
        per_job(processed - before, count),
        per_job(inserted - before, count).of("cpu-bulk-insert"),
        per_job(processed - inserted, count).of("cpu-bulk-process"),
    ]
}

fn process(client: &mut Client, server: Postmaster, count: usize) -> Vec<Measurement> {
    client.insert(count, Duration::ZERO);
    let before = server.cpu_time();
    let seconds = client.process(WORKERS, count);
    let cpu = server.cpu_time() - before;
    vec![Measurement::rate(count as f64 / seconds), per_job(cpu, count).of("process-50-cpu")]
}

fn lateness(client: &mut Client, server: Postmaster, size: &Size) -> Vec<Measurement> {
    let count = size.late;
    let before = server.cpu_time();
    let mut late = client.late(WORKERS, count, size.delays);
    let cpu = server.cpu_time() - before;
    late.sort_unstable();
    assert_eq!(late.len(), count, "not as many were run as were inserted");
    let early = late.iter().filter(|&&us| us < 0).count();
    // A job that is early has no delay.
    let ns = |i: usize| Measurement::ns(late[i].max(0) as f64 * 1e3);
    vec![
        ns(count / 2).of("lateness-p50"),
        ns(count * 99 / 100).of("lateness-p99"),
        Measurement::jobs(early as f64).of("lateness-early"),
        per_job(cpu, count).of("lateness-cpu"),
    ]
}

/// The size of all tables with their indexes, per scheduled job.
fn bytes(port: u16, client: &mut Client, scheduled: usize) -> Measurement {
    let connection = Connection::to(port, DATABASE);
    let size = || -> i64 {
        connection.value(
            "select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
             where relkind in ('r', 'm') and relnamespace not in
             (select oid from pg_namespace where nspname in ('pg_catalog', 'information_schema'))",
        )
    };
    // The program has created its tables.
    client.version();
    let before = size();
    client.insert(scheduled, HOUR);
    Measurement::bytes((size() - before) as f64 / scheduled as f64)
}

fn beside_pending(port: u16, client: &mut Client, server: Postmaster) -> Measurement {
    client.fill(PENDING);
    let connection = Connection::to(port, DATABASE);
    // Otherwise the server would do both while it is measured.
    connection.execute("vacuum analyze");
    connection.execute("checkpoint");
    let before = server.cpu_time();
    client.insert(BESIDE_PENDING, Duration::ZERO);
    client.process(WORKERS, BESIDE_PENDING);
    per_job(server.cpu_time() - before, BESIDE_PENDING)
}
