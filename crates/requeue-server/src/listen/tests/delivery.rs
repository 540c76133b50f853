//! Callbacks of lost responses run, and those of delivered responses do not.

use super::harness::{SOON, Server, start, within};
use crate::listen::{Delivery, Options};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

/// What handlers and callbacks did, in order.
type Log = mpsc::UnboundedSender<&'static str>;

#[derive(Clone)]
struct HandlerState {
    log: Log,
    go: Arc<Notify>,
}

fn register(state: &HandlerState, delivery: &Delivery) {
    let log = state.log.clone();
    delivery.on_lost(move || log.send("undone").unwrap_or(()));
    state.log.send("taken").unwrap_or(());
}

async fn quick(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> String {
    register(&state, &delivery);
    "a job".into()
}

async fn slow(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> String {
    register(&state, &delivery);
    state.go.notified().await;
    "a job".into()
}

async fn huge(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> String {
    register(&state, &delivery);
    // More than the kernel takes for a client that does not read.
    "x".repeat(64 << 20)
}

async fn chunked(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> Body {
    register(&state, &delivery);
    let pieces = ["a ", "job"].map(Ok::<_, std::convert::Infallible>);
    Body::from_stream(futures_util::stream::iter(pieces))
}

async fn pauses(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> Body {
    register(&state, &delivery);
    let first = futures_util::stream::iter([Ok::<_, std::convert::Infallible>("a ")]);
    Body::from_stream(first.chain(futures_util::stream::pending()))
}

async fn breaks(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> Body {
    register(&state, &delivery);
    let pieces = [Ok("a "), Err(std::io::Error::other("no more"))];
    Body::from_stream(futures_util::stream::iter(pieces))
}

async fn fails(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> (StatusCode, &'static str) {
    register(&state, &delivery);
    (StatusCode::INTERNAL_SERVER_ERROR, "an error")
}

async fn panics(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> String {
    register(&state, &delivery);
    panic!("on purpose")
}

async fn nothing(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> (StatusCode, &'static str) {
    register(&state, &delivery);
    (StatusCode::NO_CONTENT, "a body that is not sent")
}

async fn claiming(
    options: Options,
) -> (Server, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (log, received) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let router = Router::new()
        .route("/quick", get(quick))
        .route("/slow", post(slow).get(slow))
        .route("/huge", get(huge))
        .route("/chunked", get(chunked))
        .route("/pauses", get(pauses))
        .route("/breaks", get(breaks))
        .route("/fails", get(fails))
        .route("/panics", get(panics))
        .route("/nothing", get(nothing))
        .with_state(HandlerState { log, go: go.clone() });
    (start(router, options).await, received, go)
}

/// Stops the server and returns what was logged until then.
async fn after(
    server: Server,
    mut received: mpsc::UnboundedReceiver<&'static str>,
) -> Vec<&'static str> {
    server.stop().await;
    let mut all = Vec::new();
    // Without waiting: everything must have happened before `serve` returned.
    while let Ok(entry) = received.try_recv() {
        all.push(entry);
    }
    all
}

#[tokio::test]
async fn a_written_response_is_not_undone() {
    let (server, received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    for path in ["/quick", "/quick", "/nothing"] {
        client.get(path).await;
    }
    client.send("HEAD /quick HTTP/1.1\r\nhost: test\r\n\r\n").await;
    // A response to HEAD has a content length and no body.
    let mut head = [0; 15];
    within(client.0.read_exact(&mut head)).await.unwrap();
    client.send("GET /chunked HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    assert!(client.rest().await.ends_with("0\r\n\r\n"));
    assert_eq!(after(server, received).await, ["taken"; 5]);
}

#[tokio::test]
async fn a_disconnect_while_the_handler_runs_is_noticed() {
    let (server, mut received, _) = claiming(Options::default()).await;
    for request in [
        "GET /slow HTTP/1.1\r\nhost: test\r\n\r\n",
        "POST /slow HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let mut client = server.client().await;
        client.send(request).await;
        assert_eq!(within(received.recv()).await, Some("taken"));
        drop(client);
        assert_eq!(within(received.recv()).await, Some("undone"), "{request}");
    }
    assert!(after(server, received).await.is_empty());
}

#[tokio::test]
async fn a_connection_reset_is_noticed() {
    let (server, mut received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    client.0.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
}

#[tokio::test]
async fn a_partly_written_response_is_undone() {
    let (server, mut received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    client.send("GET /huge HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    let mut some = vec![0; 100_000];
    within(client.0.read_exact(&mut some)).await.unwrap();
    drop(client);
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
}

#[tokio::test]
async fn an_unfinished_chunked_response_is_undone() {
    let (server, mut received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    client.send("GET /pauses HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    let mut read = Vec::new();
    while !read.ends_with(b"2\r\na \r\n") {
        read.push(within(client.0.read_u8()).await.unwrap());
    }
    drop(client);
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
}

#[tokio::test]
async fn a_response_that_the_client_does_not_read_is_undone() {
    let options = Options { write_timeout: SOON, ..Options::default() };
    let (server, mut received, _) = claiming(options).await;
    let mut client = server.client().await;
    client.send("GET /huge HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
}

#[tokio::test]
async fn an_error_response_undoes_it() {
    let (server, received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    assert_eq!(client.get("/fails").await.status, 500);
    let panicked = client.get("/panics").await;
    assert_eq!((panicked.status, panicked.problem().as_str()), (500, "bug"));
    // The connection stays open.
    assert_eq!(client.get("/quick").await.body, "a job");
    client.send("GET /breaks HTTP/1.1\r\nhost: test\r\n\r\n").await;
    client.rest().await;
    let expected = ["taken", "undone", "taken", "undone", "taken", "taken", "undone"];
    assert_eq!(after(server, received).await, expected);
}

#[tokio::test]
async fn pipelined_requests_have_separate_deliveries() {
    let (server, mut received, go) = claiming(Options::default()).await;
    let mut client = server.client().await;
    let requests =
        "GET /quick HTTP/1.1\r\nhost: test\r\n\r\nGET /slow HTTP/1.1\r\nhost: test\r\n\r\n";
    client.send(requests).await;
    assert_eq!(client.response().await.body, "a job");
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(within(received.recv()).await, Some("taken"));
    go.notify_one();
    assert_eq!(client.response().await.body, "a job");
    assert!(after(server, received).await.is_empty());
}

#[tokio::test]
async fn requests_cut_by_the_shutdown_are_undone_before_it_ends() {
    let (server, mut received, _) = claiming(Options { drain: SOON, ..Options::default() }).await;
    let mut client = server.client().await;
    client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(after(server, received).await, ["undone"]);
    let _ = client.0.shutdown().await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn dropping_the_server_undoes_pending_responses() {
    let (server, mut received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    server.task.abort();
    assert_eq!(within(received.recv()).await, Some("undone"));
}
