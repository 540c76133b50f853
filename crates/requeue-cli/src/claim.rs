//! `claim`: claims jobs and prints their receipts.

use crate::error::{CliError, Exit, Result};
use crate::output::{Output, Table, escape, print_note};
use crate::store_args::{IfMissing, StoreArgs};
use crate::{format, times};
use requeue_http::wire::ClaimedView;
use requeue_jobs::Jobs;
use requeue_jobs::limits::MAX_BATCH;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A receipt identifies the lease of a job. Pass it to ack, retry, release, extend
or bury before the lease expires; after that, another worker can claim the job.
To run a command for each job, use `requeue work`, which does all of this.

If there is no job to claim, the command exits with 3.

Examples:
  requeue claim mail --lease 5m
  requeue claim mail sms --max 10 --wait 30s --json")]
pub(crate) struct Args {
    /// Kind to claim jobs of
    #[arg(value_name = "KIND", required = true)]
    kinds: Vec<String>,
    /// Maximum number of jobs to claim, up to 1000
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_BATCH as i64))]
    max: u16,
    /// Length of the lease, such as 90s or 10m [default: the kind's lease]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
    /// How long to wait for a job to become due [default: do not wait]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    wait: Option<Duration>,
    /// Name of the worker that holds the jobs [default: cli-PID]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
}

pub(crate) async fn claim(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let jobs = Jobs::new(store_args.open(IfMissing::Fail).await?);
    let worker = args.worker.unwrap_or_else(|| format!("cli-{}", std::process::id()));
    let mut claim = jobs.claim(args.kinds.iter().map(String::as_str), &worker).max(args.max.into());
    if let Some(lease) = args.lease {
        claim = claim.lease(lease);
    }
    let claimed = claim.wait(args.wait.unwrap_or_default()).await?;
    let now = times::now();
    let mut table = Table::new(&["RECEIPT", "#ATTEMPT", "DUE", "LEASE ENDS", "BODY"]);
    for job in &claimed.jobs {
        if out.json {
            out.print_json(&ClaimedView::from(job))?;
            continue;
        }
        table.row([
            escape(&job.receipt.to_string()),
            job.attempt.to_string(),
            times::relative(job.version.due, now),
            times::relative(job.lease_ends_at, now),
            format::body_cell(job.body()),
        ]);
    }
    if !out.json && !claimed.jobs.is_empty() {
        out.print_line(table.to_text())?;
    }
    let exits = claimed.errors.into_iter().map(|(kind, error)| {
        print_note(&format!("kind {kind}:"));
        out.print_error(error)
    });
    match exits.reduce(Exit::worse) {
        Some(exit) => Err(CliError::already_reported(exit)),
        None if claimed.jobs.is_empty() => {
            let hint = "to wait for a job: --wait 30s";
            let failure = CliError::new(Exit::NotFound, "there is no job to claim");
            Err(if args.wait.is_none() { failure.hint(hint) } else { failure })
        }
        None => Ok(()),
    }
}
