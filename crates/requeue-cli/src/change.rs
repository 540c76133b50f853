//! `cancel`, `revive` and `run-now`: jobs by their names, whoever holds them.

use crate::ask::StateName;
use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, plain};
use crate::shown::{self, OfJob};
use crate::store_args::{IfMissing, StoreArgs};
use requeue_http::wire::ChangeDone;
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{Change, ChangeError, ChangeKind, JobId, JobState, JobView, Kind, Query, Store};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Their kind
    kind: String,
    /// Their ids
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,
    /// All jobs of the kind; `revive` means the dead ones, `run-now` those that wait
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// With --all: only those in this state
    #[arg(long, value_enum, requires = "all")]
    state: Option<StateName>,
    /// With --all: only those whose id begins with this
    #[arg(long, default_value = "", hide_default_value = true, requires = "all")]
    prefix: String,
    /// With --all: only those whose latest error has this text in it
    #[arg(long, value_name = "TEXT", requires = "all")]
    error: Option<String>,
}

pub(crate) async fn change(
    args: Args,
    action: ChangeKind,
    place: &StoreArgs,
    out: Out,
) -> Result<()> {
    let kind = Kind::new(args.kind.as_str())?;
    if args.all {
        let store = place.open(IfMissing::Refuse).await?;
        return change_all(&*store, kind, args, action, out).await;
    }
    let ids = args.ids.into_iter().map(JobId::new).collect::<Result<Vec<_>, _>>()?;
    let store = place.open(IfMissing::Refuse).await?;
    let mut worst: Option<Exit> = None;
    for ids in ids.chunks(MAX_BATCH) {
        let of = |id: &JobId| Change { kind: kind.clone(), id: id.clone(), action };
        let answers = store.change(ids.iter().map(of).collect()).await?;
        for (id, answer) in ids.iter().zip(answers) {
            match answer {
                Ok(changed) => {
                    let done = ChangeDone::from(changed);
                    out.say(
                        || OfJob { kind: kind.as_str(), id: id.as_str(), done },
                        || {
                            let (result, id) = (shown::word(done.result), plain(id.as_str()));
                            format!("{result} {kind}/{id}")
                        },
                    )?;
                }
                Err(error) => {
                    let exit = out.fail(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
            }
        }
    }
    worst.map_or(Ok(()), |exit| Err(Failure::told_already(exit)))
}

/// Changes all that match, page by page. A job that changed on its way is left as it is: it is
/// not what was meant any more.
async fn change_all(
    store: &dyn Store,
    kind: Kind,
    args: Args,
    action: ChangeKind,
    out: Out,
) -> Result<()> {
    let state = args.state.map(JobState::from).or(match action {
        ChangeKind::Revive => Some(JobState::Dead),
        ChangeKind::RunNow => Some(JobState::Waiting),
        ChangeKind::Cancel => None,
    });
    let matches = |job: &&JobView| match &args.error {
        None => true,
        Some(text) => {
            let latest = job.failures.last().and_then(|failure| failure.error.as_deref());
            latest.is_some_and(|error| error.contains(text))
        }
    };
    let (mut matched, mut changed, mut failed) = (0u64, 0u64, 0u64);
    let mut worst: Option<Exit> = None;
    let prefix = args.prefix.clone();
    let mut query = Query { state, prefix, limit: MAX_BATCH, ..Query::new(kind.clone()) };
    loop {
        let page = store.list(query.clone()).await?;
        let of = |job: &JobView| Change { kind: kind.clone(), id: job.id.clone(), action };
        let changes: Vec<Change> = page.jobs.iter().filter(matches).map(of).collect();
        matched += changes.len() as u64;
        for answer in store.change(changes).await? {
            match answer {
                Ok(_) => changed += 1,
                Err(ChangeError::Store(error)) => {
                    failed += 1;
                    let exit = out.fail(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
                Err(_) => failed += 1,
            }
        }
        let Some(cursor) = page.cursor else { break };
        query.after = Some(cursor);
    }
    out.say(
        || serde_json::json!({ "matched": matched, "changed": changed, "failed": failed }),
        || format!("{changed} of {matched} jobs of kind {kind} changed"),
    )?;
    worst.map_or(Ok(()), |exit| Err(Failure::told_already(exit)))
}
