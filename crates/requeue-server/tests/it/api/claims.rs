//! Claims: ready jobs, long polling, and clients that disconnect.

use crate::api::support::{Client, Server, until};
use requeue_server::Limits;
use requeue_server::listen::Options;
use serde_json::{Value, json};
use std::time::Duration;

fn put(server: &Server, id: &str) {
    let path = format!("/v1/kinds/mail/jobs/{id}");
    server.call("PUT", &path, json!({"body": id})).json();
}

fn claim(wait: &str) -> Value {
    json!({"kinds": ["mail"], "worker": "me", "wait": wait})
}

fn start_claim(server: &Server, body: Value) -> Client {
    let mut client = server.client();
    client.start("POST", "/v1/claim", body);
    client
}

#[test]
fn a_claim_leases_due_jobs() {
    let server = Server::start();
    let mut client = server.client();
    let none = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]}));
    assert_eq!(none.json(), json!({"jobs": []}));
    for id in ["a", "b", "c"] {
        put(&server, id);
        server.clock.advance(Duration::from_millis(1));
    }
    let claim = json!({"kinds": ["mail"], "worker": "me", "max": 2, "lease": "1m", "nonce": "fF"});
    let mut claimed = client.call("POST", "/v1/claim", claim).json();
    let receipt = claimed["jobs"][0]["receipt"].take();
    assert!(receipt.as_str().unwrap().contains(".ff.mail/a"), "{receipt}");
    assert_eq!(
        claimed["jobs"][0],
        json!({
            "receipt": null, "kind": "mail", "id": "a", "body": "a",
            "content_type": "application/json", "due": "2026-12-01T08:00:00.000Z",
            "generation": 1, "fence": 1_796_112_000_003_000_u64, "attempt": 1,
            "lease_ends_at": "2026-12-01T08:01:00.003Z",
            "created_at": "2026-12-01T08:00:00.000Z",
        })
    );
    assert_eq!(claimed["jobs"][1]["id"], "b");
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(2));
    // With the defaults of worker, max and lease.
    let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail", "mail"]})).json();
    assert_eq!(claimed["jobs"][0]["lease_ends_at"], "2026-12-01T08:00:30.003Z");
    assert_eq!(client.get("/v1/kinds/mail/jobs/c").json()["lease"]["worker"], "nameless");
    assert_eq!(client.get("/v1/kinds/mail/jobs/a").json()["lease"]["worker"], "me");
    let nothing = json!({"kinds": [], "max": 0});
    assert_eq!(client.call("POST", "/v1/claim", nothing).json(), json!({"jobs": []}));
}

#[test]
fn a_waiting_claim_returns_when_a_job_is_ready() {
    let server = Server::start();
    let mut client = start_claim(&server, claim("1m"));
    server.until_waiting(1);
    put(&server, "a");
    assert_eq!(client.response().json()["jobs"][0]["id"], "a");
    // On the same connection, for a job that becomes due.
    server.call("PUT", "/v1/kinds/mail/jobs/b", json!({"delay": "5s"})).json();
    client.start("POST", "/v1/claim", claim("1m"));
    server.until_waiting(1);
    server.clock.advance(Duration::from_secs(5));
    assert_eq!(client.response().json()["jobs"][0]["id"], "b");
    server.until_waiting(0);
}

#[test]
fn a_waiting_claim_returns_with_the_next_token_of_a_rate_limit() {
    let server = Server::start();
    let rate = json!({"rate": {"jobs": 1, "per": "1m"}});
    server.call("PATCH", "/v1/kinds/mail", rate).json();
    put(&server, "a");
    put(&server, "b");
    assert_eq!(server.call("POST", "/v1/claim", claim("0s")).json()["jobs"][0]["id"], "a");
    let mut client = start_claim(&server, claim("1m"));
    server.until_waiting(1);
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(client.response().json()["jobs"][0]["id"], "b");
}

