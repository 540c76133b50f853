//! Jobs over HTTP: the service on disk, compared with its store without HTTP, beanstalkd and Faktory.

mod beanstalkd;
mod faktory;
mod in_process;
mod job;
mod load;
mod ours;
mod push;
mod server;
mod waiting;

use super::place::Place;
use super::usage;
use crate::system::Programs;
use crate::system::System::{self, *};
use in_process::InProcess;
use load::{Caller, Shape};
use requeue_bench::Measurement;
pub(super) use server::{Server, free_address};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use waiting::Words;

/// `program` is the server of `system`, if it is not an installed one. Returns `None` if it has
/// no such workload.
pub(crate) fn measure(
    system: System,
    workload: &str,
    budget: Duration,
    scratch: PathBuf,
    program: Option<&Path>,
) -> Option<Vec<Measurement>> {
    let place = Place::new(Some(scratch));
    // Syncs the removed files of the measurement before, so that this one does not.
    rustix::fs::sync();
    if workload.starts_with("push") || workload == "schedules" {
        return push::measure(workload, budget, &place, program?);
    }
    if workload == "waiting-10k" {
        return wait(system, budget, &place, program);
    }
    let shape = Shape::named(workload)?;
    if system == RequeueInProcess {
        let dir = place.fresh("store");
        let jobs = in_process::open(&dir);
        let callers = (0..shape.callers).map(|number| InProcess::new(&jobs, number)).collect();
        // Also that of callers, which commit on their own threads, and whose threads end.
        return Some(shape.measure(workload, callers, budget, usage::own_cpu_time));
    }
    let server = start(system, &place, program)?;
    let callers = (0..shape.callers).map(|number| connect(system, &server, number)).collect();
    Some(shape.measure(workload, callers, budget, || server.cpu_time()))
}

/// The versions of the systems that are not built here.
pub(crate) fn versions(programs: &Programs) -> BTreeMap<&'static str, String> {
    let first_line = |program: &Path, option: &str| {
        let output = Command::new(program).arg(option).output().ok()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Some(said.lines().next()?.to_owned())
    };
    let beanstalkd = programs.beanstalkd.then_some(Path::new("beanstalkd"));
    let faktory = programs.faktory.as_deref();
    let redis = faktory.map(|_| Path::new("redis-server"));
    [("beanstalkd", beanstalkd, "-v"), ("faktory", faktory, "-v"), ("redis-server", redis, "-v")]
        .into_iter()
        .filter_map(|(name, program, option)| Some((name, first_line(program?, option)?)))
        .collect()
}

fn start(system: System, place: &Place, program: Option<&Path>) -> Option<Server> {
    Some(match system {
        Requeue => ours::start(program?, place),
        Beanstalkd => beanstalkd::start(place),
        Faktory => faktory::start(program?, place),
        _ => return None,
    })
}

fn connect(system: System, server: &Server, number: usize) -> Box<dyn Caller> {
    let stream = server.connect();
    match system {
        Beanstalkd => Box::new(super::beanstalkd::Connection::new(stream)),
        Faktory => Box::new(faktory::Connection::new(stream, number)),
        _ => Box::new(ours::Connection::new(stream)),
    }
}

fn wait(
    system: System,
    budget: Duration,
    place: &Place,
    program: Option<&Path>,
) -> Option<Vec<Measurement>> {
    let words = match system {
        Requeue => Words { wait: ours::WAIT, got: ours::RECEIPT },
        Beanstalkd => Words { wait: beanstalkd::WAIT, got: beanstalkd::RESERVED },
        _ => return None,
    };
    let server = start(system, place, program)?;
    let putter = connect(system, &server, 0);
    Some(waiting::measure(&server, words, putter, budget))
}
