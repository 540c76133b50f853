//! Errors of the client against servers that respond badly, or not at all.

use super::*;
use crate::problem::{Problem, ProblemType};
use requeue_jobs::{
    Body, Claim, Invalid, JobId, Kind, Put, PutError, Query, Spans, Store, StoreError, Timestamp,
    WorkerName,
};
use requeue_testkit::block_on;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// A request that a server received.
struct Received {
    /// The number of the connection, from 1.
    connection: usize,
    /// The first line, and the headers in lower case.
    head: String,
    body: Vec<u8>,
}

/// How a server reacts to a request.
enum Reaction {
    Respond(String),
    /// Sends this text, and closes the connection.
    Disconnect(String),
    /// Responds, and closes the connection after the barrier.
    RespondThenClose(String, Arc<Barrier>),
    /// Does not respond until the client has closed the connection.
    Stall,
}

/// Starts a server that reacts to each request as `react` decides.
fn server(
    mut react: impl FnMut(&Received) -> Reaction + Send + 'static,
) -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (to, seen) = channel();
    thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let (stream, to) = (stream.expect("it is accepted"), to.clone());
            let mut reader = BufReader::new(stream.try_clone().expect("it has two ends"));
            let mut stream = stream;
            while let Some(request) = request(&mut reader, n + 1) {
                let reaction = react(&request);
                drop(to.send(request));
                match reaction {
                    Reaction::Respond(text) => {
                        stream.write_all(text.as_bytes()).expect("it is read")
                    }
                    Reaction::Disconnect(text) => {
                        stream.write_all(text.as_bytes()).expect("it is read");
                        break;
                    }
                    Reaction::RespondThenClose(text, close) => {
                        stream.write_all(text.as_bytes()).expect("it is read");
                        close.wait();
                        break;
                    }
                    Reaction::Stall => {
                        drop(reader.read_to_end(&mut Vec::new()));
                        drop(to.send(Received {
                            connection: n + 1,
                            head: "closed".into(),
                            body: vec![],
                        }));
                        break;
                    }
                }
            }
        }
    });
    (url, seen)
}

fn request(from: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head += &if head.is_empty() { line } else { line.to_lowercase() };
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    from.read_exact(&mut body).ok()?;
    Some(Received { connection, head, body })
}

