//! What Prometheus is answered, after some work: `cargo run --features prometheus
//! --example metrics`.
//!
//! Serve this text at `/metrics`, with whatever HTTP server you have.

use requeue::limiter::ExponentialFailure;
use requeue::prometheus::Exporter;
use requeue::{ManualClock, Metrics, Options, Queue, RateLimitingQueue};
use std::time::Duration;

fn main() -> Result<(), requeue::NameError> {
    let metrics = Metrics::new();
    let exporter = Exporter::new(&metrics);

    // On a manual clock, so that an hour's work is done at once.
    let clock = ManualClock::new();
    let named = |name| Options::new().clock(&clock).metrics(&metrics, name);
    let orders = RateLimitingQueue::with(ExponentialFailure::default(), named("orders")?);
    let mails = Queue::with(named("mails")?);

    for minute in 0..60_u32 {
        orders.add(minute % 7);
        orders.add(minute % 5);
        orders.add_after(minute, Duration::from_secs(90));
        while let Ok(held) = orders.try_get() {
            clock.advance(Duration::from_millis(20 * u64::from(*held.key())));
            if held.num_requeues() == 0 && held.key() % 3 == 0 {
                held.retry(); // it failed
            } else {
                held.forget();
                mails.add(*held.key());
            }
        }
        clock.advance(Duration::from_secs(60));
    }
    let _sending = mails.get().wait();
    clock.advance(Duration::from_secs(1));

    print!("{}", exporter.text());
    Ok(())
}
