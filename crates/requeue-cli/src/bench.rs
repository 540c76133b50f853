//! `bench`: a quick table of what the store does on this machine.

use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, Table};
use crate::signals::Signals;
use crate::store_args::{IfMissing, StoreArgs, Where, open_directory};
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

/// Bytes of each body.
const BODY: usize = 100;

/// Callers that put at the same time.
const CALLERS: usize = 64;

/// Jobs whose lateness is measured, one after the other.
const TIMERS: usize = 200;

/// Between two of them.
const APART: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --data, --store and --server: a new directory here. With --data: a new one in that
directory. What is made is removed in the end. Elsewhere the jobs are of a kind of their own.")]
pub(crate) struct Args {
    /// How long each line is measured
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "1s")]
    time: Duration,
}

pub(crate) async fn bench(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    let name = format!("requeue-bench-{}", std::process::id());
    let kind = Kind::new(name.as_str())?;
    // Before anything is made, so that it is removed whatever happens.
    let mut signals = Signals::new()?;
    let scratch = match place {
        StoreArgs { server: None, store: None, data, .. } => {
            Some(data.clone().unwrap_or_else(|| ".".into()).join(&name))
        }
        _ => None,
    };
    let Some(scratch) = scratch else {
        let (store, chosen) = (place.open(IfMissing::Refuse).await?, place.chosen()?);
        let measured = interruptible(&mut signals, measure(&store, &kind, args.time)).await;
        // Also after an error: what was put is in the way of nobody.
        clear(&*store, &kind).await?;
        return say(out, &shown(&chosen), &measured?);
    };
    let scratch = Scratch::new(scratch)?;
    let store: Arc<dyn Store> = Arc::new(open_directory(&scratch.0, IfMissing::Make)?);
    let measured = interruptible(&mut signals, measure(&store, &kind, args.time)).await?;
    let shown = scratch.0.parent().unwrap_or(Path::new(".")).display().to_string();
    drop(store);
    say(out, &format!("disk at {shown}"), &measured)
}

/// Until it is over, or a signal ends it.
async fn interruptible<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = signals.next() => Err(Failure::new(Exit::Refused, "it was interrupted")),
    }
}

fn shown(place: &Where) -> String {
    match place {
        Where::Server(url) => url.clone(),
        Where::Data(directory) => directory.display().to_string(),
        // An address may have a password in it.
        Where::Redis(_) => "Redis".to_owned(),
    }
}

/// A directory of our own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> Result<Self> {
        let name = path.display().to_string();
        let made = std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| std::fs::create_dir(&path));
        made.map_err(|error| Failure::file("make", &name, &error))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever finds it can remove it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a line says.
struct Line {
    what: &'static str,
    /// Jobs a second. `None`: that is not the point.
    rate: Option<f64>,
    /// How long each call took, or how late each job was; sorted.
    times: Vec<Duration>,
}

impl Line {
    fn new(what: &'static str, jobs: usize, took: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Line { what, rate: Some(jobs as f64 / took.as_secs_f64()), times }
    }

    fn quantile(&self, percent: usize) -> Duration {
        let at = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or_default()
    }
}

