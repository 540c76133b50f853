//! `work`: a command for every job.
//!
//! ```text
//!   exit 0 ─────────────▶ ack
//!   exit 65 ────────────▶ bury: the job is no good, and trying again is of no use
//!   any other, a signal ─▶ retry, with the end of stderr as its error
//!   --timeout ──────────▶ SIGTERM, SIGKILL after 5 s, retry
//!   lease lost, cancelled ▶ SIGKILL: another may run it by now
//! ```

mod command;
mod report;

use crate::failure::{Exit, Failure, Result};
use crate::files;
use crate::out::Out;
use crate::signals::Signals;
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use command::{Command, Ended, Stop};
use report::Report;
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{BoxError, JobWorker, Jobs, Kind, Outcome, RunningJobs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long settling may take once everything is killed. What is not settled by then comes back
/// when its lease expires.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Of the runtime, and of a store.
const OWN_FILES: u64 = 256;

/// Its stdin and stderr, both ends while it is started, and its process.
const FILES_OF_A_COMMAND: u64 = 5;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command runs by `sh -c`, with the body on stdin and these in its environment:
  REQUEUE_KIND, REQUEUE_ID, REQUEUE_ATTEMPT, REQUEUE_GENERATION, REQUEUE_DUE (RFC 3339),
  REQUEUE_CONTENT_TYPE, REQUEUE_RECEIPT
A job may run more than once. (kind, id, generation) is the same each time; pass the receipt
on to what has to refuse a worker that was overtaken.

How the command ends decides:
  exit code 0   the job is done
  exit code 65  it is dead, whatever attempts are left (EX_DATAERR of sysexits.h)
  any other     it comes back as its kind's backoff says, with the end of stderr as its error
The lease is extended while the command runs. If it is lost, or the job is cancelled, the
command is killed. What the command leaves running in its process group is killed with it.

SIGTERM, SIGINT and SIGHUP: no more jobs are claimed, and commands that run get --grace to end.
Then they get SIGTERM, and 5 seconds later SIGKILL, and their jobs are retried: an attempt was
made. A second signal does that at once.

Exit codes: 0 if all commands ended by themselves, 1 if some had to be killed.")]
pub(crate) struct Args {
    /// Of these kinds
    #[arg(required = true)]
    kinds: Vec<String>,
    /// What to run for each job
    #[arg(long, value_name = "CMD", value_parser = command)]
    exec: String,
    /// How many to run at once
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_BATCH as i64))]
    concurrency: u16,
    /// How long a command may take [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    timeout: Option<Duration>,
    /// How soon others take over if this worker dies
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    lease: Duration,
    /// Who works, for those who ask who holds a job [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// How long commands may go on when the worker is told to stop
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    grace: Duration,
    /// Say nothing of jobs that went well
    #[arg(long, short)]
    quiet: bool,
}

/// One of nothing does nothing, and well: all jobs would be done, because a variable was not set.
fn command(line: &str) -> Result<String, &'static str> {
    if line.trim().is_empty() { Err("there is no command") } else { Ok(line.to_owned()) }
}

pub(crate) async fn work(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    // Before anything is claimed: from here on a signal does not end us.
    let mut signals = Signals::with_hangup()?;
    let jobs = Jobs::new(place.open(IfMissing::Refuse).await?);
    tokio::select! {
        done = look(&jobs, &args.kinds) => done?,
        () = signals.next() => return Ok(()),
    }
    files::allow(OWN_FILES + FILES_OF_A_COMMAND * u64::from(args.concurrency));
    let (stop, stopped) = watch::channel(Stop::No);
    let name = args.worker.clone().unwrap_or_else(worker_name);
    let report = Arc::new(Report::new(out, args.quiet));
    let running = start(&args, &name, &jobs, stopped, &report)?;
    report.started(&name, &args.kinds);
    signals.next().await;
    end(&args, running, &mut signals, &stop, &report).await
}

/// A server that is not there yet may come, but a token that it refuses stays refused.
async fn look(jobs: &Jobs, kinds: &[String]) -> Result<()> {
    for kind in kinds.iter().take(1) {
        let looked = jobs.store().settings(Kind::new(kind.as_str())?).await;
        if let Err(failure) = looked.map_err(Failure::from)
            && matches!(failure.exit, Exit::Refused | Exit::Usage)
        {
            return Err(failure);
        }
    }
    Ok(())
}

fn start(
    args: &Args,
    name: &str,
    jobs: &Jobs,
    stopped: watch::Receiver<Stop>,
    report: &Arc<Report>,
) -> Result<RunningJobs> {
    let kinds = args.kinds.iter().map(String::as_str);
    let worker = JobWorker::new(jobs, kinds, name)?
        .concurrency(args.concurrency.into())
        .lease(args.lease)?;
    let worker = {
        let (failed, lost, trouble) = (Arc::clone(report), Arc::clone(report), Arc::clone(report));
        worker
            .on_failure(move |failure| failed.failed(failure))
            .on_lost(move |job, error| lost.lost(job, error))
            .on_store_error(move |error| trouble.trouble(error))
    };
    let command = Arc::new(Command {
        line: args.exec.clone(),
        timeout: args.timeout,
        stdout_to_stderr: report.out.json,
        stopped,
    });
    let report = Arc::clone(report);
    Ok(worker.spawn(move |run| {
        let (command, report) = (Arc::clone(&command), Arc::clone(&report));
        async move {
            let (job, began) = (run.job, std::time::Instant::now());
            match command.run(&job).await? {
                Ended::Well => {
                    report.done(&job, began.elapsed());
                    Ok(Outcome::Done)
                }
                Ended::Failed(error) => Err(BoxError::from(error)),
                Ended::NoGood(error) => Ok(Outcome::give_up(error)),
            }
        }
    }))
}

/// Lets what runs end, then ends it.
async fn end(
    args: &Args,
    running: RunningJobs,
    signals: &mut Signals,
    stop: &watch::Sender<Stop>,
    report: &Report,
) -> Result<()> {
    report.stopping(&running.jobs(), args.grace);
    let left = tokio::select! {
        left = running.shut_down(args.grace) => left,
        () = signals.next() => running.jobs(),
    };
    if left.is_empty() {
        return Ok(());
    }
    report.killing(&left);
    // Nobody listens any more: then nothing runs.
    let _ = stop.send(Stop::Term);
    tokio::select! {
        () = running.join() => {}
        () = tokio::time::sleep(command::PATIENCE + LAST_WORDS) => {}
        () = signals.next() => {
            let _ = stop.send(Stop::Kill);
            let _ = tokio::time::timeout(LAST_WORDS, running.join()).await;
        }
    }
    report.abandoned(&running.jobs());
    Err(Failure::told_already(Exit::Refused))
}

/// This machine and process, for people who ask who holds a job.
fn worker_name() -> String {
    let uname = rustix::system::uname();
    let host: String = uname.nodename().to_string_lossy().chars().take(32).collect();
    format!("{host}-{}", std::process::id())
}
