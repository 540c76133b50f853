//! `get` and `ls`: show jobs.

use crate::args::word;
use crate::error::{CliError, Exit, Result};
use crate::job_name::JobName;
use crate::output::{Cell, Output, Table, escape, print_note};
use crate::store_args::{IfMissing, StoreArgs};
use crate::text::Tone;
use crate::{format, times};
use requeue_http::wire::{JobJson, JobOrder, StateJson};
use requeue_jobs::limits::{MAX_BATCH, MAX_PRIORITY};
use requeue_jobs::{
    DoneView, JobState, JobView, Kind, Query, Store, StoreError, TimeQuery, Timestamp,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
If the job does not exist, the command exits with 3. Acked jobs are removed,
unless their kind keeps done jobs: requeue kind mail --keep-done 7d

Examples:
  requeue get mail order-42
  requeue get mail order-42 --json | jq .state")]
#[command(override_usage = "\
requeue get [OPTIONS] <KIND> <ID>
       requeue get [OPTIONS] <KIND>/<ID>")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    name: JobName,
}

/// Shows a job. Fails with [`Exit::NotFound`] if it does not exist.
pub(crate) async fn get(args: GetArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (kind, id) = args.name.read_any()?;
    let store = store_args.open(IfMissing::Fail).await?;
    let Some(job) = store.get(kind.clone(), id.clone()).await? else {
        let message = format!("there is no job {id:?} of kind {kind}");
        let hint = format!(
            "an acked job is removed, unless its kind keeps done jobs; to see the jobs that exist: requeue ls {kind}"
        );
        return Err(CliError::new(Exit::NotFound, message).hint(hint));
    };
    out.print(|| JobJson::from(&job), || format::job_text(&job, times::now()))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Jobs are listed in the order of their ids. With --order, waiting and ready
jobs are listed by their due time, leased jobs by the end of the lease, dead
jobs by the time of death, and done jobs by the time when they were done.

Examples:
  requeue ls mail --state dead
  requeue ls mail --state dead --order newest --limit 20
  requeue ls mail --state done
  requeue ls mail --prefix order- --all --json | jq -r .id")]
pub(crate) struct LsArgs {
    /// Kind of the jobs
    kind: String,
    /// Only list jobs in this state
    #[arg(long, value_parser = word::<StateJson>())]
    state: Option<StateJson>,
    /// Only list jobs whose id begins with PREFIX
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// Only list jobs of this priority, 0 to 9
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
    /// Order of the jobs; time and newest need --state
    #[arg(
        long,
        value_parser = word::<JobOrder>(),
        default_value = "id",
        hide_default_value = true,
        requires_ifs([("time", "state"), ("newest", "state")])
    )]
    order: JobOrder,
    /// Maximum number of jobs to list
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "all")]
    limit: usize,
    /// List all jobs
    #[arg(long)]
    all: bool,
}

/// The page that is listed next.
enum NextPage {
    ById(Query),
    ByTime(TimeQuery),
}

impl NextPage {
    /// Returns the jobs of the page, at most `limit`, and whether there are more.
    async fn read(
        &mut self,
        store: &dyn Store,
        limit: usize,
    ) -> std::result::Result<(Vec<JobView>, bool), StoreError> {
        match self {
            NextPage::ById(query) => {
                query.limit = limit;
                let page = store.list(query.clone()).await?;
                query.after = page.cursor;
                Ok((page.jobs, query.after.is_some()))
            }
            NextPage::ByTime(query) => {
                query.limit = limit;
                let page = store.list_by_time(query.clone()).await?;
                query.after = page.cursor;
                Ok((page.jobs, query.after.is_some()))
            }
        }
    }
}

/// Lists jobs by id or by time, and prints each page as it arrives.
pub(crate) async fn ls(args: LsArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let kind = Kind::with_reserved(args.kind)?;
    if args.order != JobOrder::Id && !args.prefix.is_empty() {
        let message = "jobs with a prefix can only be listed by id";
        return Err(CliError::usage(message).hint("leave out --order or --prefix"));
    }
    let store = store_args.open(IfMissing::Fail).await?;
    let mut left = if args.all { usize::MAX } else { args.limit };
    let state = args.state.map(JobState::from);
    let mut next = match (args.order, state) {
        (JobOrder::Time | JobOrder::Newest, Some(state)) => {
            let newest_first = args.order == JobOrder::Newest;
            NextPage::ByTime(TimeQuery { newest_first, ..TimeQuery::new(kind.clone(), state) })
        }
        _ => NextPage::ById(Query { state, prefix: args.prefix, ..Query::new(kind.clone()) }),
    };
    let now = times::now();
    let done_only = state == Some(JobState::Done);
    let mut table = Table::new(if done_only { &DONE_HEADING[..] } else { &HEADING });
    let (mut any, mut more) = (false, true);
    while left > 0 && more {
        // Stores do not filter by priority: few of the jobs may match.
        let limit = if args.priority.is_some() { MAX_BATCH } else { left.min(MAX_BATCH) };
        let (mut jobs, has_more) = next.read(&*store, limit).await?;
        jobs.retain(|job| args.priority.is_none_or(|level| job.version.priority.get() == level));
        more = has_more || jobs.len() > left;
        jobs.truncate(left);
        for job in &jobs {
            if out.json && !out.print_json_while_read(&JobJson::from(job))? {
                return Ok(());
            }
            if !out.json {
                table.row(if done_only { done_row(job, now) } else { row(job, now) });
            }
        }
        if !out.json && !jobs.is_empty() && !out.print_while_read(table.take())? {
            return Ok(());
        }
        any |= !jobs.is_empty();
        left -= jobs.len();
    }
    match (any, more) {
        _ if out.json => {}
        (false, false) => print_note(&format!("no jobs of kind {kind} match")),
        (_, true) => print_note("there are more jobs; to list them all: --all"),
        (true, false) => {}
    }
    Ok(())
}

const HEADING: [&str; 7] = ["ID", "STATE", "#PRIORITY", "DUE", "#ATTEMPTS", "BODY", "ERROR"];

/// The heading of `--state done`.
const DONE_HEADING: [&str; 7] =
    ["ID", "DONE", "WORKER", "TOOK", "#PRIORITY", "#ATTEMPTS", "RESULT"];

/// The row of a done job in a list of done jobs. A done job has no body.
fn done_row(job: &JobView, now: Timestamp) -> [Cell; 7] {
    let of_done = |show: &dyn Fn(&DoneView) -> String| job.done.as_ref().map(show);
    let cells = [
        escape(job.id.as_str()),
        of_done(&|done| times::relative(done.done_at, now)).unwrap_or_default(),
        of_done(&|done| escape(done.worker.as_str())).unwrap_or_default(),
        of_done(&|done| times::rough(done.took())).unwrap_or_default(),
        job.version.priority.to_string(),
        job.attempts.to_string(),
        of_done(&|done| done.result.as_ref().map_or_else(String::new, format::body_cell))
            .unwrap_or_default(),
    ];
    cells.map(Cell::from)
}

/// The row of a job in a list.
fn row(job: &JobView, now: Timestamp) -> [Cell; 7] {
    [
        escape(job.id.as_str()).into(),
        format::state_cell(job.state),
        job.version.priority.to_string().into(),
        times::relative(job.version.due, now).into(),
        job.attempts.to_string().into(),
        format::body_cell(job.body()).into(),
        Cell::new(Tone::Bad, format::error_cell(job)),
    ]
}
