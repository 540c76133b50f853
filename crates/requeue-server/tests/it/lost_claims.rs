//! Claims that Redis or Postgres runs, but whose replies are lost, through the HTTP API.

use crate::support::Server;
use requeue_http::HttpStore;
use requeue_jobs::{JobId, JobState, Kind, Store};
use requeue_postgres::PostgresStore;
use requeue_redis::RedisStore;
use requeue_testkit::servers::{PostgresServer, RedisServer};
use requeue_testkit::{Direction, Proxy, block_on};
use serde_json::{Value, json};

fn claim(client: &HttpStore, wait: &str) -> Value {
    let request = json!({"kinds": ["mail"], "worker": "me", "wait": wait});
    block_on(client.call("POST", "/v1/claim", Some(&request))).expect("the server responds")
}

fn proxy_to(address: &str) -> Proxy {
    Proxy::to(address.parse().expect("an address")).expect("a free port")
}

#[test]
fn a_waiting_claim_whose_reply_from_redis_is_lost_is_reported_as_unknown() {
    let redis = RedisServer::start();
    let proxy = proxy_to(&redis.address());
    let url = format!("redis://{}", proxy.address());
    let store = block_on(RedisStore::connect(&url)).expect("the server is up");
    is_reported_as_unknown(store, &proxy);
}

#[test]
fn a_waiting_claim_whose_reply_from_postgres_is_lost_is_reported_as_unknown() {
    let postgres = PostgresServer::start();
    let proxy = proxy_to(&postgres.address());
    let url = format!("postgres://requeue@{}/requeue", proxy.address());
    let mut options = requeue_postgres::Options::default();
    // One connection: the next reply is that of the claim.
    (options.max_connections, options.listen) = (1, false);
    let store = block_on(PostgresStore::connect_with(&url, options)).expect("the server is up");
    is_reported_as_unknown(store, &proxy);
}

fn is_reported_as_unknown(store: impl Store + Clone + 'static, proxy: &Proxy) {
    let server = Server::of(store.clone());
    let client = server.client();
    let put = |id: &str| {
        let path = format!("/v1/kinds/mail/jobs/{id}");
        let _: Value =
            block_on(client.call("PUT", &path, Some(&json!({"body": id})))).expect("it is put");
    };
    // Loads the script, or prepares the statement.
    put("first");
    assert_eq!(claim(&client, "0s")["jobs"][0]["id"], "first");
    put("a");
    put("b");
    proxy.cut_after(Direction::ToClient, 1);
    let claimed = claim(&client, "20s");
    assert_eq!(claimed["jobs"], json!([]), "{claimed}");
    assert_eq!(claimed["errors"][0]["kind"], "mail", "{claimed}");
    let problem = claimed["errors"][0]["error"]["type"].as_str().expect("a problem type");
    assert!(problem.ends_with("unknown"), "{claimed}");

    let kind = Kind::new("mail").expect("a valid kind");
    let states = ["a", "b"].map(|id| {
        let id = JobId::new(id).expect("a valid id");
        let job = block_on(store.get(kind.clone(), id)).expect("the store is up");
        job.expect("the job exists").state
    });
    let leased = states.iter().filter(|state| **state == JobState::Leased).count();
    assert_eq!(leased, 1, "the claim was sent once: {states:?}");
}
