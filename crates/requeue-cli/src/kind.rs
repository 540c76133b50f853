//! `kind`, `pause` and `resume`: the settings of a kind. `kind delete`: deletes it.

use crate::bulk::BulkStore;
use crate::confirm::Confirmation;
use crate::error::{CliError, Exit, Result};
use crate::output::{Output, count};
use crate::push::{self, PushArgs};
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use clap::Subcommand;
use requeue_http::Problem;
use requeue_http::client::path;
use requeue_http::times::parse_rate;
use requeue_http::wire::{
    BackoffPatch, DurationText, KeepDoneJson, RateJson, RetentionPatch, SettingsJson, SettingsPatch,
};
use requeue_jobs::{Kind, Rate, Retention, Settings, Store};
use requeue_push::PushConfig;
use serde::Serialize;
use std::time::Duration;

pub(crate) const PAUSE_EXAMPLES: &str = "\
Jobs that are already leased are not affected, and puts are still accepted. If
there is no such kind, the command exits with 3, unless --create is given.

Examples:
  requeue pause mail
  requeue pause newsletter --create";

pub(crate) const RESUME_EXAMPLES: &str = "\
Examples:
  requeue resume mail";

#[derive(Debug, clap::Args)]
pub(crate) struct KindArgs {
    /// Name of the kind
    #[arg(value_name = "KIND")]
    kind: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    kind: KindArgs,
    /// Pause a kind that does not exist yet: its jobs wait until it is resumed
    #[arg(long)]
    create: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
#[command(override_usage = "\
requeue kind [OPTIONS] <KIND>
       requeue kind delete [OPTIONS] <KIND>")]
#[command(after_help = "\
Without options, shows the settings. With options, changes only those settings.
Existing jobs keep their due times and leases.

Examples:
  requeue kind mail
  requeue kind mail --max-attempts 5 --backoff 10s --backoff-max 1h
  requeue kind mail --concurrency none
  requeue kind sms --rate 100/1m
  requeue kind mail --keep-done 7d --keep-done-count 10000
  requeue kind order.close --push https://example.com/hooks --push-secret FILE
  requeue kind delete mail

A kind whose name is `delete` is written after --: requeue kind -- delete")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<KindCommand>,
    /// Name of the kind
    #[arg(required = true)]
    kind: Option<String>,
    /// Length of a lease if a claim does not specify it
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
    /// Number of failed attempts after which a job is dead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// Time until a retry after the first failure; doubles after each further one
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    backoff: Option<Duration>,
    /// Maximum time until a retry
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    backoff_max: Option<Duration>,
    /// Shorten each time until a retry by a random share, up to this percentage
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    jitter: Option<u8>,
    /// Maximum number of leased jobs; `none` for no limit
    #[arg(long, value_name = "N", value_parser = concurrency)]
    concurrency: Option<Concurrency>,
    /// Maximum number of jobs per time, such as 10/s or 100/1m; `none` for any number
    #[arg(long, value_name = "JOBS/TIME", value_parser = rate)]
    rate: Option<RateArg>,
    /// How many jobs may be claimed together after a pause [default: what --rate allows in 100ms, at least 1]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,
    /// Time after which a ready job gains a level of priority; `none` for never
    #[arg(long, value_name = "DURATION", value_parser = ageing)]
    ageing: Option<DurationOrNone>,
    /// How long to keep dead jobs
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    keep_dead: Option<Duration>,
    /// Maximum number of dead jobs to keep; the oldest are removed first
    #[arg(long, value_name = "N")]
    keep_dead_count: Option<usize>,
    /// How long to keep done jobs and their results; `none` to keep none
    #[arg(long, value_name = "DURATION", value_parser = keep_done)]
    keep_done: Option<DurationOrNone>,
    /// Maximum number of done jobs to keep; the oldest are removed first
    #[arg(long, value_name = "N")]
    keep_done_count: Option<usize>,
    #[command(flatten)]
    push: PushArgs,
}

