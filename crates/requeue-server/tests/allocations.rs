//! The number of allocations per request. It is counted for the whole process: therefore this is
//! the only test of its binary.

use requeue_jobs::{MemoryStore, WallClock};
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options};
use requeue_server::{App, Limits};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PUT: &[u8] = b"PUT /v1/kinds/mail/jobs/welcome-42 HTTP/1.1\r\nhost: localhost\r\n\
    content-type: application/json\r\ncontent-length: 34\r\n\r\n\
    {\"body_text\":\"hello\",\"delay\":\"1h\"}";
const REQUESTS: usize = 1000;

/// The limit includes those of the memory store. hyper, axum and the body of the request make most
/// of them.
const PUT_LIMIT: usize = 70;

/// Sends one request and reads its response, without allocating.
fn request(stream: &mut TcpStream) {
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

#[test]
fn a_put_makes_few_allocations() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("there is a runtime");
    let app = App::new(Arc::new(MemoryStore::new()), WallClock::system(), Limits::default());
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
        request(&mut stream);
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..REQUESTS {
        request(&mut stream);
    }
    let stats = region.change();
    let per_request = (stats.allocations + stats.reallocations) / REQUESTS;
    println!("{per_request} allocations per put, {} bytes", stats.bytes_allocated / REQUESTS);
    assert!(per_request <= PUT_LIMIT, "{per_request} allocations per put");
    drop(stream);
    app.shutdown().request();
    server.join().expect("the server ends");
}
