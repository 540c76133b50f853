//! Monitoring: events, workers, metrics.

use super::Problems;
use crate::app::App;
use crate::events::Event;
use crate::extract::QueryParams;
use crate::listen::Delivery;
use crate::metrics::CONTENT_TYPE;
use crate::response::ApiResult;
use crate::response_memory::{self, list_response};
use crate::workers::{MAX_LIST_BYTES, WorkerInfo};
use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::Kind;
use serde::Deserialize;

/// Selects events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only events of these kinds, separated by commas. Default: all kinds.
    kinds: Option<String>,
}

/// Stream events as they happen (server-sent events).
///
/// The stream contains the events of this node from now on; events are not stored. A client that is
/// too slow gets the event `missed` with the number of events that it missed.
#[utoipa::path(
    get, path = "/v1/events", tag = "service", operation_id = "stream_events",
    params(EventsQuery),
    responses(
        (
            status = 200,
            description = "A stream without end. The data of each event is a JSON object.",
            body = Event, content_type = "text/event-stream"
        ),
        Problems
    )
)]
pub(super) async fn events(
    State(app): State<App>,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult<Response> {
    let kinds = query.kinds.iter().flat_map(|kinds| kinds.split(','));
    let kinds = kinds.map(Kind::new).collect::<Result<Vec<_>, _>>();
    let kinds = kinds.map_err(|invalid| Problem::from(invalid).at("kinds"))?;
    let listener = app.instrumented().events().listen(kinds);
    let listener = listener.map_err(|full| Problem::new(ProblemType::Busy, full.to_string()))?;
    Ok(listener.stream(app.shutdown().clone()))
}

/// The workers that recently claimed through this node.
#[expect(dead_code, reason = "only a schema: the response is encoded worker by worker")]
#[derive(utoipa::ToSchema)]
pub(super) struct WorkerList {
    /// The workers, sorted by name.
    workers: Vec<WorkerInfo>,
}

/// List the workers that recently claimed through this node, and how many leases they hold.
#[utoipa::path(
    get, path = "/v1/workers", tag = "service", operation_id = "list_workers",
    responses(
        (status = 200, description = "The workers, sorted by name.", body = WorkerList),
        Problems
    )
)]
pub(super) async fn workers(
    State(app): State<App>,
    Extension(delivery): Extension<Delivery>,
) -> ApiResult<Response> {
    let mut room = app.response_memory().reserve(MAX_LIST_BYTES).await?;
    let workers = app.instrumented().workers().list();
    room.keep(response_memory::weight(&workers));
    delivery.hold(room);
    Ok(list_response("workers", workers, |worker| worker, String::new(), delivery))
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "service", operation_id = "get_metrics",
    responses(
        (
            status = 200, description = "The metrics in the text format of Prometheus.",
            body = String, content_type = "text/plain"
        ),
        Problems
    )
)]
pub(super) async fn metrics(State(app): State<App>) -> ApiResult<Response> {
    let text = app.metrics().await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
