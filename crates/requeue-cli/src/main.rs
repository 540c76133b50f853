//! The `requeue` program: a server for durable jobs, and its command-line client.
//!
//! ```text
//!   args ──▶ command ──▶ StoreArgs::open: HttpStore | DiskStore | … ──▶ Output: text | JSON
//!                  └───▶ CliError: error, hint, exit code
//! ```
//!
//! The module of a command contains its arguments, its work and its output. Commands work on any
//! store: `HttpStore` implements the same trait as the stores that keep jobs themselves.

mod allocator;
mod args;
mod bench;
mod body;
mod bound_socket;
mod bridge;
mod bulk;
mod change;
mod claim;
mod confirm;
mod demo;
mod disk;
mod error;
mod events;
mod format;
mod generate;
mod inspect;
mod job_name;
mod kind;
mod logs;
mod open_files;
mod output;
mod postgres;
mod private_files;
mod progress;
mod push;
mod put;
mod reschedule;
mod schedule;
mod serve;
mod settle;
mod signals;
mod stats;
mod store_args;
mod text;
mod times;
mod top;
mod transfer;
mod work;
mod workers;

use args::{Cli, CliCommand};
use error::{Exit, Result};
use output::Output;
use requeue_http::wire::BulkVerb;
use settle::Action;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => return print_parse_error(&error),
    };
    let (store_args, json) = (cli.store_args.clone(), cli.json);
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = if error.exit == Exit::Unavailable { store_args.hint(&error) } else { None };
            error.or_hint(hint).report(json)
        }
    }
}

/// Prints an error of the command line, or the help. An error repeats the invalid argument or
/// environment variable. If one could contain commands for the terminal, the error is escaped and has
/// no colours.
fn print_parse_error(error: &clap::Error) -> ExitCode {
    let variables =
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REQUEUE_"));
    let mut given = std::env::args_os().chain(variables.map(|(_, value)| value));
    if !given.any(|text| output::is_escaped(&text.to_string_lossy())) {
        error.exit();
    }
    output::print_note(error.render().to_string().trim_end());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(Cli { command, store_args, json }: Cli) -> Result<()> {
    let out = Output { json };
    // These commands need no runtime.
    match &command {
        CliCommand::Verify(args) => return disk::verify(args, out),
        CliCommand::Completions(args) => return generate::completions(args),
        CliCommand::Man(args) => return generate::man(args),
        _ => {}
    }
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| error::CliError::io("start", "threads", &error))?;
    let done = runtime.block_on(async {
        match command {
            CliCommand::Serve(args) => serve::serve(args, &store_args, out).await,
            CliCommand::Demo(args) => demo::demo(args, &store_args, out).await,
            CliCommand::Put(args) => put::put(args, &store_args, out).await,
            CliCommand::Reschedule(args) => reschedule::reschedule(args, &store_args, out).await,
            CliCommand::Get(args) => inspect::get(args, &store_args, out).await,
            CliCommand::Ls(args) => inspect::ls(args, &store_args, out).await,
            CliCommand::Stats(args) => stats::stats(args, &store_args, out).await,
            CliCommand::Top(args) => top::top(args, &store_args, out).await,
            CliCommand::Workers => workers::workers(&store_args, out).await,
            CliCommand::Events(args) => events::events(args, &store_args, out).await,
            CliCommand::Claim(args) => claim::claim(args, &store_args, out).await,
            CliCommand::Ack(args) => settle::settle(Action::Ack(args), &store_args, out).await,
            CliCommand::Retry(args) => settle::settle(Action::Retry(args), &store_args, out).await,
            CliCommand::Release(args) => {
                settle::settle(Action::Release(args), &store_args, out).await
            }
            CliCommand::Extend(args) => {
                settle::settle(Action::Extend(args), &store_args, out).await
            }
            CliCommand::Bury(args) => settle::settle(Action::Bury(args), &store_args, out).await,
            CliCommand::Cancel(args) => {
                change::change(args, BulkVerb::Cancel, &store_args, out).await
            }
            CliCommand::Revive(args) => {
                change::change(args, BulkVerb::Revive, &store_args, out).await
            }
            CliCommand::RunNow(args) => {
                change::change(args, BulkVerb::RunNow, &store_args, out).await
            }
            CliCommand::Pause(args) => kind::pause(args, &store_args, out).await,
            CliCommand::Resume(args) => kind::resume(args, &store_args, out).await,
            CliCommand::Kind(args) => kind::kind(args, &store_args, out).await,
            CliCommand::Schedule(args) => schedule::schedule(args, &store_args, out).await,
            CliCommand::Work(args) => work::work(args, &store_args, out).await,
            CliCommand::Bridge(args) => bridge::bridge(args, &store_args, out).await,
            CliCommand::Export(args) => transfer::export(args, &store_args, out).await,
            CliCommand::Import(args) => transfer::import(args, &store_args, out).await,
            CliCommand::Backup(args) => disk::backup(args, &store_args, out).await,
            CliCommand::Postgres(args) => postgres::postgres(args, &store_args, out).await,
            CliCommand::Bench(args) => bench::bench(args, &store_args, out).await,
            CliCommand::Verify(_) | CliCommand::Completions(_) | CliCommand::Man(_) => Ok(()),
        }
    });
    // A pending read of stdin would block a regular shutdown of the runtime.
    runtime.shutdown_background();
    done
}
