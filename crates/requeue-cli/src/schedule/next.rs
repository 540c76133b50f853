//! `schedule next`: the next times of a schedule, or of a cron expression.

use super::TimesArgs;
use crate::error::Result;
use crate::job_name::JobName;
use crate::output::{Output, Table, escape, print_note};
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use requeue_jobs::{JobId, Kind, ScheduleError, ScheduleSpec, ScheduleTimes, Timestamp};
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(override_usage = "\
requeue schedule next [OPTIONS] <KIND> <ID>
       requeue schedule next [OPTIONS] <KIND>/<ID>
       requeue schedule next [OPTIONS] --cron <EXPRESSION> | --every <DURATION>")]
#[command(after_help = "\
With --cron or --every, no store is needed.

Examples:
  requeue schedule next report daily -n 10
  requeue schedule next --cron '0 9 L * *' --time-zone Europe/Berlin")]
pub(super) struct Args {
    /// Kind of the schedule, or KIND/ID
    #[arg(required_unless_present_any = ["cron", "every"])]
    #[arg(conflicts_with_all = ["cron", "every"])]
    kind: Option<String>,
    /// Id of the schedule
    id: Option<String>,
    #[command(flatten)]
    times: TimesArgs,
    /// How many times to print, at most 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

/// The JSON output: one of the next times.
#[derive(Debug, Serialize)]
struct NextTime {
    /// In UTC.
    time: String,
    /// In the time zone of the schedule, with its offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<String>,
}

pub(super) async fn next(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (kind, id, spec) = match args.kind {
        Some(_) => stored(&args, store_args).await?,
        // The name of a schedule only matters for its jitter.
        None => (Kind::new("none")?, JobId::new("none")?, super::spec(args.times.request())?),
    };
    spec.check(&kind, &id)?;
    let now = times::now();
    let next = spec.next_times(&kind, &id, now, usize::from(args.count))?;
    if spec.paused {
        print_note("the schedule is paused: it does not run at these times");
    }
    print(out, &spec, &next, now)
}

async fn stored(args: &Args, store_args: &StoreArgs) -> Result<(Kind, JobId, ScheduleSpec)> {
    let kind = args.kind.clone().unwrap_or_default();
    let (kind, id) = JobName { kind, id: args.id.clone() }.read()?;
    let store = store_args.open(IfMissing::Fail).await?;
    let schedule = store.schedule(kind.clone(), id.clone()).await?;
    let absent = || ScheduleError::Absent { kind: kind.clone(), id: id.clone() };
    let spec = ScheduleSpec::from_schedule(&schedule.ok_or_else(absent)?);
    let spec = spec.map_err(ScheduleError::from)?;
    Ok((kind, id, spec))
}

fn print(out: Output, spec: &ScheduleSpec, next: &[Timestamp], now: Timestamp) -> Result<()> {
    let zone = match &spec.times {
        ScheduleTimes::Cron { time_zone, .. } if time_zone != "UTC" => Some(time_zone.as_str()),
        _ => None,
    };
    let heading: Vec<&str> = ["UTC"].into_iter().chain(zone).chain([""]).collect();
    let mut table = Table::new(&heading);
    for at in next {
        if out.json {
            let local = zone.and_then(|zone| times::in_zone(*at, zone, "%Y-%m-%dT%H:%M:%S%:z"));
            out.print_json(&NextTime { time: times::show_time(*at), local })?;
            continue;
        }
        let format = "%Y-%m-%d %H:%M:%S";
        let shown = |zone| times::in_zone(*at, zone, &format!("{format} %Z")).unwrap_or_default();
        let utc = times::in_zone(*at, "UTC", format).unwrap_or_else(|| times::show_time(*at));
        let cells = [utc].into_iter().chain(zone.map(shown));
        table.row(cells.map(|cell| escape(&cell)).chain([times::relative(*at, now)]));
    }
    match (out.json, next.is_empty()) {
        (true, _) => Ok(()),
        (false, false) => out.print_line(table.to_text()),
        (false, true) => {
            print_note("the schedule has no more runs");
            Ok(())
        }
    }
}
