//! Measures requeue and other systems on the same workloads. Started by `bench/run`.
//!
//! ```text
//!   run --suite core --out FILE …              the driver: starts one process per measurement
//!   measure SUITE SYSTEM WORKLOAD SECONDS …    one measurement
//!   prepare SYSTEM PENDING SCRATCH             creates a queue that measurements need on disk
//!   obey URL                                   requeue as a program that is measured on a Redis
//!   obey-postgres SYSTEM …                     a system as a program that is measured on a Postgres
//!   figures ROOT                               copies the figures of all results into documents
//! ```

mod driver;
mod figures;
mod report;
mod suite;
mod system;
mod workloads;

use driver::Plan;
use report::Origin;
use requeue_bench::Measurement;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use system::{Programs, System};
use workloads::bridge::{self, Broker, Brokers};
use workloads::{clients, http, postgres, redis};

const USAGE: &str = "usage:
  requeue-bench run --suite core|wheel|disk|redis|postgres|http|push|clients|bridge
                    --out FILE [--quick]
                    [--machine NAME] [--commit ID] [--profile NAME] [--scratch DIR]
                    [--go PROGRAM] [--kube PROGRAM] [--java CLASSES] [--beanstalkd]
                    [--requeue PROGRAM] [--faktory PROGRAM]
                    [--asynq PROGRAM] [--bullmq SCRIPT] [--apalis PROGRAM]
                    [--postgres FOLDER] [--pgmq FILE] [--river PROGRAM] [--node-postgres FOLDER]
                    [--clients PROGRAMS] [--rocketmq FOLDER]
  requeue-bench measure core|wheel SYSTEM WORKLOAD SECONDS
  requeue-bench measure disk SYSTEM WORKLOAD SECONDS [SCRATCH]
  requeue-bench measure redis|postgres SYSTEM WORKLOAD SECONDS PORT [PROGRAM …]
  requeue-bench measure http|push SYSTEM WORKLOAD SECONDS SCRATCH [PROGRAM]
  requeue-bench measure clients SYSTEM WORKLOAD SECONDS SCRATCH SERVER PROGRAMS
  requeue-bench measure bridge SYSTEM WORKLOAD SECONDS SCRATCH PORT PID [PROGRAM]
  requeue-bench prepare SYSTEM PENDING SCRATCH
  requeue-bench obey URL
  requeue-bench obey-postgres SYSTEM [FILE] URL
  requeue-bench figures ROOT";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = match args[..] {
        ["run", ref options @ ..] => run(options),
        ["measure", suite, system, workload, seconds, ref rest @ ..] => {
            measure(suite, system, workload, seconds, rest)
        }
        ["prepare", system, pending, scratch] => prepare(system, pending, scratch.into()),
        ["figures", root] => figures::update(Path::new(root)),
        ["obey", url] => {
            redis::obey(url);
            Ok(())
        }
        ["obey-postgres", system, ref arguments @ ..] => postgres::obey(system, arguments),
        _ => Err(USAGE.to_owned()),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn named(system: &str) -> Result<System, String> {
    System::named(system).ok_or_else(|| format!("unknown system {system:?}"))
}

fn measure(
    suite: &str,
    system: &str,
    workload: &str,
    seconds: &str,
    rest: &[&str],
) -> Result<(), String> {
    let seconds: f64 = number("seconds", seconds)?;
    let budget = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
    let system = named(system)?;
    let measurements = match (suite, rest) {
        ("disk", []) => workloads::disk::measure(system, workload, budget, None),
        ("disk", [scratch]) => {
            workloads::disk::measure(system, workload, budget, Some(scratch.into()))
        }
        ("redis", [port, program @ ..]) => {
            redis::measure(system, workload, budget, number("port", port)?, program)
        }
        ("postgres", [port, program @ ..]) if !program.is_empty() => {
            postgres::measure(workload, budget, number("port", port)?, program)
        }
        ("http" | "push", [scratch, program @ ..]) => {
            let program = program.first().map(Path::new);
            http::measure(system, workload, budget, scratch.into(), program)
        }
        ("clients", [scratch, server, programs]) => {
            let (server, programs) = (Path::new(server), Path::new(programs));
            clients::measure(system, workload, budget, scratch.into(), server, programs)
        }
        ("bridge", [scratch, port, pid, program @ ..]) => {
            let broker = Broker { port: number("port", port)?, pid: number("process id", pid)? };
            let program = program.first().map(Path::new);
            bridge::measure(system, workload, budget, scratch.into(), broker, program)
        }
        ("core" | "wheel", []) => {
            workloads::measure(suite, system, workload, budget).map(|answer| vec![answer])
        }
        _ => return Err(USAGE.to_owned()),
    };
    let measurements = measurements
        .ok_or_else(|| format!("{} does not do {workload:?} of suite {suite:?}", system.name()))?;
    measurements.iter().for_each(Measurement::print);
    Ok(())
}

fn number<T: FromStr<Err: Display>>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{what} {text:?}: {error}"))
}

