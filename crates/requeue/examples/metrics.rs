//! Prints the Prometheus metrics of a queue and a worker: `cargo run --features prometheus
//! --example metrics`.
//!
//! Serve this text at `/metrics`, with any HTTP server.

use requeue::limiter::ExponentialFailure;
use requeue::prometheus::Exporter;
use requeue::worker::{Outcome, Worker};
use requeue::{AddOptions, ManualClock, Metrics, Options, PriorityQueue, RateLimitingQueue};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let metrics = Metrics::new();
    let exporter = Exporter::new(&metrics);

    // Uses a manual clock, so that an hour of work takes no real time.
    let clock = ManualClock::new();
    let named = |name| Options::new().clock(&clock).metrics(&metrics, name);
    let orders = RateLimitingQueue::<u64>::with(ExponentialFailure::default(), named("orders")?);
    let mails = PriorityQueue::with(ExponentialFailure::default(), named("mails")?);

    let (time, outbox) = (clock.clone(), mails.clone());
    let worker = Worker::new(&orders).metrics(&metrics, "orders")?.spawn_threads(move |run| {
        time.advance(Duration::from_millis(20 * *run.key));
        match run.key % 10 {
            0 if run.attempt == 1 => Err("the bank is busy".into()),
            1 => Ok(Outcome::give_up("no such order")),
            2 if run.attempt == 1 => Ok(Outcome::Retry),
            _ => {
                outbox.add_with(*run.key, AddOptions::new().priority(-(run.attempt as i32)));
                Ok(Outcome::Done)
            }
        }
    })?;
    for minute in 0..60 {
        orders.add(minute);
        orders.add(minute + 1);
        orders.add_after(minute + 100, Duration::from_secs(90));
        clock.advance(Duration::from_secs(60));
    }
    orders.drain(Duration::MAX).wait();
    worker.join().wait();
    let _sending = mails.try_get();
    clock.advance(Duration::from_secs(1));

    print!("{}", exporter.text());
    Ok(())
}
