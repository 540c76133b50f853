//! Measures in interleaved rounds, each measurement in a process of its own.
//!
//! A round goes once through the whole suite, ours and its peers side by side, so
//! that a noisy minute spoils one round of everything rather than all of one thing.

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
    /// Per measurement, warm-up and preparation aside.
    pub(crate) seconds: f64,
    /// For everything, warm-up and preparation included.
    pub(crate) limit: Option<Duration>,
}

impl Plan {
    pub(crate) const NORMAL: Plan = Plan { rounds: 7, seconds: 1.0, limit: None };
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

/// Why there is no result.
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
                write!(f, "{command} answered {answer:?} instead of a measurement")
            }
        }
    }
}

/// Measures everything; says on standard error how long it took.
pub(crate) fn run(
    suite: &str,
    workloads: &[Workload],
    programs: &Programs,
    plan: &Plan,
) -> Result<Vec<Series>, Error> {
    let mut series: Vec<Series> = Vec::new();
    let started = Instant::now();
    let mut longest = Duration::ZERO;
    'rounds: for round in 1..=plan.rounds {
        for workload in workloads.iter().filter(|workload| round == 1 || !workload.exact) {
            // The first round is measured in any case: without it there is no result.
            let end = started.elapsed() + longest;
            if round > 1 && plan.limit.is_some_and(|limit| end > limit) {
                eprintln!("no time for all of round {round} of {}", plan.rounds);
                break 'rounds;
            }
            let workload_started = Instant::now();
            let systems = workload.systems.iter().copied();
            for system in systems.filter(|&system| programs.can_run(system)) {
                let command = programs.command(suite, system, &workload.name, plan.seconds)?;
                record(&mut series, workload, system, measure(command)?);
            }
            longest = longest.max(workload_started.elapsed());
        }
        let elapsed = started.elapsed().as_secs_f64();
        eprintln!("round {round} of {} done after {elapsed:.1} s", plan.rounds);
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

fn record(series: &mut Vec<Series>, workload: &Workload, system: System, answer: Measurement) {
    let known = series.iter_mut().find(|s| s.workload == workload.name && s.system == system);
    match known {
        Some(known) => known.runs.push(answer.value),
        None => series.push(Series {
            workload: workload.name.clone(),
            system,
            unit: answer.unit,
            runs: vec![answer.value],
        }),
    }
}

fn measure(mut command: Command) -> Result<Measurement, Error> {
    let shown = format!("{command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| Error::Start { command: shown.clone(), source })?;
    if !output.status.success() {
        return Err(Error::Failed { command: shown, status: output.status.to_string() });
    }
    serde_json::from_slice(&output.stdout).map_err(|_| Error::Answer {
        command: shown,
        answer: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}
