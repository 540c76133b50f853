//! A server in this process with a manual clock, and clients that send raw requests.

use requeue::ManualClock;
use requeue_jobs::{MemoryStore, Store, Timestamp, WallClock};
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options};
use requeue_server::{App, Limits};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Longer than anything here takes.
const FOREVER: Duration = Duration::from_secs(20);

/// Start time of the manual clock: 2026-12-01T08:00:00Z.
pub(crate) const BEGAN_AT: Timestamp = Timestamp::from_millis(1_796_112_000_000);

/// A server. Dropping it stops the server and checks that it did not panic.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    pub(crate) app: App,
    runtime: Runtime,
    served: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Server::with(Limits::default(), Options::default())
    }

    pub(crate) fn with(limits: Limits, options: Options) -> Self {
        Server::of(limits, options, |app| app)
    }

    /// Starts a server with additions to the service.
    pub(crate) fn of(limits: Limits, options: Options, add: impl FnOnce(App) -> App) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, BEGAN_AT);
        Server::at(wall_clock, clock, limits, options, &open(), add, false)
    }

    /// Starts a server that requires tokens.
    pub(crate) fn guarded(access: &Access, limits: Limits, options: Options) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, BEGAN_AT);
        Server::at(wall_clock, clock, limits, options, access, |app| app, false)
    }

    /// Starts a server that reaps, and starts the runs of schedules.
    pub(crate) fn with_schedules() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, BEGAN_AT);
        Server::at(
            wall_clock,
            clock,
            Limits::default(),
            Options::default(),
            &open(),
            |app| app,
            true,
        )
    }

    /// Starts a server in real time that delivers jobs, and may reach these internal targets.
    pub(crate) fn pushing(allowed: &str) -> Self {
        let mut limits = Limits::default();
        limits.push.allowed = allowed.parse().expect("valid targets");
        let (wall_clock, clock) = (WallClock::system(), ManualClock::new());
        Server::at(wall_clock, clock, limits, Options::default(), &open(), |app| app, true)
    }

    /// Starts a server in real time, with short waits.
    pub(crate) fn in_real_time() -> Self {
        let mut limits = Limits::default();
        limits.wait = Duration::from_millis(20);
        let (wall_clock, clock) = (WallClock::system(), ManualClock::new());
        Server::at(wall_clock, clock, limits, Options::default(), &open(), |app| app, false)
    }

    fn at(
        wall_clock: WallClock,
        clock: ManualClock,
        limits: Limits,
        options: Options,
        access: &Access,
        add: impl FnOnce(App) -> App,
        in_full: bool,
    ) -> Self {
        let store = MemoryStore::with(wall_clock.clone());
        let app = add(App::new(Arc::new(store.clone()), wall_clock, limits));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).thread_name(THREADS).enable_all();
        let runtime = runtime.build().expect("threads can be had");
        count_panics();
        let tcp = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = tcp.local_addr().expect("it is bound");
        let access = access.clone();
        let (listener, service) = (Listener::new(tcp, options), app.clone());
        let serve = async move {
            match in_full {
                true => service.serve(listener, &access, FOREVER).await,
                // Tests decide when expired leases are ended.
                false => service.serve_without_reaper(listener, &access, FOREVER).await,
            }
        };
        let served = Some(runtime.spawn(serve));
        Server { address, clock, store, app, runtime, served }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends one request on a new connection.
    pub(crate) fn call(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.client().call(method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> TestResponse {
        self.client().get(path)
    }

    /// Reads the store directly.
    pub(crate) fn ask<T>(&self, question: impl AsyncFnOnce(&dyn Store) -> T) -> T {
        self.runtime.block_on(question(&self.store))
    }

    /// Returns how many requests wait for work.
    pub(crate) fn waiting(&self) -> u64 {
        self.get("/v1/stats").json()["waiting_claims"].as_u64().expect("a number")
    }

    /// Returns when this many requests wait for work.
    pub(crate) fn until_waiting(&self, count: u64) {
        until(&format!("{count} wait"), || self.waiting() == count);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.shutdown().request();
        let served = self.served.take().expect("only taken here");
        let ended = self.runtime.block_on(async { tokio::time::timeout(FOREVER, served).await });
        if !std::thread::panicking() {
            ended.expect("it ends after the shutdown request").expect("serving does not panic");
            self.store.check();
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a server has panicked");
        }
    }
}

/// Access without tokens.
fn open() -> Access {
    Access::new([], None).expect("nobody needs a token")
}

/// Name of the servers' threads.
const THREADS: &str = "server";

/// Number of panics in all servers, including caught ones.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREADS) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            hook(panic);
        }));
    });
}

/// Polls until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < FOREVER, "timed out: {what}");
        std::thread::yield_now();
    }
}

