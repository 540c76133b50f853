//! `serve --otlp` sends a span of each request to an OpenTelemetry collector.

use crate::support::{Dir, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A request that the collector received.
struct Sent {
    head: String,
    /// Protobuf, which contains strings verbatim.
    body: Vec<u8>,
}

impl Sent {
    fn has(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

/// Starts a collector that accepts everything.
fn collector() -> (String, Receiver<Sent>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (sender, sent) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.expect("a connection"), sender.clone());
            std::thread::spawn(move || take(stream, &sender));
        }
    });
    (url, sent)
}

/// Reads requests until the connection is closed.
fn take(mut stream: TcpStream, sender: &Sender<Sent>) {
    let mut from = BufReader::new(stream.try_clone().expect("it can be read and written"));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if from.read_line(&mut head).expect("a head is text") == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |text| text.parse().expect("a number"))];
        from.read_exact(&mut body).expect("a whole body");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("it reads");
        if sender.send(Sent { head, body }).is_err() {
            return;
        }
    }
}

#[test]
fn a_span_of_each_request_is_sent_to_the_collector() {
    let (dir, (url, sent)) = (Dir::new(), collector());
    // The URL may be that of the collector or that of its traces endpoint.
    for otlp in [format!("{url}/"), format!("{url}/v1/traces")] {
        let server = Server::start(&dir, &["--data", "d", "--otlp", &otlp]);
        assert!(dir.http(&server.url, "/v1/kinds").starts_with("HTTP/1.1 200"));
        // The remaining spans are sent before the server exits.
        server.signal(rustix::process::Signal::TERM);
        assert_eq!(server.end(), Some(0));
        let sent = sent.recv_timeout(Duration::from_secs(60)).expect("spans");
        assert!(sent.head.starts_with("post /v1/traces http/1.1"), "{}", sent.head);
        assert!(sent.head.contains("content-type: application/x-protobuf"), "{}", sent.head);
        for text in ["service.name", "requeue", "GET", "/v1/kinds"] {
            assert!(sent.has(text), "no {text} in {:?}", String::from_utf8_lossy(&sent.body));
        }
    }
}

#[test]
fn the_server_works_without_a_reachable_collector() {
    let dir = Dir::new();
    let server = Server::start(&dir, &["--data", "d", "--otlp", "http://127.0.0.1:1"]);
    assert!(dir.http(&server.url, "/v1/kinds").starts_with("HTTP/1.1 200"));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn an_invalid_collector_url_is_rejected() {
    let dir = Dir::new();
    for url in ["nonsense", "https://127.0.0.1:4318", "http://", "http://a b"] {
        let args = ["serve", "--listen", "127.0.0.1:0", "--data", "d", "--otlp", url];
        dir.run(&args).code(2).complains("--otlp");
    }
}