fn respond(status: &str, json: &str) -> Reaction {
    Reaction::Respond(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{json}", json.len()))
}

fn kind() -> Kind {
    Kind::new("mail").expect("a kind")
}

fn put(id: &str) -> Put {
    Put::new(kind(), JobId::new(id).expect("an id"), Body::default())
}

/// Returns the errors of a call that changes something, and of a call that only reads.
fn both(url: &str) -> (StoreError, StoreError) {
    let response_timeout = Duration::from_millis(200);
    let options = Options { response_timeout, ..Options::default() };
    let store = HttpStore::connect_with(url, options).unwrap();
    let change = block_on(store.put(vec![put("a")])).expect_err("the call fails");
    let look = block_on(store.get(kind(), JobId::new("a").unwrap())).expect_err("the call fails");
    (change, look)
}

#[track_caller]
fn unknown(error: &StoreError, reason: &str) {
    assert!(matches!(error, StoreError::Unknown { .. }), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[track_caller]
fn unavailable(error: &StoreError, reason: &str) {
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn a_failed_connection_means_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (change, look) = both(&url);
    unavailable(&change, "refused");
    unavailable(&look, &url);
}

/// So that a worker does not reap: the server does.
#[test]
fn the_store_needs_no_reaping() {
    assert!(!HttpStore::connect("http://127.0.0.1:1").expect("a valid URL").needs_reaping());
}

#[test]
fn a_request_without_a_response_has_an_unknown_outcome() {
    let (url, _seen) = server(|_| Reaction::Disconnect(String::new()));
    let (change, look) = both(&url);
    unknown(&change, &url);
    unavailable(&look, &url);
}

#[test]
fn an_incomplete_response_is_an_error() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"results\":";
    let (url, _seen) = server(move |_| Reaction::Disconnect(half.to_owned()));
    let (change, look) = both(&url);
    unknown(&change, "the response was interrupted");
    unavailable(&look, "the response was interrupted");
    let (url, _seen) = server(move |_| Reaction::Respond(half.to_owned()));
    let (change, look) = both(&url);
    unknown(&change, "the response stalled");
    unavailable(&look, "the response stalled");
}

#[test]
fn a_response_that_is_late_is_an_error() {
    let (url, _seen) = server(|_| Reaction::Stall);
    let (change, look) = both(&url);
    unknown(&change, "did not respond within 200ms");
    unavailable(&look, "did not respond within 200ms");
}

#[test]
fn an_invalid_response_is_an_error() {
    for (json, what) in [
        ("{", "invalid response"),
        ("[]", "invalid response"),
        ("", "invalid response"),
        ("<h1>Welcome</h1>", "invalid response"),
        (r#"{"results":[]}"#, ""),
    ] {
        let (url, _seen) = server(move |_| respond("200 OK", json));
        let (change, look) = both(&url);
        unknown(&change, what);
        unavailable(&look, "invalid response");
    }
    let (url, _seen) = server(|_| respond("200 OK", r#"{"results":[]}"#));
    unknown(&both(&url).0, "the response has 0 results for 1 entries");
    let (url, _seen) = server(|_| Reaction::Disconnect("SSH-2.0-OpenSSH_9.7\r\n".to_owned()));
    unknown(&both(&url).0, "");
}

#[test]
fn a_rejection_by_the_server_means_not_done_and_one_by_a_proxy_does_not() {
    for (problem_type, status) in [
        (ProblemType::Busy, "503 Busy"),
        (ProblemType::Stopping, "503 Stopping"),
        (ProblemType::TooSlow, "408 Slow"),
    ] {
        let problem = serde_json::to_string(&Problem::new(problem_type, "not now")).unwrap();
        let (url, _seen) = server(move |_| respond(status, &problem));
        unavailable(&both(&url).0, "not now");
    }
    let (url, _seen) = server(|_| respond("503 Service Unavailable", "<h1>no backend</h1>"));
    let (change, look) = both(&url);
    unknown(&change, "returned 503 Service Unavailable: <h1>no backend</h1>");
    unavailable(&look, "no backend");
    let (url, _seen) = server(|_| respond("404 Not Found", "nginx"));
    let (change, look) = both(&url);
    unavailable(&change, "is this the URL of a requeue server?");
    unavailable(&look, "is this the URL of a requeue server?");
    let (url, _seen) = server(|_| respond("401 Unauthorized", ""));
    unavailable(&both(&url).0, "the token was refused");
}

#[test]
fn a_redirect_is_not_followed() {
    let (url, seen) = server(|_| {
        let head = "HTTP/1.1 308 Permanent Redirect\r\nLocation: /elsewhere\r\n";
        Reaction::Respond(format!("{head}Content-Length: 0\r\n\r\n"))
    });
    let (change, look) = both(&url);
    unavailable(&change, "redirects are not followed");
    unavailable(&look, "redirects are not followed");
    let paths: Vec<_> = seen.try_iter().map(|seen| first_line(&seen)).collect();
    assert_eq!(
        paths,
        ["POST /v1/put HTTP/1.1", "GET /v1/kinds/mail/jobs/a?envelope=true HTTP/1.1"]
    );
}

fn first_line(seen: &Received) -> String {
    seen.head.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_connection_is_reused_unless_the_server_closes_it() {
    let (url, seen) = server(|_| respond("200 OK", r#"{"kinds":[]}"#));
    let store = HttpStore::connect(&url).unwrap();
    for _ in 0..3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, 1);
    }
    let (url, seen) = server(|_| {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n";
        Reaction::Disconnect(format!("{head}{{\"kinds\":[]}}"))
    });
    let store = HttpStore::connect(&url).unwrap();
    for n in 1..=3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, n);
    }
}

#[test]
fn a_connection_that_was_closed_while_idle_is_not_reused() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"kinds\":[]}";
    let close = Arc::new(Barrier::new(2));
    let barrier = Arc::clone(&close);
    let (url, seen) =
        server(move |_| Reaction::RespondThenClose(text.to_owned(), Arc::clone(&barrier)));
    let store = HttpStore::connect(&url).unwrap();
    for n in 1..=3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, n);
        assert_eq!(store.transport.idle(), 1);
        close.wait();
        while store.transport.idle() > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn dropping_the_future_ends_the_request() {
    let (url, seen) = server(|_| Reaction::Stall);
    let store = HttpStore::connect(&url).unwrap();
    thread::scope(|scope| {
        let (give_up, given_up) = channel::<()>();
        let store = &store;
        scope.spawn(move || {
            let mut wait = store.wait(vec![kind()], Duration::from_secs(60));
            block_on(std::future::poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            }));
            given_up.recv().unwrap();
        });
        assert_eq!(first_line(&seen.recv().unwrap()), "POST /v1/wait HTTP/1.1");
        give_up.send(()).unwrap();
    });
    // Long before the server would have responded.
    let closed = seen.recv_timeout(Duration::from_secs(30)).expect("it is closed");
    assert_eq!(closed.head, "closed");
}

#[test]
fn requests_contain_token_host_and_parameters() {
    let (url, seen) = server(|seen| match seen.head.starts_with("GET") {
        true => respond("200 OK", r#"{"jobs":[],"cursor":null}"#),
        false => respond("200 OK", r#"{"jobs":[]}"#),
    });
    let options = Options { token: Some(Secret::from("hunter2")), ..Options::default() };
    let store = HttpStore::connect_with(&format!("{url}/queue/"), options).unwrap();
    let query = Query {
        state: Some(requeue_jobs::JobState::Dead),
        prefix: "a&b=ü".to_owned(),
        after: Some(JobId::new("..").unwrap()),
        limit: usize::MAX,
        ..Query::new(kind())
    };
    block_on(store.list(query)).unwrap();
    let asked = seen.recv().unwrap();
    let path = "/queue/v1/kinds/mail/jobs?after=..&envelope=true&limit=1000&prefix=a%26b%3D%C3%BC&state=dead";
    assert_eq!(first_line(&asked), format!("GET {path} HTTP/1.1"));
    let has = |line: &str| assert!(asked.head.contains(line), "{}", asked.head);
    has("authorization: bearer hunter2\r\n");
    has(&format!("host: {}\r\n", url.trim_start_matches("http://")));

    let claim = Claim {
        kinds: vec![kind()],
        max: 5,
        lease: Some(Duration::from_secs(30)),
        worker: WorkerName::new("w").unwrap(),
        nonce: u64::MAX,
    };
    block_on(store.claim(claim)).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&seen.recv().unwrap().body).unwrap();
    let expected = serde_json::json!({
        "kinds": ["mail"], "worker": "w", "max": 5, "lease": "30s", "nonce": "ffffffffffffffff",
        "envelope": true,
    });
    assert_eq!(json, expected);
}

#[test]
fn invalid_calls_are_not_sent() {
    let (url, seen) = server(|_| respond("500 Bug", ""));
    let store = HttpStore::connect(&url).unwrap();
    let puts = (0..1001).map(|n| put(&n.to_string())).collect();
    let too_many = StoreError::Invalid(Invalid::TooMany {
        what: "entries in a batch",
        count: 1001,
        limit: 1000,
    });
    assert_eq!(block_on(store.put(puts)), Err(too_many));
    let spans = Spans { from: Timestamp::default(), length: Duration::ZERO, count: 1001 };
    assert!(matches!(block_on(store.upcoming(kind(), spans)), Err(StoreError::Invalid(_))));
    let query = Query { prefix: "x".repeat(100_000), ..Query::new(kind()) };
    assert_eq!(block_on(store.list(query)).unwrap().jobs, []);
    assert!(seen.try_recv().is_err());
}

#[test]
fn a_batch_that_is_too_large_is_sent_in_order_and_not_past_a_failure() {
    // Each body is six times as long in JSON: five of them fit into a request.
    let body = Body::new(vec![1; 1 << 20], "text/plain").unwrap();
    let puts = |count: usize| -> Vec<_> {
        (0..count).map(|n| Put { content: body.clone().into(), ..put(&n.to_string()) }).collect()
    };
    let done = |count: usize| {
        let one = r#"{"outcome":"created","generation":1}"#;
        respond("200 OK", &format!(r#"{{"results":[{}]}}"#, vec![one; count].join(",")))
    };
    let (url, seen) = server(move |seen| match seen.body.len() >> 20 {
        30 => done(5),
        6 => done(1),
        other => panic!("a request has {other} MiB"),
    });
    let store = HttpStore::connect(&url).unwrap();
    let each = block_on(store.put(puts(6))).unwrap();
    assert!(each.len() == 6 && each.iter().all(Result::is_ok), "{each:?}");
    assert_eq!(seen.try_iter().count(), 2);

    let mut requests = 0;
    let (url, seen) = server(move |_| {
        requests += 1;
        if requests == 1 { done(5) } else { Reaction::Disconnect(String::new()) }
    });
    let store = HttpStore::connect(&url).unwrap();
    let each = block_on(store.put(puts(11))).unwrap();
    assert_eq!(each.len(), 11);
    for (n, answer) in each.into_iter().enumerate() {
        match (n, answer) {
            (0..5, Ok(_)) => {}
            (5..10, Err(PutError::Store(error))) => unknown(&error, ""),
            (10, Err(PutError::Store(error))) => unavailable(&error, "not sent"),
            (_, other) => panic!("entry {n} is {other:?}"),
        }
    }
    assert_eq!(seen.try_iter().count(), 2);
}

#[test]
fn events_are_read_as_they_arrive_until_the_stream_ends() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let put = r#"{"event":"put","kind":"mail","id":"a","at":"2026-12-01T08:00:00.000Z","new":7}"#;
    let (first, second) = put.split_at(20);
    let parts = [
        ": still here\n\nevent: put\ndata: ",
        first,
        second,
        "\n",
        "\nevent: missed\ndata: {\"count\":904}\n\n",
    ];
    let chunk = |part: &&str| format!("{:x}\r\n{part}\r\n", part.len());
    let chunks: String = parts.iter().map(chunk).collect();
    let whole = format!("{head}{chunks}0\r\n\r\n");
    let (url, seen) = server(move |_| Reaction::Respond(whole.clone()));
    let mut events = block_on(HttpStore::connect(&url).unwrap().events(&[kind()])).unwrap();
    let request = seen.recv().unwrap().head;
    assert!(request.starts_with("GET /v1/events?kinds=mail HTTP/1.1"), "{request}");
    assert!(request.contains("accept: text/event-stream"), "{request}");
    let Some(StreamedEvent::Event(event)) = block_on(events.next()).unwrap() else {
        panic!("the first is an event");
    };
    assert_eq!(serde_json::to_string(&event).unwrap(), put, "fields of a newer server are kept");
    let missed = block_on(events.next()).unwrap();
    assert_eq!(missed, Some(StreamedEvent::Missed { count: 904 }));
    assert_eq!(block_on(events.next()).unwrap(), None);
}

#[test]
fn a_stream_of_events_that_breaks_or_is_invalid_fails() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let next = |reaction: String| {
        let (url, _seen) = server(move |_| Reaction::Disconnect(reaction.clone()));
        let mut events = block_on(HttpStore::connect(&url).unwrap().events(&[])).unwrap();
        block_on(events.next()).expect_err("the stream is broken").to_string()
    };
    let error = next(format!("{head}8\r\nevent: p"));
    assert!(error.contains("the response was interrupted"), "{error}");
    let error = next(format!("{head}9\r\ndata: x\n\n\r\n"));
    assert!(error.contains("invalid response of http://127.0.0.1"), "{error}");
    let long = "x".repeat(70_000);
    let error = next(format!("{head}{:x}\r\ndata: {long}\r\n", long.len() + 6));
    assert!(error.contains("an event is longer than 65536 bytes"), "{error}");

    let problem = Problem::new(ProblemType::Unauthorized, "the token is unknown");
    let problem = serde_json::to_string(&problem).unwrap();
    let (url, _seen) = server(move |_| respond("401 Unauthorized", &problem));
    let error = block_on(HttpStore::connect(&url).unwrap().events(&[])).unwrap_err();
    assert_eq!(error.to_string(), "the token is unknown");
}

#[test]
fn an_export_is_written_as_it_arrives_and_an_incomplete_one_fails() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let (url, _seen) = server(move |_| Reaction::Respond(whole.clone()));
    let mut out = Vec::new();
    assert_eq!(block_on(HttpStore::connect(&url).unwrap().export(&mut out)).unwrap(), 5);
    assert_eq!(out, b"abcde");
    let cut = format!("{head}3\r\nabc\r\n2\r\nd");
    let (url, _seen) = server(move |_| Reaction::Disconnect(cut.clone()));
    let error = block_on(HttpStore::connect(&url).unwrap().export(&mut Vec::new()));
    assert!(matches!(error, Err(CallError::Unknown { .. })), "{error:?}");
    let problem = serde_json::to_string(&Problem::new(ProblemType::Busy, "not now")).unwrap();
    let (url, _seen) = server(move |_| respond("503 Busy", &problem));
    let error = block_on(HttpStore::connect(&url).unwrap().export(&mut Vec::new())).unwrap_err();
    assert_eq!(error.to_string(), "not now");
}

/// Starts a server that responds with this head, and then sends this text again and again, with a pause
/// before each, until the client has closed the connection. Returns how many bytes it could send.
fn endless_server(head: &str, text: Vec<u8>, pause: Duration) -> (String, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (to, sent) = channel();
    let head = format!("HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\n\r\n");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it is accepted");
            let mut reader = BufReader::new(stream.try_clone().expect("it has two ends"));
            let Some(_) = request(&mut reader, 0) else { continue };
            let chunk = [format!("{:x}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
            let mut count = 0;
            let mut written = stream.write_all(head.as_bytes());
            while written.is_ok() {
                thread::park_timeout(pause);
                written = stream.write_all(&chunk);
                count += text.len();
            }
            // The test may have ended.
            let _ = to.send(count);
        }
    });
    (url, sent)
}