#[test]
fn higher_priorities_are_claimed_first() {
    let server = Server::start();
    for (id, priority) in [("a", 0), ("b", 9), ("c", 5)] {
        let path = format!("/v1/kinds/mail/jobs/{id}");
        server.call("PUT", &path, json!({"priority": priority})).json();
    }
    let request = json!({"kinds": ["mail"], "max": 3});
    let claimed = server.call("POST", "/v1/claim", request).json();
    let jobs = claimed["jobs"].as_array().unwrap();
    let order: Vec<_> = jobs.iter().map(|job| (&job["id"], &job["priority"])).collect();
    let (b, c, a) = (json!("b"), json!("c"), json!("a"));
    assert_eq!(order, [(&b, &json!(9)), (&c, &json!(5)), (&a, &json!(null))]);
    assert_eq!(server.get("/v1/kinds/mail/jobs/c").json()["priority"], 5);
}

#[test]
fn a_waiting_claim_returns_without_jobs_when_its_time_is_over() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.call("POST", "/v1/claim", claim("20ms")).json(), json!({"jobs": []}));
    put(&server, "a");
    assert_eq!(client.call("POST", "/v1/claim", claim("0s")).json()["jobs"][0]["id"], "a");
}

#[test]
fn one_of_many_waiting_claims_gets_the_job() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..50).map(|_| start_claim(&server, claim("1m"))).collect();
    server.until_waiting(50);
    put(&server, "a");
    server.until_waiting(49);
    for n in 0..49 {
        put(&server, &format!("b{n}"));
    }
    let responses = clients.iter_mut().map(|client| client.response().json());
    let ids = responses.map(|response| {
        assert_eq!(response["jobs"].as_array().map(Vec::len), Some(1));
        response["jobs"][0]["id"].as_str().unwrap().to_owned()
    });
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 50);
}

#[test]
fn the_number_of_waiting_claims_is_limited() {
    let mut limits = Limits::default();
    limits.waiting = 2;
    let server = Server::with(limits, Options::default());
    let mut first = start_claim(&server, claim("1m"));
    let second = start_claim(&server, claim("1m"));
    server.until_waiting(2);
    for (path, body) in
        [("/v1/claim", claim("1m")), ("/v1/wait", json!({"kinds": ["mail"], "wait": "1m"}))]
    {
        let response = server.call("POST", path, body);
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(response.is("busy")["limit"], 2);
    }
    // Claims that need not wait are served, and a claim that ends makes room.
    server.call("POST", "/v1/claim", claim("0s")).json();
    drop(second);
    server.until_waiting(1);
    let mut third = start_claim(&server, claim("1m"));
    server.until_waiting(2);
    put(&server, "a");
    put(&server, "b");
    first.response().json();
    third.response().json();
}

#[test]
fn a_waiting_claim_for_many_kinds_counts_as_several() {
    let mut limits = Limits::default();
    limits.waiting = 3;
    let server = Server::with(limits, Options::default());
    let kinds = |count: usize| -> Vec<_> { (0..count).map(|n| format!("k{n}")).collect() };
    let wait = |count| json!({"kinds": kinds(count), "worker": "w", "wait": "1m"});
    let large = start_claim(&server, wait(1000));
    server.until_waiting(3);
    server.call("POST", "/v1/claim", wait(1)).is("busy");
    drop(large);
    server.until_waiting(0);
    let _smaller = start_claim(&server, wait(32));
    server.until_waiting(2);
    server.call("POST", "/v1/claim", wait(17)).is("busy");
    let _last = start_claim(&server, wait(1));
    server.until_waiting(3);
}

#[test]
fn the_limit_of_waiting_claims_may_be_any_number() {
    let mut limits = Limits::default();
    limits.waiting = usize::MAX;
    let server = Server::with(limits, Options::default());
    let mut client = start_claim(&server, claim("1m"));
    server.until_waiting(1);
    put(&server, "a");
    client.response().json();
}

#[test]
fn a_disconnected_client_gets_no_job() {
    let server = Server::start();
    let gone = start_claim(&server, claim("1m"));
    let mut stays = start_claim(&server, claim("1m"));
    server.until_waiting(2);
    drop(gone);
    server.until_waiting(1);
    put(&server, "a");
    let claimed = stays.response().json();
    assert_eq!(claimed["jobs"][0]["id"], "a");
    assert_eq!(claimed["jobs"][0]["attempt"], 1);
}

