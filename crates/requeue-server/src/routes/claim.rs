//! Claiming jobs.

use super::Problems;
use crate::app::App;
use crate::auth::Caller;
use crate::claims::{self, FirstClaim};
use crate::extract::Json;
use crate::listen::{BodyHandle, Delivery, LaterResponse};
use crate::response::{ApiResult, json};
use crate::response_memory::list_response;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use requeue_http::Problem;
use requeue_http::wire::{ClaimRequest, ClaimResponse, ClaimedView, WaitRequest};
use requeue_jobs::{Claimed, Invalid, StoreError};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Claim jobs that are due.
///
/// If there are none, the request waits up to `wait` (long polling). If the client disconnects
/// before it gets the response, the claimed jobs are released.
#[utoipa::path(
    post, path = "/v1/claim", tag = "work", operation_id = "claim_jobs",
    request_body = ClaimRequest,
    responses(
        (
            status = 200, description = "The claimed jobs; none if no job was ready in time.",
            body = ClaimResponse
        ),
        Problems
    )
)]
pub(super) async fn claim(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
    Extension(caller): Extension<Caller>,
    Extension(body_handle): Extension<BodyHandle>,
    Json(request): Json<ClaimRequest>,
) -> ApiResult<Response> {
    let with_envelope = request.envelope;
    let (claim, wait) = request.read(nonce())?;
    for (n, kind) in claim.kinds.iter().enumerate() {
        app.push().check_claim(n, kind)?;
    }
    body_handle.shrink_to(0);
    check_wait(&app, wait)?;
    match claims::claim(&app, &caller, &claim, wait, &delivery).await? {
        FirstClaim::Claimed(claimed) => Ok(claim_response(claimed, with_envelope, delivery)),
        FirstClaim::Waits(failed) => {
            let later = LaterResponse::new(async move {
                let claimed = claims::wait(&app, &caller, claim, wait, failed, &delivery).await?;
                ApiResult::Ok(claim_response(claimed, with_envelope, delivery))
            });
            Ok(later.into_response())
        }
    }
}

fn claim_response(claimed: Claimed, with_envelope: bool, delivery: Delivery) -> Response {
    let Claimed { jobs, errors, .. } = claimed;
    let ClaimResponse { errors, .. } = Claimed { errors, ..Claimed::default() }.into();
    let rest = match errors.as_slice() {
        [] => String::new(),
        errors => format!(",\"errors\":{}", json(errors)),
    };
    let view = move |job| {
        let view = ClaimedView::from(&job);
        ClaimedView { envelope: view.envelope.filter(|_| with_envelope), ..view }
    };
    list_response("jobs", jobs, view, rest, delivery)
}

/// Wait until there may be jobs to claim.
///
/// It claims nothing: only a claim shows whether there are jobs. It may return early without a
/// reason.
#[utoipa::path(
    post, path = "/v1/wait", tag = "work", operation_id = "wait_for_jobs",
    request_body = WaitRequest,
    responses((status = 204, description = "There may be jobs, or the time is over."), Problems)
)]
pub(super) async fn wait(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(body_handle): Extension<BodyHandle>,
    Json(request): Json<WaitRequest>,
) -> ApiResult<LaterResponse> {
    let (kinds, wait) = request.read()?;
    body_handle.shrink_to(0);
    check_wait(&app, wait)?;
    Ok(LaterResponse::new(async move {
        let _slot = app.wait_slot(&caller, kinds.len())?;
        tokio::select! {
            problem = caller.revoked() => return Err(problem.into()),
            waited = app.store().wait(kinds, wait) => waited?,
            () = app.shutdown().requested() => {}
        }
        ApiResult::Ok(StatusCode::NO_CONTENT)
    }))
}

fn check_wait(app: &App, value: Duration) -> Result<(), Problem> {
    let (min, max) = (Duration::ZERO, app.limits().wait);
    if value <= max {
        return Ok(());
    }
    let invalid = Invalid::OutOfRange { field: "the wait", value, min, max };
    Err(Problem::from(StoreError::from(invalid)).at("wait"))
}

/// Returns a random number: the hash of nothing under a random key.
fn nonce() -> u64 {
    RandomState::new().hash_one(())
}
