//! A service inside of a program, and a worker that reaches it over HTTP.
//!
//! ```text
//!   cargo run -p requeue-server --example embedded_service
//! ```
//!
//! The worker could be another program on another machine: all it has is an address. `Jobs` and
//! `JobWorker` are the same as on a store in the process.

use requeue::worker::{BoxError, Outcome};
use requeue_http::HttpStore;
use requeue_jobs::{JobWorker, Jobs, MemoryStore, WallClock};
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options};
use requeue_server::{App, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The service. On disk or on Redis it would be another store, and nothing else.
    let app = App::new(Arc::new(MemoryStore::new()), WallClock::system(), Limits::default());
    let tcp = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", tcp.local_addr()?);
    println!("listening on {url}");
    let listener = Listener::new(tcp, Options::default());
    let access = Access::new([], None)?;
    let service = tokio::spawn({
        let app = app.clone();
        async move { app.serve(listener, &access, Duration::from_secs(10)).await }
    });

    // Who puts jobs.
    let jobs = Jobs::new(Arc::new(HttpStore::connect(&url)?));
    for order in 1..=3 {
        let id = format!("order-{order}");
        jobs.put("order.close", &id, "not paid").after(Duration::from_millis(100)).await?;
    }

    // Who works on them.
    let (closed, mut orders) = mpsc::unbounded_channel();
    let jobs = Jobs::new(Arc::new(HttpStore::connect(&url)?));
    let worker =
        JobWorker::new(&jobs, ["order.close"], "worker-1")?.concurrency(2).spawn(move |run| {
            let closed = closed.clone();
            async move {
                closed.send(run.key.id().to_string())?;
                Ok(Outcome::Done)
            }
        });
    for _ in 1..=3 {
        let order = orders.recv().await.ok_or("the worker has ended")?;
        println!("{order} is closed, and why: not paid");
    }

    let left = worker.shut_down(Duration::from_secs(10)).await;
    assert!(left.is_empty(), "all were done");
    app.shutdown().request();
    service.await?;
    println!("the service has ended");
    Ok(())
}
