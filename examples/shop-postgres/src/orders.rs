//! The HTTP API: orders are created and paid. Each request is one transaction.

use crate::shop::{CLOSE, REMIND, Shop, job_id};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use requeue_jobs::{BoxError, ChangeError};
use requeue_postgres::PutInTransaction;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_postgres::error::SqlState;

pub(crate) fn routes(shop: Shop) -> Router {
    Router::new()
        .route("/orders", post(create))
        .route("/orders/{id}", get(show))
        .route("/orders/{id}/pay", post(pay))
        .with_state(shop)
}

#[derive(Deserialize)]
struct NewOrder {
    item: String,
}

/// Creates an order with its two jobs, and takes the item from the stock. If any of this fails, nothing
/// of it has happened: there is no order, and there are no jobs.
async fn create(
    State(shop): State<Shop>,
    Json(order): Json<NewOrder>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let mut client = shop.pool.get().await?;
    let transaction = client.transaction().await?;

    let insert = "insert into orders (item) values ($1) returning id";
    let id: i64 = transaction.query_one(insert, &[&order.item]).await?.get(0);
    let job = job_id(id);
    let remind = shop.jobs.put(REMIND, &job, id.to_string()).after(shop.delays.remind);
    remind.on(&shop.store, &*transaction).await?;
    let close = shop.jobs.put(CLOSE, &job, id.to_string()).after(shop.delays.close);
    close.on(&shop.store, &*transaction).await?;
    let take = "update stock set quantity = quantity - 1 where item = $1";
    transaction.execute(take, &[&order.item]).await?;

    transaction.commit().await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id, "state": "unpaid" }))))
}

/// Marks an order as paid and cancels its jobs.
async fn pay(State(shop): State<Shop>, Path(id): Path<i64>) -> Result<Json<Value>, Failure> {
    let mut client = shop.pool.get().await?;
    let transaction = client.transaction().await?;

    let update = "update orders set state = 'paid' where id = $1 and state = 'unpaid'";
    if transaction.execute(update, &[&id]).await? == 0 {
        return Err(Failure::Rejected(StatusCode::CONFLICT, "there is no such unpaid order"));
    }
    for kind in [REMIND, CLOSE] {
        match shop.store.cancel_on(&*transaction, kind, &job_id(id)).await {
            // Absent: the customer was reminded before.
            Ok(_) | Err(ChangeError::Absent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }

    transaction.commit().await?;
    Ok(Json(json!({ "id": id, "state": "paid" })))
}

async fn show(State(shop): State<Shop>, Path(id): Path<i64>) -> Result<Json<Value>, Failure> {
    let client = shop.pool.get().await?;
    let select = "select item, state, reminded_at is not null from orders where id = $1";
    match client.query_opt(select, &[&id]).await? {
        Some(row) => {
            let (item, state, reminded): (&str, &str, bool) = (row.get(0), row.get(1), row.get(2));
            Ok(Json(json!({ "id": id, "item": item, "state": state, "reminded": reminded })))
        }
        None => Err(Failure::Rejected(StatusCode::NOT_FOUND, "there is no such order")),
    }
}

/// Why a request has no result. Its transaction is rolled back, because it is dropped.
enum Failure {
    Rejected(StatusCode, &'static str),
    Other(BoxError),
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let database = error.downcast_ref::<tokio_postgres::Error>();
        match database.and_then(tokio_postgres::Error::code) {
            Some(&SqlState::CHECK_VIOLATION) => {
                Failure::Rejected(StatusCode::CONFLICT, "the item is out of stock")
            }
            Some(&SqlState::FOREIGN_KEY_VIOLATION) => {
                Failure::Rejected(StatusCode::UNPROCESSABLE_ENTITY, "there is no such item")
            }
            _ => Failure::Other(error),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, reason) = match self {
            Failure::Rejected(status, reason) => (status, reason),
            Failure::Other(error) => {
                eprintln!("request failed: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal error")
            }
        };
        (status, Json(json!({ "error": reason }))).into_response()
    }
}
