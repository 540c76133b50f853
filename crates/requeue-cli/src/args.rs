//! The command line as a whole. What a verb takes is beside what it does.

use crate::failure::EXIT_CODES;
use crate::store_args::StoreArgs;
use crate::{ask, bench, change, claim, disk, kind, put, serve, settle, shell, transfer, work};
use clap::{Parser, Subcommand};

/// A delay queue: a job is put, falls due, is claimed by a worker, and is acked or retried.
///
/// `requeue serve` starts a server; the other verbs ask it.
#[derive(Debug, Parser)]
#[command(name = "requeue", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) place: StoreArgs,
    /// Answer in JSON: one object per line, with the names of the HTTP API
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start a server
    Serve(serve::Args),
    /// Put a job, or a file of jobs
    Put(put::Args),
    /// Show a job
    Get(ask::GetArgs),
    /// List jobs of a kind
    Ls(ask::LsArgs),
    /// Show all kinds and how many jobs they have
    #[command(visible_alias = "kinds")]
    Stats,
    /// Claim jobs, and print their receipts
    Claim(claim::Args),
    /// Jobs are done
    Ack(settle::AckArgs),
    /// Jobs failed, and come back as their kind's backoff says
    Retry(settle::RetryArgs),
    /// Jobs were not begun: give them back, with no attempt counted
    Release(settle::ReleaseArgs),
    /// Jobs take longer
    Extend(settle::ExtendArgs),
    /// Jobs failed, and trying again is of no use
    Bury(settle::BuryArgs),
    /// Remove jobs; those that are leased end with their lease
    Cancel(change::Args),
    /// Let dead jobs start again
    Revive(change::Args),
    /// Make jobs due now, whatever their backoff
    RunNow(change::Args),
    /// Claim no more jobs of a kind
    Pause(kind::KindArgs),
    /// Claim jobs of a kind again
    Resume(kind::KindArgs),
    /// Show what is set for a kind, or change it
    Kind(kind::Args),
    /// Run a command for every job
    Work(work::Args),
    /// Write all jobs to a file, as JSON Lines
    Export(transfer::ExportArgs),
    /// Read jobs that were exported, beside those that are there
    Import(transfer::ImportArgs),
    /// Read all that is in a directory, and say what is wrong with it
    Verify(disk::VerifyArgs),
    /// Copy a directory of jobs
    Backup(disk::BackupArgs),
    /// Measure how fast jobs are put, claimed and acked here
    Bench(bench::Args),
    /// Print completions for a shell
    Completions(shell::CompletionsArgs),
    /// Print the manual, or write it to a directory
    Man(shell::ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }
}
