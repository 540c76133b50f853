//! The command line as a whole. The arguments of each command are in the command's own module.

use crate::error::EXIT_CODES;
use crate::store_args::StoreArgs;
use crate::{
    bench, bridge, change, claim, demo, disk, events, generate, inspect, kind, postgres, put,
    reschedule, schedule, serve, settle, stats, top, transfer, work, workers,
};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use requeue_http::wire::Word;
use std::sync::LazyLock;

/// Store jobs until they are due, and hand each to one worker at a time
///
/// `requeue serve` starts a server. The other commands connect to a server, by default to
/// http://127.0.0.1:7654. With --data or --store they open a data directory, Redis or Postgres directly.
#[derive(Debug, Parser)]
#[command(name = "requeue", version, long_version = LONG_VERSION.as_str())]
#[command(after_help = GET_STARTED, after_long_help = AFTER_LONG_HELP.as_str())]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    #[command(flatten)]
    pub(crate) store_args: StoreArgs,
    /// Print JSON, one object per line, with the field names of the HTTP API
    #[arg(long, global = true, help_heading = "Output options")]
    pub(crate) json: bool,
}

const GET_STARTED: &str = "\
Get started:
  requeue demo                                Start a server with an example
  requeue serve                               Start a server
  requeue put mail order-42 hello --in 5m     Put a job, due in 5 minutes
  requeue work mail --exec ./send-mail        Run a command for each due job
  requeue stats                               Show kinds and job counts

Run `requeue help COMMAND` for details and examples of a command.";

const ENVIRONMENT: &str = "\
Environment variables:
  REQUEUE_SERVER      URL of the server, if --server is not given
  REQUEUE_TOKEN       Token to send to the server, if --token-file is not given
  REQUEUE_TOKEN_FILE  File that contains that token, instead of REQUEUE_TOKEN
  REQUEUE_CA_FILE     PEM file of certificates to trust, if --ca-file is not given
  REQUEUE_STORE       URL of Redis or Postgres for `requeue serve` and
                      `requeue postgres`, if no store option is given
  REQUEUE_LISTEN, REQUEUE_LOG, REQUEUE_READ_TOKEN
                      Only for `requeue serve`: see its help
  NO_COLOR            If set, nothing is printed in colour";

static AFTER_LONG_HELP: LazyLock<String> =
    LazyLock::new(|| format!("{GET_STARTED}\n\n{ENVIRONMENT}\n\n{EXIT_CODES}"));

/// Printed by `--version`. `-V` prints the first line only.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let (version, os, arch) =
        (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let features = if cfg!(feature = "otel") { "otel" } else { "none" };
    format!("{version}\nplatform: {os} {arch}\noptional features: {features}")
});

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Start a server
    Serve(serve::Args),
    /// Start a server with an example scenario: a shop with producers and workers
    Demo(demo::Args),
    /// Create or replace a job, or all jobs of a file
    ///
    /// If the job exists, its body, due time and priority are replaced. To change
    /// only some of them, use `requeue reschedule`.
    Put(put::Args),
    /// Change the due time, the priority or the body of a job
    Reschedule(reschedule::Args),
    /// Show a job
    #[command(visible_alias = "show")]
    Get(inspect::GetArgs),
    /// List the jobs of a kind
    #[command(visible_alias = "list")]
    Ls(inspect::LsArgs),
    /// Show all kinds and their job counts
    #[command(visible_alias = "kinds")]
    Stats(stats::Args),
    /// Show kinds, rates and what becomes due, live
    Top(top::Args),
    /// Show the workers of a server
    #[command(after_help = workers::EXAMPLES)]
    Workers,
    /// Print what a server does, as it happens
    Events(events::Args),
    /// Claim due jobs and print their receipts
    Claim(claim::Args),
    /// Mark claimed jobs as done, which removes them
    Ack(settle::AckArgs),
    /// Report that claimed jobs failed, and schedule the next attempt
    Retry(settle::RetryArgs),
    /// Return claimed jobs without counting an attempt
    Release(settle::ReleaseArgs),
    /// Extend the leases of claimed jobs
    Extend(settle::ExtendArgs),
    /// Report that claimed jobs failed for good, and make them dead
    Bury(settle::BuryArgs),
    /// Remove jobs
    #[command(after_help = change::CANCEL_HELP)]
    Cancel(change::Args),
    /// Make dead jobs due now, with no attempts counted
    #[command(after_help = change::REVIVE_HELP)]
    Revive(change::Args),
    /// Make jobs due now, regardless of their due time and backoff
    #[command(after_help = change::RUN_NOW_HELP)]
    RunNow(change::Args),
    /// Stop handing out the jobs of a kind
    #[command(after_help = kind::PAUSE_EXAMPLES)]
    Pause(kind::PauseArgs),
    /// Hand out the jobs of a paused kind again
    #[command(after_help = kind::RESUME_EXAMPLES)]
    Resume(kind::KindArgs),
    /// Show or change the settings of a kind, or delete it
    Kind(kind::Args),
    /// Manage schedules: jobs that recur by a cron expression or a period
    Schedule(schedule::Args),
    /// Run a shell command for each due job
    Work(work::Args),
    /// Put the messages of RabbitMQ, NATS, Kafka or Redis Streams as jobs
    Bridge(bridge::Args),
    /// Write all jobs, schedules and settings to a file
    Export(transfer::ExportArgs),
    /// Add the jobs, schedules and settings of an export
    Import(transfer::ImportArgs),
    /// Check a data directory for damage
    Verify(disk::VerifyArgs),
    /// Copy a data directory
    Backup(disk::BackupArgs),
    /// Create and check the tables in Postgres
    Postgres(postgres::Args),
    /// Measure the throughput and latency of a store
    Bench(bench::Args),
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
    /// Print the manual page, or write all manual pages to a directory
    Man(generate::ManArgs),
}

