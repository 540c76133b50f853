//! `schedule`: recurring jobs.

mod next;
mod text;

use crate::args::word;
use crate::body::BodyType;
use crate::error::{CliError, Result};
use crate::format::JobResult;
use crate::job_name::{self, JobName};
use crate::output::{Output, Table, escape, print_note};
use crate::store_args::{IfMissing, StoreArgs, StoreLocation};
use crate::times;
use clap::Subcommand;
use requeue_http::HttpStore;
use requeue_http::client::path;
use requeue_http::wire::{
    DurationText, MissedJson, OverlapJson, PutDone, ScheduleJson, ScheduleRequest, Schedules,
    TimeText, Word,
};
use requeue_jobs::json::BodyJson;
use requeue_jobs::limits::{MAX_BODY_LEN, MAX_PRIORITY};
use requeue_jobs::{JobId, Jobs, Kind, ScheduleError, ScheduleSpec, Timestamp};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
A server starts the runs, or a program with a worker on the same store: each run
puts a job of the kind.

Examples:
  requeue schedule set report daily --cron '0 9 * * MON-FRI' \\
      --time-zone Europe/Berlin '{\"to\":\"ann@example.org\"}'
  requeue schedule set poll inbox --every 90s
  requeue schedule ls
  requeue schedule next report daily
  requeue schedule pause report daily")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, Subcommand)]
enum ScheduleCommand {
    /// List the schedules of a kind, or of all kinds
    #[command(visible_alias = "list")]
    #[command(after_help = "\
Examples:
  requeue schedule ls report
  requeue schedule ls --json | jq -r 'select(.problem) | .id'")]
    Ls {
        /// Kind of the schedules [default: all kinds]
        kind: Option<String>,
    },
    /// Set a schedule; it replaces one with the same kind and id
    Set(Box<SetArgs>),
    /// Show a schedule and its next times
    #[command(after_help = "\
Examples:
  requeue schedule show report daily")]
    Show(JobName),
    /// Remove a schedule; its jobs stay
    #[command(after_help = "\
Examples:
  requeue schedule rm report daily")]
    Rm(JobName),
    /// Start no runs until the schedule is resumed
    #[command(after_help = "\
Runs that fall into the pause are not made up for.

Examples:
  requeue schedule pause report daily")]
    Pause(JobName),
    /// Start the runs of a paused schedule again
    #[command(after_help = "\
Examples:
  requeue schedule resume report daily")]
    Resume(JobName),
    /// Print the next times of a schedule, or of a cron expression
    Next(next::Args),
    /// Start a run now, in addition to those at its times
    #[command(after_help = "\
Examples:
  requeue schedule run report daily")]
    Run(JobName),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A cron expression has five fields: minute, hour, day of the month, month, day of
the week; or six, with seconds first. Or write @hourly, @daily, @weekly,
@monthly or @yearly. {{scheduled_at}} in the body becomes the time of the run.

Setting a schedule again with the same times keeps its next run.

Examples:
  requeue schedule set report daily --cron '0 9 * * *' --time-zone Asia/Tokyo
  requeue schedule set poll inbox --every 90s --jitter 30s --missed skip
  requeue schedule set bill monthly --cron '0 0 1 * *' --missed all \\
      --catch-up 3d '{\"month\":\"{{scheduled_at}}\"}'
  requeue schedule set sale banner @banner.json --cron '0 12 * * *' \\
      --starts-at 2026-12-01 --ends-at 2026-12-24")]
struct SetArgs {
    /// Kind of the schedule, or KIND/ID
    kind: String,
    /// Id of the schedule
    id: Option<String>,
    /// Body of the jobs: text, - to read stdin, or @FILE to read a file [default: empty]
    body: Option<String>,
    #[command(flatten)]
    times: TimesArgs,
    #[command(flatten)]
    body_type: BodyType,
    /// Priority of the jobs, 0 to 9 [default: 0]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
    /// Start all runs later by the same share of this time, to spread schedules
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    jitter: Option<Duration>,
    /// What happens with runs that were missed because no server was running
    #[arg(long, value_parser = word::<MissedJson>(), default_value = "one")]
    missed: MissedJson,
    /// Skip runs that were missed longer ago than this [default: 1d with --missed all]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    catch_up: Option<Duration>,
    /// Whether a run may begin while an earlier one goes on
    #[arg(long, value_parser = word::<OverlapJson>(), default_value = "none")]
    overlap: OverlapJson,
    /// Start no runs until the schedule is resumed
    #[arg(long)]
    paused: bool,
    /// Time before which the schedule does not run; periods are counted from it
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    starts_at: Option<Timestamp>,
    /// Time after which the schedule does not run
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    ends_at: Option<Timestamp>,
}

/// When a schedule runs.
#[derive(Debug, Clone, clap::Args)]
struct TimesArgs {
    /// Cron expression, such as '0 9 * * MON-FRI'
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// Time zone of the cron expression, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    time_zone: Option<String>,
    /// Period, instead of --cron, such as 90s
    #[arg(long, value_name = "DURATION", value_parser = times::duration, conflicts_with = "cron")]
    every: Option<Duration>,
}

impl TimesArgs {
    /// The request for a schedule with these times.
    fn request(self) -> ScheduleRequest {
        let TimesArgs { cron, time_zone, every } = self;
        let (time_zone, every) = (time_zone.map(Some), every.map(DurationText::from));
        ScheduleRequest { cron, time_zone, every, ..ScheduleRequest::default() }
    }
}

impl SetArgs {
    /// The schedule, whose jobs have this body.
    fn request(self, body: Option<&str>) -> Result<ScheduleRequest> {
        let body = self.body_type.read(body.unwrap_or_default(), MAX_BODY_LEN)?;
        let ScheduleRequest { cron, time_zone, every, .. } = self.times.request();
        Ok(ScheduleRequest {
            cron,
            time_zone,
            every,
            priority: Some(self.priority),
            jitter: Some(self.jitter.map(DurationText::from)),
            missed: Some(Some(self.missed)),
            catch_up: Some(self.catch_up.map(DurationText::from)),
            overlap: Some(Some(self.overlap)),
            paused: Some(Some(self.paused)),
            starts_at: Some(self.starts_at.map(TimeText::from)),
            ends_at: Some(self.ends_at.map(TimeText::from)),
            ..ScheduleRequest::from(BodyJson::new(&body))
        })
    }
}

fn spec(request: ScheduleRequest) -> Result<ScheduleSpec> {
    request.create(&times::context()).map_err(CliError::of_request)
}

/// The schedules of a store. A server applies changes itself, and returns the times by its own clock.
enum ScheduleStore {
    Server(HttpStore),
    Direct(Jobs),
}

fn schedule_path(kind: &Kind, id: &JobId, rest: &[&str]) -> String {
    path(&[&["v1", "kinds", kind.as_str(), "schedules", id.as_str()], rest].concat())
}

impl ScheduleStore {
    async fn open(store_args: &StoreArgs, missing: IfMissing) -> Result<Self> {
        match store_args.location()? {
            StoreLocation::Server(url) => Ok(ScheduleStore::Server(store_args.connect(&url)?)),
            _ => Ok(ScheduleStore::Direct(Jobs::new(store_args.open(missing).await?))),
        }
    }

