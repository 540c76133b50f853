//! Statistics, problem documentation, health and readiness.

use super::Problems;
use crate::app::App;
use crate::extract::{Json, invalid_path};
use crate::response::ApiResult;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Kind, StoreError};
use serde::Serialize;
use std::time::Duration;

/// Time limit of the store call that checks readiness.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Statistics of the service.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Stats {
    /// Version of the server.
    version: &'static str,
    /// Seconds since this node was started.
    uptime_seconds: u64,
    /// Number of kinds.
    kinds: usize,
    /// Number of waiting and ready jobs.
    pending: u64,
    /// Number of ready jobs, counted up to 10,000 per kind.
    ready: u64,
    /// Number of leased jobs.
    leased: u64,
    /// Number of dead jobs.
    dead: u64,
    /// Number of requests that wait for work at this node.
    waiting_claims: usize,
}

/// Get statistics of the service.
#[utoipa::path(
    get, path = "/v1/stats", tag = "service", responses((status = 200, body = Stats), Problems)
)]
pub(super) async fn stats(State(app): State<App>) -> ApiResult<Json<Stats>> {
    let kinds = app.store().kinds().await?;
    let sum = |count: fn(&requeue_jobs::Counts) -> u64| {
        kinds.iter().map(|kind| count(&kind.counts)).sum()
    };
    Ok(Json(Stats {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: app.uptime().as_secs(),
        kinds: kinds.len(),
        pending: sum(|counts| counts.pending),
        ready: sum(|counts| counts.ready),
        leased: sum(|counts| counts.leased),
        dead: sum(|counts| counts.dead),
        waiting_claims: app.waiting(),
    }))
}

/// Explain a problem type: what it means, and what to do about it.
#[utoipa::path(
    get, path = "/v1/problems/{name}", tag = "service", operation_id = "explain_problem",
    params(("name" = String, Path)),
    responses((status = 200, body = String, content_type = "text/plain"), Problems)
)]
pub(super) async fn problem(name: Result<Path<String>, PathRejection>) -> ApiResult<String> {
    let Path(name) = name.map_err(invalid_path)?;
    match ProblemType::by_name(&name) {
        Some(sort) => {
            let (title, status, advice) = (sort.title(), sort.status(), sort.advice());
            Ok(format!("{name}: {title} (status {status})\n\n{advice}\n"))
        }
        None => {
            let detail = format!("there is no problem type {name:?}");
            Err(Problem::new(ProblemType::Absent, detail).into())
        }
    }
}

/// Check that the process responds.
#[utoipa::path(
    get, path = "/healthz", tag = "service",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// Check that the node can serve requests: the store responds, and no shutdown was requested.
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses((status = 200, body = String, content_type = "text/plain"), Problems)
)]
pub(super) async fn ready(State(app): State<App>) -> ApiResult<&'static str> {
    if app.shutdown().is_requested() {
        return Err(Problem::new(ProblemType::Stopping, "the server is shutting down").into());
    }
    // Any kind works: reading settings creates nothing.
    let kind = Kind::new("ready").expect("a valid kind");
    let settings = tokio::time::timeout(READY_TIMEOUT, app.store().settings(kind)).await;
    let late =
        || StoreError::Unavailable { reason: format!("no response within {READY_TIMEOUT:?}") };
    match settings.unwrap_or_else(|_| Err(late())) {
        Ok(_) => Ok("ready\n"),
        Err(error) => {
            // This path needs no token: the response must not reveal details of the store.
            tracing::warn!(%error, "readiness check failed: the store does not respond");
            Err(Problem::new(ProblemType::Unavailable, "the store does not respond").into())
        }
    }
}

pub(super) async fn document(document: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

pub(super) async fn about() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("requeue {version}\n\nThe API is described at /v1/openapi.json.\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Limits;
    use crate::auth::Access;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use requeue_jobs::{MemoryStore, Store, WallClock};
    use requeue_testkit::{Fault, Faulty};
    use std::sync::Arc;
    use tower::ServiceExt;

    fn app(store: impl Store) -> App {
        App::new(Arc::new(store), WallClock::system(), Limits::default())
    }

    /// Returns the response to a GET request, without a socket.
    async fn get(app: &App, path: &str) -> Response {
        let access = Access::new([], None).expect("there is no token file");
        let request = Request::get(path).body(Body::empty()).expect("a valid request");
        app.router(&access).oneshot(request).await.expect("a router does not fail")
    }

    #[tokio::test]
    async fn after_the_shutdown_order_the_server_is_healthy_and_not_ready() {
        let app = app(MemoryStore::new());
        assert_eq!(get(&app, "/readyz").await.status(), 200);
        // The server accepts no connection any more, but open connections can still ask.
        app.shutdown().request();
        let response = get(&app, "/readyz").await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(get(&app, "/healthz").await.status(), 200);
    }

    #[tokio::test]
    async fn readiness_without_a_token_does_not_reveal_the_store_error() {
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.at(1, Fault::Refused);
        let response = get(&app(store), "/readyz").await;
        assert_eq!(response.status(), 503);
        let body = to_bytes(response.into_body(), 10_000).await.expect("it is short");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
        assert_eq!(problem["detail"], "the store does not respond");
    }
}
