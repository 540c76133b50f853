//! Limits: one client cannot harm others.

use super::harness::{Client, FOREVER, LATER, SOON, read_response, start, within};
use crate::listen::{BodyHandle, Options};
use axum::body::Body;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::sync::Notify;

fn router() -> Router {
    let stream = |Extension(body_handle): Extension<BodyHandle>, body: Body| async move {
        body_handle.streamed();
        body.collect()
            .await
            .map(|all| all.to_bytes().len().to_string())
            .map_err(|_| axum::http::StatusCode::BAD_REQUEST)
    };
    Router::new()
        .route("/hello", get(|| async { "hello" }))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/stream", post(stream))
        .route("/ignore", post(|| async { "whatever" }))
        // Disables axum's own limit.
        .layer(axum::extract::DefaultBodyLimit::disable())
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn requests_follow_one_another_on_one_connection() {
    let server = start(router(), Options::default()).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/hello").await.body, "hello");
        client.send(head("/length", 5) + "12345").await;
        assert_eq!(client.response().await.body, "5");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_rejected_before_or_while_it_is_read() {
    let options = Options { max_request: 10, ..Options::default() };
    let server = start(router(), options).await;
    let mut client = server.client().await;
    client.send(head("/length", 10) + "0123456789").await;
    assert_eq!(client.response().await.body, "10");
    // The content length is enough: no byte of the body is needed.
    client.send(head("/length", 11)).await;
    let refused = client.response().await;
    assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"));
    assert!(refused.body.contains(r#""limit":10"#) && refused.body.contains(r#""value":11"#));
    assert!(refused.head.contains("connection: close"), "{}", refused.head);
    drop(client);
    // Chunked, without a content length.
    let mut client = server.client().await;
    let chunked = "POST /length HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(format!("{chunked}8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n")).await;
    assert_eq!(client.response().await.status, 413);
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_413_before_sending() {
    let options = Options { max_request: 10, ..Options::default() };
    let server = start(router(), options).await;
    let expecting =
        |length| head("/length", length).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    let mut client = server.client().await;
    client.send(expecting(5)).await;
    assert_eq!(client.response().await.status, 100);
    client.send("12345").await;
    assert_eq!(client.response().await.status, 200);
    client.send(expecting(50)).await;
    assert_eq!(client.response().await.status, 413);
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_everything_before_reading_gets_the_response() {
    let options = Options { max_request: 10, ..Options::default() };
    let server = start(router(), options).await;
    for path in ["/length", "/ignore"] {
        let mut client = server.client().await;
        let length = 20 << 20;
        client.send(head(path, length)).await;
        client.send("x".repeat(length)).await;
        let expected = if path == "/length" { 413 } else { 200 };
        assert_eq!(client.response().await.status, expected);
        drop(client);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_unread_body_does_not_close_the_connection() {
    let options = Options { linger: 2 * FOREVER, drain: 2 * FOREVER, ..Options::default() };
    let server = start(router(), options).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    for client in [&mut first, &mut second] {
        for _ in 0..2 {
            client.send(head("/nowhere", 5) + "12345").await;
            assert_eq!(client.response().await.status, 404);
            client.send(head("/ignore", 5) + "12345").await;
            assert_eq!(client.response().await.body, "whatever");
        }
    }
    // Nothing is left that would delay closing or stopping.
    first.send("GET /hello HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    assert!(first.rest().await.ends_with("hello"));
    server.stop().await;
    assert_eq!(second.rest().await, "");
}

#[tokio::test]
async fn a_streamed_body_may_be_of_any_size() {
    let options = Options { max_request: 10, max_buffered: 10, ..Options::default() };
    let server = start(router(), options).await;
    let mut client = server.client().await;
    client.send(head("/stream", 1_000_000) + &"x".repeat(1_000_000)).await;
    assert_eq!(client.response().await.body, "1000000");
    server.stop().await;
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let server = start(router(), Options { body_timeout: SOON, ..Options::default() }).await;
    for path in ["/length", "/stream"] {
        let mut client = server.client().await;
        client.send(head(path, 10) + "01234").await;
        let refused = client.response().await;
        assert_eq!((refused.status, refused.problem().as_str()), (408, "too-slow"));
    }
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_rejected_and_do_not_affect_others() {
    let server = start(router(), Options::default()).await;
    let mut other = server.client().await;
    other.send("GET /hello HTTP/1.1\r\n").await;
    for (nonsense, status) in [
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n", "400"),
        ("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", "400"),
        (
            "POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "400",
        ),
        ("POST /length HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "400"),
    ] {
        let mut client = server.client().await;
        client.send(nonsense).await;
        let response = client.rest().await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{nonsense:?}: {response}");
    }
    other.send("host: test\r\n\r\n").await;
    assert_eq!(other.response().await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn an_incomplete_body_is_never_handled() {
    let read = Arc::new(Notify::new());
    let whole = read.clone();
    let handler = |body: Bytes| async move {
        whole.notify_one();
        body
    };
    let server = start(Router::new().route("/", post(handler)), Options::default()).await;
    for part in [
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n01234",
        "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n",
    ] {
        let mut client = server.client().await;
        client.send(part).await;
        drop(client);
    }
    server.stop().await;
    let seen = tokio::time::timeout(std::time::Duration::ZERO, read.notified()).await;
    assert!(seen.is_err(), "a handler got an incomplete body");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_rejected() {
    let server = start(router(), Options { max_head: 1000, ..Options::default() }).await;
    let mut client = server.client().await;
    client.send(format!("GET /hello HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1000))).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 431"));
    let mut client = server.client().await;
    client.send(format!("GET /hello HTTP/1.1\r\n{}\r\n", "x: x\r\n".repeat(101))).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 431"));
    server.stop().await;
}

#[tokio::test]
async fn a_missing_head_closes_the_connection() {
    let server = start(router(), Options { head_timeout: LATER, ..Options::default() }).await;
    let mut silent = server.client().await;
    assert_eq!(silent.rest().await, "");
    let mut slow = server.client().await;
    assert_eq!(slow.get("/hello").await.status, 200);
    slow.send("GET /hello HT").await;
    assert_eq!(slow.rest().await, "");
    server.stop().await;
}

/// A route that responds when it is notified.
fn done_after(go: &Arc<Notify>) -> MethodRouter {
    let go = go.clone();
    get(|| async move {
        go.notified().await;
        "done"
    })
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_waiting_one_is_not() {
    let go = Arc::new(Notify::new());
    let options = Options { idle_timeout: LATER, ..Options::default() };
    let server = start(router().route("/wait", done_after(&go)), options).await;
    let mut waiting = server.client().await;
    waiting.send("GET /wait HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let mut busy = server.client().await;
    assert_eq!(busy.get("/hello").await.status, 200);
    // When this idle connection is closed, the others would be closed, too, if they were idle.
    let mut idle = server.client().await;
    assert_eq!(idle.get("/hello").await.status, 200);
    let mut closed = std::pin::pin!(idle.rest());
    let rest = loop {
        assert_eq!(busy.get("/hello").await.status, 200);
        if let Some(rest) = (&mut closed).now_or_never() {
            break rest;
        }
    };
    assert_eq!(rest, "");
    assert_eq!(busy.get("/hello").await.status, 200);
    go.notify_one();
    assert_eq!(waiting.response().await.body, "done");
    // Also after a request that waited.
    assert_eq!(waiting.rest().await, "");
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_connections_is_limited() {
    let server = start(router(), Options { max_connections: 1, ..Options::default() }).await;
    let mut first = server.client().await;
    assert_eq!(first.get("/hello").await.status, 200);
    let mut second = server.client().await;
    second.send("GET /hello HTTP/1.1\r\nhost: test\r\n\r\n").await;
    // While the first is open, the second is not served.
    for _ in 0..20 {
        assert_eq!(first.get("/hello").await.status, 200);
    }
    let mut byte = [0; 1];
    assert!(second.0.try_read(&mut byte).is_err(), "the second was served");
    drop(first);
    assert_eq!(second.response().await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn bodies_in_memory_are_bounded_over_all_requests() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (arrived, go) = (arrived.clone(), go.clone());
        |body: Bytes| async move {
            arrived.notify_one();
            go.notified().await;
            body.len().to_string()
        }
    };
    let options =
        Options { max_request: 100, max_buffered: 100, room_timeout: SOON, ..Options::default() };
    let server = start(router().route("/hold", post(handler)), options).await;
    let mut first = server.client().await;
    first.send(head("/hold", 80) + &"x".repeat(80)).await;
    within(arrived.notified()).await;
    let mut second = server.client().await;
    second.send(head("/length", 80) + &"x".repeat(80)).await;
    let refused = second.response().await;
    assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"));
    // A request that fits is served, and so is a large one once there is room.
    let mut small = server.client().await;
    small.send(head("/length", 20) + &"x".repeat(20)).await;
    assert_eq!(small.response().await.status, 200);
    go.notify_one();
    assert_eq!(first.response().await.body, "80");
    let mut third = server.client().await;
    third.send(head("/length", 80) + &"x".repeat(80)).await;
    assert_eq!(third.response().await.body, "80");
    server.stop().await;
}

#[tokio::test]
async fn slow_bodies_give_their_memory_to_others() {
    // 25,000 bytes are for the first 6,250 of each body, 100,000 for the rest.
    let options = Options {
        max_request: 100_000,
        max_buffered: 100_000,
        slow_after: SOON,
        room_timeout: FOREVER,
        ..Options::default()
    };
    let server = start(router(), options).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut client = server.client().await;
        client.send(head("/length", 100_000) + &"x".repeat(50_000)).await;
        slow.push(client);
    }
    // A small one has room, whatever the others hold.
    let mut small = server.client().await;
    small.send(head("/length", 6_000) + &"x".repeat(6_000)).await;
    assert_eq!(small.response().await.body, "6000");
    // A large one gets the memory of the slow ones.
    let mut large = server.client().await;
    large.send(head("/length", 100_000) + &"x".repeat(100_000)).await;
    assert_eq!(large.response().await.body, "100000");
    for mut client in slow {
        let refused = client.response().await;
        assert_eq!((refused.status, refused.problem().as_str()), (408, "too-slow"));
        assert!(refused.body.contains("memory"), "{}", refused.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn of_bodies_that_hold_memory_and_wait_for_more_the_largest_gives_up() {
    let options = Options {
        max_request: 100_000,
        max_buffered: 100_000,
        slow_after: LATER / 2,
        room_timeout: FOREVER / 4,
        ..Options::default()
    };
    let server = start(router(), options).await;
    let (mut large, mut small) = (server.client().await, server.client().await);
    // Beyond their first 6,250 bytes they hold all but 2,500 of the 100,000 bytes for the rest.
    for (client, len, now) in [(&mut large, 90_000, 60_000), (&mut small, 70_000, 50_000)] {
        client.send(head("/length", len) + &"x".repeat(now)).await;
    }
    large.send("x".repeat(30_000)).await;
    small.send("x".repeat(20_000)).await;
    let refused = large.response().await;
    assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"));
    assert_eq!(small.response().await.body, "70000");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_body_is_read_if_nobody_needs_its_memory() {
    let options = Options { slow_after: std::time::Duration::ZERO, ..Options::default() };
    let server = start(router(), options).await;
    let mut slow = server.client().await;
    slow.send(head("/length", 200_000) + &"x".repeat(100_000)).await;
    for _ in 0..10 {
        let mut other = server.client().await;
        other.send(head("/length", 200_000) + &"x".repeat(200_000)).await;
        assert_eq!(other.response().await.body, "200000");
    }
    slow.send("x".repeat(100_000)).await;
    assert_eq!(slow.response().await.body, "200000");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_arrives_byte_by_byte_times_out() {
    let options = Options { body_timeout: SOON, ..Options::default() };
    let server = start(router(), options).await;
    for path in ["/length", "/stream"] {
        let client = server.client().await;
        let (mut read, mut write) = client.0.into_split();
        let dripping = tokio::spawn(async move {
            let _ = write.write_all(head(path, 1_000_000).as_bytes()).await;
            while write.write_all(b"x").await.is_ok() {
                tokio::time::sleep(SOON / 20).await;
            }
        });
        let refused = read_response(&mut read).await;
        assert_eq!((refused.status, refused.problem().as_str()), (408, "too-slow"));
        dripping.abort();
    }
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_if_a_new_one_needs_its_place() {
    let go = Arc::new(Notify::new());
    let options = Options {
        max_connections: 3,
        slow_after: SOON,
        head_timeout: 2 * FOREVER,
        idle_timeout: 2 * FOREVER,
        ..Options::default()
    };
    let server = start(router().route("/wait", done_after(&go)), options).await;
    let mut waiting = server.client().await;
    waiting.send("GET /wait HTTP/1.1\r\nhost: test\r\n\r\n").await;
    // One never sends a whole request, and one is idle after a request: this one is closed first.
    let (mut silent, mut idle) = (server.client().await, server.client().await);
    silent.send("GET /hello HT").await;
    assert_eq!(idle.get("/hello").await.status, 200);
    let mut first = server.client().await;
    assert_eq!(first.get("/hello").await.status, 200);
    assert_eq!(idle.rest().await, "");
    first.send("GET /wait HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let mut second = server.client().await;
    assert_eq!(second.get("/hello").await.status, 200);
    assert_eq!(silent.rest().await, "");
    // A request in flight is not affected.
    go.notify_waiters();
    assert_eq!(waiting.response().await.body, "done");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() {
    let huge = get(|| async { "x".repeat(64 << 20) });
    let options = Options { write_timeout: SOON, ..Options::default() };
    let server = start(Router::new().route("/", huge), options).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = Client(socket.connect(server.address).await.unwrap());
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    // Stopping waits for it: without the timeout, for as long as `drain`, which is longer.
    server.stop().await;
    assert!(client.rest().await.len() < 64 << 20);
}

#[test]
fn the_server_survives_running_out_of_files() {
    let this = std::env::current_exe().unwrap();
    let output = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n 64 && exec \"$0\" --exact listen::tests::limits::with_few_files --ignored",
        ])
        .arg(this)
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}

#[tokio::test]
#[ignore = "run by the test above, in a separate process"]
async fn with_few_files() {
    let server = start(router(), Options::default()).await;
    let mut clients = Vec::new();
    while let Ok(stream) = tokio::net::TcpStream::connect(server.address).await {
        clients.push(Client(stream));
        assert!(clients.len() < 100, "the limit has no effect");
    }
    // Client and server are one process: the server cannot have accepted the last ones.
    let mut last = clients.pop().unwrap();
    last.send("GET /hello HTTP/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(clients[0].get("/hello").await.status, 200);
    clients.clear();
    assert_eq!(last.response().await.status, 200);
    server.stop().await;
}
