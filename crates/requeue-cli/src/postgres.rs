//! `postgres`: creates and checks the tables in Postgres.

use crate::error::{CliError, Exit, Result};
use crate::output::{Output, count, escape};
use crate::store_args::{StoreArgs, StoreLocation};
use clap::Subcommand;
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
`requeue serve` creates the tables itself, if its role may do so. If it may not,
run `requeue postgres migrate` with a role that may, and start the servers with
--postgres-no-migrate.

If the URL contains a password, set REQUEUE_STORE to it and omit --store: other
users of the machine can read command lines.

Examples:
  requeue postgres migrate --store postgres://owner@127.0.0.1/shop
  requeue postgres check --store postgres://app@127.0.0.1/shop")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: PostgresCommand,
}

#[derive(Debug, Subcommand)]
enum PostgresCommand {
    /// Create the tables
    #[command(after_help = "\
Everything is created in the schema --postgres-schema NAME, in one transaction.
Repeating the command changes nothing.

Examples:
  requeue postgres migrate --store postgres://owner@127.0.0.1/shop
  requeue postgres migrate --store postgres://owner@127.0.0.1/shop \\
      --postgres-schema requeue_staging")]
    Migrate,
    /// Check that the tables are consistent
    #[command(after_help = "\
Reads all jobs, compares them with their counts, and prints each problem.
Servers may run meanwhile. Exits with 0 if there is no problem, and with 1
otherwise.

Examples:
  requeue postgres check --store postgres://app@127.0.0.1/shop")]
    Check,
}

pub(crate) async fn postgres(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let store_args = store_args.or_environment();
    let StoreLocation::Postgres(url) = store_args.location()? else {
        return Err(CliError::usage(
            "this command needs a database: use --store postgres://…, or set REQUEUE_STORE to its URL",
        ));
    };
    match args.command {
        PostgresCommand::Migrate => migrate(&url, &store_args, out).await,
        PostgresCommand::Check => check(&url, &store_args, out).await,
    }
}

async fn migrate(url: &str, store_args: &StoreArgs, out: Output) -> Result<()> {
    if store_args.postgres_no_migrate {
        let message = "--postgres-no-migrate does not apply to `requeue postgres migrate`";
        return Err(CliError::usage(message));
    }
    let schema = store_args.postgres_options()?.schema;
    let done = store_args.migrate_postgres(url).await?;
    out.print(
        || json!({ "schema": schema, "from": done.from, "to": done.to }),
        || match done.from == done.to {
            true => format!("schema {schema}: already at version {}", done.to),
            false => format!("schema {schema}: version {} -> {}", done.from, done.to),
        },
    )
}

async fn check(url: &str, store_args: &StoreArgs, out: Output) -> Result<()> {
    let schema = store_args.postgres_options()?.schema;
    let problems = store_args.connect_postgres_to_check(url).await?.check().await?;
    let number = problems.len() as u64;
    out.print(
        || json!({ "schema": schema, "sound": number == 0, "problems": problems }),
        || {
            let lines = problems.iter().map(|problem| format!("problem: {}\n", escape(problem)));
            let lines: String = lines.collect();
            format!("{lines}schema {schema}: {}", count(number, "problem"))
        },
    )?;
    if number == 0 {
        return Ok(());
    }
    let message = format!("the tables in the schema {schema} are inconsistent");
    Err(CliError::new(Exit::Failed, message)
        .hint("`requeue export` and `requeue import` copy the jobs to another schema"))
}
