//! Unpaid orders: after five minutes the customer is reminded, and after a day the order is closed.
//! Payment cancels both.
//!
//! Run it with `cargo run -p requeue-jobs --example unpaid_orders --features tokio`. It uses a manual
//! clock, so the day passes immediately. With a store on disk or on Redis and the system clock, the
//! rest of the code stays the same.

use requeue_jobs::{
    BoxError, ClaimedJob, JobWorker, Jobs, ManualClock, MemoryStore, Outcome, Timestamp, WallClock,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Shop {
    jobs: Jobs,
    clock: ManualClock,
}

impl Shop {
    /// Puts one job of each kind for the order. The order is the id, so placing it twice is idempotent.
    async fn place(&self, order: &str, amount: &str) -> Result<(), BoxError> {
        self.jobs.put("order.remind", order, amount).after(5 * MINUTE).await?;
        self.jobs.put("order.close", order, amount).after(DAY).await?;
        print(&self.clock, order, &format!("placed, {amount}"));
        Ok(())
    }

    async fn pay(&self, order: &str) -> Result<(), BoxError> {
        let remind = self.jobs.cancel("order.remind", order).await?;
        let close = self.jobs.cancel("order.close", order).await?;
        print(&self.clock, order, &format!("paid; reminder {remind:?}, closing {close:?}"));
        Ok(())
    }
}

/// Prints what happened to an order, with the time.
fn print(clock: &ManualClock, order: &str, event: &str) {
    let minutes = clock.now().as_nanos() / 60_000_000_000;
    println!("{:02}:{:02}  {order}: {event}", minutes / 60, minutes % 60);
}

/// Handles a job that is due. A real handler would use the job's id and generation as an idempotency
/// key, so that each put sends one mail, however often the job is retried.
async fn handle(clock: &ManualClock, job: &ClaimedJob) -> Result<Outcome, BoxError> {
    let order = job.id().as_str();
    let amount = std::str::from_utf8(job.body().bytes())?;
    match job.kind().as_str() {
        "order.remind" => print(clock, order, &format!("reminded of {amount}")),
        "order.close" => print(clock, order, "closed, not paid"),
        kind => return Ok(Outcome::give_up(format!("no handler for {kind}"))),
    }
    Ok(Outcome::Done)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    let shop = Shop { jobs: Jobs::with_clock(Arc::new(store), &clock), clock: clock.clone() };

    let (done, mut is_done) = mpsc::unbounded_channel();
    let worker = JobWorker::new(&shop.jobs, ["order.remind", "order.close"], "shop-1")?;
    let running = worker.concurrency(10).timeout(MINUTE).spawn({
        let clock = clock.clone();
        move |run| {
            let (clock, done) = (clock.clone(), done.clone());
            async move {
                let outcome = handle(&clock, &run.job).await?;
                done.send(run.job.receipt.to_string())?;
                Ok(outcome)
            }
        }
    });

    shop.place("order-1", "20 €").await?;
    shop.place("order-2", "35 €").await?;
    clock.advance(3 * MINUTE);
    shop.pay("order-1").await?;
    clock.advance(2 * MINUTE);
    is_done.recv().await.ok_or("the worker has stopped")?;
    clock.advance(DAY - 5 * MINUTE);
    is_done.recv().await.ok_or("the worker has stopped")?;

    let left = running.shut_down(MINUTE).await;
    assert!(left.is_empty() && is_done.try_recv().is_err(), "one reminder, one closed order");
    for kind in ["order.remind", "order.close"] {
        for order in ["order-1", "order-2"] {
            assert_eq!(shop.jobs.get(kind, order).await?, None);
        }
    }
    Ok(())
}
