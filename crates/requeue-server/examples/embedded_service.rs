//! A service inside a program, and a worker that uses it over HTTP.
//!
//! ```text
//!   cargo run -p requeue-server --example embedded_service
//! ```
//!
//! The worker could be another program on another machine: it only needs the address. `Jobs` and
//! `JobWorker` work the same way on a store in the process.

use requeue_http::HttpStore;
use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore, WallClock};
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options};
use requeue_server::{App, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The service. For jobs on disk, in Redis or in Postgres, only the store differs.
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

    // The producer.
    let jobs = Jobs::new(Arc::new(HttpStore::connect(&url)?));
    for order in 1..=3 {
        let id = format!("order-{order}");
        jobs.put("order.close", &id, "not paid").after(Duration::from_millis(100)).await?;
    }

    // The worker.
    let (closed, mut orders) = mpsc::unbounded_channel();
    let jobs = Jobs::new(Arc::new(HttpStore::connect(&url)?));
    let worker =
        JobWorker::new(&jobs, ["order.close"], "worker-1")?.concurrency(2).spawn(move |run| {
            let closed = closed.clone();
            async move {
                closed.send(run.job.id().to_string())?;
                Ok(())
            }
        });
    for _ in 1..=3 {
        let order = orders.recv().await.ok_or("the worker has ended")?;
        println!("{order} is closed: not paid");
    }

    let left = worker.shut_down(Duration::from_secs(10)).await;
    assert!(left.is_empty(), "all jobs are done");
    app.shutdown().request();
    service.await?;
    println!("the service has stopped");
    Ok(())
}
