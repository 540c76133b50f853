//! Responses that are made later are written like all others.

use super::harness::{SOON, Server, start, within};
use crate::listen::body_memory::BodyMemory;
use crate::listen::connection::ConnectionContext;
use crate::listen::connection_state::ConnectionState;
use crate::listen::{Delivery, LaterResponse, Options, Shutdown};
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
struct HandlerState {
    log: mpsc::UnboundedSender<&'static str>,
    go: Arc<Notify>,
}

async fn later(
    State(state): State<HandlerState>,
    Extension(delivery): Extension<Delivery>,
) -> LaterResponse {
    let log = state.log.clone();
    delivery.on_lost(move || log.send("undone").unwrap_or(()));
    LaterResponse::new(async move {
        let mut dropped = Dropped(Some(state.log.clone()));
        state.log.send("waits").unwrap_or(());
        state.go.notified().await;
        dropped.0 = None;
        "a job"
    })
}

/// Logs that a wait was given up.
struct Dropped(Option<mpsc::UnboundedSender<&'static str>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(log) = &self.0 {
            log.send("dropped").unwrap_or(());
        }
    }
}

async fn panics() -> LaterResponse {
    LaterResponse::new(async { if true { panic!("on purpose") } else { "" } })
}

async fn waiting(options: Options) -> (Server, mpsc::UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (log, received) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let router = Router::new()
        .route("/later", post(later))
        .route("/panics", post(panics))
        .route("/hello", get(|| async { "hello" }))
        .with_state(HandlerState { log, go: go.clone() });
    (start(router, options).await, received, go)
}

/// Everything that grows with a connection and not with its requests, such as the buffers of hyper,
/// must not be part of this future.
#[tokio::test]
async fn a_connection_takes_little_memory_while_its_request_waits() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let options = Options::default();
    let context = ConnectionContext {
        endpoint: Router::new().into(),
        body_memory: BodyMemory::new(&options),
        options: Arc::new(options),
        tls: None,
        shutdown: Shutdown::new(),
        cut: CancellationToken::new(),
    };
    let bytes = size_of_val(&context.serve(stream, address, ConnectionState::new()));
    assert!(bytes <= 1200, "{bytes}");
}

const LATER: &str = "POST /later HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n";

#[tokio::test]
async fn requests_follow_one_another_after_a_wait() {
    let (server, mut received, go) = waiting(Options::default()).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        client.send(format!("{LATER}\r\n")).await;
        assert_eq!(within(received.recv()).await, Some("waits"));
        go.notify_one();
        let response = client.response().await;
        assert_eq!((response.status, response.body.as_str()), (200, "a job"));
        assert!(response.head.contains("date: "), "{}", response.head);
        assert!(!response.head.contains("connection: close"), "{}", response.head);
        assert_eq!(client.get("/hello").await.body, "hello");
    }
    server.stop().await;
    assert!(received.try_recv().is_err(), "nothing is undone");
}

#[tokio::test]
async fn requests_that_arrive_during_a_wait_are_served_after_it() {
    let (server, mut received, go) = waiting(Options::default()).await;
    for together in [true, false] {
        let mut client = server.client().await;
        let next = format!("GET /hello HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n", "x".repeat(1000));
        client.send(format!("{LATER}\r\n{}", if together { &next } else { "" })).await;
        assert_eq!(within(received.recv()).await, Some("waits"));
        if !together {
            for byte in next.as_bytes().chunks(100) {
                client.send(byte).await;
                tokio::task::yield_now().await;
            }
        }
        go.notify_one();
        assert_eq!(client.response().await.body, "a job");
        assert_eq!(client.response().await.body, "hello");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_closes_the_connection_after_the_response_is_asked_for_no_more() {
    let (server, mut received, go) = waiting(Options::default()).await;
    for (version, header, closes) in [
        ("1.1", "connection: close\r\n", true),
        ("1.1", "Connection: Keep-Alive\r\n", false),
        ("1.0", "", true),
        ("1.0", "connection: keep-alive\r\n", false),
    ] {
        let mut client = server.client().await;
        let request = LATER.replace("HTTP/1.1", &format!("HTTP/{version}"));
        client.send(format!("{request}{header}\r\n")).await;
        assert_eq!(within(received.recv()).await, Some("waits"));
        go.notify_one();
        if closes {
            assert!(client.rest().await.ends_with("a job"), "{version} {header}");
        } else {
            let response = client.response().await;
            assert_eq!(response.body, "a job", "{version} {header}");
            let explicit = response.head.contains("connection: keep-alive");
            assert_eq!(explicit, version == "1.0", "{}", response.head);
            assert_eq!(client.get("/hello").await.body, "hello");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_disconnect_ends_the_wait_before_the_response_counts_as_lost() {
    let (server, mut received, _) = waiting(Options::default()).await;
    for reset in [false, true] {
        let mut client = server.client().await;
        client.send(format!("{LATER}\r\n")).await;
        assert_eq!(within(received.recv()).await, Some("waits"));
        if reset {
            client.0.set_zero_linger().unwrap();
        }
        drop(client);
        assert_eq!(within(received.recv()).await, Some("dropped"));
        assert_eq!(within(received.recv()).await, Some("undone"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_panic_after_the_wait_began_is_a_500_on_a_connection_that_stays_open() {
    let (server, _, _) = waiting(Options::default()).await;
    let mut client = server.client().await;
    client.send(LATER.replace("/later", "/panics") + "\r\n").await;
    let panicked = client.response().await;
    assert_eq!((panicked.status, panicked.problem().as_str()), (500, "bug"));
    assert_eq!(client.get("/hello").await.body, "hello");
    server.stop().await;
}

#[tokio::test]
async fn a_wait_that_ends_with_the_shutdown_gets_its_response() {
    let (server, mut received, go) = waiting(Options::default()).await;
    let mut client = server.client().await;
    client.send(format!("{LATER}\r\n")).await;
    assert_eq!(within(received.recv()).await, Some("waits"));
    server.shutdown.request();
    go.notify_one();
    let response = client.rest().await;
    assert!(response.ends_with("a job") && response.contains("connection: close"), "{response}");
    within(server.task).await.expect("serving does not panic");
    assert!(received.try_recv().is_err(), "nothing is undone");
}

#[tokio::test]
async fn a_wait_is_cut_at_the_end_of_the_shutdown() {
    let (server, mut received, _) = waiting(Options { drain: SOON, ..Options::default() }).await;
    let mut client = server.client().await;
    client.send(format!("{LATER}\r\n")).await;
    assert_eq!(within(received.recv()).await, Some("waits"));
    server.stop().await;
    assert_eq!(received.try_recv(), Ok("dropped"));
    assert_eq!(received.try_recv(), Ok("undone"));
    let _ = client.0.shutdown().await;
    assert_eq!(client.rest().await, "");
}
