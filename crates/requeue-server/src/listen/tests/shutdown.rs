//! Shutdown: requests in flight finish.

use super::harness::{SOON, start, within};
use crate::listen::{Options, Shutdown};
use axum::Router;
use axum::routing::get;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::Notify;

#[tokio::test]
async fn idle_connections_close_and_requests_in_flight_finish() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (arrived, go) = (arrived.clone(), go.clone());
        || async move {
            arrived.notify_one();
            go.notified().await;
            "done"
        }
    };
    let router = Router::new().route("/", get(|| async { "hello" })).route("/wait", get(handler));
    let server = start(router, Options::default()).await;
    let mut silent = server.client().await;
    let mut idle = server.client().await;
    assert_eq!(idle.get("/").await.status, 200);
    let mut busy = server.client().await;
    busy.send("GET /wait HTTP/1.1\r\nhost: test\r\n\r\n").await;
    within(arrived.notified()).await;

    server.shutdown.request();
    assert_eq!(silent.rest().await, "");
    assert_eq!(idle.rest().await, "");
    within(async { while TcpStream::connect(server.address).await.is_ok() {} }).await;
    assert!(!server.task.is_finished());
    go.notify_one();
    let response = busy.response().await;
    assert_eq!(response.body, "done");
    assert!(response.head.contains("connection: close"), "{}", response.head);
    assert_eq!(busy.rest().await, "");
    within(server.task).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_watches_the_shutdown_ends_early() {
    let shutdown = Shutdown::new();
    let requested = shutdown.clone();
    let arrived = Arc::new(Notify::new());
    let here = arrived.clone();
    let poll = || async move {
        here.notify_one();
        requested.requested().await;
        "nothing yet"
    };
    let server = start(Router::new().route("/", get(poll)), Options::default()).await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    within(arrived.notified()).await;
    shutdown.request();
    assert_eq!(client.response().await.body, "nothing yet");
    server.stop().await;
}

#[tokio::test]
async fn requests_that_do_not_end_are_cut() {
    let arrived = Arc::new(Notify::new());
    let here = arrived.clone();
    let never = || async move {
        here.notify_one();
        std::future::pending::<()>().await;
    };
    let options = Options { drain: SOON, ..Options::default() };
    let server = start(Router::new().route("/", get(never)), options).await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    within(arrived.notified()).await;
    server.stop().await;
    assert_eq!(client.rest().await, "");
}
