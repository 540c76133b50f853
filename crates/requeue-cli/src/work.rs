//! `work`: runs a shell command for each due job.
//!
//! ```text
//!   exit 0 ─────────────▶ ack
//!   exit 65 ────────────▶ bury: the job is invalid, and a retry would not help
//!   any other, a signal ─▶ retry, with the end of stderr as its error
//!   --timeout ──────────▶ SIGTERM, SIGKILL after 5 s, retry
//!   lease lost, cancelled ▶ SIGKILL: another worker may already run the job
//! ```

mod command;
mod report;

use crate::error::{CliError, Exit, Result};
use crate::open_files;
use crate::output::Output;
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

/// How long settling may take after all commands were killed. A job that is not settled by then is
/// claimed again when its lease expires.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of open files of the runtime and of a store.
const OWN_FILES: u64 = 256;

/// Number of open files per command: both ends of its stdin and stderr, and its process.
const FILES_PER_COMMAND: u64 = 5;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command runs with `sh -c`. It receives the body on stdin, and these
environment variables:
  REQUEUE_KIND, REQUEUE_ID      Kind and id of the job
  REQUEUE_CONTENT_TYPE          Media type of the body
  REQUEUE_GENERATION            Generation of the put that the job comes from
  REQUEUE_ATTEMPT               1 for the first attempt
  REQUEUE_PRIORITY              Priority of the job, 0 to 9
  REQUEUE_DUE                   Due time, in RFC 3339
  REQUEUE_RECEIPT               Receipt of the lease
It does not inherit REQUEUE_TOKEN, REQUEUE_TOKEN_FILE, REQUEUE_READ_TOKEN,
REQUEUE_STORE, REQUEUE_BRIDGE_FROM and REQUEUE_BRIDGE_TO. If it calls requeue
itself, use --token-file there.

The exit code of the command decides what happens to the job:
  0        The job is done.
  65       The job is dead, even if attempts are left (EX_DATAERR).
  other    The job is retried after its kind's backoff. Its error is the exit
           code and the end of stderr.

A job can run more than once, each time with the same kind, id and generation.
The lease is extended while the command runs. If the lease is lost or the job is
cancelled, the command is killed. Processes that the command leaves in its
process group are killed when it ends.

On SIGTERM, SIGINT or SIGHUP, no more jobs are claimed, and running commands get
--grace to finish. After that they receive SIGTERM, 5 seconds later SIGKILL, and
their jobs are retried. A second signal skips the grace period. The exit code is
0 if all commands finished by themselves, and 1 if some had to be stopped.

Examples:
  requeue work mail --exec ./send-mail --concurrency 4
  requeue work mail sms --exec 'jq -r .to' --timeout 30s")]
pub(crate) struct Args {
    /// Kind to run the command for
    #[arg(value_name = "KIND", required = true)]
    kinds: Vec<String>,
    /// Shell command to run for each job
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    exec: String,
    /// Maximum number of commands to run concurrently, up to 1000
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_BATCH as i64))]
    concurrency: u16,
    /// Maximum run time of a command, such as 30s [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    timeout: Option<Duration>,
    /// Time after which other workers take over if this worker dies
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    lease: Duration,
    /// Name of this worker [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// How long running commands may take to finish after SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    grace: Duration,
    /// Do not print a line for each job that is done
    #[arg(long, short)]
    quiet: bool,
}

/// Rejects an empty command. It would succeed and ack all jobs, for example if a variable is unset.
fn command(line: &str) -> Result<String, &'static str> {
    if line.trim().is_empty() { Err("the command is empty") } else { Ok(line.to_owned()) }
}

pub(crate) async fn work(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    // Before any job is claimed: from here on, a signal does not end the process.
    let mut signals = Signals::with_hangup()?;
    let jobs = Jobs::new(store_args.open(IfMissing::Fail).await?);
    tokio::select! {
        checked = check_access(&jobs, &args.kinds) => checked?,
        () = signals.next() => return Ok(()),
    }
    open_files::raise_limit(OWN_FILES + FILES_PER_COMMAND * u64::from(args.concurrency));
    let (stop, stopped) = watch::channel(Stop::No);
    let name = args.worker.clone().unwrap_or_else(worker_name);
    let report = Arc::new(Report::new(out, args.quiet));
    let running = start(&args, &name, &jobs, stopped, &report)?;
    report.started(&name, &args.kinds);
    signals.next().await;
    end(&args, running, &mut signals, &stop, &report).await
}

/// Fails if the store rejects a request, for example because the token is wrong. A server that is
/// not available yet is no error: the worker waits for it.
async fn check_access(jobs: &Jobs, kinds: &[String]) -> Result<()> {
    for kind in kinds.iter().take(1) {
        let settings = jobs.store().settings(Kind::new(kind.as_str())?).await;
        if let Err(error) = settings.map_err(CliError::from)
            && matches!(error.exit, Exit::Failed | Exit::Usage)
        {
            return Err(error);
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

/// Waits for running commands during the grace period, and then stops them.
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
    // An error means that no command runs any more.
    let _ = stop.send(Stop::Term);
    tokio::select! {
        () = running.join() => {}
        () = tokio::time::sleep(command::KILL_DELAY + SETTLE_TIMEOUT) => {}
        () = signals.next() => {
            let _ = stop.send(Stop::Kill);
            let _ = tokio::time::timeout(SETTLE_TIMEOUT, running.join()).await;
        }
    }
    report.abandoned(&running.jobs());
    Err(CliError::already_reported(Exit::Failed))
}

/// The default name of the worker: host name and process id.
fn worker_name() -> String {
    let uname = rustix::system::uname();
    let host: String = uname.nodename().to_string_lossy().chars().take(32).collect();
    format!("{host}-{}", std::process::id())
}