/// Options of a store that only those need who run a service on it. They work with every command.
const TUNING: [&str; 6] = [
    "redis_cert",
    "redis_key",
    "postgres_connections",
    "postgres_poll",
    "postgres_no_listen",
    "postgres_no_migrate",
];

/// Parses a word of the HTTP API, and lists the words in the help.
pub(crate) fn word<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let help = |text: &'static str| text.trim().trim_end_matches('.');
    let values = T::ALL.iter().map(|(_, word, text)| PossibleValue::new(*word).help(help(text)));
    let by_name = |word: String| T::by_name(&word).expect("it is one of them");
    PossibleValuesParser::new(values).map(by_name)
}

/// Parses the command line.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The command line. The help of commands other than `serve` leaves out [`TUNING`].
fn command() -> Command {
    let mut command = Cli::command();
    // Gives the global options to all commands.
    command.build();
    command.mut_subcommands(|command| match command.get_name() {
        "serve" => command,
        _ => without_tuning(command),
    })
}

fn without_tuning(command: Command) -> Command {
    let hidden = |arg: Arg| {
        let is_tuning = TUNING.iter().any(|name| arg.get_id() == name);
        if is_tuning { arg.hide(true) } else { arg }
    };
    command.mut_args(hidden).mut_subcommands(without_tuning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_testkit::{Random, check_seeds};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let tuning = |name: &&str| command().get_arguments().any(|arg| arg.get_id() == name);
        assert!(TUNING.iter().all(tuning), "an option has another name");
    }

    #[test]
    fn no_arguments_make_the_parser_panic() {
        let words = [
            "put",
            "get",
            "ls",
            "claim",
            "retry",
            "kind",
            "schedule",
            "set",
            "next",
            "work",
            "bench",
            "serve",
            "mail",
            "a",
            "--in",
            "--at",
            "--lease",
            "--wait",
            "--backoff",
            "--cron",
            "--every",
            "0 9 * * MON-FRI",
            "--keep-dead",
            "--time",
            "--grace",
            "--concurrency",
            "--jitter",
            "--max",
            "--limit",
            "--json",
            "--",
            "-",
            "5m",
            "90s",
            "1h30m",
            "tomorrow 09:00",
            "2026-12-01 09:00 Europe/Berlin",
            "in 5m",
            "@0",
            "now",
            "1f.a.mail/a",
            "18446744073709551616",
            "-1",
            "",
        ];
        check_seeds(&[], "REQUEUE_ARGUMENTS", 300, |seed| {
            let mut random = Random::new(seed);
            let mut word = || {
                let mut word: Vec<char> = random.pick(&words).chars().collect();
                if random.chance(40) {
                    let any = char::from_u32(random.below(0x300) as u32).unwrap_or('x');
                    word.insert(random.below(word.len() + 1), any);
                }
                word.into_iter().collect::<String>()
            };
            let args: Vec<String> = (0..6).map(|_| word()).collect();
            // Times and durations are also parsed by themselves: most arguments fail before that.
            for arg in &args {
                let _ = (crate::times::duration(arg), crate::times::time(arg));
            }
            let _ = Cli::try_parse_from(std::iter::once("requeue".to_owned()).chain(args));
            Ok(())
        });
    }

    #[test]
    fn every_command_has_examples_and_its_help_fits_80_columns() {
        let cli = Cli::command();
        let of_cli = cli.get_subcommands().map(|command| (command.get_name().to_owned(), command));
        let nested = cli.get_subcommands().flat_map(|group| {
            let name =
                |command: &clap::Command| format!("{} {}", group.get_name(), command.get_name());
            group.get_subcommands().map(move |command| (name(command), command))
        });
        for (name, command) in of_cli.chain(nested) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  "), "{name} has no examples");
            assert!(help.contains(&format!("  requeue {name}")), "{name} has no example");
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name}");
        }
    }
}
