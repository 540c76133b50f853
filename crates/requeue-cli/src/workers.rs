//! `workers`: shows who claims jobs from a server.

use crate::error::Result;
use crate::output::{Output, Table, escape, truncate};
use crate::store_args::StoreArgs;
use crate::times;
use requeue_http::HttpStore;
use requeue_http::client::CallError;
use requeue_jobs::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The maximum width of the kinds of a worker in the table, in characters.
const KINDS_WIDTH: usize = 40;

pub(crate) const EXAMPLES: &str = "\
The workers are those that claimed jobs through this server in the last 10
minutes, or that still hold leases. A worker that claims through another server
of the same store is not listed. EXPIRED counts leases that ended before the
worker settled them.

Examples:
  requeue workers
  requeue workers --json | jq -r 'select(.held > 0) | .name'";

/// A worker, as a server lists it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) kinds: Vec<String>,
    pub(crate) last_seen: String,
    pub(crate) waiting: u64,
    pub(crate) claimed: u64,
    pub(crate) acked: u64,
    pub(crate) failed: u64,
    pub(crate) held: u64,
    pub(crate) expired: u64,
    pub(crate) expired_in_a_row: u64,
    /// Fields that are printed with `--json` only.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

#[derive(Deserialize)]
struct WorkerList {
    workers: Vec<Worker>,
}

/// Returns the workers of a server, sorted by name.
pub(crate) async fn list(server: &HttpStore) -> Result<Vec<Worker>, CallError> {
    let list: WorkerList = server.call("GET", "/v1/workers", None::<&()>).await?;
    Ok(list.workers)
}

impl Worker {
    /// How long ago the worker was seen.
    pub(crate) fn seen(&self, now: Timestamp) -> String {
        let at = times::exact(&self.last_seen);
        at.map_or_else(|| escape(&self.last_seen), |at| times::relative(at.min(now), now))
    }
}

pub(crate) async fn workers(store_args: &StoreArgs, out: Output) -> Result<()> {
    let workers = list(&store_args.connect_server("workers")?).await?;
    let now = times::now();
    let mut table = Table::new(&[
        "NAME",
        "KINDS",
        "#HELD",
        "#WAITING",
        "#CLAIMED",
        "#ACKED",
        "#FAILED",
        "#EXPIRED",
        "LAST SEEN",
    ]);
    for worker in &workers {
        if out.json {
            out.print_json(worker)?;
            continue;
        }
        table.row([
            escape(&worker.name),
            truncate(&escape(&worker.kinds.join(",")), KINDS_WIDTH),
            worker.held.to_string(),
            worker.waiting.to_string(),
            worker.claimed.to_string(),
            worker.acked.to_string(),
            worker.failed.to_string(),
            worker.expired.to_string(),
            worker.seen(now),
        ]);
    }
    match (out.json, workers.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => out.print_line("no worker has claimed jobs from this server recently"),
        (false, false) => out.print_line(table.to_text()),
    }
}