async fn measure(store: &Arc<dyn Store>, kind: &Kind, time: Duration) -> Result<Vec<Line>> {
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

fn a_put(kind: &Kind, number: u64) -> Put {
    let id = JobId::new(format!("{number:012}")).expect("it is short");
    let body = Body::octets(vec![b'x'; BODY]).expect("it is short");
    Put::new(kind.clone(), id, body)
}

async fn puts(
    store: &dyn Store,
    kind: &Kind,
    what: &'static str,
    batch: usize,
    time: Duration,
    numbers: &mut impl Iterator<Item = u64>,
) -> Result<Line> {
    let (start, mut times, mut count) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < time {
        let puts: Vec<Put> = numbers.by_ref().take(batch).map(|n| a_put(kind, n)).collect();
        let began = Instant::now();
        for answer in store.put(puts).await? {
            answer?;
            count += 1;
        }
        times.push(began.elapsed());
    }
    Ok(Line::new(what, count, start.elapsed(), times))
}

async fn many_callers(
    jobs: &Jobs,
    kind: &Kind,
    time: Duration,
    numbers: &mut impl Iterator<Item = u64>,
) -> Result<Line> {
    // Each has ids of its own.
    let from = numbers.next().unwrap_or_default() + 1;
    let step = 1u64 << 32;
    let start = Instant::now();
    // Those that are left end with this.
    let mut callers: JoinSet<_> = (1..=CALLERS as u64)
        .map(|caller| {
            let (jobs, kind) = (jobs.clone(), kind.clone());
            async move {
                let mut times = Vec::new();
                let mut number = from + caller * step;
                while start.elapsed() < time {
                    let began = Instant::now();
                    let id = format!("{number:012}");
                    jobs.put(kind.as_str(), &id, [b'x'; BODY]).await?;
                    number += 1;
                    times.push(began.elapsed());
                }
                Ok::<_, requeue_jobs::PutError>(times)
            }
        })
        .collect();
    let mut times = Vec::new();
    while let Some(caller) = callers.join_next().await {
        times.extend(caller.expect("it does not panic")?);
    }
    Ok(Line::new("put, 64 callers", times.len(), start.elapsed(), times))
}

async fn claims(
    jobs: &Jobs,
    kind: &Kind,
    what: &'static str,
    batch: usize,
    time: Duration,
) -> Result<Line> {
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
        for answer in jobs.store().settle(acks).await? {
            answer?;
        }
        times.push(began.elapsed());
    }
    Ok(Line::new(what, count, start.elapsed(), times))
}

/// How long after their due times jobs are claimed by one who waits for them.
async fn lateness(jobs: &Jobs, kind: &Kind) -> Result<Line> {
    let first = times::now().saturating_add(Duration::from_millis(100));
    let due = |n: usize| first.saturating_add(APART * u32::try_from(n).unwrap_or(u32::MAX));
    let at = |n: usize| Put { due: Due::At(due(n)), ..a_put(kind, n as u64) };
    for answer in jobs.store().put((0..TIMERS).map(at).collect()).await? {
        answer?;
    }
    let (mut times, end) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while times.len() < TIMERS && Instant::now() < end {
        let wait = Duration::from_secs(5);
        let claimed = jobs.claim([kind.as_str()], "bench").max(100).wait(wait).await?;
        let now: Timestamp = times::now();
        let late = claimed.jobs.iter().map(|job| now.saturating_since(job.due));
        times.extend(late);
        for job in &claimed.jobs {
            jobs.ack(&job.receipt).await?;
        }
    }
    times.sort_unstable();
    Ok(Line { what: "late by", rate: None, times })
}

/// Removes all jobs of the kind.
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

fn say(out: Out, place: &str, lines: &[Line]) -> Result<()> {
    let mut table = Table::new(&["", "#JOBS/S", "#P50", "#P99"]);
    for line in lines {
        let (p50, p99) = (line.quantile(50), line.quantile(99));
        if out.json {
            let seconds = |time: Duration| time.as_secs_f64();
            let json = serde_json::json!({
                "store": place, "what": line.what, "jobs_per_second": line.rate.map(f64::round),
                "p50_seconds": seconds(p50), "p99_seconds": seconds(p99),
            });
            out.line(&json.to_string())?;
        }
        let rate = line.rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
        table.row([line.what.to_owned(), rate, fine(p50), fine(p99)]);
    }
    if out.json { Ok(()) } else { out.line(&format!("{place}\n{}", table.shown())) }
}

/// A short duration.
fn fine(duration: Duration) -> String {
    if duration < Duration::from_millis(10) {
        format!("{:.2}ms", duration.as_secs_f64() * 1e3)
    } else {
        rough(duration)
    }
}
