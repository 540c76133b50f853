//! What was taken for an answer that does not get out is given back.

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

/// What handlers have done, in order.
type Seen = mpsc::UnboundedSender<&'static str>;

#[derive(Clone)]
struct Told {
    seen: Seen,
    go: Arc<Notify>,
}

fn promise(told: &Told, delivery: &Delivery) {
    let seen = told.seen.clone();
    delivery.on_lost(move || seen.send("undone").unwrap_or(()));
    told.seen.send("taken").unwrap_or(());
}

async fn quick(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> String {
    promise(&told, &delivery);
    "a job".into()
}

async fn slow(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> String {
    promise(&told, &delivery);
    told.go.notified().await;
    "a job".into()
}

async fn huge(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> String {
    promise(&told, &delivery);
    // More than the kernel takes for a client that does not read.
    "x".repeat(64 << 20)
}

async fn chunked(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> Body {
    promise(&told, &delivery);
    let pieces = ["a ", "job"].map(Ok::<_, std::convert::Infallible>);
    Body::from_stream(futures_util::stream::iter(pieces))
}

async fn pauses(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> Body {
    promise(&told, &delivery);
    let first = futures_util::stream::iter([Ok::<_, std::convert::Infallible>("a ")]);
    Body::from_stream(first.chain(futures_util::stream::pending()))
}

async fn breaks(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> Body {
    promise(&told, &delivery);
    let pieces = [Ok("a "), Err(std::io::Error::other("no more"))];
    Body::from_stream(futures_util::stream::iter(pieces))
}

async fn fails(
    State(told): State<Told>,
    Extension(delivery): Extension<Delivery>,
) -> (StatusCode, &'static str) {
    promise(&told, &delivery);
    (StatusCode::INTERNAL_SERVER_ERROR, "could not be put into words")
}

async fn panics(State(told): State<Told>, Extension(delivery): Extension<Delivery>) -> String {
    promise(&told, &delivery);
    panic!("on purpose")
}

async fn nothing(
    State(told): State<Told>,
    Extension(delivery): Extension<Delivery>,
) -> (StatusCode, &'static str) {
    promise(&told, &delivery);
    (StatusCode::NO_CONTENT, "words that are not sent")
}

async fn claiming(
    options: Options,
) -> (Server, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (seen, received) = mpsc::unbounded_channel();
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
        .with_state(Told { seen, go: go.clone() });
    (start(router, options).await, received, go)
}

/// All that is seen until the server is gone. It holds the last sender, so that there is an end.
async fn after(
    server: Server,
    mut received: mpsc::UnboundedReceiver<&'static str>,
) -> Vec<&'static str> {
    server.stop().await;
    let mut all = Vec::new();
    // Without waiting: what is not here now came after `serve` had returned.
    while let Ok(seen) = received.try_recv() {
        all.push(seen);
    }
    all
}

#[tokio::test]
async fn an_answer_that_was_written_is_not_undone() {
    let (server, received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    for path in ["/quick", "/quick", "/nothing"] {
        client.get(path).await;
    }
    client.send("HEAD /quick HTTP/1.1\r\nhost: test\r\n\r\n").await;
    // An answer to HEAD says how long the body would be, and has none.
    let mut head = [0; 15];
    within(client.0.read_exact(&mut head)).await.unwrap();
    client.send("GET /chunked HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    assert!(client.rest().await.ends_with("0\r\n\r\n"));
    assert_eq!(after(server, received).await, ["taken"; 5]);
}

#[tokio::test]
async fn a_client_that_leaves_while_the_handler_runs_is_noticed() {
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
async fn a_client_that_resets_the_connection_is_noticed() {
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
async fn an_answer_that_was_written_in_part_is_undone() {
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
async fn an_answer_of_which_all_so_far_was_written_is_undone() {
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
async fn a_client_that_does_not_read_its_answer_does_not_get_it() {
    let options = Options { write_timeout: SOON, ..Options::default() };
    let (server, mut received, _) = claiming(options).await;
    let mut client = server.client().await;
    client.send("GET /huge HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
}

#[tokio::test]
async fn an_error_in_place_of_the_answer_undoes_it() {
    let (server, received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    assert_eq!(client.get("/fails").await.status, 500);
    let panicked = client.get("/panics").await;
    assert_eq!((panicked.status, panicked.problem().as_str()), (500, "bug"));
    // And the connection goes on.
    assert_eq!(client.get("/quick").await.body, "a job");
    client.send("GET /breaks HTTP/1.1\r\nhost: test\r\n\r\n").await;
    client.rest().await;
    let expected = ["taken", "undone", "taken", "undone", "taken", "taken", "undone"];
    assert_eq!(after(server, received).await, expected);
}

#[tokio::test]
async fn answers_to_requests_sent_at_once_are_each_their_own() {
    let (server, mut received, go) = claiming(Options::default()).await;
    let mut client = server.client().await;
    let requests =
        "GET /quick HTTP/1.1\r\nhost: test\r\n\r\nGET /slow HTTP/1.1\r\nhost: test\r\n\r\n";
    client.send(requests).await;
    assert_eq!(client.answer().await.body, "a job");
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(within(received.recv()).await, Some("taken"));
    go.notify_one();
    assert_eq!(client.answer().await.body, "a job");
    assert!(after(server, received).await.is_empty());
}

#[tokio::test]
async fn what_is_cut_when_the_server_stops_is_undone_before_it_has_stopped() {
    let (server, mut received, _) = claiming(Options { drain: SOON, ..Options::default() }).await;
    let mut client = server.client().await;
    client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(after(server, received).await, ["undone"]);
    let _ = client.0.shutdown().await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_server_that_is_dropped_undoes_what_it_has_not_answered() {
    let (server, mut received, _) = claiming(Options::default()).await;
    let mut client = server.client().await;
    client.send("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(within(received.recv()).await, Some("taken"));
    server.task.abort();
    assert_eq!(within(received.recv()).await, Some("undone"));
}
