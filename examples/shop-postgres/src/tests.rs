//! The promises of the README, on a real server.

use crate::orders;
use crate::reminders;
use crate::shop::{CLOSE, Delays, REMIND, Shop, job_id};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use requeue_testkit::servers::PostgresServer;
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tower::ServiceExt;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// A shop in a database of its own.
async fn open(database: &str, delays: Delays) -> (Shop, Router) {
    SERVER.create_database(database);
    let shop = Shop::open(&SERVER.url_of(database), delays).await.expect("the server runs");
    (shop.clone(), orders::routes(shop))
}

async fn send(routes: &Router, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a valid request");
    let response = routes.clone().oneshot(request).await.expect("never fails");
    let status = response.status();
    let bytes = response.into_body().collect().await.expect("the whole body").to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

async fn order(routes: &Router, item: &str) -> (StatusCode, Value) {
    send(routes, "POST", "/orders", &json!({ "item": item })).await
}

/// The number of orders, and of jobs of both kinds.
async fn counts(shop: &Shop) -> (i64, u64) {
    let client = shop.pool.get().await.expect("a connection");
    let orders = client.query_one("select count(*) from orders", &[]).await.expect("a table");
    let mut jobs = 0;
    for kind in [REMIND, CLOSE] {
        jobs += shop.jobs.kind(kind).await.expect("the server runs").counts.pending;
    }
    (orders.get(0), jobs)
}

/// Repeats a request until its response has this state, and whether the customer was reminded.
async fn until(routes: &Router, path: &str, state: &str, reminded: bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, order) = send(routes, "GET", path, &Value::Null).await;
        if order["state"] == state && order["reminded"] == reminded {
            return;
        }
        assert!(Instant::now() < end, "{order}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_order_that_is_committed_has_both_jobs() {
    let (shop, routes) = open("committed", Delays::default()).await;
    let (status, created) = order(&routes, "book").await;
    assert_eq!((status, created), (StatusCode::CREATED, json!({ "id": 1, "state": "unpaid" })));
    assert_eq!(counts(&shop).await, (1, 2));
    for (kind, delay) in [(REMIND, shop.delays.remind), (CLOSE, shop.delays.close)] {
        let job = shop.jobs.get(kind, &job_id(1)).await.expect("the server runs");
        let job = job.expect("the job exists");
        assert_eq!(job.version.due, job.created_at.saturating_add(delay));
    }
}

#[tokio::test]
async fn an_order_that_is_rolled_back_has_no_jobs() {
    let (shop, routes) = open("rolled_back", Delays::default()).await;
    assert_eq!(order(&routes, "last copy").await.0, StatusCode::CREATED);
    assert_eq!(counts(&shop).await, (1, 2));
    // The constraint fails after the order was inserted and both jobs were put.
    let (status, response) = order(&routes, "last copy").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(response, json!({ "error": "the item is out of stock" }));
    assert_eq!(counts(&shop).await, (1, 2));
    assert_eq!(order(&routes, "no such item").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(counts(&shop).await, (1, 2));
}

#[tokio::test]
async fn jobs_of_an_open_transaction_are_not_visible() {
    let (shop, _) = open("open", Delays::default()).await;
    let mut client = shop.pool.get().await.expect("a connection");
    let transaction = client.transaction().await.expect("a transaction");
    let put = shop.jobs.put(REMIND, "order-7", "7");
    requeue_postgres::PutInTransaction::on(put, &shop.store, &*transaction).await.expect("valid");
    assert_eq!(shop.jobs.get(REMIND, "order-7").await.expect("the server runs"), None);
    assert!(shop.jobs.claim([REMIND], "test").await.expect("the server runs").jobs.is_empty());
    transaction.commit().await.expect("the server runs");
    assert!(shop.jobs.get(REMIND, "order-7").await.expect("the server runs").is_some());
}

#[tokio::test]
async fn a_payment_cancels_both_jobs() {
    let (shop, routes) = open("paid", Delays::default()).await;
    order(&routes, "book").await;
    let (status, paid) = send(&routes, "POST", "/orders/1/pay", &Value::Null).await;
    assert_eq!((status, paid), (StatusCode::OK, json!({ "id": 1, "state": "paid" })));
    assert_eq!(counts(&shop).await, (1, 0));
    let (status, _) = send(&routes, "POST", "/orders/1/pay", &Value::Null).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn the_worker_reminds_of_an_unpaid_order_and_closes_it() {
    let delays = Delays { remind: Duration::from_millis(50), close: Duration::from_millis(1500) };
    let (shop, routes) = open("worker", delays).await;
    let worker = reminders::start(&shop).expect("valid names");
    order(&routes, "last copy").await;
    until(&routes, "/orders/1", "unpaid", true).await;
    until(&routes, "/orders/1", "closed", true).await;
    // The item is in the stock again.
    assert_eq!(order(&routes, "last copy").await.0, StatusCode::CREATED);
    worker.shut_down(Duration::from_secs(10)).await;
}
