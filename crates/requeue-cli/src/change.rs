//! `cancel`, `revive` and `run-now`: change jobs by kind and id.

use crate::error::{CliError, Exit, Result};
use crate::format::{self, JobResult};
use crate::inspect::StateName;
use crate::job_name;
use crate::output::{Output, count, escape};
use crate::store_args::{IfMissing, StoreArgs};
use requeue_http::error_group;
use requeue_http::wire::ChangeDone;
use requeue_jobs::limits::{MAX_BATCH, MAX_PRIORITY};
use requeue_jobs::{Change, ChangeError, ChangeKind, JobState, JobView, Kind, Query, Store};

pub(crate) const CANCEL_HELP: &str = "\
A leased job is removed when its lease ends. Its worker learns of that when it
extends the lease.

Examples:
  requeue cancel mail order-42
  requeue cancel mail/order-42 sms/order-42
  requeue cancel mail --all --state waiting --prefix order-";

pub(crate) const REVIVE_HELP: &str = "\
Examples:
  requeue revive mail order-42
  requeue revive mail --all --error 'connection refused'
  requeue revive mail --all --error-group 'order 4711 not found'";

pub(crate) const RUN_NOW_HELP: &str = "\
Of a leased job, the put that came during the lease is made due now. If there
is none, the command fails.

Examples:
  requeue run-now mail order-42
  requeue run-now mail --all";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind of the jobs, or KIND/ID of a job
    kind: String,
    /// Id of a job
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Select all jobs of the kind; `revive` only dead, `run-now` only waiting ones
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// With --all, only select jobs in this state
    #[arg(long, value_enum, requires = "all")]
    state: Option<StateName>,
    /// With --all, only select jobs whose id begins with PREFIX
    #[arg(long, default_value = "", hide_default_value = true, requires = "all")]
    prefix: String,
    /// With --all, only select jobs whose last error contains TEXT
    #[arg(long, value_name = "TEXT", requires = "all")]
    error: Option<String>,
    /// With --all, only select jobs whose last error is TEXT, apart from numbers and ids
    #[arg(long, value_name = "TEXT", requires = "all")]
    error_group: Option<String>,
    /// With --all, only select jobs of this priority, 0 to 9
    #[arg(long, value_name = "N", requires = "all")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
}

impl Args {
    /// Returns whether a job matches the options by which stores do not filter.
    fn matches(&self, job: &JobView) -> bool {
        let error = job.failures.last().and_then(|failure| failure.error.as_deref());
        let contains = |text: &String| error.is_some_and(|error| error.contains(text));
        let is_like =
            |text: &String| error.is_some_and(|error| error_group(error) == error_group(text));
        self.priority.is_none_or(|level| job.priority.get() == level)
            && self.error.as_ref().is_none_or(contains)
            && self.error_group.as_ref().is_none_or(is_like)
    }
}

pub(crate) async fn change(
    args: Args,
    action: ChangeKind,
    store_args: &StoreArgs,
    out: Output,
) -> Result<()> {
    if args.all {
        let kind = Kind::new(args.kind.as_str())?;
        let store = store_args.open(IfMissing::Fail).await?;
        return change_all(&*store, kind, args, action, out).await;
    }
    if args.ids.is_empty() && !args.kind.contains('/') {
        return Err(CliError::usage(
            "the ids are missing: write <KIND> <ID>…, <KIND>/<ID>…, or --all",
        ));
    }
    let names = job_name::several(args.kind, args.ids)?;
    let store = store_args.open(IfMissing::Fail).await?;
    let mut worst: Option<Exit> = None;
    for names in names.chunks(MAX_BATCH) {
        let changes = names.iter().map(|(kind, id)| Change {
            kind: kind.clone(),
            id: id.clone(),
            action: action.clone(),
        });
        let results = store.change(changes.collect()).await?;
        for ((kind, id), result) in names.iter().zip(results) {
            match result {
                Ok(changed) => {
                    let done = ChangeDone::from(changed);
                    out.print(
                        || JobResult { kind: kind.as_str(), id: id.as_str(), done },
                        || {
                            let (result, id) =
                                (format::wire_name(done.result), escape(id.as_str()));
                            format!("{result} {kind}/{id}")
                        },
                    )?;
                }
                Err(error) => {
                    let exit = out.print_error(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
            }
        }
    }
    worst.map_or(Ok(()), |exit| Err(CliError::already_reported(exit)))
}

/// Changes all jobs that match, page by page. A job that no longer allows the change when its turn
/// comes is left as it is and counted as failed.
async fn change_all(
    store: &dyn Store,
    kind: Kind,
    args: Args,
    action: ChangeKind,
    out: Output,
) -> Result<()> {
    let state = args.state.map(JobState::from).or(match action {
        ChangeKind::Revive => Some(JobState::Dead),
        ChangeKind::RunNow => Some(JobState::Waiting),
        ChangeKind::Cancel | ChangeKind::Reschedule(_) => None,
    });
    let (mut matched, mut changed, mut failed) = (0u64, 0u64, 0u64);
    let mut worst: Option<Exit> = None;
    let prefix = args.prefix.clone();
    let mut query = Query { state, prefix, limit: MAX_BATCH, ..Query::new(kind.clone()) };
    loop {
        let page = store.list(query.clone()).await?;
        let of = |job: &JobView| Change {
            kind: kind.clone(),
            id: job.id.clone(),
            action: action.clone(),
        };
        let changes: Vec<Change> =
            page.jobs.iter().filter(|job| args.matches(job)).map(of).collect();
        matched += changes.len() as u64;
        for result in store.change(changes).await? {
            match result {
                Ok(_) => changed += 1,
                Err(ChangeError::Store(error)) => {
                    failed += 1;
                    let exit = out.print_error(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
                Err(_) => failed += 1,
            }
        }
        let Some(cursor) = page.cursor else { break };
        query.after = Some(cursor);
    }
    out.print(
        || serde_json::json!({ "matched": matched, "changed": changed, "failed": failed }),
        || format!("changed {changed} of {} of kind {kind}", count(matched, "job")),
    )?;
    worst.map_or(Ok(()), |exit| Err(CliError::already_reported(exit)))
}