#[test]
fn jobs_of_an_incomplete_response_are_released() {
    let server = Server::start();
    // More than all buffers on the way hold.
    let body = "x".repeat(1 << 20);
    for n in 0..16 {
        let path = format!("/v1/kinds/mail/jobs/{n}");
        server.call("PUT", &path, json!({"body_text": body})).json();
    }
    let gone = start_claim(&server, json!({"kinds": ["mail"], "max": 16}));
    let leased = || server.get("/v1/kinds/mail").json()["leased"].as_u64();
    until("they are claimed", || leased() == Some(16));
    drop(gone);
    until("they are released", || leased() == Some(0));
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"], "max": 16})).json();
    let jobs = claimed["jobs"].as_array().expect("there are jobs");
    assert_eq!(jobs.len(), 16);
    assert!(jobs.iter().all(|job| job["attempt"] == 1), "no attempt was counted");
}

#[test]
fn a_job_that_arrives_as_its_client_disconnects_is_done_by_another() {
    let server = Server::start();
    for round in 0..50 {
        let id = format!("a{round}");
        let gone = start_claim(&server, claim("1m"));
        server.until_waiting(1);
        let mut stays = start_claim(&server, claim("1m"));
        server.until_waiting(2);
        // The client disconnects before, while or after the job is put.
        let leaves = std::thread::spawn(move || drop(gone));
        put(&server, &id);
        leaves.join().expect("it has not panicked");
        // If the response was already written, the job stays leased until the lease expires.
        let path = format!("/v1/kinds/mail/jobs/{id}");
        let mut expires = false;
        until("one of them has it", || {
            let leased = server.get(&path).json()["state"] == "leased";
            expires = leased && server.waiting() == 1;
            server.waiting() == 0 || expires
        });
        if expires {
            server.clock.advance(Duration::from_secs(30));
        }
        let claimed = stays.response().json();
        assert_eq!(claimed["jobs"][0]["id"], *id);
        let attempt = claimed["jobs"][0]["attempt"].as_u64().unwrap();
        assert!(attempt == 1 || (expires && attempt == 2), "{attempt}");
        let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
        server.call("POST", "/v1/ack", leases).json();
    }
}

#[test]
fn paused_and_full_kinds_return_no_jobs() {
    let server = Server::start();
    put(&server, "a");
    put(&server, "b");
    server.call("PATCH", "/v1/kinds/mail", json!({"concurrency": 1})).json();
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"], "max": 9})).json();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1));
    let mut client = start_claim(&server, claim("1m"));
    server.until_waiting(1);
    server.call("POST", "/v1/kinds/mail/pause", json!(null)).nothing();
    let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
    server.call("POST", "/v1/ack", leases).json();
    assert_eq!(server.waiting(), 1);
    server.call("POST", "/v1/kinds/mail/resume", json!(null)).nothing();
    assert_eq!(client.response().json()["jobs"][0]["id"], "b");
}

#[test]
fn a_wait_claims_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.start("POST", "/v1/wait", json!({"kinds": ["mail"], "wait": "1m"}));
    server.until_waiting(1);
    put(&server, "a");
    client.response().nothing();
    assert_eq!(server.get("/v1/kinds/mail/jobs/a").json()["state"], "ready");
    // A job is ready.
    client.call("POST", "/v1/wait", json!({"kinds": ["mail"], "wait": "1m"})).nothing();
    // The wait ends by the clock of the store.
    client.start("POST", "/v1/wait", json!({"kinds": ["other"], "wait": "500ms"}));
    server.until_waiting(1);
    server.clock.advance(Duration::from_millis(500));
    client.response().nothing();
}

#[test]
fn waiting_claims_return_when_the_server_stops() {
    let server = Server::start();
    let mut waiting = server.client();
    waiting.start("POST", "/v1/wait", json!({"kinds": ["mail"], "wait": "1m"}));
    let mut claiming = start_claim(&server, claim("1m"));
    server.until_waiting(2);
    server.app.shutdown().request();
    assert_eq!(claiming.response().json(), json!({"jobs": []}));
    waiting.response().nothing();
}