#[derive(Debug, Subcommand)]
enum KindCommand {
    /// Delete a kind: its jobs, schedules and settings
    #[command(after_help = "\
A leased job is removed when its lease ends. A job that is put later makes the
kind anew.

Examples:
  requeue kind delete mail
  requeue kind delete mail --dry-run")]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    /// Name of the kind
    kind: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// A value of `--ageing` or `--keep-done`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DurationOrNone(Option<Duration>);

fn duration_or_none(text: &str, example: &str) -> Result<DurationOrNone, String> {
    if text == "none" {
        return Ok(DurationOrNone(None));
    }
    let duration = times::duration(text);
    let duration = duration
        .map_err(|error| format!("{error}; expected a duration, such as {example}, or `none`"))?;
    Ok(DurationOrNone(Some(duration)))
}

fn ageing(text: &str) -> Result<DurationOrNone, String> {
    duration_or_none(text, "10m")
}

fn keep_done(text: &str) -> Result<DurationOrNone, String> {
    duration_or_none(text, "7d")
}

/// A value of `--concurrency`. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concurrency(Option<u32>);

fn concurrency(text: &str) -> Result<Concurrency, String> {
    if text == "none" {
        return Ok(Concurrency(None));
    }
    let number = text.parse().map_err(|_| "expected a number or `none`".to_owned())?;
    Ok(Concurrency(Some(number)))
}

/// A value of `--rate`. `None` means any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateArg(Option<(u32, Duration)>);

fn rate(text: &str) -> Result<RateArg, String> {
    if text == "none" {
        return Ok(RateArg(None));
    }
    let rate = parse_rate(text).map_err(|error| format!("{error}, or `none`"))?;
    Ok(RateArg(Some(rate)))
}

impl Args {
    /// The change of `keep_done`, if there is one.
    fn keep_done_patch(&self) -> Result<Option<Option<KeepDoneJson>>, &'static str> {
        let age = match (self.keep_done, self.keep_done_count) {
            (None, None) => return Ok(None),
            (Some(DurationOrNone(None)), None) => return Ok(Some(None)),
            (Some(DurationOrNone(None)), Some(_)) => {
                return Err("--keep-done-count has no meaning with --keep-done none");
            }
            (age, _) => age.and_then(|DurationOrNone(age)| age),
        };
        let age = age.map(DurationText::from);
        Ok(Some(Some(KeepDoneJson { age, count: self.keep_done_count })))
    }

    /// The settings to change, as the HTTP API has them. `None` if there are no options.
    fn patch(&self) -> Result<Option<SettingsPatch>> {
        let text = |duration: Option<Duration>| duration.map(DurationText::from);
        let backoff = BackoffPatch {
            base: text(self.backoff),
            max: text(self.backoff_max),
            jitter_percent: self.jitter,
        };
        let retention = RetentionPatch { age: text(self.keep_dead), count: self.keep_dead_count };
        let patch = SettingsPatch {
            lease: text(self.lease),
            backoff: (backoff != BackoffPatch::default()).then_some(backoff),
            max_attempts: self.max_attempts,
            concurrency: self.concurrency.map(|set| set.0),
            rate: self.rate.map(|RateArg(rate)| {
                let burst = self.burst;
                rate.map(|(jobs, per)| RateJson { jobs, per: per.into(), burst }.into())
            }),
            ageing: self.ageing.map(|DurationOrNone(ageing)| text(ageing)),
            keep_done: self.keep_done_patch().map_err(CliError::usage)?,
            push: self.push.patch()?,
            paused: None,
            retention: (retention != RetentionPatch::default()).then_some(retention),
        };
        Ok((patch != SettingsPatch::default()).then_some(patch))
    }
}

/// Changes the settings that are given, and shows all settings.
pub(crate) async fn kind(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    if let Some(KindCommand::Delete(args)) = args.command {
        return delete(args, store_args, out).await;
    }
    let kind = Kind::new(args.kind.as_deref().unwrap_or_default())?;
    let settings = match args.patch()? {
        Some(patch) => change(&BulkStore::open(store_args).await?, &kind, patch).await?,
        None => store_args.open(IfMissing::Fail).await?.settings(kind.clone()).await?,
    };
    print(out, &kind, &settings)
}

const LIST_KINDS: &str = "to list the kinds: requeue stats";

/// The error if a kind has neither jobs nor settings nor schedules.
async fn check_exists(store: &dyn Store, kind: &Kind, hint: &str) -> Result<()> {
    if store.kinds().await?.iter().any(|view| view.kind == *kind) {
        return Ok(());
    }
    let message = format!("there is no kind {kind}: it has no jobs, settings or schedules");
    Err(CliError::new(Exit::NotFound, message).hint(hint))
}

