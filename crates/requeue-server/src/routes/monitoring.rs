//! Monitoring: events, workers, metrics.

use super::Problems;
use crate::app::App;
use crate::events::Event;
use crate::extract::{Json, QueryParams};
use crate::metrics::CONTENT_TYPE;
use crate::response::ApiResult;
use crate::workers::Worker;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, Sort};
use requeue_jobs::Kind;
use serde::{Deserialize, Serialize};

/// Which events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Of these kinds, with commas in between. Default: of all.
    kinds: Option<String>,
}

/// What happens, as it happens: server-sent events.
///
/// They are of what this node does, from now on; nothing is kept. A client that is too slow is told
/// by `missed` how many it has missed.
#[utoipa::path(
    get, path = "/v1/events", tag = "service", params(EventsQuery),
    responses((status = 200, body = Event, content_type = "text/event-stream"), Problems)
)]
pub(super) async fn events(
    State(app): State<App>,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult<Response> {
    let kinds = query.kinds.iter().flat_map(|kinds| kinds.split(','));
    let kinds = kinds.map(Kind::new).collect::<Result<Vec<_>, _>>();
    let kinds = kinds.map_err(|invalid| Problem::from(invalid).at("kinds"))?;
    let listener = app.instrumented().events().listen(kinds);
    let listener = listener.map_err(|full| Problem::new(Sort::Busy, full.to_string()))?;
    Ok(listener.stream(app.shutdown().clone()))
}

/// Who has claimed through this node lately.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct WorkerList {
    /// By name.
    workers: Vec<Worker>,
}

/// Who has claimed through this node lately, and what they hold.
#[utoipa::path(
    get, path = "/v1/workers", tag = "service", responses((status = 200, body = WorkerList), Problems)
)]
pub(super) async fn workers(State(app): State<App>) -> Json<WorkerList> {
    Json(WorkerList { workers: app.instrumented().workers().list() })
}

/// What was counted, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses((status = 200, body = String, content_type = "text/plain"), Problems)
)]
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let text = app.instrumented().metrics().render(&**app.store()).await;
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}
