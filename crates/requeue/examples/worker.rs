//! A worker that closes orders: temporary failures, a panic, a bank that does not respond, and
//! an order that cannot be closed.
//!
//! Run `cargo run --example worker --features tokio`. It ends by itself within about a second.

use requeue::RateLimitingQueue;
use requeue::limiter::ExponentialFailure;
use requeue::worker::{BoxError, Outcome, Run, Worker};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

type Order = Arc<str>;

/// Closes an order at the bank.
async fn pay(order: &str, attempt: u32) -> Result<(), std::io::Error> {
    match (order, attempt) {
        ("order-2", 1 | 2) => Err(std::io::Error::other("the bank is busy")),
        ("order-3", 1) => panic!("a cent is missing"),
        ("order-4", _) => std::future::pending().await, // the bank does not respond
        _ => Ok(()),
    }
}

async fn close(run: Run<Order>) -> Result<Outcome, BoxError> {
    if &*run.key == "order-5" {
        return Ok(Outcome::give_up("no such customer"));
    }
    pay(&run.key, run.attempt).await?;
    Ok(Outcome::Done)
}

#[tokio::main]
async fn main() {
    let backoff = ExponentialFailure::new(Duration::from_millis(20), Duration::from_secs(60));
    let queue = RateLimitingQueue::<Order>::new(backoff);
    let (settled, mut is_settled) = mpsc::unbounded_channel();
    let buried = settled.clone();
    let running = Worker::new(&queue)
        .concurrency(2)
        .timeout(Duration::from_millis(100))
        .max_attempts(3)
        .on_failure(|failed| {
            let (order, attempt) = (failed.key, failed.attempt);
            println!("{order}: attempt {attempt} failed: {}; {:?}", failed.cause, failed.next);
        })
        .on_dead(move |dead| {
            println!("{}: needs manual attention", dead.key);
            buried.send(Arc::clone(dead.key)).expect("main listens");
        })
        .spawn(move |run| {
            let settled = settled.clone();
            async move {
                let order = Arc::clone(&run.key);
                let outcome = close(run).await?;
                if outcome == Outcome::Done {
                    println!("{order}: closed");
                    settled.send(order)?;
                }
                Ok(outcome)
            }
        });

    for order in ["order-1", "order-2", "order-3", "order-4", "order-5"] {
        queue.add(Arc::from(order));
    }
    running.set_concurrency(4).expect("tasks are never refused");
    for _ in 0..5 {
        is_settled.recv().await;
    }
    let left = running.shut_down(Duration::from_secs(20)).await;
    println!("stopped; {} still running, {} orders left", left.len(), queue.len());
}