#[test]
fn a_response_is_read_only_up_to_its_bound() {
    let limit = 16 << 20;
    let spaces = vec![b' '; 1 << 16];
    let store = |url: &str| HttpStore::connect(url).unwrap();
    let none = Duration::ZERO;

    let (url, sent) = endless_server("200 OK", spaces.clone(), none);
    let error = block_on(store(&url).settings(kind())).unwrap_err().to_string();
    assert!(error.contains("the response is longer than 16777216 bytes"), "{error}");
    let count = sent.recv().unwrap();
    assert!(count < 2 * limit, "{count} bytes were sent");

    // Of an error, only the beginning is read.
    let (url, sent) = endless_server("502 Bad Gateway", spaces.clone(), none);
    let error = block_on(store(&url).settings(kind())).unwrap_err().to_string();
    assert!(error.contains("502"), "{error}");
    let count = sent.recv().unwrap();
    assert!(count < limit, "{count} bytes were sent");

    // A line of the progress of a backup.
    let (url, sent) = endless_server("200 OK", spaces, none);
    let error = block_on(store(&url).backup(|_, _| {})).unwrap_err().to_string();
    assert!(error.contains("longer than 65536 bytes"), "{error}");
    let count = sent.recv().unwrap();
    assert!(count < limit, "{count} bytes were sent");
}

#[test]
fn a_response_that_announces_too_much_is_not_read_at_all() {
    let ten_gibibytes = "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n";
    let (url, _seen) = server(move |_| Reaction::Respond(ten_gibibytes.to_owned()));
    let store = HttpStore::connect(&url).unwrap();
    let error = block_on(store.list(Query::new(kind()))).unwrap_err().to_string();
    assert!(error.contains("the response is longer than 268435456 bytes"), "{error}");
}

#[test]
fn a_response_that_arrives_byte_by_byte_is_given_up() {
    let (url, sent) = endless_server("200 OK", vec![b' '], Duration::from_millis(20));
    let response_timeout = Duration::from_millis(200);
    let options = Options { response_timeout, ..Options::default() };
    let store = HttpStore::connect_with(&url, options).unwrap();
    let error = block_on(store.settings(kind())).unwrap_err().to_string();
    assert!(error.contains("the response is too slow"), "{error}");
    let mut out = Vec::new();
    let error = block_on(store.export(&mut out)).unwrap_err().to_string();
    assert!(error.contains("the response is too slow"), "{error}");
    drop(store);
    assert!(sent.recv().unwrap() < 1000 && sent.recv().unwrap() < 1000);
}