    async fn one(&self, kind: &Kind, id: &JobId) -> Result<ScheduleJson> {
        match self {
            ScheduleStore::Server(server) => {
                Ok(server.call("GET", &schedule_path(kind, id, &[]), None::<&()>).await?)
            }
            ScheduleStore::Direct(jobs) => {
                let view = jobs.schedule(kind.as_str(), id.as_str()).await?;
                let absent = || ScheduleError::Absent { kind: kind.clone(), id: id.clone() };
                Ok(ScheduleJson::from(&view.ok_or_else(absent)?))
            }
        }
    }

    async fn all(&self, kind: &Kind) -> Result<Vec<ScheduleJson>> {
        match self {
            ScheduleStore::Server(server) => {
                let path = path(&["v1", "kinds", kind.as_str(), "schedules"]);
                let Schedules { schedules } = server.call("GET", &path, None::<&()>).await?;
                Ok(schedules)
            }
            ScheduleStore::Direct(jobs) => {
                let views = jobs.schedules(kind.as_str()).await?;
                Ok(views.iter().map(ScheduleJson::from).collect())
            }
        }
    }

    async fn kinds(&self) -> Result<Vec<Kind>> {
        let kinds = match self {
            ScheduleStore::Server(server) => requeue_jobs::Store::kinds(server).await?,
            ScheduleStore::Direct(jobs) => jobs.store().kinds().await?,
        };
        Ok(kinds.into_iter().map(|kind| kind.kind).collect())
    }

    async fn set(&self, kind: &Kind, id: &JobId, request: ScheduleRequest) -> Result<ScheduleJson> {
        match self {
            ScheduleStore::Server(server) => {
                Ok(server.call("PUT", &schedule_path(kind, id, &[]), Some(&request)).await?)
            }
            ScheduleStore::Direct(jobs) => {
                let view = jobs.set_schedule(kind.as_str(), id.as_str(), spec(request)?).await?;
                Ok(ScheduleJson::from(&view))
            }
        }
    }

