//! Monitoring: events, workers, time series, the forecast of due jobs, metrics.

use super::Problems;
use crate::app::App;
use crate::auth::Caller;
use crate::events::Event;
use crate::extract::{Json, QueryParams};
use crate::listen::Delivery;
use crate::metrics::CONTENT_TYPE;
use crate::response::ApiResult;
use crate::response_memory::{self, list_response};
use crate::series::Span;
use crate::workers::{MAX_LIST_BYTES, WorkerInfo};
use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::wire::{Forecast, ForecastQuery, SeriesList, SeriesQuery};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::Kind;
use serde::Deserialize;
use std::collections::HashSet;

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
/// too slow gets the event `missed` with the number of events that it missed. If the token of the request
/// is revoked, the stream ends with the event `problem`.
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
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult<Response> {
    let slot = app.stream_slot(&caller)?;
    let listener = app.instrumented().events().listen(kinds(query.kinds)?);
    let listener = listener.map_err(|full| Problem::new(ProblemType::Busy, full.to_string()))?;
    Ok(listener.stream(app.shutdown().clone(), caller, slot))
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

/// Get what this node did in each minute of the last hour, or each quarter of an hour of the last day.
///
/// The series are kept in memory: they begin when the node starts. Kinds beyond the number that have
/// metrics of their own are in the total only.
#[utoipa::path(
    get, path = "/v1/series", tag = "service", operation_id = "get_series",
    params(SeriesQuery),
    responses((status = 200, description = "The time series.", body = SeriesList), Problems)
)]
pub(super) async fn series(
    State(app): State<App>,
    QueryParams(query): QueryParams<SeriesQuery>,
) -> ApiResult<Json<SeriesList>> {
    let span = match query.last.as_deref() {
        None | Some("1h") => Span::Hour,
        Some("1d") => Span::Day,
        Some(other) => {
            let detail = format!("{other:?} is not a span of time; write 1h or 1d");
            return Err(Problem::new(ProblemType::Invalid, detail).at("last").into());
        }
    };
    let list = match query.kinds.as_deref() {
        None => app.series().list(span, |_| false),
        Some("*") => app.series().list(span, |_| true),
        Some(_) => {
            let kinds: HashSet<Kind> = kinds(query.kinds)?.into_iter().collect();
            app.series().list(span, |kind| kinds.contains(kind))
        }
    };
    Ok(Json(list))
}

/// Count the jobs that become due in the next minute, hour, day and week.
///
/// If counting takes long, because there are many jobs, the response may be some time old: see
/// `counted_at` of each horizon.
#[utoipa::path(
    get, path = "/v1/upcoming", tag = "service", operation_id = "get_forecast",
    params(ForecastQuery),
    responses((status = 200, description = "The number of jobs per span of time.", body = Forecast), Problems)
)]
pub(super) async fn forecast(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ForecastQuery>,
) -> ApiResult<Json<Forecast>> {
    let kind = query.kind.map(Kind::with_reserved).transpose();
    let kind = kind.map_err(|invalid| Problem::from(invalid).at("kind"))?;
    Ok(Json(app.forecast(&caller, kind).await?))
}

/// Reads a list of kinds that are separated by commas.
fn kinds(text: Option<String>) -> Result<Vec<Kind>, Problem> {
    let kinds = text.iter().flat_map(|kinds| kinds.split(','));
    let kinds = kinds.map(Kind::with_reserved).collect::<Result<Vec<_>, _>>();
    kinds.map_err(|invalid| Problem::from(invalid).at("kinds"))
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