/// Deletes a kind.
async fn delete(args: DeleteArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let kind = Kind::new(args.kind)?;
    args.confirmation.check("this deletes all jobs of the kind")?;
    let store = BulkStore::open(store_args).await?;
    check_exists(store.store(), &kind, LIST_KINDS).await?;
    if args.confirmation.needs_count() {
        let counts = store.store().kind(kind.clone()).await?.counts;
        let jobs = counts.pending + counts.leased + counts.dead + counts.done;
        let schedules = store.store().schedules(kind.clone()).await?.len() as u64;
        let what =
            format!("kind {kind} with {} and {}", count(jobs, "job"), count(schedules, "schedule"));
        if args.confirmation.dry_run {
            let json = || {
                serde_json::json!({
                    "kind": kind.as_str(), "jobs": jobs, "schedules": schedules, "dry_run": true,
                })
            };
            return out.print(json, || format!("would delete {what}"));
        }
        args.confirmation.ask(&format!("Delete {what}?"))?;
    }
    let done = store.delete(&kind).await?;
    let json = || {
        serde_json::json!({
            "kind": kind.as_str(), "removed": done.removed, "ending": done.ending,
        })
    };
    out.print(json, || {
        let leased = match done.ending {
            0 => String::new(),
            leased => format!("; {leased} more when their leases end"),
        };
        format!("deleted {kind}: {} removed{leased}", count(done.removed, "job"))
    })
}

/// Pauses a kind. Fails if it does not exist, unless `--create` is given: its name is probably mistyped.
pub(crate) async fn pause(args: PauseArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let kind = Kind::new(args.kind.kind)?;
    let store = BulkStore::open(store_args).await?;
    if !args.create {
        let hint = format!("{LIST_KINDS}; to pause it in advance: requeue pause {kind} --create");
        check_exists(store.store(), &kind, &hint).await?;
    }
    set_paused(&store, &kind, true, out).await
}

/// Resumes a kind. Fails if it does not exist.
pub(crate) async fn resume(args: KindArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let kind = Kind::new(args.kind)?;
    let store = BulkStore::open(store_args).await?;
    check_exists(store.store(), &kind, LIST_KINDS).await?;
    set_paused(&store, &kind, false, out).await
}

async fn set_paused(store: &BulkStore, kind: &Kind, paused: bool, out: Output) -> Result<()> {
    let patch = SettingsPatch { paused: Some(paused), ..SettingsPatch::default() };
    change(store, kind, patch).await?;
    out.print(
        || serde_json::json!({ "kind": kind.as_str(), "paused": paused }),
        || format!("{} {kind}", if paused { "paused" } else { "resumed" }),
    )
}

/// Changes the settings in the patch and returns all settings. A server applies the patch itself,
/// so that concurrent changes by others are not overwritten.
pub(crate) async fn change(
    store: &BulkStore,
    kind: &Kind,
    patch: SettingsPatch,
) -> Result<Settings> {
    let refused = |problem: Problem| CliError::usage(problem.detail);
    let store = match store {
        BulkStore::Direct(store) => store,
        BulkStore::Server(server) => {
            let path = path(&["v1", "kinds", kind.as_str()]);
            let set: SettingsJson = server.call("PATCH", &path, Some(&patch)).await?;
            return set.read().map_err(refused);
        }
    };
    let settings = store.settings(kind.clone()).await?;
    let mut settings = patch.apply(settings).map_err(refused)?;
    if let Some(change) = &patch.push {
        let before = settings.push.take();
        let changed = change.as_ref().map(|change| PushConfig::changed(before.as_ref(), change));
        let changed = changed.transpose();
        settings.push = changed.map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    }
    store.set(kind.clone(), settings.clone()).await?;
    Ok(settings)
}

/// The JSON output: the settings of a kind.
#[derive(Debug, Serialize)]
struct KindSettings<'a> {
    kind: &'a str,
    #[serde(flatten)]
    settings: SettingsJson,
}

fn show_rate(rate: Rate) -> String {
    let spacing = match rate.bucket() {
        1 => "evenly spaced".to_owned(),
        burst => format!("in bursts of up to {burst}"),
    };
    format!("{} per {}, {spacing}", rate.jobs, times::show_duration(rate.per))
}

fn show_ageing(ageing: Duration) -> String {
    format!("one level of priority per {}", times::show_duration(ageing))
}

fn show_retention(Retention { age, count }: Retention) -> String {
    format!("up to {count} jobs, for {}", times::show_duration(age))
}

/// Returns the settings without secrets. Those of a server are masked already, and have another form than
/// those of a store.
fn shown(settings: &Settings) -> SettingsJson {
    let json = SettingsJson::from(settings);
    let of_server = json.push.filter(|push| push.headers.is_some());
    let masked = || settings.push.as_ref().and_then(PushConfig::masked);
    SettingsJson { push: of_server.or_else(masked), ..json }
}

