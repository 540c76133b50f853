//! Typed jobs: after five minutes the customer of an unpaid order is reminded, and after a day the order
//! is closed. Each kind of job is a type with a handler of its own, and they share a state.
//!
//! Run it with `cargo run -p requeue-jobs --example typed_orders --features serde,tokio`. It uses a manual
//! clock, so the day passes immediately. With a store on disk, on Redis or over HTTP and the system
//! clock, the rest of the code stays the same.

use requeue_jobs::{
    BoxError, JobOutcome, JobWorker, Jobs, ManualClock, MemoryStore, NextHandler, Router, Task,
    TaskContext, TaskResult, Timestamp, WallClock,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Remind {
    order: u64,
    amount: String,
}

impl Task for Remind {
    const KIND: &'static str = "order.remind";

    fn id(&self) -> String {
        format!("order-{}", self.order)
    }
}

#[derive(Serialize, Deserialize)]
struct Close {
    order: u64,
}

impl Task for Close {
    const KIND: &'static str = "order.close";

    fn id(&self) -> String {
        format!("order-{}", self.order)
    }
}

/// What all handlers share.
struct Shop {
    jobs: Jobs,
    events: mpsc::UnboundedSender<String>,
}

/// Reminds the customer. The first attempt fails: the mail server asks to try again in a minute.
async fn remind(task: Remind, context: TaskContext<Shop>) -> Result<JobOutcome, BoxError> {
    if context.run.attempt == 1 {
        return Ok(JobOutcome::retry_after(MINUTE, "the mail server is busy"));
    }
    println!("order {}: please pay {}", task.order, task.amount);
    // The order is closed a day after the reminder.
    context.state.jobs.put_task(&Close { order: task.order }).after(DAY).await?;
    Ok(().into())
}

async fn close(task: Close, _context: TaskContext<Shop>) -> Result<(), BoxError> {
    println!("order {}: closed, not paid", task.order);
    Ok(())
}

/// Reports each attempt, around all handlers.
async fn report(next: NextHandler<Shop>, context: TaskContext<Shop>) -> TaskResult {
    let (shop, job) = (Arc::clone(&context.state), context.run.job.clone());
    let result = next.run(context).await;
    let end = if let Ok(JobOutcome::RetryAfter { .. }) = result { "retried" } else { "done" };
    shop.events.send(format!("{} {} {end}", job.kind(), job.id()))?;
    result
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    let jobs = Jobs::with_clock(Arc::new(store), &clock);
    let (events, mut happened) = mpsc::unbounded_channel();

    let router = Router::new(Shop { jobs: jobs.clone(), events })
        .on::<Remind>(remind)
        .on::<Close>(close)
        .concurrency::<Remind>(2) // the mail server accepts two connections
        .timeout::<Remind>(MINUTE)
        .around(report);
    let running = JobWorker::new(&jobs, [], "shop-1")?.concurrency(10).spawn_router(router)?;

    let remind = Remind { order: 1, amount: "20 €".to_owned() };
    jobs.put_task(&remind).after(5 * MINUTE).await?;
    jobs.put_task(&Remind { order: 2, ..remind }).after(5 * MINUTE).await?;
    jobs.cancel(Remind::KIND, "order-2").await?; // this one is paid in time

    let expected =
        [(5 * MINUTE, "order.remind order-1 retried"), (MINUTE, "order.remind order-1 done")];
    for (time, event) in expected.into_iter().chain([(DAY, "order.close order-1 done")]) {
        clock.advance(time);
        assert_eq!(happened.recv().await.ok_or("the worker has stopped")?, event);
        // An event is sent before its job is settled, and the next one is due after that.
        while !running.jobs().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    // A service calls `run_until_signal` instead.
    assert!(running.shut_down(MINUTE).await.is_empty());
    Ok(())
}
