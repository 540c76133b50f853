//! The `requeue` program: a server of durable jobs, and the verbs to ask it.
//!
//! ```text
//!   args ──▶ a verb ──▶ StoreArgs::open: HttpStore | DiskStore | RedisStore ──▶ Out: text | JSON
//!                 └───▶ Failure: error, hint, exit code
//! ```
//!
//! Each verb is a file: what it takes, what it does, what it prints. All of them work on any
//! store, since a server is one too.

mod args;
mod ask;
mod bench;
mod change;
mod claim;
mod disk;
mod failure;
mod files;
mod kind;
mod logs;
mod out;
mod progress;
mod put;
mod serve;
mod settle;
mod shell;
mod shown;
mod signals;
mod store_args;
mod times;
mod transfer;
mod work;

use args::{Cli, Verb};
use clap::Parser;
use failure::{Exit, Result};
use out::Out;
use requeue_jobs::ChangeKind;
use settle::Verb as SettleVerb;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (place, json) = (cli.place.clone(), cli.json);
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let hint = if failure.exit == Exit::Unavailable { place.hint(&failure) } else { None };
            failure.or_hint(hint).report(json)
        }
    }
}

fn run(Cli { verb, place, json }: Cli) -> Result<()> {
    let out = Out { json };
    // What needs no runtime.
    match &verb {
        Verb::Verify(args) => return disk::verify(args, out),
        Verb::Completions(args) => return shell::completions(args),
        Verb::Man(args) => return shell::man(args),
        _ => {}
    }
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| failure::Failure::file("start", "threads", &error))?;
    let done = runtime.block_on(async {
        match verb {
            Verb::Serve(args) => serve::serve(args, &place, out).await,
            Verb::Put(args) => put::put(args, &place, out).await,
            Verb::Get(args) => ask::get(args, &place, out).await,
            Verb::Ls(args) => ask::ls(args, &place, out).await,
            Verb::Stats => ask::stats(&place, out).await,
            Verb::Claim(args) => claim::claim(args, &place, out).await,
            Verb::Ack(args) => settle::settle(SettleVerb::Ack(args), &place, out).await,
            Verb::Retry(args) => settle::settle(SettleVerb::Retry(args), &place, out).await,
            Verb::Release(args) => settle::settle(SettleVerb::Release(args), &place, out).await,
            Verb::Extend(args) => settle::settle(SettleVerb::Extend(args), &place, out).await,
            Verb::Bury(args) => settle::settle(SettleVerb::Bury(args), &place, out).await,
            Verb::Cancel(args) => change::change(args, ChangeKind::Cancel, &place, out).await,
            Verb::Revive(args) => change::change(args, ChangeKind::Revive, &place, out).await,
            Verb::RunNow(args) => change::change(args, ChangeKind::RunNow, &place, out).await,
            Verb::Pause(args) => kind::pause(args, true, &place, out).await,
            Verb::Resume(args) => kind::pause(args, false, &place, out).await,
            Verb::Kind(args) => kind::kind(args, &place, out).await,
            Verb::Work(args) => work::work(args, &place, out).await,
            Verb::Export(args) => transfer::export(args, &place, out).await,
            Verb::Import(args) => transfer::import(args, &place, out).await,
            Verb::Backup(args) => disk::backup(args, &place, out).await,
            Verb::Bench(args) => bench::bench(args, &place, out).await,
            Verb::Verify(_) | Verb::Completions(_) | Verb::Man(_) => Ok(()),
        }
    });
    // A read of stdin that nobody ends would keep it from ending.
    runtime.shutdown_background();
    done
}
