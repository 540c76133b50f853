//! Responses with many bytes: their memory, and clients that do not read them.

use crate::api::support::{Server, until};
use requeue_jobs::limits::{MAX_BATCH, MAX_BODY_LEN, MAX_RESULT_BYTES};
use requeue_jobs::{Body, JobId, JobState, Kind, Put, Query, Store};
use requeue_server::Limits;
use requeue_server::listen::Options;
use serde_json::{Value, json};

const MOST: usize = MAX_RESULT_BYTES / MAX_BODY_LEN;

fn mail() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

/// Starts a server with `count` jobs of the largest size, whose bodies consist of this byte.
fn with_large_jobs(limits: Limits, count: usize, byte: u8) -> Server {
    let server = Server::with(limits, Options::default());
    let body = Body::octets(vec![byte; MAX_BODY_LEN]).expect("it is not too large");
    let put = |n: usize| {
        Put::new(mail(), JobId::new(format!("{n:02}")).expect("a valid id"), body.clone())
    };
    let puts: Vec<Put> = (0..count).map(put).collect();
    server.ask(async |store: &dyn Store| {
        for some in puts.chunks(MOST) {
            store.put(some.to_vec()).await.expect("the store works");
        }
    });
    server
}

fn count(server: &Server, state: JobState) -> usize {
    let query = Query { state: Some(state), limit: MAX_BATCH, ..Query::new(mail()) };
    let page = server.ask(async |store: &dyn Store| store.list(query).await);
    page.expect("the store works").jobs.len()
}

#[test]
fn lists_and_claims_end_at_sixteen_mebibytes_and_continue() {
    let server = with_large_jobs(Limits::default(), MOST + 2, b'x');
    let mut client = server.client();
    let page = client.get("/v1/kinds/mail/jobs?limit=1000").json();
    assert_eq!(page["jobs"].as_array().map(Vec::len), Some(MOST));
    assert_eq!(page["cursor"], "15");
    let page = client.get("/v1/kinds/mail/jobs?limit=1000&after=15").json();
    assert_eq!((page["jobs"].as_array().map(Vec::len), &page["cursor"]), (Some(2), &Value::Null));
    for expected in [MOST, 2] {
        let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"], "max": 1000}));
        let claimed = claimed.json();
        let jobs = claimed["jobs"].as_array().expect("there are jobs");
        assert_eq!(jobs.len(), expected);
        assert_eq!(jobs[0]["body_text"].as_str().map(str::len), Some(MAX_BODY_LEN));
    }
}

#[test]
fn a_client_that_does_not_read_gives_its_memory_and_its_jobs_to_others() {
    let mut limits = Limits::default();
    // The minimum: a list of the largest size, or two claims.
    limits.response_memory = 0;
    let server = with_large_jobs(limits, MOST, 0xFF);
    let mut unread = server.client();
    unread.start("POST", "/v1/claim", json!({"kinds": ["mail"], "max": 1000}));
    until("the jobs are claimed", || count(&server, JobState::Leased) == MOST);
    // There is not enough memory for a list as well. On a busy machine, the list may be refused before
    // the client is disconnected; the next one is not.
    until("the list has memory", || {
        let page = server.get("/v1/kinds/mail/jobs?limit=1000");
        if page.status == 503 {
            page.is("busy");
            return false;
        }
        assert_eq!(page.json()["jobs"].as_array().map(Vec::len), Some(MOST));
        true
    });
    until("the jobs are released", || count(&server, JobState::Ready) == MOST);
    drop(unread);
}
