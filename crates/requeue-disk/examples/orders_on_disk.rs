//! Closes unpaid orders after a day, with jobs on disk. Kill the program in the middle, start it
//! again, and it continues.
//!
//! Run it with `cargo run -p requeue-disk --example orders_on_disk [SECONDS [DIRECTORY]]`. SECONDS
//! is the length of a day (default 10). A reminder is sent after a tenth of a day; an unpaid order
//! is closed after a day.

use requeue_disk::DiskStore;
use requeue_jobs::{BoxError, ChangeError, ClaimedJob, JobWorker, Jobs, Outcome};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const ORDERS: [(&str, &str); 3] = [("order-1", "20 €"), ("order-2", "35 €"), ("order-3", "5 €")];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let day = Duration::from_secs(args.next().map_or(Ok(10), |day| day.parse())?);
    let fresh = || std::env::temp_dir().join(format!("unpaid-orders-{}", std::process::id()));
    let given = args.next().map(PathBuf::from);
    let directory = given.clone().unwrap_or_else(fresh);

    let store = DiskStore::open(&directory)?;
    let jobs = Jobs::new(Arc::new(store));
    let worker = JobWorker::new(&jobs, ["order.remind", "order.close"], "shop-1")?;
    let running = worker.spawn(|run| async move { fall_due(&run.job) });

    let before = jobs_left(&jobs).await?;
    if before > 0 {
        println!("{before} jobs are left from the last run");
    } else {
        open_shop(&jobs, day).await?;
    }
    while jobs_left(&jobs).await? > 0 {
        tokio::time::sleep(day / 20).await;
    }
    running.shut_down(Duration::from_secs(1)).await;
    println!("all jobs are done");
    if given.is_none() {
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}

async fn open_shop(jobs: &Jobs, day: Duration) -> Result<(), BoxError> {
    for (order, amount) in ORDERS {
        jobs.put("order.remind", order, amount).after(day / 10).await?;
        jobs.put("order.close", order, amount).after(day).await?;
        println!("{order}: placed, {amount}");
    }
    pay(jobs, "order-1").await
}

/// Payment cancels the jobs that are left. The reminder may have been sent already.
async fn pay(jobs: &Jobs, order: &str) -> Result<(), BoxError> {
    for kind in ["order.remind", "order.close"] {
        match jobs.cancel(kind, order).await {
            Ok(_) | Err(ChangeError::Absent { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    println!("{order}: paid");
    Ok(())
}

async fn jobs_left(jobs: &Jobs) -> Result<u64, BoxError> {
    let kinds = jobs.store().kinds().await?;
    Ok(kinds.iter().map(|kind| kind.counts.pending + kind.counts.leased).sum())
}

fn fall_due(job: &ClaimedJob) -> Result<Outcome, BoxError> {
    let order = job.id().as_str();
    match job.kind().as_str() {
        "order.remind" => {
            println!("{order}: reminded of {}", std::str::from_utf8(job.body().bytes())?)
        }
        "order.close" => println!("{order}: closed, not paid"),
        kind => return Ok(Outcome::give_up(format!("no handler for {kind}"))),
    }
    Ok(Outcome::Done)
}
