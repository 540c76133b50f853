//! Measures in interleaved rounds, each measurement in its own process.
//!
//! A round runs the whole suite once, requeue and the other systems next to each other, so
//! that a noisy minute affects one round of everything instead of all rounds of one thing.

use crate::suite::Workload;
use crate::system::{Programs, System};
use requeue_bench::{Measurement, Unit};
use std::fmt;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much to measure.
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// The time per measurement, without warm-up and preparation.
    pub(crate) seconds: f64,
    /// The time for everything, including warm-up and preparation.
    pub(crate) limit: Option<Duration>,
}

impl Plan {
    pub(crate) const NORMAL: Plan = Plan { rounds: 7, seconds: 1.0, limit: None };
    /// Long enough for a store to write more than its log.
    pub(crate) const DISK: Plan = Plan { rounds: 3, seconds: 1.0, limit: None };
    /// Each measurement processes tens of thousands of jobs, regardless of the time it takes.
    pub(crate) const REDIS: Plan = Plan { rounds: 5, seconds: 1.0, limit: None };
    /// As many jobs as there are, too.
    pub(crate) const POSTGRES: Plan = Plan { rounds: 3, seconds: 1.0, limit: None };
    /// Jobs that are due after seconds, and a load over time, take longer than a minute.
    pub(crate) const POSTGRES_QUICK: Plan =
        Plan { limit: Some(Duration::from_secs(300)), ..Plan::QUICK };
    pub(crate) const HTTP: Plan = Plan { rounds: 5, seconds: 1.0, limit: None };
    /// Each measurement takes seconds, regardless of the time that it gets.
    pub(crate) const BRIDGE: Plan = Plan { rounds: 5, seconds: 1.0, limit: None };
    /// Messages are due after seconds.
    pub(crate) const BRIDGE_QUICK: Plan =
        Plan { limit: Some(Duration::from_secs(100)), ..Plan::QUICK };
    pub(crate) const QUICK: Plan =
        Plan { rounds: 3, seconds: 0.1, limit: Some(Duration::from_secs(60)) };
}

/// All measurements of one system on one workload, by round.
pub(crate) struct Series {
    pub(crate) workload: String,
    pub(crate) system: System,
    pub(crate) unit: Unit,
    pub(crate) runs: Vec<f64>,
}

/// The reason that there is no result.
#[derive(Debug)]
pub(crate) enum Error {
    OwnProgram(io::Error),
    Start { command: String, source: io::Error },
    Failed { command: String, status: String },
    Answer { command: String, answer: String },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OwnProgram(source) => write!(f, "could not find this program: {source}"),
            Error::Start { command, source } => write!(f, "could not start {command}: {source}"),
            Error::Failed { command, status } => write!(f, "{command} ended with {status}"),
            Error::Answer { command, answer } => {
                write!(f, "{command} printed {answer:?} instead of a measurement")
            }
        }
    }
}

/// Measures everything, and reports progress on standard error.
pub(crate) fn run(
    suite: &str,
    workloads: &[Workload],
    programs: &Programs,
    plan: &Plan,
) -> Result<Vec<Series>, Error> {
    let mut series: Vec<Series> = Vec::new();
    let started = Instant::now();
    let mut took = vec![Duration::ZERO; workloads.len()];
    let mut prepared = false;
    for round in 1..=plan.rounds {
        let mut left_out = 0;
        let of_round = workloads.iter().zip(&mut took);
        for (workload, took) in of_round.filter(|(workload, _)| round == 1 || !workload.once) {
            // The first round is always measured: without it there is no result.
            let end = started.elapsed() + *took;
            if round > 1 && plan.limit.is_some_and(|limit| end > limit) {
                left_out += 1;
                continue;
            }
            if workload.pending.is_some() && !prepared {
                prepare(workloads, programs)?;
                prepared = true;
            }
            let workload_started = Instant::now();
            let systems = workload.systems.iter().copied();
            for system in systems.filter(|&system| programs.can_run(system)) {
                let command = programs.command(suite, system, &workload.name, plan.seconds)?;
                programs.brokers.run_only(system);
                for answer in measure(command)? {
                    record(&mut series, workload, system, answer);
                }
            }
            *took = workload_started.elapsed().max(*took);
        }
        let (elapsed, rounds) = (started.elapsed().as_secs_f64(), plan.rounds);
        match left_out {
            0 => eprintln!("round {round} of {rounds} done after {elapsed:.1} s"),
            _ => eprintln!("round {round} of {rounds}: no time for {left_out} workloads"),
        }
    }
    let elapsed = started.elapsed();
    match plan.limit {
        Some(limit) if elapsed > limit => {
            eprintln!("measured for {elapsed:.1?}: this machine is too slow for {limit:?}");
        }
        Some(limit) => eprintln!("measured for {elapsed:.1?} of at most {limit:?}"),
        None => eprintln!("measured for {elapsed:.1?}"),
    }
    Ok(series)
}

/// Fills the queues of all workloads first: nothing is measured meanwhile.
fn prepare(workloads: &[Workload], programs: &Programs) -> Result<(), Error> {
    let mut wanted = Vec::new();
    for Workload { systems, pending, .. } in workloads {
        for &system in systems.iter().filter(|&&system| programs.can_run(system)) {
            let new = pending.map(|pending| (system, pending)).filter(|new| !wanted.contains(new));
            wanted.extend(new);
        }
    }
    let mut running = Vec::new();
    for (system, pending) in wanted {
        let mut command = programs.preparation(system, pending)?;
        let shown = format!("{command:?}");
        let child = command.spawn();
        running.push((
            child.map_err(|source| Error::Start { command: shown.clone(), source })?,
            shown,
        ));
    }
    let mut ended = Vec::new();
    for (mut child, command) in running {
        ended.push((child.wait().map_err(Error::OwnProgram)?, command));
    }
    match ended.into_iter().find(|(status, _)| !status.success()) {
        Some((status, command)) => Err(Error::Failed { command, status: status.to_string() }),
        None => Ok(()),
    }
}

fn record(series: &mut Vec<Series>, workload: &Workload, system: System, answer: Measurement) {
    let name = answer.workload.unwrap_or_else(|| workload.name.clone());
    let known = series.iter_mut().find(|s| s.workload == name && s.system == system);
    match known {
        Some(known) => known.runs.push(answer.value),
        None => series.push(Series {
            workload: name,
            system,
            unit: answer.unit,
            runs: vec![answer.value],
        }),
    }
}

fn measure(mut command: Command) -> Result<Vec<Measurement>, Error> {
    let shown = format!("{command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Error::Start { command: shown.clone(), source })?;
    if !output.status.success() {
        return Err(Error::Failed { command: shown, status: output.status.to_string() });
    }
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    match answers.collect::<Result<Vec<_>, _>>() {
        Ok(answers) if !answers.is_empty() => Ok(answers),
        _ => Err(Error::Answer {
            command: shown,
            answer: String::from_utf8_lossy(&output.stdout).into_owned(),
        }),
    }
}
