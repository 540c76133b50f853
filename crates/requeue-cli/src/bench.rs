//! `bench`: measures throughput and latency of a store.

use crate::error::{CliError, Exit, Result};
use crate::output::{Output, Table};
use crate::private_files;
use crate::signals::Signals;
use crate::store_args::{IfMissing, StoreArgs, StoreLocation, open_directory};
use crate::text::Text;
use crate::times::{self, rough};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{
    Body, Change, ChangeKind, Due, JobId, Jobs, Kind, Put, Query, Settle, Settlement, Store,
    Timestamp,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Size of each body, in bytes.
const BODY_LEN: usize = 100;

/// Number of tasks that put concurrently.
const CALLERS: usize = 64;

/// Number of jobs whose lateness is measured.
const TIMERS: usize = 200;

/// Time between the due times of two of them.
const TIMER_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without store options, the benchmark uses a temporary directory below the
current one; with --data DIR, below DIR. With --server or --store, it puts jobs
of a kind of its own. It removes everything that it created.

Examples:
  requeue bench
  requeue bench --time 10s --store redis://127.0.0.1:6379/
  requeue bench --store postgres://app@127.0.0.1/shop")]
pub(crate) struct Args {
    /// How long to measure each line of the table
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "1s")]
    time: Duration,
}

pub(crate) async fn bench(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let name = format!("requeue-bench-{}", std::process::id());
    let kind = Kind::new(name.as_str())?;
    // From here on, a signal does not end the process before it has cleaned up.
    let mut signals = Signals::new()?;
    let scratch = match store_args {
        StoreArgs { server: None, store: None, data, .. } => {
            Some(data.clone().unwrap_or_else(|| ".".into()).join(&name))
        }
        _ => None,
    };
    let Some(scratch) = scratch else {
        let (store, location) = (store_args.open(IfMissing::Fail).await?, store_args.location()?);
        let measured = interruptible(&mut signals, measure(&store, &kind, args.time)).await;
        // Also after an error, so that no jobs are left behind.
        clear(&*store, &kind).await?;
        return print(out, &describe(&location), &measured?);
    };
    let scratch = ScratchDir::new(scratch)?;
    let store: Arc<dyn Store> = Arc::new(open_directory(&scratch.0, IfMissing::Create)?);
    let measured = interruptible(&mut signals, measure(&store, &kind, args.time)).await?;
    let parent = scratch.0.parent().unwrap_or(Path::new(".")).display().to_string();
    drop(store);
    print(out, &format!("disk at {parent}"), &measured)
}

/// Runs until the work is done, or fails when a signal arrives.
async fn interruptible<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = signals.next() => Err(CliError::new(Exit::Failed, "interrupted")),
    }
}

/// The location for people.
fn describe(location: &StoreLocation) -> String {
    match location {
        StoreLocation::Server(url) => url.clone(),
        StoreLocation::Data(directory) => directory.display().to_string(),
        // The URL may contain a password.
        StoreLocation::Redis(_) => "Redis".to_owned(),
        StoreLocation::Postgres(_) => "Postgres".to_owned(),
    }
}

/// A temporary directory, which is removed on drop.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new(path: PathBuf) -> Result<Self> {
        let name = path.display().to_string();
        let made = std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| private_files::create_dir(&path));
        made.map_err(|error| CliError::io("create", &name, &error))?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Best effort.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A line of the table.
struct BenchResult {
    /// What was measured. This is the name in the JSON output, which stays stable.
    what: &'static str,
    /// Jobs per second. `None` if only times were measured.
    rate: Option<f64>,
    /// How long each call took, or how late each job was. Sorted.
    times: Vec<Duration>,
}

impl BenchResult {
    fn new(what: &'static str, jobs: usize, took: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        BenchResult { what, rate: Some(jobs as f64 / took.as_secs_f64()), times }
    }

    /// What was measured, for people.
    fn label(&self) -> &'static str {
        match self.what {
            "put, one by one" => "put, single",
            "put, 64 callers" => "put, single, 64 concurrent callers",
            "put, 1000 at once" => "put, batches of 1000",
            "claim + ack, one by one" => "claim and ack, single",
            "claim + ack, 100 at once" => "claim and ack, batches of 100",
            "late by" => "delay from due time to claim",
            other => other,
        }
    }

    fn quantile(&self, percent: usize) -> Duration {
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or_default()
    }
}

async fn measure(store: &Arc<dyn Store>, kind: &Kind, time: Duration) -> Result<Vec<BenchResult>> {
    let jobs = Jobs::new(Arc::clone(store));
    let mut numbers = 0..;
    let mut lines = Vec::new();
    lines.push(puts(&**store, kind, "put, one by one", 1, time, &mut numbers).await?);
    lines.push(many_callers(&jobs, kind, time, &mut numbers).await?);
    lines.push(puts(&**store, kind, "put, 1000 at once", MAX_BATCH, time, &mut numbers).await?);
    lines.push(claims(&jobs, kind, "claim + ack, one by one", 1, time).await?);
    lines.push(claims(&jobs, kind, "claim + ack, 100 at once", 100, time).await?);
    clear(&**store, kind).await?;
    lines.push(lateness(&jobs, kind).await?);
    Ok(lines)
}

/// A put with a body of [`BODY_LEN`] bytes.
fn new_put(kind: &Kind, number: u64) -> Put {
    let id = JobId::new(format!("{number:012}")).expect("it is within the limits");
    let body = Body::octets(vec![b'x'; BODY_LEN]).expect("it is within the limits");
    Put::new(kind.clone(), id, body)
}