fn prepare(system: &str, pending: &str, scratch: PathBuf) -> Result<(), String> {
    let system = named(system)?;
    workloads::disk::prepare(system, number("pending", pending)?, scratch)
        .ok_or_else(|| format!("{} is not on disk", system.name()))
}

struct Options {
    suite: String,
    out: PathBuf,
    quick: bool,
    machine: String,
    commit: String,
    profile: String,
    programs: Programs,
}

fn options(args: &[&str]) -> Result<Options, String> {
    let (mut suite, mut out, mut quick) = (None, None, false);
    let (mut machine, mut commit) = ("unknown".to_owned(), "unknown".to_owned());
    let mut profile = "unknown".to_owned();
    let mut programs = Programs::default();
    let mut args = args.iter();
    while let Some(&name) = args.next() {
        if name == "--quick" {
            quick = true;
            continue;
        }
        if name == "--beanstalkd" {
            programs.beanstalkd = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        match name {
            "--suite" => suite = Some((*value).to_owned()),
            "--out" => out = Some(PathBuf::from(value)),
            "--machine" => machine = (*value).to_owned(),
            "--commit" => commit = (*value).to_owned(),
            "--profile" => profile = (*value).to_owned(),
            "--go" => programs.go = Some(PathBuf::from(value)),
            "--kube" => programs.kube = Some(PathBuf::from(value)),
            "--scratch" => programs.scratch = Some(PathBuf::from(value)),
            "--java" => programs.java = Some(PathBuf::from(value)),
            "--requeue" => programs.requeue = Some(PathBuf::from(value)),
            "--faktory" => programs.faktory = Some(PathBuf::from(value)),
            "--asynq" => programs.asynq = Some(PathBuf::from(value)),
            "--bullmq" => programs.bullmq = Some(PathBuf::from(value)),
            "--postgres" => programs.postgres_bin = Some(PathBuf::from(value)),
            "--pgmq" => programs.pgmq = Some(PathBuf::from(value)),
            "--river" => programs.river = Some(PathBuf::from(value)),
            "--node-postgres" => programs.node_postgres = Some(PathBuf::from(value)),
            "--clients" => programs.clients = Some(PathBuf::from(value)),
            "--rocketmq" => programs.rocketmq = Some(PathBuf::from(value)),
            "--apalis" => programs.apalis = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown option {name}\n{USAGE}")),
        }
    }
    let (suite, out) = suite.zip(out).ok_or(USAGE)?;
    Ok(Options { suite, out, quick, machine, commit, profile, programs })
}

fn run(args: &[&str]) -> Result<(), String> {
    let Options { suite, out, quick, machine, commit, profile, mut programs } = options(args)?;
    let mut workloads = suite::workloads(&suite, quick).ok_or_else(|| {
        format!("unknown suite {suite:?}: there are core, wheel, disk, redis, postgres, http, push, clients and \
             bridge")
    })?;
    let plan = match (quick, suite.as_str()) {
        (true, "postgres") => Plan::POSTGRES_QUICK,
        (true, "bridge") => Plan::BRIDGE_QUICK,
        (true, _) => Plan::QUICK,
        // Preparing ten million timers takes a while.
        (false, "wheel") => Plan { rounds: 3, ..Plan::NORMAL },
        (false, "disk") => Plan::DISK,
        (false, "redis" | "clients") => Plan::REDIS,
        (false, "postgres") => Plan::POSTGRES,
        (false, "bridge") => Plan::BRIDGE,
        (false, "http" | "push") => Plan::HTTP,
        (false, _) => Plan::NORMAL,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{suite} on {machine}, {cores} cores, commit {commit}, profile {profile}");
    // They live until all measurements are done.
    let (mut _redis, mut _postgres) = (None, None);
    let mut versions = BTreeMap::new();
    if suite == "redis" {
        let server = redis::server();
        programs.redis = Some(server.port());
        versions = redis::versions(&programs, &server).map_err(|error| error.to_string())?;
        _redis = Some(server);
    }
    if suite == "postgres" {
        let bin = programs.postgres_bin.as_deref().ok_or("postgres needs --postgres")?;
        let server = postgres::server(bin);
        programs.postgres = Some(server.port());
        versions = postgres::versions(&programs, &server).map_err(|error| error.to_string())?;
        _postgres = Some(server);
    }
    if suite == "clients" {
        workloads.retain(|workload| programs.has_client(&workload.name));
    }
    if suite == "bridge" {
        programs.brokers = Brokers::start(programs.rocketmq.as_deref());
        versions = programs.brokers.versions(programs.rocketmq.as_deref());
    }
    if suite == "http" {
        versions = http::versions(&programs);
    }
    let series =
        driver::run(&suite, &workloads, &programs, &plan).map_err(|error| error.to_string())?;
    report::print(&series);
    let origin = Origin { suite, machine, cores, commit, profile, quick, versions };
    report::write(&out, &origin, &series)
        .map_err(|error| format!("could not write {}: {error}", out.display()))
}
