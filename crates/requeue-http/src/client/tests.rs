//! What is told of servers that answer badly, or not at all.

use super::*;
use crate::problem::{Problem, Sort};
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

/// What was sent to a server.
struct Seen {
    /// Which connection, from 1.
    connection: usize,
    /// The first line and the headers, in lower case but for the first line.
    head: String,
    body: Vec<u8>,
}

/// What a server does about a request.
enum Does {
    Answers(String),
    /// Sends this, and closes the connection.
    Breaks(String),
    /// Answers, and closes the connection when it is told to.
    Closes(String, Arc<Barrier>),
    /// Keeps it open, until the other side has closed it.
    Nothing,
}

/// A server that does as it is told, request by request.
fn server(mut does: impl FnMut(&Seen) -> Does + Send + 'static) -> (String, Receiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (to, seen) = channel();
    thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let (stream, to) = (stream.expect("it is accepted"), to.clone());
            let mut reader = BufReader::new(stream.try_clone().expect("it has two ends"));
            let mut stream = stream;
            while let Some(request) = request(&mut reader, n + 1) {
                let done = does(&request);
                drop(to.send(request));
                match done {
                    Does::Answers(text) => stream.write_all(text.as_bytes()).expect("it is read"),
                    Does::Breaks(text) => {
                        stream.write_all(text.as_bytes()).expect("it is read");
                        break;
                    }
                    Does::Closes(text, told) => {
                        stream.write_all(text.as_bytes()).expect("it is read");
                        told.wait();
                        break;
                    }
                    Does::Nothing => {
                        drop(reader.read_to_end(&mut Vec::new()));
                        drop(to.send(Seen {
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

fn request(from: &mut BufReader<TcpStream>, connection: usize) -> Option<Seen> {
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
    Some(Seen { connection, head, body })
}

fn answer(status: &str, json: &str) -> Does {
    Does::Answers(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{json}", json.len()))
}

fn kind() -> Kind {
    Kind::new("mail").expect("a kind")
}

fn put(id: &str) -> Put {
    Put::new(kind(), JobId::new(id).expect("an id"), Body::default())
}

/// What a change and a look answer.
fn both(url: &str) -> (StoreError, StoreError) {
    let answer_timeout = Duration::from_millis(200);
    let options = Options { answer_timeout, ..Options::default() };
    let store = HttpStore::connect_with(url, options).unwrap();
    let change = block_on(store.put(vec![put("a")])).expect_err("there is no answer");
    let look = block_on(store.get(kind(), JobId::new("a").unwrap())).expect_err("there is none");
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
fn what_was_not_sent_was_not_done() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (change, look) = both(&url);
    unavailable(&change, "refused");
    unavailable(&look, &url);
}

#[test]
fn what_was_sent_and_not_answered_may_have_been_done() {
    let (url, _seen) = server(|_| Does::Breaks(String::new()));
    let (change, look) = both(&url);
    unknown(&change, &url);
    unavailable(&look, &url);
}

#[test]
fn half_an_answer_is_none() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"results\":";
    let (url, _seen) = server(move |_| Does::Breaks(half.to_owned()));
    let (change, look) = both(&url);
    unknown(&change, "the answer broke off");
    unavailable(&look, "the answer broke off");
    let (url, _seen) = server(move |_| Does::Answers(half.to_owned()));
    let (change, look) = both(&url);
    unknown(&change, "stopped in its middle");
    unavailable(&look, "stopped in its middle");
}

#[test]
fn an_answer_that_does_not_come_in_time_is_not_waited_for() {
    let (url, _seen) = server(|_| Does::Nothing);
    let (change, look) = both(&url);
    unknown(&change, "did not answer in 200ms");
    unavailable(&look, "did not answer in 200ms");
}

#[test]
fn an_answer_that_cannot_be_read_is_none() {
    for (json, what) in [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ("", "cannot be read"),
        ("<h1>Welcome</h1>", "cannot be read"),
        (r#"{"results":[]}"#, ""),
    ] {
        let (url, _seen) = server(move |_| answer("200 OK", json));
        let (change, look) = both(&url);
        unknown(&change, what);
        unavailable(&look, "cannot be read");
    }
    let (url, _seen) = server(|_| answer("200 OK", r#"{"results":[]}"#));
    unknown(&both(&url).0, "there are 0 answers to 1 entries");
    let (url, _seen) = server(|_| Does::Breaks("SSH-2.0-OpenSSH_9.7\r\n".to_owned()));
    unknown(&both(&url).0, "");
}

#[test]
fn what_a_server_refuses_was_not_done_and_what_a_proxy_says_is_not_trusted() {
    for (sort, status) in
        [(Sort::Busy, "503 Busy"), (Sort::Stopping, "503 Stopping"), (Sort::TooSlow, "408 Slow")]
    {
        let problem = serde_json::to_string(&Problem::new(sort, "not now")).unwrap();
        let (url, _seen) = server(move |_| answer(status, &problem));
        unavailable(&both(&url).0, "not now");
    }
    let (url, _seen) = server(|_| answer("503 Service Unavailable", "<h1>no backend</h1>"));
    let (change, look) = both(&url);
    unknown(&change, "answered 503 Service Unavailable: <h1>no backend</h1>");
    unavailable(&look, "no backend");
    let (url, _seen) = server(|_| answer("404 Not Found", "nginx"));
    let (change, look) = both(&url);
    unavailable(&change, "is this the address of a requeue server?");
    unavailable(&look, "is this the address of a requeue server?");
    let (url, _seen) = server(|_| answer("401 Unauthorized", ""));
    unavailable(&both(&url).0, "the token was refused");
}

#[test]
fn a_redirect_is_not_followed() {
    let (url, seen) = server(|_| {
        let head = "HTTP/1.1 308 Permanent Redirect\r\nLocation: /elsewhere\r\n";
        Does::Answers(format!("{head}Content-Length: 0\r\n\r\n"))
    });
    let (change, look) = both(&url);
    unavailable(&change, "redirects are not followed");
    unavailable(&look, "redirects are not followed");
    let paths: Vec<_> = seen.try_iter().map(|seen| first_line(&seen)).collect();
    assert_eq!(paths, ["POST /v1/put HTTP/1.1", "GET /v1/kinds/mail/jobs/a HTTP/1.1"]);
}

fn first_line(seen: &Seen) -> String {
    seen.head.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_connection_is_used_again_unless_the_server_closes_it() {
    let (url, seen) = server(|_| answer("200 OK", r#"{"kinds":[]}"#));
    let store = HttpStore::connect(&url).unwrap();
    for _ in 0..3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, 1);
    }
    let (url, seen) = server(|_| {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\n";
        Does::Breaks(format!("{head}{{\"kinds\":[]}}"))
    });
    let store = HttpStore::connect(&url).unwrap();
    for n in 1..=3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, n);
    }
}

#[test]
fn a_connection_that_was_closed_while_it_was_kept_is_not_used() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"kinds\":[]}";
    let close = Arc::new(Barrier::new(2));
    let told = Arc::clone(&close);
    let (url, seen) = server(move |_| Does::Closes(text.to_owned(), Arc::clone(&told)));
    let store = HttpStore::connect(&url).unwrap();
    for n in 1..=3 {
        assert_eq!(block_on(store.kinds()), Ok(vec![]));
        assert_eq!(seen.recv().unwrap().connection, n);
        assert_eq!(store.link.kept(), 1);
        close.wait();
        while store.link.kept() > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn an_answer_that_nobody_wants_ends_its_request() {
    let (url, seen) = server(|_| Does::Nothing);
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
    // Long before the server would have answered.
    let closed = seen.recv_timeout(Duration::from_secs(30)).expect("it is closed");
    assert_eq!(closed.head, "closed");
}

#[test]
fn who_asks_and_for_what_is_in_the_request() {
    let (url, seen) = server(|seen| match seen.head.starts_with("GET") {
        true => answer("200 OK", r#"{"jobs":[],"cursor":null}"#),
        false => answer("200 OK", r#"{"jobs":[]}"#),
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
    let path = "/queue/v1/kinds/mail/jobs?state=dead&prefix=a%26b%3D%C3%BC&after=..&limit=1000";
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
    });
    assert_eq!(json, expected);
}

#[test]
fn what_can_be_checked_here_is_not_sent() {
    let (url, seen) = server(|_| answer("500 Bug", ""));
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
    // Each is six times as long in JSON: five of them fit into a request.
    let body = Body::new(vec![1; 1 << 20], "text/plain").unwrap();
    let puts = |count: usize| -> Vec<_> {
        (0..count).map(|n| Put { body: body.clone(), ..put(&n.to_string()) }).collect()
    };
    let done = |count: usize| {
        let one = r#"{"outcome":"created","generation":1}"#;
        answer("200 OK", &format!(r#"{{"results":[{}]}}"#, vec![one; count].join(",")))
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
        if requests == 1 { done(5) } else { Does::Breaks(String::new()) }
    });
    let store = HttpStore::connect(&url).unwrap();
    let each = block_on(store.put(puts(11))).unwrap();
    assert_eq!(each.len(), 11);
    for (n, answer) in each.into_iter().enumerate() {
        match (n, answer) {
            (0..5, Ok(_)) => {}
            (5..10, Err(PutError::Store(error))) => unknown(&error, ""),
            (10, Err(PutError::Store(error))) => unavailable(&error, "it was not sent"),
            (_, other) => panic!("entry {n} is {other:?}"),
        }
    }
    assert_eq!(seen.try_iter().count(), 2);
}

#[test]
fn an_export_is_written_as_it_comes_and_a_cut_one_is_seen_to_be() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let (url, _seen) = server(move |_| Does::Answers(whole.clone()));
    let mut out = Vec::new();
    assert_eq!(block_on(HttpStore::connect(&url).unwrap().export(&mut out)).unwrap(), 5);
    assert_eq!(out, b"abcde");
    let cut = format!("{head}3\r\nabc\r\n2\r\nd");
    let (url, _seen) = server(move |_| Does::Breaks(cut.clone()));
    let error = block_on(HttpStore::connect(&url).unwrap().export(&mut Vec::new()));
    assert!(matches!(error, Err(CallError::Unknown { .. })), "{error:?}");
    let problem = serde_json::to_string(&Problem::new(Sort::Busy, "not now")).unwrap();
    let (url, _seen) = server(move |_| answer("503 Busy", &problem));
    let error = block_on(HttpStore::connect(&url).unwrap().export(&mut Vec::new())).unwrap_err();
    assert_eq!(error.to_string(), "not now");
}