async fn puts(
    store: &dyn Store,
    kind: &Kind,
    what: &'static str,
    batch: usize,
    time: Duration,
    numbers: &mut impl Iterator<Item = u64>,
) -> Result<BenchResult> {
    let (start, mut times, mut count) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < time {
        let puts: Vec<Put> = numbers.by_ref().take(batch).map(|n| new_put(kind, n)).collect();
        let began = Instant::now();
        for result in store.put(puts).await? {
            result?;
            count += 1;
        }
        times.push(began.elapsed());
    }
    Ok(BenchResult::new(what, count, start.elapsed(), times))
}

async fn many_callers(
    jobs: &Jobs,
    kind: &Kind,
    time: Duration,
    numbers: &mut impl Iterator<Item = u64>,
) -> Result<BenchResult> {
    // Each task uses ids of its own.
    let from = numbers.next().unwrap_or_default() + 1;
    let step = 1u64 << 32;
    let start = Instant::now();
    // Dropping the set stops the tasks that still run.
    let mut callers: JoinSet<_> = (1..=CALLERS as u64)
        .map(|caller| {
            let (jobs, kind) = (jobs.clone(), kind.clone());
            async move {
                let mut times = Vec::new();
                let mut number = from + caller * step;
                while start.elapsed() < time {
                    let began = Instant::now();
                    let id = format!("{number:012}");
                    jobs.put(kind.as_str(), &id, [b'x'; BODY_LEN]).await?;
                    number += 1;
                    times.push(began.elapsed());
                }
                Ok::<_, requeue_jobs::PutError>(times)
            }
        })
        .collect();
    let mut times = Vec::new();
    while let Some(caller) = callers.join_next().await {
        times.extend(caller.expect("the task does not panic")?);
    }
    Ok(BenchResult::new("put, 64 callers", times.len(), start.elapsed(), times))
}

async fn claims(
    jobs: &Jobs,
    kind: &Kind,
    what: &'static str,
    batch: usize,
    time: Duration,
) -> Result<BenchResult> {
    let (start, mut times, mut count) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < time {
        let began = Instant::now();
        let claimed = jobs.claim([kind.as_str()], "bench").max(batch).await?;
        if claimed.jobs.is_empty() {
            break;
        }
        count += claimed.jobs.len();
        let ack = |receipt| Settle { receipt, action: Settlement::Ack };
        let acks = claimed.jobs.into_iter().map(|job| ack(job.receipt)).collect();
        for result in jobs.store().settle(acks).await? {
            result?;
        }
        times.push(began.elapsed());
    }
    Ok(BenchResult::new(what, count, start.elapsed(), times))
}

/// Measures how long after their due times jobs are returned to a waiting claim.
async fn lateness(jobs: &Jobs, kind: &Kind) -> Result<BenchResult> {
    let first = times::now().saturating_add(Duration::from_millis(100));
    let due =
        |n: usize| first.saturating_add(TIMER_INTERVAL * u32::try_from(n).unwrap_or(u32::MAX));
    let at = |n: usize| Put { due: Due::At(due(n)), ..new_put(kind, n as u64) };
    for result in jobs.store().put((0..TIMERS).map(at).collect()).await? {
        result?;
    }
    let (mut times, end) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while times.len() < TIMERS && Instant::now() < end {
        let wait = Duration::from_secs(5);
        let claimed = jobs.claim([kind.as_str()], "bench").max(100).wait(wait).await?;
        let now: Timestamp = times::now();
        let late = claimed.jobs.iter().map(|job| now.saturating_since(job.version.due));
        times.extend(late);
        for job in &claimed.jobs {
            jobs.ack(&job.receipt).await?;
        }
    }
    times.sort_unstable();
    Ok(BenchResult { what: "late by", rate: None, times })
}

/// Cancels all jobs of the kind.
async fn clear(store: &dyn Store, kind: &Kind) -> Result<()> {
    let mut query = Query { limit: MAX_BATCH, ..Query::new(kind.clone()) };
    loop {
        let page = store.list(query.clone()).await?;
        let cancel = |id| Change { kind: kind.clone(), id, action: ChangeKind::Cancel };
        store.change(page.jobs.into_iter().map(|job| cancel(job.id)).collect()).await?;
        let Some(cursor) = page.cursor else { return Ok(()) };
        query.after = Some(cursor);
    }
}

fn print(out: Output, location: &str, lines: &[BenchResult]) -> Result<()> {
    let mut table = Table::new(&["", "#JOBS/S", "#P50", "#P99"]);
    for line in lines {
        let (p50, p99) = (line.quantile(50), line.quantile(99));
        if out.json {
            let seconds = |time: Duration| time.as_secs_f64();
            let json = serde_json::json!({
                "store": location, "what": line.what, "jobs_per_second": line.rate.map(f64::round),
                "p50_seconds": seconds(p50), "p99_seconds": seconds(p99),
            });
            out.print_json(&json)?;
        }
        let rate = line.rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
        table.row([line.label().to_owned(), rate, precise(p50), precise(p99)]);
    }
    if out.json { Ok(()) } else { out.print_line(Text::from(location).then(table.to_text())) }
}

/// A duration, with two decimals if it is short.
fn precise(duration: Duration) -> String {
    if duration < Duration::from_millis(10) {
        format!("{:.2}ms", duration.as_secs_f64() * 1e3)
    } else {
        rough(duration)
    }
}
