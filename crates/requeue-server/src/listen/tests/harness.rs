//! A server, and clients that send raw bytes.

use crate::listen::{Listener, Options, Shutdown, Tls};
use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes.
pub(crate) const FOREVER: Duration = Duration::from_secs(20);

/// A timeout that the test reaches, if nothing else has to happen before.
pub(crate) const SOON: Duration = Duration::from_millis(150);

/// A timeout that other requests must not reach, even on a busy machine.
pub(crate) const LATER: Duration = Duration::from_secs(1);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<()>,
}

pub(crate) async fn start(router: Router, options: Options) -> Server {
    start_with(router, options, None).await
}

pub(crate) async fn start_with(router: Router, options: Options, tls: Option<Tls>) -> Server {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port that is free");
    let address = tcp.local_addr().expect("it is bound");
    let mut listener = Listener::new(tcp, options);
    if let Some(tls) = tls {
        listener = listener.with_tls(tls);
    }
    let shutdown = Shutdown::new();
    let task = tokio::spawn(listener.serve(router.into(), shutdown.clone()));
    Server { address, shutdown, task }
}

impl Server {
    pub(crate) async fn client(&self) -> Client {
        Client(TcpStream::connect(self.address).await.expect("the server listens"))
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(self) {
        self.shutdown.request();
        within(self.task).await.expect("serving does not panic");
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    pub(crate) async fn get(&mut self, path: &str) -> TestResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
        self.response().await
    }

    pub(crate) async fn response(&mut self) -> TestResponse {
        read_response(&mut self.0).await
    }

    /// Returns everything until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = within(self.0.read_to_end(&mut bytes)).await;
        String::from_utf8(bytes).expect("responses are text")
    }
}

pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl TestResponse {
    /// Returns the type of the problem in the body.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let document: serde_json::Value = serde_json::from_str(&self.body).expect("it is JSON");
        assert_eq!(document["status"], self.status);
        let kind = document["type"].as_str().expect("it has a type");
        kind.strip_prefix("/v1/problems/").expect("it is one of ours").to_owned()
    }
}

/// Reads one response with a content length.
pub(crate) async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> TestResponse {
    let mut bytes = Vec::new();
    let head = loop {
        bytes.push(within(stream.read_u8()).await.expect("there is more of the head"));
        if bytes.ends_with(b"\r\n\r\n") {
            break String::from_utf8(bytes).expect("heads are ASCII").to_ascii_lowercase();
        }
    };
    let status: u16 = head[9..12].parse().expect("it begins with HTTP/1.1 and a status");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    // A 204 has no body, whatever its content length.
    let length = length.filter(|_| status != 204);
    let length = length.map_or(0, |length| length.parse().expect("a length is a number"));
    let mut body = vec![0; length];
    within(stream.read_exact(&mut body)).await.expect("there is more of the body");
    TestResponse { status, head, body: String::from_utf8(body).expect("bodies are text") }
}

/// Waits, and panics if it takes too long.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    timeout(FOREVER, future).await.expect("it ends in time")
}