/// A client with a keep-alive connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(FOREVER)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("the option can be set");
        Client(BufReader::new(stream))
    }

    /// Sends JSON, or no body if it is null.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: Value) -> TestResponse {
        self.start(method, path, body);
        self.response_to(method)
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn start(&mut self, method: &str, path: &str, body: Value) {
        match body {
            Value::Null => self.send(&request(method, path, "", b"")),
            body => self.send(&request(method, path, JSON, body.to_string().as_bytes())),
        }
    }

    /// Sends these bytes as JSON.
    pub(crate) fn send_json(&mut self, method: &str, path: &str, body: &[u8]) -> TestResponse {
        self.send(&request(method, path, JSON, body));
        self.response_to(method)
    }

    pub(crate) fn get(&mut self, path: &str) -> TestResponse {
        self.call("GET", path, Value::Null)
    }

    /// Sends bytes. If the server has closed the connection, its response can still be read.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.get_ref().write_all(bytes);
    }

    /// Closes the sending half of the connection.
    pub(crate) fn end(&mut self) {
        let _ = self.0.get_ref().shutdown(Shutdown::Write);
    }

    pub(crate) fn response(&mut self) -> TestResponse {
        self.response_to("GET")
    }

    fn response_to(&mut self, method: &str) -> TestResponse {
        self.try_response(method).expect("the server responds before it closes")
    }

    /// Reads a response, or returns `None` if the connection is closed.
    pub(crate) fn try_response(&mut self, method: &str) -> Option<TestResponse> {
        let first = self.line()?;
        let status = first.get(9..12).and_then(|text| text.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {first:?}"));
        let mut response = TestResponse { status, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line().expect("there is more of the head");
            let Some((name, value)) = line.split_once(": ") else { break };
            response.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        if method == "HEAD" || status == 204 {
            return Some(response);
        }
        if let Some(length) = response.header("content-length") {
            response.body = vec![0; length.parse().expect("a length is a number")];
            self.0.read_exact(&mut response.body).expect("there is more of the body");
        } else if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.line().expect("there is another chunk");
                let size = usize::from_str_radix(&size, 16).expect("a chunk has a size");
                let mut chunk = vec![0; size];
                self.0.read_exact(&mut chunk).expect("there is more of the chunk");
                response.body.append(&mut chunk);
                self.line();
                if size == 0 {
                    break;
                }
            }
        } else {
            self.0.read_to_end(&mut response.body).expect("there is an end");
        }
        Some(response)
    }

    /// Reads the head of a response whose body is a stream.
    pub(crate) fn head(&mut self) -> String {
        let lines = std::iter::from_fn(|| self.line()).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Reads the next chunk of a stream; an empty text at its end.
    pub(crate) fn chunk(&mut self) -> String {
        let size = self.line().unwrap_or_else(|| "0".to_owned());
        let mut chunk = vec![0; usize::from_str_radix(&size, 16).expect("a chunk has a size")];
        self.0.read_exact(&mut chunk).expect("there is more of the chunk");
        self.line();
        String::from_utf8(chunk).expect("the stream is text")
    }

    /// Reads everything until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no response: {error}"),
        }
    }
}

/// The content type of requests.
pub(crate) const JSON: &str = "application/json";

/// Returns the bytes of a request. Without a content type it has no body.
pub(crate) fn request(method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
    if !content_type.is_empty() {
        head += &format!("content-type: {content_type}\r\n");
    }
    if !content_type.is_empty() || !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| &*header.1)
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("responses are UTF-8")
    }

    /// Returns the JSON of a 200 response.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), Some(JSON));
        serde_json::from_slice(&self.body).expect("it is JSON")
    }

    /// Returns the results of a batch.
    #[track_caller]
    pub(crate) fn results(&self) -> Vec<Value> {
        let mut response = self.json();
        let results = response["results"].as_array_mut().expect("there are results");
        std::mem::take(results)
    }

    /// Asserts a 204 response.
    #[track_caller]
    pub(crate) fn nothing(&self) {
        assert_eq!((self.status, self.text()), (204, ""));
    }

    /// Returns the problem document, and asserts that it is complete.
    #[track_caller]
    pub(crate) fn problem(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{text}");
        let document: Value = serde_json::from_slice(&self.body).expect("it is JSON");
        assert_eq!(document["status"], self.status, "{text}");
        assert_eq!(sort(&document).status(), self.status, "{text}");
        assert!(document["title"].as_str().is_some_and(|title| !title.is_empty()), "{text}");
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{text}");
        document
    }

    /// Asserts the type of the problem.
    #[track_caller]
    pub(crate) fn is(&self, name: &str) -> Value {
        let problem = self.problem();
        assert_eq!(sort(&problem).name(), name, "{problem}");
        problem
    }
}

/// Returns the detail of a problem.
pub(crate) fn detail(problem: &Value) -> &str {
    problem["detail"].as_str().unwrap_or_default()
}

/// Returns the type of a problem.
#[track_caller]
pub(crate) fn sort(problem: &Value) -> requeue_http::ProblemType {
    let name = problem["type"].as_str().and_then(|name| name.strip_prefix("/v1/problems/"));
    let sort = name.and_then(requeue_http::ProblemType::by_name);
    sort.unwrap_or_else(|| panic!("an unknown sort: {problem}"))
}
