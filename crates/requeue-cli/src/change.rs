//! `cancel`, `revive` and `run-now`: change jobs by kind and id, or all that match.

use crate::args::word;
use crate::bulk::BulkStore;
use crate::confirm::Confirmation;
use crate::error::{CliError, Exit, Result};
use crate::format::JobResult;
use crate::job_name;
use crate::output::{Output, count, escape};
use crate::store_args::{IfMissing, StoreArgs};
use requeue_http::wire::{BulkChangeResult, BulkVerb, ChangeDone, JobFilter, StateJson, Word};
use requeue_jobs::limits::{MAX_BATCH, MAX_PRIORITY};
use requeue_jobs::{Change, Kind};

pub(crate) const CANCEL_HELP: &str = "\
A leased job is removed when its lease ends. Its worker learns of that when it
extends the lease.

With --all, the command asks for confirmation. Without a terminal, it needs
--yes, and otherwise changes nothing.

Examples:
  requeue cancel mail order-42
  requeue cancel mail/order-42 sms/order-42
  requeue cancel mail --all --state waiting --prefix order- --dry-run";

pub(crate) const REVIVE_HELP: &str = "\
With --all, the command asks for confirmation. Without a terminal, it needs
--yes, and otherwise changes nothing.

Examples:
  requeue revive mail order-42
  requeue revive mail --all --error 'connection refused'
  requeue revive mail --all --error-group 'order 4711 not found' --yes";

pub(crate) const RUN_NOW_HELP: &str = "\
Of a leased job, the put that came during the lease is made due now. If there
is none, the command fails.

With --all, the command asks for confirmation. Without a terminal, it needs
--yes, and otherwise changes nothing.

Examples:
  requeue run-now mail order-42
  requeue run-now mail --all --dry-run";

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
    #[arg(long, value_parser = word::<StateJson>(), requires = "all")]
    state: Option<StateJson>,
    /// With --all, only select jobs whose id begins with PREFIX
    #[arg(long, requires = "all")]
    prefix: Option<String>,
    /// With --all, only select jobs whose last error contains TEXT, in upper or lower case
    #[arg(long, value_name = "TEXT", requires = "all")]
    error: Option<String>,
    /// With --all, only select jobs whose last error is TEXT, apart from numbers and ids
    #[arg(long, value_name = "TEXT", requires = "all")]
    error_group: Option<String>,
    /// With --all, only select jobs of this priority, 0 to 9
    #[arg(long, value_name = "N", requires = "all")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl Args {
    /// Which jobs `--all` selects.
    fn filter(&self, verb: BulkVerb) -> JobFilter {
        let state = self.state.or(match verb {
            BulkVerb::Revive => Some(StateJson::Dead),
            BulkVerb::RunNow => Some(StateJson::Waiting),
            BulkVerb::Cancel => None,
        });
        JobFilter {
            state,
            prefix: self.prefix.clone(),
            priority: self.priority,
            error: self.error.clone(),
            error_group: self.error_group.clone(),
            ..JobFilter::default()
        }
    }
}

pub(crate) async fn change(
    args: Args,
    verb: BulkVerb,
    store_args: &StoreArgs,
    out: Output,
) -> Result<()> {
    if args.all {
        return change_all(&args, verb, store_args, out).await;
    }
    if args.confirmation.yes || args.confirmation.dry_run {
        return Err(CliError::usage("--yes and --dry-run need --all"));
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
            action: verb.into(),
        });
        let results = store.change(changes.collect()).await?;
        for ((kind, id), result) in names.iter().zip(results) {
            match result {
                Ok(changed) => {
                    let done = ChangeDone::from(changed);
                    out.print(
                        || JobResult { kind: kind.as_str(), id: id.as_str(), done },
                        || {
                            let (result, id) = (done.result.name(), escape(id.as_str()));
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

/// Changes all jobs that match. A job that no longer allows the change when its turn comes is left as it
/// is and counted as failed.
async fn change_all(
    args: &Args,
    verb: BulkVerb,
    store_args: &StoreArgs,
    out: Output,
) -> Result<()> {
    let kind = Kind::new(args.kind.as_str())?;
    args.confirmation.check("--all changes many jobs")?;
    let (store, filter) = (BulkStore::open(store_args).await?, args.filter(verb));
    let mut done = BulkChangeResult::default();
    if args.confirmation.needs_count() {
        done.matched = store.count(&kind, &filter).await?;
    }
    let jobs = |matched: u64| format!("{} of kind {kind}", count(matched, "job"));
    if args.confirmation.dry_run {
        return out.print(
            || summary(&done, true),
            || format!("would {}", what(verb, &jobs(done.matched))),
        );
    }
    if args.confirmation.yes || done.matched > 0 {
        args.confirmation.ask(&capitalized(&what(verb, &jobs(done.matched))))?;
        done = store.change(&kind, verb, &filter).await?;
    }
    out.print(
        || summary(&done, false),
        || match done.failed {
            0 => format!("changed {} of {}", done.changed, jobs(done.matched)),
            failed => format!(
                "changed {} of {}; {failed} could not be changed: leased, or changed meanwhile",
                done.changed,
                jobs(done.matched)
            ),
        },
    )
}

fn what(verb: BulkVerb, jobs: &str) -> String {
    match verb {
        BulkVerb::Cancel => format!("cancel {jobs}"),
        BulkVerb::Revive => format!("revive {jobs}"),
        BulkVerb::RunNow => format!("make {jobs} due now"),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).chain(['?']).collect()
}

/// The JSON output.
fn summary(done: &BulkChangeResult, dry_run: bool) -> serde_json::Value {
    let BulkChangeResult { matched, changed, failed, .. } = done;
    let mut json = serde_json::json!({ "matched": matched, "changed": changed, "failed": failed });
    if dry_run {
        json["dry_run"] = true.into();
    }
    json
}