    async fn pause(&self, kind: &Kind, id: &JobId, paused: bool) -> Result<ScheduleJson> {
        match self {
            ScheduleStore::Server(server) => {
                let request = ScheduleRequest { paused: Some(Some(paused)), ..Default::default() };
                Ok(server.call("PATCH", &schedule_path(kind, id, &[]), Some(&request)).await?)
            }
            ScheduleStore::Direct(jobs) => {
                let change = |spec: &mut ScheduleSpec| spec.paused = paused;
                let view = jobs.change_schedule(kind.as_str(), id.as_str(), change).await?;
                Ok(ScheduleJson::from(&view))
            }
        }
    }

    async fn remove(&self, kind: &Kind, id: &JobId) -> Result<()> {
        match self {
            ScheduleStore::Server(server) => {
                Ok(server.call("DELETE", &schedule_path(kind, id, &[]), None::<&()>).await?)
            }
            ScheduleStore::Direct(jobs) => {
                if jobs.remove_schedule(kind.as_str(), id.as_str()).await? {
                    return Ok(());
                }
                Err(ScheduleError::Absent { kind: kind.clone(), id: id.clone() }.into())
            }
        }
    }

    async fn run(&self, kind: &Kind, id: &JobId) -> Result<PutDone> {
        match self {
            ScheduleStore::Server(server) => {
                Ok(server.call("POST", &schedule_path(kind, id, &["run"]), None::<&()>).await?)
            }
            ScheduleStore::Direct(jobs) => {
                Ok(jobs.run_schedule(kind.as_str(), id.as_str()).await?.into())
            }
        }
    }
}

pub(crate) async fn schedule(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let open = async |missing| ScheduleStore::open(store_args, missing).await;
    let now = times::now();
    match args.command {
        ScheduleCommand::Next(args) => next::next(args, store_args, out).await,
        ScheduleCommand::Ls { kind } => ls(kind, &open(IfMissing::Fail).await?, out).await,
        ScheduleCommand::Set(args) => {
            let more = [args.id.clone(), args.body.clone()];
            let (kind, id, body) = job_name::split(args.kind.clone(), more)?;
            let request = args.request(body.as_deref())?;
            spec(request.clone())?;
            let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
            let set = open(IfMissing::Create).await?.set(&kind, &id, request).await?;
            out.print(|| &set, || format!("set {kind}/{}, {}", name(&id), text::next(&set, now)))
        }
        ScheduleCommand::Show(args) => {
            let (kind, id) = args.read()?;
            let schedule = open(IfMissing::Fail).await?.one(&kind, &id).await?;
            out.print(|| &schedule, || text::schedule(&schedule, now))
        }
        ScheduleCommand::Rm(args) => {
            let (kind, id) = args.read()?;
            open(IfMissing::Fail).await?.remove(&kind, &id).await?;
            let json = || json!({"kind": kind.as_str(), "id": id.as_str(), "removed": true});
            out.print(json, || format!("removed {kind}/{}", name(&id)))
        }
        ScheduleCommand::Pause(args) => pause(args, true, store_args, out).await,
        ScheduleCommand::Resume(args) => pause(args, false, store_args, out).await,
        ScheduleCommand::Run(args) => {
            let (kind, id) = args.read()?;
            let done = open(IfMissing::Fail).await?.run(&kind, &id).await?;
            let json = || JobResult { kind: kind.as_str(), id: id.as_str(), done };
            out.print(json, || {
                let outcome = done.outcome.name();
                format!("{outcome} {kind}/{} as generation {}", name(&id), done.generation)
            })
        }
    }
}

async fn pause(args: JobName, paused: bool, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (kind, id) = args.read()?;
    let store = ScheduleStore::open(store_args, IfMissing::Fail).await?;
    let schedule = store.pause(&kind, &id, paused).await?;
    out.print(
        || &schedule,
        || match paused {
            true => format!("paused {kind}/{}", name(&id)),
            false => {
                format!("resumed {kind}/{}, {}", name(&id), text::next(&schedule, times::now()))
            }
        },
    )
}

async fn ls(kind: Option<String>, store: &ScheduleStore, out: Output) -> Result<()> {
    let kinds = match kind {
        Some(kind) => vec![Kind::new(kind)?],
        None => store.kinds().await?,
    };
    let now = times::now();
    let mut table = Table::new(&text::HEADING);
    let mut any = false;
    for kind in kinds {
        for schedule in store.all(&kind).await? {
            any = true;
            match out.json {
                true if !out.print_json_while_read(&schedule)? => return Ok(()),
                true => {}
                false => table.row(text::row(&schedule, now)),
            }
        }
    }
    match (out.json, any) {
        (true, _) => Ok(()),
        (false, true) => out.print_line(table.to_text()),
        (false, false) => {
            print_note("there are no schedules");
            Ok(())
        }
    }
}

fn name(id: &JobId) -> String {
    escape(id.as_str())
}
