//! `get`, `ls` and `stats`: what there is.

use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, Table, json, note, plain};
use crate::store_args::{IfMissing, StoreArgs};
use crate::{shown, times};
use clap::ValueEnum;
use requeue_http::wire::{JobJson, KindStats, StateJson};
use requeue_jobs::limits::{MAX_BATCH, READY_COUNT_CAP};
use requeue_jobs::{JobId, JobState, JobView, Kind, Query, Timestamp};

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Its kind
    kind: String,
    /// Its id
    id: String,
}

/// Shows a job.
pub(crate) async fn get(args: GetArgs, place: &StoreArgs, out: Out) -> Result<()> {
    let (kind, id) = (Kind::new(args.kind)?, JobId::new(args.id)?);
    let store = place.open(IfMissing::Refuse).await?;
    let Some(job) = store.get(kind.clone(), id.clone()).await? else {
        let told = format!("there is no job {id:?} of kind {kind}");
        return Err(Failure::new(Exit::Nothing, told).hint("a job that was acked is gone"));
    };
    out.say(|| JobJson::from(&job), || shown::job_text(&job, times::now()))
}

/// A state, as it is named on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StateName {
    Waiting,
    Ready,
    Leased,
    Dead,
}

impl From<StateName> for JobState {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Waiting => JobState::Waiting,
            StateName::Ready => JobState::Ready,
            StateName::Leased => JobState::Leased,
            StateName::Dead => JobState::Dead,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Of which kind
    kind: String,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// Only those whose id begins with this
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    /// At most so many
    #[arg(long, default_value_t = 100, conflicts_with = "all")]
    limit: usize,
    /// All of them
    #[arg(long)]
    all: bool,
}

/// Lists jobs by id, page by page as they come.
pub(crate) async fn ls(args: LsArgs, place: &StoreArgs, out: Out) -> Result<()> {
    let kind = Kind::new(args.kind)?;
    let store = place.open(IfMissing::Refuse).await?;
    let mut left = if args.all { usize::MAX } else { args.limit };
    let state = args.state.map(JobState::from);
    let mut query = Query { state, prefix: args.prefix, ..Query::new(kind.clone()) };
    let now = times::now();
    let mut table = Table::new(&["ID", "STATE", "DUE", "#ATTEMPTS", "BODY", "ERROR"]);
    let (mut any, mut more) = (false, true);
    while left > 0 && more {
        query.limit = left.min(MAX_BATCH);
        let page = store.list(query.clone()).await?;
        for job in &page.jobs {
            if out.json && !out.listed(&json(&JobJson::from(job)))? {
                return Ok(());
            }
            if !out.json {
                table.row(row(job, now));
            }
        }
        if !out.json && !page.jobs.is_empty() && !out.listed(&table.take())? {
            return Ok(());
        }
        any |= !page.jobs.is_empty();
        left -= page.jobs.len();
        more = page.cursor.is_some();
        query.after = page.cursor;
    }
    match (any, more) {
        _ if out.json => {}
        (false, false) => note(&format!("there are no such jobs of kind {kind}")),
        (_, true) => note("there are more: --all shows them"),
        (true, false) => {}
    }
    Ok(())
}

/// What is shown of a job among others.
fn row(job: &JobView, now: Timestamp) -> [String; 6] {
    [
        plain(job.id.as_str()),
        shown::word(StateJson::from(job.state)),
        times::relative(job.due, now),
        job.attempts.to_string(),
        shown::body_cell(&job.body),
        shown::error_cell(job),
    ]
}

/// Shows all kinds, and how many jobs they have.
pub(crate) async fn stats(place: &StoreArgs, out: Out) -> Result<()> {
    let store = place.open(IfMissing::Refuse).await?;
    let kinds = store.kinds().await?;
    let now = times::now();
    let heading = ["KIND", "#PENDING", "#READY", "#LEASED", "#DEAD", "OLDEST READY", ""];
    let mut table = Table::new(&heading);
    for kind in &kinds {
        if out.json {
            out.json(&KindStats::from(kind))?;
            continue;
        }
        let counts = kind.counts;
        let more = if counts.ready >= READY_COUNT_CAP { "+" } else { "" };
        table.row([
            kind.kind.to_string(),
            counts.pending.to_string(),
            format!("{}{more}", counts.ready),
            counts.leased.to_string(),
            counts.dead.to_string(),
            kind.oldest_ready.map_or_else(String::new, |at| times::relative(at, now)),
            if kind.paused { "paused".to_owned() } else { String::new() },
        ]);
    }
    match (out.json, kinds.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => out.line("there are no kinds yet: put a job"),
        (false, false) => out.line(&table.shown()),
    }
}
