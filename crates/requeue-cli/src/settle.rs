//! `ack`, `retry`, `release`, `extend` and `bury`: settle claimed jobs by their receipts.

use crate::body::BodyType;
use crate::error::{CliError, Exit, Result};
use crate::output::{Output, escape};
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use requeue_http::wire::{SettleDone, Word};
use requeue_jobs::limits::{MAX_ACK_RESULT_LEN, MAX_BATCH, MAX_BATCH_BYTES};
use requeue_jobs::rules::check_result;
use requeue_jobs::{Receipt, Settle, Settled, Settlement};
use serde::Serialize;
use std::time::Duration;

/// The receipts that all these commands take.
#[derive(Debug, clap::Args)]
struct Receipts {
    /// Receipt that `requeue claim` printed
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  RECEIPT=$(requeue claim mail --json | jq -r .receipt)
  requeue ack \"$RECEIPT\"
  requeue ack \"$RECEIPT\" --result '{\"sent\":3}'

The result is kept with the done job, if its kind keeps done jobs:
  requeue kind mail --keep-done 7d
  requeue get mail order-42

If the lease has expired or the job is already settled, the command prints an
error and exits with 1.")]
pub(crate) struct AckArgs {
    #[command(flatten)]
    of: Receipts,
    /// Result to keep with the done job: text, - to read stdin, or @FILE to read a file
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
    #[command(flatten)]
    result_type: BodyType,
}

impl AckArgs {
    fn settlement(&self) -> Result<Settlement> {
        let Some(result) = &self.result else {
            return match self.result_type.is_default() {
                true => Ok(Settlement::Ack),
                false => Err(CliError::usage("--content-type and --text need --result RESULT")),
            };
        };
        let result = self.result_type.read(result, MAX_ACK_RESULT_LEN)?;
        check_result(&result)?;
        Ok(Settlement::AckWith(result))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The job is ready again immediately. Release a job if its work has not begun;
otherwise use `requeue retry`.

Examples:
  RECEIPT=$(requeue claim mail --json | jq -r .receipt)
  requeue release \"$RECEIPT\"")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    of: Receipts,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A job that has used up the attempts of its kind becomes dead instead.

Examples:
  RECEIPT=$(requeue claim mail --json | jq -r .receipt)
  requeue retry \"$RECEIPT\" --error 'mailbox full' --in 10m")]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    of: Receipts,
    /// Error message to keep with the job
    #[arg(long, value_name = "TEXT", default_value = "retried by hand")]
    error: String,
    /// Time until the next attempt, such as 90s or 10m [default: the kind's backoff]
    #[arg(long = "in", visible_alias = "delay", value_name = "DURATION")]
    #[arg(value_parser = times::duration)]
    delay: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
If the job was cancelled, the command prints `cancelled`: stop working on it.

Examples:
  RECEIPT=$(requeue claim mail --json | jq -r .receipt)
  requeue extend \"$RECEIPT\" --lease 10m")]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    of: Receipts,
    /// Length of the lease from now, such as 90s or 10m [default: the kind's lease]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A dead job keeps its body and its errors. `requeue revive` makes it due again.

Examples:
  RECEIPT=$(requeue claim mail --json | jq -r .receipt)
  requeue bury \"$RECEIPT\" --error 'no such address'")]
pub(crate) struct BuryArgs {
    #[command(flatten)]
    of: Receipts,
    /// Error message to keep with the job
    #[arg(long, value_name = "TEXT", default_value = "buried by hand")]
    error: String,
}

/// One of these commands, with its arguments.
pub(crate) enum Action {
    Ack(AckArgs),
    Retry(RetryArgs),
    Release(ReleaseArgs),
    Extend(ExtendArgs),
    Bury(BuryArgs),
}

impl Action {
    fn settlement(self) -> Result<(Vec<Receipt>, Settlement)> {
        Ok(match self {
            Action::Ack(args) => {
                let settlement = args.settlement()?;
                (args.of.receipts, settlement)
            }
            Action::Release(args) => (args.of.receipts, Settlement::Release),
            Action::Extend(args) => (args.of.receipts, Settlement::Extend(args.lease)),
            Action::Bury(args) => (args.of.receipts, Settlement::Bury { error: args.error }),
            Action::Retry(args) => {
                (args.of.receipts, Settlement::Retry { delay: args.delay, error: args.error })
            }
        })
    }
}

pub(crate) async fn settle(action: Action, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (receipts, settlement) = action.settlement()?;
    let store = store_args.open(IfMissing::Fail).await?;
    let mut worst: Option<Exit> = None;
    // Each has the result, and a batch has a limit of its bytes, too.
    let batch = (MAX_BATCH_BYTES / settlement.result_len().max(1)).min(MAX_BATCH);
    for receipts in receipts.chunks(batch) {
        let of =
            |receipt: &Receipt| Settle { receipt: receipt.clone(), action: settlement.clone() };
        let results = store.settle(receipts.iter().map(of).collect()).await?;
        for (receipt, result) in receipts.iter().zip(results) {
            match result {
                Ok(settled) => print(out, receipt, settled)?,
                Err(error) => {
                    let exit = out.print_error(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
            }
        }
    }
    worst.map_or(Ok(()), |exit| Err(CliError::already_reported(exit)))
}

/// The JSON output for one receipt.
#[derive(Debug, Serialize)]
struct LeaseResult {
    receipt: String,
    #[serde(flatten)]
    done: SettleDone,
}

fn print(out: Output, receipt: &Receipt, settled: Settled) -> Result<()> {
    let done = SettleDone::from(settled);
    let result = done.result.name();
    out.print(
        || LeaseResult { receipt: receipt.to_string(), done },
        || {
            let now = times::now();
            let more = match settled {
                Settled::RetryAt(at) => format!(", due {}", times::local(at, now)),
                Settled::Extended(at) => format!(", until {}", times::local(at, now)),
                _ => String::new(),
            };
            format!("{result} {}/{}{more}", receipt.kind(), escape(receipt.id().as_str()))
        },
    )
}
