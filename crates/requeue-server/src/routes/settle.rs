//! Settling leases.

use super::Problems;
use super::jobs::check_entries;
use crate::app::App;
use crate::extract::{Json, off_runtime};
use crate::response::ApiResult;
use axum::extract::State;
use requeue_http::wire::{BatchErrors, Results, SettleBatch, SettleDone, SettleLease, SettleVerb};

type SettleResponse = ApiResult<Json<Results<SettleDone>>>;

/// One result per lease, in the order of the request.
#[derive(utoipa::IntoResponses)]
#[response(status = 200)]
#[expect(dead_code, reason = "only its documentation is used")]
struct SettleResults(Results<SettleDone>);

/// Settle leases, each with its own action.
#[utoipa::path(
    post, path = "/v1/settle", tag = "work", operation_id = "settle_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn settle(
    State(app): State<App>,
    Json(batch): Json<SettleBatch>,
) -> SettleResponse {
    settle_all(&app, None, batch).await
}

/// Ack jobs: they are done.
///
/// A result is kept with the done job if the kind keeps done jobs.
#[utoipa::path(
    post, path = "/v1/ack", tag = "work", operation_id = "ack_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn ack(State(app): State<App>, Json(batch): Json<SettleBatch>) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Ack), batch).await
}

/// Retry failed jobs: they become due again after a backoff, or dead after the last attempt.
#[utoipa::path(
    post, path = "/v1/retry", tag = "work", operation_id = "retry_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn retry(
    State(app): State<App>,
    Json(batch): Json<SettleBatch>,
) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Retry), batch).await
}

/// Bury failed jobs: they are dead without further attempts.
#[utoipa::path(
    post, path = "/v1/bury", tag = "work", operation_id = "bury_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn bury(State(app): State<App>, Json(batch): Json<SettleBatch>) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Bury), batch).await
}

/// Requeue jobs: they are done and become due again after a delay.
#[utoipa::path(
    post, path = "/v1/requeue", tag = "work", operation_id = "requeue_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn requeue(
    State(app): State<App>,
    Json(batch): Json<SettleBatch>,
) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Requeue), batch).await
}

/// Release jobs that were not started: they are ready again, and no attempt is counted.
#[utoipa::path(
    post, path = "/v1/release", tag = "work", operation_id = "release_jobs",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn release(
    State(app): State<App>,
    Json(batch): Json<SettleBatch>,
) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Release), batch).await
}

/// Extend leases.
#[utoipa::path(
    post, path = "/v1/extend", tag = "work", operation_id = "extend_leases",
    request_body = SettleBatch,
    responses(SettleResults, Problems)
)]
pub(super) async fn extend(
    State(app): State<App>,
    Json(batch): Json<SettleBatch>,
) -> SettleResponse {
    settle_all(&app, Some(SettleVerb::Extend), batch).await
}

async fn settle_all(app: &App, verb: Option<SettleVerb>, batch: SettleBatch) -> SettleResponse {
    check_entries("leases", batch.leases.len())?;
    let reading = app.reading();
    let result_bytes = batch.leases.iter().map(SettleLease::result_len).sum();
    let (mut settlements, errors) = off_runtime(result_bytes, move || {
        let read = |lease: SettleLease| lease.read(verb, &reading);
        BatchErrors::read("leases", batch.leases, read)
    })
    .await;
    let settled = match settlements.len() {
        0 => Vec::new(),
        // Concurrent single settlements go to the store as one batch.
        1 => {
            let settle = settlements.remove(0);
            vec![app.jobs().settle(&settle.receipt, settle.action).await]
        }
        _ => app.store().settle(settlements).await?,
    };
    Ok(Json(errors.join(settled.into_iter().map(|settled| settled.map(SettleDone::from)))))
}
