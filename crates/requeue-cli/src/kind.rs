//! `kind`, `pause` and `resume`: what is set for a kind.

use crate::failure::{Failure, Result};
use crate::out::Out;
use crate::store_args::{IfMissing, StoreArgs, Where};
use crate::times;
use requeue_http::Problem;
use requeue_http::client::path;
use requeue_http::wire::{BackoffPatch, ParseContext, RetentionPatch, SettingsJson, SettingsPatch};
use requeue_jobs::{Kind, Settings};
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct KindArgs {
    /// Which
    #[arg(value_name = "KIND")]
    kind: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only what is named changes. Jobs that are pending or leased are not touched."
)]
pub(crate) struct Args {
    /// Which
    kind: String,
    /// How long a lease is, where a claim does not say
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
    /// A job that fails so often is dead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// How long until a job may come back after its first failure; doubled after each further one
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    backoff: Option<Duration>,
    /// The longest that it may have to wait
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    backoff_max: Option<Duration>,
    /// Up to this percentage is taken from each wait, at random
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    jitter: Option<u8>,
    /// How many may be leased at once; `none` for any number
    #[arg(long, value_name = "N", value_parser = concurrency)]
    concurrency: Option<Concurrency>,
    /// How long dead jobs are kept
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    keep_dead: Option<Duration>,
    /// How many dead jobs are kept, those that died last
    #[arg(long, value_name = "N")]
    keep_dead_count: Option<usize>,
}

/// `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concurrency(Option<u32>);

fn concurrency(text: &str) -> Result<Concurrency, String> {
    if text == "none" {
        return Ok(Concurrency(None));
    }
    let number = text.parse().map_err(|_| "a number, or `none`".to_owned())?;
    Ok(Concurrency(Some(number)))
}

impl Args {
    /// What is named, in the words of the API. `None`: nothing is.
    fn patch(&self) -> Option<SettingsPatch> {
        let text = |duration: Option<Duration>| duration.map(times::show_duration);
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
            paused: None,
            retention: (retention != RetentionPatch::default()).then_some(retention),
        };
        (patch != SettingsPatch::default()).then_some(patch)
    }
}

/// Shows what is set for a kind, and changes what is named before.
pub(crate) async fn kind(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    let kind = Kind::new(args.kind.as_str())?;
    let settings = match args.patch() {
        Some(patch) => change(place, &kind, patch).await?,
        None => place.open(IfMissing::Refuse).await?.settings(kind.clone()).await?,
    };
    say(out, &kind, &settings)
}

/// Pauses a kind, or lets it go on.
pub(crate) async fn pause(args: KindArgs, paused: bool, place: &StoreArgs, out: Out) -> Result<()> {
    let kind = Kind::new(args.kind)?;
    let patch = SettingsPatch { paused: Some(paused), ..SettingsPatch::default() };
    change(place, &kind, patch).await?;
    out.say(
        || serde_json::json!({ "kind": kind.as_str(), "paused": paused }),
        || if paused { format!("{kind} is paused") } else { format!("{kind} is not paused") },
    )
}

/// Changes what the patch names. A server does it where the settings are, so that what others
/// set meanwhile is not written over with what was read here.
async fn change(place: &StoreArgs, kind: &Kind, patch: SettingsPatch) -> Result<Settings> {
    let refused = |problem: Problem| Failure::usage(problem.detail);
    let reading = ParseContext { now: times::now() };
    if let Where::Server(url) = place.chosen()? {
        let path = path(&["v1", "kinds", kind.as_str()]);
        let set: SettingsJson = place.connect(&url)?.call("PATCH", &path, Some(&patch)).await?;
        return set.read(&reading).map_err(refused);
    }
    let store = place.open(IfMissing::Refuse).await?;
    let settings = store.settings(kind.clone()).await?;
    let settings = patch.apply(settings, &reading).map_err(refused)?;
    store.set(kind.clone(), settings.clone()).await?;
    Ok(settings)
}

/// What is set, and for which.
#[derive(Debug, Serialize)]
struct OfKind<'a> {
    kind: &'a str,
    #[serde(flatten)]
    settings: SettingsJson,
}

fn say(out: Out, kind: &Kind, settings: &Settings) -> Result<()> {
    out.say(
        || OfKind { kind: kind.as_str(), settings: settings.into() },
        || {
            let Settings { backoff, retention, .. } = settings;
            let (show, percent) = (times::show_duration, backoff.jitter_percent);
            let lines = [
                ("kind", kind.to_string()),
                ("lease", show(settings.lease)),
                ("max attempts", settings.max_attempts.to_string()),
                ("backoff", format!("from {} to {}", show(backoff.base), show(backoff.max))),
                ("jitter", format!("less up to {percent}%")),
                (
                    "concurrency",
                    settings.concurrency.map_or_else(|| "any".to_owned(), |n| n.to_string()),
                ),
                ("paused", if settings.paused { "yes" } else { "no" }.to_owned()),
                ("keep dead", format!("{}, {} jobs", show(retention.age), retention.count)),
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

    #[test]
    fn only_what_is_named_changes() {
        let reading = ParseContext { now: times::now() };
        let apply = |line: &str, settings: Settings| {
            args(line).patch().expect("something is named").apply(settings, &reading).unwrap()
        };
        assert_eq!(args("mail").patch(), None);
        let settings = apply("mail --concurrency 3 --backoff 2s", Settings::default());
        let mut expected = Settings::default();
        expected.concurrency = Some(3);
        expected.backoff.base = Duration::from_secs(2);
        assert_eq!(settings, expected);
        assert_eq!(apply("mail --concurrency none", settings).concurrency, None);
    }

    #[test]
    fn all_that_may_be_named_is_set() {
        let line = "mail --lease 1m --max-attempts 2 --backoff 3s --backoff-max 4m --jitter 5 \
                    --concurrency 6 --keep-dead 7d --keep-dead-count 8";
        let patch = args(line).patch().expect("all is named");
        let reading = ParseContext { now: times::now() };
        let settings = patch.apply(Settings::default(), &reading).unwrap();
        assert_eq!(settings.lease, Duration::from_secs(60));
        assert_eq!((settings.max_attempts, settings.concurrency), (2, Some(6)));
        assert_eq!(settings.backoff.base, Duration::from_secs(3));
        assert_eq!(settings.backoff.max, Duration::from_secs(240));
        assert_eq!(settings.backoff.jitter_percent, 5);
        assert_eq!(settings.retention.age, Duration::from_secs(7 * 86_400));
        assert_eq!(settings.retention.count, 8);
    }
}