fn print(out: Output, kind: &Kind, settings: &Settings) -> Result<()> {
    out.print(
        || KindSettings { kind: kind.as_str(), settings: shown(settings) },
        || {
            let Settings { backoff, retention, .. } = settings;
            let (show, percent) = (times::show_duration, backoff.jitter_percent);
            let lines = [
                ("kind", kind.to_string()),
                ("lease", show(settings.lease)),
                ("max attempts", settings.max_attempts.to_string()),
                ("backoff", format!("from {} to {}", show(backoff.base), show(backoff.max))),
                ("jitter", format!("up to {percent}% shorter")),
                (
                    "concurrency",
                    settings.concurrency.map_or_else(|| "no limit".to_owned(), |n| n.to_string()),
                ),
                ("rate", settings.rate.map_or_else(|| "no limit".to_owned(), show_rate)),
                ("ageing", settings.ageing.map_or_else(|| "never".to_owned(), show_ageing)),
                ("paused", if settings.paused { "yes" } else { "no" }.to_owned()),
                ("keep dead", show_retention(*retention)),
                ("keep done", settings.keep_done.map_or_else(|| "no".to_owned(), show_retention)),
                ("push", push::show(shown(settings).push.as_ref())),
            ];
            lines.map(|(name, value)| format!("{name:<13} {value}")).join("\n")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Cli::parse_from(["kind"].into_iter().chain(line.split(' '))).args
    }

    fn patch(line: &str) -> Option<SettingsPatch> {
        args(line).patch().unwrap()
    }

    #[test]
    fn only_the_given_settings_change() {
        let apply = |line: &str, settings: Settings| {
            patch(line).expect("options are given").apply(settings).unwrap()
        };
        assert_eq!(patch("mail"), None);
        let settings = apply("mail --concurrency 3 --backoff 2s", Settings::default());
        let mut expected = Settings::default();
        expected.concurrency = Some(3);
        expected.backoff.base = Duration::from_secs(2);
        assert_eq!(settings, expected);
        assert_eq!(apply("mail --concurrency none", settings).concurrency, None);
        let settings = apply("mail --keep-done-count 5", Settings::default());
        assert_eq!(settings.keep_done, Some(Retention { count: 5, ..Retention::default() }));
        let settings = apply("mail --keep-done 1d --rate 100/1m", settings);
        let day = Duration::from_secs(86_400);
        assert_eq!(settings.keep_done, Some(Retention { age: day, count: 5 }));
        assert_eq!(settings.rate, Some(Rate::new(100, Duration::from_secs(60))));
        let settings = apply("mail --rate 10/s", settings);
        assert_eq!(settings.rate, Some(Rate::new(10, Duration::from_secs(1))));
        let settings = apply("mail --keep-done none --rate none --ageing none", settings);
        assert_eq!((settings.keep_done, settings.rate, settings.ageing), (None, None, None));
        assert!(args("mail --keep-done none --keep-done-count 5").patch().is_err());
    }

    #[test]
    fn every_setting_has_an_option() {
        let line = "mail --lease 1m --max-attempts 2 --backoff 3s --backoff-max 4m --jitter 5 \
                    --concurrency 6 --keep-dead 7d --keep-dead-count 8 --rate 9/10s --burst 11 \
                    --ageing 12m --keep-done 13d --keep-done-count 14";
        let patch = patch(line).expect("options are given");
        let settings = patch.apply(Settings::default()).unwrap();
        assert_eq!(settings.lease, Duration::from_secs(60));
        assert_eq!((settings.max_attempts, settings.concurrency), (2, Some(6)));
        assert_eq!(settings.backoff.base, Duration::from_secs(3));
        assert_eq!(settings.backoff.max, Duration::from_secs(240));
        assert_eq!(settings.backoff.jitter_percent, 5);
        assert_eq!(settings.retention.age, Duration::from_secs(7 * 86_400));
        assert_eq!(settings.retention.count, 8);
        let per = Duration::from_secs(10);
        assert_eq!(settings.rate, Some(Rate { jobs: 9, per, burst: Some(11) }));
        assert_eq!(settings.ageing, Some(Duration::from_secs(12 * 60)));
        let age = Duration::from_secs(13 * 86_400);
        assert_eq!(settings.keep_done, Some(Retention { age, count: 14 }));
    }
}
