//! `stats`: shows all kinds and their job counts, once or again and again.

mod watch;

use crate::error::Result;
use crate::output::{Cell, Output, Table};
use crate::store_args::{IfMissing, StoreArgs};
use crate::text::{Text, Tone};
use crate::times;
use requeue_http::wire::KindStats;
use requeue_jobs::limits::READY_COUNT_CAP;
use requeue_jobs::{KindView, Timestamp};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --watch, the column CHANGE/S has the net change of the counts per second.
It is not the rate of work: a job that is put and done between two looks changes
no count. `requeue top` shows rates.

Examples:
  requeue stats
  requeue stats --watch
  requeue stats --watch 10s --json
  requeue stats --json | jq 'select(.dead > 0) | .kind'")]
pub(crate) struct Args {
    /// Show the table again every INTERVAL, until interrupted [default: 1s]
    #[arg(long, value_name = "INTERVAL", value_parser = times::interval)]
    #[arg(num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<Duration>,
}

pub(crate) async fn stats(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let store = store_args.open(IfMissing::Fail).await?;
    if let Some(interval) = args.watch {
        return watch::watch(&*store, interval, out).await;
    }
    let kinds = store.kinds().await?;
    if out.json {
        return kinds.iter().try_for_each(|kind| out.print_json(&KindStats::from(kind)));
    }
    out.print_line(text(&kinds, times::now(), |_| String::new()))
}

/// The table of all kinds. `change` is the text of the additional column, which is left out if it is empty
/// for all kinds.
fn text(kinds: &[KindView], now: Timestamp, change: impl Fn(&KindView) -> String) -> Text {
    if kinds.is_empty() {
        return "there are no kinds yet; to put a job: requeue put KIND ID BODY".into();
    }
    let changes: Vec<String> = kinds.iter().map(change).collect();
    let has_changes = changes.iter().any(|change| !change.is_empty());
    let mut heading =
        vec!["KIND", "#PENDING", "#READY", "#LEASED", "#DEAD", "#DONE", "OLDEST READY", ""];
    if has_changes {
        heading.insert(7, "CHANGE/S");
    }
    let mut table = Table::new(&heading);
    for (kind, change) in kinds.iter().zip(changes) {
        let mut row = row(kind, now);
        if has_changes {
            row.insert(7, change.into());
        }
        table.row(row);
    }
    table.to_text()
}

fn row(kind: &KindView, now: Timestamp) -> Vec<Cell> {
    let counts = kind.counts;
    let more = if counts.ready >= READY_COUNT_CAP { "+" } else { "" };
    let dead = if counts.dead > 0 { Tone::Bad } else { Tone::Plain };
    vec![
        kind.kind.to_string().into(),
        counts.pending.to_string().into(),
        format!("{}{more}", counts.ready).into(),
        counts.leased.to_string().into(),
        Cell::new(dead, counts.dead.to_string()),
        counts.done.to_string().into(),
        kind.oldest_ready.map_or_else(String::new, |at| times::relative(at, now)).into(),
        match kind.throttled_until {
            _ if kind.paused => Cell::new(Tone::Warning, "paused"),
            Some(until) => {
                let next = times::relative(until, now);
                Cell::new(Tone::Warning, format!("throttled, next job {next}"))
            }
            None => String::new().into(),
        },
    ]
}
