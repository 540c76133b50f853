//! Statistics, problem documentation, health and readiness.

use super::Problems;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, invalid_path};
use crate::response::ApiResult;
use crate::trouble;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::wire::{AccessJson, NodeProblemJson, StatsJson};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Kind, StoreError, StoreProblem};
use serde::Serialize;
use std::time::Duration;

/// Time limit of the store call that checks readiness.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a node that has problems.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Degraded {
    /// Always `degraded`.
    status: &'static str,
    /// The problems, ordered by name.
    problems: Vec<NodeProblemJson>,
}

/// Returns a problem of the node, as it is shown to people with a token.
fn shown(problem: &StoreProblem) -> NodeProblemJson {
    let StoreProblem { name, detail, since } = problem;
    NodeProblemJson {
        name: (*name).to_owned(),
        detail: Some(detail.clone()),
        since: (*since).into(),
    }
}

/// Get statistics of the service.
#[utoipa::path(
    get, path = "/v1/stats", tag = "service", operation_id = "get_stats",
    responses((status = 200, description = "The statistics.", body = StatsJson), Problems)
)]
pub(super) async fn stats(State(app): State<App>) -> ApiResult<Json<StatsJson>> {
    let kinds = app.kinds().await?;
    let sum = |count: fn(&requeue_jobs::Counts) -> u64| {
        kinds.iter().map(|kind| count(&kind.counts)).sum()
    };
    Ok(Json(StatsJson {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: app.uptime().as_secs(),
        kinds: kinds.len(),
        pending: sum(|counts| counts.pending),
        ready: sum(|counts| counts.ready),
        leased: sum(|counts| counts.leased),
        dead: sum(|counts| counts.dead),
        done: sum(|counts| counts.done),
        waiting_claims: app.waiting(),
        problems: app.status().problems.iter().map(shown).collect(),
        trouble: trouble::find(&app, &kinds),
    }))
}

/// Get what the token of this request permits.
#[utoipa::path(
    get, path = "/v1/access", tag = "service", operation_id = "get_access",
    responses((status = 200, description = "What the token permits.", body = AccessJson), Problems)
)]
pub(super) async fn access(Extension(caller): Extension<Caller>) -> Json<AccessJson> {
    Json(AccessJson {
        access: caller.right().to_string(),
        restricted: caller.is_restricted(),
        name: caller.name().map(str::to_owned),
    })
}

/// Explain a problem type: what it means, and what to do about it.
#[utoipa::path(
    get, path = "/v1/problems/{name}", tag = "service", operation_id = "explain_problem",
    params(("name" = String, Path, description = "The last part of the type, such as `lease-lost`.")),
    responses(
        (
            status = 200, description = "The explanation.",
            body = String, content_type = "text/plain"
        ),
        Problems
    )
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
    get, path = "/healthz", tag = "service", operation_id = "check_health", security(()),
    responses(
        (status = 200, description = "The text `ok`.", body = String, content_type = "text/plain")
    )
)]
pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// Check that the node can serve requests: the store responds, and no shutdown was requested.
///
/// The response is the text `ready`. If the node has problems, for example a full disk, but serves at
/// least some requests, the response is a JSON object with the status `degraded`. `/v1/stats` has
/// the details.
#[utoipa::path(
    get, path = "/readyz", tag = "service", operation_id = "check_readiness", security(()),
    responses(
        (
            status = 200,
            description = "The text `ready`, or a JSON object if the node has problems.",
            content((String = "text/plain"), (Degraded = "application/json"))
        ),
        Problems
    )
)]
pub(super) async fn ready(State(app): State<App>) -> ApiResult<Response> {
    if app.shutdown().is_requested() {
        return Err(Problem::new(ProblemType::Stopping, "the server is shutting down").into());
    }
    // Any kind works: reading settings creates nothing.
    let kind = Kind::new("ready").expect("a valid kind");
    let settings = tokio::time::timeout(READY_TIMEOUT, app.store().settings(kind)).await;
    let late =
        || StoreError::Unavailable { reason: format!("no response within {READY_TIMEOUT:?}") };
    match settings.unwrap_or_else(|_| Err(late())) {
        Ok(_) => {
            let problems = app.status().problems;
            if problems.is_empty() {
                return Ok("ready\n".into_response());
            }
            // This path needs no token: names reveal less than details.
            let name = |problem| NodeProblemJson { detail: None, ..shown(problem) };
            let problems = problems.iter().map(name).collect();
            Ok(Json(Degraded { status: "degraded", problems }).into_response())
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Limits;
    use crate::auth::Access;
    use crate::health::tests::ProblemStore;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use requeue_jobs::{MemoryStore, Store, WallClock};
    use requeue_testkit::{Fault, Faulty};
    use std::sync::Arc;

    fn app(store: impl Store) -> App {
        App::new(Arc::new(store), WallClock::system(), Limits::default())
    }

    /// Returns the response to a GET request, without a socket.
    async fn get(app: &App, path: &str) -> Response {
        let access = Access::new([], None).expect("there is no token file");
        let request = Request::get(path).body(Body::empty()).expect("a valid request");
        let endpoint = app.endpoint(&access);
        let record = endpoint.begin(&request);
        let response = endpoint.call(request).await;
        record.finish(&response);
        response
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

    async fn text(response: Response) -> String {
        let body = to_bytes(response.into_body(), 1 << 20).await.expect("it is not long");
        String::from_utf8(body.to_vec()).expect("it is text")
    }

    #[tokio::test]
    async fn a_problem_of_the_store_is_in_readyz_stats_and_metrics_until_it_is_over() {
        let store = Arc::new(ProblemStore::default());
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        assert_eq!(text(get(&app, "/readyz").await).await, "ready\n");
        store.set(&["disk_full"]);
        let response = get(&app, "/readyz").await;
        assert_eq!(
            (response.status(), &response.headers()["content-type"]),
            (200.try_into().expect("a status"), &"application/json".parse().expect("a value"))
        );
        let degraded = r#"{"status":"degraded","problems":[{"name":"disk_full","since":"2023-11-14T22:13:20.000Z"}]}"#;
        assert_eq!(text(response).await, degraded);
        assert!(text(get(&app, "/v1/stats").await).await.contains("disk_full in /secret"));
        let metrics = text(get(&app, "/metrics").await).await;
        for line in [
            r#"requeue_store_problem{problem="disk_full"} 1"#,
            "requeue_disk_free_bytes 4096",
            "requeue_disk_merges_total 7",
            "# TYPE process_resident_memory_bytes gauge",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
        }
        store.set(&[]);
        assert_eq!(text(get(&app, "/readyz").await).await, "ready\n");
        let metrics = text(get(&app, "/metrics").await).await;
        assert!(metrics.contains(r#"requeue_store_problem{problem="disk_full"} 0"#));
    }

    #[tokio::test]
    async fn a_scrape_without_job_counts_is_a_problem_until_the_next_one() {
        let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new())));
        let app = App::new(store.clone(), WallClock::system(), Limits::default());
        store.at(1, Fault::Refused);
        get(&app, "/metrics").await;
        assert!(text(get(&app, "/readyz").await).await.contains("counts_unavailable"));
        get(&app, "/metrics").await;
        assert_eq!(text(get(&app, "/readyz").await).await, "ready\n");
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
