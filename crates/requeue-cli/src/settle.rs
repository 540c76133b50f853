//! `ack`, `retry`, `release`, `extend` and `bury`: what becomes of leases.

use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, plain};
use crate::store_args::{IfMissing, StoreArgs};
use crate::{shown, times};
use requeue_http::wire::SettleDone;
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{Receipt, Settle, Settled, Settlement};
use serde::Serialize;
use std::time::Duration;

/// Of whom.
#[derive(Debug, clap::Args)]
struct Receipts {
    /// What `requeue claim` printed
    #[arg(required = true, value_name = "RECEIPT")]
    receipts: Vec<Receipt>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AckArgs {
    #[command(flatten)]
    of: Receipts,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    of: Receipts,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    of: Receipts,
    /// Why it failed
    #[arg(long, value_name = "TEXT", default_value = "retried by hand")]
    error: String,
    /// Come back after this long [default: as the kind's backoff says]
    #[arg(long = "in", value_name = "DELAY", value_parser = times::duration)]
    delay: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    of: Receipts,
    /// From now on [default: as the settings of the kind say]
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    lease: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BuryArgs {
    #[command(flatten)]
    of: Receipts,
    /// Why it failed
    #[arg(long, value_name = "TEXT", default_value = "buried by hand")]
    error: String,
}

pub(crate) enum Verb {
    Ack(AckArgs),
    Retry(RetryArgs),
    Release(ReleaseArgs),
    Extend(ExtendArgs),
    Bury(BuryArgs),
}

impl Verb {
    fn settlements(self) -> (Vec<Receipt>, Settlement) {
        match self {
            Verb::Ack(args) => (args.of.receipts, Settlement::Ack),
            Verb::Release(args) => (args.of.receipts, Settlement::Release),
            Verb::Extend(args) => (args.of.receipts, Settlement::Extend(args.lease)),
            Verb::Bury(args) => (args.of.receipts, Settlement::Bury { error: args.error }),
            Verb::Retry(args) => {
                (args.of.receipts, Settlement::Retry { delay: args.delay, error: args.error })
            }
        }
    }
}

pub(crate) async fn settle(verb: Verb, place: &StoreArgs, out: Out) -> Result<()> {
    let (receipts, how) = verb.settlements();
    let store = place.open(IfMissing::Refuse).await?;
    let mut worst: Option<Exit> = None;
    for receipts in receipts.chunks(MAX_BATCH) {
        let of = |receipt: &Receipt| Settle { receipt: receipt.clone(), action: how.clone() };
        let answers = store.settle(receipts.iter().map(of).collect()).await?;
        for (receipt, answer) in receipts.iter().zip(answers) {
            match answer {
                Ok(settled) => say(out, receipt, settled)?,
                Err(error) => {
                    let exit = out.fail(error);
                    worst = Some(worst.map_or(exit, |worst| worst.worse(exit)));
                }
            }
        }
    }
    worst.map_or(Ok(()), |exit| Err(Failure::told_already(exit)))
}

/// What became of a lease, and of which.
#[derive(Debug, Serialize)]
struct OfLease {
    receipt: String,
    #[serde(flatten)]
    done: SettleDone,
}

fn say(out: Out, receipt: &Receipt, settled: Settled) -> Result<()> {
    let done = SettleDone::from(settled);
    let result = shown::word(done.result);
    out.say(
        || OfLease { receipt: receipt.to_string(), done },
        || {
            let now = times::now();
            let more = match settled {
                Settled::RetryAt(at) => format!(", due {}", times::local(at, now)),
                Settled::Extended(at) => format!(", until {}", times::local(at, now)),
                _ => String::new(),
            };
            format!("{result} {}/{}{more}", receipt.kind(), plain(receipt.id().as_str()))
        },
    )
}
