//! Settling leases.

use super::Problems;
use super::jobs::entries;
use crate::app::App;
use crate::extract::Json;
use crate::response::ApiResult;
use axum::extract::State;
use requeue_http::wire::{BatchErrors, Results, SettleBatch, SettleDone, SettleVerb};

type Settling = ApiResult<Json<Results<SettleDone>>>;

/// Settles leases, each in its own way.
#[utoipa::path(
    post, path = "/v1/settle", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn settle(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, None, batch).await
}

/// They are done.
#[utoipa::path(
    post, path = "/v1/ack", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn ack(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Ack), batch).await
}

/// They failed: they come back, or are dead.
#[utoipa::path(
    post, path = "/v1/retry", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn retry(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Retry), batch).await
}

/// They failed, and trying again is of no use: they are dead.
#[utoipa::path(
    post, path = "/v1/bury", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn bury(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Bury), batch).await
}

/// They are done, and are to be done again after a delay.
#[utoipa::path(
    post, path = "/v1/requeue", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn requeue(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Requeue), batch).await
}

/// They were not begun: they go back to their places, and no attempt is counted.
#[utoipa::path(
    post, path = "/v1/release", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn release(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Release), batch).await
}

/// They take longer.
#[utoipa::path(
    post, path = "/v1/extend", tag = "work", request_body = SettleBatch,
    responses((status = 200, body = Results<SettleDone>), Problems)
)]
pub(super) async fn extend(State(app): State<App>, Json(batch): Json<SettleBatch>) -> Settling {
    settle_all(&app, Some(SettleVerb::Extend), batch).await
}

async fn settle_all(app: &App, verb: Option<SettleVerb>, batch: SettleBatch) -> Settling {
    entries("leases", batch.leases.len())?;
    let reading = app.reading();
    let leases = batch.leases.into_iter().enumerate();
    let read = leases.map(|(n, lease)| lease.read(&format!("leases[{n}]."), verb, &reading));
    let (mut settlements, errors) = BatchErrors::split(read);
    let settled = match settlements.len() {
        0 => Vec::new(),
        // Those that come alone go to the store together.
        1 => {
            let settle = settlements.remove(0);
            vec![app.jobs().settle(&settle.receipt, settle.action).await]
        }
        _ => app.store().settle(settlements).await?,
    };
    Ok(Json(errors.join(settled.into_iter().map(|settled| settled.map(SettleDone::from)))))
}
