//! The workers of the clients in other languages, compared with job queues of those languages.
//!
//! A program per language puts empty jobs, starts a worker whose handler does nothing, and reports
//! how long the worker took. All systems have the same durability: they store their jobs in a Redis
//! that syncs its log every second. `requeue-disk` is more durable: its server syncs before it responds.

use super::http::Server;
use super::place::Place;
use super::redis;
use crate::system::System::{self, *};
use requeue_bench::Measurement;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the program of a language prints.
#[derive(Deserialize)]
struct Drained {
    jobs: f64,
    /// From the first job that was started to the last one that was removed.
    seconds: f64,
    /// CPU time of the worker, with all of its processes.
    cpu_seconds: f64,
}

/// Returns the number of jobs: the worker takes some seconds.
fn jobs(system: System, is_quick: bool) -> usize {
    let jobs = match system {
        Rq => 2_000,
        Celery | Dramatiq => 5_000,
        _ => 20_000,
    };
    if is_quick { jobs / 10 } else { jobs }
}

/// `server` is requeue, and `programs` the folder with a program for each language. Returns `None` if
/// the program failed.
pub(crate) fn measure(
    system: System,
    workload: &str,
    budget: Duration,
    scratch: PathBuf,
    server: &Path,
    programs: &Path,
) -> Option<Vec<Measurement>> {
    let place = Place::new(Some(scratch));
    let redis = redis::server();
    let redis_url = format!("redis://127.0.0.1:{}/0", redis.port());
    let name = match system {
        RequeueOnDisk => Requeue.name(),
        other => other.name(),
    };
    let jobs = jobs(system, budget < Duration::from_millis(500));
    let (language, concurrency) = workload.split_once('-')?;
    let mut command = Command::new(programs.join(language));
    command.args(["--system", name, "--jobs", &jobs.to_string(), "--concurrency", concurrency]);
    command.env("REDIS_URL", &redis_url);
    let ours = matches!(system, Requeue | RequeueThreads | RequeueOnDisk).then(|| {
        Server::start(&place, |port, dir| {
            let mut command = Command::new(server);
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
            match system {
                RequeueOnDisk => command.arg("--data").arg(dir.join("data")),
                _ => command.arg("--store").arg(&redis_url),
            };
            command
        })
    });
    if let Some(server) = &ours {
        command.env("REQUEUE_SERVER", format!("http://{}", server.address()));
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
    let last = output.stdout.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty())?;
    let drained: Drained = serde_json::from_slice(last).ok()?;
    let cpu = Measurement::ns(drained.cpu_seconds / drained.jobs * 1e9);
    Some(vec![Measurement::rate(drained.jobs / drained.seconds), cpu.of(format!("{workload}-cpu"))])
}
