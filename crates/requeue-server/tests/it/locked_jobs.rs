//! A transaction of an application that keeps a job locked stops no request about other jobs.

use crate::support::Server;
use requeue_http::HttpStore;
use requeue_postgres::PostgresStore;
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use serde_json::{Value, json};
use std::thread;

fn call(
    client: &HttpStore,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    block_on(client.call(method, path, body)).map_err(|error| error.to_string())
}

#[test]
fn requests_about_a_locked_job_are_unavailable_and_others_are_served() {
    let arguments = ["-c", "max_prepared_transactions=1"];
    let postgres = PostgresServer::with(&PostgresVersion::chosen(), &arguments);
    let url = postgres.url();
    let store = block_on(PostgresStore::connect(&url)).expect("the server is up");
    let server = Server::of(store);
    let put =
        |client: &HttpStore, path: &str| call(client, "PUT", path, Some(&json!({"body": "x"})));
    put(&server.client(), "/v1/kinds/mail/jobs/a").expect("it is put");
    put(&server.client(), "/v1/kinds/other/jobs/a").expect("it is put");
    // A transaction that was prepared keeps its locks without a connection.
    let hold = "select requeue.cancel('mail', 'a'); prepare transaction 'held'";
    postgres.query(&format!("begin; {hold}"));
    let on_threads = |count: usize, request: &(dyn Fn(usize) -> Result<Value, String> + Sync)| {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || request(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        })
    };
    let path = |n: usize| match n % 2 {
        0 => "/v1/kinds/mail/jobs/a".to_owned(),
        _ => format!("/v1/kinds/other-{}/jobs/a", n % 6),
    };
    for (n, result) in on_threads(12, &|n| put(&server.client(), &path(n))).iter().enumerate() {
        let is_locked = result.as_ref().is_err_and(|error| error.contains("has locked job a"));
        assert_eq!((is_locked, result.is_ok()), (n % 2 == 0, n % 2 == 1), "{n}: {result:?}");
    }
    let cancel = |n: usize| call(&server.client(), "DELETE", &path(n), None);
    for (n, result) in on_threads(4, &cancel).iter().enumerate() {
        let is_locked = result.as_ref().is_err_and(|error| error.contains("has locked job a"));
        assert_eq!((is_locked, result.is_ok()), (n % 2 == 0, n % 2 == 1), "{n}: {result:?}");
    }
    postgres.query("commit prepared 'held'");
    put(&server.client(), "/v1/kinds/mail/jobs/a").expect("it is put again");
}
