//! The number of allocations of a put, and the memory of a waiting claim. They are counted for the
//! whole process: therefore this is the only test of its binary.

use requeue_jobs::{MemoryStore, WallClock};
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options};
use requeue_server::{App, Limits};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PUT: &[u8] = b"PUT /v1/kinds/mail/jobs/welcome-42 HTTP/1.1\r\nhost: localhost\r\n\
    content-type: application/json\r\ncontent-length: 34\r\n\r\n\
    {\"body_text\":\"hello\",\"delay\":\"1h\"}";
const REQUESTS: usize = 1000;

/// The limit includes those of the memory store. hyper, axum and the body of the request make most
/// of them.
const PUT_LIMIT: usize = 55;

const CLAIM: &[u8] = b"POST /v1/claim HTTP/1.1\r\nhost: localhost\r\n\
    content-type: application/json\r\ncontent-length: 30\r\n\r\n\
    {\"kinds\":[\"idle\"],\"wait\":\"1h\"}";
const CLAIMS: usize = 100;

/// With one of hyper's buffers it would be 8 KiB more. The task of the connection and the future of
/// the claim make most of it.
const CLAIM_LIMIT: usize = 6000;

/// Longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends one put and reads its response, without allocating.
fn put(stream: &mut TcpStream) {
    stream.write_all(PUT).expect("the server reads");
    let mut response = [0; 4096];
    let mut len = 0;
    // The body of the response is one JSON object.
    while !response[..len].ends_with(b"}") {
        let more = stream.read(&mut response[len..]).expect("the server responds");
        assert!(more > 0, "the server closes the connection");
        len += more;
    }
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", response[..len].escape_ascii());
}

/// Returns how many claims wait.
fn waiting_claims(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the server responds");
    let value = response.lines().find_map(|line| line.strip_prefix("requeue_waiting_claims "));
    value.and_then(|value| value.parse().ok()).expect("the metrics contain it")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets claims wait, and returns their connections.
fn check_waiting_claims(address: SocketAddr) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(CLAIMS);
    let region = Region::new(ALLOCATOR);
    for _ in 0..CLAIMS {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.write_all(CLAIM).expect("the server reads");
        streams.push(stream);
    }
    wait_until("all claims wait", || waiting_claims(address) == CLAIMS);
    let mut per_claim = 0;
    let mut is_little = || {
        let stats = region.change();
        per_claim = stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) / CLAIMS;
        per_claim <= CLAIM_LIMIT
    };
    // A claim leaves hyper shortly after it begins to wait.
    wait_until("a waiting claim takes little memory", &mut is_little);
    println!("{per_claim} bytes per waiting claim");
    streams
}

#[test]
fn a_put_makes_few_allocations_and_a_waiting_claim_takes_little_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("there is a runtime");
    let mut limits = Limits::default();
    limits.wait = Duration::from_secs(3600);
    let app = App::new(Arc::new(MemoryStore::new()), WallClock::system(), limits);
    let tcp = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
    let tcp = tcp.expect("a port is free");
    let address = tcp.local_addr().expect("it is bound");
    let serving = app.clone();
    let server = std::thread::spawn(move || {
        let access = Access::new([], None).expect("there are no tokens");
        let listener = Listener::new(tcp, Options::default());
        let limit = Duration::from_secs(10);
        runtime.block_on(serving.serve_without_reaper(listener, &access, limit));
    });
    let mut stream = TcpStream::connect(address).expect("the server listens");
    // Whatever is created once.
    for _ in 0..REQUESTS {
        put(&mut stream);
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..REQUESTS {
        put(&mut stream);
    }
    let stats = region.change();
    let per_request = (stats.allocations + stats.reallocations) / REQUESTS;
    println!("{per_request} allocations per put, {} bytes", stats.bytes_allocated / REQUESTS);
    assert!(per_request <= PUT_LIMIT, "{per_request} allocations per put");
    let waiting = check_waiting_claims(address);
    drop((stream, waiting));
    app.shutdown().request();
    server.join().expect("the server ends");
}
