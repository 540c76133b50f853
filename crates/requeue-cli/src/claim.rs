//! `claim`: takes jobs, for whoever settles them by their receipts.

use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, Table, note, plain};
use crate::store_args::{IfMissing, StoreArgs};
use crate::{shown, times};
use requeue_http::wire::ClaimedView;
use requeue_jobs::Jobs;
use requeue_jobs::limits::MAX_BATCH;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A receipt is proof of the lease: hand it to ack, retry, release, extend or bury before the
lease ends. To run a command for every job, `requeue work` does all that by itself.")]
pub(crate) struct Args {
    /// Of these kinds
    #[arg(required = true)]
    kinds: Vec<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=MAX_BATCH as i64))]
    max: u16,
    /// For how long [default: as the settings of each kind say]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
    /// Wait so long for something to claim
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    wait: Option<Duration>,
    /// Who claims, for those who ask who holds a job [default: cli-PID]
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
}

pub(crate) async fn claim(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    let jobs = Jobs::new(place.open(IfMissing::Refuse).await?);
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
            out.json(&ClaimedView::from(job.clone()))?;
            continue;
        }
        table.row([
            plain(&job.receipt.to_string()),
            job.attempt.to_string(),
            times::relative(job.due, now),
            times::relative(job.lease_ends_at, now),
            shown::body_cell(&job.body),
        ]);
    }
    if !out.json && !claimed.jobs.is_empty() {
        out.line(&table.shown())?;
    }
    let exits = claimed.errors.into_iter().map(|(kind, error)| {
        note(&format!("kind {kind}:"));
        out.fail(error)
    });
    match exits.reduce(Exit::worse) {
        Some(exit) => Err(Failure::told_already(exit)),
        None if claimed.jobs.is_empty() => {
            let hint = "--wait 30s waits for something";
            let failure = Failure::new(Exit::Nothing, "there is nothing to claim");
            Err(if args.wait.is_none() { failure.hint(hint) } else { failure })
        }
        None => Ok(()),
    }
}
