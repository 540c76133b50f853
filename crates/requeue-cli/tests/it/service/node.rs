//! A server process and its clients.

use super::shared_store::SharedStore;
use crate::support::{Dir, Server, until};
use requeue_http::client::{CallError, Options};
use requeue_http::{HttpStore, wire};
use requeue_jobs::{ClaimedJob, Jobs, Timestamp};
use rustix::process::Signal;
use serde_json::json;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The kind of all jobs in these tests.
pub(crate) const KIND: &str = "mail";

/// A lease that is longer than every test: a job that can be claimed again was released.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A running `requeue serve` and its client.
pub(crate) struct Node {
    server: Server,
    pub(crate) client: HttpStore,
}

impl Node {
    pub(crate) fn start(dir: &Dir, args: &[&str]) -> Self {
        let fixed = ["serve", "--json", "--log", "error"];
        let server = Server::of(dir.command(&[&fixed, args].concat()));
        let client = client(&server.url);
        Node { server, client }
    }

    /// On the store in the directory.
    pub(crate) fn on_disk(dir: &Dir) -> Self {
        Node::start(dir, &["--listen", "127.0.0.1:0", "--data", "d"])
    }

    pub(crate) fn on(dir: &Dir, store: &SharedStore) -> Self {
        Node::start(dir, &["--listen", "127.0.0.1:0", "--store", &store.url()])
    }

    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn jobs(&self) -> Jobs {
        Jobs::new(Arc::new(self.client.clone()))
    }

    /// Sends SIGKILL, and waits until it has exited.
    pub(crate) fn kill(self) {
        self.server.signal(Signal::KILL);
        self.server.end();
    }

    /// Sends SIGTERM, and waits until it has exited with 0.
    pub(crate) fn stop(self) {
        self.server.signal(Signal::TERM);
        assert_eq!(self.server.end(), Some(0));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// A raw connection.
    pub(crate) fn stream(&self) -> TcpStream {
        let address = self.url().strip_prefix("http://").expect("plain HTTP");
        TcpStream::connect(address).expect("it listens")
    }

    /// Waits until `count` claims wait at this server.
    pub(crate) fn awaits_claims(&self, count: u64) {
        until("claims that wait", || {
            let stats = block_on(self.client.stats()).expect("it answers");
            (stats["waiting_claims"] == count).then_some(())
        });
    }

    /// The HTTP status of a GET request.
    pub(crate) fn status(&self, path: &str) -> u16 {
        block_on(self.client.request("GET", path, None)).expect("it answers").0
    }
}

/// Blocks until the result of a future, or of a builder that becomes one.
pub(crate) fn block_on<T: IntoFuture>(asked: T) -> T::Output {
    requeue_testkit::block_on(asked.into_future())
}

/// A client whose timeout is longer than the longest claim.
fn client(url: &str) -> HttpStore {
    let mut options = Options::default();
    options.response_timeout = Duration::from_secs(100);
    HttpStore::connect_with(url, options).expect("a valid address")
}

/// The request of a claim with a long lease, which waits for a job.
pub(crate) fn claim_request(wait: &str, max: usize) -> serde_json::Value {
    json!({ "kinds": [KIND], "worker": "w", "lease": "1h", "max": max, "wait": wait })
}

/// Claims a job in one request, which waits at the server.
pub(crate) fn claim(client: &HttpStore, wait: &str) -> Result<Vec<ClaimedJob>, CallError> {
    let request = claim_request(wait, 1);
    Ok(read(block_on(client.call("POST", "/v1/claim", Some(&request)))?))
}

pub(crate) fn read(answer: wire::ClaimResponse) -> Vec<ClaimedJob> {
    assert!(answer.errors.is_empty(), "{:?}", answer.errors);
    let reading = wire::ParseContext { now: Timestamp::from_millis(0) };
    answer.jobs.into_iter().map(|job| job.read(&reading).expect("a job")).collect()
}

/// Claims the only job. It must be in its first attempt: it was released, and its lease did not
/// expire.
pub(crate) fn claim_released(client: &HttpStore) -> ClaimedJob {
    let job = until("the job", || claim(client, "0s").expect("it answers").pop());
    assert_eq!(job.attempt, 1);
    job
}
